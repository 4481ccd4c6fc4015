//! How many threads kernels use, and the loop that runs on them.
//!
//! Kernels share one team of threads, made when first needed. Its size is what [`set_threads`] said, else the
//! environment variable `KILN_NUM_THREADS`, else the number of cores. Callers count: many at once are helped by fewer threads, or by none. Without
//! `std` everything runs on the calling thread.

use core::ops::Range;

#[cfg(feature = "std")]
use inside::{Guard, Inside};

#[cfg(feature = "std")]
mod team;

/// Work, in units of about one nanosecond on one core, below which [`parallel_for`] stays on the calling thread: handing
/// it to a thread that looks out for work takes about a microsecond.
pub const INLINE_WORK: usize = 4_000;

/// The same when all other threads sleep: waking one takes some microseconds.
#[cfg(feature = "std")]
const SLEEPING_WORK: usize = 20_000;

#[cfg(feature = "std")]
mod setting {
    use super::team::Team;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, PoisonError, RwLock};

    /// The number of threads; 0 until somebody asks.
    static THREADS: AtomicUsize = AtomicUsize::new(0);

    /// The team in use, made for [`THREADS`]; `None` until it is needed.
    static TEAM: RwLock<Option<Arc<Team>>> = RwLock::new(None);

    fn default_threads() -> usize {
        crate::environment::count("KILN_NUM_THREADS")
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
    }

    pub fn threads() -> usize {
        match THREADS.load(Ordering::Relaxed) {
            0 => {
                let default = default_threads();
                // What was set meanwhile stays.
                THREADS
                    .compare_exchange(0, default, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|set| set, |_| default)
            }
            threads => threads,
        }
    }

    pub fn set_threads(threads: usize) {
        let mut team = TEAM.write().unwrap_or_else(PoisonError::into_inner);
        if THREADS.swap(threads, Ordering::Relaxed) != threads {
            *team = None;
        }
    }

    /// The team, or `None` when work should stay on the calling thread.
    pub fn team() -> Option<Arc<Team>> {
        if threads() <= 1 {
            return None;
        }
        if let Some(team) = &*TEAM.read().unwrap_or_else(PoisonError::into_inner) {
            return Some(team.clone());
        }
        let mut team = TEAM.write().unwrap_or_else(PoisonError::into_inner);
        let threads = threads();
        if team.is_none() && threads > 1 {
            // The calling thread works too.
            *team = Some(Arc::new(Team::new(threads - 1)));
        }
        team.clone()
    }
}

/// Whether the thread is within a loop already.
#[cfg(feature = "std")]
mod inside {
    use core::cell::Cell;

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum Inside {
        /// In no loop.
        Nothing,
        /// In a loop of one item, which counts as a caller's: loops within may be shared.
        One,
        /// Working on a piece of a loop: loops within stay on their thread.
        Piece,
    }

    std::thread_local!(static INSIDE: Cell<Inside> = const { Cell::new(Inside::Nothing) });

    pub fn what() -> Inside {
        INSIDE.get()
    }

    /// Runs the life of a thread that does nothing but work on pieces.
    pub fn always(body: impl FnOnce()) {
        INSIDE.set(Inside::Piece);
        body();
    }

    /// Says so while it lives.
    pub struct Guard {
        before: Inside,
    }

    impl Guard {
        pub fn enter(inside: Inside) -> Self {
            Self { before: INSIDE.replace(inside) }
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            INSIDE.set(self.before);
        }
    }
}

/// The number of threads that kernels may use.
pub fn threads() -> usize {
    #[cfg(feature = "std")]
    return setting::threads();
    #[cfg(not(feature = "std"))]
    1
}

/// Sets the number of threads for all kernels of the process; 0 counts as 1. No effect without `std`.
pub fn set_threads(threads: usize) {
    #[cfg(feature = "std")]
    setting::set_threads(threads.max(1));
    #[cfg(not(feature = "std"))]
    let _ = threads;
}

/// How many threads share a loop that is put up now: one inside of another loop, fewer than [`threads`] while others have loops too. How work is cut
/// depends on it, never a result.
pub(crate) fn sharing() -> usize {
    #[cfg(feature = "std")]
    return if inside::what() == Inside::Piece {
        1
    } else {
        setting::team().map_or(1, |team| team.sharing())
    };
    #[cfg(not(feature = "std"))]
    1
}

/// Runs `body` over disjoint ranges that cover `0..len`, on several threads when the work is worth it.
///
/// `work` is the cost of one item in units of about a nanosecond; with less than [`INLINE_WORK`] in all, `body` gets
/// the whole range on the calling thread, as it does inside of another `parallel_for`. Each thread gets neighbouring ranges, in order, and others' when
/// it has none left.
pub fn parallel_for(len: usize, work: usize, body: impl Fn(Range<usize>) + Sync) {
    if len > 0 {
        share_out(len, work, &body);
    }
}

