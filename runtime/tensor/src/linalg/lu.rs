//! Triangular decomposition.

use crate::backend::Backend;
use crate::check::{ensure, ran};
use crate::{Int, Tensor, TensorData};
use alloc::{vec, vec::Vec};

/// The decomposition of a square matrix with its rows permuted: `L` (below the diagonal, with ones on it) and `U` in one
/// matrix, and the row that each row came from. Runs on the host: the order of rows depends on the data. Where gradients flow
/// through the matrix, it is decomposed once more on the device, in that order.
///
/// # Panics
/// When the matrix is not square, or singular, or the device failed.
pub fn lu_decomposition<B: Backend>(tensor: Tensor<B, 2>) -> (Tensor<B, 2>, Tensor<B, 1, Int>) {
    let data = tensor.to_data();
    decomposed(tensor, data)
}

/// [`lu_decomposition`] without blocking the thread.
///
/// # Panics
/// When the matrix is not square, or singular, or the device failed.
pub async fn lu_decomposition_async<B: Backend>(tensor: Tensor<B, 2>) -> (Tensor<B, 2>, Tensor<B, 1, Int>) {
    let data = ran("lu_decomposition", tensor.to_data_async().await);
    decomposed(tensor, data)
}

/// Decomposes on the host, in f64.
fn decomposed<B: Backend>(tensor: Tensor<B, 2>, data: TensorData) -> (Tensor<B, 2>, Tensor<B, 1, Int>) {
    let device = tensor.device();
    let (n, columns, dtype) = (data.shape[0], data.shape[1], data.dtype);
    ensure!(n == columns, "lu_decomposition", "[{n}, {columns}] is not square");
    let mut matrix: Vec<f64> = data.iter::<f64>().collect();
    let mut order: Vec<i64> = (0..n as i64).collect();
    for pivot in 0..n {
        let size = |row: usize| matrix[row * n + pivot].abs();
        let best = (pivot..n).fold(pivot, |best, row| if size(row) > size(best) { row } else { best });
        ensure!(size(best) != 0.0, "lu_decomposition", "the matrix is singular");
        if best != pivot {
            (0..n).for_each(|column| matrix.swap(best * n + column, pivot * n + column));
            order.swap(best, pivot);
        }
        for row in pivot + 1..n {
            let factor = matrix[row * n + pivot] / matrix[pivot * n + pivot];
            matrix[row * n + pivot] = factor;
            for column in pivot + 1..n {
                matrix[row * n + column] -= factor * matrix[pivot * n + column];
            }
        }
    }
    let order = Tensor::from_data(TensorData::new(order, [n]), &device);
    let lu = if tensor.is_tracked() && n > 0 {
        eliminated(tensor.select(0, order.clone()))
    } else {
        Tensor::from_data_dtype(TensorData::new(matrix, [n, n]), &device, dtype)
    };
    (lu, order)
}

/// The decomposition of a matrix whose rows stay where they are.
fn eliminated<B: Backend>(matrix: Tensor<B, 2>) -> Tensor<B, 2> {
    let [n, _] = matrix.dims();
    let mut rest = matrix;
    let mut edges = Vec::with_capacity(n - 1);
    for left in (1..n).rev() {
        let row = rest.clone().narrow(0, 0, 1);
        let below = rest.narrow(0, 1, left);
        let factors = below.clone().narrow(1, 0, 1).div(row.clone().narrow(1, 0, 1));
        rest = below.narrow(1, 1, left).sub(factors.clone().mul(row.clone().narrow(1, 1, left)));
        edges.push((row, factors));
    }
    edges
        .into_iter()
        .rev()
        .fold(rest, |inner, (row, factors)| Tensor::cat(vec![row, Tensor::cat(vec![factors, inner], 1)], 0))
}
