//! Pooling of `[batch, channels, spatial…]` with 1 to 3 spatial dims.
//!
//! For each row of the result, the rows of the image that its windows touch are folded into one, over which the windows
//! then slide.

use crate::conv::spatial;
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::threads::{self, SharedMut};
use alloc::vec::Vec;
use kiln_types::{PoolOp, PoolOptions};
use num_traits::Float;

/// The geometry of a pooling. Spatial entries are depth, height, width; missing ones are 1, in front.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolShape {
    /// Images.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Number of spatial dims that the caller sees.
    pub rank: usize,
    /// Size of an image.
    pub input: [usize; 3],
    /// Size of the window.
    pub kernel: [usize; 3],
    /// Step of the window.
    pub stride: [usize; 3],
    /// Distance between window elements.
    pub dilation: [usize; 3],
    /// Padding before and after.
    pub padding: [(usize, usize); 3],
    /// Size of a result.
    pub output: [usize; 3],
}

impl PoolShape {
    /// From the dims of `x` (`[batch, channels, spatial…]`).
    ///
    /// # Panics
    /// When the options do not fit `x`, or the window is larger than the padded image.
    pub fn new(x: &[usize], options: &PoolOptions) -> Self {
        assert!(x.len() >= 3, "pooling needs batch, channels and spatial dims, got {x:?}");
        assert_eq!(options.kernel.len(), x.len() - 2, "one window size per spatial dim");
        let (input, kernel) = (spatial(&x[2..], 1), spatial(&options.kernel, 1));
        let (stride, dilation) = (spatial(&options.stride, 1), spatial(&options.dilation, 1));
        let padding = spatial(&options.padding, (0, 0));
        let mut output = [0; 3];
        for i in 0..3 {
            assert!(stride[i] > 0 && dilation[i] > 0 && kernel[i] > 0, "stride, dilation or window of 0");
            let padded = input[i] + padding[i].0 + padding[i].1;
            let extent = (kernel[i] - 1) * dilation[i] + 1;
            output[i] = if padded >= extent {
                (padded - extent) / stride[i] + 1
            } else {
                assert!(options.ceil_mode, "a window of extent {extent} on {padded} padded elements");
                0
            };
            if options.ceil_mode {
                let hangs =
                    padded + stride[i] > extent && !(padded + stride[i] - extent).is_multiple_of(stride[i]);
                // A window may hang over the end, but must start before the end padding.
                if (hangs || output[i] == 0) && output[i] * stride[i] < input[i] + padding[i].0 {
                    output[i] += 1;
                }
            }
        }
        Self {
            batch: x[0],
            channels: x[1],
            rank: x.len() - 2,
            input,
            kernel,
            stride,
            dilation,
            padding,
            output,
        }
    }

    /// The dims of the result, `[batch, channels, spatial…]`.
    pub fn output_dims(&self) -> Vec<usize> {
        let mut dims = alloc::vec![self.batch, self.channels];
        dims.extend_from_slice(&self.output[3 - self.rank..]);
        dims
    }

    fn check(&self, x: &[f32], out: usize) {
        let input: usize = self.input.iter().product();
        let output: usize = self.output.iter().product();
        assert_eq!(x.len(), self.batch * self.channels * input, "size of the pooling's input");
        assert_eq!(out, self.batch * self.channels * output, "size of the pooling's output");
    }

    /// The coordinate that element `k` of the window of output `o` has, if it lies in the image.
    fn position(&self, axis: usize, o: usize, k: usize) -> Option<usize> {
        let p = o * self.stride[axis] + k * self.dilation[axis];
        p.checked_sub(self.padding[axis].0).filter(|&p| p < self.input[axis])
    }

    /// Calls `visit` with the start of each row of the image that the windows in row `y` of slice `z` touch.
    fn for_each_row(&self, z: usize, y: usize, mut visit: impl FnMut(usize)) {
        for z in (0..self.kernel[0]).filter_map(|k| self.position(0, z, k)) {
            for y in (0..self.kernel[1]).filter_map(|k| self.position(1, y, k)) {
                visit((z * self.input[1] + y) * self.input[2]);
            }
        }
    }

    /// For each output along an axis, how many of its window's elements count.
    fn counts(&self, axis: usize, include_pad: bool) -> Vec<f32> {
        let padded = self.input[axis] + self.padding[axis].0 + self.padding[axis].1;
        let counts = |o: usize, k: &usize| match include_pad {
            true => o * self.stride[axis] + k * self.dilation[axis] < padded,
            false => self.position(axis, o, *k).is_some(),
        };
        (0..self.output[axis])
            .map(|o| (0..self.kernel[axis]).filter(|k| counts(o, k)).count() as f32)
            .collect()
    }
}

