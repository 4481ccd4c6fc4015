//! Batches of matrices: what the functions of this module compute with.

use crate::backend::Backend;
use crate::check::ensure;
use crate::compose::calc;
use crate::{DType, Int, Shape, Tensor};
use alloc::vec::Vec;

/// Where matrices came from, to which what is computed of them goes back.
pub(super) struct Origin {
    /// The dims before the last two.
    batch: Vec<usize>,
    dtype: DType,
}

/// The matrices in the last two dims, as `[matrices, rows, columns]` of f32 or f64, with where they came from.
///
/// # Panics
/// When there are no two dims.
pub(super) fn matrices<B: Backend, const D: usize>(
    operation: &str,
    tensor: Tensor<B, D>,
) -> (Tensor<B, 3>, Origin) {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    ensure!(D >= 2, operation, "{shape} has no two dims");
    let (batch, sizes) = shape.dims.split_at(D - 2);
    let count = batch.iter().product();
    let origin = Origin { batch: batch.to_vec(), dtype };
    (tensor.cast(calc::wide(dtype)).reshape([count, sizes[0], sizes[1]]), origin)
}

/// [`matrices`] that are square.
///
/// # Panics
/// When the last two dims are not one square matrix each.
pub(super) fn square_matrices<B: Backend, const D: usize>(
    operation: &str,
    tensor: Tensor<B, D>,
) -> (Tensor<B, 3>, Origin) {
    let shape = tensor.shape();
    let is_square = D >= 2 && shape[D - 1] == shape[D - 2];
    ensure!(is_square, operation, "the last two dims of {shape} are no square matrix");
    matrices(operation, tensor)
}

impl Origin {
    /// As many matrices, of whatever size, in the shape and the dtype of those before.
    pub fn restore<B: Backend, const D: usize>(&self, matrices: Tensor<B, 3>) -> Tensor<B, D> {
        let shape = self.shape(matrices.dims());
        matrices.cast(self.dtype).reshape(shape)
    }

    /// The same of matrices of integers, in theirs.
    pub fn restore_integers<B: Backend, const D: usize>(
        &self,
        matrices: Tensor<B, 3, Int>,
    ) -> Tensor<B, D, Int> {
        let shape = self.shape(matrices.dims());
        matrices.reshape(shape)
    }

    fn shape(&self, [_, rows, columns]: [usize; 3]) -> Shape {
        Shape::from(self.batch.iter().copied().chain([rows, columns]).collect::<Vec<_>>())
    }
}

/// The identity for each of a batch of square matrices.
pub(super) fn identity<B: Backend>(like: &Tensor<B, 3>, size: usize) -> Tensor<B, 3> {
    let [count, ..] = like.dims();
    Tensor::<B, 2>::eye_with([size, size], 0, like.dtype(), &like.device())
        .unsqueeze::<3>()
        .expand([count, size, size])
}

/// The largest element of each matrix, 1 where all are 0: squares of what is divided by it neither overflow nor vanish.
pub(super) fn scale<B: Backend>(matrices: &Tensor<B, 3>) -> Tensor<B, 3> {
    let largest = matrices.clone().abs().max_dim(1).max_dim(2);
    largest.clone().mask_fill(largest.equal_elem(0), 1)
}

/// Rows and columns exchanged.
pub(super) fn transposed<B: Backend>(matrices: Tensor<B, 3>) -> Tensor<B, 3> {
    matrices.swap_dims(1, 2)
}

/// Square matrices of which each has one triangle given: the other is its mirror image.
pub(super) fn mirrored<B: Backend>(matrices: Tensor<B, 3>, triangle: Triangle) -> Tensor<B, 3> {
    let values = |matrices: Tensor<B, 3>| match triangle {
        Triangle::Lower => matrices.clone().tril(0) + transposed(matrices.tril(-1)),
        Triangle::Upper => matrices.clone().triu(0) + transposed(matrices.triu(1)),
    };
    if !matrices.is_tracked() {
        return values(matrices);
    }
    // Both halves have a share in the gradient, as in PyTorch, and none in the values but for the triangle.
    let both = (matrices.clone() + transposed(matrices.clone())) / 2.0;
    values(matrices.detach()) + both.clone() - both.detach()
}

/// What is given of a matrix, the rest being zeros or its mirror image (`uplo` of BLAS and LAPACK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triangle {
    /// What is on the diagonal and below.
    Lower,
    /// What is on the diagonal and above.
    Upper,
}
