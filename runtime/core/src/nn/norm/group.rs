//! Normalization over groups of channels.

use crate::config::Config;
use crate::module::{Module, Param};
use crate::nn::{Initializer, display::layer_display};
use crate::tensor::{Tensor, backend::Backend, module};

/// Configuration of [`GroupNorm`].
#[derive(Config, Debug)]
pub struct GroupNormConfig {
    /// Number of groups.
    pub num_groups: usize,
    /// Number of channels; a multiple of the groups.
    pub num_channels: usize,
    /// Added to the variance.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether to scale and shift.
    #[config(default = true)]
    pub affine: bool,
}

/// Mean 0 and variance 1 over each group of channels, then scale and shift per channel (Wu & He 2018).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct GroupNorm<B: Backend> {
    /// Scale, `[num_channels]`.
    pub gamma: Option<Param<Tensor<B, 1>>>,
    /// Shift, `[num_channels]`.
    pub beta: Option<Param<Tensor<B, 1>>>,
    /// Number of groups.
    pub num_groups: usize,
    /// Number of channels.
    pub num_channels: usize,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether it scales and shifts.
    pub affine: bool,
}

impl GroupNormConfig {
    /// A layer that scales by 1 and shifts by 0.
    ///
    /// # Panics
    /// When the channels cannot be divided into the groups.
    pub fn init<B: Backend>(&self, device: &B::Device) -> GroupNorm<B> {
        assert!(
            self.num_groups > 0 && self.num_channels.is_multiple_of(self.num_groups),
            "GroupNorm: {} channels cannot be divided into {} groups",
            self.num_channels,
            self.num_groups
        );
        let shape = [self.num_channels];
        GroupNorm {
            gamma: self.affine.then(|| Initializer::Ones.init(shape, device)),
            beta: self.affine.then(|| Initializer::Zeros.init(shape, device)),
            num_groups: self.num_groups,
            num_channels: self.num_channels,
            epsilon: self.epsilon,
            affine: self.affine,
        }
    }
}

impl<B: Backend> GroupNorm<B> {
    /// `[batch, num_channels, …]`, same shape.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let (gamma, beta) = (self.gamma.as_ref().map(Param::val), self.beta.as_ref().map(Param::val));
        module::group_norm(input, gamma, beta, self.num_groups, self.epsilon)
    }
}

layer_display!(GroupNorm<B>, |layer| {
    "num_groups" => layer.num_groups,
    "num_channels" => layer.num_channels,
    "epsilon" => layer.epsilon,
    "affine" => layer.affine,
});

/// Configuration of [`InstanceNorm`].
#[derive(Config, Debug)]
pub struct InstanceNormConfig {
    /// Number of channels.
    pub num_channels: usize,
    /// Added to the variance.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether to scale and shift.
    #[config(default = true)]
    pub affine: bool,
}

/// Mean 0 and variance 1 over each channel of each sample, then scale and shift (Ulyanov, Vedaldi & Lempitsky 2016).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct InstanceNorm<B: Backend> {
    /// Scale, `[num_channels]`.
    pub gamma: Option<Param<Tensor<B, 1>>>,
    /// Shift, `[num_channels]`.
    pub beta: Option<Param<Tensor<B, 1>>>,
    /// Number of channels.
    pub num_channels: usize,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether it scales and shifts.
    pub affine: bool,
}

impl InstanceNormConfig {
    /// A layer that scales by 1 and shifts by 0.
    pub fn init<B: Backend>(&self, device: &B::Device) -> InstanceNorm<B> {
        let shape = [self.num_channels];
        InstanceNorm {
            gamma: self.affine.then(|| Initializer::Ones.init(shape, device)),
            beta: self.affine.then(|| Initializer::Zeros.init(shape, device)),
            num_channels: self.num_channels,
            epsilon: self.epsilon,
            affine: self.affine,
        }
    }
}

impl<B: Backend> InstanceNorm<B> {
    /// `[batch, num_channels, …]`, same shape.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let (gamma, beta) = (self.gamma.as_ref().map(Param::val), self.beta.as_ref().map(Param::val));
        module::group_norm(input, gamma, beta, self.num_channels, self.epsilon)
    }
}

layer_display!(InstanceNorm<B>, |layer| {
    "num_channels" => layer.num_channels,
    "epsilon" => layer.epsilon,
    "affine" => layer.affine,
});
