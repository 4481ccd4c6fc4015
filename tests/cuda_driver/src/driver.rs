//! The driver. Work is queued on streams and done when somebody waits for it: a stream, or an event that was recorded on it.

pub(crate) mod peers;

use crate::{folder, give};
use cudarc::driver::sys::CUresult::{self, *};
use cudarc::driver::sys::{self, CUdevice_attribute};
use kiln_cuda_host::HostFunction;
use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// How many devices there are.
const DEVICES: i32 = 2;
const ALIGNMENT: usize = 256;
/// Work that waits at most: a device begins by itself.
const MOST_WAITING: usize = 256;

/// What is copied to a device.
enum HostBytes {
    /// What was in pageable memory when the copy was asked for.
    Taken(Vec<u8>),
    /// What is in pinned memory when it is done.
    Pinned { from: usize, bytes: usize },
}

/// What a library does.
pub(crate) trait Call: Send + Sync {
    /// All memory that it touches, by start and bytes.
    fn reach(&self) -> Vec<(u64, usize)>;

    /// Does it.
    ///
    /// # Safety
    /// What it [reaches](Self::reach) is there.
    unsafe fn compute(&self);
}

/// What is to be done, on memory by its address.
enum Work {
    Launch {
        function: usize,
        blocks: [u32; 3],
        threads: [u32; 2],
        buffers: Vec<u64>,
        words: Vec<u32>,
    },
    ToDevice {
        to: u64,
        from: HostBytes,
    },
    ToHost {
        to: usize,
        from: u64,
        bytes: usize,
    },
    Free(u64),
    Record(u64),
    /// Waits for what was asked for before an event was recorded.
    Wait(u64),
    Between {
        to: u64,
        from: u64,
        bytes: usize,
    },
    Library(Box<dyn Call>),
    Graph(Arc<Vec<Work>>),
}

struct Stream {
    context: u64,
    waiting: Vec<Arc<Work>>,
    /// What a capture wrote down.
    captured: Option<Vec<Work>>,
}

#[derive(Default)]
struct State {
    /// Where device memory begins, its bytes and its context.
    memory: BTreeMap<u64, (usize, u64)>,
    host_memory: HashMap<usize, usize>,
    streams: HashMap<u64, Stream>,
    events: HashSet<u64>,
    functions: Vec<Arc<HostFunction>>,
    graphs: HashMap<u64, Vec<Work>>,
    made: HashMap<u64, Arc<Vec<Work>>>,
    handles: u64,
    /// What went wrong in a context, from where on nothing is done there.
    broken: HashMap<u64, CUresult>,
    /// How often the primary contexts of the devices were reset.
    resets: [u64; DEVICES as usize],
    /// How many hold them.
    holders: [u64; DEVICES as usize],
    /// What went wrong in one that was reset since, and that somebody still holds: nobody gets another until then.
    faulted: [Option<CUresult>; DEVICES as usize],
    /// Devices whose pools give memory that another may read and write, each with that one.
    shared: HashSet<(c_int, c_int)>,
}

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

fn state() -> MutexGuard<'static, State> {
    static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state, where a context is current and nothing went wrong.
fn ready() -> Result<MutexGuard<'static, State>, CUresult> {
    if CURRENT.get() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let state = state();
    if !(0..DEVICES).any(|device| state.primary(device) == CURRENT.get()) {
        return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    state.broken.get(&CURRENT.get()).map_or(Ok(()), |&error| Err(error))?;
    Ok(state)
}

fn code(result: Result<(), CUresult>) -> CUresult {
    result.err().unwrap_or(CUDA_SUCCESS)
}

/// What was asked for is given where the pointer says.
unsafe fn given<T>(to: *mut T, value: Result<T, CUresult>) -> CUresult {
    match value {
        // SAFETY: the pointer is the caller's to be written.
        Ok(value) => match unsafe { give(to, value) } {
            true => CUDA_SUCCESS,
            false => CUDA_ERROR_INVALID_VALUE,
        },
        Err(error) => error,
    }
}

