//! Triangular decomposition.

use crate::backend::Backend;
use crate::check::{ensure, ran};
use crate::{Int, Tensor, TensorData};
use alloc::vec::Vec;

/// The decomposition of a square matrix with its rows permuted: `L` (below the diagonal, with ones on it) and `U` in one
/// matrix, and the row that each row came from. Runs on the host: the order of rows depends on the data.
///
/// # Panics
/// When the matrix is not square, or singular, or the device failed.
pub fn lu_decomposition<B: Backend>(tensor: Tensor<B, 2>) -> (Tensor<B, 2>, Tensor<B, 1, Int>) {
    let device = tensor.device();
    decomposed(tensor.into_data(), &device)
}

/// [`lu_decomposition`] without blocking the thread.
///
/// # Panics
/// When the matrix is not square, or singular, or the device failed.
pub async fn lu_decomposition_async<B: Backend>(tensor: Tensor<B, 2>) -> (Tensor<B, 2>, Tensor<B, 1, Int>) {
    let device = tensor.device();
    decomposed(ran("lu_decomposition", tensor.into_data_async().await), &device)
}

/// Decomposes on the host, in f64.
fn decomposed<B: Backend>(data: TensorData, device: &B::Device) -> (Tensor<B, 2>, Tensor<B, 1, Int>) {
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
    let lu = Tensor::from_data_dtype(TensorData::new(matrix, [n, n]), device, dtype);
    (lu, Tensor::from_data(TensorData::new(order, [n]), device))
}
