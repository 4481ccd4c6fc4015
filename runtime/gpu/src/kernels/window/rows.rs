//! Convolutions where shared memory is no faster than any other: an invocation computes neighbours in a row of several channels, so that
//! what it reads of the image serves several windows, and what it reads of the weights all of its neighbours.

use super::super::direct::{Bias, LANES, Side, least_left_over};
use super::super::elementwise::{self, from_start};
use super::super::epilogue::{self, EpilogueProgram};
use super::super::matmul::Product;
use super::super::tiling::Epilogue;
use super::super::tune::{self, Name, Variant};
use super::super::{access::Walk, block};
use super::conv::Convolution;
use super::reach::Phase;
use super::{Geometry, Sizes, zero};
use crate::language::{Buffer, Builder, Builtin, Kernel, Value};
use crate::runtime::{Derived, Order, Runtime};
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::backend::Layout;
use kiln_tensor::{Activation, DType, Shape};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// The most products for which an invocation has a line of code each.
pub(super) const MOST_UNROLLED: u32 = 512;
/// The widest windows whose elements are unrolled.
pub(super) const WIDEST_UNROLLED: u32 = 8;

/// A convolution by rows of the result; a transposed one by rows of its phases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowConv {
    /// The elements' dtype.
    pub dtype: DType,
    /// The windows: over the input, or over the result if it is transposed.
    pub geometry: Geometry,
    /// Whether it is transposed.
    pub transposed: bool,
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
    pub epilogues: Vec<EpilogueProgram>,
}

/// A row of an image, or one of its padding.
pub(super) struct ImageRow<'k> {
    pub x: Buffer<'k>,
    pub start: Value<'k>,
    pub width: Value<'k>,
    /// Whether it is one of the image; nothing where no window reaches beyond the image.
    pub inside: Option<Value<'k>>,
    /// Columns of the padding in front.
    pub before: Value<'k>,
}

impl<'k> ImageRow<'k> {
    /// The elements in the given columns, counted from `first`; 0 beyond the image.
    pub fn read(&self, first: Value<'k>, columns: &[u32]) -> Vec<Value<'k>> {
        let or_zero = |&column: &u32| {
            let (element, inside) = self.element(first, column);
            inside.map_or(element, |inside| inside.select(element, zero(element.kernel(), element.ty())))
        };
        columns.iter().map(or_zero).collect()
    }

    /// The element in a column, and whether that is inside the image, if it is a question: what is beyond it is some element.
    fn element(&self, first: Value<'k>, column: u32) -> (Value<'k>, Option<Value<'k>>) {
        let column = first + column - self.before;
        let element = self.x.at(self.start + column.min(self.width - 1_u32));
        (element, self.inside.map(|inside| inside & column.below(self.width)))
    }
}

/// The columns that neighbours and elements meet, each once.
pub(super) fn columns(pixels: u32, elements: u32, column: impl Fn(u32, u32) -> u32) -> Vec<u32> {
    let of_pixel = |pixel| {
        let column = &column;
        (0..elements).map(move |element| column(pixel, element))
    };
    let mut columns: Vec<u32> = (0..pixels).flat_map(of_pixel).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// What an invocation meets along the axes of an image.
struct Along<'k> {
    k: &'k Builder,
    taps: Geometry,
    phase: Option<Phase<'k>>,
    before: [Value<'k>; 3],
}

impl<'k> Along<'k> {
    /// How many elements of the window there are.
    fn count(&self, axis: usize) -> Value<'k> {
        match &self.phase {
            None => self.k.value(self.taps.kernel[axis]),
            Some(phase) => phase.reach.count(axis),
        }
    }

    /// Where the `nth` of them meets the input, for the result `at`.
    fn met(&self, axis: usize, at: Value<'k>, nth: Value<'k>) -> Value<'k> {
        match &self.phase {
            None => at * self.taps.stride[axis] + nth * self.taps.dilation[axis] - self.before[axis],
            Some(phase) => phase.reach.window(axis, at, nth),
        }
    }

