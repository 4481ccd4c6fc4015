//! Convolutions where shared memory is no faster than any other: an invocation computes neighbours in a row of several channels, so that
//! what it reads of the image serves several windows, and what it reads of the weights all of its neighbours.

use super::super::direct::{Bias, LANES, Side, least_left_over};
use super::super::elementwise::{self, from_start};
use super::super::matmul::{Epilogue, Product};
use super::super::then::{self, Then};
use super::super::tune::{self, Variant};
use super::super::{access::Walk, block};
use super::{Geometry, Sizes, zero};
use crate::language::{Buffer, Builder, Builtin, Kernel, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::backend::Layout;
use kiln_tensor::{Activation, DType, Shape, Windows};

/// The most products for which an invocation has a line of code each.
const MOST_UNROLLED: u32 = 512;
/// The widest windows whose elements are unrolled.
const WIDEST_UNROLLED: u32 = 8;

/// A convolution by rows of the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowConv {
    /// The elements' dtype.
    pub dtype: DType,
    /// The windows.
    pub geometry: Geometry,
    /// Whether windows reach beyond the image.
    pub padded: bool,
    /// Output channels of an invocation. Where they are a multiple of four, the weights lie by them: blocks of so many channels, in each of
    /// which the channels of one element of the window follow one another.
    pub channels: u32,
    /// Neighbours of an invocation.
    pub pixels: u32,
    /// Whether a bias is added to each channel.
    pub bias: bool,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// And what came after that.
    pub then: Vec<Then>,
}

/// A row of an image, or one of its padding.
struct ImageRow<'k> {
    x: Buffer<'k>,
    start: Value<'k>,
    width: Value<'k>,
    inside: Value<'k>,
    /// Columns of the padding in front.
    before: Value<'k>,
}

impl RowConv {
    fn is_packed(&self) -> bool {
        self.channels.is_multiple_of(4)
    }

    fn unrolls(&self) -> bool {
        self.geometry.kernel[2] <= WIDEST_UNROLLED
    }

    /// The elements of an image's row in the given columns, counted from `first`; 0 beyond the image.
    fn read<'k>(&self, row: &ImageRow<'k>, first: Value<'k>, columns: &[u32]) -> Vec<Value<'k>> {
        let of_column = |&column: &u32| {
            let column = first + column - row.before;
            let element = row.x.at(row.start + column.min(row.width - 1_u32));
            match self.padded {
                true => (row.inside & column.below(row.width))
                    .select(element, zero(element.kernel(), element.ty())),
                false => element,
            }
        };
        columns.iter().map(of_column).collect()
    }

    /// The kernel. Parameters: its `block`; groups, channels a group of input and output; the sizes.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("row_conv", [LANES, 1], |k| {
            let x = k.input(storage);
            let weight = Side::declare(k, self.dtype, self.is_packed());
            let epilogue =
                Epilogue { bias: self.bias.then(|| k.input(storage)), activation: self.activation };
            let output = k.output(storage);
            // Neighbours, channels, images times groups.
            let [block_at, block_channel, place] = block(k);
            let [groups, in_channels, out_channels] = [k.parameter(), k.parameter(), k.parameter()];
            let sizes = Sizes::declare(k);
            let then = then::declare(k, &self.then);

            // Blocks of a row, rows of an image.
            let [depth_out, height_out, width_out] = sizes.output;
            let blocks = (width_out + (self.pixels - 1)) / self.pixels;
            let own = block_at * LANES + k.builtin(Builtin::LocalX);
            let all = blocks * height_out * depth_out;
            // An invocation beyond the last repeats it, and writes nothing.
            let at = own.min(all - 1_u32);
            let (row, first) = (at / blocks, at % blocks * self.pixels);
            let [z, y] = [row / height_out, row % height_out];
            let channel = block_channel * self.channels;
            let of_group = place % groups * out_channels + channel;

