//! Distances between the rows of two matrices.

use super::calc::{T, reshape, to_dtype, wide};
use crate::backend::{Backend, Primitive};
use crate::{ReduceOp, trace};
use alloc::vec::Vec;

/// Default of [`Backend::squared_distances`].
pub fn squared_distances<B: Backend>(x: T<B>, y: T<B>) -> T<B> {
    let (dtype, rank) = (x.dtype(), x.dims().len());
    let with_axis = |tensor: T<B>, axis: usize| {
        let mut dims: Vec<usize> = tensor.dims().to_vec();
        dims.insert(axis, 1);
        reshape::<B>(tensor, &dims)
    };
    let rows = [with_axis(x, rank - 1), with_axis(y, rank - 2)];
    let [squares] = trace::run::<B, 2, 1>(rows, |rows| {
        let [x, y] = rows.map(|row| row.cast(wide(dtype)));
        let difference = x - y;
        [difference.clone() * difference]
    });
    let sums = B::reduce(ReduceOp::Sum, squares, &[rank]);
    let dims: Vec<usize> = sums.dims()[..rank].to_vec();
    to_dtype::<B>(reshape::<B>(sums, &dims), dtype)
}
