//! Pooling of `[batch, channels, spatial…]` with 1 to 3 spatial dims, and of `[batch, spatial…, channels]`.
//!
//! For each row of the result, the rows of the image that its windows touch are reduced into one, over which the windows
//! then slide.

mod channels_last;
mod gradient;
mod shape;

pub use channels_last::{max_pool_rounded, pool_channels_last};
pub use gradient::{PoolGradient, pool_gradient_channels_last};
pub use shape::PoolShape;

use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::threads::{self, SharedMut};
use core::ops::Range;
use kiln_types::{PoolOp, Windows};
use num_traits::Float;

/// What a window's elements are reduced by.
#[derive(Clone, Copy)]
enum Reducer {
    Max,
    Sum,
    /// The sum of `|x|^p`.
    Powers(u32),
}

impl Reducer {
    fn neutral(self) -> f32 {
        if matches!(self, Reducer::Max) { f32::NEG_INFINITY } else { 0.0 }
    }

    /// What a pooling reduces by.
    fn of(op: PoolOp) -> Self {
        match op {
            PoolOp::Max => Reducer::Max,
            PoolOp::Average { .. } => Reducer::Sum,
            PoolOp::Lp { p } => Reducer::Powers(p),
        }
    }

    /// The roots of sums of powers.
    fn finish(self, out: &mut [f32]) {
        match self {
            Reducer::Powers(2) => out.iter_mut().for_each(|x| *x = Float::sqrt(*x)),
            Reducer::Powers(p) if p != 1 => out.iter_mut().for_each(|x| *x = Float::powf(*x, 1.0 / p as f32)),
            _ => {}
        }
    }
}

/// Lends, for averages, how many elements of each window count, along each axis.
fn with_counts<R>(op: PoolOp, windows: &Windows, body: impl FnOnce(Option<[&[f32]; 3]>) -> R) -> R {
    let PoolOp::Average { include_pad } = op else { return body(None) };
    let [depths, heights, widths] = windows.output;
    with_scratch(depths + heights + widths, |space| {
        let (first, rest) = space.split_at_mut(depths);
        let (second, third) = rest.split_at_mut(heights);
        let mut counts = [first, second, third];
        for (axis, counts) in counts.iter_mut().enumerate() {
            counts
                .iter_mut()
                .enumerate()
                .for_each(|(o, to)| *to = windows.elements(axis, o, include_pad) as f32);
        }
        body(Some(counts.map(|counts| &*counts)))
    })
}

/// Pools `x` into `out`. A NaN in a window makes its maximum NaN.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn pool(op: PoolOp, shape: &PoolShape, x: &[f32], out: &mut [f32]) {
    shape.check(x.len(), out.len());
    if out.is_empty() {
        return;
    }
    with_counts(op, &shape.windows, |counts| pooled(Reducer::of(op), shape, counts, x, out));
}

/// [`pool`], whose operands have their sizes.
fn pooled(reducer: Reducer, shape: &PoolShape, counts: Option<[&[f32]; 3]>, x: &[f32], out: &mut [f32]) {
    let (input, output) = (shape.windows.input_len(), shape.windows.output_len());
    let [_, oh, ow] = shape.windows.output;
    let Reach { windows, width, image, at } = Reach::of(&shape.windows);
    let work = output * shape.windows.kernel[2] / 8
        + oh * shape.windows.kernel[0] * shape.windows.kernel[1] * (shape.windows.input[2] / 8 + 5);
    threads::parallel_chunks(out, output, work, |channel, out| {
        let x = &x[channel * input..(channel + 1) * input];
        with_scratch(width + SLACK, |row| {
            for (i, out) in out.chunks_mut(ow).enumerate() {
                let (z, y) = (i / oh, i % oh);
                row.fill(reducer.neutral());
                out.fill(reducer.neutral());
                shape.for_each_row(z, y, |start| {
                    let from = &x[start + image.start..start + image.end];
                    join_row(reducer, from, &mut row[at..][..image.len()]);
                });
                // SAFETY: windows lie in the row, behind which are `SLACK` more elements.
                unsafe {
                    let (step, dilation) = (shape.windows.stride[2], shape.windows.dilation[2]);
                    slide(
                        matches!(reducer, Reducer::Max),
                        row.as_ptr(),
                        shape.windows.kernel[2],
                        step,
                        dilation,
                        &mut out[windows.clone()],
                    );
                }
                if let Some([depths, heights, widths]) = counts {
                    let rows = depths[z] * heights[y];
                    out.iter_mut().zip(widths).for_each(|(x, width)| *x /= rows * width);
                }
                reducer.finish(out);
            }
        });
    });
}

