//! An open device: its pool, what was compiled for it, the kernel that waits for more to do.

use crate::batch::{self, Batch};
use crate::cache::Cache;
use crate::driver::{self, Address, Captured, Driver, DriverError, Function, KernelLaunch, Pending, Product};
use crate::graph::CaptureError;
use crate::kernel::{CudaKernel, KernelError};
use crate::memory::{Buffer, Memory};
use crate::runtime::CudaRuntime;
use crate::statistics::{Counters, count};
use kiln_gpu::kernels::Template;
use kiln_gpu::language::{self, Binding, Factors, cuda};
use kiln_gpu::memory::{Owner, Pool, size_class};
use kiln_gpu::runtime::{self, Amendment, Instead, Launch, Limits, MatrixProduct};
use kiln_tensor::DType;
use kiln_tensor::backend::ExecutionError;
use kiln_tensor::compose::Draws;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// What every device of CUDA can do ("Compute Capabilities" of the programming guide).
pub(crate) const LIMITS: Limits = Limits {
    // Positions are 32 bits wide.
    binding_bytes: 4 * (u32::MAX as usize),
    binding_alignment: 256,
    // Of the 4,096 bytes of arguments that all versions take, each has a pointer, a length and what describes its layout.
    bindings: 32,
    groups: 65_535,
    shared_memory: true,
    subgroups: false,
    tunes: false,
};

/// Launches after which memory that nobody needs is looked for.
const ROUND: u64 = 256;

/// An open device.
pub(crate) struct Context {
    driver: Arc<dyn Driver>,
    pub name: String,
    architecture: String,
    compiler: String,
    cache: Option<Cache>,
    pub counters: Counters,
    /// Whether f32 products may be those of TF32.
    pub tf32: AtomicBool,
    state: Mutex<State>,
    /// Told when what was written down by one thread is complete.
    captured: Condvar,
    draws: Mutex<Draws>,
    failure: Mutex<Option<String>>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.name)
    }
}

#[derive(Default)]
struct State {
    pool: Pool<Buffer>,
    next_buffer: u64,
    /// Nothing for those that do not compile.
    kernels: HashMap<Template, Option<Arc<Kernel>>>,
    /// Likewise, those that do several launches at once.
    batch_kernels: HashMap<Template, Option<Arc<Kernel>>>,
    /// Users' own.
    own_kernels: HashMap<CudaKernel, Result<Function, KernelError>>,
    /// The last kernel that was asked for: it may be given more to do before it is launched.
    last: Option<Last>,
    /// Launches that do not depend on each other. Either these wait or the last does.
    batch: Batch<Member>,
    launches: u64,
    capture: Option<Capture>,
    /// Buffers that graphs use, with what is kept for these.
    reserved: HashMap<u64, Arc<Mutex<Reserve>>>,
}

/// Buffers that nobody uses but a graph.
#[derive(Default)]
struct Reserve {
    held: Vec<Buffer>,
}

/// What is known while launches are written down.
struct Capture {
    thread: ThreadId,
    /// Buffers whose contents nothing of before is kept in, and that were free again.
    free: Pool<Buffer>,
    /// All that were such.
    scratch: HashSet<u64>,
    reserve: Arc<Mutex<Reserve>>,
    refused: Option<CaptureError>,
}

struct Kernel {
    function: Function,
    threads: [u32; 2],
    bindings: Vec<Binding>,
    /// Launches that it does at once.
    capacity: usize,
}

/// What a kernel sees of a buffer.
#[derive(Clone, Copy)]
struct Part {
    address: Option<Address>,
    bytes: usize,
    id: u64,
}

struct Last {
    template: Template,
    parts: Vec<Part>,
    parameters: Vec<u32>,
    blocks: [u32; 3],
    /// The buffer of which it writes all elements, one after another, and how many these are.
    writes: Option<(u64, usize)>,
}

/// One of several launches that are done at once.
struct Member {
    parts: Vec<Part>,
    parameters: Vec<u32>,
    blocks: u32,
}

/// Which kernel is made of a template.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Its own.
    Single,
    /// The one that does several launches at once.
    Batch,
}

/// What was written down, with the memory that it uses.
pub(crate) struct Recorded {
    context: Arc<Context>,
    captured: Captured,
    reserve: Arc<Mutex<Reserve>>,
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorded on {}", self.context.name)
    }
}

