//! NVIDIA's driver and its compiler, NVRTC, from the libraries of the machine.

use super::allocator::Allocator;
use super::blas::{self, Blas, WORKSPACE_BYTES};
use super::dnn::{self, Dnn, Lack};
use super::nccl::{self, Group};
use super::staging::{Download, MOST_STAGING_BYTES, Mark, Staging, UPLOAD_BYTES, Uploads};
use super::{
    Address, Captured, Convolution, ConvolutionShape, Driver, DriverError, Function, KernelLaunch, Numbers,
    Pending, Product, Written, is_wanted,
};
use crate::InitError;
use crate::cache::Cache;
use cudarc::driver::result::{self, device, event, graph, module, primary_ctx, stream};
use cudarc::driver::sys;
use cudarc::nvrtc;
use kiln_gpu::language::Factors;
use smallvec::{SmallVec, smallvec};
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};

/// Bytes of pageable memory up to which the driver keeps a copy of its own of what it is given, and waits for nothing ("API Synchronization
/// Behavior" of the driver's reference).
const MOST_PAGEABLE: usize = 64 << 10;

/// The context of a device, which whoever uses the process' device shares.
pub(super) struct Primary {
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// Whether it was not given up. Locked while the driver is called.
    is_open: RwLock<bool>,
}

// SAFETY: the driver's handles may be used from any thread that made the context current.
unsafe impl Send for Primary {}
// SAFETY: as above.
unsafe impl Sync for Primary {}

impl Primary {
    /// Makes the device the one that this thread's calls are for. It is not given up while what this returns lives, of which a thread has
    /// one at a time.
    pub fn enter(&self) -> Result<RwLockReadGuard<'_, bool>, DriverError> {
        let is_open = self.hold()?;
        // SAFETY: the context was not given up.
        unsafe { result::ctx::set_current(self.context) }.map_err(failed("cuCtxSetCurrent"))?;
        Ok(is_open)
    }

    /// The device's number.
    pub fn ordinal(&self) -> sys::CUdevice {
        self.device
    }

    /// Has the device not be given up while what this returns lives, of which a thread has one at a time.
    fn hold(&self) -> Result<RwLockReadGuard<'_, bool>, DriverError> {
        let is_open = self.is_open.read().unwrap_or_else(PoisonError::into_inner);
        if !*is_open {
            return Err(DriverError {
                call: "cuCtxSetCurrent",
                reason: String::from("the device's context was given up, as it was opened again"),
                is_out_of_memory: false,
                is_fault: false,
            });
        }
        Ok(is_open)
    }

    fn close(&self) -> Result<(), DriverError> {
        let mut is_open = self.is_open.write().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::take(&mut *is_open) {
            return Ok(());
        }
        // SAFETY: the device is valid; nothing of its context is used from here on.
        let (reset, released) = unsafe { (reset(self.device), primary_ctx::release(self.device)) };
        // A fault is told by whatever is asked for next.
        let unless_fault = |done: Result<(), DriverError>| {
            done.or_else(|error| match error.is_fault {
                true => Ok(()),
                false => Err(error),
            })
        };
        unless_fault(reset).and(unless_fault(released.map_err(failed("cuDevicePrimaryCtxRelease"))))
    }
}

/// Destroys what a device's context has.
///
/// # Safety
/// The device is valid, and nothing of its context is used any more.
unsafe fn reset(device: sys::CUdevice) -> Result<(), DriverError> {
    // SAFETY: the caller says so.
    unsafe { sys::cuDevicePrimaryCtxReset_v2(device) }.result().map_err(failed("cuDevicePrimaryCtxReset"))
}

/// More holders of a context than a process has.
const MOST_HOLDERS: usize = 1 << 12;

/// A device's context, which is held from here on.
///
/// One in which a kernel faulted is not made anew while others of the process hold it, whom it is of no use any more: it is taken from them.
fn retain(device: sys::CUdevice) -> Result<sys::CUcontext, DriverError> {
    // SAFETY: the device is valid; handles are used only until the context is given up.
    let retain = || unsafe { primary_ctx::retain(device) }.map_err(failed("cuDevicePrimaryCtxRetain"));
    retain().or_else(|error| {
        if !error.is_fault {
            return Err(error);
        }
        // That nobody holds it any more is an error.
        // SAFETY: the device is valid, and nothing of a context that failed can be used.
        let _ = (0..MOST_HOLDERS).find(|_| unsafe { primary_ctx::release(device) }.is_err());
        // SAFETY: as above.
        let _ = unsafe { reset(device) };
        retain()
    })
}

