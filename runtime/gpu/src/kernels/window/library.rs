//! Convolutions that a library of the device's vendor computes.

use super::super::elementwise::{self, from_start};
use super::super::order;
use super::channels;
use super::conv::Convolution;
use super::im2col;
use crate::runtime::{
    self, ConvolutionDirection, ConvolutionEpilogue, ConvolutionShape, Derived, Order, Runtime,
};
use crate::tensor::GpuTensor;
use kiln_tensor::backend::Layout;
use kiln_tensor::{Activation, DType, Shape};

/// Places of a window up to which channels of zeros are worth it: at each of them the library multiplies as many as tensor cores take. In bf16 and for 32 images, it
/// took 62 µs for 3x3 from 3 channels to 32 on an H100, and our kernel of the channels that there are 373 on an H200; for 7x7 to 64 it took 473, and
/// 312 of a row-major image, with what it turned around itself. Larger windows are gathered as the rows of a matrix, 135 MB of these, which that card's memory takes
/// in 40 µs and brings in as many.
const MOST_PLACES: usize = 16;
/// Bytes of such a matrix at most: what 254 images need for such windows of 224 by 224 elements.
const MOST_GATHERED: usize = 1 << 30;

impl Convolution {
    /// What a library is asked for. A transposed convolution is the gradient of another's input.
    pub(super) fn shape(&self, dtype: DType) -> ConvolutionShape<'_> {
        let Convolution { windows, transposed, batch, groups, in_channels, out_channels } = self;
        let (from, to) = (in_channels * groups, out_channels * groups);
        let (direction, channels) = match transposed {
            false => (ConvolutionDirection::Forward, [from, to]),
            true => (ConvolutionDirection::Input, [to, from]),
        };
        ConvolutionShape { dtype, direction, windows, batch: *batch, groups: *groups, channels }
    }

    /// Where a library computes it faster of images with their channels last: behind these, how many channels of zeros it is to be given.
    pub(super) fn filling<R: Runtime>(&self, x: &GpuTensor<R>) -> Option<usize> {
        if x.is_empty() {
            return None;
        }
        let shape = self.shape(x.dtype);
        let more = R::channels_if_last(&x.device, &shape)? - shape.channels[0];
        let places: usize = self.windows.kernel.iter().product();
        let is_worth_it = || places <= MOST_PLACES || self.is_of_patches(self.in_channels + more);
        (more == 0 || is_worth_it()).then_some(more)
    }

    /// Whether what windows see is gathered for a product with the weights: where few channels would have a library multiply with zeros for the most part.
    pub(super) fn is_gathered<R: Runtime>(&self, x: &GpuTensor<R>) -> bool {
        if x.is_empty() || x.dtype.size() != 2 || self.transposed || self.groups != 1 {
            return false;
        }
        let Some(filled) = R::channels_if_last(&x.device, &self.shape(x.dtype)) else { return false };
        let (places, length) =
            (self.windows.kernel_len(), im2col::row_length(self.in_channels, self.windows.kernel));
        let elements = self.batch * self.windows.output_len() * length;
        length < filled * places && elements * x.dtype.size() <= MOST_GATHERED
    }

    /// The same of images with so many channels more.
    pub(super) fn filled(&self, more: usize) -> Self {
        Self { in_channels: self.in_channels + more, ..self.clone() }
    }
}

/// Has a library compute `activation(conv(x, weight) + bias)` into `out`, where the device has one that takes it: of tensors in one order, from
/// the starts of their memory. What the library does not do behind a convolution is a launch of its own.
pub(super) fn convolved<R: Runtime>(
    convolution: &Convolution,
    channels_last: bool,
    [x, weight, out]: [&GpuTensor<R>; 3],
    bias: Option<&GpuTensor<R>>,
    activation: Option<Activation>,
) -> Option<GpuTensor<R>> {
    let asked = Asked { shape: convolution.shape(x.dtype), channels_last };
    let (image, result) = if convolution.transposed { (out, x) } else { (x, out) };
    let tensors = [image, weight, result];
    if let (ConvolutionDirection::Forward, Some(bias)) = (asked.shape.direction, bias)
        && asked.finished_by_library(tensors, bias, None, activation)
    {
        return Some(out.clone());
    }
    asked.by_library(tensors, None).then(|| finished(out.clone(), bias, activation))
}