impl State {
    fn handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }

    /// The context that is a device's now.
    fn primary(&self, device: sys::CUdevice) -> u64 {
        self.resets[device as usize] * DEVICES as u64 + device as u64 + 1
    }

    /// Destroys a device's context with all that it has.
    fn reset(&mut self, device: sys::CUdevice) {
        let context = self.primary(device);
        self.streams.retain(|_, stream| stream.context != context);
        if let Some(error) = self.broken.remove(&context) {
            self.faulted[device as usize] = Some(error);
        }
        let gone: Vec<u64> =
            self.memory.iter().filter(|(_, (_, of))| *of == context).map(|(&start, _)| start).collect();
        for address in gone {
            let _ = self.perform(&Work::Free(address));
        }
        self.resets[device as usize] += 1;
    }

    fn retain(&mut self, device: sys::CUdevice) -> Result<sys::CUcontext, CUresult> {
        self.faulted[device as usize].map_or(Ok(()), Err)?;
        self.holders[device as usize] += 1;
        Ok(self.primary(device) as sys::CUcontext)
    }

    fn release(&mut self, device: sys::CUdevice) -> Result<(), CUresult> {
        let holders = &mut self.holders[device as usize];
        *holders = holders.checked_sub(1).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if *holders == 0 {
            self.faulted[device as usize] = None;
            self.reset(device);
        }
        Ok(())
    }

    /// A stream of the current context.
    fn stream(&mut self, stream: sys::CUstream) -> Result<&mut Stream, CUresult> {
        let found = self.streams.get_mut(&(stream as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if found.context == CURRENT.get() { Ok(found) } else { Err(CUDA_ERROR_INVALID_CONTEXT) }
    }

    /// Whether so many bytes from an address on are device memory.
    fn holds(&self, address: u64, bytes: usize) -> bool {
        let before = self.memory.range(..=address).next_back();
        before.is_some_and(|(&start, &(size, _))| address - start + bytes as u64 <= size as u64)
    }

    /// New memory of the current context, full of NaNs.
    fn allocate(&mut self, bytes: usize) -> Result<sys::CUdeviceptr, CUresult> {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let taken: usize = self.memory.values().map(|&(bytes, _)| bytes).sum();
        if taken.saturating_add(bytes) > most_memory() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        // SAFETY: the layout has a size.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        // SAFETY: there are so many bytes.
        unsafe { start.write_bytes(0xff, bytes) };
        self.memory.insert(start as u64, (bytes, CURRENT.get()));
        Ok(start as u64)
    }

    /// Queues work, or writes it down while the stream is captured, if it can be.
    fn ask(&mut self, stream: sys::CUstream, work: Work) -> Result<(), CUresult> {
        let can = matches!(work, Work::Launch { .. } | Work::Library(_));
        let queue = self.stream(stream)?;
        match &mut queue.captured {
            Some(captured) if can => captured.push(work),
            Some(_) => return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            None => queue.waiting.push(Arc::new(work)),
        }
        if queue.waiting.len() > MOST_WAITING { self.finish(stream as u64, None) } else { Ok(()) }
    }

    /// [`finish`](Self::finish) for somebody who waits for it.
    fn wait_for(&mut self, stream: u64, event: Option<u64>) -> Result<(), CUresult> {
        let left = |state: &Self| state.streams.get(&stream).map_or(0, |queue| queue.waiting.len());
        let before = left(self);
        self.finish(stream, event)?;
        WAITS.fetch_add(u64::from(left(self) < before), Ordering::Relaxed);
        Ok(())
    }

    /// Does what waits on a stream, up to where an event was recorded if one is named.
    fn finish(&mut self, stream: u64, event: Option<u64>) -> Result<(), CUresult> {
        let Some(queue) = self.streams.get_mut(&stream) else { return Ok(()) };
        let is_event =
            |work: &Arc<Work>| matches!((&**work, event), (Work::Record(at), Some(event)) if *at == event);
        let end = match event {
            Some(_) => queue.waiting.iter().rposition(is_event).map_or(0, |at| at + 1),
            None => queue.waiting.len(),
        };
        let context = queue.context;
        let now: Vec<_> = queue.waiting.drain(..end).collect();
        for work in now {
            if let Err(error) = self.perform(&work) {
                self.broken.insert(context, error);
                return Err(error);
            }
        }
        Ok(())
    }

    fn perform(&mut self, work: &Work) -> Result<(), CUresult> {
        let there = |holds: bool| if holds { Ok(()) } else { Err(CUDA_ERROR_ILLEGAL_ADDRESS) };
        match work {
            Work::Launch { .. } | Work::Library(_) if is_dry() => Ok(()),
            Work::Launch { function, blocks, threads, buffers, words } => {
                for &buffer in buffers {
                    there(self.holds(buffer, 1))?;
                }
                let function = self.functions[*function].clone();
                for given in kiln_cuda_host::given(&function, buffers, words).iter().flatten() {
                    let memory = &given.memory;
                    there(self.holds(memory.start, (memory.end - memory.start) as usize))?;
                }
                kiln_cuda_host::run(&function, *blocks, *threads, buffers, words).map_err(|said| {
                    eprintln!("{said}");
                    CUDA_ERROR_LAUNCH_FAILED
                })
            }
            Work::ToDevice { to, from } => {
                let (from, bytes) = match from {
                    HostBytes::Taken(taken) => (taken.as_ptr(), taken.len()),
                    HostBytes::Pinned { from, bytes } => (*from as *const u8, *bytes),
                };
                there(self.holds(*to, bytes))?;
                // SAFETY: the memory was just looked up, and the caller leaves what is pinned as it is until this is done.
                unsafe { std::ptr::copy_nonoverlapping(from, *to as *mut u8, bytes) };
                Ok(())
            }
            Work::ToHost { to, from, bytes } => {
                there(self.holds(*from, *bytes))?;
                // SAFETY: the memory was just looked up, and the caller keeps what is copied to until this is done.
                unsafe { std::ptr::copy_nonoverlapping(*from as *const u8, *to as *mut u8, *bytes) };
                Ok(())
            }
            Work::Free(address) => {
                let (bytes, _) = self.memory.remove(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                let layout =
                    Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
                // SAFETY: it was allocated with this layout, and is not known any more.
                unsafe { dealloc(*address as *mut u8, layout) };
                Ok(())
            }
            Work::Record(_) => Ok(()),
            Work::Wait(event) => {
                let streams: Vec<u64> = self.streams.keys().copied().collect();
                streams.into_iter().try_for_each(|stream| self.finish(stream, Some(*event)))
            }
            Work::Between { to, from, bytes } => {
                there(self.holds(*from, *bytes) && self.holds(*to, *bytes))?;
                // SAFETY: both were just looked up, and are memory of two devices.
                unsafe { std::ptr::copy_nonoverlapping(*from as *const u8, *to as *mut u8, *bytes) };
                Ok(())
            }
            Work::Library(call) => {
                for (start, bytes) in call.reach() {
                    there(self.holds(start, bytes))?;
                }
                // SAFETY: all that it reads and writes was just looked up.
                unsafe { call.compute() };
                Ok(())
            }
            Work::Graph(all) => all.iter().try_for_each(|work| self.perform(work)),
        }
    }
}

/// How often somebody waited for work that was not done: for all or an event, or by a copy that the driver may have wait ("API Synchronization Behavior").
static WAITS: AtomicU64 = AtomicU64::new(0);

/// Tells tests how often somebody waited.
#[unsafe(no_mangle)]
extern "C" fn kiln_cuda_waits() -> u64 {
    WAITS.load(Ordering::Relaxed)
}

/// Bytes of pageable memory that the driver takes at once.
const MOST_PAGEABLE: usize = 64 << 10;

/// Whether there is no page-locked memory: the variable `KILN_CUDA_DRIVER_PAGEABLE` says so.
fn is_pageable() -> bool {
    static PAGEABLE: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("KILN_CUDA_DRIVER_PAGEABLE").is_some());
    *PAGEABLE
}

/// Whether the devices have memory pools: the variable `KILN_CUDA_DRIVER_WITHOUT_POOLS` says that they have none.
fn has_pools() -> bool {
    static WITHOUT: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("KILN_CUDA_DRIVER_WITHOUT_POOLS").is_some());
    !*WITHOUT
}

