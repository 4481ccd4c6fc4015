//! Normalization layers.

mod any;
mod batch;
mod group;
mod layer;

pub use any::{Normalization, NormalizationConfig};
pub use batch::{BatchNorm, BatchNormConfig};
pub use group::{GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig};
pub use layer::{LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig};
