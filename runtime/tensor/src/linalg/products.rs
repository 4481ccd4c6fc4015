//! Products of vectors and matrices, and diagonals.

use crate::args::AsIndex;
use crate::backend::Backend;
use crate::check::{self, ensure};
use crate::{BasicOps, Int, Numeric, Tensor};

/// The outer products of the vectors along the last dim: `R` is `D + 1`.
pub fn outer<B: Backend, const D: usize, const R: usize, K: Numeric<B>>(
    x: Tensor<B, D, K>,
    y: Tensor<B, D, K>,
) -> Tensor<B, R, K> {
    outer_dim(x, y, -1)
}

/// The outer products of the vectors along `dim`, which becomes two: `R` is `D + 1`.
pub fn outer_dim<B: Backend, const D: usize, const R: usize, I: AsIndex, K: Numeric<B>>(
    lhs: Tensor<B, D, K>,
    rhs: Tensor<B, D, K>,
    dim: I,
) -> Tensor<B, R, K> {
    ensure!(R == D + 1, "outer", "rank {D} gives rank {}, not {R}", D + 1);
    let dim = check::dim("outer", dim.as_index(), D);
    lhs.unsqueeze_dim::<R>(dim + 1).mul(rhs.unsqueeze_dim::<R>(dim))
}

/// Matrices times vectors: `[…, rows, columns]` and `[…, columns]` give `[…, rows]`.
pub fn matvec<B: Backend, const DM: usize, const DV: usize, K: Numeric<B>>(
    matrix: Tensor<B, DM, K>,
    vector: Tensor<B, DV, K>,
) -> Tensor<B, DV, K> {
    ensure!(DM == DV + 1, "matvec", "a matrix of rank {DM} does not take a vector of rank {DV}");
    matrix.matmul(vector.unsqueeze_dim::<DM>(DV)).squeeze_dim(DV)
}

/// The diagonals of the last two dims: `DO` is `D - 1`.
pub fn diag<B: Backend, const D: usize, const DO: usize, K: BasicOps<B>>(
    tensor: Tensor<B, D, K>,
) -> Tensor<B, DO, K> {
    ensure!(D >= 2 && DO == D - 1, "diag", "rank {D} gives rank {}, not {DO}", D.saturating_sub(1));
    let mut dims = tensor.dims();
    let (rows, columns) = (dims[D - 2], dims[D - 1]);
    (dims[D - 2], dims[D - 1]) = (rows * columns, 1);
    let device = tensor.device();
    let flat: Tensor<B, D, K> = tensor.reshape(crate::Shape::from(dims));
    let positions =
        Tensor::<B, 1, Int>::arange(0..rows.min(columns) as i64, &device).mul_scalar(columns as i64 + 1);
    flat.select(D - 2, positions).squeeze_dim(D - 1)
}

/// The sums of the diagonals of the last two dims; the last dim of the result is 1: `DO` is `D - 1`.
pub fn trace<B: Backend, const D: usize, const DO: usize>(tensor: Tensor<B, D>) -> Tensor<B, DO> {
    diag::<B, D, DO, _>(tensor).sum_dim(DO - 1)
}
