//! Bounds on gradients.

use crate::GradientsParams;
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use kiln_core::tensor::backend::{AutodiffBackend, Backend};
use kiln_core::tensor::{DType, Traced, elementwise};
use std::collections::HashSet;

/// How gradients are bounded.
#[derive(Config, Debug)]
pub enum GradientClippingConfig {
    /// Each element to `±threshold`.
    Value(f32),
    /// Each parameter's gradient to this Euclidean norm.
    Norm(f32),
}

impl GradientClippingConfig {
    /// Makes the clipping.
    pub fn init(&self) -> GradientClipping {
        match *self {
            Self::Value(threshold) => GradientClipping::Value(threshold),
            Self::Norm(threshold) => GradientClipping::Norm(threshold),
        }
    }
}

/// Bounds gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GradientClipping {
    /// Each element to `±threshold`.
    Value(f32),
    /// Each parameter's gradient to this Euclidean norm.
    Norm(f32),
}

impl GradientClipping {
    /// The gradient within bounds.
    pub fn clip_gradient<B: Backend, const D: usize>(&self, gradient: Tensor<B, D>) -> Tensor<B, D> {
        match *self {
            Self::Value(threshold) => gradient.clamp(-threshold, threshold),
            Self::Norm(threshold) => {
                let norm = sum_of_squares(gradient.clone()).sqrt();
                scaled(gradient, factor(norm, f64::from(threshold)))
            }
        }
    }
}

/// The dtype of sums over floats of a dtype: f16 holds no squares of numbers above 256.
fn dtype_of_sums(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The sum of a tensor's squares, in [`dtype_of_sums`].
pub(crate) fn sum_of_squares<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, 1> {
    let dtype = dtype_of_sums(tensor.dtype());
    let tensor = tensor.cast(dtype);
    (tensor.clone() * tensor).sum()
}

/// A tensor times a factor `[1]` that its dtype may not hold.
pub(crate) fn scaled<B: Backend, const D: usize>(tensor: Tensor<B, D>, factor: Tensor<B, 1>) -> Tensor<B, D> {
    let dtype = tensor.dtype();
    let wide = dtype_of_sums(dtype);
    (tensor.cast(wide) * factor.cast(wide).reshape([1; D])).cast(dtype)
}

/// What gradients of a norm are multiplied by. It stays on the device: nothing waits for it. 1e-6 as in
/// `torch.nn.utils.clip_grad_norm_`.
fn factor<B: Backend>(norm: Tensor<B, 1>, threshold: f64) -> Tensor<B, 1> {
    elementwise([norm], |[norm]| {
        (Traced::parameter(threshold) / (norm + Traced::parameter(1e-6))).min_pair(Traced::parameter(1.0))
    })
}

impl GradientsParams {
    /// Bounds the Euclidean norm of all gradients of a module together, as `torch.nn.utils.clip_grad_norm_` does, and yields what
    /// it was, `[1]`: f32, or f64 where a gradient is; nothing when there is no gradient. Gradients of other modules stay as
    /// they are.
    pub fn clip_total_norm<B: AutodiffBackend, M: AutodiffModule<B>>(
        &mut self,
        module: &M,
        threshold: f64,
    ) -> Option<Tensor<B::InnerBackend, 1>> {
        let mut squares = Squares::<B> { grads: self, seen: HashSet::new(), squares: Vec::new() };
        module.visit(&mut squares);
        let squares = squares.squares;
        if squares.is_empty() {
            return None;
        }
        let is_double = squares.iter().any(|square| square.dtype() == DType::F64);
        let dtype = if is_double { DType::F64 } else { DType::F32 };
        let squares = squares.into_iter().map(|square| square.cast(dtype)).collect();
        let norm = Tensor::cat(squares, 0).sum().sqrt();
        let factor = factor(norm.clone(), threshold);
        module.visit(&mut Scaler::<B> { grads: self, seen: HashSet::new(), factor });
        Some(norm)
    }
}

/// Sums the squares of each gradient, on the device of the first one.
struct Squares<'a, B: AutodiffBackend> {
    grads: &'a GradientsParams,
    /// A parameter may be in several places of a module.
    seen: HashSet<ParamId>,
    squares: Vec<Tensor<B::InnerBackend, 1>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Squares<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let Some(gradient) = self.grads.get::<B::InnerBackend, D>(param.id) else { return };
        let square = sum_of_squares(gradient);
        self.squares.push(match self.squares.first() {
            Some(first) => square.to_device(&first.device()),
            None => square,
        });
    }
}

/// Multiplies gradients as it visits their parameters.
struct Scaler<'a, B: AutodiffBackend> {
    grads: &'a mut GradientsParams,
    seen: HashSet<ParamId>,
    factor: Tensor<B::InnerBackend, 1>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Scaler<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let Some(gradient) = self.grads.remove::<B::InnerBackend, D>(param.id) else { return };
        let factor = self.factor.clone().to_device(&gradient.device());
        self.grads.register(param.id, scaled(gradient, factor));
    }
}