            let zero = zero(k, storage.value());
            let sums: Vec<Vec<_>> =
                (0..self.channels).map(|_| (0..self.pixels).map(|_| k.variable(zero)).collect()).collect();
            let Geometry { kernel: [deep, high, wide], stride, dilation } = self.geometry;
            let [depth, height, width] = sizes.input;
            let first = first * stride[2];
            // Which column of the image each neighbour meets with an element of the window, counted from the first's first.
            let column = |pixel: u32, element: u32| pixel * stride[2] + element * dilation[2];
            let elements = if self.unrolls() { wide } else { 1 };
            let mut columns: Vec<u32> = (0..self.pixels)
                .flat_map(|pixel| (0..elements).map(move |element| column(pixel, element)))
                .collect();
            columns.sort_unstable();
            columns.dedup();

            k.range(0_u32, in_channels, 1_u32, |from| {
                k.range(0_u32, deep, 1_u32, |kz| {
                    k.range(0_u32, high, 1_u32, |ky| {
                        let z = z * stride[0] + kz * dilation[0] - sizes.before[0];
                        let y = y * stride[1] + ky * dilation[1] - sizes.before[1];
                        let inside = z.below(depth) & y.below(height);
                        let image = (place * in_channels + from) * depth + z.min(depth - 1_u32);
                        let image = (image * height + y.min(height - 1_u32)) * width;
                        let weights = ((from * deep + kz) * high + ky) * wide;
                        let row = ImageRow { x, start: image, width, inside, before: sizes.before[2] };
                        let add = |read: &[_], element: u32, at| {
                            let of_channels = if self.is_packed() {
                                let block =
                                    (of_group * in_channels * (deep * high * wide)) + at * self.channels;
                                weight.run(block, k.value(1_u32), self.channels)
                            } else {
                                let length = in_channels * (deep * high * wide);
                                weight.run(of_group * length + at, length, self.channels)
                            };
                            for (sums, weight) in sums.iter().zip(of_channels) {
                                for (pixel, sum) in (0_u32..).zip(sums) {
                                    let place = columns.binary_search(&column(pixel, element));
                                    let x: Value<'_> = read[place.unwrap_or(0)];
                                    sum.set(weight.fma(x, sum.get()));
                                }
                            }
                        };
                        if self.unrolls() {
                            let read = self.read(&row, first, &columns);
                            (0..wide).for_each(|element| add(&read, element, weights + element));
                        } else {
                            k.range(0_u32, wide, 1_u32, |element| {
                                let read = self.read(&row, first + element * dilation[2], &columns);
                                add(&read, 0, weights + element);
                            });
                        }
                    });
                });
            });

            let pixel = at % blocks * self.pixels;
            for (n, sums) in (0_u32..).zip(&sums) {
                let start = ((place * out_channels + channel + n) * depth_out + z) * height_out + y;
                let start = start * width_out + pixel;
                for (n_pixel, sum) in (0_u32..).zip(sums) {
                    let inside = own.below(all) & (pixel + n_pixel).below(width_out);
                    k.when(inside, || {
                        let sum = epilogue.apply(sum.get(), |bias| bias.at(of_group + n));
                        output.set(start + n_pixel, then::apply(&then, start + n_pixel, sum));
                    });
                }
            }
        })
    }
}

