//! An open device: its pool, what was compiled for it, the kernel that waits for more to do.

mod capture;
mod compile;
mod deadlock;
mod launch;
mod lent;
mod memory;
mod product;
mod sums;
mod tune;

use crate::batch::{Batch, SHORT, Seen};
use crate::cache::Cache;
use crate::driver::{Address, Driver, DriverError, Function};
use crate::kernel::{CudaKernel, KernelError};
use crate::memory::{Buffer, Memory};
use crate::statistics::Counters;
use capture::{Capture, GivenUp, SharedReserve};
use compile::Kernel;
use kiln_gpu::kernels::Template;
use kiln_gpu::memory::{Owner, Pool};
use kiln_gpu::runtime::{Limits, Subgroups};
use kiln_gpu::tuning::Tuning;
use kiln_tensor::backend::ExecutionError;
use kiln_tensor::compose::Draws;
use lent::Lent;
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

pub(crate) use capture::Recorded;
pub(crate) use deadlock::is_capturing;
pub(crate) use launch::Waiting;

/// What every device of CUDA can do ("Compute Capabilities" of the programming guide); each says how many multiprocessors it has.
pub(crate) const LIMITS: Limits = Limits {
    // Positions are 32 bits wide.
    binding_bytes: 4 * (u32::MAX as usize),
    binding_alignment: 256,
    // Of the 4,096 bytes of arguments that all versions take, each has a pointer, a length and what describes its layout.
    bindings: 32,
    groups: 65_535,
    shared_memory: true,
    // Of arrays whose size kernels say themselves.
    shared_bytes: 48 * 1024,
    subgroups: Subgroups::Warps,
    tunes: false,
    libraries: true,
    counters: COUNTERS,
    multiprocessors: None,
};

/// So many workgroups side by side join what they and those behind them found.
const COUNTERS: u32 = 1 << 12;

/// An open device.
pub(crate) struct Context {
    driver: Arc<dyn Driver>,
    pub name: String,
    architecture: String,
    compiler: String,
    limits: Limits,
    pub tuning: Tuning,
    cache: Option<Cache>,
    pub counters: Counters,
    /// Whether f32 products may be those of TF32.
    pub tf32: AtomicBool,
    /// Whether libraries may compute ReLU, by which NaN may become 0.
    pub library_relu: AtomicBool,
    state: Mutex<State>,
    /// Told when what was written down by one thread is complete.
    captured: Condvar,
    draws: Mutex<Draws>,
    failures: Mutex<Failures>,
    /// How often buffers were [exchanged](Buffer::exchange).
    exchanges: AtomicU64,
    /// How often there was no memory, not even without what the pool kept.
    lacks: AtomicU64,
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
    /// With what is wrong with those that do not compile.
    kernels: FxHashMap<Template, Result<Arc<Kernel>, Arc<str>>>,
    /// Those that do several launches at once; nothing for those that do not compile.
    batch_kernels: FxHashMap<Template, Option<Arc<Kernel>>>,
    /// Users' own.
    own_kernels: FxHashMap<CudaKernel, Result<Function, KernelError>>,
    /// The last kernel that was asked for: it may be given more to do before it is launched.
    last: Option<Box<Waiting>>,
    /// Launches that wait for others of their kind; the last was asked for after them.
    batch: Batch,
    /// What was launched a moment ago.
    seen: Seen,
    launches: u64,
    /// The device's [counters](Limits::counters), once a kernel counted.
    counters: Option<Part>,
    capture: Option<Capture>,
    /// Captures whose threads do not know yet that they were given up.
    given_up: Vec<GivenUp>,
    /// How many there were.
    captures: u64,
    /// Whether memory that nobody needs is to be looked for.
    is_round_over: bool,
    /// Buffers whose contents are not what was asked for, and why: until they are another tensor's.
    lost: FxHashMap<u64, Arc<str>>,
    /// Buffers that graphs use, with what is kept for each of these.
    reserved: FxHashMap<u64, Vec<SharedReserve>>,
    /// What graphs left in their buffers, and others may hold.
    lent: FxHashMap<u64, Lent>,
}

/// What went wrong on the device that belongs to no buffer.
#[derive(Default)]
struct Failures {
    /// What is told to whoever waits next, and forgotten then: the device goes on.
    untold: Option<String>,
    /// The first [fault](DriverError::is_fault), of which everybody is told until the device is opened again: nothing of it can be used any more.
    fault: Option<String>,
}

