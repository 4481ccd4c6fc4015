//! Launches that are written down for a graph, with the memory that they use.

use super::{Context, State, deadlock, lock};
use crate::driver::{Captured, DriverError};
use crate::graph::CaptureError;
use crate::memory::{Buffer, Memory};
use crate::statistics::count;
use kiln_gpu::memory::Pool;
use kiln_tensor::backend::ExecutionError;
use rustc_hash::FxHashMap;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

/// What is said where a graph is replayed that was captured before the device was opened again.
const STALE_GRAPH: &str =
    "a graph cannot be used: it was made before the device was opened again, which took all of its memory";

/// What is said where something is used that a computation left behind whose capture failed.
pub(super) const NEVER_RUN: &str = "it was to be computed by a computation that could not be captured";

/// What is said where something is used that a computation left behind whose graph did not run yet.
const NOT_RUN: &str = "it is computed by a captured computation, which was not replayed yet";

/// Buffers that nobody uses but a graph.
#[derive(Default)]
pub(super) struct Reserve {
    /// By their numbers.
    pub held: FxHashMap<u64, Buffer>,
}

pub(super) type SharedReserve = Arc<Mutex<Reserve>>;

/// What is known while launches are written down.
pub(super) struct Capture {
    pub thread: ThreadId,
    /// Which one of the device's it is.
    pub number: u64,
    /// Buffers whose contents nothing of before is kept in, and that were free again.
    pub free: Pool<Buffer>,
    /// All that were such.
    pub scratch: HashSet<u64>,
    /// What was uploaded meanwhile.
    pub constants: Vec<Memory>,
    /// Buffers that launches write to, which do not run before the graph does.
    pub written: HashSet<u64>,
    pub reserve: Arc<Mutex<Reserve>>,
    pub refused: Option<CaptureError>,
}

/// A capture that was given up before its end. What its thread asks for until that end is not done, as it would not have been in the capture.
pub(super) struct GivenUp {
    thread: ThreadId,
    /// The capture's.
    pub number: u64,
    ended: Ended,
}

/// Buffers are reserved; they go back to the pool with it, those that somebody holds when these are dropped.
struct Reservation {
    context: Arc<Context>,
    reserve: Arc<Mutex<Reserve>>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = lock(&self.context.state);
        state.reserved.retain(|_, of| {
            of.retain(|of| !Arc::ptr_eq(of, &self.reserve));
            !of.is_empty()
        });
        // What it lent is whoever's it was lent to.
        let State { lent, reserved, .. } = &mut *state;
        lent.retain(|id, _| reserved.contains_key(id));
        for (_, buffer) in std::mem::take(&mut lock(&self.reserve).held) {
            // Another graph may use it, too.
            state.give_back(buffer);
        }
    }
}

/// What was written down, with the memory that it uses.
pub(crate) struct Recorded {
    captured: Captured,
    reservation: Reservation,
    /// The buffers that were taken for it, whose contents nothing of before is kept in.
    scratch: HashSet<u64>,
    /// Why what is in those that it writes to is not there before it runs.
    not_run: Arc<str>,
}

impl Recorded {
    /// Whether a buffer was taken for it.
    pub(super) fn took(&self, buffer: u64) -> bool {
        self.scratch.contains(&buffer)
    }

    pub(super) fn reserve(&self) -> &SharedReserve {
        &self.reservation.reserve
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorded on {}", self.reservation.context.name)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.reservation.context.driver.forget(self.captured);
    }
}

