//! Any normalization, chosen at run time.

use super::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig, LayerNorm,
    LayerNormConfig, RmsNorm, RmsNormConfig,
};
use crate::config::Config;
use crate::module::Module;
use crate::tensor::{Tensor, backend::Backend};

/// Declares the choice from its variants: the layer, its configuration, and the field in which both have the number of
/// features (for the layer, an expression).
macro_rules! normalizations {
    ($($variant:ident($config:ident { $size:ident }, $layer:ident, |$norm:ident| $features:expr)),* $(,)?) => {
        /// Configuration of [`Normalization`].
        #[derive(Config, Debug)]
        #[non_exhaustive]
        pub enum NormalizationConfig {
            $(
                #[doc = concat!("Of [`", stringify!($layer), "`].")]
                $variant($config),
            )*
        }

        /// One of the normalization layers.
        #[derive(Module, Debug)]
        #[non_exhaustive]
        pub enum Normalization<B: Backend> {
            $(
                #[doc = concat!("[`", stringify!($layer), "`].")]
                $variant($layer<B>),
            )*
        }

        $(
            impl From<$config> for NormalizationConfig {
                fn from(config: $config) -> Self {
                    Self::$variant(config)
                }
            }

            impl<B: Backend> From<$layer<B>> for Normalization<B> {
                fn from(layer: $layer<B>) -> Self {
                    Self::$variant(layer)
                }
            }
        )*

        impl NormalizationConfig {
            /// The layer.
            pub fn init<B: Backend>(&self, device: &B::Device) -> Normalization<B> {
                match self {
                    $(Self::$variant(config) => Normalization::$variant(config.init(device)),)*
                }
            }

            /// The same with another number of features.
            pub fn with_num_features(self, num_features: usize) -> Self {
                match self {
                    $(Self::$variant(config) => Self::$variant($config { $size: num_features, ..config }),)*
                }
            }

            /// Number of features (channels) that are normalized.
            pub fn num_features(&self) -> usize {
                match self {
                    $(Self::$variant(config) => config.$size,)*
                }
            }
        }

        impl<B: Backend> Normalization<B> {
            /// Same shape.
            pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
                match self {
                    $(Self::$variant(layer) => layer.forward(input),)*
                }
            }

            /// Number of features (channels) that are normalized.
            pub fn num_features(&self) -> usize {
                match self {
                    $(Self::$variant($norm) => $features,)*
                }
            }
        }
    };
}

normalizations!(
    Batch(BatchNormConfig { num_features }, BatchNorm, |norm| norm.gamma.lazy_shape()[0]),
    Group(GroupNormConfig { num_channels }, GroupNorm, |norm| norm.num_channels),
    Instance(InstanceNormConfig { num_channels }, InstanceNorm, |norm| norm.num_channels),
    Layer(LayerNormConfig { d_model }, LayerNorm, |norm| norm.gamma.lazy_shape()[0]),
    Rms(RmsNormConfig { d_model }, RmsNorm, |norm| norm.gamma.lazy_shape()[0]),
);
