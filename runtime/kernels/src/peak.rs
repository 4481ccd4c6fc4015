//! Loops that do nothing but what a machine is best at: who times them knows its peaks.

use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for, threads};

/// Sums that grow side by side: enough to hide the latency of two units that each begin a multiply-add a cycle, few enough for sixteen registers.
const SUMS: usize = 12;

/// Work that no loop keeps to itself, in the units of [`parallel_for`].
const WORTH_SHARING: usize = 1_000_000;

/// Multiplies and adds f32 in registers on every thread, `rounds` times over, and yields the number of FLOPs: two a multiply-add.
pub fn multiply_add(rounds: usize) -> u64 {
    let lanes = core::sync::atomic::AtomicUsize::new(0);
    parallel_for(threads(), WORTH_SHARING, |range| {
        for _ in range {
            // SAFETY: nothing is relied on.
            let (done, sum) = unsafe { sums(rounds) };
            core::hint::black_box(sum);
            lanes.fetch_add(done, core::sync::atomic::Ordering::Relaxed);
        }
    });
    2 * (SUMS * rounds) as u64 * lanes.into_inner() as u64
}

dispatched! {
    /// Yields the number of lanes, and something of what was computed.
    ///
    /// # Safety
    /// Nothing is relied on.
    unsafe fn sums<S>(s, rounds: usize) -> (usize, f32) {
        // No number grows or becomes subnormal, which would take longer on some machines.
        let (factor, step) = (s.splat(core::hint::black_box(0.5)), s.splat(core::hint::black_box(0.25)));
        let mut sums = [s.splat(1.0); SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = s.mul_add(*sum, factor, step);
            }
        }
        let mut all = s.splat(0.0);
        for sum in sums {
            all = s.add(all, sum);
        }
        (S::LANES, s.sum(all))
    }
}

/// Reads the elements and writes each in its place, `rounds` times over, every thread a part of its own that stays the same, and yields
/// the number of bytes read and written.
pub fn read_and_write(data: &mut [f32], rounds: usize) -> u64 {
    let (parts, len) = (threads(), data.len());
    let shared = SharedMut::new(data);
    parallel_for(parts, WORTH_SHARING, |range| {
        for part in range {
            // SAFETY: parts are disjoint, and each is given out once.
            let part = unsafe { shared.slice(len * part / parts..len * (part + 1) / parts) };
            for _ in 0..rounds {
                // SAFETY: the slice is valid for its length.
                unsafe { negate(part.as_mut_ptr(), part.len()) };
                core::hint::black_box(&mut *part);
            }
        }
    });
    (2 * size_of::<f32>() * len * rounds) as u64
}

/// Reads the elements, `rounds` times over, likewise, and yields the number of bytes read.
pub fn read(data: &[f32], rounds: usize) -> u64 {
    let (parts, len) = (threads(), data.len());
    parallel_for(parts, WORTH_SHARING, |range| {
        for part in range {
            let part = &data[len * part / parts..len * (part + 1) / parts];
            for _ in 0..rounds {
                // SAFETY: the slice is valid for its length.
                core::hint::black_box(unsafe { total(core::hint::black_box(part.as_ptr()), part.len()) });
            }
        }
    });
    (size_of::<f32>() * len * rounds) as u64
}

dispatched! {
    /// # Safety
    /// `data` is valid for reading and writing `len` elements.
    unsafe fn negate<S>(s, data: *mut f32, len: usize) {
        let mut at = 0;
        while at + 4 * S::LANES <= len {
            for vector in 0..4 {
                let to = data.add(at + vector * S::LANES);
                s.store(to, s.neg(s.load(to)));
            }
            at += 4 * S::LANES;
        }
        while at < len {
            *data.add(at) = -*data.add(at);
            at += 1;
        }
    }
}

dispatched! {
    /// # Safety
    /// `data` is valid for reading `len` elements.
    unsafe fn total<S>(s, data: *const f32, len: usize) -> f32 {
        let mut sums = [s.splat(0.0); 8];
        let mut at = 0;
        while at + 8 * S::LANES <= len {
            for vector in 0..8 {
                sums[vector] = s.add(sums[vector], s.load(data.add(at + vector * S::LANES)));
            }
            at += 8 * S::LANES;
        }
        let mut all = s.splat(0.0);
        for sum in sums {
            all = s.add(all, sum);
        }
        let mut total = s.sum(all);
        while at < len {
            total += *data.add(at);
            at += 1;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::forced::at_each_level;

    #[test]
    fn loops_do_what_they_count() {
        at_each_level(|_| {
            // SAFETY: nothing is relied on.
            let (lanes, sum) = unsafe { sums(60) };
            // x / 2 + 1/4 tends to 1/2.
            assert_eq!(sum, 0.5 * (SUMS * lanes) as f32);
            let mut data: Vec<f32> = (0..1000).map(|n| n as f32).collect();
            assert_eq!(read_and_write(&mut data, 3), 24_000);
            assert!((0..1000).all(|n| data[n] == -(n as f32)), "three times negated");
            assert_eq!(read(&data, 2), 8_000);
            // SAFETY: the slice is valid for its length.
            assert_eq!(unsafe { total(data.as_ptr(), data.len()) }, -499_500.0);
        });
        assert_eq!(multiply_add(10) % (2 * SUMS * 10 * threads()) as u64, 0);
    }
}
