//! A device that is no GPU: kernels are compiled by the host's C++ compiler, and blocks run one after another, their threads as
//! coroutines that take turns at barriers.
//!
//! Memory starts with NaNs, shared arrays too, for each block anew; the order in which threads run changes from barrier to barrier:
//! what reads what nobody wrote, or does not wait for those who write, yields wrong numbers.

#![allow(dead_code, reason = "each test uses what it needs")]

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kiln_cuda::cache::Cache;
use kiln_cuda::driver::{
    Address, Captured, Driver, DriverError, Function, KernelLaunch, Matrices, Pending, Product,
};
use kiln_cuda::{CudaDevice, InitError};
use kiln_gpu::language::cuda;
use kiln_tensor::{DType, bf16, f16};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What a test says goes wrong.
#[derive(Default)]
pub struct Faults {
    /// Bytes of memory that the device has, if not as many as the host.
    pub memory: Option<u64>,
    /// Why the next launch fails, and all that is asked for then.
    pub launch: Option<&'static str>,
    /// Whether there is a library for products.
    pub library: bool,
    /// What was asked for, in words, where a test wants to know.
    pub asked: Option<Vec<String>>,
}

#[derive(Default)]
struct State {
    allocated: HashMap<u64, u64>,
    used: u64,
    functions: Vec<Arc<HostFunction>>,
    written: Option<Vec<Owned>>,
    graphs: HashMap<u64, Arc<Vec<Owned>>>,
    next_graph: u64,
    broken: Option<&'static str>,
    pub faults: Faults,
}

/// A device on the host.
pub struct Host {
    state: Mutex<State>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Host")
    }
}

/// A launch that was written down.
struct Owned {
    function: Function,
    blocks: [u32; 3],
    threads: [u32; 2],
    buffers: Vec<Address>,
    words: Vec<u32>,
}

struct HostFunction {
    begin: extern "C" fn(*const [u32; 3], *const [u32; 3], extern "C" fn(*mut c_void)),
    thread: extern "C" fn(*const [u32; 3], *mut c_void),
    run: extern "C" fn(*const u64, *const u32),
    /// Whether there are barriers.
    waits: bool,
    /// Its place and its shared arrays are statics.
    turn: Mutex<()>,
}

const ALIGNMENT: usize = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The host's devices, two of them.
pub fn devices() -> &'static [Arc<Host>; 2] {
    static DEVICES: OnceLock<[Arc<Host>; 2]> = OnceLock::new();
    DEVICES.get_or_init(|| std::array::from_fn(|_| Arc::new(Host { state: Mutex::default() })))
}

/// Has the backend use it, before the first test runs.
#[used]
#[unsafe(link_section = ".init_array")]
static INSTALL: extern "C" fn() = install;

extern "C" fn install() {
    // `scripts/cuda.sh` runs the suite on a GPU.
    if std::env::var_os("KILN_CUDA_TESTS").is_some_and(|value| value == "device") {
        return;
    }
    kiln_cuda::open_with(|index| match devices().get(index) {
        Some(host) => Ok(host.clone() as Arc<dyn Driver>),
        None => Err(InitError::NotFound { index, found: devices().len() }),
    });
}

/// Changes what goes wrong on a device.
pub fn faults<T>(device: &CudaDevice, change: impl FnOnce(&mut Faults) -> T) -> T {
    change(&mut lock(&devices()[device.index].state).faults)
}

/// Whether the device is as good as new, and has it be so again.
pub fn mend(device: &CudaDevice) {
    let mut state = lock(&devices()[device.index].state);
    state.broken = None;
    state.faults = Faults::default();
}

fn error(call: &'static str, reason: impl Into<String>) -> DriverError {
    DriverError { call, reason: reason.into(), is_out_of_memory: false }
}

/// Where compiled kernels are kept between runs.
fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    std::fs::create_dir_all(&folder).expect("a folder for kernels");
    folder
}

/// The compiler's name and version.
fn compiler() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let output =
            Command::new("c++").arg("--version").output().expect("a C++ compiler, as Debian's `g++` is");
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
    })
}

