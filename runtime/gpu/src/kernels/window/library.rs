//! Convolutions that a library of the device's vendor computes.

use super::super::elementwise;
use super::conv::Convolution;
use crate::runtime::{self, ConvolutionEpilogue, ConvolutionPass, Runtime};
use crate::tensor::GpuTensor;
use kiln_tensor::backend::Layout;
use kiln_tensor::{Activation, Shape, Windows};

/// Has a library compute `activation(conv(x, weight) + bias)`, where the device has one that takes it; all lie row-major from the starts of
/// their memory. A transposed convolution is the gradient of another's input. What the library does not do behind a convolution is a launch
/// of its own.
pub(super) fn convolved<R: Runtime>(
    convolution: &Convolution,
    [x, weight, out]: [&GpuTensor<R>; 3],
    bias: Option<&GpuTensor<R>>,
    activation: Option<Activation>,
) -> Option<GpuTensor<R>> {
    let Convolution { windows, transposed, batch, groups, in_channels, out_channels } = convolution;
    let (from, to) = (in_channels * groups, out_channels * groups);
    let (pass, channels, image, result) = match transposed {
        false => (ConvolutionPass::Forward, [from, to], x, out),
        true => (ConvolutionPass::Input, [to, from], out, x),
    };
    let asked = Asked { pass, windows, batch: *batch, groups: *groups, channels };
    let tensors = [image, weight, result];
    if let (ConvolutionPass::Forward, Some(bias)) = (pass, bias)
        && asked.finished_by_library(tensors, bias, None, activation)
    {
        return Some(out.clone());
    }
    asked.by_library(tensors, None).then(|| finished(out.clone(), bias, activation))
}

/// Has a library compute `activation(conv(x, weight) + bias + residual)`, all at once; says whether it does. All lie row-major from the starts
/// of their memory.
pub(super) fn added<R: Runtime>(
    convolution: &Convolution,
    tensors: [&GpuTensor<R>; 3],
    bias: &GpuTensor<R>,
    residual: &GpuTensor<R>,
    activation: Option<Activation>,
) -> bool {
    let Convolution { windows, batch, groups, in_channels, out_channels, .. } = convolution;
    let channels = [in_channels * groups, out_channels * groups];
    let asked = Asked { pass: ConvolutionPass::Forward, windows, batch: *batch, groups: *groups, channels };
    asked.finished_by_library(tensors, bias, Some(residual), activation)
}

/// What a library is asked for.
pub(super) struct Asked<'a> {
    pub pass: ConvolutionPass,
    pub windows: &'a Windows,
    pub batch: usize,
    pub groups: usize,
    /// Channels of the images, and of the results.
    pub channels: [usize; 2],
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

    /// Asks for it; says whether it is done.
    pub(super) fn by_library<R: Runtime>(
        &self,
        tensors: [&GpuTensor<R>; 3],
        epilogue: Option<ConvolutionEpilogue<'_, R>>,
    ) -> bool {
        let [image, weight, result] = tensors;
        let Asked { pass, windows, batch, groups, channels } = *self;
        if !image.dtype.is_float() || tensors.iter().any(|tensor| tensor.is_empty()) {
            return false;
        }
        let convolution = runtime::Convolution {
            dtype: image.dtype,
            pass,
            windows,
            batch,
            groups,
            channels,
            image: &image.memory,
            weight: &weight.memory,
            result: &result.memory,
            epilogue,
        };
        R::convolution(&image.device, &convolution)
    }
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
