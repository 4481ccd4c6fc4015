//! Threads that wait for loops to share.
//!
//! The thread that has a loop works on it too, and waits only for pieces that others have begun: a thread of the team that
//! wakes up late finds nothing left and harms nobody. Threads look out for new work for a moment before they sleep,
//! since a model's operations follow each other closely.
//!
//! Each thread has a share of the pieces of its own, and takes others' when it has none left: an operation finds in a core's cache what the
//! operation before wrote from there.
//!
//! Who calls from many threads at once has shared the work out already: for each caller beyond the first a thread of the team rests, until
//! callers work alone when they are as many as the team. More threads than cores would take each other's time.

use alloc::{boxed::Box, format, vec::Vec};
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Looks for new work, some tens of microseconds, before a thread lets others have its core between two looks.
const LOOKS: usize = 2_000;

/// How long a thread looks for new work before it sleeps: what stays on one thread between two loops rarely takes longer, and waking takes
/// long enough to count.
const PATIENCE: Duration = Duration::from_micros(500);

/// A caller in [`Board::load`].
const ONE: usize = 256;

/// The threads beside the callers'.
pub(super) struct Team {
    board: Arc<Board>,
    helpers: usize,
}

/// Where loops are put up.
struct Board {
    state: Mutex<State>,
    /// Sleepers wait here.
    wake: Condvar,
    /// Those wait here who are too many beside the callers.
    rest: Condvar,
    /// Counts the loops ever put up, so that looking out needs no lock.
    posted: AtomicUsize,
    /// As many as sleep and rest, to be read without the lock.
    idle: AtomicUsize,
    /// Callers that have a loop right now.
    callers: AtomicUsize,
    /// How many there were lately: a mean over the last loops, in which later ones count more, in parts of [`ONE`]. An estimate, to which
    /// threads write at once as it comes.
    load: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: Vec<Arc<Job>>,
    /// Loops that are done, to be used again; threads of the team may still look at some.
    spare: Vec<Arc<Job>>,
    sleeping: usize,
    resting: usize,
    closed: bool,
}

impl State {
    /// A loop, in the memory of one that is done and that nobody looks at any more, if there is such.
    fn job(&mut self, body: *const (dyn Fn(usize) + Sync), shares: impl Iterator<Item = Share>) -> Arc<Job> {
        let free = self.spare.iter_mut().position(|job| Arc::get_mut(job).is_some());
        let mut job = free.map(|at| self.spare.swap_remove(at)).unwrap_or_else(|| Arc::new(Job::idle()));
        match Arc::get_mut(&mut job) {
            Some(job) => {
                job.body = body;
                job.shares.clear();
                job.shares.extend(shares);
                *job.done.get_mut() = 0;
            }
            None => unreachable!("nobody else has a loop that is new, or can get a spare one"),
        }
        job
    }

    /// Takes a loop down, of which no piece is left.
    fn put_away(&mut self, job: &Arc<Job>) {
        if let Some(at) = self.jobs.iter().position(|other| Arc::ptr_eq(other, job)) {
            let job = self.jobs.remove(at);
            self.spare.push(job);
        }
    }
}

/// A caller that has a loop, as long as it lasts.
pub(super) struct Caller<'a>(&'a Team);

/// A loop that is shared.
struct Job {
    /// The body, called with the number of a piece. Valid until all pieces are done, which the caller waits for.
    body: *const (dyn Fn(usize) + Sync),
    /// A range of pieces for each thread; no more than there are pieces.
    shares: Vec<Share>,
    done: AtomicUsize,
    /// What the first piece that panicked said.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// Pieces that one thread should run. On a cache line of its own, which only that thread writes until another runs out of work.
#[repr(align(64))]
struct Share {
    /// The next piece that nobody has begun; at least `end` when there is none.
    next: AtomicUsize,
    end: usize,
}

impl Share {
    fn is_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.end
    }

    /// A piece that nobody else gets.
    fn take(&self) -> Option<usize> {
        // Looked at first, so that the counter stays within a few of the end.
        (!self.is_taken())
            .then(|| self.next.fetch_add(1, Ordering::Relaxed))
            .filter(|&piece| piece < self.end)
    }
}

