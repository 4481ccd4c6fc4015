//! 1x1 convolutions that wait for whoever reads their result: a depthwise convolution that alone does is computed together with them.

use crate::storage::{Buffer, Work};
use crate::tensor::NdArrayTensor;
use alloc::sync::Arc;
use kiln_kernels::conv::{ConvLayer, ConvShape, ConvWay, ConvWeight, PackedConv, conv, pointwise_depthwise};
use kiln_tensor::backend::Layout;
use kiln_tensor::{Activation, DType, Dims};

/// What packed weights were made for: the layout of the weights, the shape but for its images, and the way.
pub(super) type Key = (Layout, ConvShape, ConvWay);

/// A convolution with packed weights.
pub(crate) struct Layer {
    pub shape: ConvShape,
    pub weight: Arc<(Key, PackedConv)>,
    /// f32 and contiguous.
    pub bias: Option<NdArrayTensor>,
    pub activation: Option<Activation>,
}

impl Layer {
    fn borrowed(&self) -> ConvLayer<'_> {
        let bias = self.bias.as_ref().map(NdArrayTensor::slice);
        ConvLayer { shape: &self.shape, weight: &self.weight.1, bias, activation: self.activation }
    }

    /// The dims of the result with its channels last.
    fn output_dims(&self) -> Dims {
        let mut dims = self.shape.output_dims();
        dims[1..].rotate_left(1);
        dims
    }
}

/// A 1x1 convolution and the images that it is to be applied to.
pub(crate) struct Pointwise {
    layer: Layer,
    /// Contiguous with the channels last.
    x: NdArrayTensor,
}

impl Pointwise {
    /// The result, with its channels last.
    pub(crate) fn run(&self) -> Buffer {
        let ConvLayer { shape, weight, bias, activation } = self.layer.borrowed();
        let mut out = Buffer::new::<f32>(shape.output_dims().iter().product());
        conv(shape, self.x.slice(), ConvWeight::Packed(weight), bias, activation, false, out.as_mut());
        out
    }
}

/// Computes a depthwise convolution together with the 1x1 convolution that its images wait for, or lets a 1x1 convolution wait. Otherwise the
/// images come back.
pub(super) fn with_layer(x: NdArrayTensor, layer: Layer) -> Result<NdArrayTensor, NdArrayTensor> {
    if layer.shape.suits_bands() {
        let x = x.channels_last().into_contiguous();
        // If these wait themselves, for no depthwise convolution as is clear now, they do so no longer: waiting convolutions are no chain.
        let _: &[f32] = x.slice();
        let dims = layer.output_dims();
        return Ok(
            NdArrayTensor::deferred(Work::Pointwise(Pointwise { layer, x }), dims.into()).channels_first()
        );
    }
    if layer.shape.way() != ConvWay::Depthwise || !x.layout().is_channels_last() {
        return Err(x);
    }
    let points = x.into_deferred(|points| layer.shape.follows_in_bands(&points.layer.shape))?;
    let dims = layer.output_dims();
    let y = NdArrayTensor::build(dims.into(), DType::F32, |out| {
        pointwise_depthwise(&points.layer.borrowed(), &layer.borrowed(), points.x.slice(), out);
    });
    Ok(y.channels_first())
}
