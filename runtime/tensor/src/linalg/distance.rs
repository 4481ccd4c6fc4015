//! Distances between the rows of two matrices.

use crate::Tensor;
use crate::backend::Backend;
use crate::check::{self, ensure};

/// The squared Euclidean distances of each row of `x`, `[…, m, k]`, from each of `y`, `[…, n, k]`: `[…, m, n]`. The other dims are those of a batch, and
/// the same for both. Their square roots are what `torch.cdist` yields.
///
/// Differences are squared as they are, so that rows far from the origin keep their small distances. The gradient of a distance of 0 is 0, that of its square
/// root too.
///
/// # Panics
/// When shapes do not fit.
pub fn squared_distances<B: Backend, const D: usize>(x: Tensor<B, D>, y: Tensor<B, D>) -> Tensor<B, D> {
    let (a, b) = (x.dims(), y.dims());
    let fits = D >= 2 && a[..D - 2] == b[..D - 2] && a[D - 1] == b[D - 1];
    ensure!(
        fits,
        "squared_distances",
        "x is {} and y {}: all dims but the one before the last must be the same",
        x.shape(),
        y.shape()
    );
    check::same_dtype("squared_distances", x.dtype(), y.dtype());
    Tensor::from_backend(B::squared_distances(x.into_backend(), y.into_backend()))
}
