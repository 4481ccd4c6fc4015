//! One function over a run of elements.

use super::{cos, erf, exp, exp_m1, gelu, gelu_tanh, log, log1p, mish, sigmoid, silu, sin, softplus, tanh};
use crate::elementwise::unary_of;
use crate::simd::{Simd, dispatched};
use kiln_types::{Activation, UnaryOp};

/// A function from f32 to f32 with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Map {
    /// A unary operation.
    Unary(UnaryOp),
    /// An activation.
    Activation(Activation),
}

impl Map {
    /// The cost of one element in the units of [`crate::threads::parallel_for`], in eighths.
    pub fn work(self) -> usize {
        match self {
            Map::Unary(op) => match op {
                UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sqrt | UnaryOp::Recip | UnaryOp::Sign => 1,
                UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => 1,
                UnaryOp::Exp | UnaryOp::Log | UnaryOp::Log1p | UnaryOp::Erf | UnaryOp::Tanh => 4,
                UnaryOp::Sin | UnaryOp::Cos => 4,
                _ => 80,
            },
            Map::Activation(activation) => match activation {
                Activation::Relu | Activation::LeakyRelu { .. } | Activation::Clamp { .. } => 1,
                Activation::HardSigmoid { .. } | Activation::HardSwish | Activation::Affine { .. } => 1,
                Activation::Softsign | Activation::ThresholdedRelu { .. } => 1,
                Activation::Gelu
                | Activation::GeluTanh
                | Activation::Sigmoid
                | Activation::Tanh
                | Activation::Silu
                | Activation::Mish
                | Activation::Softplus
                | Activation::Elu { .. }
                | Activation::ScaledTanh { .. } => 4,
            },
        }
    }
}

/// Rows of elements and where their results go, which lie alike.
#[derive(Clone, Copy)]
struct Rows {
    from: *const f32,
    to: *mut f32,
    /// Elements from one row to the next.
    step: usize,
    rows: usize,
    /// Elements of a row.
    n: usize,
}

/// Applies one vector function to all elements, whole vectors of a row first. All rows are in this loop: what the function needs is then read once.
#[inline(always)]
unsafe fn each<S: Simd>(s: S, x: Rows, f: impl Fn(S::F) -> S::F) {
    let whole = x.n - x.n % S::LANES;
    for row in 0..x.rows {
        // SAFETY: `i` stays below `n`; the rows hold `n` elements by the caller's promise.
        unsafe {
            let (from, to) = (x.from.add(row * x.step), x.to.add(row * x.step));
            let mut i = 0;
            while i < whole {
                s.store(to.add(i), f(s.load(from.add(i))));
                i += S::LANES;
            }
            if i < x.n {
                s.store_first(to.add(i), x.n - i, f(s.load_first(from.add(i), x.n - i)));
            }
        }
    }
}

/// The unary operations.
#[inline(always)]
unsafe fn unary<S: Simd>(s: S, op: UnaryOp, x: Rows) {
    // SAFETY: the caller's promise.
    unsafe {
        match op {
            UnaryOp::Neg => each(
                s,
                x,
                #[inline(always)]
                |x| s.neg(x),
            ),
            UnaryOp::Abs => each(
                s,
                x,
                #[inline(always)]
                |x| s.abs(x),
            ),
            UnaryOp::Exp => each(
                s,
                x,
                #[inline(always)]
                |x| exp(s, x),
            ),
            UnaryOp::Log => each(
                s,
                x,
                #[inline(always)]
                |x| log(s, x),
            ),
            UnaryOp::Log1p => each(
                s,
                x,
                #[inline(always)]
                |x| log1p(s, x),
            ),
            UnaryOp::Sqrt => each(
                s,
                x,
                #[inline(always)]
                |x| s.sqrt(x),
            ),
            UnaryOp::Recip => each(
                s,
                x,
                #[inline(always)]
                |x| s.div(s.splat(1.0), x),
            ),
            UnaryOp::Sin => each(
                s,
                x,
                #[inline(always)]
                |x| sin(s, x),
            ),
            UnaryOp::Cos => each(
                s,
                x,
                #[inline(always)]
                |x| cos(s, x),
            ),
            UnaryOp::Tanh => each(
                s,
                x,
                #[inline(always)]
                |x| tanh(s, x),
            ),
            UnaryOp::Erf => each(
                s,
                x,
                #[inline(always)]
                |x| erf(s, x),
            ),
            UnaryOp::Floor => each(
                s,
                x,
                #[inline(always)]
                |x| s.floor(x),
            ),
            UnaryOp::Ceil => each(
                s,
                x,
                #[inline(always)]
                |x| s.ceil(x),
            ),
            UnaryOp::Round => each(
                s,
                x,
                #[inline(always)]
                |x| s.round(x),
            ),
            UnaryOp::Trunc => each(
                s,
                x,
                #[inline(always)]
                |x| s.trunc(x),
            ),
            _ => {
                for i in (0..x.rows).flat_map(|row| row * x.step..row * x.step + x.n) {
                    *x.to.add(i) = unary_of(op, *x.from.add(i));
                }
            }
        }
    }
}