/// What a window's elements are folded by.
#[derive(Clone, Copy)]
enum Fold {
    Max,
    Sum,
    /// The sum of `|x|^p`.
    Powers(u32),
}

impl Fold {
    fn neutral(self) -> f32 {
        if matches!(self, Fold::Max) { f32::NEG_INFINITY } else { 0.0 }
    }
}

/// Pools `x` into `out`. A NaN in a window makes its maximum NaN.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn pool(op: PoolOp, shape: &PoolShape, x: &[f32], out: &mut [f32]) {
    shape.check(x, out.len());
    if out.is_empty() {
        return;
    }
    let (input, output): (usize, usize) = (shape.input.iter().product(), shape.output.iter().product());
    let fold = match op {
        PoolOp::Max => Fold::Max,
        PoolOp::Average { .. } => Fold::Sum,
        PoolOp::Lp { p } => Fold::Powers(p),
    };
    let counts: Option<[Vec<f32>; 3]> = match op {
        PoolOp::Average { include_pad } => Some(core::array::from_fn(|axis| shape.counts(axis, include_pad))),
        _ => None,
    };
    let [_, oh, ow] = shape.output;
    // The widest row that a window touches, and a few vectors more.
    let width = (shape.input[2] + shape.padding[2].0 + shape.padding[2].1)
        .max((ow - 1) * shape.stride[2] + (shape.kernel[2] - 1) * shape.dilation[2] + 1);
    let work =
        output * shape.kernel[2] / 8 + oh * shape.kernel[0] * shape.kernel[1] * (shape.input[2] / 8 + 5);
    threads::parallel_chunks(out, output, work, |channel, out| {
        let x = &x[channel * input..(channel + 1) * input];
        with_scratch(width + SLACK, |row| {
            for (i, out) in out.chunks_mut(ow).enumerate() {
                let (z, y) = (i / oh, i % oh);
                row.fill(fold.neutral());
                shape.for_each_row(z, y, |start| {
                    let from = &x[start..start + shape.input[2]];
                    join_row(fold, from, &mut row[shape.padding[2].0..][..shape.input[2]]);
                });
                // SAFETY: windows lie in the row, behind which are `SLACK` more elements.
                unsafe {
                    let (step, dilation) = (shape.stride[2], shape.dilation[2]);
                    slide(matches!(fold, Fold::Max), row.as_ptr(), shape.kernel[2], step, dilation, out);
                }
                if let Some([depths, heights, widths]) = &counts {
                    let rows = depths[z] * heights[y];
                    out.iter_mut().zip(widths).for_each(|(x, width)| *x /= rows * width);
                }
                match fold {
                    Fold::Powers(2) => out.iter_mut().for_each(|x| *x = Float::sqrt(*x)),
                    Fold::Powers(p) if p != 1 => {
                        out.iter_mut().for_each(|x| *x = Float::powf(*x, 1.0 / p as f32))
                    }
                    _ => {}
                }
            }
        });
    });
}

/// Elements behind a row that vectors may read.
const SLACK: usize = 64;

/// Folds a row of the image into the row of folds.
fn join_row(fold: Fold, from: &[f32], to: &mut [f32]) {
    match fold {
        // SAFETY: both rows have one length.
        Fold::Max => unsafe { max_rows(from, to) },
        Fold::Sum => to.iter_mut().zip(from).for_each(|(y, x)| *y += x),
        Fold::Powers(1) => to.iter_mut().zip(from).for_each(|(y, x)| *y += Float::abs(*x)),
        Fold::Powers(2) => to.iter_mut().zip(from).for_each(|(y, x)| *y += x * x),
        Fold::Powers(p) => {
            to.iter_mut().zip(from).for_each(|(y, x)| *y += Float::powi(Float::abs(*x), p as i32))
        }
    }
}

dispatched! {
    /// `to = max(to, from)`; NaN wins.
    ///
    /// # Safety
    /// Both slices have one length.
    unsafe fn max_rows<S>(s, from: &[f32], to: &mut [f32]) {
        let (n, from, to) = (to.len(), from.as_ptr(), to.as_mut_ptr());
        let mut i = 0;
        while i < n {
            let count = S::LANES.min(n - i);
            let (a, b) = (s.load_up_to(to.add(i), count), s.load_up_to(from.add(i), count));
            s.store_up_to(to.add(i), count, s.select(s.eq(a, a), s.max(a, b), a));
            i += S::LANES;
        }
    }
}