// SAFETY: the body is `Sync`; it is called only for pieces that count as not done, while its owner waits.
unsafe impl Send for Job {}
// SAFETY: as for `Send`.
unsafe impl Sync for Job {}

impl Job {
    /// A loop without pieces.
    fn idle() -> Self {
        let body: *const (dyn Fn(usize) + Sync) = &|_: usize| {};
        Self { body, shares: Vec::new(), done: AtomicUsize::new(0), panic: Mutex::default() }
    }

    fn is_taken(&self) -> bool {
        self.shares.iter().all(Share::is_taken)
    }

    /// Runs pieces until none is left that nobody has begun: a thread's own first, then those of the threads after it.
    fn help(&self, thread: usize) {
        let (before, own) = self.shares.split_at(thread % self.shares.len());
        while let Some(piece) = own.iter().chain(before).find_map(Share::take) {
            // SAFETY: this piece is not done, so the owner still waits and the body is alive.
            let body = unsafe { &*self.body };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(piece))) {
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            }
            self.done.fetch_add(1, Ordering::Release);
        }
    }
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can be left half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Callers that there are at a time, but for the first.
    fn other_callers(&self) -> usize {
        ((self.load.load(Ordering::Relaxed) + ONE / 2) / ONE).saturating_sub(1)
    }

    /// Whether another loop is put up soon.
    fn looks_out(&self, seen: usize) -> bool {
        let is_posted = || self.posted.load(Ordering::Relaxed) != seen;
        let began = Instant::now();
        (0..LOOKS).any(|_| {
            core::hint::spin_loop();
            is_posted()
        }) || loop {
            std::thread::yield_now();
            if is_posted() {
                break true;
            }
            if began.elapsed() > PATIENCE {
                break false;
            }
        }
    }

    /// Waits until there may be something to do.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>, rests: bool) {
        let count = |state: &mut State, by: isize| {
            let waiting = if rests { &mut state.resting } else { &mut state.sleeping };
            *waiting = waiting.saturating_add_signed(by);
            self.idle.store(state.sleeping + state.resting, Ordering::Relaxed);
        };
        count(&mut state, 1);
        let condvar = if rests { &self.rest } else { &self.wake };
        state = condvar.wait(state).unwrap_or_else(PoisonError::into_inner);
        count(&mut state, -1);
    }

    /// The life of one of the team's threads, of which so many come after it: the last rest first.
    fn serve(&self, thread: usize, after: usize) {
        let is_spare = || after < self.other_callers();
        loop {
            let seen = self.posted.load(Ordering::Acquire);
            let state = self.state();
            if state.closed {
                return;
            }
            if is_spare() {
                self.wait(state, true);
                continue;
            }
            if let Some(job) = state.jobs.iter().find(|job| !job.is_taken()).cloned() {
                drop(state);
                job.help(thread);
                continue;
            }
            drop(state);
            if is_spare() || self.looks_out(seen) {
                continue;
            }
            let state = self.state();
            if self.posted.load(Ordering::Acquire) == seen && !state.closed {
                self.wait(state, false);
            }
        }
    }
}

impl Team {
    /// A team of some threads; fewer if the system does not give them.
    pub fn new(helpers: usize) -> Self {
        let board = Arc::new(Board {
            state: Mutex::default(),
            wake: Condvar::new(),
            rest: Condvar::new(),
            posted: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            callers: AtomicUsize::new(0),
            load: AtomicUsize::new(ONE),
        });
        let started = (1..=helpers).map_while(|thread| {
            let board = board.clone();
            let life = move || super::inside::always(|| board.serve(thread, helpers - thread));
            std::thread::Builder::new().name(format!("kiln-{thread}")).spawn(life).ok()
        });
        let helpers = started.count();
        Self { board, helpers }
    }

    /// Whether some thread of the team works or looks out for work.
    pub fn is_awake(&self) -> bool {
        self.board.idle.load(Ordering::Relaxed) < self.helpers
    }

