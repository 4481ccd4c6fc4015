//! Normalization layers.

mod batch;
mod group;
mod layer;

pub use batch::{BatchNorm, BatchNormConfig};
pub use group::{GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig};
pub use layer::{LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig};