/// [`parallel_for`] of at least one item. Not generic: each loop's body is compiled once, not once for pieces and once for the whole.
fn share_out(len: usize, work: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
    #[cfg(test)]
    if crate::simd::forced::get().is_some() {
        return body(0..len);
    }
    #[cfg(feature = "std")]
    {
        let total = len.saturating_mul(work.max(1));
        if total >= INLINE_WORK
            && inside::what() != Inside::Piece
            && let Some(team) = setting::team()
        {
            let _caller = (inside::what() == Inside::Nothing).then(|| team.call());
            let _inside = Guard::enter(if len == 1 { Inside::One } else { Inside::Piece });
            let threads = team.sharing();
            if len == 1 || threads == 1 || (total < SLEEPING_WORK && !team.is_awake()) {
                return body(0..len);
            }
            // A few pieces a thread evens out threads that were late, as long as each piece is worth its hand-over.
            let most = (total / (INLINE_WORK / 2)).max(2);
            let pieces = (threads * 4).min(most).min(len);
            // As many for each, if there is more than one.
            let pieces = if pieces > threads { pieces - pieces % threads } else { pieces };
            let piece = |piece| body(len * piece / pieces..len * (piece + 1) / pieces);
            return team.run(pieces, threads, &piece);
        }
    }
    let _ = work;
    body(0..len);
}

/// Runs `body` on each piece of `chunk` elements of `out` (the last may be shorter) with the piece's index.
///
/// `work` is the cost of one piece, as in [`parallel_for`].
pub fn parallel_chunks<T: Send>(
    out: &mut [T],
    chunk: usize,
    work: usize,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    assert!(chunk > 0, "pieces need at least one element");
    let len = out.len();
    let shared = SharedMut::new(out);
    parallel_for(len.div_ceil(chunk), work, |range| {
        for index in range {
            let start = index * chunk;
            // SAFETY: pieces are disjoint, and each index is given out once.
            let piece = unsafe { shared.slice(start..len.min(start + chunk)) };
            body(index, piece);
        }
    });
}

/// A mutable slice that several threads write at once, each its own part.
pub(crate) struct SharedMut<'a, T> {
    data: *mut T,
    len: usize,
    lifetime: core::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for `&mut [T]` split into disjoint parts, which the users of `slice` and `ptr` promise.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}
// SAFETY: as for `Sync`.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Wraps a slice.
    pub fn new(data: &'a mut [T]) -> Self {
        Self { data: data.as_mut_ptr(), len: data.len(), lifetime: core::marker::PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A pointer to an element.
    ///
    /// # Safety
    /// The element lies inside of the slice, or right behind it.
    pub unsafe fn ptr(&self, at: usize) -> *mut T {
        debug_assert!(at <= self.len);
        // SAFETY: the caller's promise.
        unsafe { self.data.add(at) }
    }

    /// A part of the slice.
    ///
    /// # Safety
    /// No two parts that live at the same time overlap.
    #[allow(clippy::mut_from_ref, reason = "the caller promises disjoint parts")]
    pub unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside of the slice");
        // SAFETY: the range lies inside; exclusiveness is the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_item_runs_once_even_in_nested_loops() {
        let counts: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        parallel_for(10, 1_000_000, |outer| {
            for i in outer {
                parallel_for(100, 1_000_000, |inner| {
                    for j in inner {
                        counts[i * 100 + j].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn many_callers_share_the_team() {
        let total = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        parallel_for(50, 10_000, |range| {
                            total.fetch_add(range.len(), Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4 * 200 * 50);
    }

    #[test]
    fn a_panic_reaches_the_caller_after_all_pieces() {
        let count = AtomicUsize::new(0);
        let caught = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            parallel_for(8, 1_000_000, |range| {
                for i in range {
                    count.fetch_add(1, Ordering::Relaxed);
                    assert!(i != 3, "as meant");
                }
            });
        }));
        let said = caught.expect_err("piece 3 panics");
        assert_eq!(said.downcast_ref::<&str>(), Some(&"as meant"));
        parallel_for(8, 1_000_000, |range| {
            count.fetch_add(range.len(), Ordering::Relaxed);
        });
        assert!(count.load(Ordering::Relaxed) >= 12);
    }

    #[test]
    fn pieces_cover_the_slice() {
        let mut x = vec![0usize; 1001];
        parallel_chunks(&mut x, 10, 100_000, |i, piece| piece.fill(i + 1));
        assert!(x.iter().enumerate().all(|(i, &x)| x == i / 10 + 1));
    }
}
