//! Names of devices, and how one is opened.

use crate::context::{Context, is_capturing};
use crate::driver::nvidia::Nvidia;
use crate::driver::{Driver, Open};
use kiln_tensor::backend::{DeviceId, DeviceOps};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// A GPU by its number, as CUDA counts them (the variable `CUDA_VISIBLE_DEVICES` says which there are).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CudaDevice {
    /// The number.
    pub index: usize,
}

impl CudaDevice {
    /// The GPU with a number.
    pub fn new(index: usize) -> Self {
        Self { index }
    }
}

impl DeviceOps for CudaDevice {
    fn to_id(&self) -> DeviceId {
        DeviceId::new(0, self.index as u32)
    }

    fn from_id(id: DeviceId) -> Self {
        Self::new(id.index_id as usize)
    }
}

/// Why a device cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The driver's library is not there.
    #[error(
        "NVIDIA's driver was not found (`libcuda.so.1`, on Windows `nvcuda.dll`): it comes with the GPU's driver, of which CUDA 12 \
         needs version 525 and CUDA 13 version 580; in a container, run it with `--gpus all`"
    )]
    NoDriver,
    /// The compiler's library is not there.
    #[error(
        "NVIDIA's run-time compiler was not found (`libnvrtc.so`, of CUDA 12 or 13): it comes with the CUDA toolkit, or with \
         `pip install nvidia-cuda-nvrtc`, whose folder with the library then belongs in `LD_LIBRARY_PATH`"
    )]
    NoCompiler,
    /// There is no device with the number.
    #[error("there is no CUDA device {index}: the driver knows {found}")]
    NotFound {
        /// The number that was asked for.
        index: usize,
        /// How many there are.
        found: usize,
    },
    /// A kernel faulted, and the driver does not give the device to this process again.
    #[error(
        "a kernel faulted, and NVIDIA's driver does not let this process use the GPU any more ({reason}): start the process again"
    )]
    Faulted {
        /// What the driver said.
        reason: String,
    },
    /// The device does not open.
    #[error("the GPU could not be opened: {reason}")]
    NotOpened {
        /// What the driver said.
        reason: String,
    },
}

/// A device.
#[derive(Default)]
struct Slot {
    /// Opened when it is first used, and locked while it is; otherwise for no longer than it takes to look.
    context: Mutex<Option<Arc<Context>>>,
    /// Held by the one thread that opens it anew.
    reopening: Mutex<()>,
}

/// The devices that were used, and how they are opened. Locked for no longer than it takes to find one: a thread may look for one while others wait for
/// it to complete what it captures.
#[derive(Default)]
struct Devices {
    slots: HashMap<usize, Arc<Slot>>,
    open: Option<Open>,
}

fn devices() -> MutexGuard<'static, Devices> {
    static DEVICES: LazyLock<Mutex<Devices>> = LazyLock::new(Mutex::default);
    lock(&DEVICES)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn slot(device: &CudaDevice) -> Arc<Slot> {
    devices().slots.entry(device.index).or_default().clone()
}

/// Opens a device.
fn driver(device: &CudaDevice) -> Result<Arc<dyn Driver>, InitError> {
    let open = devices().open.clone();
    match open {
        Some(open) => open(device.index),
        None => Ok(Arc::new(Nvidia::open(device.index)?)),
    }
}

/// A device with its context, as a thread used it last.
struct Latest {
    index: usize,
    /// How many times devices had been [opened anew](reopen) by then: after another time the context may not be the device's any more.
    reopened: u64,
    context: Arc<Context>,
}

/// How many times devices were opened anew.
static REOPENED: AtomicU64 = AtomicU64::new(0);

std::thread_local! {
    /// Every operation asks for its device's context several times: it is found here without a lock and without a search.
    static LATEST: RefCell<Option<Latest>> = const { RefCell::new(None) };
}

/// Opens a device, unless it is open.
///
/// # Errors
/// When a library is missing, there is no such device, or it does not open.
pub fn init(device: &CudaDevice) -> Result<(), InitError> {
    context(device).map(|_| ())
}

/// Lets the tensor cores round the factors of products of f32, those of attention too, to TF32 (11 bits instead of 24, the exponent stays), which is several times as
/// fast; sums stay f32. Off until it is asked for.
///
/// # Errors
/// When the device does not open.
pub fn set_tf32(device: &CudaDevice, allowed: bool) -> Result<(), InitError> {
    context(device).map(|context| context.tf32.store(allowed, Ordering::Relaxed))
}

/// Lets NVIDIA's libraries compute ReLU together with the large convolutions and products that it follows, which saves a launch and a way of
/// all numbers to memory and back each time. They may make 0 of NaN, which Kiln's kernels and all other backends keep: what went wrong in a layer may not
/// be seen behind it any more. NVIDIA does not state whether they do; on an H100, cuDNN 9 and cuBLASLt 13 kept NaN where that was tried. Off until it is
/// asked for.
///
/// # Errors
/// When the device does not open.
pub fn set_library_relu(device: &CudaDevice, allowed: bool) -> Result<(), InitError> {
    context(device).map(|context| context.library_relu.store(allowed, Ordering::Relaxed))
}

