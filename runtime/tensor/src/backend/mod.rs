//! What a device must be able to do.

mod device;
mod dtypes;
mod traits;

pub use device::{DeviceOps, ExecutionError};
pub(crate) use dtypes::from_data;
pub use dtypes::held;
pub use traits::{AutodiffBackend, Backend, Primitive, SliceRange};