/// `activation(conv(x, weight) + bias)` into `out`, which is not empty.
pub(super) fn conv<R: Runtime>(
    x: GpuTensor<R>,
    weight: GpuTensor<R>,
    bias: Option<GpuTensor<R>>,
    activation: Option<Activation>,
    windows: &Windows,
    groups: usize,
    out: &GpuTensor<R>,
) {
    let geometry = Geometry::of(windows);
    let device = &out.device;
    let (batch, in_channels) = (x.dims()[0], weight.dims()[1]);
    let out_channels = weight.dims()[0] / groups;
    let padded = windows.padding.iter().any(|&(before, after)| before + after > 0);
    if groups == 1 && geometry.kernel_length() == 1 && geometry.stride == [1; 3] && !padded {
        return pointwise(x, weight, bias.as_ref(), activation, out);
    }
    let unrolled = if geometry.kernel[2] <= WIDEST_UNROLLED { geometry.kernel[2] } else { 1 };
    let channels =
        [8, 4].into_iter().find(|channels| out_channels.is_multiple_of(*channels)).unwrap_or(1) as u32;
    let most = MOST_UNROLLED / (channels * unrolled);
    let lengths = [14, 8, 7, 4, 2, 1].into_iter().filter(|&pixels| pixels <= most.max(1));
    let (x, bias) = (from_start(x), bias.map(from_start));
    let template = |pixels| RowConv {
        dtype: out.dtype,
        geometry,
        padded,
        channels,
        pixels,
        bias: bias.is_some(),
        activation,
        then: Vec::new(),
    };
    let usual = least_left_over(windows.output[2], lengths.clone());
    let is_packed = template(usual).is_packed();
    let weight = if is_packed { packed(weight, channels as usize) } else { from_start(weight) };
    let rows = windows.output[0] * windows.output[1];
    let variant = |pixels| {
        let blocks = windows.output[2].div_ceil(pixels as usize) * rows;
        let blocks = [blocks.div_ceil(LANES as usize), out_channels / channels as usize, batch * groups];
        Variant { name: format!("{pixels} pixels"), template: template(pixels).into(), blocks }
    };
    let class = || {
        let sizes = [batch, groups, in_channels, out_channels, rows].map(tune::rounded);
        format!("convolution {} {sizes:?} {geometry:?} of {}", out.dtype, windows.output[2])
    };
    let mut words = [groups, in_channels, out_channels].map(|n| n as u32).to_vec();
    words.extend(Sizes::words(windows));
    let mut tensors = vec![&x, &weight];
    tensors.extend(&bias);
    tensors.push(out);
    let others = || lengths.filter(|&pixels| pixels > 1).map(variant).collect();
    tune::launch_fastest::<R>(device, class, variant(usual), others, &tensors, &words);
}

/// Weights by blocks of output channels, see [`RowConv::channels`]; made once, and kept with their memory.
fn packed<R: Runtime>(weight: GpuTensor<R>, channels: usize) -> GpuTensor<R> {
    let blocks = weight.dims()[0] / channels;
    let length = weight.len() / (blocks * channels);
    let weight = elementwise::contiguous(weight);
    let blocked = Layout {
        shape: Shape::from([blocks, length, channels]),
        strides: vec![(length * channels) as isize, 1, length as isize],
        offset: weight.layout.offset,
    };
    let key = [weight.layout.offset, blocks, length, channels];
    let memory =
        R::derived(&weight.memory, key, || elementwise::copy(&weight.clone().with_layout(blocked)).memory);
    let layout = Layout::contiguous(Shape::from([blocks, length, channels]));
    GpuTensor { memory, layout, dtype: weight.dtype, device: weight.device }
}

/// A convolution whose windows are single elements: a product of the weights with the channels.
fn pointwise<R: Runtime>(
    x: GpuTensor<R>,
    weight: GpuTensor<R>,
    bias: Option<&GpuTensor<R>>,
    activation: Option<Activation>,
    out: &GpuTensor<R>,
) {
    let (batch, in_channels) = (x.dims()[0], weight.dims()[1]);
    let (out_channels, windows) = (weight.dims()[0], x.len() / (x.dims()[0] * x.dims()[1]));
    let (x, weight) = (from_start(x), from_start(weight));
    if windows == 1 {
        // Images of one element are rows.
        let left = Layout::contiguous(Shape::from([batch, in_channels]));
        let right = Layout::contiguous(Shape::from([out_channels, in_channels])).permute(&[1, 0]);
        let bias = bias.map(|bias| (bias, Bias::OfColumns));
        let product = Product { lhs: &x, rhs: &weight, bias, activation, out };
        let walk = Walk::new(&[], &[&[], &[]]);
        product.launch(&left, &right, &walk, [batch, out_channels, in_channels], 1);
        return;
    }
    let left = Layout::contiguous(Shape::from([out_channels, in_channels])).expand(&Shape::from([
        batch,
        out_channels,
        in_channels,
    ]));
    let right = Layout::contiguous(Shape::from([batch, in_channels, windows]));
    let bias = bias.map(|bias| (bias, Bias::OfRows));
    let product = Product { lhs: &weight, rhs: &x, bias, activation, out };
    let walk = Walk::new(&[batch], &[&left.strides[..1], &right.strides[..1]]);
    product.launch(&left, &right, &walk, [out_channels, windows, in_channels], batch);
}
