//! Names of devices, and how one is opened.

use crate::context::Context;
use kiln_tensor::backend::{DeviceId, DeviceOps};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// A GPU, by its kind and its number among those of its kind. One that several APIs know (on Windows Vulkan and DX12) is counted once, as that of
/// the first of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WgpuDevice {
    /// The one that the system prefers for speed; the variable `KILN_WGPU_ADAPTER` overrules that, by a part of an adapter's name,
    /// unless it is empty.
    #[default]
    DefaultDevice,
    /// A GPU with memory of its own.
    DiscreteGpu(usize),
    /// A GPU that shares the CPU's memory.
    IntegratedGpu(usize),
    /// A GPU that a host shares with this machine.
    VirtualGpu(usize),
    /// A driver that computes on the CPU.
    Cpu,
}

impl DeviceOps for WgpuDevice {
    fn to_id(&self) -> DeviceId {
        match *self {
            Self::DefaultDevice => DeviceId::new(0, 0),
            Self::DiscreteGpu(index) => DeviceId::new(1, index as u32),
            Self::IntegratedGpu(index) => DeviceId::new(2, index as u32),
            Self::VirtualGpu(index) => DeviceId::new(3, index as u32),
            Self::Cpu => DeviceId::new(4, 0),
        }
    }

    fn from_id(id: DeviceId) -> Self {
        let index = id.index_id as usize;
        match id.type_id {
            0 => Self::DefaultDevice,
            1 => Self::DiscreteGpu(index),
            2 => Self::IntegratedGpu(index),
            3 => Self::VirtualGpu(index),
            4 => Self::Cpu,
            _ => panic!("{id:?} is no device of the GPU backend"),
        }
    }
}

/// The variable that names the adapter of the default device.
const ADAPTER: &str = "KILN_WGPU_ADAPTER";

/// Why a device cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InitError {
    /// There is no such adapter.
    #[error(
        "{device:?}: no such GPU was found ({found}); drivers for Vulkan (on Linux `mesa-vulkan-drivers`, which also has \
         one that needs no GPU), Metal or DX12 make GPUs known"
    )]
    NotFound {
        /// What was asked for.
        device: WgpuDevice,
        /// The adapters that there are.
        found: String,
    },
    /// The adapter gave no device.
    #[error("{adapter}: the GPU could not be opened: {reason}")]
    NotOpened {
        /// The adapter's name.
        adapter: String,
        /// What the driver said.
        reason: String,
    },
    /// It is not open, and a browser lets no thread wait until it is.
    #[error("{device:?} is not open: in a browser, `init_async` opens a GPU before it is used")]
    NotAwaited {
        /// What was asked for.
        device: WgpuDevice,
    },
}

/// The devices that were opened.
fn opened() -> &'static Mutex<HashMap<WgpuDevice, Arc<Context>>> {
    static OPENED: OnceLock<Mutex<HashMap<WgpuDevice, Arc<Context>>>> = OnceLock::new();
    OPENED.get_or_init(Mutex::default)
}

/// Opens a device, unless it is open; one that was lost is opened anew. The tensors that were on it when it was lost are lost for
/// good, and using one is an error of the next read or sync.
///
/// # Errors
/// When there is none, or it does not open.
pub fn init(device: &WgpuDevice) -> Result<(), InitError> {
    forget_lost(device);
    context(device).map(|_| ())
}

/// [`init`] without blocking the thread, as browsers need it: there, a device must be opened before it is used.
///
/// # Errors
/// When there is none, or it does not open.
pub async fn init_async(device: &WgpuDevice) -> Result<(), InitError> {
    forget_lost(device);
    if is_open(device).is_none() {
        let context = Arc::new(open(device).await?);
        opened().lock().unwrap_or_else(PoisonError::into_inner).entry(*device).or_insert(context);
    }
    Ok(())
}

