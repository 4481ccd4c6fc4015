//! Axes reduced to one element.

use super::host::{exact, fits};
use super::prelude::*;
use crate::ir::Graph;
use kiln_types::{ArgReduceOp, DType, ReduceOp};
use std::cmp::Ordering;

attributes! {
    /// Axes reduced.
    pub struct Reduce {
        /// What is computed.
        pub op: ReduceOp,
        /// Sorted; never empty.
        pub axes: Vec<usize>,
        /// Whether the axes stay with size 1.
        pub keep_dims: bool,
    }
}

impl Operation for Reduce {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let (op, axes, keep_dims) = (self.op, self.axes.as_slice(), self.keep_dims);
        let x = cx.ty(0)?;
        need(
            "x",
            x,
            reduces(op, x.dtype),
            if x.dtype.is_bool() { "expected a number" } else { "expected bool" },
        )?;
        if axes.is_empty() || axes.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(attribute("axes", format!("{axes:?} are not sorted and distinct")));
        }
        for &axis in axes {
            check_axis(axis, x.rank())?;
        }
        Ok(vec![x.with_dims(without(&x.dims, axes, keep_dims))])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let (op, axes) = (self.op, self.axes.as_slice());
        let x = cx.operand(0)?;
        let kept = (0..x.dims.len()).filter(|axis| !axes.contains(axis));
        let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
        let ordered = Strided::new(&x.dims).permute(&order).gather(x.values);
        let run = elements(&axes.iter().filter_map(|&axis| x.dims.get(axis).copied()).collect::<Vec<_>>());
        if run == 0 {
            return None;
        }
        let reduced = |chunk| reduce_on_host(cx, op, chunk).filter(|result| fits(x.dtype, result));
        ordered.chunks(run).map(reduced).collect()
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (op, x, axes, keep_dims) = (self.op, operands.get(0)?, self.axes.as_slice(), self.keep_dims);
        if axes.iter().any(|&axis| axis >= x.shape.len()) {
            return None;
        }
        let (values, run) = axes_last(x, axes);
        let shape = reduced_shape(&x.shape, axes, keep_dims);
        let count: usize = elements(&shape);
        let chunk = |i: usize| i * run..(i + 1) * run;
        let result = match values {
            Elements::Float(x) => {
                Elements::Float((0..count).map(|i| reduce_floats(op, &x[chunk(i)])).collect())
            }
            Elements::Int(x) => {
                Elements::Int((0..count).map(|i| reduce_ints(op, &x[chunk(i)])).collect::<Option<_>>()?)
            }
        };
        Some(vec![result.store(x.dtype, shape)])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        let Self { op, axes, keep_dims } = self;
        match op {
            ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Max | ReduceOp::Min => {}
            ReduceOp::Prod | ReduceOp::Any | ReduceOp::All => return Err(of.unknown()),
        }
        let kept = Derivation::Reduce(*op, of.boxed(0)?, axes.clone());
        if *keep_dims {
            return Ok(kept);
        }
        let left = reduced_shape(&of.shape(0).ok_or_else(|| of.unknown())?, axes, false);
        if left.is_empty() {
            return Err(of.unknown());
        }
        Ok(Derivation::Reshape(Box::new(kept), Some(left)))
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let shape = cx.shape(0)?;
        let kept = (0..shape.len()).filter(|axis| !self.axes.contains(axis));
        let order: Vec<usize> = kept.chain(self.axes.iter().copied()).collect();
        let operand = Strided::new(&shape).permute(&order);
        Some(Loops::Reduction(Reduction { op: self.op, operand, reduced: self.axes.len() }))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        Implementation::Call(reduce_call(self.op, &self.axes, self.keep_dims, cx))
    }
}

attributes! {
    /// Where the largest or smallest element is: i64 positions.
    pub struct ArgReduce {
        /// What is looked for.
        pub op: ArgReduceOp,
        /// The axis.
        pub axis: usize,
        /// Whether the axis stays with size 1.
        pub keep_dims: bool,
        /// The last among equals instead of the first.
        pub select_last: bool,
    }
}

