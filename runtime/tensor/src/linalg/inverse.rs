//! Inverses.

use super::matrices::{identity, square_matrices};
use crate::backend::Backend;
use crate::{Int, Tensor};
use alloc::vec;

/// The inverses of the square matrices in the last two dims. By Gauss-Jordan elimination with partial pivoting (Higham, "Accuracy and Stability of
/// Numerical Algorithms", section 14.4), in f32 or f64, on the device. Those of singular matrices are not finite.
///
/// # Panics
/// When the last two dims are not one square matrix each.
pub fn inverse<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    let (matrices, origin) = square_matrices("inverse", tensor);
    let [count, size, _] = matrices.dims();
    if size == 0 {
        return origin.restore(matrices);
    }
    let rows = Tensor::<B, 1, Int>::arange(0..size as i64, &matrices.device()).reshape([1, size, 1]);
    // What is done to the rows of a matrix until it is the identity makes the inverse of the identity.
    let mut both = Tensor::cat(vec![matrices.clone(), identity(&matrices, size)], 2);
    for column in 0..size {
        let below = both.clone().narrow(2, column, 1).narrow(1, column, size - column);
        let place = below.abs().argmax(1).add_scalar(column as i64);
        let pivot_row = both.clone().gather(1, place.clone().expand([count, 1, 2 * size]));
        let first = both.clone().narrow(1, column, 1);
        let exchanged = both.mask_where(rows.clone().equal(place), first);
        let unit_row = pivot_row.clone().div(pivot_row.narrow(2, column, 1));
        let factors = exchanged.clone().narrow(2, column, 1);
        let cleared = exchanged.sub(factors.mul(unit_row.clone()));
        both = cleared.mask_where(rows.clone().equal_elem(column as i64), unit_row);
    }
    origin.restore(both.narrow(2, size, size))
}
