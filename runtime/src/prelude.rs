//! What most programs need: `use kiln::prelude::*`.

pub use crate::config::Config;
pub use crate::module::{AutodiffModule as _, Module};
pub use crate::nn;
pub use crate::tensor::backend::{Backend, DeviceOps};
pub use crate::tensor::{
    Bool, Device, ElementConversion, Float, Int, Shape, SliceArg, Tensor, TensorData, ToElement, s,
};