/// The activations. Comparisons are ordered so that NaN passes through.
#[inline(always)]
unsafe fn activation<S: Simd>(s: S, activation: Activation, x: Rows) {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    // SAFETY: the caller's promise.
    unsafe {
        match activation {
            Activation::Relu => each(
                s,
                x,
                #[inline(always)]
                |x| s.max(zero, x),
            ),
            Activation::LeakyRelu { slope } => {
                let slope = s.splat(slope as f32);
                each(
                    s,
                    x,
                    #[inline(always)]
                    |x| s.select(s.lt(x, zero), s.mul(x, slope), x),
                );
            }
            Activation::Gelu => each(
                s,
                x,
                #[inline(always)]
                |x| gelu(s, x),
            ),
            Activation::GeluTanh => each(
                s,
                x,
                #[inline(always)]
                |x| gelu_tanh(s, x),
            ),
            Activation::Sigmoid => each(
                s,
                x,
                #[inline(always)]
                |x| sigmoid(s, x),
            ),
            Activation::Tanh => unary(s, UnaryOp::Tanh, x),
            Activation::Silu => each(
                s,
                x,
                #[inline(always)]
                |x| silu(s, x),
            ),
            Activation::Mish => each(
                s,
                x,
                #[inline(always)]
                |x| mish(s, x),
            ),
            Activation::Softplus => each(
                s,
                x,
                #[inline(always)]
                |x| softplus(s, x),
            ),
            Activation::HardSigmoid { alpha, beta } => {
                let (alpha, beta) = (s.splat(alpha as f32), s.splat(beta as f32));
                each(
                    s,
                    x,
                    #[inline(always)]
                    |x| s.min(one, s.max(zero, s.mul_add(x, alpha, beta))),
                );
            }
            Activation::HardSwish => each(
                s,
                x,
                #[inline(always)]
                |x| {
                    let gate = s.mul_add(x, s.splat(1.0 / 6.0), s.splat(0.5));
                    s.mul(x, s.min(one, s.max(zero, gate)))
                },
            ),
            Activation::Elu { alpha } => {
                let alpha = s.splat(alpha as f32);
                each(
                    s,
                    x,
                    #[inline(always)]
                    |x| s.select(s.lt(zero, x), x, s.mul(alpha, exp_m1(s, x))),
                );
            }
            Activation::Clamp { min, max } => {
                let (min, max) = (s.splat(min as f32), s.splat(max as f32));
                each(
                    s,
                    x,
                    #[inline(always)]
                    |x| s.min(max, s.max(min, x)),
                );
            }
            Activation::Affine { alpha, beta } => {
                let (alpha, beta) = (s.splat(alpha as f32), s.splat(beta as f32));
                each(
                    s,
                    x,
                    #[inline(always)]
                    |x| s.mul_add(x, alpha, beta),
                );
            }
            Activation::ScaledTanh { alpha, beta } => {
                let (alpha, beta) = (s.splat(alpha as f32), s.splat(beta as f32));
                each(
                    s,
                    x,
                    #[inline(always)]
                    |x| s.mul(alpha, tanh(s, s.mul(x, beta))),
                );
            }
            Activation::Softsign => each(
                s,
                x,
                #[inline(always)]
                |x| s.div(x, s.add(one, s.abs(x))),
            ),
            Activation::ThresholdedRelu { alpha } => {
                let alpha = s.splat(alpha as f32);
                each(
                    s,
                    x,
                    #[inline(always)]
                    |x| s.select(s.lt(alpha, x), x, zero),
                );
            }
        }
    }
}

dispatched! {
    /// `to[i] = map(from[i])` for rows of `n` elements, `step` apart in both.
    unsafe fn map_each<S>(s, map: Map, from: *const f32, to: *mut f32, step: usize, rows: usize, n: usize) {
        let x = Rows { from, to, step, rows, n };
        match map {
            Map::Unary(op) => unary(s, op, x),
            Map::Activation(which) => activation(s, which, x),
        }
    }
}

/// `to[i] = map(from[i])` for `n` elements; both may be one place.
///
/// # Safety
/// `from` is valid for reading and `to` for writing `n` elements, and they are equal or do not overlap.
pub(crate) unsafe fn map_slice(map: Map, from: *const f32, to: *mut f32, n: usize) {
    // SAFETY: the caller's promise, for one row.
    unsafe { map_each(map, from, to, 0, 1, n) };
}

/// Applies a function to rows in place: `n` elements each, `step` apart.
///
/// # Safety
/// `x` is valid for reading and writing all rows.
pub(crate) unsafe fn map_rows(map: Map, x: *mut f32, step: usize, rows: usize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { map_each(map, x, x, step, rows, n) };
}
