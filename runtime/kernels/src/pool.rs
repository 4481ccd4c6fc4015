//! Pooling of `[batch, channels, spatial…]` with 1 to 3 spatial dims.

use crate::conv::spatial;
use crate::threads;
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

    /// Calls `visit` with each element's position in the channel that the window of output `o` covers; yields the number of window
    /// elements that lie in the padded image.
    fn window(&self, o: usize, mut visit: impl FnMut(usize)) -> usize {
        let at =
            [o / (self.output[1] * self.output[2]), o / self.output[2] % self.output[1], o % self.output[2]];
        let [kd, kh, kw] = self.kernel;
        let mut padded = 0;
        for k in 0..kd * kh * kw {
            let k = [k / (kh * kw), k / kw % kh, k % kw];
            let mut inside = true;
            let mut in_padded = true;
            let mut offset = 0;
            for i in 0..3 {
                let p = at[i] * self.stride[i] + k[i] * self.dilation[i];
                in_padded &= p < self.input[i] + self.padding[i].0 + self.padding[i].1;
                inside &= p >= self.padding[i].0 && p < self.padding[i].0 + self.input[i];
                offset = if inside { offset * self.input[i] + p - self.padding[i].0 } else { 0 };
            }
            padded += usize::from(in_padded);
            if inside {
                visit(offset);
            }
        }
        padded
    }
}

/// Pools `x` into `out`. A NaN in a window makes its maximum NaN.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn pool(op: PoolOp, shape: &PoolShape, x: &[f32], out: &mut [f32]) {
    shape.check(x, out.len());
    let (input, output): (usize, usize) = (shape.input.iter().product(), shape.output.iter().product());
    let work = output * shape.kernel.iter().product::<usize>() * 2;
    if output == 0 {
        return;
    }
    threads::parallel_chunks(out, output, work, |channel, out| {
        let x = &x[channel * input..(channel + 1) * input];
        for (o, y) in out.iter_mut().enumerate() {
            *y = match op {
                PoolOp::Max => {
                    let mut max = f32::NEG_INFINITY;
                    shape.window(o, |p| max = if x[p] > max || x[p].is_nan() { x[p] } else { max });
                    max
                }
                PoolOp::Average { include_pad } => {
                    let (mut sum, mut count) = (0.0, 0);
                    let padded = shape.window(o, |p| {
                        sum += x[p];
                        count += 1;
                    });
                    sum / if include_pad { padded } else { count } as f32
                }
                PoolOp::Lp { p } => {
                    let mut sum = 0.0;
                    shape.window(o, |at| sum += Float::powi(Float::abs(x[at]), p as i32));
                    Float::powf(sum, 1.0 / p as f32)
                }
            };
        }
    });
}

/// Max pooling with the position of each maximum in the flattened spatial dims of its channel.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn max_pool_with_indices(shape: &PoolShape, x: &[f32], out: &mut [f32], indices: &mut [i64]) {
    shape.check(x, out.len());
    assert_eq!(out.len(), indices.len(), "as many indices as maxima");
    let (input, output): (usize, usize) = (shape.input.iter().product(), shape.output.iter().product());
    for (i, (y, index)) in out.iter_mut().zip(indices).enumerate() {
        let x = &x[i / output * input..][..input];
        let mut best: Option<(f32, usize)> = None;
        shape.window(i % output, |p| {
            if best.is_none_or(|(max, _)| x[p] > max || (x[p].is_nan() && !max.is_nan())) {
                best = Some((x[p], p));
            }
        });
        let (max, at) = best.unwrap_or((f32::NEG_INFINITY, 0));
        (*y, *index) = (max, at as i64);
    }
}