/// Whether an error is that of a kernel: of those the driver's reference says that they leave "the process in an inconsistent state", and
/// the process has to be started again ("CUresult").
fn is_fault(error: sys::CUresult) -> bool {
    matches!(error as u32, 700 | 702 | 710 | 714..=719 | 721)
}

/// A device of NVIDIA's.
pub struct Nvidia {
    primary: Arc<Primary>,
    /// What all is done on.
    stream: sys::CUstream,
    /// What is done at once while the other writes down.
    aside: sys::CUstream,
    allocator: Allocator,
    capturing: AtomicBool,
    name: String,
    capability: (i32, i32),
    /// What kernels are compiled for.
    architecture: String,
    multiprocessors: u32,
    compiler: String,
    /// The library for products.
    blas: Option<Blas>,
    /// The library for convolutions, which is opened when it is first needed: it is large. Nothing where it is not there.
    dnn: Option<OnceLock<Option<Dnn>>>,
    /// Memory that libraries may use, and its bytes. What was too small is kept, since graphs may use it.
    workspace: Option<Mutex<(Address, usize)>>,
    /// Host memory that the device copies to at full speed, by size: kept, since it is dear to get.
    staging: Arc<Mutex<Vec<Staging>>>,
    uploads: Mutex<Uploads>,
    /// Devices whose memory this one was let read, or cannot.
    peers: Mutex<Vec<Weak<Primary>>>,
}

impl fmt::Debug for Nvidia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nvidia({})", self.name)
    }
}

// SAFETY: the driver's handles may be used from any thread that made the context current, which each method does; streams are
// locked by the driver.
unsafe impl Send for Nvidia {}
// SAFETY: as above.
unsafe impl Sync for Nvidia {}

