//! What a device must be able to do.

mod device;
mod traits;

pub use device::{DeviceOps, ExecutionError};
pub use traits::{AutodiffBackend, Backend, Primitive, SliceRange};