/// What windows along a row see of it. Those that lie in the padding alone see nothing, however far that reaches.
struct Reach {
    /// The windows that see some of the image.
    windows: Range<usize>,
    /// Elements from the first that these reach to the last.
    width: usize,
    /// The elements of the image among them.
    image: Range<usize>,
    /// Where the first of these lies.
    at: usize,
}

impl Reach {
    fn of(windows: &Windows) -> Self {
        let [.., input] = windows.input;
        let (before, stride) = (windows.padding[2].0, windows.stride[2]);
        let extent = (windows.kernel[2] - 1) * windows.dilation[2] + 1;
        let end = (before + input).div_ceil(stride).min(windows.output[2]);
        let first = (before + 1).saturating_sub(extent).div_ceil(stride).min(end);
        let Some(last) = (first..end).last() else {
            return Self { windows: 0..0, width: 0, image: 0..0, at: 0 };
        };
        let (from, to) = (first * stride, last * stride + extent);
        let image = from.saturating_sub(before).min(input)..to.saturating_sub(before).min(input);
        Self { windows: first..end, width: to - from, at: before.saturating_sub(from), image }
    }
}

/// Elements behind a row that vectors may read.
const SLACK: usize = 64;

/// Reduces a row of the image into the row of results.
fn join_row(reducer: Reducer, from: &[f32], to: &mut [f32]) {
    match reducer {
        // SAFETY: both rows have one length.
        Reducer::Max => unsafe { max_rows(from, to) },
        Reducer::Sum => to.iter_mut().zip(from).for_each(|(y, x)| *y += x),
        Reducer::Powers(1) => to.iter_mut().zip(from).for_each(|(y, x)| *y += Float::abs(*x)),
        Reducer::Powers(2) => to.iter_mut().zip(from).for_each(|(y, x)| *y += x * x),
        Reducer::Powers(p) => {
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
    /// `out[i] = reduction over k < kernel of row[i · step + k · dilation]`: the maximum, in which NaN wins, or the sum.
    ///
    /// # Safety
    /// The row holds what is read, and 64 elements more.
    unsafe fn slide<S>(s, max: bool, row: *const f32, kernel: usize, step: usize, dilation: usize, out: &mut [f32]) {
        let neutral = s.splat(if max { f32::NEG_INFINITY } else { 0.0 });
        let mut i = 0;
        while i < out.len() {
            let count = S::LANES.min(out.len() - i);
            let mut reducer = neutral;
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
                reducer = if max { s.select(s.eq(reducer, reducer), s.max(reducer, x), reducer) } else { s.add(reducer, x) };
            }
            s.store_up_to(out.as_mut_ptr().add(i), count, reducer);
            i += S::LANES;
        }
    }
}

/// Max pooling with the position of each maximum in the flattened spatial dims of its channel: the first among equals.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn max_pool_with_indices(shape: &PoolShape, x: &[f32], out: &mut [f32], indices: &mut [i64]) {
    shape.check(x.len(), out.len());
    assert_eq!(out.len(), indices.len(), "as many indices as maxima");
    if out.is_empty() {
        return;
    }
    let (input, output) = (shape.windows.input_len(), shape.windows.output_len());
    let indices = SharedMut::new(indices);
    let work = output * shape.windows.kernel.iter().product::<usize>() * 2;
    threads::parallel_chunks(out, output, work, |channel, out| {
        let x = &x[channel * input..(channel + 1) * input];
        // SAFETY: channels are disjoint.
        let indices = unsafe { indices.slice(channel * output..(channel + 1) * output) };
        for (i, (y, index)) in out.iter_mut().zip(indices).enumerate() {
            let [_, oh, ow] = shape.windows.output;
            let mut best: Option<(f32, usize)> = None;
            shape.for_each_row(i / (oh * ow), i / ow % oh, |start| {
                for k in 0..shape.windows.kernel[2] {
                    let Some(p) = shape.windows.position(2, i % ow, k) else { continue };
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
mod tests;