/// What is said where something is used that was on the device before it was opened again.
const STALE: &str = "it was made before the device was opened again, which took all of its memory";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self {
            name: driver.name(),
            architecture: driver.architecture(),
            compiler: driver.compiler(),
            cache: driver.cache(),
            driver,
            counters: Counters::default(),
            tf32: AtomicBool::new(false),
            state: Mutex::default(),
            captured: Condvar::new(),
            draws: Mutex::new(Draws::unseeded()),
            failure: Mutex::default(),
        }
    }

    /// The same device anew: its settings and random numbers go on, its memory and its graphs are gone.
    pub fn successor(&self, driver: Arc<dyn Driver>) -> Self {
        let next = Self::new(driver);
        next.tf32.store(self.tf32.load(Ordering::Relaxed), Ordering::Relaxed);
        std::mem::swap(&mut *lock(&next.draws), &mut *lock(&self.draws));
        next
    }

    /// Gives the device up.
    pub fn close(&self) -> Result<(), DriverError> {
        let mut state = self.state();
        state.last = None;
        state.batch = Batch::default();
        self.driver.close()
    }

    /// The state, once no other thread writes down what is asked for.
    fn state(&self) -> MutexGuard<'_, State> {
        let this = thread::current().id();
        let mut state = lock(&self.state);
        while state.capture.as_ref().is_some_and(|capture| capture.thread != this) {
            state = self.captured.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// The first failure is the cause of those that follow.
    fn fail(&self, reason: impl fmt::Display) {
        lock(&self.failure).get_or_insert_with(|| reason.to_string());
    }

    fn error(&self, reason: String) -> ExecutionError {
        ExecutionError { device: self.name.clone(), reason }
    }

    /// What went wrong on the device, if anything did.
    fn check(&self) -> Result<(), ExecutionError> {
        match lock(&self.failure).take() {
            None => Ok(()),
            Some(reason) => Err(self.error(reason)),
        }
    }

    pub fn seed(&self, seed: u64) {
        *lock(&self.draws) = Draws::new(seed);
    }

    /// The next random key.
    pub fn random_key(&self) -> u64 {
        if let Some(capture) = &mut self.state().capture {
            capture.refused.get_or_insert(CaptureError::Random);
        }
        lock(&self.draws).next_key()
    }

    /// Notes a draw of a thread's own random numbers.
    pub fn note_random(&self) {
        if let Some(capture) = &mut self.state().capture {
            capture.refused.get_or_insert(CaptureError::Random);
        }
    }

    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Memory {
        count(&self.counters.requested_bytes, bytes);
        let size = size_class(bytes);
        let mut state = self.state();
        let of_capture = state.capture.as_mut().and_then(|capture| capture.free.take(size));
        let known = of_capture.is_some();
        let buffer = match of_capture.or_else(|| state.pool.take(size)) {
            Some(buffer) => buffer,
            None => {
                let address = self.allocate_anew(&mut state, size);
                state.next_buffer += 1;
                Buffer { address, bytes: size, id: state.next_buffer }
            }
        };
        if let Some(capture) = state.capture.as_mut().filter(|_| !known) {
            capture.free.use_new(size);
            capture.scratch.insert(buffer.id);
        }
        drop(state);
        Memory::new(buffer, bytes, self.clone())
    }

    fn allocate_anew(&self, state: &mut State, size: u64) -> Option<Address> {
        let mut allocated = self.driver.allocate(size);
        if state.capture.is_none() && allocated.as_ref().is_err_and(|error| error.is_out_of_memory) {
            // What the pool keeps may be what is missing; while launches are written down, nothing can be given back.
            self.launch_waiting(state);
            let kept = state.pool.take_unused();
            self.release(kept);
            let _ = self.driver.synchronize();
            allocated = self.driver.allocate(size);
        }
        match allocated {
            Ok(address) => {
                state.pool.use_new(size);
                count(&self.counters.buffers, 1);
                count(&self.counters.buffer_bytes, size as usize);
                Some(address)
            }
            Err(error) => {
                let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
                let held = read(&self.counters.buffer_bytes) - read(&self.counters.released_bytes);
                self.fail(format!("{error}, asking for {size} bytes where tensors hold {held}"));
                None
            }
        }
    }

    /// Gives buffers back to the driver.
    fn release(&self, buffers: Vec<Buffer>) {
        for buffer in buffers {
            count(&self.counters.released_buffers, 1);
            count(&self.counters.released_bytes, buffer.bytes as usize);
            if let Some(Err(error)) = buffer.address.map(|address| self.driver.free(address)) {
                self.fail(error);
            }
        }
    }

    pub fn upload(self: &Arc<Self>, bytes: &[u8]) -> Memory {
        let memory = self.allocate(bytes.len());
        count(&self.counters.uploaded_bytes, bytes.len());
        let mut state = self.state();
        // The kernel that waits may still use the buffer.
        self.launch_waiting(&mut state);
        if let Some((buffer, address)) = memory.buffer().and_then(|buffer| Some((buffer, buffer.address?))) {
            if let Some(capture) = &mut state.capture {
                // It is there once, before all replays.
                capture.scratch.remove(&buffer.id);
            }
            if let Err(error) = self.driver.upload(address, bytes) {
                self.fail(error);
            }
        }
        drop(state);
        memory
    }

    /// A copy of bytes of another device's memory, where the driver copies them from device to device.
    pub fn copy_from(
        self: &Arc<Self>,
        other: &Self,
        (memory, range): &(Memory, Range<usize>),
    ) -> Option<Memory> {
        let from = {
            let mut state = other.state();
            other.launch_waiting(&mut state);
            // A graph holds no copies between devices.
            let part = other.part(memory).filter(|_| state.capture.is_none())?;
            Address(part.address?.0 + range.start as u64)
        };
        let copy = self.allocate(range.len());
        let mut state = self.state();
        // The kernel that waits may still use the buffer.
        self.launch_waiting(&mut state);
        let to = copy.buffer().filter(|_| state.capture.is_none())?.address?;
        match self.driver.copy_from(to, &*other.driver, from, range.len()) {
            Ok(copied) => copied.then(|| copy.clone()),
            Err(error) => {
                log::warn!("a copy from {} to {} goes through the host: {error}", other.name, self.name);
                None
            }
        }
    }

    /// Records a kernel.
    ///
    /// # Panics
    /// When the grid is larger than devices take.
    pub fn record(&self, launch: Launch<'_, CudaRuntime>) {
        let Launch { template, buffers, parameters, groups, moved, writes_all_of } = launch;
        count(&self.counters.moved_bytes, moved);
        assert!(
            groups.iter().all(|&groups| groups <= LIMITS.groups),
            "a grid of {groups:?} blocks, of which {} takes {} along each axis",
            self.name,
            LIMITS.groups
        );
        let mut state = self.state();
        let parts: Vec<Part> = buffers.iter().filter_map(|memory| self.part(memory)).collect();
        if let Some(reads) = batch::reads_of(&template) {
            let ids: Vec<u64> = parts.iter().map(|part| part.id).collect();
            let (read, written) = ids.split_at(reads.min(ids.len()));
            if state.last.is_some() || !state.batch.takes(read, written) {
                self.launch_waiting(&mut state);
            }
            state.reserve(&parts);
            let launch = Member { parts, parameters: parameters.to_vec(), blocks: groups[0] * groups[1] };
            state.batch.push(&template, launch, read, written);
            return;
        }
        self.launch_waiting(&mut state);
        count(&self.counters.launches, 1);
        state.reserve(&parts);
        let writes =
            writes_all_of.and_then(|(output, elements)| parts.get(output).map(|part| (part.id, elements)));
        let parameters = parameters.to_vec();
        state.last = Some(Last { template, parts, parameters, blocks: groups, writes });
        if writes.is_none() {
            // Nothing is ever added to it: the device may begin.
            self.launch_waiting(&mut state);
        }
    }

    /// Runs a user's kernel.
    pub fn record_own(
        &self,
        kernel: &CudaKernel,
        memories: &[Memory],
        words: &[u32],
        (blocks, threads): ([u32; 3], [u32; 2]),
    ) -> Result<(), KernelError> {
        let mut state = self.state();
        let function = match state.own_kernels.get(kernel) {
            Some(known) => known.clone(),
            None => {
                let compile = |error: DriverError| KernelError::Compile {
                    kernel: kernel.entry_point().to_owned(),
                    reason: error.to_string(),
                };
                let function = self.load(kernel.text(), kernel.entry_point()).map_err(compile);
                state.own_kernels.insert(kernel.clone(), function.clone());
                function
            }
        }?;
        self.launch_waiting(&mut state);
        count(&self.counters.launches, 1);
        count(&self.counters.moved_bytes, memories.iter().map(|memory| memory.range().len()).sum());
        let parts: Vec<Part> = memories.iter().filter_map(|memory| self.part(memory)).collect();
        state.reserve(&parts);
        // Where memory is missing, that was told.
        if let Some(buffers) = addresses(&parts) {
            let buffers = &buffers;
            let launch = KernelLaunch { function, blocks, threads, buffers, words, is_table: false };
            self.launch_now(&mut state, &launch);
        }
        Ok(())
    }

    /// See [`Runtime::amend`](kiln_gpu::runtime::Runtime::amend).
    pub fn amend<'a>(
        &self,
        memory: &Memory,
        elements: usize,
        with: impl FnOnce(runtime::Last<'_, CudaRuntime>) -> Option<Amendment<'a, CudaRuntime>>,
    ) -> bool {
        let mut state = self.state();
        let written = memory.buffer().filter(|_| memory.is_of(self)).map(|buffer| (buffer.id, elements));
        let Some(last) = &mut state.last else { return false };
        if memory.range().start != 0 || written.is_none() || last.writes != written {
            return false;
        }
        let uses = |memory: &Memory| {
            memory.buffer().is_some_and(|buffer| last.parts.iter().any(|part| part.id == buffer.id))
        };
        let known = runtime::Last { template: &mut last.template, buffers: last.parts.len(), uses: &uses };
        let Some(Amendment { buffers, parameters, moved, instead }) = with(known) else { return false };
        // Fewer are more that wrap.
        count(&self.counters.moved_bytes, moved as usize);
        let further: Vec<Part> = buffers.into_iter().filter_map(|memory| self.part(memory)).collect();
        last.parts.extend(&further);
        last.parameters.extend(parameters);
        if let Some(Instead { without, groups, writes_all_of }) = instead {
            last.parts.remove(without);
            last.blocks = groups;
            last.writes = writes_all_of
                .and_then(|(output, elements)| further.get(output).map(|part| (part.id, elements)));
        }
        let waits = last.writes.is_some();
        state.reserve(&further);
        if !waits {
            self.launch_waiting(&mut state);
        }
        true
    }

    /// See [`Runtime::factors`](kiln_gpu::runtime::Runtime::factors).
    pub fn factors(&self, dtype: DType) -> Option<Factors> {
        let factors = match dtype {
            DType::F16 => Factors::F16,
            DType::BF16 => Factors::BF16,
            DType::F32 if self.tf32.load(Ordering::Relaxed) => Factors::TF32,
            DType::I8 => Factors::I8,
            DType::U8 => Factors::U8,
            DType::F64
            | DType::F32
            | DType::I64
            | DType::I32
            | DType::I16
            | DType::I4
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U4
            | DType::Bool => return None,
        };
        self.driver.multiplies(factors).then_some(factors)
    }

    /// See [`Runtime::product`](kiln_gpu::runtime::Runtime::product).
    pub fn product(&self, product: &MatrixProduct<'_, CudaRuntime>) -> bool {
        let MatrixProduct { dtype, size, count: matrix_count, ref lhs, ref rhs, bias, out } = *product;
        let bytes = dtype.size();
        let at = |memory: &Memory, start: usize| {
            let mut part = self.part(memory)?;
            part.address = part.address.map(|address| Address(address.0 + (start * bytes) as u64));
            Some(part)
        };
        let parts = [at(lhs.memory, lhs.start), at(rhs.memory, rhs.start), at(out, 0)];
        let [Some(left), Some(right), Some(result)] = parts else { return false };
        let shift = bias.and_then(|(memory, start)| at(memory, start));
        let ([Some(left_start), Some(right_start), Some(out_start)], false) = (
            [left, right, result].map(|part| part.address),
            shift.is_some_and(|shift| shift.address.is_none()),
        ) else {
            return false;
        };
        let matrices = |start: Address, of: &runtime::Matrices<'_, CudaRuntime>| driver::Matrices {
            start,
            next: of.next,
            transposed: of.transposed,
            leading: of.leading,
        };
        let mut state = self.state();
        self.launch_waiting(&mut state);
        let asked = self.driver.product(&Product {
            dtype,
            tf32: self.tf32.load(Ordering::Relaxed),
            size,
            count: matrix_count,
            lhs: matrices(left_start, lhs),
            rhs: matrices(right_start, rhs),
            bias: shift.and_then(|shift| shift.address),
            out: out_start,
        });
        match asked {
            Ok(false) => return false,
            Ok(true) => {}
            Err(error) => self.fail(error),
        }
        let all: Vec<Part> = [left, right, result].into_iter().chain(shift).collect();
        state.reserve(&all);
        count(&self.counters.launches, 1);
        count(&self.counters.moved_bytes, all.iter().map(|part| part.bytes).sum());
        true
    }

    /// What a kernel sees of memory: nothing of memory that went as the device was opened again.
    fn part(&self, memory: &Memory) -> Option<Part> {
        let (buffer, range) = (memory.buffer()?, memory.range());
        if !memory.is_of(self) {
            self.fail(format!("a tensor cannot be used: {STALE}"));
            return Some(Part { address: None, bytes: range.len(), id: 0 });
        }
        let address = buffer.address.map(|address| Address(address.0 + range.start as u64));
        Some(Part { address, bytes: range.len(), id: buffer.id })
    }

    /// Launches all that waits.
    fn launch_waiting(&self, state: &mut State) {
        let Batch { groups, held, .. } = std::mem::take(&mut state.batch);
        for (template, members) in groups {
            self.launch_group(state, &template, members);
        }
        held.into_iter().for_each(|buffer| state.give_back(buffer));
        if let Some(Last { template, parts, parameters, blocks, .. }) = state.last.take() {
            self.launch_one(state, &template, &parts, &parameters, blocks);
        }
    }

    /// Launches of one kernel that do not depend on each other.
    fn launch_group(&self, state: &mut State, template: &Template, members: Vec<Member>) {
        let kernel = if members.len() > 1 { self.kernel(state, template, Form::Batch) } else { None };
        let capacity = kernel.as_ref().map_or(1, |kernel| kernel.capacity);
        for members in members.chunks(capacity) {
            count(&self.counters.launches, 1);
            match (members, &kernel) {
                ([Member { parts, parameters, blocks }], _) => {
                    self.launch_one(state, template, parts, parameters, [*blocks, 1, 1]);
                }
                (_, Some(kernel)) => {
                    // Where memory is missing, that was told.
                    let arguments = |member: &Member| {
                        let addresses = addresses(&member.parts)?.iter().map(|address| address.0).collect();
                        Some((member.blocks, addresses, words(kernel, &member.parts, &member.parameters)))
                    };
                    let table: Vec<_> = members.iter().filter_map(arguments).collect();
                    let blocks = [table.iter().map(|(blocks, ..)| blocks).sum(), 1, 1];
                    let words = cuda::batch::table(&table);
                    self.launch(state, kernel, blocks, &[], &words);
                }
                (_, None) => {}
            }
        }
    }

    fn launch_one(
        &self,
        state: &mut State,
        template: &Template,
        parts: &[Part],
        parameters: &[u32],
        blocks: [u32; 3],
    ) {
        // Where memory or a kernel is missing, that was told.
        if let (Some(kernel), Some(addresses)) =
            (self.kernel(state, template, Form::Single), addresses(parts))
        {
            let words = words(&kernel, parts, parameters);
            self.launch(state, &kernel, blocks, &addresses, &words);
        }
    }

    fn launch(
        &self,
        state: &mut State,
        kernel: &Kernel,
        blocks: [u32; 3],
        buffers: &[Address],
        words: &[u32],
    ) {
        let (function, threads, is_table) = (kernel.function, kernel.threads, kernel.capacity > 1);
        self.launch_now(state, &KernelLaunch { function, blocks, threads, buffers, words, is_table });
    }

    fn launch_now(&self, state: &mut State, launch: &KernelLaunch<'_>) {
        if let Err(error) = self.driver.launch(launch) {
            self.fail(error);
        }
        state.launches += 1;
        if state.launches.is_multiple_of(ROUND) && state.capture.is_none() {
            let unused = state.pool.release_unused();
            self.release(unused);
        }
    }

    /// A kernel, compiled when it is first needed.
    fn kernel(&self, state: &mut State, template: &Template, form: Form) -> Option<Arc<Kernel>> {
        let kernels = match form {
            Form::Single => &mut state.kernels,
            Form::Batch => &mut state.batch_kernels,
        };
        if let Some(kernel) = kernels.get(template) {
            return kernel.clone();
        }
        let made = self.make(&template.kernel(), form);
        kernels.insert(template.clone(), made.clone());
        made
    }

    fn make(&self, kernel: &language::Kernel, form: Form) -> Option<Arc<Kernel>> {
        let (source, entry_point, capacity) = match form {
            Form::Single => (cuda::source(kernel), cuda::entry_point(kernel), 1),
            Form::Batch => (
                cuda::batch::source(kernel),
                cuda::batch::entry_point(kernel),
                cuda::batch::capacity(kernel)?,
            ),
        };
        let source = [cuda::PRELUDE, &source].concat();
        log::trace!("{source}");
        match self.load(&source, &entry_point) {
            Ok(function) => {
                let (threads, bindings) = (kernel.workgroup, kernel.bindings.clone());
                Some(Arc::new(Kernel { function, threads, bindings, capacity }))
            }
            Err(error) => {
                self.fail(format!("kernel `{}`: {error}", kernel.name));
                None
            }
        }
    }

    fn load(&self, source: &str, entry_point: &str) -> Result<Function, DriverError> {
        let kept =
            self.cache.as_ref().and_then(|cache| cache.find(&self.compiler, &self.architecture, source));
        if let Some(function) = kept.and_then(|code| self.driver.load(&code, entry_point).ok()) {
            count(&self.counters.loaded, 1);
            return Ok(function);
        }
        let code = self.driver.compile(source)?;
        count(&self.counters.compiled, 1);
        if let Some(cache) = &self.cache
            && let Err(error) = cache.keep(&self.compiler, &self.architecture, source, &code)
        {
            log::warn!("a compiled kernel could not be kept for the next start ({cache:?}): {error}");
        }
        self.driver.load(&code, entry_point)
    }

    /// Begins to read ranges of bytes.
    pub fn read(&self, parts: &[(Memory, Range<usize>)]) -> Result<Box<dyn Pending>, ExecutionError> {
        let mut state = self.state();
        if let Some(capture) = &mut state.capture {
            capture.refused.get_or_insert(CaptureError::Read);
            return Err(self.error(CaptureError::Read.to_string()));
        }
        self.launch_waiting(&mut state);
        count(&self.counters.waits, 1);
        let address = |(memory, range): &(Memory, Range<usize>)| {
            let start = self.part(memory)?.address?.0 + range.start as u64;
            Some((Address(start), range.len()))
        };
        let Some(addresses) = parts.iter().map(address).collect::<Option<Vec<_>>>() else {
            self.check()?;
            return Err(self.error(String::from("a tensor for which there was no memory cannot be read")));
        };
        self.driver.download(&addresses).map_err(|error| self.failure_behind(&error))
    }

    /// What was read.
    pub fn finish(
        &self,
        pending: Result<Box<dyn Pending>, ExecutionError>,
    ) -> Result<Vec<Vec<u8>>, ExecutionError> {
        let read = pending?.wait();
        // What failed before explains why it cannot be read.
        self.check()?;
        read.map_err(|error| self.error(error.to_string()))
    }

    fn failure_behind(&self, error: &DriverError) -> ExecutionError {
        match self.check() {
            Err(earlier) => earlier,
            Ok(()) => self.error(error.to_string()),
        }
    }

    /// Waits until everything has run.
    pub fn sync(&self) -> Result<(), ExecutionError> {
        let mut state = self.state();
        if let Some(capture) = &mut state.capture {
            capture.refused.get_or_insert(CaptureError::Read);
            return Err(self.error(CaptureError::Read.to_string()));
        }
        self.launch_waiting(&mut state);
        drop(state);
        count(&self.counters.waits, 1);
        let waited = self.driver.synchronize();
        self.check()?;
        waited.map_err(|error| self.error(error.to_string()))
    }

    /// Writes down what `run` asks for instead of doing it.
    pub fn capture<T>(self: &Arc<Self>, run: impl FnOnce() -> T) -> Result<(T, Recorded), CaptureError> {
        let failed = |error: DriverError| CaptureError::Device { reason: error.to_string() };
        let reserve = Arc::new(Mutex::new(Reserve::default()));
        let mut state = self.state();
        if state.capture.is_some() {
            return Err(CaptureError::Nested);
        }
        self.launch_waiting(&mut state);
        self.driver.begin_capture().map_err(failed)?;
        state.capture = Some(Capture {
            thread: thread::current().id(),
            free: Pool::default(),
            scratch: HashSet::new(),
            reserve: reserve.clone(),
            refused: None,
        });
        drop(state);
        // A panic on the way leaves nothing that other threads wait for.
        let ends = EndCapture { context: self, done: false };
        let result = run();
        let (captured, refused) = ends.end();
        let recorded = Recorded { context: self.clone(), captured: captured.map_err(failed)?, reserve };
        if let Some(refused) = refused {
            return Err(refused);
        }
        self.check().map_err(|error| CaptureError::Device { reason: error.reason })?;
        Ok((result, recorded))
    }

    /// Stops writing down.
    fn end_capture(&self) -> (Result<Captured, DriverError>, Option<CaptureError>) {
        let mut state = self.state();
        self.launch_waiting(&mut state);
        let captured = self.driver.end_capture();
        let capture = state.capture.take();
        let mut refused = None;
        if let Some(Capture { mut free, reserve, refused: first, .. }) = capture {
            lock(&reserve).held.extend(free.take_unused());
            refused = first;
        }
        drop(state);
        self.captured.notify_all();
        (captured, refused)
    }

    /// Whether something was written down here, and the device not opened again since.
    pub fn holds(&self, recorded: &Recorded) -> bool {
        std::ptr::eq(self, &raw const *recorded.context)
    }

    /// Refuses what does not [hold](Self::holds).
    pub fn check_graph(&self, recorded: &Recorded) -> Result<(), ExecutionError> {
        match self.holds(recorded) {
            true => Ok(()),
            false => Err(self.error(format!("a graph cannot be used: {STALE}"))),
        }
    }

    /// Runs what was written down here.
    pub fn replay(&self, recorded: &Recorded) -> Result<(), ExecutionError> {
        let mut state = self.state();
        self.launch_waiting(&mut state);
        count(&self.counters.replays, 1);
        self.driver.replay(recorded.captured).map_err(|error| self.failure_behind(&error))
    }
}