/// Sends what was recorded to the device, and does not wait for it. Reads and syncs do so too.
///
/// # Panics
/// When the device does not open.
pub fn submit(device: &WgpuDevice) {
    expect_context(device).submit();
}

/// Has a device time kernels that do the same and run the fastest, or not any more. The first work of a class waits for the device several
/// times; what was found is kept for later processes. In a browser nothing is timed.
///
/// # Panics
/// When the device does not open.
pub fn tune(device: &WgpuDevice, on: bool) {
    expect_context(device).tuning.set(on);
}

/// Lets a device be opened anew that was lost.
fn forget_lost(device: &WgpuDevice) {
    let mut all = opened().lock().unwrap_or_else(PoisonError::into_inner);
    let lost = all.get(device).is_some_and(|context| context.is_lost());
    // The device is closed by whoever holds it last, and not while the others are kept waiting.
    let lost = if lost { all.remove(device) } else { None };
    if lost.is_some() {
        ROUND.fetch_add(1, Ordering::Release);
    }
    drop(all);
    drop(lost);
}

fn is_open(device: &WgpuDevice) -> Option<Arc<Context>> {
    opened().lock().unwrap_or_else(PoisonError::into_inner).get(device).cloned()
}

/// How often a lost device was forgotten: what threads remember of devices holds in one round.
static ROUND: AtomicU64 = AtomicU64::new(0);

std::thread_local! {
    /// The device that this thread used last, and in which round; it keeps no device open.
    static LAST: RefCell<Option<(WgpuDevice, u64, Weak<Context>)>> = const { RefCell::new(None) };
}

/// The device's context; opens it when it is not open yet.
pub(crate) fn context(device: &WgpuDevice) -> Result<Arc<Context>, InitError> {
    // Every operation asks for it several times.
    let round = ROUND.load(Ordering::Acquire);
    let last = LAST.with_borrow(|last| match last {
        Some((known, at, context)) if (known, *at) == (device, round) => context.upgrade(),
        Some(_) | None => None,
    });
    if let Some(context) = last {
        return Ok(context);
    }
    let context = find_or_open(device)?;
    LAST.set(Some((*device, round, Arc::downgrade(&context))));
    Ok(context)
}

fn find_or_open(device: &WgpuDevice) -> Result<Arc<Context>, InitError> {
    if let Some(context) = is_open(device) {
        return Ok(context);
    }
    if cfg!(target_arch = "wasm32") {
        return Err(InitError::NotAwaited { device: *device });
    }
    // Held while the device is opened, so that two threads do not open it twice.
    let mut all = opened().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = all.get(device) {
        return Ok(context.clone());
    }
    let context = Arc::new(kiln_gpu::promise::block_on(open(device))?);
    all.insert(*device, context.clone());
    Ok(context)
}

/// The device's context, for operations, which have no way to fail.
///
/// # Panics
/// When the device does not open.
pub(crate) fn expect_context(device: &WgpuDevice) -> Arc<Context> {
    match context(device) {
        Ok(context) => context,
        Err(error) => panic!("{error}"),
    }
}

/// A device of one's own.
pub(crate) async fn open(device: &WgpuDevice) -> Result<Context, InitError> {
    let mut options = wgpu::InstanceDescriptor::new_without_display_handle();
    options.backends = wgpu::Backends::PRIMARY;
    // Unless WGPU_DEBUG=1 asks for them, shaders have no lines of their sources in debug builds either: to find the lines takes time for each pipeline.
    options.flags = options.flags.difference(wgpu::InstanceFlags::DEBUG).with_env();
    let instance = wgpu::Instance::new(options);
    let adapter = find(&instance, device).await?;
    Context::open(&adapter).await
}

