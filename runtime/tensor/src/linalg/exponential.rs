//! Exponentials of matrices.

use super::matrices::{identity, square_matrices};
use crate::backend::Backend;
use crate::{DType, Tensor};

/// How often a result is squared at most: matrices of a norm above ten million are too large.
const MOST: usize = 24;

/// Up to which norm the series is used as it is: what it leaves out is then less than the precision of the result. Each squaring doubles the error, so that there
/// should be few.
fn small(dtype: DType) -> f64 {
    if dtype == DType::F64 { 0.75 } else { 1.5 }
}

/// The exponentials of the square matrices in the last two dims, `I + A + A²/2 + A³/6 + …`. By the series to the sixteenth power of a matrix that is
/// halved until it is small, and squaring (Higham, "Functions of Matrices", section 10.3; the powers as in section 4.2), in f32 or f64, on the
/// device. Those of matrices whose columns' sums exceed ten million are not numbers.
///
/// # Panics
/// When the last two dims are not one square matrix each.
pub fn matrix_exp<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    let (matrices, origin) = square_matrices("matrix_exp", tensor);
    let [count, size, _] = matrices.dims();
    if count == 0 || size == 0 {
        return origin.restore(matrices);
    }
    let norm = matrices.clone().detach().abs().sum_dim(1).max_dim(2);
    // By how much each is made smaller, and how many halves that are.
    let (mut factor, mut halves) = (norm.ones_like(), norm.zeros_like());
    let small = small(norm.dtype());
    for _ in 0..MOST {
        let is_large = (norm.clone() * factor.clone()).greater_elem(small);
        factor = factor.clone().mask_where(is_large.clone(), factor / 2.0);
        halves = halves.clone().mask_where(is_large, halves + 1.0);
    }
    let is_too_large = (norm * factor.clone()).greater_elem(small);
    let mut result = series(matrices * factor);
    for step in 0..MOST {
        let is_done = halves.clone().lower_equal_elem(step as f64).expand([count, size, size]);
        let squared = result.clone().matmul(result.clone());
        result = squared.mask_where(is_done, result);
    }
    origin.restore(result.mask_fill(is_too_large.expand([count, size, size]), f64::NAN))
}

/// The sum of `Aⁿ / n!` up to the sixteenth power, by six products.
fn series<B: Backend>(a: Tensor<B, 3>) -> Tensor<B, 3> {
    let [_, size, _] = a.dims();
    let square = a.clone().matmul(a.clone());
    let cube = square.clone().matmul(a.clone());
    let fourth = square.clone().matmul(square.clone());
    let powers = [identity(&a, size), a, square, cube];
    // Four terms from one on, without the power of `A` that they share.
    let terms = |from: usize| {
        let of = |n: usize| powers[n].clone() / (1..=from + n).map(|k| k as f64).product::<f64>();
        of(0) + of(1) + of(2) + of(3)
    };
    let last = fourth.clone() / (1..=16).map(f64::from).product::<f64>();
    let upper = terms(8) + fourth.clone().matmul(terms(12) + last);
    let upper = terms(4) + fourth.clone().matmul(upper);
    terms(0) + fourth.matmul(upper)
}
