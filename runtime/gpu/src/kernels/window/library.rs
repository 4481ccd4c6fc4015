//! Convolutions that a library of the device's vendor computes.

use super::super::elementwise;
use super::conv::Convolution;
use crate::runtime::{self, ConvolutionPass, Runtime};
use crate::tensor::GpuTensor;
use kiln_tensor::backend::Layout;
use kiln_tensor::{Activation, BinaryOp, Expression, Shape, Step, Windows};

/// Has a library compute `activation(conv(x, weight) + bias)`, where the device has one that takes it; all lie row-major from the starts of
/// their memory. A transposed convolution is the gradient of another's input.
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
    asked.by_library([image, weight, result]).then(|| finished(out, bias, activation))
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
    /// Asks for it; says whether it is done.
    pub(super) fn by_library<R: Runtime>(&self, tensors: [&GpuTensor<R>; 3]) -> bool {
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
        };
        R::convolution(&image.device, &convolution)
    }
}

/// `activation(x + bias)`, with a number of the bias for each channel.
fn finished<R: Runtime>(
    x: &GpuTensor<R>,
    bias: Option<&GpuTensor<R>>,
    activation: Option<Activation>,
) -> GpuTensor<R> {
    let (mut steps, mut operands) = (vec![Step::Input(0)], vec![x.clone()]);
    if let Some(bias) = bias {
        let channels = [&[1, bias.len()], vec![1; x.dims().len() - 2].as_slice()].concat();
        let layout = Layout { offset: bias.layout.offset, ..Layout::contiguous(Shape::from(channels)) };
        operands.push(bias.clone().with_layout(layout));
        steps.extend([Step::Input(1), Step::Binary(BinaryOp::Add, 0, 1)]);
    }
    if let Some(activation) = activation {
        steps.push(Step::Activation(activation, (steps.len() - 1) as u16));
    }
    match steps.len() {
        1 => x.clone(),
        _ => elementwise::single(&Expression::new(steps), &operands, &[]),
    }
}
