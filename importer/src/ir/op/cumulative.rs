//! Folds that run along an axis, and triangles of matrices.

use super::host::fits;
use super::prelude::*;
use super::reduce::reduce_on_host;
use kiln_types::{CumulativeOp, ReduceOp, Scalar};

attributes! {
    /// Running sums, products, maxima or minima.
    pub struct Cumulative {
        /// What is computed.
        pub op: CumulativeOp,
        /// The axis.
        pub axis: usize,
        /// Leave out the element itself.
        pub exclusive: bool,
        /// Run from the end.
        pub reverse: bool,
    }
}

impl Operation for Cumulative {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 1)?;
        check_axis(self.axis, x.rank())?;
        need("x", x, !x.dtype.is_bool(), "expected a number")?;
        Ok(vec![x.clone()])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let (op, axis, exclusive, reverse) = (self.op, self.axis, self.exclusive, self.reverse);
        let x = cx.operand(0)?;
        if x.dims.len() != 1 || axis != 0 || exclusive || reverse {
            return None;
        }
        let op = match op {
            CumulativeOp::Sum => ReduceOp::Sum,
            CumulativeOp::Prod => ReduceOp::Prod,
            CumulativeOp::Max => ReduceOp::Max,
            CumulativeOp::Min => ReduceOp::Min,
        };
        let reduced =
            |n: usize| reduce_on_host(cx, op, &x.values[..n]).filter(|result| fits(x.dtype, result));
        (1..=x.values.len()).map(reduced).collect()
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (op, x, axis, exclusive, reverse) =
            (self.op, operands.get(0)?, self.axis, self.exclusive, self.reverse);
        let size = *x.shape.get(axis)?;
        let inner: usize = elements(&x.shape[axis + 1..]);
        let outer: usize = elements(&x.shape[..axis]);
        macro_rules! scan {
            ($kind:ident, $x:expr, $first:expr, $mul:expr) => {{
                let mut out = $x.clone();
                for o in 0..outer {
                    for i in 0..inner {
                        let mut reduced = None;
                        for step in 0..size {
                            let row = if reverse { size - 1 - step } else { step };
                            let at = (o * size + row) * inner + i;
                            let new = $x[at];
                            let next = match (reduced, op) {
                                (None, _) => new,
                                (Some(old), CumulativeOp::Sum) => old + new,
                                (Some(old), CumulativeOp::Prod) => $mul(old, new),
                                (Some(old), CumulativeOp::Max) => {
                                    if new > old {
                                        new
                                    } else {
                                        old
                                    }
                                }
                                (Some(old), CumulativeOp::Min) => {
                                    if new < old {
                                        new
                                    } else {
                                        old
                                    }
                                }
                            };
                            out[at] = if exclusive { reduced.unwrap_or($first) } else { next };
                            reduced = Some(next);
                        }
                    }
                }
                Elements::$kind(out)
            }};
        }
        let result = match Elements::load(x) {
            Elements::Float(x) => {
                scan!(Float, x, if op == CumulativeOp::Prod { 1.0 } else { 0.0 }, |a: f64, b| a * b)
            }
            Elements::Int(x) => {
                scan!(Int, x, if op == CumulativeOp::Prod { 1 } else { 0 }, i128::wrapping_mul)
            }
        };
        Some(vec![result.store(x.dtype, x.shape.clone())])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let [outer, length, inner] = cx.around(self.axis)?;
        let function = match self.op {
            CumulativeOp::Sum => "cumulative_sum",
            CumulativeOp::Prod => "cumulative_product",
            CumulativeOp::Max => "cumulative_max",
            CumulativeOp::Min => "cumulative_min",
        };
        let sizes = KernelArg::sizes("Axis", [("outer", outer), ("length", length), ("inner", inner)]);
        let flags = [KernelArg::Bool(self.exclusive), KernelArg::Bool(self.reverse)];
        let [exclusive, reverse] = flags;
        Some(Loops::kernel(function, [KernelArg::Operand(0), sizes, exclusive, reverse]))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let (x, axis) = (Arg::Operand(0), Arg::axis(self.axis));
        Implementation::Call(if self.exclusive || self.reverse {
            let flags = [self.exclusive, self.reverse].map(Arg::Bool);
            let [exclusive, reverse] = flags;
            x.then("cumulative", [Arg::options(&self.op), axis, exclusive, reverse])
        } else {
            x.then(self.op.name(), [axis])
        })
    }
}

attributes! {
    /// The upper or lower triangle of the last two axes.
    pub struct Trilu {
        /// Upper instead of lower.
        pub upper: bool,
        /// The diagonal.
        pub k: i64,
    }
}

impl Operation for Trilu {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(vec![at_least_rank(cx, 0, "x", 2)?.clone()])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, upper, k) = (operands.get(0)?, self.upper, self.k);
        let [.., rows, columns] = x.shape.as_slice() else {
            return None;
        };
        let size = rows.checked_mul(*columns)?.max(1);
        let keep = |at: usize| {
            let (row, column) = ((at % size / columns) as i64, (at % columns) as i64);
            if upper { column >= row.saturating_add(k) } else { column <= row.saturating_add(k) }
        };
        let elements = match Elements::load(x) {
            Elements::Float(x) => Elements::Float(
                x.into_iter().enumerate().map(|(i, v)| if keep(i) { v } else { 0.0 }).collect(),
            ),
            Elements::Int(x) => {
                Elements::Int(x.into_iter().enumerate().map(|(i, v)| if keep(i) { v } else { 0 }).collect())
            }
        };
        Some(vec![elements.store(x.dtype, x.shape.clone())])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let shape = cx.shape(0)?;
        let &[.., rows, columns] = shape.as_slice() else { return None };
        // The diagonal as places count: a row keeps columns from `row + k` on, or up to there.
        let bound = rows.max(columns) as i64 + 1;
        let k = KernelArg::Scalar(Scalar::Int(self.k.clamp(-bound, bound)));
        let function = if self.upper { "upper_triangle" } else { "lower_triangle" };
        let sizes = [KernelArg::Size(rows), KernelArg::Size(columns)];
        let [rows, columns] = sizes;
        Some(Loops::kernel(function, [KernelArg::Operand(0), rows, columns, k]))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let name = if self.upper { "triu" } else { "tril" };
        Implementation::Call(Arg::Operand(0).then(name, [Arg::Int(self.k)]))
    }
}
