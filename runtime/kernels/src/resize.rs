//! Resizing one axis: each element of the result is a weighted sum of few elements of the input.

use crate::simd::dispatched;
use crate::size::elements;
use crate::threads;
use alloc::{vec, vec::Vec};

/// Where each element of a resized axis comes from.
#[derive(Clone, Debug, Default)]
pub struct Taps {
    /// Where the taps of each element start, and where the last ones end.
    starts: Vec<usize>,
    positions: Vec<usize>,
    weights: Vec<f32>,
    /// Elements of the input that are read: all positions lie below.
    reach: usize,
}

impl Taps {
    /// From the positions and weights of each element; one without any is 0.
    pub fn new<E: AsRef<[(usize, f64)]>>(elements: impl IntoIterator<Item = E>) -> Self {
        let mut taps = Self::default();
        taps.refill(elements);
        taps
    }

    /// [`Taps::new`] in the memory of others.
    pub fn refill<E: AsRef<[(usize, f64)]>>(&mut self, elements: impl IntoIterator<Item = E>) {
        let Self { starts, positions, weights, reach } = self;
        starts.clear();
        positions.clear();
        weights.clear();
        *reach = 0;
        starts.push(0);
        for element in elements {
            for &(position, weight) in element.as_ref() {
                positions.push(position);
                weights.push(weight as f32);
                *reach = (*reach).max(position.saturating_add(1));
            }
            starts.push(positions.len());
        }
    }

    /// The taps that carry a gradient back to an axis of `input` elements: each of its elements gets of every result what it gave.
    pub fn adjoint<E: AsRef<[(usize, f64)]>>(elements: impl IntoIterator<Item = E>, input: usize) -> Self {
        let mut back = vec![Vec::new(); input];
        for (n, element) in elements.into_iter().enumerate() {
            element.as_ref().iter().for_each(|&(position, weight)| back[position].push((n, weight)));
        }
        Self::new(&back)
    }

    /// Elements of the resized axis.
    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Whether the resized axis is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Positions and weights of element `n`.
    fn of(&self, n: usize) -> (&[usize], &[f32]) {
        let range = self.starts[n]..self.starts[n + 1];
        (&self.positions[range.clone()], &self.weights[range])
    }

    /// Whether each element is one of the input's.
    fn are_picks(&self) -> bool {
        self.starts.windows(2).all(|ends| ends[1] - ends[0] == 1)
            && self.weights.iter().all(|&weight| weight == 1.0)
    }
}

/// Resizes the middle axis of `x`, `[outer, input, inner]`, into `out`, `[outer, taps.len(), inner]`.
///
/// # Panics
/// When a slice does not have its size, or a tap lies outside of the input.
pub fn resize_axis(x: &[f32], [outer, input, inner]: [usize; 3], taps: &Taps, out: &mut [f32]) {
    assert_eq!(x.len(), elements(&[outer, input, inner]), "size of what is resized");
    assert_eq!(out.len(), elements(&[outer, taps.len(), inner]), "size of the resized");
    if out.is_empty() {
        return;
    }
    assert!(taps.reach <= input, "a tap at {} of {input}", taps.reach - 1);
    let picks = taps.are_picks();
    if inner == 1 {
        let work = (taps.len() + taps.positions.len()) / 2 + 1;
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
    let work = inner * (taps.positions.len() / taps.len()) / 8 + 1;
    threads::parallel_chunks(out, inner, work, |row, out| {
        let (positions, weights) = taps.of(row % taps.len());
        let x = &x[row / taps.len() * input * inner..][..input * inner];
        if picks {
            return out.copy_from_slice(&x[positions[0] * inner..][..inner]);
        }
        // SAFETY: all positions lie within the input's rows, which have the length of `out`.
        unsafe { mix_rows(x.as_ptr(), positions, weights, out) };
    });
}

/// Vectors that are mixed at once.
const VECTORS: usize = 4;

dispatched! {
    /// `out = Σ weight · row`, for the rows at `positions` of a matrix whose rows have the length of `out`.
    ///
    /// # Safety
    /// The matrix has these rows; there are as many weights as positions.
    unsafe fn mix_rows<S>(s, rows: *const f32, positions: &[usize], weights: &[f32], out: &mut [f32]) {
        let (n, out) = (out.len(), out.as_mut_ptr());
        let mut i = 0;
        // Several vectors at once, so that the sums do not wait for each other.
        while i + VECTORS * S::LANES <= n {
            let mut sums = [s.splat(0.0); VECTORS];
            for k in 0..positions.len() {
                let (row, weight) = (rows.add(positions[k] * n + i), s.splat(weights[k]));
                for v in 0..VECTORS {
                    sums[v] = s.mul_add(weight, s.load(row.add(v * S::LANES)), sums[v]);
                }
            }
            for v in 0..VECTORS {
                s.store(out.add(i + v * S::LANES), sums[v]);
            }
            i += VECTORS * S::LANES;
        }
        while i < n {
            let count = S::LANES.min(n - i);
            let mut sum = s.splat(0.0);
            for k in 0..positions.len() {
                let row = s.load_up_to(rows.add(positions[k] * n + i), count);
                sum = s.mul_add(s.splat(weights[k]), row, sum);
            }
            s.store_up_to(out.add(i), count, sum);
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
            for inner in [1, 7, 40, 150] {
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
    fn adjoint_taps_give_back() {
        let elements =
            [vec![(0, 1.0)], vec![(0, 0.25), (3, 0.75)], vec![(2, 0.5), (3, 0.25), (0, 0.25)], vec![]];
        let (taps, back) = (Taps::new(&elements), Taps::adjoint(&elements, 5));
        for inner in [1, 6] {
            let (x, g) = (noise(2 * 5 * inner, 1), noise(2 * 4 * inner, 2));
            let (mut y, mut of_x) = (vec![0.0; g.len()], vec![f32::NAN; x.len()]);
            resize_axis(&x, [2, 5, inner], &taps, &mut y);
            resize_axis(&g, [2, 4, inner], &back, &mut of_x);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            assert!((dot(&y, &g) - dot(&x, &of_x)).abs() < 1e-5, "{inner}");
            // Nothing came of it.
            assert!(of_x[inner..2 * inner].iter().all(|&x| x == 0.0));
        }
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