/// What a kernel sees of a buffer.
#[derive(Clone, Copy)]
struct Part {
    address: Option<Address>,
    bytes: usize,
    id: u64,
}

/// What is said where something is used that was on the device before it was opened again.
const STALE: &str = "a tensor cannot be used: it was made before the device was opened again, which took all of its memory, or on another \
                     device";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        let [name, architecture, compiler] = [driver.name(), driver.architecture(), driver.compiler()];
        let cache = driver.cache();
        let device = [&*name, &architecture, &compiler].join("; ");
        Self {
            tuning: Tuning::new(&device, cache.as_ref().map(Cache::folder)),
            name,
            architecture,
            compiler,
            limits: Limits { multiprocessors: Some(driver.multiprocessors()), ..LIMITS },
            cache,
            driver,
            counters: Counters::default(),
            tf32: AtomicBool::new(false),
            library_relu: AtomicBool::new(false),
            state: Mutex::default(),
            captured: Condvar::new(),
            draws: Mutex::new(Draws::unseeded()),
            failures: Mutex::default(),
            exchanges: AtomicU64::new(0),
            lacks: AtomicU64::new(0),
        }
    }

    /// The same device anew: its settings and random numbers go on, its memory and its graphs are gone.
    pub fn successor(&self, driver: Arc<dyn Driver>) -> Self {
        let next = Self::new(driver);
        next.tf32.store(self.tf32.load(Ordering::Relaxed), Ordering::Relaxed);
        next.library_relu.store(self.library_relu.load(Ordering::Relaxed), Ordering::Relaxed);
        next.tuning.set(self.tuning.is_on());
        std::mem::swap(&mut *lock(&next.draws), &mut *lock(&self.draws));
        next
    }

    /// What the device can do.
    pub fn limits(&self) -> Limits {
        Limits { tunes: self.tuning.is_on(), ..self.limits }
    }

    /// Gives the device up.
    pub fn close(&self) -> Result<(), DriverError> {
        let mut state = self.state();
        state.last = None;
        state.batch = Batch::default();
        self.driver.close()
    }

    /// The state, once no other thread writes down what is asked for. Should that wait for what this thread writes down on another device, this is given up.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        while let Some(Capture { thread: holder, .. }) = state.capture {
            let thread = thread::current().id();
            if holder == thread {
                break;
            }
            state = match deadlock::wait(thread, holder, self) {
                None => self.captured.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(other) => {
                    drop(state);
                    other.give_up_capture();
                    lock(&self.state)
                }
            };
        }
        state
    }

    /// The first failure is the cause of those that follow.
    fn fail(&self, reason: impl fmt::Display) {
        let failures = &mut *lock(&self.failures);
        if failures.fault.is_none() {
            failures.untold.get_or_insert_with(|| reason.to_string());
        }
    }

    /// What the driver says went wrong, as whoever is told of it reads it. Of a fault it is noted that the device had it.
    fn reason(&self, error: &DriverError) -> String {
        let reason = error.to_string();
        if error.is_fault {
            lock(&self.failures).fault.get_or_insert_with(|| reason.clone());
        }
        reason
    }

    pub fn error(&self, reason: String) -> ExecutionError {
        ExecutionError { device: self.name.clone(), reason }
    }

    /// What went wrong on the device, if anything did.
    fn check(&self) -> Result<(), ExecutionError> {
        let failures = &mut *lock(&self.failures);
        match failures.untold.take().or_else(|| failures.fault.clone()) {
            None => Ok(()),
            Some(reason) => Err(self.error(reason)),
        }
    }

    pub fn seed(&self, seed: u64) {
        *lock(&self.draws) = Draws::new(seed);
    }

    /// The next random key.
    pub fn random_key(&self) -> u64 {
        lock(&self.draws).next_key()
    }

    /// What a kernel sees of memory: nothing of memory of another device, or that went as this one was opened again.
    fn part(&self, memory: &Memory) -> Option<Part> {
        let (buffer, range) = (memory.buffer()?, memory.range());
        if !memory.is_of(self) {
            self.fail(STALE);
            return Some(Part { address: None, bytes: range.len(), id: 0 });
        }
        let address = buffer.address().map(|address| Address(address.0 + range.start as u64));
        Some(Part { address, bytes: range.len(), id: buffer.id() })
    }

    /// Notes that what computes some buffers does not run, which is told by whatever waits next, and by each that reads one of them.
    fn lose(&self, state: &mut State, buffers: impl Iterator<Item = u64>, reason: &Arc<str>) {
        self.fail(reason);
        state.lost.extend(buffers.map(|buffer| (buffer, reason.clone())));
    }
}

