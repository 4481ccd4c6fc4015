//! Reductions and running folds.

use super::{Elements, Strided};
use kiln_types::{ArgReduceOp, CumulativeOp, DType, ReduceOp, TensorData};
use std::cmp::Ordering;

/// Elements with the given axes last, and the number of elements of those axes.
fn axes_last(x: &TensorData, axes: &[usize]) -> (Elements, usize) {
    let kept = (0..x.shape.len()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let view = Strided::new(&x.shape).permute(&order);
    let elements = match Elements::load(x) {
        Elements::Float(x) => Elements::Float(view.gather(&x)),
        Elements::Int(x) => Elements::Int(view.gather(&x)),
    };
    (elements, super::elements(&axes.iter().map(|&axis| x.shape[axis]).collect::<Vec<_>>()))
}

/// The shape with axes folded.
fn folded(shape: &[usize], axes: &[usize], keep_dims: bool) -> Vec<usize> {
    let dims = shape.iter().enumerate().filter_map(|(i, &dim)| match (axes.contains(&i), keep_dims) {
        (false, _) => Some(dim),
        (true, true) => Some(1),
        (true, false) => None,
    });
    dims.collect()
}

pub(super) fn reduce(op: ReduceOp, x: &TensorData, axes: &[usize], keep_dims: bool) -> Option<TensorData> {
    if axes.iter().any(|&axis| axis >= x.shape.len()) {
        return None;
    }
    let (elements, run) = axes_last(x, axes);
    let shape = folded(&x.shape, axes, keep_dims);
    let count: usize = super::elements(&shape);
    let chunk = |i: usize| i * run..(i + 1) * run;
    let result = match elements {
        Elements::Float(x) => Elements::Float((0..count).map(|i| fold_floats(op, &x[chunk(i)])).collect()),
        Elements::Int(x) => {
            Elements::Int((0..count).map(|i| fold_ints(op, &x[chunk(i)])).collect::<Option<_>>()?)
        }
    };
    Some(result.store(x.dtype, shape))
}

fn fold_floats(op: ReduceOp, x: &[f64]) -> f64 {
    let nan = x.iter().any(|x| x.is_nan());
    match op {
        ReduceOp::Sum => x.iter().sum(),
        ReduceOp::Prod => x.iter().product(),
        ReduceOp::Mean => x.iter().sum::<f64>() / x.len() as f64,
        ReduceOp::Max | ReduceOp::Min if nan => f64::NAN,
        ReduceOp::Max => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ReduceOp::Min => x.iter().copied().fold(f64::INFINITY, f64::min),
        ReduceOp::Any | ReduceOp::All => f64::NAN,
    }
}

fn fold_ints(op: ReduceOp, x: &[i128]) -> Option<i128> {
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

pub(super) fn arg_reduce(
    op: ArgReduceOp,
    x: &TensorData,
    axis: usize,
    keep_dims: bool,
    select_last: bool,
) -> Option<TensorData> {
    let run = *x.shape.get(axis).filter(|&&n| n > 0)?;
    let (elements, _) = axes_last(x, &[axis]);
    let wanted = match op {
        ArgReduceOp::Max => Ordering::Greater,
        ArgReduceOp::Min => Ordering::Less,
    };
    let better =
        |order: Option<Ordering>| order == Some(wanted) || (select_last && order == Some(Ordering::Equal));
    let best = match elements {
        Elements::Float(x) => {
            best_places(&x, run, |new, old| better(new.partial_cmp(old)) || (new.is_nan() && !old.is_nan()))
        }
        // As integers: not all have a float of their own.
        Elements::Int(x) => best_places(&x, run, |new, old| better(Some(new.cmp(old)))),
    };
    Some(Elements::Int(best).store(DType::I64, folded(&x.shape, &[axis], keep_dims)))
}

/// Where the best element of each row stands.
fn best_places<T>(elements: &[T], run: usize, better: impl Fn(&T, &T) -> bool) -> Vec<i128> {
    let place =
        |row: &[T]| (1..row.len()).fold(0, |best, i| if better(&row[i], &row[best]) { i } else { best });
    elements.chunks(run).map(|row| place(row) as i128).collect()
}

pub(super) fn cumulative(
    op: CumulativeOp,
    x: &TensorData,
    axis: usize,
    exclusive: bool,
    reverse: bool,
) -> Option<TensorData> {
    let size = *x.shape.get(axis)?;
    let inner: usize = super::elements(&x.shape[axis + 1..]);
    let outer: usize = super::elements(&x.shape[..axis]);
    macro_rules! scan {
        ($kind:ident, $x:expr, $first:expr, $mul:expr) => {{
            let mut out = $x.clone();
            for o in 0..outer {
                for i in 0..inner {
                    let mut folded = None;
                    for step in 0..size {
                        let row = if reverse { size - 1 - step } else { step };
                        let at = (o * size + row) * inner + i;
                        let new = $x[at];
                        let next = match (folded, op) {
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
                        out[at] = if exclusive { folded.unwrap_or($first) } else { next };
                        folded = Some(next);
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
        Elements::Int(x) => scan!(Int, x, if op == CumulativeOp::Prod { 1 } else { 0 }, i128::wrapping_mul),
    };
    Some(result.store(x.dtype, x.shape.clone()))
}
