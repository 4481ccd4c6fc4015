//! An open device: its queue of recorded kernels, its pool, what was compiled for it.

mod buffers;
mod pipelines;
mod recording;

use crate::device::InitError;
use crate::kernel::WgslKernel;
use crate::memory::Buffer;
use crate::read;
use crate::statistics::{Counters, count};
use kiln_gpu::kernels::Template;
use kiln_gpu::memory::Pool;
#[cfg(not(target_arch = "wasm32"))]
use kiln_gpu::promise::block_on;
use kiln_gpu::runtime::{Limits, Subgroups, Way};
use kiln_gpu::tuning::{self, Tuning};
use kiln_tensor::backend::ExecutionError;
use kiln_tensor::compose::Draws;
use pipelines::{Bound, Layout, OwnPipeline, Part, Pipeline};
use recording::{Last, Recorded};
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The variable that names the folder in which times are kept; where it is empty, they are forgotten with the process.
const FOLDER: &str = "KILN_WGPU_CACHE";
/// The variable that says, by 1 or 0, whether kernels share memory within workgroups. Where it is not set, they do so but on drivers
/// that compute on a CPU.
const SHARED_MEMORY: &str = "KILN_WGPU_SHARED_MEMORY";
/// A variable of the environment: 0 has kernels do without the device's numbers of 64 bits.
const WIDE_NUMBERS: &str = "KILN_WGPU_WIDE_NUMBERS";
/// Numbers of 64 bits.
const WIDE: wgpu::Features = wgpu::Features::SHADER_INT64.union(wgpu::Features::SHADER_F64);
/// The variable that says, by 0, that kernels do without subgroups where the device has them.
const SUBGROUPS: &str = "KILN_WGPU_SUBGROUPS";
/// The variable that says how many workgroups a grid has along an axis at most, where that is fewer than the device's: what goes beyond is tried with
/// tensors of few elements then.
const GRID: &str = "KILN_WGPU_GRID";
/// Bytes of the parameters that one kernel sees.
pub(crate) const PARAMETER_BYTES: u64 = 4096;
/// Bytes of the parameters of one submission.
const PARAMETERS_BYTES: u64 = 256 * 1024;

/// An open device.
pub(crate) struct Context {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    /// The adapter's name.
    pub name: String,
    limits: Limits,
    /// Bytes of the largest buffer.
    pub largest: u64,
    pub tuning: Tuning,
    /// What shaders have besides numbers of 32 bits.
    pub numbers: wgpu::Features,
    pub counters: Counters,
    state: Mutex<State>,
    draws: Mutex<Draws>,
    failure: Arc<Mutex<Failure>>,
    parameters: wgpu::Buffer,
    parameter_layout: wgpu::BindGroupLayout,
    parameter_group: wgpu::BindGroup,
    /// Distance of the parameters of one kernel to those of the next.
    parameter_step: u64,
    /// Bytes of parameters that are set with a launch, rather than written to memory before.
    immediate_bytes: u32,
}

/// What went wrong on a device.
#[derive(Debug, Default)]
struct Failure {
    /// The first thing since somebody was told: it is the cause of those that follow.
    first: Option<String>,
    /// Why the device is lost, if it is. Everyone is told: nothing can be computed on it any more.
    lost: Option<String>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.name)
    }
}

