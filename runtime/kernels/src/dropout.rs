//! Dropout by random numbers that follow from a key and an element's position: any number of threads drops the same.

use crate::InOut;
use crate::simd::dispatched;
use crate::threads::{parallel_chunks, parallel_for};
use bytemuck::Pod;
use kiln_types::Philox;

/// Elements whose words are computed at once, and the positions of the generator that these take.
const GROUP: usize = 64;
const POSITIONS: usize = GROUP / 4;

/// Elements of a piece of work: whole groups.
const PIECE: usize = 64 * GROUP;

/// Who is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    philox: Philox,
    /// Whoever's word is below.
    threshold: u64,
}

impl Dropout {
    /// Elements are dropped with a probability, by the words that belong to a key.
    pub fn new(probability: f64, key: u64) -> Self {
        Self { philox: Philox::new(key), threshold: Philox::threshold(probability) }
    }

    /// For each element from `start`, a multiple of [`GROUP`], all bits if it stays and none if it is dropped.
    #[inline(always)]
    fn kept(self, start: usize) -> [u32; GROUP] {
        let words = self.philox.blocks::<POSITIONS>((start / 4) as u64);
        // In 32 bits, which has more lanes: who is at most the word below the threshold, if there is one.
        let (last, some) = ((self.threshold.wrapping_sub(1)) as u32, self.threshold > 0);
        let mut kept = [0; GROUP];
        for n in 0..POSITIONS {
            for w in 0..4 {
                kept[4 * n + w] = u32::from(some & (words[w][n] <= last)).wrapping_sub(1);
            }
        }
        kept
    }

    /// What stays is multiplied by `scale`.
    pub fn scaled(self, scale: f32, data: InOut<'_>) {
        let len = data.len();
        let (from, to) = data.into_shared();
        parallel_for(len.div_ceil(PIECE), PIECE, |range| {
            let (start, end) = (range.start * PIECE, len.min(range.end * PIECE));
            // SAFETY: pieces are disjoint and inside; source and destination are equal or apart.
            unsafe { scaled_piece(self, scale, from.ptr(start), to.ptr(start), start, end - start) };
        });
    }

    /// What stays goes through `f`, what does not becomes zero; for elements of any kind.
    pub fn mapped<T: Pod + Send>(self, elements: &mut [T], f: impl Fn(T) -> T + Sync) {
        parallel_chunks(elements, PIECE, 2 * PIECE, |piece, elements| {
            for (group, elements) in elements.chunks_mut(GROUP).enumerate() {
                let mut kept = [0; GROUP];
                // SAFETY: nothing is relied on.
                unsafe { kept_group(self, piece * PIECE + group * GROUP, &mut kept) };
                for (x, kept) in elements.iter_mut().zip(kept) {
                    // Computed in any case: whether it stays, no branch could foresee.
                    let mapped = f(*x);
                    *x = if kept == 0 { T::zeroed() } else { mapped };
                }
            }
        });
    }
}

dispatched! {
    /// [`Dropout::kept`].
    ///
    /// # Safety
    /// Nothing is relied on.
    unsafe fn kept_group<S>(_s, dropout: Dropout, start: usize, into: &mut [u32; GROUP]) {
        *into = dropout.kept(start);
    }
}

dispatched! {
    /// `n` elements, of which the first has the position `start`, a multiple of [`GROUP`].
    ///
    /// # Safety
    /// Both pointers hold `n` elements, and are equal or apart.
    unsafe fn scaled_piece<S>(
        s,
        dropout: Dropout,
        scale: f32,
        from: *const f32,
        to: *mut f32,
        start: usize,
        n: usize,
    ) {
        let scale = s.splat(scale);
        for group in (0..n).step_by(GROUP) {
            let kept = dropout.kept(start + group);
            for i in (group..n.min(group + GROUP)).step_by(S::LANES) {
                let count = S::LANES.min(n - i);
                let scaled = s.mul(s.load_up_to(from.add(i), count), scale);
                let mask = s.bits(s.load(kept.as_ptr().add(i - group).cast()));
                s.store_up_to(to.add(i), count, s.float_of_bits(s.int_and(s.bits(scaled), mask)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    #[test]
    fn words_below_the_threshold_are_dropped() {
        let run = || {
            for n in [0, 1, 63, 64, 65, 4096, 3 * PIECE + 77] {
                for probability in [1e-12, 0.1, 0.5, 1.0] {
                    let x: Vec<f32> = noise(n, 1).iter().map(|x| x + 2.0).collect();
                    let mut want: Vec<f32> = x.iter().map(|x| x * 1.5).collect();
                    Philox::new(9).for_each(n, |at, word| {
                        if u64::from(word) < Philox::threshold(probability) {
                            want[at] = 0.0;
                        }
                    });
                    let dropout = Dropout::new(probability, 9);
                    let mut found = vec![7.0; n];
                    dropout.scaled(1.5, InOut::Copy { from: &x, to: &mut found });
                    assert_eq!(found, want, "{n} {probability}");
                    let mut found = x.clone();
                    dropout.scaled(1.5, InOut::InPlace(&mut found));
                    assert_eq!(found, want);
                    let mut found = x.clone();
                    dropout.mapped(&mut found, |x| x * 1.5);
                    assert_eq!(found, want);
                }
            }
        };
        at_each_level(|_| run());
        run();
    }

    #[test]
    fn what_is_dropped_is_zero_whatever_it_was() {
        let mut x = vec![f32::NAN; 100];
        Dropout::new(1.0, 1).scaled(f32::INFINITY, InOut::InPlace(&mut x));
        assert!(x.iter().all(|x| x.to_bits() == 0));
    }
}