impl Operation for ArgReduce {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 1)?;
        check_axis(self.axis, x.rank())?;
        need("x", x, !x.dtype.is_bool(), "expected a number")?;
        Ok(vec![TensorType { dtype: DType::I64, dims: without(&x.dims, &[self.axis], self.keep_dims) }])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let x = operands.get(0)?;
        let (op, axis, keep_dims, select_last) = (self.op, self.axis, self.keep_dims, self.select_last);
        let run = *x.shape.get(axis).filter(|&&n| n > 0)?;
        let (elements, _) = axes_last(x, &[axis]);
        let wanted = match op {
            ArgReduceOp::Max => Ordering::Greater,
            ArgReduceOp::Min => Ordering::Less,
        };
        let better = |order: Option<Ordering>| {
            order == Some(wanted) || (select_last && order == Some(Ordering::Equal))
        };
        let best = match elements {
            Elements::Float(x) => best_places(&x, run, |new, old| {
                better(new.partial_cmp(old)) || (new.is_nan() && !old.is_nan())
            }),
            // As integers: not all have a float of their own.
            Elements::Int(x) => best_places(&x, run, |new, old| better(Some(new.cmp(old)))),
        };
        Some(vec![Elements::Int(best).store(DType::I64, reduced_shape(&x.shape, &[axis], keep_dims))])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let [outer, length, inner] = cx.around(self.axis)?;
        let sizes = KernelArg::sizes("Axis", [("outer", outer), ("length", length), ("inner", inner)]);
        let function = match self.op {
            ArgReduceOp::Max => "argmax",
            ArgReduceOp::Min => "argmin",
        };
        Some(Loops::kernel(function, [KernelArg::Operand(0), sizes, KernelArg::Bool(self.select_last)]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let (x, axis) = (Arg::Operand(0), Arg::axis(self.axis));
        let reduced = match self.select_last {
            false => x.then(self.op.name(), [axis]),
            true => x.then("arg_reduce", [Arg::options(&self.op), axis, Arg::Bool(true)]),
        };
        Implementation::Call(squeezed(reduced, &[self.axis], self.keep_dims, cx))
    }
}

/// Whether a reduction takes a dtype.
fn reduces(op: ReduceOp, dtype: DType) -> bool {
    match op {
        ReduceOp::Any | ReduceOp::All => dtype.is_bool(),
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Mean | ReduceOp::Max | ReduceOp::Min => !dtype.is_bool(),
    }
}

/// Dims with some axes reduced.
fn without(dims: &[Dim], axes: &[usize], keep_dims: bool) -> Vec<Dim> {
    let kept = dims.iter().enumerate().filter_map(|(i, dim)| match (axes.contains(&i), keep_dims) {
        (false, _) => Some(dim.clone()),
        (true, true) => Some(Dim::constant(1)),
        (true, false) => None,
    });
    kept.collect()
}

pub(super) fn reduce_on_host(cx: &Host<'_>, op: ReduceOp, values: &[Dim]) -> Option<Dim> {
    let (first, rest) = values.split_first()?;
    let combine: fn(&Graph, &Dim, &Dim) -> Option<Dim> = match op {
        ReduceOp::Sum => |_, a, b| exact(a + b),
        ReduceOp::Prod | ReduceOp::All => |_, a, b| exact(a * b),
        ReduceOp::Max | ReduceOp::Any => |graph, a, b| Some(graph.maximum(a, b)),
        ReduceOp::Min => |graph, a, b| Some(graph.minimum(a, b)),
        ReduceOp::Mean => return None,
    };
    rest.iter().try_fold(first.clone(), |reduced, value| combine(cx.graph, &reduced, value))
}

