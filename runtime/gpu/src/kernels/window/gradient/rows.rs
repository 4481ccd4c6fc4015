//! The gradient of a convolution's weight where shared memory is no faster than any other: an invocation sums the weights of a row of the
//! window for several output channels, so that what it reads of the image serves several neighbours, and what it reads of the gradient all
//! lanes.

use super::super::super::block;
use super::super::super::direct::{LANES, Side};
use super::super::super::reduce::reduce_leading;
use super::super::super::tune::{self, Name, Variant};
use super::super::rows::{ImageRow, MOST_UNROLLED, WIDEST_UNROLLED, channels_of_block, columns};
use super::super::{Geometry, Sizes, zero};
use super::{Gradient, LONGEST};
use crate::language::{Builder, Builtin, Kernel, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::{DType, Shape};

/// The gradient of a convolution's weight by rows of windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowWeightGradient {
    /// The dtype of input and gradient.
    pub dtype: DType,
    /// The results' dtype, which is computed as the other's elements are.
    pub result: DType,
    /// The windows.
    pub geometry: Geometry,
    /// Whether windows reach beyond the image.
    pub padded: bool,
    /// Output channels of an invocation; of single ones, lanes differ in the output channel too.
    pub channels: u32,
    /// Neighbours that are summed at once: all of a row's are so many.
    pub pixels: u32,
}

impl RowWeightGradient {
    fn elements(&self) -> u32 {
        let [_, _, wide] = self.geometry.kernel;
        if wide <= WIDEST_UNROLLED { wide } else { 1 }
    }

    /// The kernel. Parameters: its `block`; groups, channels a group of input and output; images; rows of a part; the sizes. Along x are the
    /// rows of a channel's window (or, of wide windows, its elements), along y the blocks of output channels, along z parts and, inside them,
    /// groups; of single output channels, all groups and their channels are along x.
    pub fn kernel(&self) -> Kernel {
        let (storage, result) = (held_as(self.dtype), held_as(self.result));
        let ty = storage.value();
        Builder::kernel("row_weight_gradient", [LANES, 1], |k| {
            let x = k.input(storage);
            let gradient = Side::declare(k, self.dtype, self.pixels.is_multiple_of(4));
            let output = k.output(result);
            let [block_at, block_channel, place] = block(k);
            let [groups, in_channels, out_channels] = [k.parameter(), k.parameter(), k.parameter()];
            let (images, run) = (k.parameter(), k.parameter());
            let sizes = Sizes::declare(k);
            let Geometry { kernel: [deep, high, wide], stride, dilation } = self.geometry;
            let ([depth, height, width], [depth_out, height_out, width_out]) = (sizes.input, sizes.output);

            let elements = self.elements();
            let each = wide / elements;
            let rows_of_window = in_channels * (deep * high * each);
            let own = block_at * LANES + k.builtin(Builtin::LocalX);
            let all =
                if self.channels == 1 { rows_of_window * out_channels * groups } else { rows_of_window };
            // An invocation beyond the last repeats it, and writes nothing.
            let at = own.min(all - 1_u32);
            let (of, at) = (at / rows_of_window, at % rows_of_window);
            let (group, channel, part) = match self.channels {
                1 => (of / out_channels, of % out_channels, place),
                channels => (place % groups, block_channel * channels, place / groups),
            };
            // The element of the window that its row begins with, counted over all channels.
            let (kx, row) = (at % each, at / each);
            let (ky, kz, from) = (row % high, row / high % deep, row / (high * deep));

            let column = |pixel: u32, element: u32| pixel * stride[2] + element * dilation[2];
            let columns = columns(self.pixels, elements, column);
            let sums: Vec<Vec<_>> = (0..self.channels)
                .map(|_| (0..elements).map(|_| k.variable(zero(k, ty))).collect())
                .collect();
            let rows = images * depth_out * height_out;
            let start = part * run;
            k.range(start, (start + run).min(rows), 1_u32, |row| {
                let (y, z) = (row % height_out, row / height_out % depth_out);
                let place = row / (height_out * depth_out) * groups + group;
                let met_z = z * stride[0] + kz * dilation[0] - sizes.before[0];
                let met_y = y * stride[1] + ky * dilation[1] - sizes.before[1];
                let inside = met_z.below(depth) & met_y.below(height);
                let image = (place * in_channels + from) * depth + met_z.min(depth - 1_u32);
                let start = (image * height + met_y.min(height - 1_u32)) * width;
                let inside = self.padded.then_some(inside);
                let image = ImageRow { x, start, width, inside, before: sizes.before[2] };
                let of_channel = |n: u32| {
                    (((place * out_channels + channel + n) * depth_out + z) * height_out + y) * width_out
                };
                k.range(0_u32, width_out, self.pixels, |first| {
                    let read = image.read(first * stride[2] + kx * dilation[2], &columns);
                    for (n, sums) in (0_u32..).zip(&sums) {
                        let of_row = gradient.run(of_channel(n) + first, k.value(1_u32), self.pixels);
                        for (pixel, &arrives) in (0_u32..).zip(&of_row) {
                            for (element, sum) in (0_u32..).zip(sums) {
                                let place = columns.binary_search(&column(pixel, element));
                                let x: Value<'_> = read[place.unwrap_or(0)];
                                sum.set(arrives.fma(x, sum.get()));
                            }
                        }
                    }
                });
            });

            let weights = in_channels * (deep * high * wide);
            for (n, sums) in (0_u32..).zip(&sums) {
                let row = (part * groups + group) * out_channels + channel + n;
                for (element, sum) in (0_u32..).zip(sums) {
                    k.when(own.below(all), || {
                        output.set(row * weights + at * elements + element, sum.get());
                    });
                }
            }
        })
    }
}