/// How many bytes of memory the devices have together: the variable `KILN_CUDA_DRIVER_MEMORY` says it.
fn most_memory() -> usize {
    static MOST: LazyLock<Option<usize>> =
        LazyLock::new(|| std::env::var("KILN_CUDA_DRIVER_MEMORY").ok()?.parse().ok());
    MOST.unwrap_or(usize::MAX)
}

/// Whether nothing is computed, so that what is asked for can be counted in no time: the variable `KILN_CUDA_DRIVER_DRY` says so.
fn is_dry() -> bool {
    static DRY: LazyLock<bool> = LazyLock::new(|| std::env::var_os("KILN_CUDA_DRIVER_DRY").is_some());
    *DRY
}

/// Queues what a library does.
pub(crate) fn call(stream: *mut c_void, call: Box<dyn Call>) -> bool {
    ready().and_then(|mut state| state.ask(stream.cast(), Work::Library(call))).is_ok()
}

/// Queues what a library does on several streams at once, whichever context is current: when all that was asked of each before is done, and before what
/// is asked of any later.
pub(crate) fn call_together(streams: &[u64], call: Box<dyn Call>) -> bool {
    let [first, others @ ..] = streams else { return false };
    let current = CURRENT.get();
    let ask = |stream: u64, work: Work| {
        let context = state().streams.get(&stream).map_or(0, |queue| queue.context);
        CURRENT.set(context);
        ready().and_then(|mut state| state.ask(stream as sys::CUstream, work))
    };
    // Such events are nobody's but this call's.
    let [before, after] = [(); 2].map(|()| NEXT_EVENT.fetch_sub(1, Ordering::Relaxed));
    let queue = || {
        for &other in others {
            ask(other, Work::Record(before))?;
            ask(*first, Work::Wait(before))?;
        }
        ask(*first, Work::Library(call))?;
        ask(*first, Work::Record(after))?;
        others.iter().try_for_each(|&other| ask(other, Work::Wait(after)))
    };
    let asked: Result<(), CUresult> = queue();
    CURRENT.set(current);
    asked.is_ok()
}