    /// Which of its window it is.
    fn element(&self, axis: usize, nth: Value<'k>) -> Value<'k> {
        match &self.phase {
            None => nth,
            Some(phase) => phase.reach.element(axis, nth),
        }
    }

    /// Where the result `at` is in its image.
    fn position(&self, axis: usize, at: Value<'k>) -> Value<'k> {
        match &self.phase {
            None => at,
            Some(phase) => phase.position(axis, at),
        }
    }
}

impl RowConv {
    /// What is gathered for one result of one channel.
    fn taps(&self) -> Geometry {
        if self.transposed { self.geometry.reaching() } else { self.geometry }
    }

    fn is_packed(&self) -> bool {
        self.channels.is_multiple_of(4)
    }

    /// The kernel. Parameters: its `block`; groups, channels a group of input and output; the sizes. Images, groups and, innermost, phases
    /// are along z.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        let name = if self.transposed { "row_conv_transpose" } else { "row_conv" };
        Builder::kernel(name, [LANES, 1], |k| {
            let x = k.input(storage);
            let weight = Side::declare(k, self.dtype, self.is_packed());
            let epilogue =
                Epilogue { bias: self.bias.then(|| k.input(storage)), activation: self.activation };
            let output = k.output(storage);
            // Neighbours, channels, images times groups.
            let [block_at, block_channel, place] = block(k);
            let [groups, in_channels, out_channels] = [k.parameter(), k.parameter(), k.parameter()];
            let sizes = Sizes::declare(k);
            let epilogues = epilogue::declare(k, &self.epilogues);
            let (phase, place) = match self.transposed {
                true => {
                    let (phase, place) = Phase::declare(k, self.geometry, &sizes, place);
                    (Some(phase), place)
                }
                false => (None, place),
            };

            // Blocks of a row, rows of an image.
            let [depth_out, height_out, width_out] = phase.map_or(sizes.output, |phase| phase.size);
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
            let [deep, high, wide] = self.geometry.kernel;
            let [depth, height, width] = sizes.input;
            let along = Along { k, taps: self.taps(), phase, before: sizes.before };
            let taps = along.taps;
            // Which column of the image each neighbour meets with an element, counted from what the first neighbour meets first: a transposed
            // convolution goes back.
            let unrolls = taps.kernel[2] <= WIDEST_UNROLLED;
            let elements = if unrolls { taps.kernel[2] } else { 1 };
            let column = |pixel: u32, element: u32| {
                let element = if self.transposed { elements - 1 - element } else { element };
                pixel * taps.stride[2] + element * taps.dilation[2]
            };
            let columns = columns(self.pixels, elements, column);
            let first_met = first * taps.stride[2];
            let before = match &phase {
                None => sizes.before[2],
                Some(phase) => k.value((elements - 1) * taps.dilation[2]) - phase.reach.first_window(2),
            };

            k.range(0_u32, in_channels, 1_u32, |from| {
                k.range(0_u32, along.count(0), 1_u32, |kz| {
                    k.range(0_u32, along.count(1), 1_u32, |ky| {
                        let [met_z, met_y] = [along.met(0, z, kz), along.met(1, y, ky)];
                        let inside = met_z.below(depth) & met_y.below(height);
                        let image = (place * in_channels + from) * depth + met_z.min(depth - 1_u32);
                        let start = (image * height + met_y.min(height - 1_u32)) * width;
                        let weights =
                            ((from * deep + along.element(0, kz)) * high + along.element(1, ky)) * wide;
                        let row = ImageRow { x, start, width, inside: self.padded.then_some(inside), before };
                        // A convolution pads its images with zeros; what a transposed one has no window for is no product, whatever the weight.
                        let read = |first, columns: &[u32]| -> Vec<(Value<'_>, Option<Value<'_>>)> {
                            match self.transposed {
                                true => columns.iter().map(|&column| row.element(first, column)).collect(),
                                false => row.read(first, columns).into_iter().map(|x| (x, None)).collect(),
                            }
                        };
                        let add = |read: &[_], nth: u32, at| {
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
                                    let place = columns.binary_search(&column(pixel, nth));
                                    let (x, inside): (Value<'_>, Option<Value<'_>>) =
                                        read[place.unwrap_or(0)];
                                    let with = weight.fma(x, sum.get());
                                    sum.set(inside.map_or(with, |inside| inside.select(with, sum.get())));
                                }
                            }
                        };
                        if unrolls {
                            let read = read(first_met, &columns);
                            for nth in 0..elements {
                                let at = k.value(nth);
                                let add = || add(&read, nth, weights + along.element(2, at));
                                match phase.and_then(|phase| phase.reach.exists(2, at)) {
                                    Some(exists) => k.when(exists, add),
                                    None => add(),
                                }
                            }
                        } else {
                            k.range(0_u32, along.count(2), 1_u32, |nth| {
                                let further = nth * taps.dilation[2];
                                let first =
                                    if self.transposed { first_met - further } else { first_met + further };
                                add(&read(first, &columns), 0, weights + along.element(2, nth));
                            });
                        }
                    });
                });
            });

            let step = if self.transposed { self.geometry.stride[2] } else { 1 };
            for (n, sums) in (0_u32..).zip(&sums) {
                let start = (place * out_channels + channel + n) * sizes.output[0] + along.position(0, z);
                let start = (start * sizes.output[1] + along.position(1, y)) * sizes.output[2]
                    + along.position(2, first);
                for (n_pixel, sum) in (0_u32..).zip(sums) {
                    let inside = own.below(all) & (first + n_pixel).below(width_out);
                    k.when(inside, || {
                        let (sum, position) = (sum.get(), start + n_pixel * step);
                        let sum = epilogue.apply(sum, |bias| bias.at(of_group + n));
                        output.set(position, epilogue::apply(&epilogues, position, sum));
                    });
                }
            }
        })
    }
}