/// Where the parts are; nothing where memory is missing.
fn addresses(parts: &[Part]) -> Option<Vec<Address>> {
    parts.iter().map(|part| part.address).collect()
}

/// What a kernel is told beside the addresses.
fn words(kernel: &Kernel, parts: &[Part], parameters: &[u32]) -> Vec<u32> {
    let lasts = kernel.bindings.iter().zip(parts);
    let lasts = lasts.map(|(binding, part)| cuda::last_element(binding, part.bytes));
    lasts.chain(parameters.iter().copied()).collect()
}

/// Ends what is written down, whatever happens.
struct EndCapture<'a> {
    context: &'a Context,
    done: bool,
}

impl EndCapture<'_> {
    fn end(mut self) -> (Result<Captured, DriverError>, Option<CaptureError>) {
        self.done = true;
        self.context.end_capture()
    }
}

impl Drop for EndCapture<'_> {
    fn drop(&mut self) {
        if !self.done
            && let (Ok(captured), _) = self.context.end_capture()
        {
            self.context.driver.forget(captured);
        }
    }
}

impl State {
    /// Takes a buffer back that nobody uses any more.
    fn give_back(&mut self, buffer: Buffer) {
        match (&mut self.capture, buffer.id) {
            (Some(capture), id) if capture.scratch.contains(&id) => capture.free.put(buffer),
            (_, id) => match self.reserved.get(&id) {
                Some(reserve) => lock(reserve).held.push(buffer),
                None => self.pool.put(buffer),
            },
        }
    }

    /// Keeps buffers for the graph that is written down.
    fn reserve(&mut self, parts: &[Part]) {
        if let Some(capture) = &self.capture {
            self.reserved.extend(parts.iter().map(|part| (part.id, capture.reserve.clone())));
        }
    }
}

impl Owner<Buffer> for Context {
    fn give_back(&self, buffer: Buffer) {
        // Not by `state`: whoever drops the last tensor must not wait for another thread's graph.
        let mut state = lock(&self.state);
        if let Some(buffer) = state.batch.hold(buffer) {
            state.give_back(buffer);
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.context.driver.forget(self.captured);
        let mut state = lock(&self.context.state);
        let reserve = &self.reserve;
        state.reserved.retain(|_, of| !Arc::ptr_eq(of, reserve));
        for buffer in std::mem::take(&mut lock(reserve).held) {
            state.pool.put(buffer);
        }
    }
}
