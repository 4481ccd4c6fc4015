//! Layers, shaped and named like Burn's, so that programs and records can be exchanged.
//!
//! Every layer has a `…Config` with builders and `init(&device)`, and a `forward`.

pub mod activation;
pub mod attention;
pub mod cache;
pub mod conv;
mod display;
mod dropout;
mod embedding;
pub mod interpolate;
mod linear;
pub mod loss;
mod noise;
pub mod norm;
mod padding;
pub mod pool;
mod position;
mod quantized;
mod rnn;
pub mod transformer;
mod unfold;

pub use crate::module::Initializer;
pub use activation::*;
pub use dropout::{Dropout, DropoutConfig};
pub use embedding::{Embedding, EmbeddingConfig};
pub use linear::{Linear, LinearConfig, LinearLayout};
pub use noise::{GaussianNoise, GaussianNoiseConfig};
pub use norm::*;
pub use padding::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
pub use position::{
    PositionalEncoding, PositionalEncodingConfig, RotaryEncoding, RotaryEncodingConfig, generate_sinusoids,
};
pub use quantized::{
    QuantizedAdd, QuantizedAddConfig, QuantizedLinear, QuantizedLinearConfig, QuantizedMul,
    QuantizedMulConfig, Quantizer, QuantizerConfig,
};
pub use rnn::*;
pub use unfold::{Unfold4d, Unfold4dConfig};

/// PyTorch's start for linear and convolution layers: uniform over `±1 / sqrt(fan_in)`.
fn layer_initializer() -> Initializer {
    const INV_SQRT_3: f64 = 0.577_350_269_189_625_8;
    Initializer::KaimingUniform { gain: INV_SQRT_3, fan_out_only: false }
}