/// Has a device time ways to do the same products and convolutions (kernels of several tile sizes, the algorithms that cuBLASLt and cuDNN advise, kernels of Kiln's
/// and the libraries) and go the fastest, or not any more. The first work of each kind and size waits for the device several times, so that a first
/// forward pass takes seconds; what was found is kept for later processes beside the compiled [kernels](crate::cache). Sums are added in another order in other ways. Off
/// until it is asked for, here or by the variable `KILN_TUNE`, which is 1 then.
///
/// # Errors
/// When the device does not open.
pub fn tune(device: &CudaDevice, on: bool) -> Result<(), InitError> {
    context(device).map(|context| context.tuning.set(on))
}

/// Has devices opened by something else than NVIDIA's driver: for tests, before any device is used.
#[doc(hidden)]
pub fn open_with(open: impl Fn(usize) -> Result<Arc<dyn Driver>, InitError> + Send + Sync + 'static) {
    devices().open = Some(Arc::new(open));
}

/// Opens a device anew, which a kernel that faulted leaves of no use: reads and [`sync`](kiln_tensor::backend::Backend::sync) tell the same
/// error until then.
///
/// All that was on the device is gone, healthy or not: models are loaded again, and graphs captured again. What still uses an older tensor is
/// told so by the next read. The process' other users of the device's primary context (programs of its own that call CUDA) lose theirs too.
///
/// NVIDIA does not promise that this helps: of a kernel's faults its reference says that the process has to be started again. Where the driver
/// insists on that, the error is [`InitError::Faulted`], this time and whenever it is tried again.
///
/// It waits for what other threads capture on the device.
///
/// # Errors
/// When the driver does not give the device up, or it does not open; or within a computation that is being captured, on whatever device.
pub fn reopen(device: &CudaDevice) -> Result<(), InitError> {
    let slot = slot(device);
    let opened = || lock(&slot.context).clone();
    let Some(old) = opened() else { return context(device).map(|_| ()) };
    if old.is_captured() || is_capturing() {
        return Err(InitError::NotOpened { reason: String::from("this thread captures a computation") });
    }
    let _reopening = lock(&slot.reopening);
    // Another thread may have opened it again meanwhile.
    let old = opened().unwrap_or(old);
    // No device is locked: this waits for captures, whose threads may look for theirs.
    old.close().map_err(|error| InitError::NotOpened { reason: error.to_string() })?;
    let next = old.successor(driver(device)?);
    *lock(&slot.context) = Some(Arc::new(next));
    REOPENED.fetch_add(1, Ordering::Release);
    Ok(())
}

/// What is asked of a device's context, which is opened if it is not open. The question asks for no context itself: the thread's is lent to it.
pub(crate) fn ask<T>(device: &CudaDevice, question: impl Fn(&Arc<Context>) -> T) -> Result<T, InitError> {
    // Read before the context is looked up: should it be replaced meanwhile, it is looked up again.
    let reopened = REOPENED.load(Ordering::Acquire);
    let known = LATEST.try_with(|latest| {
        let latest = latest.borrow();
        let is_it = |latest: &&Latest| latest.index == device.index && latest.reopened == reopened;
        latest.as_ref().filter(is_it).map(|latest| question(&latest.context))
    });
    if let Ok(Some(answer)) = known {
        return Ok(answer);
    }
    let slot = slot(device);
    let mut opened = lock(&slot.context);
    let context = match &*opened {
        Some(context) => context.clone(),
        None => opened.insert(Arc::new(Context::new(driver(device)?))).clone(),
    };
    // What is asked may wait.
    drop(opened);
    let answer = question(&context);
    // A thread that ends keeps nothing any more.
    let _ = LATEST.try_with(|latest| latest.replace(Some(Latest { index: device.index, reopened, context })));
    Ok(answer)
}

pub(crate) fn context(device: &CudaDevice) -> Result<Arc<Context>, InitError> {
    ask(device, Arc::clone)
}

/// The device's context, for operations, which have no way to fail.
///
/// # Panics
/// When the device does not open.
pub(crate) fn expect_context(device: &CudaDevice) -> Arc<Context> {
    expect(device, Arc::clone)
}

/// [`ask`], for operations, which have no way to fail.
///
/// # Panics
/// When the device does not open.
pub(crate) fn expect<T>(device: &CudaDevice, question: impl Fn(&Arc<Context>) -> T) -> T {
    match ask(device, question) {
        Ok(answer) => answer,
        Err(error) => panic!("{device:?}: {error}"),
    }
}