/// See [`super::conv_weight_gradient`]; none of the tensors is empty.
pub(super) fn weight_gradient<R: Runtime>(
    of: &Gradient,
    x: &GpuTensor<R>,
    gradient: &GpuTensor<R>,
    weight: &Shape,
) -> GpuTensor<R> {
    let (dtype, device, geometry) = (gradient.dtype, &gradient.device, of.geometry());
    let channels = channels_of_block(of.out_channels);
    let [deep, high, wide] = geometry.kernel;
    let elements = if wide <= WIDEST_UNROLLED { wide } else { 1 };
    let width = of.windows.output[2];
    let most = (MOST_UNROLLED / (channels * elements)).max(1);
    let mut lengths = [16, 12, 8, 4, 14, 7, 6, 5, 3, 2, 1].into_iter().filter(|&pixels| pixels <= most);
    let fits = |pixels: &u32| width.is_multiple_of(*pixels as usize);
    let padded = of.windows.padding.iter().any(|&(before, after)| before + after > 0);

    let lanes = of.in_channels * (deep * high * (wide / elements)) as usize;
    let (lanes, blocks, groups) = match channels {
        1 => (lanes * of.out_channels * of.groups, 1, 1),
        _ => (lanes, of.out_channels / channels as usize, of.groups),
    };
    let across = lanes.div_ceil(LANES as usize);
    let rows = of.batch * of.windows.output[0] * of.windows.output[1];
    let (parts, run) =
        of.parts(rows, LONGEST.div_ceil(width), 512_usize.div_ceil(width), across * blocks * groups);
    let result = if parts == 1 { dtype } else { computed_in(dtype) };
    let out = GpuTensor::empty(Shape::from([parts, of.weights()]), result, device);
    let variant = |pixels| {
        let template = RowWeightGradient { dtype, result, geometry, padded, channels, pixels };
        let blocks = [across, blocks, parts * groups];
        Variant { name: Name::Pixels(pixels), template: template.into(), blocks }
    };
    let usual = variant(lengths.find(fits).unwrap_or(1));
    let others = || lengths.filter(fits).map(variant).collect();
    let class = || format!("{} of {width}", of.class(dtype));
    tune::launch_fastest::<R>(device, class, usual, others, &[x, gradient, &out], &of.words(run));
    reduce_leading(out, dtype, weight)
}