/// Whether the last launch or one of those that wait uses a buffer.
fn is_awaited(last: Option<&Waiting>, batch: &Batch, id: u64) -> bool {
    last.is_some_and(|last| last.uses(id)) || batch.uses(id)
}

impl State {
    /// Takes a buffer back that nobody uses any more.
    fn give_back(&mut self, buffer: Buffer) {
        if buffer.address().is_none() {
            // Whoever waits to read it finds no memory, and nobody gets it next.
            self.lost.remove(&buffer.id());
            return;
        }
        // What is lost of it stays known: a launch that waits may read it.
        match (&mut self.capture, buffer.id()) {
            (Some(capture), id) if capture.scratch.contains(&id) => capture.free.put(buffer),
            (_, id) => match self.reserved.get(&id).and_then(|of| of.last()) {
                Some(reserve) => drop(lock(reserve).held.insert(id, buffer)),
                None => self.pool.put(buffer),
            },
        }
    }

    /// Keeps a buffer of which nobody but a launch that waits is still a user, or yields it. One of the last is kept where that may be about to wait with
    /// others; a short one anyway: what is asked to wait could not be launched before the last if it was written there.
    fn hold(&mut self, buffer: Buffer) -> Option<Buffer> {
        if self.batch.uses(buffer.id()) {
            self.batch.hold(buffer);
            return None;
        }
        match &mut self.last {
            Some(last) if (buffer.bytes() <= SHORT || self.seen.waits()) && last.uses(buffer.id()) => {
                last.hold(buffer);
                None
            }
            _ => Some(buffer),
        }
    }

    /// Why something cannot run that uses these: there is no memory for one of them, or what computes it did not run.
    fn missing(&self, parts: &[Part]) -> Option<Arc<str>> {
        if self.lost.is_empty() && parts.iter().all(|part| part.address.is_some()) {
            return None;
        }
        parts.iter().find_map(|part| match (self.lost.get(&part.id), part) {
            (Some(reason), _) => Some(reason.clone()),
            (None, Part { address: Some(_), .. }) => None,
            (None, Part { id: 0, .. }) => Some(STALE.into()),
            // It was given back since.
            (None, _) => Some("there was no memory for a tensor when it was made".into()),
        })
    }

    /// Whether a launch that waits uses a buffer.
    fn is_awaited(&self, id: u64) -> bool {
        is_awaited(self.last.as_deref(), &self.batch, id)
    }

    /// Whether a launch that waits is to write to a buffer.
    fn is_to_be_written(&self, id: u64) -> bool {
        let by_last = |last: &Waiting| {
            // Its result is known; what else it writes says its kernel, which is not asked for without need.
            last.writes_all_of(id) || (last.uses(id) && last.writes(id, self.kernels.get(last.template())))
        };
        self.last.as_deref().is_some_and(by_last) || self.batch.writes(id)
    }

    /// Keeps buffers for the graph that is written down.
    fn reserve(&mut self, buffers: impl Iterator<Item = u64>) {
        let Some(Capture { reserve, .. }) = &self.capture else { return };
        for id in buffers {
            let of = self.reserved.entry(id).or_default();
            if of.last().is_none_or(|last| !Arc::ptr_eq(last, reserve)) {
                of.push(reserve.clone());
            }
        }
    }
}

impl Owner<Buffer> for Context {
    fn graph(&self) -> Option<u64> {
        let state = lock(&self.state);
        let capture = state.capture.as_ref().filter(|capture| capture.thread == thread::current().id());
        capture.map(|capture| capture.number).or_else(|| state.given_up().map(|given_up| given_up.number))
    }

    fn give_back(&self, buffer: Buffer) {
        // Not by `state`: whoever drops the last tensor must not wait for another thread's graph.
        let mut state = lock(&self.state);
        if let Some(buffer) = state.hold(buffer) {
            state.give_back(buffer);
        }
    }
}