/// Elements with the given axes last, and the number of elements of those axes.
fn axes_last(x: &TensorData, axes: &[usize]) -> (Elements, usize) {
    let kept = (0..x.shape.len()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let view = Strided::new(&x.shape).permute(&order);
    let values = match Elements::load(x) {
        Elements::Float(x) => Elements::Float(view.gather(&x)),
        Elements::Int(x) => Elements::Int(view.gather(&x)),
    };
    (values, elements(&axes.iter().map(|&axis| x.shape[axis]).collect::<Vec<_>>()))
}

/// The shape with axes reduced.
fn reduced_shape(shape: &[usize], axes: &[usize], keep_dims: bool) -> Vec<usize> {
    let dims = shape.iter().enumerate().filter_map(|(i, &dim)| match (axes.contains(&i), keep_dims) {
        (false, _) => Some(dim),
        (true, true) => Some(1),
        (true, false) => None,
    });
    dims.collect()
}

fn reduce_floats(op: ReduceOp, x: &[f64]) -> f64 {
    let nan = x.iter().any(|x| x.is_nan());
    match op {
        // A sum of nothing is 0, which that of the standard library is with the other sign.
        ReduceOp::Sum => x.iter().fold(0.0, |sum, x| sum + x),
        ReduceOp::Prod => x.iter().product(),
        ReduceOp::Mean => x.iter().sum::<f64>() / x.len() as f64,
        ReduceOp::Max | ReduceOp::Min if nan => f64::NAN,
        ReduceOp::Max => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ReduceOp::Min => x.iter().copied().fold(f64::INFINITY, f64::min),
        ReduceOp::Any | ReduceOp::All => f64::NAN,
    }
}

fn reduce_ints(op: ReduceOp, x: &[i128]) -> Option<i128> {
    match op {
        ReduceOp::Sum => Some(x.iter().sum()),
        ReduceOp::Prod => x.iter().try_fold(1i128, |a, &b| a.checked_mul(b)),
        ReduceOp::Mean => x.iter().sum::<i128>().checked_div(x.len() as i128),
        ReduceOp::Max => x.iter().copied().max(),
        ReduceOp::Min => x.iter().copied().min(),
        ReduceOp::Any => Some(x.iter().any(|&x| x != 0).into()),
        ReduceOp::All => Some(x.iter().all(|&x| x != 0).into()),
    }
}

/// Where the best element of each row stands.
fn best_places<T>(elements: &[T], run: usize, better: impl Fn(&T, &T) -> bool) -> Vec<i128> {
    let place =
        |row: &[T]| (1..row.len()).fold(0, |best, i| if better(&row[i], &row[best]) { i } else { best });
    elements.chunks(run).map(|row| place(row) as i128).collect()
}

fn reduce_call(op: ReduceOp, axes: &[usize], keep_dims: bool, cx: &Site<'_>) -> Arg {
    let one = match op {
        ReduceOp::Sum => "sum_dim",
        ReduceOp::Prod => "prod_dim",
        ReduceOp::Mean => "mean_dim",
        ReduceOp::Max => "max_dim",
        ReduceOp::Min => "min_dim",
        ReduceOp::Any => "any_dim",
        ReduceOp::All => "all_dim",
    };
    let many = match op {
        ReduceOp::Sum => Some("sum_dims"),
        ReduceOp::Mean => Some("mean_dims"),
        ReduceOp::Max => Some("max_dims"),
        ReduceOp::Min => Some("min_dims"),
        _ => None,
    };
    let reduced = match (axes, many) {
        (&[axis], _) => Arg::Operand(0).then(one, [Arg::axis(axis)]),
        (axes, Some(many)) => Arg::Operand(0).then(many, [Arg::List(Arg::ints(axes))]),
        (axes, None) => axes.iter().fold(Arg::Operand(0), |x, &axis| x.then(one, [Arg::axis(axis)])),
    };
    squeezed(reduced, axes, keep_dims, cx)
}

/// Drops axes of size 1 after a reduction.
fn squeezed(x: Arg, axes: &[usize], keep_dims: bool, cx: &Site<'_>) -> Arg {
    let rank = cx.rank(0).saturating_sub(axes.len());
    match axes {
        _ if keep_dims => x,
        &[axis] => x.then("squeeze_dim", [Arg::Rank(rank), Arg::axis(axis)]),
        axes => x.then("squeeze_dims", [Arg::Rank(rank), Arg::List(Arg::ints(axes))]),
    }
}
