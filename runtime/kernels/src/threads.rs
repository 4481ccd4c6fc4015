//! How many threads kernels use, and the loop that runs on them.
//!
//! Kernels share one team of threads, made when first needed. Its size is what [`set_threads`] said, else the
//! environment variable `KILN_NUM_THREADS`, else the number of cores. Callers count: many at once are helped by fewer threads, or by none. Without
//! `std` everything runs on the calling thread.

use core::ops::Range;

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
    use std::sync::{Arc, OnceLock, RwLock};

    /// The team in use; `None` until it is needed, or when one thread is enough.
    struct State {
        threads: usize,
        team: Option<Arc<Team>>,
    }

    static STATE: OnceLock<RwLock<State>> = OnceLock::new();

    fn state() -> &'static RwLock<State> {
        STATE.get_or_init(|| RwLock::new(State { threads: default_threads(), team: None }))
    }

    fn default_threads() -> usize {
        let wish = std::env::var("KILN_NUM_THREADS").ok().and_then(|text| text.trim().parse().ok());
        wish.filter(|&n: &usize| n > 0)
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
    }

    pub fn threads() -> usize {
        state().read().map_or(1, |state| state.threads)
    }

    pub fn set_threads(threads: usize) {
        if let Ok(mut state) = state().write()
            && state.threads != threads
        {
            *state = State { threads, team: None };
        }
    }

    /// The team, or `None` when work should stay on the calling thread.
    pub fn team() -> Option<Arc<Team>> {
        {
            let state = state().read().ok()?;
            if state.threads <= 1 {
                return None;
            }
            if let Some(team) = &state.team {
                return Some(team.clone());
            }
        }
        let mut state = state().write().ok()?;
        if state.team.is_none() && state.threads > 1 {
            // The calling thread works too.
            state.team = Some(Arc::new(Team::new(state.threads - 1)));
        }
        state.team.clone()
    }
}

/// Whether the thread already works on a piece: loops within pieces stay on their thread.
#[cfg(feature = "std")]
mod inside {
    use core::cell::Cell;

    std::thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });

    pub fn is() -> bool {
        INSIDE.get()
    }

    /// Runs the life of a thread that does nothing but work on pieces.
    pub fn always(body: impl FnOnce()) {
        INSIDE.set(true);
        body();
    }

    /// Says so while it lives.
    pub struct Guard {
        before: bool,
    }

    impl Guard {
        pub fn enter() -> Self {
            Self { before: INSIDE.replace(true) }
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
        if len > 1
            && total >= INLINE_WORK
            && !inside::is()
            && let Some(team) = setting::team()
        {
            let caller = team.call();
            let _inside = inside::Guard::enter();
            if caller.helpers() == 0 || (total < SLEEPING_WORK && !caller.finds_some_awake()) {
                return body(0..len);
            }
            // A few pieces a thread evens out threads that were late, as long as each piece is worth its hand-over.
            let (threads, most) = (caller.helpers() + 1, (total / (INLINE_WORK / 2)).max(2));
            let pieces = (threads * 4).min(most).min(len);
            // As many for each, if there is more than one.
            let pieces = if pieces > threads { pieces - pieces % threads } else { pieces };
            return caller.run(pieces, &|piece| body(len * piece / pieces..len * (piece + 1) / pieces));
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
