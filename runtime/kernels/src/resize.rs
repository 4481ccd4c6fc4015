//! Resizing one axis: each element of the result is a weighted sum of few elements of the input.

use crate::simd::dispatched;
use crate::threads;
use alloc::vec::Vec;

/// Where each element of a resized axis comes from: as many taps for each, unused ones with weight 0.
#[derive(Clone, Debug)]
pub struct Taps {
    count: usize,
    positions: Vec<usize>,
    weights: Vec<f32>,
    /// Elements of the input that are read: all positions lie below.
    reach: usize,
}

impl Taps {
    /// From the positions and weights of each element.
    pub fn new(elements: &[Vec<(usize, f64)>]) -> Self {
        let count = elements.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut taps = Self { count, positions: Vec::new(), weights: Vec::new(), reach: 0 };
        for element in elements {
            // A spare tap reads what another reads, so that NaN and infinity come from nowhere else.
            let spare = (element.first().map_or(0, |tap| tap.0), 0.0);
            for n in 0..count {
                let (position, weight) = element.get(n).copied().unwrap_or(spare);
                taps.positions.push(position);
                taps.weights.push(weight as f32);
                taps.reach = taps.reach.max(position + 1);
            }
        }
        taps
    }

    /// Elements of the resized axis.
    pub fn len(&self) -> usize {
        self.positions.len() / self.count
    }

    /// Whether the resized axis is empty.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Positions and weights of element `n`.
    fn of(&self, n: usize) -> (&[usize], &[f32]) {
        let range = n * self.count..(n + 1) * self.count;
        (&self.positions[range.clone()], &self.weights[range])
    }
}

/// Resizes the middle axis of `x`, `[outer, input, inner]`, into `out`, `[outer, taps.len(), inner]`.
///
/// # Panics
/// When a slice does not have its size, or a tap lies outside of the input.
pub fn resize_axis(x: &[f32], [outer, input, inner]: [usize; 3], taps: &Taps, out: &mut [f32]) {
    assert_eq!(x.len(), outer * input * inner, "size of what is resized");
    assert_eq!(out.len(), outer * taps.len() * inner, "size of the resized");
    if out.is_empty() {
        return;
    }
    assert!(taps.reach <= input, "a tap at {} of {input}", taps.reach - 1);
    let picks = taps.count == 1 && taps.weights.iter().all(|&weight| weight == 1.0);
    if inner == 1 {
        let work = out.len() / outer * (taps.count + 1) / 2;
        threads::parallel_chunks(out, taps.len(), work, |row, out| {
            let x = &x[row * input..][..input];
            if picks {
                out.iter_mut().zip(&taps.positions).for_each(|(y, &position)| *y = x[position]);
                return;
            }
            for (n, y) in out.iter_mut().enumerate() {
                let (positions, weights) = taps.of(n);
                *y = positions.iter().zip(weights).map(|(&position, weight)| x[position] * weight).sum();
            }
        });
        return;
    }
    threads::parallel_chunks(out, inner, inner * taps.count / 8 + 1, |row, out| {
        let (positions, weights) = taps.of(row % taps.len());
        let x = &x[row / taps.len() * input * inner..][..input * inner];
        if picks {
            return out.copy_from_slice(&x[positions[0] * inner..][..inner]);
        }
        // SAFETY: all positions lie within the input's rows, which have the length of `out`.
        unsafe { mix_rows(x.as_ptr(), positions, weights, out) };
    });
}

dispatched! {
    /// `out = Σ weight · row`, for the rows at `positions` of a matrix whose rows have the length of `out`.
    ///
    /// # Safety
    /// The matrix has these rows; there are as many weights as positions.
    unsafe fn mix_rows<S>(s, rows: *const f32, positions: &[usize], weights: &[f32], out: &mut [f32]) {
        let n = out.len();
        let mut i = 0;
        while i < n {
            let count = S::LANES.min(n - i);
            let mut sum = s.splat(0.0);
            for k in 0..positions.len() {
                let row = s.load_up_to(rows.add(positions[k] * n + i), count);
                sum = s.mul_add(s.splat(weights[k]), row, sum);
            }
            s.store_up_to(out.as_mut_ptr().add(i), count, sum);
            i += S::LANES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    #[test]
    fn rows_and_columns_are_mixed() {
        let elements =
            [vec![(0, 1.0)], vec![(0, 0.25), (1, 0.75)], vec![(2, 0.5), (1, 0.25), (0, 0.25)], vec![]];
        let taps = Taps::new(&elements);
        at_each_level(|_| {
            for inner in [1, 7, 40] {
                let x = noise(2 * 3 * inner, 1);
                let mut out = vec![f32::NAN; 2 * 4 * inner];
                resize_axis(&x, [2, 3, inner], &taps, &mut out);
                for (at, y) in out.iter().enumerate() {
                    let (outer, n, i) = (at / (4 * inner), at / inner % 4, at % inner);
                    let terms =
                        elements[n].iter().map(|&(p, w)| w * f64::from(x[(outer * 3 + p) * inner + i]));
                    assert!((f64::from(*y) - terms.sum::<f64>()).abs() < 1e-6, "{inner}: {at}");
                }
            }
        });
    }

    #[test]
    fn elements_are_picked() {
        let taps = Taps::new(&[vec![(1, 1.0)], vec![(0, 1.0)], vec![(1, 1.0)]]);
        let mut out = [0.0; 6];
        resize_axis(&[1.0, 2.0, 3.0, 4.0], [1, 2, 2], &taps, &mut out);
        assert_eq!(out, [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
        resize_axis(&[1.0, f32::NAN, 3.0, 4.0], [2, 2, 1], &taps, &mut out);
        assert!(out[0].is_nan() && out[2].is_nan());
        assert_eq!((out[1], &out[3..]), (1.0, &[4.0, 3.0, 4.0][..]));
    }
}