/// C++ that runs a kernel for one thread, from arrays of its arguments.
fn entry(source: &str) -> Option<String> {
    let (_, rest) = source.split_once("__global__ void ")?;
    let (_, rest) = rest.split_once(") kiln_")?;
    let (name, rest) = rest.split_once('(')?;
    let (arguments, _) = rest.split_once("\n) {")?;
    let (mut buffers, mut words) = (0, 0);
    let mut given = Vec::new();
    for argument in arguments.split(',') {
        given.push(match argument.split_once('*') {
            Some((ty, _)) => {
                buffers += 1;
                format!("({}*)buffers[{}]", ty.trim(), buffers - 1)
            }
            None => {
                words += 1;
                format!("words[{}]", words - 1)
            }
        });
    }
    let mut out = String::new();
    let _ = writeln!(out, "extern \"C\" void kiln_host_run(void* const* buffers, const unsigned* words) {{");
    let _ = writeln!(out, "    kiln_{name}({});", given.join(", "));
    out.push_str("}\n");
    if source.contains("__syncthreads") {
        out.push_str("extern \"C\" void kiln_host_waits() {}\n");
    }
    Some(out)
}

impl State {
    fn whole(&self) -> Result<(), DriverError> {
        self.broken.map_or(Ok(()), |reason| Err(error("device", reason)))
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(asked) = &mut self.faults.asked {
            asked.push(what());
        }
    }
}

impl Driver for Host {
    fn name(&self) -> String {
        String::from("the host")
    }

    fn architecture(&self) -> String {
        std::env::consts::ARCH.to_owned()
    }

    fn compiler(&self) -> String {
        compiler().to_owned()
    }

    fn cache(&self) -> Option<Cache> {
        Some(Cache::new(folder()))
    }

    fn allocate(&self, bytes: u64) -> Result<Address, DriverError> {
        let mut state = lock(&self.state);
        state.whole()?;
        if state.faults.memory.is_some_and(|memory| state.used + bytes > memory) {
            return Err(DriverError { is_out_of_memory: true, ..error("allocate", "out of memory") });
        }
        let layout = Layout::from_size_align(bytes as usize, ALIGNMENT).expect("a size");
        // SAFETY: the layout has a size.
        let start = unsafe { alloc(layout) };
        assert!(!start.is_null());
        // SAFETY: there are so many bytes.
        unsafe { start.write_bytes(0xff, bytes as usize) };
        state.used += bytes;
        state.allocated.insert(start as u64, bytes);
        state.note(|| format!("allocate {bytes}"));
        Ok(Address(start as u64))
    }