dispatched! {
    /// `out[i] = fold over k < kernel of row[i · step + k · dilation]`: the maximum, in which NaN wins, or the sum.
    ///
    /// # Safety
    /// The row holds what is read, and 64 elements more.
    unsafe fn slide<S>(s, max: bool, row: *const f32, kernel: usize, step: usize, dilation: usize, out: &mut [f32]) {
        let neutral = s.splat(if max { f32::NEG_INFINITY } else { 0.0 });
        let mut i = 0;
        while i < out.len() {
            let count = S::LANES.min(out.len() - i);
            let mut fold = neutral;
            for k in 0..kernel {
                let from = row.add(i * step + k * dilation);
                let x = match step {
                    1 => s.load(from),
                    2 => s.load_even(from),
                    _ => {
                        let mut lanes = [0.0; 16];
                        for lane in 0..count {
                            lanes[lane] = *from.add(lane * step);
                        }
                        s.load(lanes.as_ptr())
                    }
                };
                fold = if max { s.select(s.eq(fold, fold), s.max(fold, x), fold) } else { s.add(fold, x) };
            }
            s.store_up_to(out.as_mut_ptr().add(i), count, fold);
            i += S::LANES;
        }
    }
}

/// Max pooling with the position of each maximum in the flattened spatial dims of its channel: the first among equals.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn max_pool_with_indices(shape: &PoolShape, x: &[f32], out: &mut [f32], indices: &mut [i64]) {
    shape.check(x, out.len());
    assert_eq!(out.len(), indices.len(), "as many indices as maxima");
    if out.is_empty() {
        return;
    }
    let (input, output): (usize, usize) = (shape.input.iter().product(), shape.output.iter().product());
    let indices = SharedMut::new(indices);
    let work = output * shape.kernel.iter().product::<usize>() * 2;
    threads::parallel_chunks(out, output, work, |channel, out| {
        let x = &x[channel * input..(channel + 1) * input];
        // SAFETY: channels are disjoint.
        let indices = unsafe { indices.slice(channel * output..(channel + 1) * output) };
        for (i, (y, index)) in out.iter_mut().zip(indices).enumerate() {
            let [_, oh, ow] = shape.output;
            let mut best: Option<(f32, usize)> = None;
            shape.for_each_row(i / (oh * ow), i / ow % oh, |start| {
                for k in 0..shape.kernel[2] {
                    let Some(p) = shape.position(2, i % ow, k) else { continue };
                    let value = x[start + p];
                    if best.is_none_or(|(max, _)| value > max || (value.is_nan() && !max.is_nan())) {
                        best = Some((value, start + p));
                    }
                }
            });
            let (max, at) = best.unwrap_or((f32::NEG_INFINITY, 0));
            (*y, *index) = (max, at as i64);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    struct Case {
        x: &'static [usize],
        kernel: &'static [usize],
        stride: &'static [usize],
        padding: &'static [(usize, usize)],
        dilation: &'static [usize],
        ceil_mode: bool,
        output: &'static [usize],
    }

    const CASES: &[Case] = &[
        Case {
            x: &[1, 3, 112, 57],
            kernel: &[3, 3],
            stride: &[2, 2],
            padding: &[(1, 1); 2],
            dilation: &[1, 1],
            ceil_mode: false,
            output: &[56, 29],
        },
        Case {
            x: &[2, 2, 9, 9],
            kernel: &[2, 2],
            stride: &[2, 2],
            padding: &[(0, 0); 2],
            dilation: &[1, 1],
            ceil_mode: true,
            output: &[5, 5],
        },
        Case {
            x: &[1, 2, 7, 40],
            kernel: &[3, 5],
            stride: &[1, 1],
            padding: &[(1, 1), (2, 2)],
            dilation: &[1, 1],
            ceil_mode: false,
            output: &[7, 40],
        },
        Case {
            x: &[1, 2, 10, 11],
            kernel: &[3, 2],
            stride: &[3, 3],
            padding: &[(0, 1), (1, 0)],
            dilation: &[2, 3],
            ceil_mode: true,
            output: &[3, 4],
        },
        Case {
            x: &[2, 3, 30],
            kernel: &[4],
            stride: &[4],
            padding: &[(1, 2)],
            dilation: &[1],
            ceil_mode: true,
            output: &[8],
        },
        Case {
            x: &[1, 2, 4, 5, 6],
            kernel: &[2, 3, 2],
            stride: &[2, 1, 2],
            padding: &[(0, 0), (1, 1), (0, 0)],
            dilation: &[1; 3],
            ceil_mode: false,
            output: &[2, 5, 3],
        },
        Case {
            x: &[2, 5, 7, 7],
            kernel: &[7, 7],
            stride: &[1, 1],
            padding: &[(0, 0); 2],
            dilation: &[1, 1],
            ceil_mode: false,
            output: &[1, 1],
        },
    ];

    /// Elements of a window, with their positions, and the number of places within the padded image.
    fn window(s: &PoolShape, x: &[f32], o: usize) -> (Vec<(f64, usize)>, usize) {
        let at = [o / (s.output[1] * s.output[2]), o / s.output[2] % s.output[1], o % s.output[2]];
        let [kd, kh, kw] = s.kernel;
        let (mut found, mut padded) = (Vec::new(), 0);
        for k in 0..kd * kh * kw {
            let k = [k / (kh * kw), k / kw % kh, k % kw];
            let p: [usize; 3] = core::array::from_fn(|a| at[a] * s.stride[a] + k[a] * s.dilation[a]);
            padded += usize::from((0..3).all(|a| p[a] < s.input[a] + s.padding[a].0 + s.padding[a].1));
            if (0..3).all(|a| p[a] >= s.padding[a].0 && p[a] - s.padding[a].0 < s.input[a]) {
                let q: [usize; 3] = core::array::from_fn(|a| p[a] - s.padding[a].0);
                let i = (q[0] * s.input[1] + q[1]) * s.input[2] + q[2];
                found.push((f64::from(x[i]), i));
            }
        }
        (found, padded)
    }

    #[test]
    fn pools_equal_their_definition() {
        let ops = [
            PoolOp::Max,
            PoolOp::Average { include_pad: false },
            PoolOp::Average { include_pad: true },
            PoolOp::Lp { p: 1 },
            PoolOp::Lp { p: 2 },
            PoolOp::Lp { p: 3 },
        ];
        let run = || {
            for case in CASES {
                let shape = PoolShape::new(
                    case.x,
                    &PoolOptions {
                        kernel: case.kernel.to_vec(),
                        stride: case.stride.to_vec(),
                        padding: case.padding.to_vec(),
                        dilation: case.dilation.to_vec(),
                        ceil_mode: case.ceil_mode,
                    },
                );
                assert_eq!(shape.output_dims()[2..], *case.output, "{:?}", case.x);
                let x = noise(case.x.iter().product(), 1);
                let (input, output): (usize, usize) =
                    (shape.input.iter().product(), shape.output.iter().product());
                let len = case.x[0] * case.x[1] * output;
                let (mut out, mut indices) = (vec![0.0; len], vec![0; len]);
                for op in ops {
                    pool(op, &shape, &x, &mut out);
                    for (i, got) in out.iter().enumerate() {
                        let (found, padded) = window(&shape, &x[i / output * input..][..input], i % output);
                        let values = found.iter().map(|v| v.0);
                        let want = match op {
                            PoolOp::Max => values.fold(f64::NEG_INFINITY, f64::max),
                            PoolOp::Average { include_pad } => {
                                values.sum::<f64>() / if include_pad { padded } else { found.len() } as f64
                            }
                            PoolOp::Lp { p } => {
                                values.map(|v| v.abs().powi(p as i32)).sum::<f64>().powf(1.0 / f64::from(p))
                            }
                        };
                        let close = (f64::from(*got) - want).abs() < 1e-4 * (1.0 + want.abs())
                            || f64::from(*got) == want;
                        assert!(close, "{op:?} {shape:?}: element {i} is {got}, not {want}");
                    }
                }
                max_pool_with_indices(&shape, &x, &mut out, &mut indices);
                for (i, (got, index)) in out.iter().zip(&indices).enumerate() {
                    let channel = &x[i / output * input..][..input];
                    let (found, _) = window(&shape, channel, i % output);
                    let max = found.iter().map(|v| v.0).fold(f64::NEG_INFINITY, f64::max);
                    assert_eq!(f64::from(*got), max);
                    assert!(found.is_empty() || channel[*index as usize] == *got);
                }
            }
        };
        at_each_level(|_| run());
        run();
    }

    #[test]
    fn nan_wins_in_maxima() {
        let mut x = noise(64, 1);
        x[27] = f32::NAN;
        let options = PoolOptions {
            kernel: vec![2, 2],
            stride: vec![2, 2],
            padding: vec![(0, 0); 2],
            dilation: vec![1, 1],
            ceil_mode: false,
        };
        let shape = PoolShape::new(&[1, 1, 8, 8], &options);
        at_each_level(|_| {
            let (mut out, mut indices) = ([0.0; 16], [0; 16]);
            pool(PoolOp::Max, &shape, &x, &mut out);
            assert!(out.iter().enumerate().all(|(i, y)| y.is_nan() == (i == 5)));
            max_pool_with_indices(&shape, &x, &mut out, &mut indices);
            assert!(out[5].is_nan() && indices[5] == 27);
        });
    }
}
