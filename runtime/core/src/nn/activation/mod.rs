//! Activations as layers; the functions are in `tensor::activation`.

mod any;

pub use any::{Activation, ActivationConfig};

use super::{Initializer, Linear, LinearConfig, display::layer_display};
use crate::config::Config;
use crate::module::{Module, Param};
use crate::tensor::{Tensor, activation, backend::Backend};

/// Declares a layer without options around an activation function.
macro_rules! activation_layer {
    ($(#[$doc:meta])* $name:ident, $function:ident) => {
        $(#[$doc])*
        #[derive(Module, Clone, Debug, Default)]
        pub struct $name;

        impl $name {
            /// The layer.
            pub fn new() -> Self {
                Self
            }

            /// Same shape.
            pub fn forward<B: Backend, const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
                activation::$function(input)
            }
        }
    };
}

activation_layer!(
    /// `max(x, 0)`.
    Relu, relu
);
activation_layer!(
    /// `x Φ(x)`.
    Gelu, gelu
);
activation_layer!(
    /// `1 / (1 + e^-x)`.
    Sigmoid, sigmoid
);
activation_layer!(
    /// Hyperbolic tangent.
    Tanh, tanh
);
activation_layer!(
    /// `x · clamp(x / 6 + 1/2, 0, 1)`.
    HardSwish, hard_swish
);

/// Half of the input times the sigmoid of the other half (Dauphin et al. 2017).
#[derive(Module, Clone, Debug, Default)]
pub struct GLU {
    dim: usize,
}

impl GLU {
    /// The layer that halves `dim`.
    pub fn new(dim: usize) -> Self {
        Self { dim }
    }

    /// The same shape with half the size along the dim; see [`activation::glu`].
    pub fn forward<B: Backend, const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        activation::glu(input, self.dim)
    }
}

/// Configuration of [`LeakyRelu`].
#[derive(Config, Debug)]
pub struct LeakyReluConfig {
    /// Slope of the negative side.
    #[config(default = 0.01)]
    pub negative_slope: f64,
}

/// `x` if positive, else `negative_slope · x`.
#[derive(Module, Clone, Debug)]
#[module(custom_display)]
pub struct LeakyRelu {
    /// Slope of the negative side.
    pub negative_slope: f64,
}

impl LeakyReluConfig {
    /// The layer.
    pub fn init(&self) -> LeakyRelu {
        LeakyRelu { negative_slope: self.negative_slope }
    }
}

impl LeakyRelu {
    /// Same shape.
    pub fn forward<B: Backend, const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        activation::leaky_relu(input, self.negative_slope)
    }
}

layer_display!(LeakyRelu, |layer| { "negative_slope" => layer.negative_slope });

/// Configuration of [`HardSigmoid`].
#[derive(Config, Debug)]
pub struct HardSigmoidConfig {
    /// Slope.
    #[config(default = 0.2)]
    pub alpha: f64,
    /// Offset.
    #[config(default = 0.5)]
    pub beta: f64,
}

/// `clamp(alpha · x + beta, 0, 1)`.
#[derive(Module, Clone, Debug)]
#[module(custom_display)]
pub struct HardSigmoid {
    /// Slope.
    pub alpha: f64,
    /// Offset.
    pub beta: f64,
}

impl HardSigmoidConfig {
    /// The layer.
    pub fn init(&self) -> HardSigmoid {
        HardSigmoid { alpha: self.alpha, beta: self.beta }
    }
}

impl HardSigmoid {
    /// Same shape.
    pub fn forward<B: Backend, const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        activation::hard_sigmoid(input, self.alpha, self.beta)
    }
}

layer_display!(HardSigmoid, |layer| { "alpha" => layer.alpha, "beta" => layer.beta });

/// Configuration of [`Softplus`].
#[derive(Config, Debug)]
pub struct SoftplusConfig {
    /// Sharpness.
    #[config(default = 1.0)]
    pub beta: f64,
}

/// `ln(1 + e^(beta · x)) / beta`.
#[derive(Module, Clone, Debug)]
#[module(custom_display)]
pub struct Softplus {
    /// Sharpness.
    pub beta: f64,
}

impl SoftplusConfig {
    /// The layer.
    pub fn init(&self) -> Softplus {
        Softplus { beta: self.beta }
    }
}

impl Softplus {
    /// Same shape.
    pub fn forward<B: Backend, const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        activation::softplus(input, self.beta)
    }
}

layer_display!(Softplus, |layer| { "beta" => layer.beta });

/// Configuration of [`PRelu`].
#[derive(Config, Debug)]
pub struct PReluConfig {
    /// Number of slopes: 1, or one a channel.
    #[config(default = "1")]
    pub num_parameters: usize,
    /// Slope that learning starts from.
    #[config(default = 0.25)]
    pub alpha: f64,
}

/// `x` if positive, else a learned slope times `x` (He et al. 2015).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct PRelu<B: Backend> {
    /// Slopes, `[num_parameters]`.
    pub alpha: Param<Tensor<B, 1>>,
    /// Slope that learning started from.
    pub alpha_value: f64,
}

impl PReluConfig {
    /// The layer.
    pub fn init<B: Backend>(&self, device: &B::Device) -> PRelu<B> {
        let alpha = Initializer::Constant { value: self.alpha }.init([self.num_parameters], device);
        PRelu { alpha, alpha_value: self.alpha }
    }
}

impl<B: Backend> PRelu<B> {
    /// `[batch, channels, …]`, same shape; one slope serves any shape.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        activation::prelu(input, self.alpha.val())
    }
}

layer_display!(PRelu<B>, |layer| {
    "num_parameters" => layer.alpha.lazy_shape()[0],
    "alpha_value" => layer.alpha_value,
});

/// Configuration of [`SwiGlu`].
#[derive(Config, Debug)]
pub struct SwiGluConfig {
    /// Size of the last dim of the input.
    pub d_input: usize,
    /// Size of the last dim of the output.
    pub d_output: usize,
    /// Whether both layers have a bias.
    #[config(default = false)]
    pub bias: bool,
    /// How the parameters start.
    #[config(default = "crate::nn::layer_initializer()")]
    pub initializer: Initializer,
}

/// `silu(inner(x)) · outer(x)` (Shazeer 2020).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct SwiGlu<B: Backend> {
    /// The gated layer.
    pub linear_inner: Linear<B>,
    /// The gate's partner.
    pub linear_outer: Linear<B>,
}

impl SwiGluConfig {
    /// A layer whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> SwiGlu<B> {
        let linear = || {
            LinearConfig::new(self.d_input, self.d_output)
                .with_bias(self.bias)
                .with_initializer(self.initializer.clone())
                .init(device)
        };
        SwiGlu { linear_inner: linear(), linear_outer: linear() }
    }
}

impl<B: Backend> SwiGlu<B> {
    /// `[…, d_input]` to `[…, d_output]`.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        activation::silu(self.linear_inner.forward(input.clone())) * self.linear_outer.forward(input)
    }
}

layer_display!(SwiGlu<B>, |layer| {
    "d_input" => layer.linear_inner.weight.lazy_shape()[0],
    "d_output" => layer.linear_inner.weight.lazy_shape()[1],
    "bias" => layer.linear_inner.bias.is_some(),
});