    fn free(&self, address: Address) -> Result<(), DriverError> {
        let mut state = lock(&self.state);
        let bytes = state.allocated.remove(&address.0).expect("what was allocated");
        state.used -= bytes;
        state.note(|| format!("free {bytes}"));
        let layout = Layout::from_size_align(bytes as usize, ALIGNMENT).expect("a size");
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(address.0 as *mut u8, layout) };
        Ok(())
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>, DriverError> {
        let kernel = source.strip_prefix(cuda::PRELUDE).expect("a kernel of the backend");
        let entry = entry(kernel).expect("a kernel as it is printed");
        let folder = tempfile::tempdir_in(folder()).expect("a folder");
        let (text, library) = (folder.path().join("kernel.cc"), folder.path().join("kernel.so"));
        std::fs::write(&text, [include_str!("shim.h"), kernel, &entry].concat()).expect("a file");
        let output = Command::new("c++")
            .args(["-O1", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-o"])
            .args([&library, &text])
            .output()
            .expect("a C++ compiler");
        if !output.status.success() {
            return Err(error("compile", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(std::fs::read(&library).expect("a library"))
    }

    fn load(&self, image: &[u8], _entry_point: &str) -> Result<Function, DriverError> {
        let file = tempfile::NamedTempFile::new_in(folder()).expect("a file");
        std::fs::write(file.path(), image).expect("a file");
        // SAFETY: the library is what `compile` made; it stays loaded.
        let function = unsafe {
            let library =
                libloading::Library::new(file.path()).map_err(|said| error("load", said.to_string()))?;
            let function = HostFunction {
                begin: *library.get(b"kiln_host_begin").expect("the shim's function"),
                thread: *library.get(b"kiln_host_thread").expect("the shim's function"),
                run: *library.get(b"kiln_host_run").expect("the kernel"),
                waits: library.get::<extern "C" fn()>(b"kiln_host_waits").is_ok(),
                turn: Mutex::new(()),
            };
            std::mem::forget(library);
            function
        };
        let mut state = lock(&self.state);
        state.functions.push(Arc::new(function));
        Ok(Function(state.functions.len() as u64 - 1))
    }

    fn launch(&self, launch: &KernelLaunch<'_>) -> Result<(), DriverError> {
        let mut state = lock(&self.state);
        state.whole()?;
        state.note(|| format!("launch {:?} × {:?}", launch.blocks, launch.threads));
        if let Some(reason) = state.faults.launch.take() {
            state.broken = Some(reason);
            return Err(error("launch", reason));
        }
        let owned = Owned {
            function: launch.function,
            blocks: launch.blocks,
            threads: launch.threads,
            buffers: launch.buffers.to_vec(),
            words: launch.words.to_vec(),
        };
        if let Some(written) = &mut state.written {
            written.push(owned);
            return Ok(());
        }
        let function = state.functions[launch.function.0 as usize].clone();
        drop(state);
        run(&function, &owned)
    }

    fn product(&self, product: &Product) -> Result<bool, DriverError> {
        let mut state = lock(&self.state);
        state.whole()?;
        if !state.faults.library {
            return Ok(false);
        }
        let tf32 = if product.tf32 { " in tf32" } else { "" };
        state.note(|| format!("product {:?} × {}{tf32}", product.size, product.count));
        assert!(state.written.is_none(), "products are not written down here");
        multiply(product);
        Ok(true)
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        lock(&self.state).whole()?;
        // SAFETY: the memory has room for the bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.0 as *mut u8, bytes.len()) };
        Ok(())
    }

    fn download(&self, parts: &[(Address, usize)]) -> Result<Box<dyn Pending>, DriverError> {
        let state = lock(&self.state);
        state.whole()?;
        assert!(state.written.is_none(), "a read while launches are written down");
        // SAFETY: the memory holds so many bytes.
        let part = |&(from, bytes): &(Address, usize)| unsafe {
            std::slice::from_raw_parts(from.0 as *const u8, bytes).to_vec()
        };
        Ok(Box::new(Read(parts.iter().map(part).collect())))
    }

    fn synchronize(&self) -> Result<(), DriverError> {
        lock(&self.state).whole()
    }

    fn begin_capture(&self) -> Result<(), DriverError> {
        let mut state = lock(&self.state);
        state.whole()?;
        state.written = Some(Vec::new());
        Ok(())
    }

    fn end_capture(&self) -> Result<Captured, DriverError> {
        let mut state = lock(&self.state);
        let written = state.written.take().expect("what was begun");
        state.next_graph += 1;
        let name = state.next_graph;
        state.graphs.insert(name, Arc::new(written));
        Ok(Captured(name))
    }

    fn replay(&self, captured: Captured) -> Result<(), DriverError> {
        let state = lock(&self.state);
        state.whole()?;
        let graph = state.graphs[&captured.0].clone();
        drop(state);
        for owned in &*graph {
            let function = lock(&self.state).functions[owned.function.0 as usize].clone();
            run(&function, owned)?;
        }
        Ok(())
    }

    fn forget(&self, captured: Captured) {
        lock(&self.state).graphs.remove(&captured.0).expect("a graph");
    }
}

/// What a library computes of products, from where the driver says that its operands are.
fn multiply(product: &Product) {
    let [rows, columns, depth] = product.size;
    let size = product.dtype.size();
    let read = |from: Address, element: usize| -> f32 {
        let at = from.0 as usize + element * size;
        // SAFETY: the memory holds the element.
        unsafe {
            match product.dtype {
                DType::F32 => (at as *const f32).read(),
                DType::F16 => (at as *const f16).read().to_f32(),
                DType::BF16 => (at as *const bf16).read().to_f32(),
                other => panic!("no products of {other}"),
            }
        }
    };
    let element = |of: &Matrices, matrix: usize, row: usize, column: usize| {
        let within = if of.transposed { column * of.leading + row } else { row * of.leading + column };
        read(of.start, matrix * of.next + within)
    };
    for matrix in 0..product.count {
        for row in 0..rows {
            for column in 0..columns {
                let term =
                    |at| element(&product.lhs, matrix, row, at) * element(&product.rhs, matrix, at, column);
                let sum: f32 = (0..depth).map(term).sum();
                let sum = sum + product.bias.map_or(0.0, |bias| read(bias, column));
                let at = product.out.0 as usize + ((matrix * rows + row) * columns + column) * size;
                // SAFETY: the memory has room for the element.
                unsafe {
                    match product.dtype {
                        DType::F32 => (at as *mut f32).write(sum),
                        DType::F16 => (at as *mut f16).write(f16::from_f32(sum)),
                        DType::BF16 => (at as *mut bf16).write(bf16::from_f32(sum)),
                        other => panic!("no products of {other}"),
                    }
                }
            }
        }
    }
}

struct Read(Vec<Vec<u8>>);

impl Pending for Read {
    fn wait(self: Box<Self>) -> Result<Vec<Vec<u8>>, DriverError> {
        Ok(self.0)
    }
}

std::thread_local! {
    /// Stacks for the threads of a block.
    static STACKS: std::cell::RefCell<Vec<DefaultStack>> = const { std::cell::RefCell::new(Vec::new()) };
}

std::thread_local! {
    /// What the thread of a block that waited last goes on with.
    static LAST_YIELDER: std::cell::Cell<*mut c_void> = const { std::cell::Cell::new(std::ptr::null_mut()) };
}

const STACK_BYTES: usize = 128 << 10;

extern "C" fn wait(yielder: *mut c_void) {
    LAST_YIELDER.set(yielder);
    // SAFETY: the thread that runs now said where its yielder is, which lives as long as it.
    let yielder = unsafe { &*yielder.cast::<Yielder<(), ()>>() };
    yielder.suspend(());
}

/// Runs all blocks, one after another.
fn run(function: &HostFunction, launch: &Owned) -> Result<(), DriverError> {
    let _turn = lock(&function.turn);
    let [width, height] = launch.threads;
    let [columns, rows, layers] = launch.blocks;
    let buffers: Vec<u64> = launch.buffers.iter().map(|address| address.0).collect();
    for block in 0..u64::from(columns) * u64::from(rows) * u64::from(layers) {
        let place = [block % u64::from(columns), block / u64::from(columns)];
        let place =
            [place[0] as u32, (place[1] % u64::from(rows)) as u32, (place[1] / u64::from(rows)) as u32];
        (function.begin)(&raw const launch.blocks, &raw const place, wait);
        run_block(function, [width, height], &buffers, &launch.words)?;
    }
    Ok(())
}

/// A thread of a block, by its number, and with what it goes on after a barrier.
type Thread = (u32, Coroutine<(), (), (), DefaultStack>, *mut c_void);

fn run_block(
    function: &HostFunction,
    [width, height]: [u32; 2],
    buffers: &[u64],
    words: &[u32],
) -> Result<(), DriverError> {
    let place = |thread: u32| [thread % width, thread / width, 0];
    if !function.waits {
        for thread in 0..width * height {
            let place = place(thread);
            (function.thread)(&raw const place, std::ptr::null_mut());
            (function.run)(buffers.as_ptr(), words.as_ptr());
        }
        return Ok(());
    }
    let mut threads: Vec<Thread> = Vec::new();
    let take = || {
        let kept = STACKS.with_borrow_mut(Vec::pop);
        kept.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("a stack"))
    };
    for thread in 0..width * height {
        let run = function.run;
        let (buffers, words) = (buffers.as_ptr(), words.as_ptr());
        let (told, thread_place) = (function.thread, place(thread));
        let coroutine = Coroutine::with_stack(take(), move |yielder: &Yielder<(), ()>, ()| {
            told(&raw const thread_place, (&raw const *yielder).cast_mut().cast());
            run(buffers, words);
        });
        threads.push((thread, coroutine, std::ptr::null_mut()));
    }
    let mut waiting = Vec::new();
    let mut backwards = false;
    while !threads.is_empty() {
        let all = threads.len();
        if backwards {
            threads.reverse();
        }
        for (thread, mut coroutine, mut yielder) in threads.drain(..) {
            // Where it goes on after a barrier, others were here meanwhile.
            if !yielder.is_null() {
                let place = place(thread);
                (function.thread)(&raw const place, yielder);
            }
            match coroutine.resume(()) {
                CoroutineResult::Yield(()) => {
                    yielder = LAST_YIELDER.get();
                    waiting.push((thread, coroutine, yielder));
                }
                CoroutineResult::Return(()) => {
                    STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()))
                }
            }
        }
        if !waiting.is_empty() && waiting.len() != all {
            return Err(error("launch", "some threads of a block wait where others do not come"));
        }
        if backwards {
            waiting.reverse();
        }
        backwards = !backwards;
        threads.append(&mut waiting);
    }
    Ok(())
}