    /// Threads that share a loop as things are: its caller and those of the team that do not rest.
    pub fn sharing(&self) -> usize {
        1 + self.helpers.saturating_sub(self.board.other_callers())
    }

    /// Counts in a caller that has a loop.
    pub fn call(&self) -> Caller<'_> {
        let callers = self.board.callers.fetch_add(1, Ordering::Relaxed) + 1;
        let load = self.board.load.load(Ordering::Relaxed);
        // A sixteenth of the way, rounded so that it arrives.
        let load = if callers * ONE > load {
            load + (callers * ONE - load).div_ceil(16)
        } else {
            load - (load - callers * ONE).div_ceil(16)
        };
        self.board.load.store(load, Ordering::Relaxed);
        Caller(self)
    }

    /// Calls `body` once with each number below `pieces`, here and on the team's threads, so many in all; returns when all are done.
    ///
    /// # Panics
    /// When a call of `body` does.
    pub fn run(&self, pieces: usize, threads: usize, body: &(dyn Fn(usize) + Sync)) {
        let body: *const (dyn Fn(usize) + Sync) = body;
        // SAFETY: only the lifetime changes; this function returns after the last use of the body.
        let body = unsafe {
            core::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                body,
            )
        };
        let threads = threads.clamp(1, pieces.max(1));
        let share = |thread| Share {
            next: AtomicUsize::new(pieces * thread / threads),
            end: pieces * (thread + 1) / threads,
        };
        let job = {
            let mut state = self.board.state();
            let job = state.job(body, (0..threads).map(share));
            state.jobs.push(job.clone());
            self.board.posted.fetch_add(1, Ordering::Release);
            if state.sleeping > 0 {
                self.board.wake.notify_all();
            }
            if state.resting > self.board.other_callers() {
                self.board.rest.notify_all();
            }
            job
        };
        job.help(0);
        self.board.state().put_away(&job);
        let mut looks = 0;
        while job.done.load(Ordering::Acquire) < pieces {
            looks += 1;
            if looks < LOOKS { core::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let panic = job.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.board.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.board.state().closed = true;
        self.board.posted.fetch_add(1, Ordering::Release);
        self.board.wake.notify_all();
        self.board.rest.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;

    /// As many loops as change what the team takes for usual.
    const LOOPS: usize = 60;

    /// Threads that share another loop.
    fn sharing(team: &Team) -> usize {
        let _caller = team.call();
        team.sharing()
    }

    /// Whether a thread of the team takes the second piece while the first waits for it.
    fn helps(team: &Team) -> bool {
        let (came, saw) = (AtomicBool::new(false), AtomicBool::new(false));
        let _caller = team.call();
        team.run(2, team.sharing(), &|piece| {
            if piece == 1 {
                return came.store(true, Ordering::Relaxed);
            }
            let began = Instant::now();
            while !came.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            saw.store(came.load(Ordering::Relaxed), Ordering::Relaxed);
        });
        saw.into_inner()
    }

    #[test]
    fn threads_rest_while_there_are_callers_enough() {
        let team = Team::new(2);
        assert_eq!(sharing(&team), 3);
        assert!(helps(&team));

        let others = [team.call(), team.call()];
        (0..LOOPS).for_each(|_| drop(team.call()));
        assert_eq!(sharing(&team), 1, "three callers are as many as the team");
        let [one, other] = others;
        drop(other);
        (0..LOOPS).for_each(|_| drop(team.call()));
        assert_eq!(sharing(&team), 2);

        // Whoever rested comes back.
        drop(one);
        (0..LOOPS).for_each(|_| drop(team.call()));
        assert!(helps(&team));
    }

    #[test]
    fn one_caller_among_seldom_others_has_the_team() {
        let team = Team::new(1);
        for _ in 0..LOOPS {
            let other = team.call();
            drop(team.call());
            drop(other);
            for _ in 0..8 {
                drop(team.call());
            }
            assert_eq!(sharing(&team), 2);
        }
    }
}
