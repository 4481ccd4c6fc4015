//! An open device: its queue of recorded kernels, its pool, what was compiled for it.

use crate::device::InitError;
use crate::kernel::{KernelError, WgslKernel};
use crate::memory::{Buffer, Memory};
use crate::read;
use crate::runtime::WgpuRuntime;
use crate::statistics::{Counters, count};
use crate::tuning::Tuning;
use kiln_gpu::kernels::Template;
use kiln_gpu::language::wgsl::{self, Parameters, Wide};
use kiln_gpu::memory::{Owner, Pool, size_class};
#[cfg(not(target_arch = "wasm32"))]
use kiln_gpu::promise::block_on;
use kiln_gpu::runtime::{self, Amendment, Instead, Launch, Limits};
use kiln_tensor::backend::ExecutionError;
use kiln_tensor::compose::Draws;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The variable that says, by 1 or 0, whether kernels share memory within workgroups. Where it is not set, they do so but on drivers
/// that compute on a CPU.
const SHARED_MEMORY: &str = "KILN_WGPU_SHARED_MEMORY";
/// A variable of the environment: 0 has kernels do without the device's numbers of 64 bits.
const WIDE_NUMBERS: &str = "KILN_WGPU_WIDE_NUMBERS";
/// Numbers of 64 bits.
const WIDE: wgpu::Features = wgpu::Features::SHADER_INT64.union(wgpu::Features::SHADER_F64);
/// The variable that says, by 0, that kernels do without subgroups where the device has them.
const SUBGROUPS: &str = "KILN_WGPU_SUBGROUPS";
/// Bytes of the parameters that one kernel sees.
pub(crate) const PARAMETER_BYTES: u64 = 4096;
/// Bytes of the parameters of one submission.
const PARAMETERS_BYTES: u64 = 256 * 1024;
/// Kernels after which a submission does not wait for more: the device shall have work while the next are recorded.
const MOST_PENDING: usize = 256;
/// Bind groups that are kept: those of many forward passes of large networks.
const MOST_BIND_GROUPS: usize = 16_384;

/// An open device.
pub(crate) struct Context {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    /// The adapter's name.
    pub name: String,
    limits: Limits,
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
    own_pipelines: FxHashMap<(WgslKernel, Vec<bool>), Arc<Pipeline>>,
    /// By which of the buffers are written to, and the bytes of parameters that are set with a launch.
    layouts: FxHashMap<(Vec<bool>, u32), Arc<Layout>>,
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
}

/// What a kernel sees of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Part {
    /// The buffer's.
    id: u64,
    start: u64,
    end: u64,
}

/// A kernel that writes a whole tensor. Until the next is recorded it may become another, so that nothing is looked up for it before.
#[derive(Default)]
struct Last {
    /// Which kernel; nothing where there is none.
    template: Option<Template>,
    parts: Vec<Part>,
    parameters: Vec<u32>,
    groups: [u32; 3],
    /// The buffer that it writes, and how many elements of it.
    writes: (u64, usize),
}

struct Layout {
    /// How many layouts were made before it.
    number: usize,
    group: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
    /// Bytes of parameters that are set with a launch; they are in memory where there are none.
    immediate_bytes: u32,
}

struct Pipeline {
    raw: wgpu::ComputePipeline,
    layout: Arc<Layout>,
}

