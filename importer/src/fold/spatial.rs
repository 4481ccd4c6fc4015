//! Convolution and pooling; one and two spatial axes are three with size 1.

use super::elementwise::activate;
use super::{Elements, elements};
use kiln_types::{Activation, ConvOptions, ConvTransposeOptions, PoolOp, PoolOptions, TensorData};

/// Three spatial sizes, the missing ones in front.
fn three<T: Copy>(values: &[T], missing: T) -> Option<[T; 3]> {
    let mut all = [missing; 3];
    let skip = 3usize.checked_sub(values.len())?;
    all[skip..].copy_from_slice(values);
    Some(all)
}

/// Visits the cells of a box in row-major order.
fn each([a, b, c]: [usize; 3], mut visit: impl FnMut([usize; 3], usize)) {
    let mut n = 0;
    for i in 0..a {
        for j in 0..b {
            for k in 0..c {
                visit([i, j, k], n);
                n += 1;
            }
        }
    }
}

/// Windows that slide over three axes.
struct Windows {
    size: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    dilation: [usize; 3],
    padding: [(usize, usize); 3],
}

impl Windows {
    fn places(&self, ceil_mode: bool) -> Option<[usize; 3]> {
        let mut places = [0; 3];
        for (axis, place) in places.iter_mut().enumerate() {
            let (before, after) = self.padding[axis];
            let extent = (self.kernel[axis].checked_sub(1)?) * self.dilation[axis] + 1;
            let free = (self.size[axis] + before + after).checked_sub(extent)?;
            let stride = self.stride[axis].max(1);
            *place = if ceil_mode { free.div_ceil(stride) + 1 } else { free / stride + 1 };
            if ceil_mode && (*place - 1) * stride >= self.size[axis] + before {
                *place -= 1;
            }
        }
        Some(places)
    }

    /// The input cell under a kernel cell of the window at `place`; `None` in the padding.
    fn cell(&self, place: [usize; 3], kernel: [usize; 3]) -> Option<usize> {
        let mut at = 0;
        for axis in 0..3 {
            let i = (place[axis] * self.stride[axis] + kernel[axis] * self.dilation[axis])
                .checked_sub(self.padding[axis].0)
                .filter(|&i| i < self.size[axis])?;
            at = at * self.size[axis] + i;
        }
        Some(at)
    }

    /// Whether a kernel cell lies within the padded input (hanging over it in ceil mode, it does not).
    fn in_padding(&self, place: [usize; 3], kernel: [usize; 3]) -> bool {
        (0..3).all(|axis| {
            let i = place[axis] * self.stride[axis] + kernel[axis] * self.dilation[axis];
            i < self.size[axis] + self.padding[axis].0 + self.padding[axis].1
        })
    }
}

/// The full shape of a result with the given channels and places, at the input's rank.
fn result_shape(x: &TensorData, channels: usize, places: [usize; 3]) -> Vec<usize> {
    [&[x.shape[0], channels], &places[3 - (x.shape.len() - 2)..]].concat()
}

pub(super) fn conv(
    x: &TensorData,
    weight: &TensorData,
    bias: Option<&TensorData>,
    options: &ConvOptions,
    activation: Option<Activation>,
) -> Option<TensorData> {
    if !x.dtype.is_float() {
        // Sums of integers wrap, which these do not.
        return None;
    }
    let windows = Windows {
        size: three(x.shape.get(2..)?, 1)?,
        kernel: three(weight.shape.get(2..)?, 1)?,
        stride: three(&options.stride, 1)?,
        dilation: three(&options.dilation, 1)?,
        padding: three(&options.padding, (0, 0))?,
    };
    let places = windows.places(false)?;
    let (batch, out_channels, in_group) = (x.shape[0], weight.shape[0], weight.shape[1]);
    let out_group = out_channels.checked_div(options.groups)?;
    let (cells, taps): (usize, usize) = (elements(&windows.size), elements(&windows.kernel));
    let (xs, ws) = (Elements::load(x).floats(), Elements::load(weight).floats());
    let bias = bias.map(|bias| Elements::load(bias).floats());
    let mut out = Vec::new();
    for b in 0..batch {
        for o in 0..out_channels {
            let first = b * x.shape[1] + o / out_group.max(1) * in_group;
            each(places, |place, _| {
                let mut sum = bias.as_ref().map_or(0.0, |bias| bias[o]);
                each(windows.kernel, |tap, t| {
                    if let Some(cell) = windows.cell(place, tap) {
                        for c in 0..in_group {
                            sum += xs[(first + c) * cells + cell] * ws[(o * in_group + c) * taps + t];
                        }
                    }
                });
                out.push(activation.map_or(sum, |activation| activate(activation, sum)));
            });
        }
    }
    Some(Elements::Float(out).store(x.dtype, result_shape(x, out_channels, places)))
}