async fn find(instance: &wgpu::Instance, device: &WgpuDevice) -> Result<wgpu::Adapter, InitError> {
    use wgpu::DeviceType;
    let (kind, number) = match *device {
        WgpuDevice::DefaultDevice => return preferred(instance).await,
        WgpuDevice::DiscreteGpu(n) => (DeviceType::DiscreteGpu, n),
        WgpuDevice::IntegratedGpu(n) => (DeviceType::IntegratedGpu, n),
        WgpuDevice::VirtualGpu(n) => (DeviceType::VirtualGpu, n),
        WgpuDevice::Cpu => (DeviceType::Cpu, 0),
    };
    let adapters = adapters(instance).await;
    let found = names(&adapters);
    let mut of_kind = adapters.into_iter().filter(|adapter| adapter.get_info().device_type == kind);
    of_kind.nth(number).ok_or(InitError::NotFound { device: *device, found })
}

/// The adapters, each GPU once.
async fn adapters(instance: &wgpu::Instance) -> Vec<wgpu::Adapter> {
    let all = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
    let identity = |adapter: &wgpu::Adapter| {
        let info = adapter.get_info();
        (info.backend, [info.vendor, info.device])
    };
    let known: Vec<_> = all.iter().map(identity).collect();
    let first = |(n, adapter)| is_new(&known[..n], known[n]).then_some(adapter);
    all.into_iter().enumerate().filter_map(first).collect()
}

/// Whether none of those before it is the same GPU by another API. By the same one it is another of its model; one without numbers is like none.
fn is_new(before: &[(wgpu::Backend, [u32; 2])], (backend, numbers): (wgpu::Backend, [u32; 2])) -> bool {
    numbers == [0, 0] || before.iter().all(|&(other, known)| other == backend || known != numbers)
}

/// What the name has in it of the adapter that the environment asks for, in lower case.
fn wanted(value: Option<String>) -> Option<String> {
    value.map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty())
}

/// The adapter whose name the environment asks for, or the one that the system prefers.
async fn preferred(instance: &wgpu::Instance) -> Result<wgpu::Adapter, InitError> {
    let device = WgpuDevice::DefaultDevice;
    if let Some(wanted) = wanted(std::env::var(ADAPTER).ok()) {
        let adapters = adapters(instance).await;
        let found = names(&adapters);
        let named = |adapter: &wgpu::Adapter| adapter.get_info().name.to_lowercase().contains(&wanted);
        return adapters.into_iter().find(named).ok_or(InitError::NotFound { device, found });
    }
    let options = wgpu::RequestAdapterOptions {
        power_preference: wgpu::PowerPreference::HighPerformance,
        ..wgpu::RequestAdapterOptions::default()
    };
    let none = |error: wgpu::RequestAdapterError| InitError::NotFound { device, found: error.to_string() };
    instance.request_adapter(&options).await.map_err(none)
}