/// Has a library compute `activation(conv(x, weight) + bias + residual)`, all at once; says whether it does. All lie in one order, from the starts
/// of their memory.
pub(super) fn added<R: Runtime>(
    convolution: &Convolution,
    channels_last: bool,
    tensors: [&GpuTensor<R>; 3],
    bias: &GpuTensor<R>,
    residual: &GpuTensor<R>,
    activation: Option<Activation>,
) -> bool {
    let asked = Asked { shape: convolution.shape(tensors[0].dtype), channels_last };
    asked.finished_by_library(tensors, bias, Some(residual), activation)
}

/// The class of a convolution among those that are timed by a library and by kernels, with what follows it.
pub(super) fn class(shape: &ConvolutionShape<'_>, bias: bool, activation: Option<Activation>) -> String {
    let &ConvolutionShape { dtype, direction, windows, batch, groups, channels } = shape;
    format!(
        "{direction:?} convolution by library {dtype} {batch} {groups} {channels:?} {windows:?} {bias} {activation:?}"
    )
}

/// What a library is asked for.
pub(super) struct Asked<'a> {
    pub shape: ConvolutionShape<'a>,
    /// Whether images, weights and results have their channels last.
    pub channels_last: bool,
}

impl Asked<'_> {
    /// Asks for it with all that follows; says whether it is done.
    fn finished_by_library<R: Runtime>(
        &self,
        tensors: [&GpuTensor<R>; 3],
        bias: &GpuTensor<R>,
        residual: Option<&GpuTensor<R>>,
        activation: Option<Activation>,
    ) -> bool {
        let dtype = tensors[2].dtype;
        let same = bias.dtype == dtype && residual.is_none_or(|residual| residual.dtype == dtype);
        let residual = residual.map(|residual| &residual.memory);
        let epilogue = ConvolutionEpilogue { bias: &bias.memory, residual, activation };
        same && self.by_library(tensors, Some(epilogue))
    }

    /// Asks for it, of images, weights and results; says whether it is done.
    pub(super) fn by_library<R: Runtime>(
        &self,
        tensors: [&GpuTensor<R>; 3],
        epilogue: Option<ConvolutionEpilogue<'_, R>>,
    ) -> bool {
        let [image, weight, result] = tensors;
        if !self.shape.dtype.is_float() || tensors.iter().any(|tensor| tensor.is_empty()) {
            return false;
        }
        let convolution = runtime::Convolution {
            shape: self.shape,
            channels_last: self.channels_last,
            image: &image.memory,
            weight: &weight.memory,
            result: &result.memory,
            epilogue,
        };
        R::convolution(&image.device, &convolution)
    }
}

/// Weights with their channels last, as a library takes them together with such images, and so many channels of zeros behind those. They are
/// copied once, and kept with their memory until that is written to.
pub(super) fn turned_weight<R: Runtime>(weight: GpuTensor<R>, more: usize) -> GpuTensor<R> {
    let weight = from_start(weight);
    let (mut shape, dtype, device) = (weight.layout.shape.clone(), weight.dtype, weight.device.clone());
    let [rows, channels] = [shape[0], shape[1]];
    shape.dims[1] += more;
    let layout = order::channels_last(shape);
    if layout.is_contiguous() && more == 0 {
        return weight;
    }
    let what = Derived { order: Order::ChannelsLast, sizes: [weight.len(), rows, channels, more] };
    let memory =
        R::derived(&weight.memory, what, || channels::with_channels_last(weight.clone(), more).memory);
    GpuTensor { memory, layout: layout.into(), dtype, device }
}

/// `activation(x + bias)`, with a number of the bias for each channel.
fn finished<R: Runtime>(
    x: GpuTensor<R>,
    bias: Option<&GpuTensor<R>>,
    activation: Option<Activation>,
) -> GpuTensor<R> {
    let bias = bias.map(|bias| along_channels(bias, x.dims().len()));
    elementwise::finished(x, bias, activation)
}

/// A vector along the channels of images of a rank.
pub(super) fn along_channels<R: Runtime>(vector: &GpuTensor<R>, rank: usize) -> GpuTensor<R> {
    let channels = [&[1, vector.len()], vec![1; rank - 2].as_slice()].concat();
    let layout = Layout { offset: vector.layout.offset, ..Layout::contiguous(Shape::from(channels)) };
    vector.clone().with_layout(layout)
}