pub(super) fn failed(call: &'static str) -> impl Fn(result::DriverError) -> DriverError {
    move |error| {
        let text = |text: Result<&CStr, result::DriverError>| {
            text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let (name, explained) = (text(error.error_name()), text(error.error_string()));
        DriverError {
            call,
            reason: format!("{explained} ({name})"),
            is_out_of_memory: error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            is_fault: is_fault(error.0),
        }
    }
}

/// Whether the driver's library is there.
pub fn has_driver() -> bool {
    // SAFETY: loading NVIDIA's library runs nothing of ours.
    unsafe { sys::is_culib_present() }
}

/// Whether the compiler's library is there.
pub fn has_compiler() -> bool {
    // SAFETY: as above.
    unsafe { nvrtc::sys::is_culib_present() }
}

/// Whether the tensor cores of GPUs of a compute capability multiply such factors ("PTX ISA", instruction `mma`).
pub fn multiplies(capability: (i32, i32), factors: Factors) -> bool {
    match factors {
        Factors::F16 | Factors::I8 | Factors::U8 => capability >= (7, 5),
        Factors::BF16 | Factors::TF32 => capability >= (8, 0),
    }
}

/// Number of devices.
///
/// # Errors
/// When a library is missing or the driver fails.
pub fn count() -> Result<usize, InitError> {
    if !has_driver() {
        return Err(InitError::NoDriver);
    }
    result::init().map_err(failed("cuInit")).map_err(refused)?;
    let count = device::get_count().map_err(failed("cuDeviceGetCount")).map_err(refused)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Why a device does not open.
fn refused(error: DriverError) -> InitError {
    match error.is_fault {
        true => InitError::Faulted { reason: error.to_string() },
        false => InitError::NotOpened { reason: error.to_string() },
    }
}

impl Nvidia {
    /// Opens a device by its number.
    ///
    /// # Errors
    /// When a library is missing, there is no such device, or it does not open.
    pub fn open(index: usize) -> Result<Self, InitError> {
        let found = count()?;
        if !has_compiler() {
            return Err(InitError::NoCompiler);
        }
        let Some(ordinal) = i32::try_from(index).ok().filter(|_| index < found) else {
            return Err(InitError::NotFound { index, found });
        };
        Self::open_ordinal(ordinal).map_err(refused)
    }

    fn open_ordinal(ordinal: i32) -> Result<Self, DriverError> {
        let cu_device = device::get(ordinal).map_err(failed("cuDeviceGet"))?;
        let name = device::get_name(cu_device).map_err(failed("cuDeviceGetName"))?;
        let attribute = |attribute| {
            // SAFETY: the device was just had from the driver.
            unsafe { device::get_attribute(cu_device, attribute) }.map_err(failed("cuDeviceGetAttribute"))
        };
        let capability = (
            attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let context = retain(cu_device)?;
        Self::open_in(context, cu_device, name, capability).inspect_err(|_| {
            // SAFETY: nothing of the context is used where it does not open.
            let _ = unsafe { primary_ctx::release(cu_device) };
        })
    }

    fn open_in(
        context: sys::CUcontext,
        cu_device: sys::CUdevice,
        name: String,
        capability: (i32, i32),
    ) -> Result<Self, DriverError> {
        let count = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        // SAFETY: the device was just had from the driver.
        let multiprocessors =
            unsafe { device::get_attribute(cu_device, count) }.map_err(failed("cuDeviceGetAttribute"))?;
        // SAFETY: the context was just had.
        unsafe { result::ctx::set_current(context) }.map_err(failed("cuCtxSetCurrent"))?;
        let new_stream = || stream::create(stream::StreamKind::NonBlocking).map_err(failed("cuStreamCreate"));
        let allocator = Allocator::of(cu_device)?;
        let (stream, aside) = (new_stream()?, new_stream()?);
        let architecture = architecture(capability);
        if architecture.starts_with("compute_") {
            log::warn!(
                "{} does not know {name} (compute capability {}.{}): kernels are compiled for {architecture}, and by the driver for the GPU",
                compiler_version(),
                capability.0,
                capability.1
            );
        }
        let blas = if is_wanted("cublaslt") {
            Blas::open(format!("{name} sm_{}{}", capability.0, capability.1), Cache::of_user())
        } else {
            None
        };
        if blas.is_none() {
            log::info!(
                "cuBLASLt was not found (`pip install nvidia-cublas`), or is not wanted: large products run on kernels of Kiln's"
            );
        }
        let dnn = (is_wanted("cudnn") && dnn::is_present()).then(OnceLock::new);
        if dnn.is_none() {
            log::info!(
                "cuDNN 9 was not found (`pip install nvidia-cudnn-cu13`), or is not wanted: convolutions run on kernels of Kiln's"
            );
        }
        let workspace = match blas.is_some() || dnn.is_some() {
            true => {
                // SAFETY: the stream is valid; the memory is kept as long as the device.
                let start = unsafe { allocator.allocate(stream, WORKSPACE_BYTES) }?;
                Some(Mutex::new((start, WORKSPACE_BYTES)))
            }
            false => None,
        };
        Ok(Self {
            primary: Arc::new(Primary { device: cu_device, context, is_open: RwLock::new(true) }),
            stream,
            aside,
            allocator,
            blas,
            dnn,
            workspace,
            capturing: AtomicBool::new(false),
            name,
            capability,
            architecture,
            multiprocessors: u32::try_from(multiprocessors).unwrap_or(1).max(1),
            compiler: [&compiler_version(), &*OPTIONS.join(" ")].join(" "),
            staging: Arc::default(),
            uploads: Mutex::default(),
            peers: Mutex::default(),
        })
    }

    fn enter(&self) -> Result<RwLockReadGuard<'_, bool>, DriverError> {
        self.primary.enter()
    }

    /// What memory and bytes go by, and whether they must be waited for.
    fn transfers(&self) -> (sys::CUstream, bool) {
        match self.capturing.load(Ordering::Acquire) {
            true => (self.aside, true),
            false => (self.stream, false),
        }
    }

    fn wait_for(&self, transfers: (sys::CUstream, bool)) -> Result<(), DriverError> {
        match transfers {
            // SAFETY: the stream is never destroyed.
            (stream, true) => unsafe { stream::synchronize(stream) }.map_err(failed("cuStreamSynchronize")),
            (_, false) => Ok(()),
        }
    }
}

/// The name and version of the compiler that was found.
pub fn compiler_version() -> String {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are numbers that outlive the call.
    match unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) } {
        nvrtc::sys::nvrtcResult::NVRTC_SUCCESS => format!("nvrtc {major}.{minor}"),
        error => format!("nvrtc ({error:?})"),
    }
}