impl Context {
    /// Writes down what `run` asks for instead of doing it. Buffers by their numbers are reserved for what is written down from the beginning:
    /// where `run` drops them they are not used for anything else.
    pub fn capture<T>(
        self: &Arc<Self>,
        buffers: &[u64],
        run: impl FnOnce() -> Result<T, CaptureError>,
    ) -> Result<(T, Recorded), CaptureError> {
        let failed = |error: DriverError| CaptureError::Device { reason: self.reason(&error) };
        let reserve = Arc::new(Mutex::new(Reserve::default()));
        let mut state = self.state_with_nothing_lent();
        if state.refuse(CaptureError::Nested) {
            return Err(CaptureError::Nested);
        }
        self.launch_waiting(&mut state);
        // What is uploaded from here on does not wait for what other threads asked for until now, whose memory it may get.
        self.driver.synchronize().map_err(failed)?;
        self.driver.begin_capture().map_err(failed)?;
        state.captures += 1;
        let (thread, number) = (thread::current().id(), state.captures);
        deadlock::begin(thread, self);
        state.capture = Some(Capture {
            thread,
            number,
            free: Pool::default(),
            scratch: HashSet::new(),
            constants: Vec::new(),
            written: HashSet::new(),
            reserve: reserve.clone(),
            refused: None,
        });
        state.reserve(buffers.iter().copied());
        drop(state);
        // A panic on the way leaves nothing that other threads wait for, and no memory that is lost.
        let reservation = Reservation { context: self.clone(), reserve };
        let ends = EndCapture { context: self, number, done: false };
        let result = run();
        let Ended { captured, refused, written, scratch } = ends.end();
        // Those buffers that are lost are noted before they are others'.
        let captured = captured.map_err(failed).inspect_err(|_| self.never_run(&written))?;
        let recorded = Recorded { captured, reservation, scratch, not_run: NOT_RUN.into() };
        let checked = || self.check().map_err(|error| CaptureError::Device { reason: error.reason });
        let result = refused.map_or_else(checked, Err).and(result);
        let result = result.inspect_err(|_| self.never_run(&written))?;
        // State is what it was before, and all else is not there yet.
        let not_there = written.iter().filter(|&&buffer| recorded.took(buffer));
        let reason = || recorded.not_run.clone();
        lock(&self.state).lost.extend(not_there.map(|&buffer| (buffer, reason())));
        Ok((result, recorded))
    }

    /// Notes that what was written down does not run: what it was to write is read by nobody as if it were there.
    fn never_run(&self, written: &HashSet<u64>) {
        let reason: Arc<str> = NEVER_RUN.into();
        lock(&self.state).lost.extend(written.iter().map(|&buffer| (buffer, reason.clone())));
    }

    /// Memory of so many bytes from the start of a buffer that is reserved for what is being written down; nothing while somebody holds it.
    pub fn take_back(self: &Arc<Self>, buffer: u64, bytes: usize) -> Option<Memory> {
        let reserve = self.state().capture.as_ref()?.reserve.clone();
        self.take_reserved(&reserve, |take| take(buffer, bytes))
    }

    /// Whether launches are being written down, by this thread: others wait until they are. So are those of a capture that was given up, as far as its thread
    /// knows.
    pub fn is_captured(&self) -> bool {
        self.state().captures()
    }

    /// Likewise; they are refused for this, which they cannot hold.
    pub fn refuses(&self, reason: CaptureError) -> bool {
        self.state().refuse(reason)
    }

    /// Stops writing down what this thread captures, with which that of another would wait for ever.
    pub(super) fn give_up_capture(&self) {
        let state = lock(&self.state);
        let Some(Capture { thread, number, .. }) = state.capture else { return };
        let mut ended = self.stop(state);
        ended.refused.get_or_insert(CaptureError::Deadlock);
        self.never_run(&ended.written);
        lock(&self.state).given_up.push(GivenUp { thread, number, ended });
        self.captured.notify_all();
    }

    /// Ends a capture of this thread's, by its number.
    fn end_capture(&self, number: u64) -> Ended {
        let mut state = lock(&self.state);
        if let Some(known) = state.given_up.iter().position(|given_up| given_up.number == number) {
            return state.given_up.swap_remove(known).ended;
        }
        let ended = self.stop(state);
        self.captured.notify_all();
        ended
    }

    /// Stops writing down, for which others wait: they are to be told.
    fn stop(&self, mut state: MutexGuard<'_, State>) -> Ended {
        self.launch_waiting(&mut state);
        let launches = self.driver.end_capture();
        let (mut refused, mut written, mut scratch) = (None, HashSet::new(), HashSet::new());
        let mut constants = Vec::new();
        if let Some(mut capture) = state.capture.take() {
            let free = capture.free.take_unused().into_iter().map(|buffer| (buffer.id(), buffer));
            lock(&capture.reserve).held.extend(free);
            (refused, written, scratch) = (capture.refused, capture.written, capture.scratch);
            constants = capture.constants;
        }
        let captured = launches.and_then(|launches| {
            let made = self.with_memory(&mut state, &[], |driver| driver.instantiate(launches));
            self.driver.discard(launches);
            made
        });
        deadlock::end(self);
        drop(state);
        // Those that nobody holds are the graph's, or go back.
        drop(constants);
        Ended { captured, refused, written, scratch }
    }

