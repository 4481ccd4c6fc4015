//! Eigenvalues and eigenvectors of symmetric matrices.

use super::jacobi::{Rotation, Tournament, diagonal, reciprocal};
use super::matrices::{Triangle, identity, mirrored, scale, square_matrices, transposed};
use crate::Tensor;
use crate::backend::Backend;

/// The eigenvalues of the symmetric matrices in the last two dims, the smallest first, as rows (`[…, 1, n]`), and unit eigenvectors, as columns. Of
/// the matrices one triangle is read. By Jacobi's method in f32 or f64, on the device; as many sweeps as the size asks for.
///
/// The signs of eigenvectors, and which ones span the space of an eigenvalue that several have, are not defined; nor is the gradient of the latter,
/// which is none here.
///
/// # Panics
/// When the last two dims are not one square matrix each.
pub fn eigh<B: Backend, const D: usize>(
    tensor: Tensor<B, D>,
    triangle: Triangle,
) -> (Tensor<B, D>, Tensor<B, D>) {
    let (matrices, origin) = square_matrices("eigh", tensor);
    let matrices = mirrored(matrices, triangle);
    let mut parts = decomposed(matrices.clone().detach());
    if matrices.is_tracked() {
        let change = matrices.clone() - matrices.detach();
        // Of the second order, a function changes as its derivative half the way there says.
        let midway = parts.moved(&parts, change.clone() / 2.0);
        parts = parts.moved(&midway, change);
    }
    (origin.restore(parts.values), origin.restore(parts.vectors))
}

struct Parts<B: Backend> {
    values: Tensor<B, 3>,
    vectors: Tensor<B, 3>,
}

fn decomposed<B: Backend>(matrices: Tensor<B, 3>) -> Parts<B> {
    let [count, size, _] = matrices.dims();
    if size == 0 || count == 0 {
        let values = Tensor::zeros([count, 1, size], (&matrices.device(), matrices.dtype()));
        return Parts { values, vectors: matrices };
    }
    let scale = scale(&matrices);
    let tournament = Tournament::new(size, matrices.dtype(), &matrices.device());
    let columns = tournament.columns();
    // A column that makes the number even is 0, and is not turned by any.
    let more = columns - size;
    let mut rest = (matrices / scale.clone()).pad((0, more, 0, more), 0.0);
    let mut vectors = identity(&rest, columns);
    let unit = identity(&rest, tournament.pairs);
    for _ in 0..tournament.rounds {
        let [left, right] = tournament.halves(rest.clone());
        let of = |half: Tensor<B, 3>, row| diagonal(half.narrow(1, row, tournament.pairs), &unit);
        let (first, between) = (of(left, 0), of(right.clone(), 0));
        let rotation = Rotation::diagonalizing(first, between, of(right, tournament.pairs));
        // Both sides, of which the second one comes to be turned by the rows and columns changing places.
        rest = tournament.rotated(transposed(tournament.rotated(rest, &rotation)), &rotation);
        vectors = tournament.rotated(vectors, &rotation);
    }
    let values = diagonal(rest, &identity(&vectors, columns)).narrow(2, 0, size) * scale;
    let vectors = vectors.narrow(1, 0, size).narrow(2, 0, size);
    let (values, order) = values.sort_with_indices(2);
    Parts { values, vectors: vectors.gather(2, order.expand([count, size, size])) }
}

impl<B: Backend> Parts<B> {
    /// What a small change of the matrices makes of the parts, as the derivative at others tells (Giles, "Collected Matrix Derivative Results for Forward and
    /// Reverse Mode Algorithmic Differentiation", section 3.1). The change is 0, but gradients flow through it.
    fn moved(&self, at: &Self, change: Tensor<B, 3>) -> Self {
        let [_, size, _] = change.dims();
        let change = transposed(at.vectors.clone()).matmul(change).matmul(at.vectors.clone());
        let gaps = reciprocal(at.values.clone() - transposed(at.values.clone()));
        let values = self.values.clone() + diagonal(change.clone(), &identity(&change, size));
        let vectors = self.vectors.clone() + at.vectors.clone().matmul(gaps * change);
        Self { values, vectors }
    }
}
