//! Names that Burn keeps in its `ops` module.

use crate::Padding;

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