pub(super) fn conv_transpose(
    x: &TensorData,
    weight: &TensorData,
    bias: Option<&TensorData>,
    options: &ConvTransposeOptions,
) -> Option<TensorData> {
    let size = three(x.shape.get(2..)?, 1usize)?;
    let kernel = three(weight.shape.get(2..)?, 1usize)?;
    let (stride, dilation) = (three(&options.stride, 1)?, three(&options.dilation, 1)?);
    let (padding, extra) = (three(&options.padding, (0, 0))?, three(&options.output_padding, 0)?);
    let mut places = [0; 3];
    for axis in 0..3 {
        let full = size[axis].checked_sub(1)? * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1;
        places[axis] = (full + extra[axis]).checked_sub(padding[axis].0 + padding[axis].1)?;
    }
    let (in_channels, out_group) = (weight.shape[0], weight.shape[1]);
    let channels = out_group.checked_mul(options.groups)?;
    let in_group = in_channels.checked_div(options.groups)?;
    let count = |dims: [usize; 3]| elements(&dims);
    let (cells, taps, spots) = (count(size), count(kernel), count(places));
    let (xs, ws) = (Elements::load(x).floats(), Elements::load(weight).floats());
    let bias = bias.map(|bias| Elements::load(bias).floats());
    let mut out: Vec<f64> = (0..x.shape[0] * channels * spots)
        .map(|i| bias.as_ref().map_or(0.0, |bias| bias[i / spots.max(1) % channels]))
        .collect();
    for b in 0..x.shape[0] {
        for c in 0..in_channels {
            each(size, |cell, n| {
                let value = xs[(b * in_channels + c) * cells + n];
                each(kernel, |tap, t| {
                    let mut at = 0;
                    for axis in 0..3 {
                        let i = (cell[axis] * stride[axis] + tap[axis] * dilation[axis])
                            .checked_sub(padding[axis].0)
                            .filter(|&i| i < places[axis]);
                        let Some(i) = i else {
                            return;
                        };
                        at = at * places[axis] + i;
                    }
                    for o in 0..out_group {
                        let channel = c / in_group.max(1) * out_group + o;
                        let w = ws[(c * out_group + o) * taps + t];
                        out[(b * channels + channel) * spots + at] += value * w;
                    }
                });
            });
        }
    }
    Some(Elements::Float(out).store(x.dtype, result_shape(x, channels, places)))
}

pub(super) fn pool(op: PoolOp, x: &TensorData, options: &PoolOptions) -> Option<TensorData> {
    let windows = Windows {
        size: three(x.shape.get(2..)?, 1)?,
        kernel: three(&options.kernel, 1)?,
        stride: three(&options.stride, 1)?,
        dilation: three(&options.dilation, 1)?,
        padding: three(&options.padding, (0, 0))?,
    };
    let places = windows.places(options.ceil_mode)?;
    let cells: usize = elements(&windows.size);
    let xs = Elements::load(x).floats();
    let mut out = Vec::new();
    for plane in 0..x.shape[0] * x.shape[1] {
        each(places, |place, _| {
            let (mut inside, mut padded) = (Vec::new(), 0usize);
            each(windows.kernel, |tap, _| {
                padded += usize::from(windows.in_padding(place, tap));
                inside.extend(windows.cell(place, tap).map(|cell| xs[plane * cells + cell]));
            });
            out.push(match op {
                PoolOp::Max => inside.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                PoolOp::Average { include_pad } => {
                    let count = if include_pad { padded } else { inside.len() };
                    inside.iter().sum::<f64>() / count as f64
                }
                PoolOp::Lp { p } => {
                    let p = f64::from(p);
                    inside.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p)
                }
            });
        });
    }
    Some(Elements::Float(out).store(x.dtype, result_shape(x, x.shape[1], places)))
}

pub(super) fn adaptive_pool(x: &TensorData, output_size: &[usize]) -> Option<TensorData> {
    let (size, places) = (three(x.shape.get(2..)?, 1usize)?, three(output_size, 1usize)?);
    let cells: usize = elements(&size);
    let xs = Elements::load(x).floats();
    let mut out = Vec::new();
    for plane in 0..x.shape[0] * x.shape[1] {
        each(places, |place, _| {
            let start: [usize; 3] = std::array::from_fn(|i| place[i] * size[i] / places[i]);
            let end: [usize; 3] = std::array::from_fn(|i| ((place[i] + 1) * size[i]).div_ceil(places[i]));
            let mut sum = 0.0;
            let extent: [usize; 3] = std::array::from_fn(|i| end[i] - start[i]);
            each(extent, |at, _| {
                let cell = (0..3).fold(0, |n, i| n * size[i] + start[i] + at[i]);
                sum += xs[plane * cells + cell];
            });
            out.push(sum / elements(&extent) as f64);
        });
    }
    Some(Elements::Float(out).store(x.dtype, result_shape(x, x.shape[1], places)))
}
