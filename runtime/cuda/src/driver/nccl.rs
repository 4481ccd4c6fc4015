//! Sums over devices by NCCL (NVIDIA, "NCCL User Guide", chapters "Using multiple NCCL communicators concurrently" and "Group Calls"), where it is there.

use super::nvidia::Primary;
use super::staging::Mark;
use super::{DriverError, Numbers, is_wanted};
use kiln_tensor::DType;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Names of the library's file: that of its second version, as it is installed, and as it is there to build with.
const FILES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// What the library calls a communicator.
type Communicator = *mut c_void;

/// What is called of the library, as `nccl.h` declares it; each but the last yields 0 where it worked.
struct Nccl {
    comm_init_all: unsafe extern "C" fn(*mut Communicator, c_int, *const c_int) -> c_int,
    comm_abort: unsafe extern "C" fn(Communicator) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        Communicator,
        *mut c_void,
    ) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// `ncclSum` of `ncclRedOp_t`.
const SUM: c_int = 0;

impl Nccl {
    fn load() -> Option<Self> {
        // SAFETY: loading NVIDIA's library runs nothing of ours, and the functions are of these types since its version 2.10.
        unsafe {
            let library = FILES.iter().find_map(|&file| Library::new(file).ok())?;
            let functions = Self {
                comm_init_all: *library.get(b"ncclCommInitAll\0").ok()?,
                comm_abort: *library.get(b"ncclCommAbort\0").ok()?,
                group_start: *library.get(b"ncclGroupStart\0").ok()?,
                group_end: *library.get(b"ncclGroupEnd\0").ok()?,
                all_reduce: *library.get(b"ncclAllReduce\0").ok()?,
                error_string: *library.get(b"ncclGetErrorString\0").ok()?,
            };
            // Its functions are there for good.
            std::mem::forget(library);
            Some(functions)
        }
    }

    fn done(&self, call: &'static str, result: c_int) -> Result<(), DriverError> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: the library yields text that ends with a zero and stays.
        let explained = unsafe {
            let text = (self.error_string)(result);
            if text.is_null() { None } else { CStr::from_ptr(text).to_str().ok() }
        };
        let reason = format!("{} ({result})", explained.unwrap_or("no reason was given"));
        Err(DriverError { call, reason, is_out_of_memory: false, is_fault: false })
    }
}

/// The library, where it is there and wanted.
fn nccl() -> Option<&'static Nccl> {
    static NCCL: OnceLock<Option<Nccl>> = OnceLock::new();
    let nccl = NCCL.get_or_init(|| {
        let found = if is_wanted("nccl") { Nccl::load() } else { None };
        if found.is_none() {
            log::info!(
                "NCCL was not found (`pip install nvidia-nccl-cu13`), or is not wanted: gradients of several devices are added up on one"
            );
        }
        found
    });
    nccl.as_ref()
}

/// What the library calls a dtype whose numbers it adds (`ncclDataType_t`).
pub(super) fn data_type(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::I8 => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::U32 => 3,
        DType::I64 => 4,
        DType::U64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        DType::I16 | DType::U16 | DType::I4 | DType::U4 | DType::Bool => return None,
    })
}

/// Devices that add up together, in an order.
pub(super) struct Group {
    nccl: &'static Nccl,
    devices: Vec<Arc<Primary>>,
    /// One of each; none where the library did not make them, which is not asked again then.
    communicators: Vec<Communicator>,
    /// Where the devices' streams are done with the last sums.
    done: Vec<Mark>,
}

/// The process' groups, each of which goes with the first of its devices that is given up. Locked before a device's context is held.
pub(super) fn groups() -> MutexGuard<'static, Vec<Group>> {
    static GROUPS: Mutex<Vec<Group>> = Mutex::new(Vec::new());
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: a communicator may be used from any thread, by one at a time: whoever has the group to itself.
unsafe impl Send for Group {}

impl Group {
    /// Of devices whose contexts are held; none where there is no library.
    pub fn new(devices: Vec<Arc<Primary>>) -> Option<Self> {
        let nccl = nccl()?;
        let ordinals: Vec<c_int> = devices.iter().map(|device| device.ordinal()).collect();
        let mut communicators = vec![ptr::null_mut(); ordinals.len()];
        // SAFETY: there is room for as many communicators as there are devices.
        let made = unsafe {
            (nccl.comm_init_all)(communicators.as_mut_ptr(), ordinals.len() as c_int, ordinals.as_ptr())
        };
        if let Err(error) = nccl.done("ncclCommInitAll", made) {
            log::warn!("gradients of several devices are added up on one: {error}");
            communicators.clear();
        }
        Some(Self { nccl, devices, communicators, done: Vec::new() })
    }

    /// Whether these are the devices.
    pub fn is_of(&self, devices: &[Arc<Primary>]) -> bool {
        self.devices.len() == devices.len()
            && self.devices.iter().zip(devices).all(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Whether a device is one of them.
    pub fn has(&self, device: &Arc<Primary>) -> bool {
        self.devices.iter().any(|own| Arc::ptr_eq(own, device))
    }

    /// Asks for the sums of all sets, each on its device's stream; says whether they are computed.
    ///
    /// # Safety
    /// The streams are those of the devices, whose contexts are held; the memory has so many numbers, and outlives what is asked for on the streams.
    pub unsafe fn all_reduce(
        &mut self,
        streams: &[*mut c_void],
        sets: &[Vec<(Numbers, c_int)>],
    ) -> Result<bool, DriverError> {
        if self.communicators.is_empty() {
            return Ok(false);
        }
        let nccl = self.nccl;
        // SAFETY: what is begun is ended below.
        nccl.done("ncclGroupStart", unsafe { (nccl.group_start)() })?;
        let calls = self.communicators.iter().zip(streams).zip(sets);
        let asked = calls
            .flat_map(|((&communicator, &stream), set)| set.iter().map(move |of| (communicator, stream, of)))
            .try_for_each(|(communicator, stream, &(Numbers { start, count, .. }, data_type))| {
                let at = start.0 as *mut c_void;
                // SAFETY: the caller says so; in place, as the guide allows ("In-place Operations").
                let asked = unsafe { (nccl.all_reduce)(at, at, count, data_type, SUM, communicator, stream) };
                nccl.done("ncclAllReduce", asked)
            });
        // SAFETY: it was begun above, whatever became of the calls.
        let ended = nccl.done("ncclGroupEnd", unsafe { (nccl.group_end)() });
        asked.and(ended).map(|()| true)
    }

    /// Keeps where the streams are done with the last sums. The devices' contexts are not held.
    pub fn done_at(&mut self, done: Vec<Mark>) {
        self.done = done;
    }

    /// Waits until the devices have the sums that they were asked for. Their contexts are not held.
    pub fn wait(&self) {
        for mark in &self.done {
            // What a device fails at is told by what is asked of it next.
            let _ = mark.primary.enter().and_then(|_entered| mark.synchronize());
        }
    }

    /// Gives the communicators up, whatever they are at.
    pub fn abort(self) {
        for communicator in self.communicators {
            // SAFETY: it was made by the library, and is not used again.
            let _ = unsafe { (self.nccl.comm_abort)(communicator) };
        }
    }
}
