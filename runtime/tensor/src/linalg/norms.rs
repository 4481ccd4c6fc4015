//! Norms of vectors along a dim, which stays with size 1.

use crate::backend::Backend;
use crate::{ElementConversion, Numeric, Scalar, Tensor, Traced, elementwise};

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// The number of elements that are not zero.
    L0,
    /// The sum of absolute values.
    L1,
    /// The root of the sum of squares.
    L2,
    /// The largest absolute value.
    LInf,
    /// The smallest absolute value.
    LNegInf,
    /// `(Σ |x|^p)^(1/p)`.
    Lp(f64),
}

impl From<f64> for Norm {
    fn from(p: f64) -> Self {
        match p {
            0.0 => Norm::L0,
            1.0 => Norm::L1,
            2.0 => Norm::L2,
            f64::INFINITY => Norm::LInf,
            f64::NEG_INFINITY => Norm::LNegInf,
            p => Norm::Lp(p),
        }
    }
}

impl From<f32> for Norm {
    fn from(p: f32) -> Self {
        f64::from(p).into()
    }
}

impl From<i32> for Norm {
    fn from(p: i32) -> Self {
        f64::from(p).into()
    }
}

/// A norm along `dim`.
pub fn vector_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    norm: impl Into<Norm>,
    dim: usize,
) -> Tensor<B, D> {
    match norm.into() {
        Norm::L0 => l0_norm(x, dim),
        Norm::L1 => l1_norm(x, dim),
        Norm::L2 => l2_norm(x, dim),
        Norm::LInf => max_abs_norm(x, dim),
        Norm::LNegInf => min_abs_norm(x, dim),
        Norm::Lp(p) => lp_norm(x, p, dim),
    }
}

/// The vectors along `dim` divided by their norm, but at least by `eps`.
pub fn vector_normalize<B: Backend, const D: usize, E: ElementConversion + Into<Scalar>>(
    x: Tensor<B, D>,
    norm: impl Into<Norm>,
    dim: usize,
    eps: E,
) -> Tensor<B, D> {
    let norm = vector_norm(x.clone(), norm, dim).clamp_min(eps);
    x.div(norm)
}

/// The number of elements along `dim` that are not zero.
pub fn l0_norm<B: Backend, const D: usize, K: Numeric<B>>(x: Tensor<B, D, K>, dim: usize) -> Tensor<B, D, K> {
    let dtype = x.dtype();
    x.bool().convert::<K>(dtype).sum_dim(dim)
}

/// The sum of absolute values along `dim`.
pub fn l1_norm<B: Backend, const D: usize, K: Numeric<B>>(x: Tensor<B, D, K>, dim: usize) -> Tensor<B, D, K> {
    x.abs().sum_dim(dim)
}

/// The root of the sum of squares along `dim`.
pub fn l2_norm<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    root_of_squares(x.square().sum_dim(dim))
}

/// The roots of sums of squares, [`Tensor::sqrt`] but for its derivative: that of 0 counts as 0, as in PyTorch's norms. Infinity would
/// make NaN of whatever flows back through a vector of zeros.
pub fn root_of_squares<B: Backend, const D: usize>(squares: Tensor<B, D>) -> Tensor<B, D> {
    flat_at_zero(squares, Traced::sqrt)
}

/// `(Σ |x|^p)^(1/p)` along `dim`.
pub fn lp_norm<B: Backend, const D: usize>(x: Tensor<B, D>, p: f64, dim: usize) -> Tensor<B, D> {
    let power = |x: Tensor<B, D>, exponent: f64| match exponent > 0.0 && exponent < 1.0 {
        true => flat_at_zero(x, |x| x.powf_scalar(exponent)),
        false => x.powf_scalar(exponent),
    };
    power(power(x.abs(), p).sum_dim(dim), 1.0 / p)
}

/// A function that is 0 at 0 and infinitely steep there, with a derivative of 0 instead.
fn flat_at_zero<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    function: impl FnOnce(Traced) -> Traced,
) -> Tensor<B, D> {
    elementwise([x], |[x]| {
        let is_zero = x.clone().equal_elem(0.0);
        function(x.mask_fill(is_zero.clone(), 1.0)).mask_fill(is_zero, 0.0)
    })
}

/// The largest absolute value along `dim`.
pub fn max_abs_norm<B: Backend, const D: usize, K: Numeric<B>>(
    x: Tensor<B, D, K>,
    dim: usize,
) -> Tensor<B, D, K> {
    x.max_abs_dim(dim)
}

/// The smallest absolute value along `dim`.
pub fn min_abs_norm<B: Backend, const D: usize, K: Numeric<B>>(
    x: Tensor<B, D, K>,
    dim: usize,
) -> Tensor<B, D, K> {
    x.abs().min_dim(dim)
}

/// The cosine of the angle between vectors along `dim` (which may be negative); norms count as at least `eps`, 1e-8
/// when absent.
pub fn cosine_similarity<B: Backend, const D: usize>(
    x1: Tensor<B, D>,
    x2: Tensor<B, D>,
    dim: i32,
    eps: Option<B::FloatElem>,
) -> Tensor<B, D> {
    let eps: Scalar = eps.map_or(Scalar::Float(1e-8), Into::into);
    let dim = crate::check::dim("cosine_similarity", dim as isize, D);
    let dot = x1.clone().mul(x2.clone()).sum_dim(dim);
    let norms = l2_norm(x1, dim).clamp_min(eps).mul(l2_norm(x2, dim).clamp_min(eps));
    dot.div(norms)
}
