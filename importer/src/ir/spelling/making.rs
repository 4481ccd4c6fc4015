//! Tensors out of nothing.

use super::Expr;
use crate::ir::{Dim, Op};
use kiln_types::{DType, Scalar};

pub(super) fn spell(op: &Op) -> Expr {
    match op {
        Op::Fill { dims, value, dtype } => {
            let (zero, one) = (value.to_f64() == 0.0, value.to_f64() == 1.0);
            let shape = Expr::sizes(dims);
            let made = match dtype.is_bool() {
                false if zero && !value.to_f64().is_sign_negative() => {
                    Expr::Make("zeros", vec![shape, Expr::Device])
                }
                false if one => Expr::Make("ones", vec![shape, Expr::Device]),
                _ => Expr::Make("full", vec![shape, Expr::Scalar(*value, *dtype), Expr::Device]),
            };
            with_dtype(made, *dtype)
        }
        Op::Arange { start, end, step: 1 } => Expr::Make("arange", vec![range(start, end), Expr::Device]),
        Op::Arange { start, end, step } if *step > 0 => {
            Expr::Make("arange_step", vec![range(start, end), Expr::Int(*step), Expr::Device])
        }
        Op::Arange { start, end, step } => {
            // Counts up, then turns the numbers around.
            let count = (start - end).ceil_div(&Dim::constant(step.saturating_neg()));
            let counted = Expr::Make("arange", vec![range(&Dim::constant(0), &count), Expr::Device]);
            let scaled = counted.infix("*", Expr::Scalar(Scalar::Int(*step), DType::I64));
            scaled.infix("+", Expr::Integer(start.clone()))
        }
        Op::HostTensor { values, dims } => match (dims.as_slice(), values.as_slice()) {
            ([], [value]) => {
                Expr::Make("full", vec![Expr::Array(Vec::new()), Expr::Integer(value.clone()), Expr::Device])
            }
            (dims, values) => Expr::Make("from_ints", vec![nested(values, dims), Expr::Device]),
        },
        _ => Expr::Tuple(Vec::new()),
    }
}

/// Row-major values as arrays in arrays.
fn nested(values: &[Dim], dims: &[usize]) -> Expr {
    match dims {
        [rows, inner @ ..] if !inner.is_empty() && *rows > 0 && values.len() >= *rows => {
            Expr::Array(values.chunks(values.len() / rows).map(|row| nested(row, inner)).collect())
        }
        _ => Expr::Array(values.iter().cloned().map(Expr::Integer).collect()),
    }
}

fn range(start: &Dim, end: &Dim) -> Expr {
    Expr::Range(Box::new(Expr::Integer(start.clone())), Box::new(Expr::Integer(end.clone())))
}

/// The dtype that tensors of a kind get when nothing is said needs no cast.
pub(super) fn with_dtype(made: Expr, dtype: DType) -> Expr {
    match dtype {
        DType::F32 | DType::I64 | DType::Bool => made,
        other => made.then("cast", vec![Expr::DType(other)]),
    }
}