/// The lengths of runs of neighbours, of which the first with the least left over is taken.
pub(super) const LENGTHS: [u32; 6] = [14, 8, 7, 4, 2, 1];

/// The most of eight or four channels that make up all of them.
pub(super) fn channels_of_block(channels: usize) -> u32 {
    [8, 4].into_iter().find(|&block| channels.is_multiple_of(block)).unwrap_or(1) as u32
}

/// `activation(conv(x, weight) + bias)` into `out`, which is not empty.
pub(super) fn conv<R: Runtime>(
    x: GpuTensor<R>,
    weight: GpuTensor<R>,
    bias: Option<GpuTensor<R>>,
    activation: Option<Activation>,
    convolution: &Convolution,
    out: &GpuTensor<R>,
) {
    let &Convolution { groups, in_channels, out_channels, transposed, .. } = convolution;
    let (geometry, taps, size) = (convolution.geometry(), convolution.taps(), convolution.size());
    let padded = transposed || convolution.windows.padding.iter().any(|&(before, after)| before + after > 0);
    let unrolled = if taps.kernel[2] <= WIDEST_UNROLLED { taps.kernel[2] } else { 1 };
    let channels = channels_of_block(out_channels);
    let most = MOST_UNROLLED / (channels * unrolled);
    let lengths = LENGTHS.into_iter().filter(|&pixels| pixels <= most.max(1));
    let (x, bias) = (from_start(x), bias.map(from_start));
    let template = |pixels| RowConv {
        dtype: out.dtype,
        geometry,
        transposed,
        padded,
        channels,
        pixels,
        bias: bias.is_some(),
        activation,
        epilogues: Vec::new(),
    };
    let usual = least_left_over(size[2], lengths.clone());
    let is_packed = template(usual).is_packed();
    // Of a single channel on either side, the weights of a transposed convolution lie as others do.
    let as_it_is = if transposed { in_channels == 1 && channels == 1 } else { !is_packed };
    let weight = if as_it_is { from_start(weight) } else { packed(weight, convolution, channels as usize) };
    let rows = size[0] * size[1];
    let variant = |pixels| {
        let blocks = size[2].div_ceil(pixels as usize) * rows;
        let (across, down) = (blocks.div_ceil(LANES as usize), out_channels / channels as usize);
        let blocks = [across, down, convolution.places()];
        Variant { name: Name::Pixels(pixels), template: template(pixels).into(), blocks }
    };
    let class = || convolution.class(out.dtype, &format!("{} rows of {}", tune::rounded(rows), size[2]));
    let mut words: SmallVec<[u32; 16]> =
        [groups, in_channels, out_channels].iter().map(|&n| n as u32).collect();
    words.extend(convolution.size_words());
    let mut tensors: SmallVec<[_; 4]> = smallvec![&x, &weight];
    tensors.extend(&bias);
    tensors.push(out);
    let others = || lengths.filter(|&pixels| pixels > 1).map(variant).collect();
    tune::launch_fastest::<R>(&out.device, class, variant(usual), others, &tensors, &words);
}

/// Weights by blocks of output channels, see [`RowConv::channels`]; made once, and kept with their memory.
fn packed<R: Runtime>(weight: GpuTensor<R>, of: &Convolution, channels: usize) -> GpuTensor<R> {
    let weight = elementwise::contiguous(weight);
    let window = of.geometry().kernel_length() as usize;
    let [input, output] = [of.in_channels, of.out_channels];
    // Of a transposed convolution the output channels are within the input's.
    let (from, to) = if of.transposed { (output * window, window) } else { (window, input * window) };
    let sizes = [weight.layout.offset, weight.len() * 16 + channels, from, to];
    let memory = R::derived(&weight.memory, Derived { order: Order::BlocksOfChannels, sizes }, || {
        let strides = [input * output * window, channels * to, from, 1, to];
        let blocked = Layout {
            shape: Shape::from([of.groups, output / channels, input, window, channels]),
            strides: strides.map(|stride| stride as isize).into(),
            offset: weight.layout.offset,
        };
        elementwise::copy(&weight.clone().with_layout(blocked)).memory
    });
    // The kernel knows how they lie: all that is told of them is how many there are, and where the first is.
    let layout = match weight.layout.offset {
        0 => weight.layout,
        _ => Arc::new(Layout::contiguous(weight.layout.shape.clone())),
    };
    GpuTensor { memory, layout, dtype: weight.dtype, device: weight.device }
}

/// A convolution whose windows are single elements: a product of the weights with the channels.
pub(super) fn pointwise<R: Runtime>(
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
        let product = Product { lhs: &x, rhs: &weight, bias, activation, groups: None, out };
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
    let product = Product { lhs: &weight, rhs: &x, bias, activation, groups: None, out };
    let walk = Walk::new(&[batch], &[&left.strides[..1], &right.strides[..1]]);
    product.launch(&left, &right, &walk, [out_channels, windows, in_channels], batch);
}
