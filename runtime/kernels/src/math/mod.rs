//! Functions of vectors of f32, one file a family, each with its error bound.
//!
//! Bounds are in units in the last place of the exact result (ulp) and hold with FMA; without it they may double.
//! Coefficients are our own least-squares fits, reweighted towards equal ripples, over the interval that each comment names.

#![allow(
    clippy::approx_constant,
    clippy::excessive_precision,
    reason = "fitted coefficients; that one is near a constant is no accident, but it is no constant either"
)]

mod activations;
mod erf;
mod exp;
mod log;
mod map;
mod slope;
mod trigonometry;

pub(crate) use activations::{gelu, gelu_tanh, mish, sigmoid, silu, softplus};
pub(crate) use erf::erf;
pub(crate) use exp::{bounded_exp, bounded_exp2, exp, exp_m1, rounded_weight_of_two, tanh, weight_of_two};
pub(crate) use log::{log, log1p};
pub(crate) use map::{Map, map_rows, map_slice};
pub(crate) use slope::{Through, activation_gradient, slope_of_result};
pub(crate) use trigonometry::{cos, sin};

use crate::simd::Simd;

/// The polynomial with these coefficients, lowest first, by Horner's rule.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::F, coefficients: [f32; N]) -> S::F {
    let mut sum = s.splat(coefficients[N - 1]);
    for i in (0..N - 1).rev() {
        sum = s.mul_add(sum, x, s.splat(coefficients[i]));
    }
    sum
}

#[cfg(test)]
mod tests;
