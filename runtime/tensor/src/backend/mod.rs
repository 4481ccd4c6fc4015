//! What a device must be able to do.

mod autodiff;
mod device;
mod dtypes;
mod layout;
mod primitive;
mod traits;

pub use autodiff::AutodiffBackend;
pub use device::{DeviceId, DeviceOps, ExecutionError};
pub(crate) use dtypes::{from_data, held_for};
pub use dtypes::{held, hold};
pub use layout::{Layout, row_major, row_major_into};
pub use primitive::{Primitive, SliceRange};
pub use traits::Backend;
