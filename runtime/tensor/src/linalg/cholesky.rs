//! Cholesky factors.

use super::matrices::{Triangle, matrices, mirrored, square_matrices, transposed};
use super::triangular::{Diagonal, solve_triangular};
use crate::Tensor;
use crate::backend::Backend;
use alloc::vec;

/// The lower triangular `L`, with a positive diagonal, of which each symmetric positive definite matrix in the last two dims is `L · Lᵀ`. Of the matrices
/// the lower triangle is read. Block by block (Golub and Van Loan, "Matrix Computations", section 4.2.6), in f32 or f64, on the device. The factors of
/// matrices that are not positive definite are not finite.
///
/// # Panics
/// When the last two dims are not one square matrix each.
pub fn cholesky<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    let (matrices, origin) = square_matrices("cholesky", tensor);
    origin.restore(factor(mirrored(matrices, Triangle::Lower)))
}

/// The factors of symmetric matrices.
fn factor<B: Backend>(matrices: Tensor<B, 3>) -> Tensor<B, 3> {
    let [count, size, _] = matrices.dims();
    if size <= 1 {
        return matrices.sqrt();
    }
    let (first, rest) = (size / 2, size - size / 2);
    let [left, right] =
        [(0, first), (first, rest)].map(|(start, len)| matrices.clone().narrow(2, start, len));
    let top = factor(left.clone().narrow(1, 0, first));
    // `below · topᵀ` is the block below.
    let below = transposed(left.narrow(1, first, rest));
    let below = transposed(solve_triangular(top.clone(), below, Triangle::Lower, Diagonal::Given));
    let corner = right.narrow(1, first, rest) - below.clone().matmul(transposed(below.clone()));
    let zeros = Tensor::zeros([count, first, rest], (&top.device(), top.dtype()));
    let rows = vec![Tensor::cat(vec![top, zeros], 2), Tensor::cat(vec![below, factor(corner)], 2)];
    Tensor::cat(rows, 1)
}

/// The `X` of `A · X = B` for symmetric positive definite matrices `A` whose [factors](cholesky) are given, as the triangle says: `L` of `L · Lᵀ` or `U` of
/// `Uᵀ · U`.
///
/// # Panics
/// When the last two dims of the factors are not one square matrix each, or the right side does not fit.
pub fn cholesky_solve<B: Backend, const D: usize>(
    factors: Tensor<B, D>,
    right: Tensor<B, D>,
    triangle: Triangle,
) -> Tensor<B, D> {
    let lower = match triangle {
        Triangle::Lower => factors,
        Triangle::Upper => factors.swap_dims(-2, -1),
    };
    let y = solve_triangular(lower.clone(), right, Triangle::Lower, Diagonal::Given);
    solve_triangular(lower.swap_dims(-2, -1), y, Triangle::Upper, Diagonal::Given)
}

/// The inverses of symmetric positive definite matrices whose [factors](cholesky) are given, as for [`cholesky_solve`].
///
/// # Panics
/// When the last two dims are not one square matrix each.
pub fn cholesky_inverse<B: Backend, const D: usize>(
    factors: Tensor<B, D>,
    triangle: Triangle,
) -> Tensor<B, D> {
    let (factors, origin) = matrices("cholesky_inverse", factors);
    let [_, size, _] = factors.dims();
    let identity = super::matrices::identity(&factors, size);
    origin.restore(cholesky_solve(factors, identity, triangle))
}
