//! Losses on numbers.

use super::{Reduction, check_same};
use crate::config::Config;
use crate::module::Module;
use crate::nn::display::layer_display;
use crate::tensor::{Tensor, backend::Backend};

/// `(prediction - target)²`.
#[derive(Module, Clone, Debug, Default)]
pub struct MseLoss;

impl MseLoss {
    /// The loss.
    pub fn new() -> Self {
        Self
    }

    /// Operands of one shape.
    pub fn forward<const D: usize, B: Backend>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        reduction.apply(self.forward_no_reduction(predictions, targets))
    }

    /// One loss an element.
    pub fn forward_no_reduction<const D: usize, B: Backend>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
    ) -> Tensor<B, D> {
        check_same("MseLoss", &predictions, targets.dims());
        predictions.sub(targets).powf_scalar(2.0)
    }
}

/// Configuration of [`HuberLoss`].
#[derive(Config, Debug)]
pub struct HuberLossConfig {
    /// Where the loss turns from quadratic to linear.
    pub delta: f32,
}

/// Quadratic for residuals up to `delta`, linear beyond (Huber 1964).
#[derive(Module, Clone, Debug)]
#[module(custom_display)]
pub struct HuberLoss {
    /// Where the loss turns from quadratic to linear.
    pub delta: f32,
    /// `delta² / 2`: what makes both parts meet.
    pub lin_bias: f32,
}

impl HuberLossConfig {
    /// The loss.
    ///
    /// # Panics
    /// When `delta` is negative or NaN.
    pub fn init(&self) -> HuberLoss {
        assert!(self.delta >= 0.0, "HuberLoss: delta must not be negative, got {}", self.delta);
        HuberLoss { delta: self.delta, lin_bias: self.delta * self.delta * 0.5 }
    }
}

impl HuberLoss {
    /// Operands of one shape.
    pub fn forward<const D: usize, B: Backend>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        reduction.apply(self.forward_no_reduction(predictions, targets))
    }

    /// One loss an element.
    pub fn forward_no_reduction<const D: usize, B: Backend>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
    ) -> Tensor<B, D> {
        check_same("HuberLoss", &predictions, targets.dims());
        self.forward_residuals(targets - predictions)
    }

    /// One loss a residual.
    pub fn forward_residuals<const D: usize, B: Backend>(&self, residuals: Tensor<B, D>) -> Tensor<B, D> {
        let large = residuals.clone().abs().greater_elem(self.delta);
        let bounded = residuals.clone().clamp(-self.delta, self.delta);
        let linear = bounded * residuals.clone() - self.lin_bias;
        (residuals.powf_scalar(2.0) * 0.5).mask_where(large, linear)
    }
}

layer_display!(HuberLoss, |loss| { "delta" => loss.delta, "lin_bias" => loss.lin_bias });

/// Configuration of [`PoissonNllLoss`].
#[derive(Config, Debug)]
pub struct PoissonNllLossConfig {
    /// Whether predictions are logarithms of rates.
    #[config(default = true)]
    pub log_input: bool,
    /// Whether Stirling's approximation of `ln(target!)` is added.
    #[config(default = false)]
    pub full: bool,
    /// Keeps the logarithm finite when predictions are rates.
    #[config(default = 1e-8)]
    pub eps: f64,
}

/// Negative log-likelihood of counts under a Poisson distribution.
#[derive(Module, Clone, Debug)]
#[module(custom_display)]
pub struct PoissonNllLoss {
    /// Whether predictions are logarithms of rates.
    pub log_input: bool,
    /// Whether Stirling's approximation of `ln(target!)` is added.
    pub full: bool,
    /// Keeps the logarithm finite when predictions are rates.
    pub eps: f64,
}

impl PoissonNllLossConfig {
    /// The loss.
    ///
    /// # Panics
    /// When `eps` is not positive.
    pub fn init(&self) -> PoissonNllLoss {
        assert!(self.eps > 0.0, "PoissonNllLoss: eps must be positive, got {}", self.eps);
        PoissonNllLoss { log_input: self.log_input, full: self.full, eps: self.eps }
    }
}

impl PoissonNllLoss {
    /// Operands of one shape.
    pub fn forward<const D: usize, B: Backend>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        reduction.apply(self.forward_no_reduction(predictions, targets))
    }

    /// One loss an element.
    pub fn forward_no_reduction<const D: usize, B: Backend>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
    ) -> Tensor<B, D> {
        check_same("PoissonNllLoss", &predictions, targets.dims());
        let loss = if self.log_input {
            predictions.clone().exp() - targets.clone() * predictions
        } else {
            predictions.clone() - targets.clone() * (predictions + self.eps).log()
        };
        if !self.full {
            return loss;
        }
        // Stirling: ln(n!) ≈ n ln n - n + ln(2πn) / 2, used for n > 1.
        let stirling = targets.clone() * targets.clone().log() - targets.clone()
            + (targets.clone() * (2.0 * core::f64::consts::PI)).log() * 0.5;
        let small = targets.lower_equal_elem(1.0);
        loss + stirling.mask_fill(small, 0.0)
    }
}

layer_display!(PoissonNllLoss, |loss| {
    "log_input" => loss.log_input,
    "full" => loss.full,
    "eps" => loss.eps,
});