/// What the compiler is told of every kernel.
pub const OPTIONS: [&str; 3] = [
    // One rounding an operation, as on other devices; what is one operation is written as one.
    "--fmad=false",
    "--std=c++17",
    "--device-as-default-execution-space",
];

/// The architecture that kernels are compiled for: the device's. Where the compiler is older than the device, that is the newest one which it
/// knows, as PTX, of which the driver makes the device's code.
fn architecture((major, minor): (i32, i32)) -> String {
    let own = major * 10 + minor;
    let known = known_architectures();
    let before = known.iter().copied().filter(|&known| known < own).max();
    match before.filter(|_| !known.contains(&own)) {
        Some(before) => format!("compute_{before}"),
        None => format!("sm_{own}"),
    }
}

/// The compute capabilities that the compiler knows, ten times the major number and the minor one; none where it does not say.
fn known_architectures() -> Vec<i32> {
    let mut count = 0;
    // SAFETY: there is room for a number.
    if unsafe { nvrtc::sys::nvrtcGetNumSupportedArchs(&raw mut count) }.result().is_err() {
        return Vec::new();
    }
    let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: there is room for as many numbers as the compiler said.
    match unsafe { nvrtc::sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) }.result() {
        Ok(()) => known,
        Err(_) => Vec::new(),
    }
}

/// Compiles CUDA C++ for an architecture such as `sm_90` (or `compute_90`, which yields PTX), with further options: the code, and what the compiler
/// says of it. No device is needed.
///
/// # Errors
/// When the compiler refuses it, with what it says.
pub fn compile(source: &str, architecture: &str, further: &[&str]) -> Result<(Vec<u8>, String), DriverError> {
    let error = |reason: String| DriverError {
        call: "nvrtcCompileProgram",
        reason,
        is_out_of_memory: false,
        is_fault: false,
    };
    let source = CString::new(source).map_err(|_| error(String::from("the source holds a zero")))?;
    let program = nvrtc::result::create_program(&source, Some(c"kiln.cu"))
        .map_err(|code| error(format!("{:?}", code.0)))?;
    let mut options = vec![format!("--gpu-architecture={architecture}")];
    options.extend(OPTIONS.iter().chain(further).map(|&option| option.to_owned()));
    // SAFETY: the program was just made; it is destroyed once, below.
    let compiled = unsafe { nvrtc::result::compile_program(program, &options) };
    // SAFETY: as above.
    let log = unsafe { nvrtc::result::get_program_log(program) }
        // Characters of C are signed here and unsigned there.
        .map(|log| log.iter().flat_map(|byte| byte.to_ne_bytes()).collect::<Vec<u8>>())
        .unwrap_or_default();
    let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned();
    let mut code: Vec<u8> = Vec::new();
    let is_ptx = architecture.starts_with("compute_");
    let result = compiled.and_then(|()| {
        let mut size = 0;
        // SAFETY: the program is valid, and `code` has room for as many bytes as the compiler said.
        unsafe {
            match is_ptx {
                true => nvrtc::sys::nvrtcGetPTXSize(program, &raw mut size),
                false => nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut size),
            }
            .result()?;
            code.resize(size, 0);
            match is_ptx {
                // A text, with the zero at its end.
                true => nvrtc::sys::nvrtcGetPTX(program, code.as_mut_ptr().cast()),
                false => nvrtc::sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()),
            }
            .result()
        }
    });
    // SAFETY: the program is valid, and not used again.
    let _ = unsafe { nvrtc::result::destroy_program(program) };
    match result {
        Ok(()) => Ok((code, log)),
        Err(code) => Err(error(format!("{:?}\n{log}", code.0))),
    }
}

impl Driver for Nvidia {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn multiplies(&self, factors: Factors) -> bool {
        multiplies(self.capability, factors)
    }

    fn architecture(&self) -> String {
        self.architecture.clone()
    }

    fn compiler(&self) -> String {
        self.compiler.clone()
    }

    fn allocate(&self, bytes: u64) -> Result<Address, DriverError> {
        let _entered = self.enter()?;
        let transfers = self.transfers();
        // SAFETY: the stream is valid.
        let address = unsafe { self.allocator.allocate(transfers.0, bytes as usize) }?;
        self.wait_for(transfers)?;
        Ok(address)
    }

