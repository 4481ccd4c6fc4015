//! Sums, products, extremes, and their running forms.

use super::{T, div, filled, mul, taken};
use crate::checkpoint::CheckpointStrategy;
use crate::operation::Operation;
use crate::tensor::AutodiffTensor;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::compose::wide;
use kiln_tensor::{BinaryOp, CompareOp, CumulativeOp, Element, ReduceOp, Scalar, ScatterOp, Shape, UnaryOp};

pub(crate) fn reduce<B: Backend, C: CheckpointStrategy>(
    op: ReduceOp,
    tensor: AutodiffTensor<B>,
    axes: &[usize],
) -> AutodiffTensor<B> {
    let (reduced, back) = (axes.to_vec(), axes.to_vec());
    let forward = move |operands: Vec<T<B>>| {
        let [tensor] = taken(operands);
        B::reduce(op, tensor, &reduced)
    };
    let operation = Operation::new(op.name(), vec![tensor]);
    match op {
        ReduceOp::Sum | ReduceOp::Mean => operation.run::<C>(forward, move |context| {
            let shape = context.shapes[0].clone();
            let count: usize = back.iter().map(|&axis| shape[axis]).product();
            let gradient = match op {
                ReduceOp::Mean => {
                    // In f16, numbers from 65,520 on are infinite.
                    let dtype = context.gradient.dtype();
                    let gradient = B::cast(context.gradient, wide(dtype));
                    let count = Scalar::Float(count as f64);
                    B::cast(B::binary_scalar(BinaryOp::Div, gradient, count), dtype)
                }
                _ => context.gradient,
            };
            vec![Some(B::expand(gradient, shape))]
        }),
        ReduceOp::Max | ReduceOp::Min => operation.keep(0).keep_result().run::<C>(forward, move |context| {
            // All elements that are the extreme share its gradient.
            let x = context.operand(0);
            let dtype = x.dtype();
            // Floats of 16 bits do not count so far.
            let counted = wide(dtype);
            let extreme = B::cast(B::compare(CompareOp::Equal, x, context.result()), counted);
            let count = B::reduce(ReduceOp::Sum, extreme.clone(), &back);
            let shares = mul::<B>(extreme, div::<B>(B::cast(context.gradient, counted), count));
            vec![Some(B::cast(shares, dtype))]
        }),
        ReduceOp::Prod => operation.keep(0).run::<C>(forward, move |context| {
            let others = product_of_others::<B>(context.operand(0), &back);
            vec![Some(mul::<B>(others, context.gradient))]
        }),
        ReduceOp::Any | ReduceOp::All => operation.run::<C>(forward, |_| vec![None]),
    }
}

/// For each element, the product of all others along the axes; right where some are 0, which a division would not be.
fn product_of_others<B: Backend>(x: T<B>, axes: &[usize]) -> T<B> {
    let (shape, rank) = (x.shape(), x.dims().len());
    let mut order: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
    let kept = order.len();
    order.extend(axes);
    let moved = B::permute(x, &order);
    let moved_shape = moved.shape();
    let count: usize = axes.iter().map(|&axis| shape[axis]).product();
    let mut dims: Vec<usize> = moved_shape[..kept].to_vec();
    dims.push(count);
    let line = B::reshape(moved, Shape::from(dims));
    let before = B::cumulative(CumulativeOp::Prod, line.clone(), kept, true, false);
    let after = B::cumulative(CumulativeOp::Prod, line, kept, true, true);
    let mut inverse = vec![0; rank];
    for (to, &from) in order.iter().enumerate() {
        inverse[from] = to;
    }
    B::permute(B::reshape(mul::<B>(before, after), moved_shape), &inverse)
}

pub(crate) fn cumulative<B: Backend, C: CheckpointStrategy>(
    op: CumulativeOp,
    tensor: AutodiffTensor<B>,
    dim: usize,
    exclusive: bool,
    reverse: bool,
) -> AutodiffTensor<B> {
    let forward = move |operands: Vec<T<B>>| {
        let [tensor] = taken(operands);
        B::cumulative(op, tensor, dim, exclusive, reverse)
    };
    let operation = Operation::new(op.name(), vec![tensor]);
    match op {
        CumulativeOp::Sum => operation.run::<C>(forward, move |context| {
            vec![Some(B::cumulative(CumulativeOp::Sum, context.gradient, dim, exclusive, !reverse))]
        }),
        CumulativeOp::Prod => operation.keep(0).keep_result().run::<C>(forward, move |context| {
            let scan = Scan { dim, exclusive, reverse };
            vec![Some(scan.product::<B>(context.operand(0), context.result(), context.gradient))]
        }),
        CumulativeOp::Max | CumulativeOp::Min => operation.keep(0).run::<C>(forward, move |context| {
            let scan = Scan { dim, exclusive, reverse };
            vec![Some(scan.extreme::<B>(op, context.operand(0), context.gradient))]
        }),
    }
}