/// A kernel that is recorded, or was.
struct Recorded {
    /// Which kernel; nothing for a user's.
    template: Option<Template>,
    parts: Vec<Part>,
    pipeline: Arc<Pipeline>,
    group: wgpu::BindGroup,
    /// Where its parameters start, among those that are set with launches or those in memory.
    parameters: u32,
    groups: [u32; 3],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// Opens an adapter with all that it offers of what kernels use.
    pub async fn open(adapter: &wgpu::Adapter) -> Result<Self, InitError> {
        let (mut info, limits) = (adapter.get_info(), adapter.limits());
        if info.name.is_empty() {
            // Browsers do not tell their pages.
            info.name = String::from("WebGPU");
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
        let adapter =
            [&info.name, &info.driver, &info.driver_info].map(|text| text.replace(char::is_whitespace, " "));
        Ok(Self {
            device,
            queue,
            tuning: Tuning::new(&adapter.join("; ")),
            name: info.name,
            limits: Limits {
                binding_bytes: usize::try_from(limits.max_storage_buffer_binding_size).unwrap_or(usize::MAX),
                bindings: limits.max_storage_buffers_per_shader_stage as usize,
                binding_alignment: limits.min_storage_buffer_offset_alignment.max(16) as usize,
                groups: limits.max_compute_workgroups_per_dimension,
                shared_memory: match std::env::var(SHARED_MEMORY) {
                    Ok(value) => value == "1",
                    Err(_) => info.device_type != wgpu::DeviceType::Cpu,
                },
                subgroups: features.contains(wgpu::Features::SUBGROUP)
                    && std::env::var(SUBGROUPS).as_deref() != Ok("0"),
                tunes: false,
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
    pub fn fastest(&self, class: &str, names: &[&str], run: &mut dyn FnMut(usize)) -> usize {
        self.tuning.fastest(class, names, |n| {
            // What went wrong is told to those who read.
            let wait = || {
                self.submit();
                count(&self.counters.waits, 1);
                read::poll(&self.device).ok()
            };
            let mut time = || {
                wait()?;
                let started = Instant::now();
                run(n);
                wait()?;
                Some(started.elapsed())
            };
            // The first run compiles it.
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

    /// The buffer that memory is in; where there is none, those who read or wait are told why.
    pub fn buffer<'a>(&self, memory: &'a Memory) -> Option<&'a Buffer> {
        let reason = match memory.buffer() {
            Some(_) if !memory.is_of(self) => {
                "a tensor was lost with its device, which was opened anew since"
            }
            Some(buffer) if buffer.is_usable => return Some(buffer),
            Some(_) | None => "there was no memory for a tensor when it was made",
        };
        self.fail(|| reason.to_owned());
        None
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

    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Memory {
        let class = size_class(bytes);
        count(&self.counters.requested_bytes, bytes);
        let mut state = lock(&self.state);
        let buffer = match state.pool.take(class) {
            Some(buffer) => buffer,
            None => self.new_buffer(&mut state, class),
        };
        drop(state);
        Memory::new(buffer, bytes, self.clone())
    }

    /// A buffer that the pool does not have. Where the device has no memory left, it is made in place of what is of no use now; where
    /// that does not help, the buffer is none, and those who read or wait are told.
    fn new_buffer(&self, state: &mut State, size: u64) -> Buffer {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let create = || self.made(|| self.device.create_buffer(&descriptor));
        let (mut raw, mut error) = create();
        if error.is_some() {
            let unused = state.pool.take_unused();
            // What is recorded may use them yet, and so may the device until it is done.
            self.submit_pending(state);
            self.release(state, unused);
            if read::poll(&self.device).is_ok() {
                (raw, error) = create();
            }
        }
        match &error {
            None => {
                count(&self.counters.buffers, 1);
                count(&self.counters.buffer_bytes, size as usize);
                state.pool.use_new(size);
            }
            Some(error) => self.fail(|| format!("there is no memory of {size} bytes for a tensor: {error}")),
        }
        // Other contexts name their buffers otherwise: a tensor may outlive the device that it was on.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        if error.is_none() {
            state.buffers.insert(id, raw.clone());
        }
        Buffer { raw, id, is_usable: error.is_none() }
    }

    pub fn upload(self: &Arc<Self>, bytes: &[u8]) -> Memory {
        let memory = self.allocate(bytes.len());
        // A write overtakes kernels that are recorded but not submitted, and they may still use the buffer.
        self.submit();
        count(&self.counters.uploaded_bytes, bytes.len());
        if let Some(buffer) = self.buffer(&memory) {
            let whole = bytes.len() / 4 * 4;
            let (whole, rest) = bytes.split_at(whole);
            if !whole.is_empty() {
                self.queue.write_buffer(&buffer.raw, 0, whole);
            }
            if !rest.is_empty() {
                let mut word = [0; 4];
                word[..rest.len()].copy_from_slice(rest);
                self.queue.write_buffer(&buffer.raw, whole.len() as u64, &word);
            }
        }
        memory
    }

    /// Records a kernel.
    ///
    /// # Panics
    /// When a buffer is larger than kernels see, or the grid than the device allows.
    pub fn record(&self, launch: Launch<'_, WgpuRuntime>) {
        let Launch { template, buffers, parameters, groups, moved, writes_all_of } = launch;
        count(&self.counters.moved_bytes, moved);
        let most = self.limits.groups;
        assert!(
            groups.iter().all(|&groups| groups <= most),
            "a grid of {groups:?} workgroups, of which {} allows {most} along each axis",
            self.name
        );
        let state = &mut *lock(&self.state);
        self.record_last(state);
        let last = &mut state.last;
        last.parts.clear();
        if !self.add_parts(false, buffers, &mut last.parts) {
            return;
        }
        count(&self.counters.dispatches, 1);
        last.template = Some(template);
        last.parameters.clear();
        last.parameters.extend_from_slice(parameters);
        last.groups = groups;
        match writes_all_of.and_then(|(output, elements)| Some((last.parts.get(output)?.id, elements))) {
            Some(writes) => last.writes = writes,
            None => self.record_last(state),
        }
    }

    /// See [`Runtime::amend`](kiln_gpu::runtime::Runtime::amend).
    pub fn amend<'a>(
        &self,
        memory: &Memory,
        elements: usize,
        with: impl FnOnce(runtime::Last<'_, WgpuRuntime>) -> Option<Amendment<'a, WgpuRuntime>>,
    ) -> bool {
        let state = &mut *lock(&self.state);
        let written = memory.buffer().map(|buffer| (buffer.id, elements));
        let last = &mut state.last;
        let Some(template) = &mut last.template else { return false };
        if memory.range().start != 0 || Some(last.writes) != written {
            return false;
        }
        let parts = &last.parts;
        let uses = |memory: &Memory| {
            memory.buffer().is_some_and(|buffer| parts.iter().any(|part| part.id == buffer.id))
        };
        let known = runtime::Last { template, buffers: parts.len(), uses: &uses };
        let Some(Amendment { buffers, parameters, moved, instead }) = with(known) else { return false };
        // Fewer are more that wrap.
        count(&self.counters.moved_bytes, moved as usize);
        let before = last.parts.len();
        if !self.add_parts(false, &buffers, &mut last.parts) {
            // It cannot run, which those who read or wait are told.
            last.template = None;
            return true;
        }
        let further = &last.parts[before..];
        let writes = instead.map_or(Some(last.writes), |Instead { writes_all_of, .. }| {
            writes_all_of.and_then(|(output, elements)| Some((further.get(output)?.id, elements)))
        });
        last.parameters.extend(parameters);
        if let Some(Instead { without, groups, .. }) = instead {
            last.parts.remove(without);
            last.groups = groups;
        }
        match writes {
            Some(writes) => last.writes = writes,
            None => self.record_last(state),
        }
        true
    }

    /// Records the kernel that waits for more to do.
    fn record_last(&self, state: &mut State) {
        let Some(template) = state.last.template.take() else { return };
        let known = state.kernels.get(state.pending).filter(|next| {
            next.parts == state.last.parts && next.template.as_ref().is_some_and(|known| *known == template)
        });
        if known.is_none() {
            // A kernel that cannot run would keep all others of its submission from running.
            let Some(pipeline) = self.pipeline(state, &template) else { return };
            let parts = state.last.parts.clone();
            if !self.place(state, Some(template), parts, pipeline) {
                return;
            }
        }
        let groups = state.last.groups;
        // The words go and come back, since all of the state is needed meanwhile.
        let parameters = std::mem::take(&mut state.last.parameters);
        self.record_placed(state, &parameters, groups);
        state.last.parameters = parameters;
    }

    /// Records a user's kernel with buffers, parameters and a grid that are known to be within the limits.
    pub fn record_own(
        &self,
        kernel: &WgslKernel,
        writable: Vec<bool>,
        buffers: &[&Memory],
        parameters: &[u32],
        groups: [u32; 3],
    ) -> Result<(), KernelError> {
        let mut state = lock(&self.state);
        let pipeline = self.own_pipeline(&mut state, kernel, writable)?;
        let mut parts = Vec::with_capacity(buffers.len());
        if !self.add_parts(true, buffers, &mut parts) {
            return Ok(());
        }
        self.record_last(&mut state);
        count(&self.counters.dispatches, 1);
        count(&self.counters.moved_bytes, buffers.iter().map(|memory| memory.range().len()).sum());
        if self.place(&mut state, None, parts, pipeline) {
            self.record_placed(&mut state, parameters, groups);
        }
        Ok(())
    }

    /// Puts a kernel where the next that is recorded is looked for; says whether it can run.
    fn place(
        &self,
        state: &mut State,
        template: Option<Template>,
        parts: Vec<Part>,
        pipeline: Arc<Pipeline>,
    ) -> bool {
        let Some(group) = self.bind_group(state, &pipeline, &parts) else { return false };
        let kernel = Recorded { template, parts, pipeline, group, parameters: 0, groups: [0; 3] };
        match state.kernels.get_mut(state.pending) {
            Some(next) => *next = kernel,
            None => state.kernels.push(kernel),
        }
        true
    }

    /// Records the kernel that is in the next place.
    fn record_placed(&self, state: &mut State, parameters: &[u32], groups: [u32; 3]) {
        let Some(next) = state.kernels.get_mut(state.pending) else { return };
        let (all, step) = match next.pipeline.layout.immediate_bytes as usize {
            0 => (&mut state.parameters, self.parameter_step as usize),
            step => (&mut state.immediates, step),
        };
        (next.parameters, next.groups) = (all.len() as u32, groups);
        all.extend(parameters.iter().flat_map(|word| word.to_ne_bytes()));
        all.resize(all.len().next_multiple_of(step), 0);
        state.pending += 1;
        let full = state.parameters.len() as u64 + PARAMETER_BYTES > PARAMETERS_BYTES;
        if full || state.pending >= MOST_PENDING {
            self.submit_recorded(state);
        }
    }

    /// Submits what is recorded.
    pub fn submit(&self) {
        self.submit_pending(&mut lock(&self.state));
    }

    fn submit_pending(&self, state: &mut State) {
        self.record_last(state);
        self.submit_recorded(state);
    }

    fn submit_recorded(&self, state: &mut State) {
        if state.pending == 0 {
            return;
        }
        if !state.parameters.is_empty() {
            self.queue.write_buffer(&self.parameters, 0, &state.parameters);
        }
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for kernel in &state.kernels[..state.pending] {
            pass.set_pipeline(&kernel.pipeline.raw);
            pass.set_bind_group(0, &kernel.group, &[]);
            let start = kernel.parameters as usize;
            match kernel.pipeline.layout.immediate_bytes as usize {
                0 => pass.set_bind_group(1, &self.parameter_group, &[kernel.parameters]),
                bytes => pass.set_immediates(0, &state.immediates[start..start + bytes]),
            }
            let [x, y, z] = kernel.groups;
            pass.dispatch_workgroups(x, y, z);
        }
        drop(pass);
        self.queue.submit([encoder.finish()]);
        count(&self.counters.submissions, 1);
        state.pending = 0;
        state.parameters.clear();
        state.immediates.clear();
        self.release_unused(state);
    }

    /// Gives buffers back to the system that were of no use for long, and bind groups of such buffers.
    fn release_unused(&self, state: &mut State) {
        let released = state.pool.release_unused();
        self.release(state, released);
        if state.bind_groups.iter().map(FxHashMap::len).sum::<usize>() > MOST_BIND_GROUPS {
            // What is needed again is made again.
            state.retain_bind_groups(&self.counters, |_| false);
        }
    }

    /// Gives buffers back to the system, and their bind groups.
    fn release(&self, state: &mut State, released: Vec<Buffer>) {
        if !released.is_empty() {
            count(&self.counters.released_buffers, released.len());
            count(
                &self.counters.released_bytes,
                released.iter().map(|buffer| buffer.raw.size() as usize).sum(),
            );
            let gone: HashSet<u64> = released.iter().map(|buffer| buffer.id).collect();
            state.buffers.retain(|id, _| !gone.contains(id));
            // A bind group keeps its buffers.
            state.retain_bind_groups(&self.counters, |parts| {
                !parts.iter().any(|part| gone.contains(&part.id))
            });
        }
    }

    /// The compiled kernel; nothing for one that does not compile, of which those who read or wait are told.
    fn pipeline(&self, state: &mut State, template: &Template) -> Option<Arc<Pipeline>> {
        if let Some(pipeline) = state.pipelines.get(template) {
            return Some(pipeline.clone());
        }
        let kernel = template.kernel();
        let writable: Vec<bool> = kernel.bindings.iter().map(|binding| binding.writable).collect();
        let bytes = 16 * kernel.parameters.div_ceil(4);
        let (immediate, parameters) = match bytes <= self.immediate_bytes {
            true => (bytes, Parameters::Immediate),
            false => (0, Parameters::Uniform),
        };
        let layout = self.layout(state, writable, immediate);
        let has_wide = self.numbers.contains(wgpu::Features::SHADER_INT64);
        let source = wgsl::source(&kernel, if has_wide { Wide::Native } else { Wide::Pairs }, parameters);
        log::trace!("{source}");
        let options = wgpu::PipelineCompilationOptions {
            // Shared arrays are written before they are read.
            zero_initialize_workgroup_memory: false,
            ..wgpu::PipelineCompilationOptions::default()
        };
        match self.compile(&kernel.name, source.into(), wgsl::ENTRY_POINT, &layout, options) {
            Ok(raw) => {
                let pipeline = Arc::new(Pipeline { raw, layout });
                state.pipelines.insert(template.clone(), pipeline.clone());
                Some(pipeline)
            }
            Err(error) => {
                self.fail(|| format!("the kernel `{}` does not compile: {error}", kernel.name));
                None
            }
        }
    }

    fn own_pipeline(
        &self,
        state: &mut State,
        kernel: &WgslKernel,
        writable: Vec<bool>,
    ) -> Result<Arc<Pipeline>, KernelError> {
        let key = (kernel.clone(), writable);
        if let Some(pipeline) = state.own_pipelines.get(&key) {
            return Ok(pipeline.clone());
        }
        let layout = self.layout(state, key.1.clone(), 0);
        let constants: Vec<(&str, f64)> = kernel.constants().collect();
        let options = wgpu::PipelineCompilationOptions {
            constants: &constants,
            ..wgpu::PipelineCompilationOptions::default()
        };
        let source = Cow::Owned(kernel.wgsl().to_owned());
        let raw = self
            .compile(kernel.name(), source, kernel.entry_point(), &layout, options)
            .map_err(|reason| KernelError::Compile { kernel: kernel.name().to_owned(), reason })?;
        let pipeline = Arc::new(Pipeline { raw, layout });
        state.own_pipelines.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    fn compile(
        &self,
        name: &str,
        source: Cow<'static, str>,
        entry_point: &str,
        layout: &Layout,
        compilation_options: wgpu::PipelineCompilationOptions<'_>,
    ) -> Result<wgpu::ComputePipeline, String> {
        count(&self.counters.pipelines, 1);
        let (pipeline, error) = self.made(|| {
            let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(name),
                source: wgpu::ShaderSource::Wgsl(source),
            });
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&layout.pipeline),
                module: &module,
                entry_point: Some(entry_point),
                compilation_options,
                cache: None,
            })
        });
        error.map_or(Ok(pipeline), Err)
    }

    fn layout(&self, state: &mut State, writable: Vec<bool>, immediate_bytes: u32) -> Arc<Layout> {
        let key = (writable, immediate_bytes);
        if let Some(layout) = state.layouts.get(&key) {
            return layout.clone();
        }
        let entry = |(n, &writable): (usize, &bool)| wgpu::BindGroupLayoutEntry {
            binding: n as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: !writable },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = key.0.iter().enumerate().map(entry).collect();
        let group = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let groups = [Some(&group), Some(&self.parameter_layout)];
        let pipeline = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: if immediate_bytes == 0 { &groups } else { &groups[..1] },
            immediate_size: immediate_bytes,
        });
        let layout = Arc::new(Layout { number: state.layouts.len(), group, pipeline, immediate_bytes });
        state.bind_groups.push(FxHashMap::default());
        state.layouts.insert(key, layout.clone());
        layout
    }