/// What changes while kernels are recorded.
#[derive(Default)]
struct State {
    pool: Pool<Buffer>,
    pipelines: FxHashMap<Template, Arc<Pipeline>>,
    /// Those of users' kernels, by which of the buffers are written to.
    own_pipelines: FxHashMap<(WgslKernel, Vec<bool>), OwnPipeline>,
    /// By the bindings, and the bytes of parameters that are set with a launch.
    layouts: FxHashMap<(Vec<Bound>, u32), Arc<Layout>>,
    /// Those of each [layout](Layout::number).
    bind_groups: Vec<FxHashMap<Vec<Part>, wgpu::BindGroup>>,
    /// The buffers that tensors have, or may get again, by their ids.
    buffers: FxHashMap<u64, wgpu::Buffer>,
    /// Kernels: first those that are recorded, then what the submissions before left in their places. A pass mostly asks for the kernels of
    /// the one before it, in its order, so that a look at the next place finds them.
    kernels: Vec<Recorded>,
    /// How many of the kernels are recorded.
    pending: usize,
    /// The kernel that comes behind them, as long as more may be done by it.
    last: Last,
    /// The parameters of the pending kernels that read them from memory.
    parameters: Vec<u8>,
    /// Those that are set with the launches of the others.
    immediates: Vec<u8>,
    /// Buffers whose contents are not what was asked for, by their ids, and why: there is no memory for them, or what computes them did not run.
    lost: FxHashMap<u64, Arc<str>>,
    /// Bytes that were uploaded since the last submission.
    uploaded: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// Opens an adapter with all that it offers of what kernels use.
    pub async fn open(adapter: &wgpu::Adapter) -> Result<Self, InitError> {
        let (mut info, mut limits) = (adapter.get_info(), adapter.limits());
        if info.name.is_empty() {
            // Browsers do not tell their pages.
            info.name = String::from("WebGPU");
        }
        let groups = std::env::var(GRID).ok().and_then(|value| value.parse().ok());
        if let Some(groups) = groups.filter(|&groups| groups > 0) {
            limits.max_compute_workgroups_per_dimension =
                limits.max_compute_workgroups_per_dimension.min(groups);
        }
        let mut numbers = adapter.features() & (wgpu::Features::SHADER_F16 | WIDE);
        if std::env::var(WIDE_NUMBERS).is_ok_and(|value| value == "0") {
            numbers.remove(WIDE);
        }
        // Browsers' language lacks what tells subgroups apart, and has no arrays of immediates.
        let native = wgpu::Features::SUBGROUP | wgpu::Features::IMMEDIATES;
        let features = numbers
            | if cfg!(target_arch = "wasm32") {
                wgpu::Features::empty()
            } else {
                adapter.features() & native
            };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("kiln"),
            required_features: features,
            required_limits: limits.clone(),
            ..wgpu::DeviceDescriptor::default()
        };
        let refused = |error: wgpu::RequestDeviceError| InitError::NotOpened {
            adapter: info.name.clone(),
            reason: error.to_string(),
        };
        let (device, queue) = adapter.request_device(&descriptor).await.map_err(refused)?;

