//! Names that Burn keeps in its `ops` module: the operations of a [`Backend`] one by one, for programs that add operations
//! of their own to backends.

mod activation;
mod float;

pub use activation::ActivationOps;
pub use float::FloatTensorOps;

pub use crate::module::{DeformConvOptions, GridSampleOptions, SamplePadding as GridSamplePaddingMode};
pub use crate::{ConvOptions, ConvTransposeOptions};

use crate::Padding;
use crate::backend::Backend;
use crate::module::SampleMode;

/// A backend's float tensor.
pub type FloatTensor<B> = <B as Backend>::Primitive;

/// A backend's integer tensor: the same type as any other.
pub type IntTensor<B> = <B as Backend>::Primitive;

/// A backend's bool tensor: the same type as any other.
pub type BoolTensor<B> = <B as Backend>::Primitive;

/// A backend's float on the host.
pub type FloatElem<B> = <B as Backend>::FloatElem;

/// A backend's integer on the host.
pub type IntElem<B> = <B as Backend>::IntElem;

/// A backend's device.
pub type Device<B> = <B as Backend>::Device;

/// How values between samples are computed, for [`Tensor::grid_sample_2d`](crate::Tensor::grid_sample_2d).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpolateMode {
    /// The nearest sample.
    Nearest,
    /// Linear in both dims.
    Bilinear,
    /// Cubic convolution in both dims.
    Bicubic,
}

impl From<InterpolateMode> for SampleMode {
    fn from(mode: InterpolateMode) -> Self {
        match mode {
            InterpolateMode::Nearest => Self::Nearest,
            InterpolateMode::Bilinear => Self::Linear,
            InterpolateMode::Bicubic => Self::Cubic,
        }
    }
}

/// What stands outside a padded tensor, for [`Tensor::pad`](crate::Tensor::pad).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// A constant.
    Constant(f32),
    /// Mirrored without repeating the border.
    Reflect,
    /// The border repeated.
    Edge,
}

impl From<PadMode> for Padding {
    fn from(mode: PadMode) -> Self {
        match mode {
            PadMode::Constant(value) => value.into(),
            PadMode::Reflect => crate::PadMode::Reflect.into(),
            PadMode::Edge => crate::PadMode::Edge.into(),
        }
    }
}