    /// Adds what a kernel sees of buffers, or `exact`ly of the tensors in them; says whether all of them are to be had.
    ///
    /// # Panics
    /// When it sees less than it needs.
    fn add_parts(&self, exact: bool, memories: &[&Memory], parts: &mut Vec<Part>) -> bool {
        let limit = self.limits.binding_bytes as u64;
        let part = |memory: &Memory, buffer: &Buffer| {
            // What is small enough is bound whole, so that all its parts have one bind group.
            let (start, end) = match buffer.raw.size() {
                size if size <= limit && memory.range().start == 0 && !exact => (0, size),
                _ => (memory.range().start as u64, (memory.range().end.next_multiple_of(4)) as u64),
            };
            assert!(
                end - start <= limit,
                "a tensor of {} bytes in an operation that needs all of it at once, and kernels on {} see {limit} of a buffer",
                end - start,
                self.name
            );
            Part { id: buffer.id, start, end }
        };
        memories.iter().all(|memory| {
            let buffer = self.buffer(memory);
            parts.extend(buffer.map(|buffer| part(memory, buffer)));
            buffer.is_some()
        })
    }

    /// Nothing where one of the buffers is gone, which no tensor has then.
    fn bind_group(&self, state: &mut State, pipeline: &Pipeline, parts: &[Part]) -> Option<wgpu::BindGroup> {
        let known = state.bind_groups.get_mut(pipeline.layout.number)?;
        if let Some(group) = known.get(parts) {
            return Some(group.clone());
        }
        let entry = |(part, binding): (&Part, u32)| {
            let (offset, size) = (part.start, wgpu::BufferSize::new(part.end - part.start));
            let buffer = state.buffers.get(&part.id)?;
            let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size });
            Some(wgpu::BindGroupEntry { binding, resource })
        };
        let entries: Vec<_> = parts.iter().zip(0..).map(entry).collect::<Option<_>>()?;
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.layout.group,
            entries: &entries,
        });
        count(&self.counters.bind_groups, 1);
        known.insert(parts.to_vec(), group.clone());
        Some(group)
    }
}

impl Owner<Buffer> for Context {
    fn give_back(&self, buffer: Buffer) {
        lock(&self.state).pool.put(buffer);
    }
}

impl State {
    fn retain_bind_groups(&mut self, counters: &Counters, keep: impl Fn(&[Part]) -> bool) {
        // Those in the places of kernels are not looked up.
        self.kernels.truncate(self.pending);
        for groups in &mut self.bind_groups {
            let before = groups.len();
            groups.retain(|parts, _| keep(parts));
            count(&counters.released_bind_groups, before - groups.len());
        }
    }
}