    /// Whether something was written down here, and the device not opened again since.
    pub fn holds(&self, recorded: &Recorded) -> bool {
        std::ptr::eq(self, &raw const *recorded.reservation.context)
    }

    /// Refuses what does not [hold](Self::holds).
    pub fn check_graph(&self, recorded: &Recorded) -> Result<(), ExecutionError> {
        match self.holds(recorded) {
            true => Ok(()),
            false => Err(self.error(STALE_GRAPH.to_owned())),
        }
    }

    /// Why what was written down would compute with something that is not there, if it would: its weights are where they were, and what was to
    /// change one may not have run since.
    fn missing_to(&self, state: &State, recorded: &Recorded) -> Option<Arc<str>> {
        let reserve = &recorded.reservation.reserve;
        let is_its =
            |id: &u64| state.reserved.get(id).is_some_and(|of| of.iter().any(|of| Arc::ptr_eq(of, reserve)));
        state.lost.iter().find(|(id, _)| is_its(id)).map(|(_, reason)| reason.clone())
    }

    /// Refuses to replay where launches are being written down.
    pub fn check_replay(&self) -> Result<(), ExecutionError> {
        match self.refuses(CaptureError::Replay) {
            true => Err(self.error(CaptureError::Replay.to_string())),
            false => self.check_captures_elsewhere(),
        }
    }

    /// Refuses what this thread writes down on other devices, while it uses a graph of this one's.
    pub fn check_captures_elsewhere(&self) -> Result<(), ExecutionError> {
        let elsewhere = deadlock::begun_by(thread::current().id());
        match elsewhere.iter().any(|context| context.refuses(CaptureError::Replay)) {
            true => Err(self.error(CaptureError::Replay.to_string())),
            false => Ok(()),
        }
    }

    /// Runs what was written down here.
    pub fn replay(&self, recorded: &Recorded) -> Result<(), ExecutionError> {
        let mut state = self.state();
        self.launch_waiting(&mut state);
        state.lost.retain(|_, reason| !Arc::ptr_eq(reason, &recorded.not_run));
        if let Some(reason) = self.missing_to(&state, recorded) {
            self.check()?;
            return Err(self.error(reason.to_string()));
        }
        count(&self.counters.replays, 1);
        let replayed = self.with_memory(&mut state, &[], |driver| driver.replay(recorded.captured));
        replayed.map_err(|error| self.failure_behind(&error))
    }
}

impl State {
    /// Whether launches are being written down, which are refused for this unless they were for something else before.
    pub(super) fn refuse(&mut self, reason: CaptureError) -> bool {
        let Some(capture) = &mut self.capture else { return self.given_up().is_some() };
        capture.refused.get_or_insert(reason);
        true
    }

    /// This thread's capture that was given up, and did not end yet.
    pub(super) fn given_up(&self) -> Option<&GivenUp> {
        if self.given_up.is_empty() {
            return None;
        }
        let thread = thread::current().id();
        self.given_up.iter().find(|given_up| given_up.thread == thread)
    }

    /// Whether this thread captures, as far as it knows; no other does, of whom it waited for the state.
    pub(super) fn captures(&self) -> bool {
        self.capture.is_some() || self.given_up().is_some()
    }
}

/// Ends what is written down, whatever happens.
struct EndCapture<'a> {
    context: &'a Context,
    number: u64,
    done: bool,
}

/// What was written down.
struct Ended {
    captured: Result<Captured, DriverError>,
    refused: Option<CaptureError>,
    /// The buffers that it writes to.
    written: HashSet<u64>,
    /// Those that were taken for it.
    scratch: HashSet<u64>,
}

impl EndCapture<'_> {
    fn end(mut self) -> Ended {
        self.done = true;
        self.context.end_capture(self.number)
    }
}

impl Drop for EndCapture<'_> {
    fn drop(&mut self) {
        if !self.done {
            let Ended { captured, written, .. } = self.context.end_capture(self.number);
            self.context.never_run(&written);
            if let Ok(captured) = captured {
                self.context.driver.forget(captured);
            }
        }
    }
}