        let failure: Arc<Mutex<Failure>> = Arc::default();
        let (uncaptured, lost) = (failure.clone(), failure.clone());
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            lock(&uncaptured).first.get_or_insert_with(|| error.to_string());
        }));
        device.set_device_lost_callback(move |reason, message| {
            let why = if message.is_empty() { format!("{reason:?}") } else { message };
            lock(&lost).lost.get_or_insert(why);
        });

        let parameters = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("parameters"),
            size: PARAMETERS_BYTES + PARAMETER_BYTES,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let window = wgpu::BufferSize::new(PARAMETER_BYTES);
        let parameter_layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some("parameters"),
            entries: &[wgpu::BindGroupLayoutEntry {
                binding: 0,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Uniform,
                    has_dynamic_offset: true,
                    min_binding_size: window,
                },
                count: None,
            }],
        });
        let binding = wgpu::BufferBinding { buffer: &parameters, offset: 0, size: window };
        let parameter_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("parameters"),
            layout: &parameter_layout,
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(binding) }],
        });
        let adapter = [&*info.name, &info.driver, &info.driver_info].join("; ");
        Ok(Self {
            device,
            queue,
            tuning: Tuning::new(&adapter, tuning::folder(FOLDER, "wgpu").as_deref()),
            name: info.name,
            largest: limits.max_buffer_size,
            limits: Limits {
                binding_bytes: usize::try_from(limits.max_storage_buffer_binding_size).unwrap_or(usize::MAX),
                bindings: limits.max_storage_buffers_per_shader_stage as usize,
                binding_alignment: limits.min_storage_buffer_offset_alignment.max(16) as usize,
                groups: limits.max_compute_workgroups_per_dimension,
                shared_memory: match std::env::var(SHARED_MEMORY) {
                    Ok(value) => value == "1",
                    Err(_) => info.device_type != wgpu::DeviceType::Cpu,
                },
                shared_bytes: limits.max_compute_workgroup_storage_size,
                counters: 0,
                subgroups: match std::env::var(SUBGROUPS).as_deref() {
                    Ok("0") => Subgroups::None,
                    _ if features.contains(wgpu::Features::SUBGROUP) => Subgroups::OfAnySize,
                    _ => Subgroups::None,
                },
                tunes: false,
                libraries: false,
                multiprocessors: None,
            },
            numbers,
            counters: Counters::default(),
            state: Mutex::default(),
            draws: Mutex::new(Draws::unseeded()),
            failure,
            parameters,
            parameter_layout,
            parameter_group,
            immediate_bytes: if features.contains(wgpu::Features::IMMEDIATES) {
                limits.max_immediate_size
            } else {
                0
            },
            parameter_step: u64::from(limits.min_uniform_buffer_offset_alignment.max(16)),
        })
    }

    /// What the device can do.
    pub fn limits(&self) -> Limits {
        Limits { tunes: self.tuning.is_on(), ..self.limits }
    }

    /// See [`Runtime::fastest`](kiln_gpu::runtime::Runtime::fastest). The device is waited for, once for each class of work.
    pub fn fastest(&self, class: &str, ways: &[Way<'_>], run: &mut dyn FnMut(usize) -> bool) -> usize {
        let names: Vec<&str> = ways.iter().map(|way| way.name).collect();
        let can = |n: usize| {
            // One that cannot be is left out: run, it would take no time, and leave its result to nobody.
            let made = ways[n].kernel.map(|kernel| self.pipeline(&mut lock(&self.state), kernel));
            let Some(Err(reason)) = made else { return true };
            log::debug!("`{}` is not among the kernels for {class}: {reason}", names[n]);
            false
        };
        self.tuning.fastest(class, &names, can, |n| {
            // What went wrong is told to those who read.
            let wait = || {
                self.submit();
                count(&self.counters.waits, 1);
                read::poll(&self.device).ok()
            };
            let mut time = || {
                wait()?;
                let started = Instant::now();
                let is_done = run(n);
                wait()?;
                is_done.then(|| started.elapsed())
            };
            // In the first run the driver may compile it yet.
            time()?;
            time()?.min(time()?).into()
        })
    }

    /// What went wrong on the device, if anything did.
    pub fn check(&self) -> Result<(), ExecutionError> {
        let mut failure = lock(&self.failure);
        let first = failure.first.take();
        let reason = match &failure.lost {
            Some(why) => Some(format!(
                "the device was lost ({why}), and with it all its tensors: `kiln_wgpu::init` opens it anew"
            )),
            None => first,
        };
        reason.map_or(Ok(()), |reason| Err(ExecutionError { device: self.name.clone(), reason }))
    }

    /// Whether nothing can be computed any more.
    pub fn is_lost(&self) -> bool {
        lock(&self.failure).lost.is_some()
    }

    /// Tells the next who reads or waits that something went wrong.
    fn fail(&self, reason: impl FnOnce() -> String) {
        lock(&self.failure).first.get_or_insert_with(reason);
    }

    /// Notes that what computes some buffers does not run, which is told by whatever waits next, and by each that reads one of them.
    fn lose(&self, state: &mut State, buffers: impl Iterator<Item = u64>, reason: &Arc<str>) {
        self.fail(|| reason.to_string());
        state.lost.extend(buffers.map(|buffer| (buffer, reason.clone())));
    }

    /// What `make` makes, and why it is of no use, if it is. A browser makes it later, and tells what is wrong as it does any error.
    fn made<T>(&self, make: impl FnOnce() -> T) -> (T, Option<String>) {
        #[cfg(target_arch = "wasm32")]
        return (make(), None);
        #[cfg(not(target_arch = "wasm32"))]
        {
            use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
            let mut scopes =
                [Internal, OutOfMemory, Validation].map(|filter| Some(self.device.push_error_scope(filter)));
            let made = make();
            // Each is closed, the last that was opened first.
            let errors = scopes.iter_mut().rev().filter_map(Option::take).map(|scope| block_on(scope.pop()));
            let error = errors.fold(None, Option::or);
            (made, error.map(|error| error.to_string()))
        }
    }

    pub fn seed(&self, seed: u64) {
        *lock(&self.draws) = Draws::new(seed);
    }

    /// The next random key.
    pub fn random_key(&self) -> u64 {
        lock(&self.draws).next_key()
    }
}

#[cfg(test)]
impl Context {
    /// The device as if its workgroups shared so many bytes, and times kernels that do the same.
    pub fn sharing(mut self, bytes: u32) -> Self {
        self.limits = Limits { shared_memory: true, shared_bytes: bytes, ..self.limits };
        self.tuning = Tuning::of_process();
        self
    }
}
