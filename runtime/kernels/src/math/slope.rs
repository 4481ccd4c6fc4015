//! The way back through an activation.

use super::{erf, exp, sigmoid, softplus, tanh};
use crate::simd::{Simd, dispatched};
use core::f32::consts::FRAC_1_SQRT_2;
use kiln_types::Activation;

/// Whether the slope follows from the result alone, so that what went in need not be kept.
pub(crate) fn slope_of_result(activation: Activation) -> bool {
    match activation {
        Activation::Relu
        | Activation::Sigmoid
        | Activation::Tanh
        | Activation::HardSigmoid { .. }
        | Activation::Clamp { .. }
        | Activation::Affine { .. } => true,
        Activation::LeakyRelu { .. }
        | Activation::Gelu
        | Activation::GeluTanh
        | Activation::Silu
        | Activation::Mish
        | Activation::Softplus
        | Activation::HardSwish
        | Activation::Elu { .. }
        | Activation::ScaledTanh { .. }
        | Activation::Softsign
        | Activation::ThresholdedRelu { .. } => false,
    }
}

/// Gradients, what went into an activation, and what came out of it.
#[derive(Clone, Copy)]
pub(crate) struct Through {
    /// Of the results.
    pub gradient: *const f32,
    /// What went in; not read where [`slope_of_result`] is true, but valid all the same.
    pub x: *const f32,
    /// The results.
    pub y: *const f32,
    /// What went in gets its gradient here; any of the others may be the same place.
    pub to: *mut f32,
    /// Elements.
    pub len: usize,
}

/// `to = f(gradient, x, y)`.
#[inline(always)]
unsafe fn each<S: Simd>(s: S, run: Through, f: impl Fn(S::F, S::F, S::F) -> S::F) {
    let Through { gradient, x, y, to, len } = run;
    for at in (0..len).step_by(S::LANES) {
        let count = S::LANES.min(len - at);
        // SAFETY: the pointers hold `len` elements by the caller's promise.
        unsafe {
            let load = |from: *const f32| s.load_up_to(from.add(at), count);
            s.store_up_to(to.add(at), count, f(load(gradient), load(x), load(y)));
        }
    }
}

dispatched! {
    /// The gradient of what went into an activation, from that of the results: at corners as PyTorch has it.
    ///
    /// # Safety
    /// The pointers are valid for the length, and equal or apart.
    pub(crate) unsafe fn activation_gradient<S>(s, activation: Activation, run: Through) {
        let (zero, half, one) = (s.splat(0.0), s.splat(0.5), s.splat(1.0));
        match activation {
            Activation::Relu => each(s, run, #[inline(always)] |g, _, y| {
                s.select_or_zero(s.lt(zero, y), g)
            }),
            Activation::LeakyRelu { slope } => {
                let slope = s.splat(slope as f32);
                each(s, run, #[inline(always)] |g, x, _| s.select(s.lt(zero, x), g, s.mul(g, slope)));
            }
            Activation::Sigmoid => each(s, run, #[inline(always)] |g, _, y| {
                s.mul(s.mul(g, y), s.sub(one, y))
            }),
            Activation::Tanh => each(s, run, #[inline(always)] |g, _, y| s.mul(g, s.sub_product(one, y, y))),
            Activation::Softplus => each(s, run, #[inline(always)] |g, x, _| s.mul(g, sigmoid(s, x))),
            Activation::Silu => each(s, run, #[inline(always)] |g, x, _| {
                let share = sigmoid(s, x);
                s.mul(s.mul(g, share), s.mul_add(x, s.sub(one, share), one))
            }),
            Activation::Mish => each(s, run, #[inline(always)] |g, x, _| {
                let tanh = tanh(s, softplus(s, x));
                let rest = s.mul(s.mul(x, sigmoid(s, x)), s.sub_product(one, tanh, tanh));
                s.mul(g, s.add(tanh, rest))
            }),
            // Φ(x) + x φ(x); φ(x) = e^(-x²/2) / √(2π).
            Activation::Gelu => each(s, run, #[inline(always)] |g, x, _| {
                let density = s.mul(exp(s, s.mul(s.mul(x, x), s.splat(-0.5))), s.splat(0.398_942_3));
                let below = s.mul_add(erf(s, s.mul(x, s.splat(FRAC_1_SQRT_2))), half, half);
                s.mul(g, s.mul_add(x, density, below))
            }),
            // √(2/π) (x + 0.044715 x³) under the tanh.
            Activation::GeluTanh => each(s, run, #[inline(always)] |g, x, _| {
                let square = s.mul(x, x);
                let cubic = s.mul_add(s.splat(0.035_677_407), square, s.splat(0.797_884_6));
                let slope = s.mul_add(s.splat(3.0 * 0.035_677_407), square, s.splat(0.797_884_6));
                let tanh = tanh(s, s.mul(cubic, x));
                let outer = s.mul_add(tanh, half, half);
                let inner = s.mul(s.mul(s.mul(x, half), s.sub_product(one, tanh, tanh)), slope);
                s.mul(g, s.add(outer, inner))
            }),
            Activation::HardSigmoid { alpha, .. } => {
                let alpha = s.splat(alpha as f32);
                each(s, run, #[inline(always)] |g, _, y| {
                    let below = s.select_or_zero(s.lt(y, one), s.mul(g, alpha));
                    s.select_or_zero(s.lt(zero, y), below)
                });
            }
            Activation::HardSwish => each(s, run, #[inline(always)] |g, x, _| {
                let between = s.mul(g, s.mul_add(x, s.splat(1.0 / 3.0), half));
                let upper = s.select(s.lt(x, s.splat(3.0)), between, g);
                s.select_or_zero(s.lt(s.splat(-3.0), x), upper)
            }),
            Activation::Elu { alpha } => {
                let alpha = s.splat(alpha as f32);
                each(s, run, #[inline(always)] |g, x, y| s.select(s.lt(zero, x), g, s.mul(g, s.add(y, alpha))));
            }
            Activation::Clamp { min, max } => {
                let (min, max) = (s.splat(min as f32), s.splat(max as f32));
                each(s, run, #[inline(always)] |g, _, y| {
                    let below = s.select_or_zero(s.lt(y, max), g);
                    s.select_or_zero(s.lt(min, y), below)
                });
            }
            Activation::Affine { alpha, .. } => {
                let alpha = s.splat(alpha as f32);
                each(s, run, #[inline(always)] |g, _, _| s.mul(g, alpha));
            }
            Activation::ScaledTanh { alpha, beta } => {
                let (beta, scale) = (s.splat(beta as f32), s.splat((alpha * beta) as f32));
                each(s, run, #[inline(always)] |g, x, _| {
                    let tanh = tanh(s, s.mul(x, beta));
                    s.mul(s.mul(g, s.sub_product(one, tanh, tanh)), scale)
                });
            }
            Activation::Softsign => each(s, run, #[inline(always)] |g, x, _| {
                let divisor = s.add(one, s.abs(x));
                s.div(g, s.mul(divisor, divisor))
            }),
            Activation::ThresholdedRelu { alpha } => {
                let alpha = s.splat(alpha as f32);
                each(s, run, #[inline(always)] |g, x, _| s.select_or_zero(s.lt(alpha, x), g));
            }
        }
    }
}
