//! Threads that wait for loops to share.
//!
//! The thread that has a loop works on it too, and waits only for pieces that others have begun: a thread of the team that
//! wakes up late finds nothing left and harms nobody. Threads look out for new work for a moment before they sleep,
//! since a model's operations follow each other closely.
//!
//! Each thread has a share of the pieces of its own, and takes others' when it has none left: an operation finds in a core's cache what the
//! operation before wrote from there.

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
    /// Counts the loops ever put up, so that looking out needs no lock.
    posted: AtomicUsize,
    /// As many as [`State::sleeping`], to be read without the lock.
    sleeping: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: Vec<Arc<Job>>,
    sleeping: usize,
    closed: bool,
}

/// A loop that is shared.
struct Job {
    /// The body, called with the number of a piece. Valid until all pieces are done, which the caller waits for.
    body: *const (dyn Fn(usize) + Sync),
    /// A range of pieces for each thread; no more than there are pieces.
    shares: Box<[Share]>,
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

    /// The life of a thread of the team, which has a number from 1.
    fn serve(&self, thread: usize) {
        loop {
            let seen = self.posted.load(Ordering::Acquire);
            let mut state = self.state();
            if state.closed {
                return;
            }
            if let Some(job) = state.jobs.iter().find(|job| !job.is_taken()).cloned() {
                drop(state);
                job.help(thread);
                continue;
            }
            drop(state);
            if self.looks_out(seen) {
                continue;
            }
            state = self.state();
            if self.posted.load(Ordering::Acquire) == seen && !state.closed {
                state.sleeping += 1;
                self.sleeping.store(state.sleeping, Ordering::Relaxed);
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.sleeping -= 1;
                self.sleeping.store(state.sleeping, Ordering::Relaxed);
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
            posted: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
        });
        let started = (1..=helpers).map_while(|thread| {
            let board = board.clone();
            let life = move || super::inside::always(|| board.serve(thread));
            std::thread::Builder::new().name(format!("kiln-{thread}")).spawn(life).ok()
        });
        let helpers = started.count();
        Self { board, helpers }
    }

    /// Number of threads beside the caller's.
    pub fn helpers(&self) -> usize {
        self.helpers
    }

    /// Whether some thread of the team works or looks out for work.
    pub fn is_awake(&self) -> bool {
        self.board.sleeping.load(Ordering::Relaxed) < self.helpers
    }

    /// Calls `body` once with each number below `pieces`, here and on the team's threads; returns when all are done.
    ///
    /// # Panics
    /// When a call of `body` does.
    pub fn run(&self, pieces: usize, body: &(dyn Fn(usize) + Sync)) {
        let body: *const (dyn Fn(usize) + Sync) = body;
        // SAFETY: only the lifetime changes; this function returns after the last use of the body.
        let body = unsafe {
            core::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                body,
            )
        };
        let threads = pieces.clamp(1, self.helpers + 1);
        let share = |thread| Share {
            next: AtomicUsize::new(pieces * thread / threads),
            end: pieces * (thread + 1) / threads,
        };
        let job = Arc::new(Job {
            body,
            shares: (0..threads).map(share).collect(),
            done: AtomicUsize::new(0),
            panic: Mutex::default(),
        });
        {
            let mut state = self.board.state();
            state.jobs.push(job.clone());
            self.board.posted.fetch_add(1, Ordering::Release);
            if state.sleeping > 0 {
                self.board.wake.notify_all();
            }
        }
        job.help(0);
        self.board.state().jobs.retain(|other| !Arc::ptr_eq(other, &job));
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

impl Drop for Team {
    fn drop(&mut self) {
        self.board.state().closed = true;
        self.board.posted.fetch_add(1, Ordering::Release);
        self.board.wake.notify_all();
    }
}
