//! Gradients of activations: one pass over the gradient and the input.

use crate::backend::{Backend, Primitive};
use crate::compose::calc::T;
use crate::trace::{self, Traced};
use crate::{Activation, DType};
use core::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// Default of [`Backend::activation_gradient`].
pub fn activation_gradient<B: Backend>(activation: Activation, gradient: T<B>, x: T<B>) -> T<B> {
    let dtype = x.dtype();
    let [gradient, x] = match dtype {
        DType::F16 | DType::BF16 => [gradient, x].map(|t| B::cast(t, DType::F32)),
        _ => [gradient, x],
    };
    let [result] = trace::run::<B, 2, 1>([gradient, x], |[gradient, x]| {
        let y = || x.clone().activation(activation);
        [activation_derivative(activation, gradient, x.clone(), y)]
    });
    if result.dtype() == dtype { result } else { B::cast(result, dtype) }
}

/// The gradient of the input `x`, as a formula of it and of the result `y`, whichever takes less to compute. At corners it
/// is what PyTorch has.
pub fn activation_derivative(
    activation: Activation,
    gradient: Traced,
    x: Traced,
    y: impl FnOnce() -> Traced,
) -> Traced {
    let g = gradient;
    match activation {
        Activation::Relu => g.mask_fill(y().lower_equal_elem(0.0), 0.0),
        Activation::LeakyRelu { slope } => (g.clone() * slope).mask_where(x.greater_elem(0.0), g),
        Activation::Sigmoid => {
            let y = y();
            g * y.clone() * (1.0 - y)
        }
        Activation::Tanh => {
            let y = y();
            g * (1.0 - y.clone() * y)
        }
        Activation::Softplus => g * x.activation(Activation::Sigmoid),
        Activation::Silu => {
            let share = x.clone().activation(Activation::Sigmoid);
            g * share.clone() * (x * (1.0 - share) + 1.0)
        }
        Activation::Mish => {
            let share = x.clone().activation(Activation::Sigmoid);
            let tanh = x.clone().activation(Activation::Softplus).tanh();
            g * (tanh.clone() + x * share * (1.0 - tanh.clone() * tanh))
        }
        // Φ(x) + x φ(x); φ(x) = e^(-x²/2) / √(2π).
        Activation::Gelu => {
            let density = (x.clone() * x.clone() * -0.5).exp() * (FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 0.5);
            let below = ((x.clone() * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
            g * (below + x * density)
        }
        Activation::GeluTanh => {
            // √(2/π) = (2/√π) / √2
            let scale = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
            let square = x.clone() * x.clone();
            let tanh = (x.clone() * (square.clone() * 0.044_715 + 1.0) * scale).tanh();
            let slope = (square * (3.0 * 0.044_715) + 1.0) * scale;
            let outer = (tanh.clone() + 1.0) * 0.5;
            g * (outer + x * 0.5 * (1.0 - tanh.clone() * tanh) * slope)
        }
        Activation::HardSigmoid { alpha, beta } => {
            let inner = x * alpha + beta;
            let inside = inner.clone().greater_elem(0.0).bool_and(inner.lower_elem(1.0));
            // No product with 0, which is NaN where the gradient is infinite.
            Traced::from(0.0).mask_where(inside, g * alpha)
        }
        Activation::HardSwish => {
            let between = g.clone() * (x.clone() * (1.0 / 3.0) + 0.5);
            let above = x.clone().greater_equal_elem(3.0);
            between.mask_where(above, g).mask_fill(x.lower_equal_elem(-3.0), 0.0)
        }
        Activation::Elu { alpha } => {
            let y = y();
            let falling = g.clone() * (y + alpha);
            falling.mask_where(x.greater_elem(0.0), g)
        }
        Activation::Clamp { min, max } => {
            let inside = x.clone().greater_elem(min).bool_and(x.lower_elem(max));
            g.mask_fill(inside.bool_not(), 0.0)
        }
        Activation::Affine { alpha, .. } => g * alpha,
        Activation::ScaledTanh { alpha, beta } => {
            let tanh = (x * beta).tanh();
            g * (1.0 - tanh.clone() * tanh) * (alpha * beta)
        }
        Activation::Softsign => {
            let divisor = x.abs() + 1.0;
            g / (divisor.clone() * divisor)
        }
        Activation::ThresholdedRelu { alpha } => g.mask_fill(x.greater_elem(alpha).bool_not(), 0.0),
    }
}