/// Events of calls on several streams, which have no handles.
static NEXT_EVENT: AtomicU64 = AtomicU64::new(u64::MAX);

// All of what follows is declared, with what must hold, in the CUDA driver API's reference.

#[unsafe(no_mangle)]
unsafe extern "C" fn cuInit(flags: c_uint) -> CUresult {
    if flags == 0 { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_VALUE }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    // SAFETY: as the reference says.
    unsafe { given(count, Ok(DEVICES)) }
}

fn known(device: sys::CUdevice) -> Result<(), CUresult> {
    if (0..DEVICES).contains(&device) { Ok(()) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut sys::CUdevice, ordinal: c_int) -> CUresult {
    // SAFETY: as the reference says.
    unsafe { given(device, known(ordinal).map(|()| ordinal)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: sys::CUdevice) -> CUresult {
    let text = c"the host in place of a GPU".to_bytes_with_nul();
    if known(device).is_err() || (length as usize) < text.len() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: there is room for so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), text.len()) };
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: CUdevice_attribute,
    device: sys::CUdevice,
) -> CUresult {
    let number = match attribute {
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => Ok(9),
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => Ok(0),
        // An H100's.
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => Ok(132),
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED => Ok(has_pools().into()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    };
    // SAFETY: as the reference says.
    unsafe { given(value, known(device).and(number)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: sys::CUdevice) -> CUresult {
    // An H100's.
    // SAFETY: as the reference says.
    unsafe { given(bytes, known(device).map(|()| 80 << 30)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut sys::CUcontext,
    device: sys::CUdevice,
) -> CUresult {
    // SAFETY: as the reference says.
    unsafe { given(context, known(device).and_then(|()| state().retain(device))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: sys::CUdevice) -> CUresult {
    code(known(device).and_then(|()| state().release(device)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxReset_v2(device: sys::CUdevice) -> CUresult {
    code(known(device).map(|()| state().reset(device)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSetCurrent(context: sys::CUcontext) -> CUresult {
    CURRENT.set(context as u64);
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetDefaultMemPool(
    pool: *mut sys::CUmemoryPool,
    device: sys::CUdevice,
) -> CUresult {
    let made = match has_pools() {
        true => known(device).map(|()| (device as u64 + 1) as sys::CUmemoryPool),
        false => Err(CUDA_ERROR_NOT_SUPPORTED),
    };
    // SAFETY: as the reference says.
    unsafe { given(pool, made) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolSetAttribute(
    _pool: sys::CUmemoryPool,
    attribute: sys::CUmemPool_attribute,
    value: *mut c_void,
) -> CUresult {
    match attribute {
        sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD if !value.is_null() => CUDA_SUCCESS,
        _ => CUDA_ERROR_INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolTrimTo(pool: sys::CUmemoryPool, _least: usize) -> CUresult {
    if pool.is_null() { CUDA_ERROR_INVALID_VALUE } else { CUDA_SUCCESS }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: CUresult, text: *mut *const c_char) -> CUresult {
    let names: [(CUresult, &CStr); 8] = [
        (CUDA_ERROR_INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE"),
        (CUDA_ERROR_OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY"),
        (CUDA_ERROR_INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT"),
        (CUDA_ERROR_INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE"),
        (CUDA_ERROR_INVALID_IMAGE, c"CUDA_ERROR_INVALID_IMAGE"),
        (CUDA_ERROR_ILLEGAL_ADDRESS, c"CUDA_ERROR_ILLEGAL_ADDRESS"),
        (CUDA_ERROR_LAUNCH_FAILED, c"CUDA_ERROR_LAUNCH_FAILED"),
        (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
    ];
    let name = names.iter().find(|(known, _)| *known == error).map_or(c"another error", |(_, name)| name);
    // SAFETY: as the reference says.
    unsafe { given(text, Ok(name.as_ptr())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: as above.
    unsafe { cuGetErrorName(error, text) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut sys::CUstream, _flags: c_uint) -> CUresult {
    let made = ready().map(|mut state| {
        let handle = state.handle();
        let made = Stream { context: CURRENT.get(), waiting: Vec::new(), captured: None };
        state.streams.insert(handle, made);
        handle as sys::CUstream
    });
    // SAFETY: as the reference says.
    unsafe { given(stream, made) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamSynchronize(stream: sys::CUstream) -> CUresult {
    code(ready().and_then(|mut state| match state.stream(stream)?.captured {
        Some(_) => Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        None => state.wait_for(stream as u64, None),
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(
    address: *mut sys::CUdeviceptr,
    bytes: usize,
    stream: sys::CUstream,
) -> CUresult {
    let made = ready().and_then(|mut state| match state.stream(stream)?.captured {
        Some(_) => Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        None if !has_pools() => Err(CUDA_ERROR_NOT_SUPPORTED),
        None => state.allocate(bytes),
    });
    // SAFETY: as the reference says.
    unsafe { given(address, made) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeAsync(address: sys::CUdeviceptr, stream: sys::CUstream) -> CUresult {
    code(ready().and_then(|mut state| match has_pools() {
        true => state.ask(stream, Work::Free(address)),
        false => Err(CUDA_ERROR_NOT_SUPPORTED),
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut sys::CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: as the reference says.
    unsafe { given(address, ready().and_then(|mut state| state.allocate(bytes))) }
}

/// Whoever frees memory that is still to be used reaches memory that is gone, as on a GPU.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: sys::CUdeviceptr) -> CUresult {
    code(ready().and_then(|mut state| state.perform(&Work::Free(address))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, _flags: c_uint) -> CUresult {
    let made = ready().and_then(|mut state| {
        if is_pageable() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: whoever asks for none is told.
        let made = if bytes == 0 { std::ptr::null_mut() } else { unsafe { alloc(layout) } };
        if made.is_null() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        // SAFETY: there are so many bytes.
        unsafe { made.write_bytes(0xaa, bytes) };
        state.host_memory.insert(made as usize, bytes);
        Ok(made.cast())
    });
    // SAFETY: as the reference says.
    unsafe { given(start, made) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeHost(start: *mut c_void) -> CUresult {
    code(ready().and_then(|mut state| {
        let bytes = state.host_memory.remove(&(start as usize)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: it was allocated with this layout, and is not known any more.
        unsafe { dealloc(start.cast(), layout) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: sys::CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: sys::CUstream,
) -> CUresult {
    code(ready().and_then(|mut state| {
        let start = from as usize;
        let is_pinned = state.host_memory.iter().any(|(&pinned, &length)| {
            start >= pinned && start.saturating_add(bytes) <= pinned.saturating_add(length)
        });
        let from = match is_pinned {
            // As late as a device may read it.
            true => HostBytes::Pinned { from: start, bytes },
            false => {
                WAITS.fetch_add(u64::from(bytes > MOST_PAGEABLE), Ordering::Relaxed);
                // SAFETY: the caller gives so many bytes. From pageable memory they are taken before the call returns.
                let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
                HostBytes::Taken(bytes.to_vec())
            }
        };
        state.ask(stream, Work::ToDevice { to, from })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: sys::CUdeviceptr,
    bytes: usize,
    stream: sys::CUstream,
) -> CUresult {
    let work = Work::ToHost { to: to as usize, from, bytes };
    code(ready().and_then(|mut state| state.ask(stream, work)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamWaitEvent(
    stream: sys::CUstream,
    event: sys::CUevent,
    flags: c_uint,
) -> CUresult {
    code(ready().and_then(|mut state| match state.events.contains(&(event as u64)) && flags == 0 {
        true => state.ask(stream, Work::Wait(event as u64)),
        false => Err(CUDA_ERROR_INVALID_HANDLE),
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut sys::CUevent, _flags: c_uint) -> CUresult {
    let made = ready().map(|mut state| {
        let handle = state.handle();
        state.events.insert(handle);
        handle as sys::CUevent
    });
    // SAFETY: as the reference says.
    unsafe { given(event, made) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventRecord(event: sys::CUevent, stream: sys::CUstream) -> CUresult {
    code(ready().and_then(|mut state| match state.events.contains(&(event as u64)) {
        true => state.ask(stream, Work::Record(event as u64)),
        false => Err(CUDA_ERROR_INVALID_HANDLE),
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventQuery(event: sys::CUevent) -> CUresult {
    code(ready().and_then(|state| {
        let event = event as u64;
        let is_it = |work: &Arc<Work>| matches!(**work, Work::Record(at) if at == event);
        match state.events.contains(&event) {
            false => Err(CUDA_ERROR_INVALID_HANDLE),
            true if state.streams.values().any(|queue| queue.waiting.iter().any(is_it)) => {
                Err(CUDA_ERROR_NOT_READY)
            }
            true => Ok(()),
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventSynchronize(event: sys::CUevent) -> CUresult {
    code(ready().and_then(|mut state| {
        if !state.events.contains(&(event as u64)) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let streams: Vec<u64> = state.streams.keys().copied().collect();
        streams.into_iter().try_for_each(|stream| state.wait_for(stream, Some(event as u64)))
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventDestroy_v2(event: sys::CUevent) -> CUresult {
    code(ready().and_then(|mut state| match state.events.remove(&(event as u64)) {
        true => Ok(()),
        false => Err(CUDA_ERROR_INVALID_HANDLE),
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut sys::CUmodule, image: *const c_void) -> CUresult {
    let made = ready().and_then(|mut state| {
        // SAFETY: the caller gives what `nvrtcGetCUBIN` did: a length, and so many bytes.
        let library = unsafe {
            let length = image.cast::<u64>().read_unaligned();
            std::slice::from_raw_parts(image.cast::<u8>().add(size_of::<u64>()), length as usize)
        };
        let function = kiln_cuda_host::load(library, &folder()).map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
        state.functions.push(Arc::new(function));
        Ok(state.functions.len() as u64 as sys::CUmodule)
    });
    // SAFETY: as the reference says.
    unsafe { given(module, made) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut sys::CUfunction,
    module: sys::CUmodule,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the caller gives a text that ends with a zero.
    let is_named = !unsafe { CStr::from_ptr(name) }.is_empty();
    let found = if is_named { Ok(module as u64 as sys::CUfunction) } else { Err(CUDA_ERROR_NOT_FOUND) };
    // SAFETY: as the reference says.
    unsafe { given(function, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: sys::CUfunction,
    columns: c_uint,
    rows: c_uint,
    layers: c_uint,
    width: c_uint,
    height: c_uint,
    depth: c_uint,
    _shared_bytes: c_uint,
    stream: sys::CUstream,
    arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> CUresult {
    let limits = columns == 0 || rows == 0 || layers == 0 || rows > 65_535 || layers > 65_535;
    if limits || depth != 1 || width * height == 0 || width * height > 1024 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    code(ready().and_then(|mut state| {
        let index = (function as usize).wrapping_sub(1);
        let taken = state.functions.get(index).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let ([buffers, words], table) = (taken.arguments, taken.table as usize);
        // SAFETY: the caller points at as many arguments as the function takes, which are read before the call returns.
        let (buffers, words) = unsafe {
            if table > 0 {
                (Vec::new(), std::slice::from_raw_parts((*arguments).cast::<u32>(), table).to_vec())
            } else {
                let all = std::slice::from_raw_parts(arguments, (buffers + words) as usize);
                let (first, rest) = all.split_at(buffers as usize);
                let buffers = first.iter().map(|pointer| pointer.cast::<u64>().read()).collect();
                (buffers, rest.iter().map(|pointer| pointer.cast::<u32>().read()).collect())
            }
        };
        let (blocks, threads) = ([columns, rows, layers], [width, height]);
        state.ask(stream, Work::Launch { function: index, blocks, threads, buffers, words })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture_v2(
    stream: sys::CUstream,
    _mode: sys::CUstreamCaptureMode,
) -> CUresult {
    code(ready().and_then(|mut state| {
        let stream = state.stream(stream)?;
        match stream.captured.replace(Vec::new()) {
            Some(_) => Err(CUDA_ERROR_ILLEGAL_STATE),
            None => Ok(()),
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: sys::CUstream, graph: *mut sys::CUgraph) -> CUresult {
    let made = ready().and_then(|mut state| {
        let captured = state.stream(stream)?.captured.take().ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        let handle = state.handle();
        state.graphs.insert(handle, captured);
        Ok(handle as sys::CUgraph)
    });
    // SAFETY: as the reference says.
    unsafe { given(graph, made) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    made: *mut sys::CUgraphExec,
    graph: sys::CUgraph,
    _flags: c_ulonglong,
) -> CUresult {
    let instance = ready().and_then(|mut state| {
        let work = state.graphs.insert(graph as u64, Vec::new()).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let handle = state.handle();
        state.made.insert(handle, Arc::new(work));
        Ok(handle as sys::CUgraphExec)
    });
    // SAFETY: as the reference says.
    unsafe { given(made, instance) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphDestroy(graph: sys::CUgraph) -> CUresult {
    code(ready().and_then(|mut state| {
        state.graphs.remove(&(graph as u64)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphLaunch(graph: sys::CUgraphExec, stream: sys::CUstream) -> CUresult {
    code(ready().and_then(|mut state| {
        let work = state.made.get(&(graph as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?.clone();
        state.ask(stream, Work::Graph(work))
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecDestroy(graph: sys::CUgraphExec) -> CUresult {
    code(ready().and_then(|mut state| {
        state.made.remove(&(graph as u64)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }))
}