    fn free(&self, address: Address) -> Result<(), DriverError> {
        let _entered = self.enter()?;
        // SAFETY: the caller gives back what it had from `allocate`, once; what uses it was asked for before on the same stream.
        unsafe { self.allocator.free(address, self.stream) }
    }

    fn trim(&self) -> Result<(), DriverError> {
        self.synchronize()?;
        let _entered = self.enter()?;
        self.allocator.trim()
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>, DriverError> {
        compile(source, &self.architecture, &[]).map(|(code, _)| code)
    }

    fn load(&self, image: &[u8], entry_point: &str) -> Result<Function, DriverError> {
        let _entered = self.enter()?;
        let name = CString::new(entry_point).map_err(|_| DriverError {
            is_fault: false,
            call: "cuModuleGetFunction",
            reason: String::from("the name holds a zero"),
            is_out_of_memory: false,
        })?;
        // SAFETY: the driver checks what it is given; the module is never unloaded, so that its functions stay valid.
        unsafe {
            let loaded = module::load_data(image.as_ptr().cast()).map_err(failed("cuModuleLoadData"))?;
            let function = module::get_function(loaded, name).map_err(failed("cuModuleGetFunction"))?;
            Ok(Function(function as u64))
        }
    }

    fn launch(&self, launch: &KernelLaunch<'_>) -> Result<(), DriverError> {
        let _entered = self.enter()?;
        let ([x, y, z], [width, height]) = (launch.blocks, launch.threads);
        let buffers = launch.buffers.iter().map(|address| (&raw const *address).cast_mut().cast::<c_void>());
        let words = launch.words.iter().map(|word| (&raw const *word).cast_mut().cast::<c_void>());
        let mut arguments: SmallVec<[*mut c_void; 64]> = match launch.is_table {
            true => smallvec![launch.words.as_ptr().cast_mut().cast()],
            false => buffers.chain(words).collect(),
        };
        // SAFETY: the function is loaded and takes these arguments, whose values the driver copies before it returns; the memory
        // that it is given outlives the work, which ends before what is asked for later.
        unsafe {
            result::launch_kernel(
                launch.function.0 as sys::CUfunction,
                (x, y, z),
                (width, height, 1),
                0,
                self.stream,
                &mut arguments,
            )
        }
        .map_err(failed("cuLaunchKernel"))
    }

    fn takes_product(&self, product: &Product) -> bool {
        self.blas.as_ref().is_some_and(|blas| blas.takes(product))
    }

    fn product(&self, product: &Product, way: usize) -> Result<bool, DriverError> {
        let Some(blas) = &self.blas else { return Ok(false) };
        let _entered = self.enter()?;
        let Ok(workspace) = self.workspace(WORKSPACE_BYTES, WORKSPACE_BYTES) else { return Ok(false) };
        blas.product((product, way), self.stream.cast(), workspace)
    }

    fn convolve(&self, convolution: &Convolution, way: usize) -> Result<bool, DriverError> {
        let _entered = self.enter()?;
        match self.dnn() {
            Some(dnn) => dnn.convolve((convolution, way), |bytes, most| self.workspace(bytes, most)),
            None => Ok(false),
        }
    }

    fn libraries(&self) -> String {
        let products = self.blas.as_ref().map(|_| blas::version());
        let convolutions = self.dnn.as_ref().map(|_| dnn::version());
        [products, convolutions].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn channels_if_last(&self, shape: &ConvolutionShape) -> Option<usize> {
        let _entered = self.enter().ok()?;
        self.dnn()?.channels_if_last(shape)
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let transfers = self.transfers();
        if bytes.len() > MOST_PAGEABLE && transfers.0 == self.stream {
            return self.upload_staged(to, bytes);
        }
        let _entered = self.enter()?;
        // SAFETY: the memory has room for the bytes. They lie in pageable memory, which the driver copies from before it returns.
        unsafe { result::memcpy_htod_async(to.0, bytes, transfers.0) }
            .map_err(failed("cuMemcpyHtoDAsync"))?;
        self.wait_for(transfers)
    }

    fn download(&self, parts: &[(Address, usize)]) -> Result<Box<dyn Pending>, DriverError> {
        let total: usize = parts.iter().map(|&(_, bytes)| bytes).sum();
        let mut staging = if total == 0 { Staging::pageable(0) } else { self.staging(total)? };
        let entered = self.enter()?;
        let mut at = 0;
        let begun = parts.iter().filter(|&&(_, bytes)| bytes > 0).try_for_each(|&(address, bytes)| {
            let into = &mut staging.bytes_mut()[at..at + bytes];
            at += bytes;
            // SAFETY: the memory holds so many bytes, and the staging memory has room for all parts; it lives until the copy is done.
            unsafe { result::memcpy_dtoh_async(into, address.0, self.stream) }
                .map_err(failed("cuMemcpyDtoHAsync"))
        });
        drop(entered);
        let done = begun.and_then(|()| self.mark()).inspect_err(|_| {
            // Parts that were begun before may be on their way.
            let _ = self.synchronize();
        })?;
        Ok(Box::new(Download {
            done,
            staging: Some(staging),
            home: self.staging.clone(),
            lengths: parts.iter().map(|&(_, bytes)| bytes).collect(),
        }))
    }

    fn copy_from(
        &self,
        to: Address,
        other: &dyn Driver,
        from: Address,
        bytes: usize,
    ) -> Result<bool, DriverError> {
        let other: &dyn std::any::Any = other;
        let Some(other) = other.downcast_ref::<Self>() else { return Ok(false) };
        let written = other.mark()?;
        self.read_directly(other);
        {
            let _entered = self.enter()?;
            // SAFETY: both streams and contexts are valid, unless they were given up, which the driver then says; both memories have so many
            // bytes, and outlive what is asked for later on their streams, each of which waits for the copy.
            unsafe {
                stream::wait_event(
                    self.stream,
                    written.event,
                    sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT,
                )
                .map_err(failed("cuStreamWaitEvent"))?;
                let (own, others) = (self.primary.context, other.primary.context);
                sys::cuMemcpyPeerAsync(to.0, own, from.0, others, bytes, self.stream)
                    .result()
                    .map_err(failed("cuMemcpyPeerAsync"))?;
            }
        }
        let copied = self.mark()?;
        let _entered = other.enter()?;
        // SAFETY: the stream and the event are valid.
        unsafe {
            stream::wait_event(other.stream, copied.event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
        }
        .map_err(failed("cuStreamWaitEvent"))?;
        Ok(true)
    }

    fn all_reduce(&self, others: &[&dyn Driver], sets: &[Vec<Numbers>]) -> Result<bool, DriverError> {
        let others = others.iter().map(|&other| (other as &dyn std::any::Any).downcast_ref::<Self>());
        let Some(all) = std::iter::once(Some(self)).chain(others).collect::<Option<Vec<&Self>>>() else {
            return Ok(false);
        };
        let named = |&numbers: &Numbers| Some((numbers, nccl::data_type(numbers.dtype)?));
        let named: Option<Vec<Vec<_>>> = sets.iter().map(|set| set.iter().map(named).collect()).collect();
        let Some(sets) = named else { return Ok(false) };
        let mut groups = nccl::groups();
        let held: Vec<_> = all.iter().map(|device| device.primary.hold()).collect::<Result<_, _>>()?;
        let devices: Vec<Arc<Primary>> = all.iter().map(|device| device.primary.clone()).collect();
        let streams: Vec<*mut c_void> = all.iter().map(|device| device.stream.cast()).collect();
        let place = match groups.iter().position(|group| group.is_of(&devices)) {
            Some(place) => place,
            None => {
                // Before there is a group that would be left behind where this fails.
                for (own, other) in all.iter().flat_map(|own| all.iter().map(move |other| (own, other))) {
                    let [of, with] = [own, other].map(|device| device.primary.ordinal());
                    if of != with {
                        own.allocator.share(of, with)?;
                    }
                }
                let Some(group) = Group::new(devices) else { return Ok(false) };
                groups.push(group);
                groups.len() - 1
            }
        };
        // SAFETY: the contexts are held; the memory has so many numbers, as the caller says, and outlives what is asked for later on its
        // stream.
        let asked = unsafe { groups[place].all_reduce(&streams, &sets) };
        drop(held);
        match asked {
            Ok(true) => groups[place].done_at(all.iter().filter_map(|device| device.mark().ok()).collect()),
            Ok(false) => {}
            Err(_) => groups.swap_remove(place).abort(),
        }
        asked
    }

    fn synchronize(&self) -> Result<(), DriverError> {
        let _entered = self.enter()?;
        // SAFETY: the stream is valid.
        unsafe { stream::synchronize(self.stream) }.map_err(failed("cuStreamSynchronize"))
    }

    fn begin_capture(&self) -> Result<(), DriverError> {
        let _entered = self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is valid.
        unsafe { stream::begin_capture(self.stream, mode) }.map_err(failed("cuStreamBeginCapture"))?;
        self.capturing.store(true, Ordering::Release);
        Ok(())
    }

    fn end_capture(&self) -> Result<Written, DriverError> {
        let _entered = self.enter()?;
        self.capturing.store(false, Ordering::Release);
        // SAFETY: the stream is valid.
        let written = unsafe { stream::end_capture(self.stream) }.map_err(failed("cuStreamEndCapture"))?;
        Ok(Written(written as u64))
    }

    fn instantiate(&self, written: Written) -> Result<Captured, DriverError> {
        let _entered = self.enter()?;
        let flags = sys::CUgraphInstantiate_flags(0);
        // SAFETY: the graph was yielded by `end_capture` and is not discarded.
        let made = unsafe { graph::instantiate(written.0 as sys::CUgraph, flags) };
        made.map(|made| Captured(made as u64)).map_err(failed("cuGraphInstantiate"))
    }

    fn discard(&self, written: Written) {
        if let Ok(_entered) = self.enter() {
            // SAFETY: the graph is not used again; what was made of it does not need it.
            let _ = unsafe { graph::destroy(written.0 as sys::CUgraph) };
        }
    }

    fn replay(&self, captured: Captured) -> Result<(), DriverError> {
        let _entered = self.enter()?;
        // SAFETY: it was made by `instantiate` and is not forgotten.
        unsafe { graph::launch(captured.0 as sys::CUgraphExec, self.stream) }.map_err(failed("cuGraphLaunch"))
    }

    fn forget(&self, captured: Captured) {
        if let Ok(_entered) = self.enter() {
            // SAFETY: the graph is not used again; the driver waits for what is running.
            let _ = unsafe { graph::exec_destroy(captured.0 as sys::CUgraphExec) };
        }
    }

    fn close(&self) -> Result<(), DriverError> {
        // Nobody makes a group of the device meanwhile.
        let mut groups = nccl::groups();
        if groups.iter().any(|group| group.has(&self.primary)) {
            // What the other devices were asked to add up before is theirs. They get there once this one did its part; one that failed never does.
            if self.synchronize().is_ok() {
                groups.iter().filter(|group| group.has(&self.primary)).for_each(Group::wait);
            }
            groups.extract_if(.., |group| group.has(&self.primary)).for_each(Group::abort);
        }
        self.primary.close()
    }
}

impl Nvidia {
    /// Has copies from another device go from memory to memory, where the hardware can; asked for once. Else, and where the driver refuses it, the driver
    /// takes them through the host by itself.
    fn read_directly(&self, other: &Self) {
        let peer = Arc::downgrade(&other.primary);
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.iter().any(|known| known.ptr_eq(&peer)) {
            return;
        }
        peers.push(peer);
        let [of, to] = [other, self].map(|device| device.primary.ordinal());
        let opened = self.enter().and_then(|_entered| {
            // SAFETY: the other's context is valid, unless it was given up, which the driver then says.
            unsafe { other.allocator.open((of, other.primary.context), to) }
        });
        if let Err(error) = opened {
            log::info!("copies from {} to {} go through the host: {error}", other.name, self.name);
        }
    }

    /// Memory for libraries of at least so many bytes, which what is asked of them on the stream uses in turns; of more, but not of more than `most`, where
    /// there are not so many yet. The context is current.
    fn workspace(&self, bytes: usize, most: usize) -> Result<*mut c_void, Lack> {
        let Some(workspace) = &self.workspace else { return Err(Lack::NotAsked) };
        let mut workspace = workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, there_are) = *workspace;
        if bytes > there_are {
            if self.capturing.load(Ordering::Acquire) {
                return Err(Lack::NotAsked);
            }
            let larger = bytes.next_power_of_two().min(most).max(bytes);
            // SAFETY: the stream is valid; the memory is kept as long as the device.
            let allocate =
                |bytes| unsafe { self.allocator.allocate(self.stream, bytes) }.map(|start| (start, bytes));
            // Where there is no more memory than that, it is as much as is asked for.
            let made = allocate(larger).or_else(|error| match error.is_out_of_memory && larger > bytes {
                true => allocate(bytes),
                false => Err(error),
            });
            *workspace = made.map_err(|error| Lack::Memory(there_are, error))?;
            return Ok(workspace.0.0 as *mut c_void);
        }
        Ok(start.0 as *mut c_void)
    }

    /// The library for convolutions, opened when it is first needed; nothing where it is not there, or what opening it asks of the device
    /// cannot be written down. The context is current.
    fn dnn(&self) -> Option<&Dnn> {
        let dnn = self.dnn.as_ref()?;
        if dnn.get().is_none() && self.capturing.load(Ordering::Acquire) {
            return None;
        }
        if let Some(known) = dnn.get() {
            return known.as_ref();
        }
        // SAFETY: the device was had from the driver.
        let memory = unsafe { device::total_mem(self.primary.device) }.unwrap_or(0);
        let opened = match Dnn::open(self.stream.cast(), memory) {
            Ok(opened) => Some(opened),
            Err(error) if error.is_out_of_memory => {
                log::debug!(
                    "this convolution runs on a kernel of Kiln's, and the next one asks again: {error}"
                );
                return None;
            }
            Err(error) => {
                log::warn!("convolutions run on kernels of Kiln's: {error}");
                None
            }
        };
        dnn.get_or_init(|| opened).as_ref()
    }

    /// What was asked for so far.
    fn mark(&self) -> Result<Mark, DriverError> {
        let _entered = self.enter()?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let event = event::create(flags).map_err(failed("cuEventCreate"))?;
        // SAFETY: the event was just made, and the stream is valid.
        match unsafe { event::record(event, self.stream) } {
            Ok(()) => Ok(Mark { event, primary: self.primary.clone() }),
            Err(error) => {
                // SAFETY: as above, and nobody else knows it.
                let _ = unsafe { event::destroy(event) };
                Err(failed("cuEventRecord")(error))
            }
        }
    }

    /// Copies bytes by way of staging memory: of what lies in pageable memory the driver waits for all that was asked for before.
    fn upload_staged(&self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, piece) in (to.0..).step_by(UPLOAD_BYTES).zip(bytes.chunks(UPLOAD_BYTES)) {
            let mut staging = match uploads.take()? {
                Some(staging) => staging,
                None => self.new_staging(UPLOAD_BYTES)?,
            };
            let filled = &mut staging.bytes_mut()[..piece.len()];
            filled.copy_from_slice(piece);
            {
                let _entered = self.enter()?;
                // SAFETY: the memory has room for the bytes, and the staging memory is not written to until the copy is done.
                unsafe { result::memcpy_htod_async(at, filled, self.stream) }
                    .map_err(failed("cuMemcpyHtoDAsync"))?;
            }
            match self.mark() {
                Ok(done) => uploads.push(staging, done),
                Err(error) => {
                    // Nobody can say when the copy is done: its memory stays where it is.
                    std::mem::forget(staging);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Staging memory of at least so many bytes.
    fn staging(&self, bytes: usize) -> Result<Staging, DriverError> {
        let mut kept = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept.iter().position(|staging| staging.len() >= bytes) {
            return Ok(kept.swap_remove(found));
        }
        drop(kept);
        // Large ones are not kept.
        let size = if bytes <= MOST_STAGING_BYTES { bytes.next_power_of_two().max(4096) } else { bytes };
        self.new_staging(size)
    }

    fn new_staging(&self, bytes: usize) -> Result<Staging, DriverError> {
        let _entered = self.enter()?;
        // SAFETY: the memory is given back once, when it is dropped.
        match unsafe { result::malloc_host(bytes, 0) } {
            Ok(start) => Ok(Staging::page_locked(start.cast(), bytes, self.primary.clone())),
            Err(error) => {
                // A machine may have no more pages to lock; all is as right without, but slower.
                let refused = failed("cuMemHostAlloc")(error);
                log::warn!("copies wait for the device, as there is no page-locked memory: {refused}");
                Ok(Staging::pageable(bytes))
            }
        }
    }
}