fn names(adapters: &[wgpu::Adapter]) -> String {
    if adapters.is_empty() {
        return "there is none at all".to_owned();
    }
    let name = |adapter: &wgpu::Adapter| {
        let info = adapter.get_info();
        format!("{} ({:?})", info.name, info.device_type)
    };
    format!("there are {}", adapters.iter().map(name).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::{WgpuDevice, context, init, is_new, open, opened, wanted};
    use crate::statistics;
    use kiln_gpu::promise::block_on;
    use kiln_tensor::backend::Backend;
    use kiln_tensor::{BinaryOp, DType, Scalar, TensorData};

    type Wgpu = crate::Wgpu;

    #[test]
    fn an_empty_name_asks_for_no_adapter() {
        let wanted = |value: &str| wanted(Some(value.to_owned()));
        assert_eq!([wanted(""), wanted(" ")], [None, None]);
        assert_eq!(wanted("LLVMpipe "), Some("llvmpipe".to_owned()));
        assert_eq!(super::wanted(None), None);
    }

    #[test]
    fn a_gpu_that_two_apis_know_is_counted_once() {
        use wgpu::Backend::{Dx12, Vulkan};
        let (card, other, unknown) = ([0x10de, 0x2684], [0x8086, 0x46a6], [0, 0]);
        // Two of one model, and one of another, of which Vulkan knows nothing.
        let all = [
            (Vulkan, card),
            (Vulkan, card),
            (Vulkan, unknown),
            (Dx12, card),
            (Dx12, other),
            (Dx12, card),
            (Dx12, unknown),
        ];
        let new: Vec<bool> = (0..all.len()).map(|n| is_new(&all[..n], all[n])).collect();
        assert_eq!(new, [true, true, true, false, true, false, true]);
    }

    #[test]
    fn kernels_that_share_more_than_a_device_has_are_not_run() {
        let product = |device: &WgpuDevice| {
            let ones = |shape: [usize; 2]| Wgpu::full(shape.into(), Scalar::Float(1.0), DType::F32, device);
            Wgpu::into_data(Wgpu::matmul(ones([70, 40]), ones([40, 50])))
        };
        let sharing = |number, bytes| {
            let device = WgpuDevice::VirtualGpu(number);
            let context = block_on(open(&WgpuDevice::default())).expect("a device").sharing(bytes);
            opened().lock().expect("the devices").insert(device, context.into());
            device
        };
        // Tiles of 64 rows and columns are the usual ones; some of the others share more.
        let device = sharing(1 << 20, 8 << 10);
        assert_eq!(product(&device).expect("a device").to_vec::<f32>().expect("floats"), [40.0; 70 * 50]);
        let before = statistics(&device);
        assert!(before.waits > 1, "nothing was timed");
        product(&device).expect("a device");
        let after = statistics(&device);
        assert_eq!(
            (after.waits, after.pipelines),
            (before.waits + 1, before.pipelines),
            "it was timed again"
        );

        let device = sharing((1 << 20) + 1, 1 << 10);
        let message = product(&device).expect_err("the usual one shares too much, too").to_string();
        assert!(message.contains("a workgroup of the kernel `matmul` shares 8192 bytes"), "{message}");
        assert!(message.ends_with("the most are 1024"), "{message}");
    }

    #[test]
    fn a_lost_device_says_so_until_it_is_opened_anew() {
        let device = WgpuDevice::default();
        let tensor = || Wgpu::from_data(TensorData::new(vec![1.0_f32, 2.0, 3.0], [3]), &device);
        let doubled = |x| Wgpu::binary_scalar(BinaryOp::Mul, x, Scalar::Float(2.0));
        let before = tensor();
        Wgpu::sync(&device).expect("a device");

        context(&device).expect("a device").device.destroy();
        let recorded = doubled(before.clone());
        let lost = |result: Result<(), kiln_tensor::backend::ExecutionError>| {
            let message = result.expect_err("the device is lost").to_string();
            assert!(message.contains("the device was lost"), "{message}");
            assert!(message.contains("`kiln_wgpu::init` opens it anew"), "{message}");
        };
        lost(Wgpu::sync(&device));
        // Neither what was there nor what comes is to be had, however often one asks.
        lost(Wgpu::into_data(recorded).map(drop));
        lost(Wgpu::into_data(before.clone()).map(drop));
        lost(block_on(Wgpu::into_data_async(tensor())).map(drop));
        lost(Wgpu::sync(&device));

        init(&device).expect("the device opens again");
        Wgpu::sync(&device).expect("a device");
        let after = tensor();
        assert_eq!(
            Wgpu::into_data(doubled(after)).expect("a device").to_vec::<f32>().expect("floats"),
            [2.0, 4.0, 6.0]
        );
        // What was lost stays lost, though the new device has a buffer in its place.
        let other = Wgpu::full([3].into(), Scalar::Float(5.0), DType::F32, &device);
        for lost in [Wgpu::into_data(doubled(before.clone())), Wgpu::into_data(before)] {
            let message = lost.expect_err("it is lost").to_string();
            assert!(message.contains("a tensor was lost with its device"), "{message}");
        }
        assert_eq!(Wgpu::into_data(other).expect("a device").to_vec::<f32>().expect("floats"), [5.0; 3]);
    }
}
