//! Products of rows in groups, each group with a matrix of its own.

use super::calc::{T, reshape};
use crate::backend::{Backend, Primitive, SliceRange};
use crate::{BinaryOp, CompareOp, Scalar, Shape};
use alloc::vec::Vec;

/// Whether each row is of each group, `[rows, 1]` for each.
fn membership<B: Backend>(rows: usize, ends: T<B>) -> Vec<T<B>> {
    let (device, groups) = (B::device(&ends), ends.dims()[0]);
    let numbers = B::arange(0, rows as i64, 1, ends.dtype(), &device);
    let numbers = reshape::<B>(numbers, &[rows, 1]);
    let mut start: Option<T<B>> = None;
    let mut of_group = |group: usize| {
        let end = B::slice(ends.clone(), &[SliceRange { start: group, end: group + 1, step: 1 }]);
        let end = B::expand(reshape::<B>(end, &[1, 1]), Shape::from([rows, 1]));
        let before_end = B::compare(CompareOp::Lower, numbers.clone(), end.clone());
        match start.replace(end) {
            None => before_end,
            Some(start) => {
                let begun = B::compare(CompareOp::GreaterEqual, numbers.clone(), start);
                B::binary(BinaryOp::And, begun, before_end)
            }
        }
    };
    (0..groups).map(&mut of_group).collect()
}

/// The matrix of a group.
fn matrix<B: Backend>(weight: &T<B>, group: usize) -> T<B> {
    let [_, depth, columns] = [0, 1, 2].map(|axis| weight.dims()[axis]);
    let ranges = [
        SliceRange { start: group, end: group + 1, step: 1 },
        SliceRange::full(depth),
        SliceRange::full(columns),
    ];
    reshape::<B>(B::slice(weight.clone(), &ranges), &[depth, columns])
}

/// Default of [`Backend::grouped_matmul`]: all rows are multiplied by each matrix, and each row keeps its own, since how many rows a group has is known to
/// the device alone.
pub fn grouped_matmul<B: Backend>(x: T<B>, weight: T<B>, ends: T<B>) -> T<B> {
    let (rows, columns) = (x.dims()[0], weight.dims()[2]);
    let shape = Shape::from([rows, columns]);
    let mut sum = B::full(shape.clone(), Scalar::Float(0.0), x.dtype(), &B::device(&x));
    for (group, own) in membership::<B>(rows, ends).into_iter().enumerate() {
        let product = B::matmul(x.clone(), matrix::<B>(&weight, group));
        sum = B::select_where(B::expand(own, shape.clone()), product, sum);
    }
    sum
}

/// Default of [`Backend::grouped_matmul_weight_gradient`].
pub fn grouped_matmul_weight_gradient<B: Backend>(gradient: T<B>, x: T<B>, ends: T<B>) -> T<B> {
    let (shape, columns) = (x.shape(), gradient.dims()[1]);
    let zeros = |of: &T<B>| B::full(of.shape(), Scalar::Float(0.0), of.dtype(), &B::device(of));
    let (no_x, no_gradient) = (zeros(&x), zeros(&gradient));
    // What is not a number in other groups' rows stays there.
    let rows =
        |of: &T<B>, own: T<B>, no: &T<B>| B::select_where(B::expand(own, of.shape()), of.clone(), no.clone());
    let of_group = |own: T<B>| {
        let x = B::permute(rows(&x, own.clone(), &no_x), &[1, 0]);
        let product = B::matmul(x, rows(&gradient, own, &no_gradient));
        reshape::<B>(product, &[1, shape[1], columns])
    };
    let parts: Vec<T<B>> = membership::<B>(shape[0], ends).into_iter().map(of_group).collect();
    match parts.is_empty() {
        true => B::full(Shape::from([0, shape[1], columns]), Scalar::Float(0.0), x.dtype(), &B::device(&x)),
        false => B::cat(&parts, 0),
    }
}
