//! Threads that wait for loops to share.
//!
//! The thread that has a loop works on it too, and waits only for pieces that others have begun: a thread of the team that
//! wakes up late finds nothing left and harms nobody. Threads look out for new work for a moment before they sleep,
//! since a model's operations follow each other closely.

use alloc::{boxed::Box, format, vec::Vec};
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Looks for new work before a thread sleeps: some tens of microseconds.
const LOOKS: usize = 2_000;

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
    pieces: usize,
    /// The next piece that nobody has begun.
    next: AtomicUsize,
    done: AtomicUsize,
    /// What the first piece that panicked said.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the body is `Sync`; it is called only for pieces that count as not done, while its owner waits.
unsafe impl Send for Job {}
// SAFETY: as for `Send`.
unsafe impl Sync for Job {}

impl Job {
    fn is_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.pieces
    }

    /// Runs pieces until none is left that nobody has begun.
    fn help(&self) {
        loop {
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            if piece >= self.pieces {
                return;
            }
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

    /// The life of a thread of the team.
    fn serve(&self) {
        loop {
            let seen = self.posted.load(Ordering::Acquire);
            let mut state = self.state();
            if state.closed {
                return;
            }
            if let Some(job) = state.jobs.iter().find(|job| !job.is_taken()).cloned() {
                drop(state);
                job.help();
                continue;
            }
            drop(state);
            if (0..LOOKS).any(|_| {
                core::hint::spin_loop();
                self.posted.load(Ordering::Relaxed) != seen
            }) {
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
        let started = (0..helpers).map_while(|i| {
            let board = board.clone();
            let name = format!("kiln-{i}");
            std::thread::Builder::new().name(name).spawn(move || super::inside::always(|| board.serve())).ok()
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
        let job = Arc::new(Job {
            body,
            pieces,
            next: AtomicUsize::new(0),
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
        job.help();
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
