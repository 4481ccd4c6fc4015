//! Triangular decomposition with pivots, as LAPACK has it.

use super::matrices::matrices;
use crate::backend::Backend;
use crate::{Int, Tensor};
use alloc::{vec, vec::Vec};

/// The decompositions of the matrices in the last two dims whose rows have changed places: `L` (below the diagonal, with ones on it) and `U` in one
/// matrix; and the pivots as rows (`[…, 1, k]`, `k` the smaller size of a matrix): in the step `n` the rows `n` and `pivots[n]` change places,
/// counted from 0. By Gaussian elimination with partial pivoting (Golub and Van Loan, "Matrix Computations", section 3.4; `getrf` of LAPACK, which
/// counts from 1), in f32 or f64, on the device. Below a pivot of 0, `L` has zeros.
///
/// # Panics
/// When there are no two dims.
pub fn lu_factor<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> (Tensor<B, D>, Tensor<B, D, Int>) {
    let (matrices, origin) = matrices("lu_factor", tensor);
    let [count, rows, columns] = matrices.dims();
    let device = matrices.device();
    let numbers = Tensor::<B, 1, Int>::arange(0..rows as i64, &device).reshape([1, rows, 1]);
    let steps = rows.min(columns);
    let (mut lu, mut pivots) = (matrices, Vec::with_capacity(steps + 1));
    pivots.push(Tensor::<B, 3, Int>::zeros([count, 1, 0], &device));
    for step in 0..steps {
        let below = lu.clone().narrow(2, step, 1).narrow(1, step, rows - step);
        let place = below.detach().abs().argmax(1).add_scalar(step as i64);
        let pivot_row = lu.clone().gather(1, place.clone().expand([count, 1, columns]));
        let own_row = lu.clone().narrow(1, step, 1);
        let exchanged = lu.mask_where(numbers.clone().equal(place.clone()), own_row);
        let exchanged = exchanged.mask_where(numbers.clone().equal_elem(step as i64), pivot_row.clone());
        let pivot = pivot_row.clone().narrow(2, step, 1);
        let divisor = pivot.clone().mask_fill(pivot.equal_elem(0), 1);
        let (above, below) =
            (exchanged.clone().narrow(1, 0, step + 1), exchanged.narrow(1, step + 1, rows - step - 1));
        let factors = below.clone().narrow(2, step, 1).div(divisor);
        let after = columns - step - 1;
        let rest = below.clone().narrow(2, step + 1, after)
            - factors.clone().mul(pivot_row.narrow(2, step + 1, after));
        let below = Tensor::cat(vec![below.narrow(2, 0, step), factors, rest], 2);
        lu = Tensor::cat(vec![above, below], 1);
        pivots.push(place);
    }
    (origin.restore(lu), origin.restore_integers(Tensor::cat(pivots, 2)))
}

/// The row that each row of a matrix came from when its `rows` have changed places as the pivots of [`lu_factor`] say, which lie along the last
/// dim, as these do.
///
/// # Panics
/// When there are no dims, or more pivots than rows.
pub fn pivoted_order<B: Backend, const D: usize>(
    pivots: Tensor<B, D, Int>,
    rows: usize,
) -> Tensor<B, D, Int> {
    let mut dims = pivots.dims();
    let device = pivots.device();
    let steps = dims[D - 1];
    let mut single = [1; D];
    single[D - 1] = rows;
    let numbers = Tensor::<B, 1, Int>::arange(0..rows as i64, &device).reshape(single);
    dims[D - 1] = rows;
    let mut order = numbers.clone().expand(dims);
    for step in 0..steps {
        let place = pivots.clone().narrow(D - 1, step, 1);
        let other = order.clone().gather(D - 1, place.clone());
        let own = order.clone().narrow(D - 1, step, 1);
        order = order.mask_where(numbers.clone().equal(place), own);
        order = order.mask_where(numbers.clone().equal_elem(step as i64), other);
    }
    order
}
