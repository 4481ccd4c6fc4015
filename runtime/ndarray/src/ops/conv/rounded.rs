//! Convolutions of operands that are rounded to bf16. They wait for whoever reads their result: for another one of them they round it too, so that
//! half as much passes through the caches, and anybody else gets f32.

use super::{End, check_residual};
use crate::ops::cast;
use crate::storage::{Buffer, Work};
use crate::tensor::NdArrayTensor;
use alloc::sync::Arc;
use kiln_kernels::conv::{ConvShape, Numbers, NumbersMut, PackedConvBf16, RoundedWay, conv_bf16, round};
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{Activation, DType, bf16};

/// What packed weights were made for: the layout of the weights, the groups and the way.
type Key = (Layout, usize, RoundedWay);

/// A convolution of rounded operands and the images that it is to be applied to.
pub(crate) struct RoundedConv {
    shape: ConvShape,
    weight: Arc<(Key, PackedConvBf16)>,
    /// f32 and contiguous.
    bias: Option<NdArrayTensor>,
    activation: Option<Activation>,
    /// Contiguous with the channels last, or [as planes](Numbers::Planes).
    x: NdArrayTensor,
    as_planes: bool,
    /// What is added before the activation; contiguous with the channels last.
    residual: Option<NdArrayTensor>,
}

impl RoundedConv {
    fn output_len(&self) -> usize {
        self.shape.output_dims().iter().product()
    }

    /// The result, with its channels last.
    pub(crate) fn run(mut self) -> Buffer {
        let residual = self.residual.take();
        let adds = residual.is_some();
        // What is added becomes the result: where it lies, if nobody else needs it.
        let mut out =
            residual.map_or_else(|| Buffer::new::<f32>(self.output_len()), NdArrayTensor::into_buffer);
        self.run_into(adds, NumbersMut::Single(out.as_mut()));
        out
    }

    /// [`RoundedConv::run`] with the result rounded.
    pub(crate) fn run_rounded(mut self) -> Buffer {
        let residual = self.residual.take();
        let adds = residual.is_some();
        let mut out = match residual.map(NdArrayTensor::into_rounded) {
            None => Buffer::new::<bf16>(self.output_len()),
            Some(Ok(buffer)) => buffer,
            Some(Err(residual)) => {
                let mut copy = Buffer::new::<bf16>(self.output_len());
                match residual.rounded() {
                    Some(numbers) => copy.as_mut().copy_from_slice(numbers),
                    None => round(residual.slice(), copy.as_mut()),
                }
                copy
            }
        };
        self.run_into(adds, NumbersMut::Rounded(out.as_mut()));
        out
    }

    fn run_into(&self, adds: bool, out: NumbersMut<'_>) {
        let bias = self.bias.as_ref().map(NdArrayTensor::slice);
        let rounded = || self.weight.1.takes_rounded().then(|| self.x.rounded()).flatten();
        let x = if self.as_planes {
            Numbers::Planes(self.x.slice())
        } else {
            rounded().map_or_else(|| Numbers::Single(self.x.slice()), Numbers::Rounded)
        };
        conv_bf16(&self.shape, x, &self.weight.1, bias, self.activation, adds, out);
    }
}

/// A convolution with image and weights rounded to bf16; see [`ConvShape::is_faster_rounded`].
pub(super) fn rounded(
    shape: &ConvShape,
    x: NdArrayTensor,
    weight: &NdArrayTensor,
    bias: Option<&NdArrayTensor>,
    End { residual, activation }: End,
) -> NdArrayTensor {
    check_residual(shape, residual.as_ref());
    let last = |tensor: NdArrayTensor| tensor.channels_last().into_contiguous();
    let as_planes = shape.takes_planes() && x.layout().is_contiguous();
    let as_f32 = || cast::cast(weight.clone(), DType::F32).into_contiguous();
    // Packed weights depend on their own dims, the groups and the way alone.
    let way = shape.rounded_way();
    let is_key = |key: &Key| key.0 == *weight.layout() && (key.1, key.2) == (shape.groups, way);
    let key = || (weight.layout().clone(), shape.groups, way);
    let packed = weight.prepared(is_key, || {
        let weight = as_f32();
        (key(), PackedConvBf16::consuming(shape, weight.slice(), &|read| weight.release(read)))
    });
    let packed = packed.cloned();
    let waits = packed.as_ref().is_some_and(|packed| packed.1.takes_rounded());
    let once = || Arc::new((key(), PackedConvBf16::once(shape, as_f32().slice())));
    let work = RoundedConv {
        shape: shape.clone(),
        weight: packed.unwrap_or_else(once),
        bias: bias.cloned(),
        activation,
        x: if as_planes { x } else { last(x) },
        as_planes,
        residual: residual.map(last),
    };
    let mut dims = shape.output_dims();
    dims[1..].rotate_left(1);
    let y = if waits {
        // What it takes waits no longer: waiting convolutions are no chain.
        work.x.complete_rounded();
        work.residual.iter().for_each(Primitive::complete_rounded);
        NdArrayTensor::deferred(Work::Rounded(work), dims.into())
    } else {
        NdArrayTensor::from_buffer(work.run(), dims.into(), DType::F32)
    };
    y.channels_first()
}
