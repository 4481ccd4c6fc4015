//! Distances between the rows of two matrices.

use super::calc::{T, narrow, reshape, to_dtype, wide};
use crate::backend::{Backend, Primitive};
use crate::trace;
use alloc::vec::Vec;

/// Differences that there may be at once, where a backend computes them before it sums them up.
const MOST: usize = 1 << 24;

/// Default of [`Backend::squared_distances`]: so many rows of `x` at a time as have few differences.
pub fn squared_distances<B: Backend>(x: T<B>, y: T<B>) -> T<B> {
    let (dtype, rank) = (x.dtype(), x.dims().len());
    let with_axis = |tensor: T<B>, axis: usize| {
        let mut dims: Vec<usize> = tensor.dims().to_vec();
        dims.insert(axis, 1);
        reshape::<B>(tensor, &dims)
    };
    let rows = x.dims()[rank - 2];
    let each = y.shape().num_elements().max(1);
    let block = (MOST / each).max(1);
    let y = with_axis(y, rank - 2);
    let distances = |x: T<B>| {
        let operands = [with_axis(x, rank - 1), y.clone()];
        let [sums] = trace::sums::<B, 2, 1>(operands, &[rank], |rows| {
            let [x, y] = rows.map(|row| row.cast(wide(dtype)));
            let difference = x - y;
            [difference.clone() * difference]
        });
        let dims: Vec<usize> = sums.dims()[..rank].to_vec();
        to_dtype::<B>(reshape::<B>(sums, &dims), dtype)
    };
    if rows <= block {
        return distances(x);
    }
    let part = |start: usize| distances(narrow::<B>(x.clone(), rank - 2, start, block.min(rows - start)));
    let parts: Vec<T<B>> = (0..rows).step_by(block).map(part).collect();
    B::cat(&parts, rank - 2)
}