/// Where a scan (a running sum, product or extreme) runs.
struct Scan {
    dim: usize,
    exclusive: bool,
    reverse: bool,
}

impl Scan {
    /// The gradient of a running product `y` of `x`.
    ///
    /// Up to the first 0 it is the running sum of `g y`, from the other end, over `x`. The first 0 itself has the
    /// products without it; what comes after has no part in any product that is not 0.
    fn product<B: Backend>(&self, x: T<B>, y: T<B>, g: T<B>) -> T<B> {
        let zero = B::compare_scalar(CompareOp::Equal, x.clone(), Scalar::Float(0.0));
        let ones = B::cast(zero.clone(), B::IntElem::DTYPE);
        let zeros = B::cumulative(CumulativeOp::Sum, ones, self.dim, false, self.reverse);
        let before = B::compare_scalar(CompareOp::Equal, zeros.clone(), Scalar::Int(0));
        let is_first =
            B::binary(BinaryOp::And, zero, B::compare_scalar(CompareOp::Equal, zeros, Scalar::Int(1)));
        let sum_back = |a: T<B>| B::cumulative(CumulativeOp::Sum, a, self.dim, self.exclusive, !self.reverse);
        let without = B::mask_fill(x.clone(), is_first.clone(), Scalar::Float(1.0));
        let products =
            B::cumulative(CumulativeOp::Prod, without.clone(), self.dim, self.exclusive, self.reverse);
        let at_first = sum_back(mul::<B>(g.clone(), products));
        let ahead = div::<B>(sum_back(mul::<B>(g, y)), without);
        let nothing = filled::<B>(x.shape(), 0.0, &x);
        B::select_where(before, ahead, B::select_where(is_first, at_first, nothing))
    }

    /// The gradient of a running extreme of `x`: each result's goes to the latest element that set it.
    fn extreme<B: Backend>(&self, op: CumulativeOp, x: T<B>, g: T<B>) -> T<B> {
        let (device, shape, int) = (B::device(&x), x.shape(), B::IntElem::DTYPE);
        let size = shape[self.dim];
        let mut line = vec![1; shape.rank()];
        line[self.dim] = size;
        let last = i64::try_from(size).unwrap_or(i64::MAX) - 1;
        // In running order, so that the latest is the largest.
        let (start, end, step) = if self.reverse { (last, -1, -1) } else { (0, last + 1, 1) };
        let places = B::reshape(B::arange(start, end, step, int, &device), Shape::from(line));
        let places = B::expand(places, shape.clone());

        let running = B::cumulative(op, x.clone(), self.dim, false, self.reverse);
        // A NaN is the extreme from its place on.
        let is_nan = B::unary(UnaryOp::IsNan, x.clone());
        let sets = B::binary(BinaryOp::Or, B::compare(CompareOp::Equal, x.clone(), running), is_nan);
        let none = B::full(shape.clone(), Scalar::Int(0), int, &device);
        let latest = B::select_where(sets, places, none);
        let latest = B::cumulative(CumulativeOp::Max, latest, self.dim, false, self.reverse);
        let from = match self.reverse {
            true => {
                let turned = B::binary_scalar(BinaryOp::Mul, latest, Scalar::Int(-1));
                B::binary_scalar(BinaryOp::Add, turned, Scalar::Int(last))
            }
            false => latest,
        };
        let g = if self.exclusive { self.moved_back::<B>(g) } else { g };
        B::scatter(filled::<B>(shape, 0.0, &x), self.dim, from, g, ScatterOp::Add)
    }

    /// Each element at the place of the one before it in running order; 0 at the last.
    fn moved_back<B: Backend>(&self, g: T<B>) -> T<B> {
        let size = g.dims()[self.dim];
        if size == 0 {
            return g;
        }
        let mut kept: Vec<SliceRange> = g.dims().iter().map(|&size| SliceRange::full(size)).collect();
        let mut to = kept.clone();
        let (from, into) = if self.reverse { ((0, size - 1), (1, size)) } else { ((1, size), (0, size - 1)) };
        kept[self.dim] = SliceRange { start: from.0, end: from.1, step: 1 };
        to[self.dim] = SliceRange { start: into.0, end: into.1, step: 1 };
        let nothing = filled::<B>(g.shape(), 0.0, &g);
        B::slice_assign(nothing, &to, B::slice(g, &kept))
    }
}
