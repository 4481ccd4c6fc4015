//! Tensors out of nothing.

use crate::ir::{Arg, Dim, Op};
use kiln_types::{DType, Scalar};

pub(super) fn call(op: &Op) -> Arg {
    match op {
        Op::Fill { dims, value, dtype } => {
            let (zero, one) = (value.to_f64() == 0.0, value.to_f64() == 1.0);
            let made = |name| with_dtype(Arg::call(name, [Arg::Array(Arg::sizes(dims))]), *dtype);
            match dtype.is_bool() {
                false if zero && !value.to_f64().is_sign_negative() => made("zeros"),
                false if one => made("ones"),
                _ => full(dims, Arg::Scalar(*value, *dtype), *dtype),
            }
        }
        Op::Arange { start, end, step: 1 } => Arg::call("arange", [range(start, end)]),
        Op::Arange { start, end, step } if *step > 0 => {
            Arg::call("arange_step", [range(start, end), Arg::Int(*step)])
        }
        Op::Arange { start, end, step } => {
            // Counts up, then turns the numbers around.
            let count = (start - end).ceil_div(&Dim::constant(step.saturating_neg()));
            let counted = Arg::call("arange", [range(&Dim::constant(0), &count)]);
            let scaled = counted.then("mul", [Arg::Scalar(Scalar::Int(*step), DType::I64)]);
            scaled.then("add", [Arg::Integer(start.clone())])
        }
        Op::HostTensor { values, dims } => match (dims.as_slice(), values.as_slice()) {
            ([], [value]) => Arg::call("full", [Arg::Array(Vec::new()), Arg::Integer(value.clone())]),
            (dims, values) => Arg::call("from_ints", [nested(values, dims)]),
        },
        _ => Arg::Tuple(Vec::new()),
    }
}

/// Row-major values as arrays in arrays.
fn nested(values: &[Dim], dims: &[usize]) -> Arg {
    match dims {
        [rows, inner @ ..] if !inner.is_empty() && *rows > 0 && values.len() >= *rows => {
            Arg::Array(values.chunks(values.len() / rows).map(|row| nested(row, inner)).collect())
        }
        _ => Arg::Array(values.iter().cloned().map(Arg::Integer).collect()),
    }
}

fn range(start: &Dim, end: &Dim) -> Arg {
    Arg::range(Arg::Integer(start.clone()), Arg::Integer(end.clone()))
}

/// A tensor of one number.
pub(super) fn full(dims: &[Dim], value: Arg, dtype: DType) -> Arg {
    let shape = Arg::Array(Arg::sizes(dims));
    match dtype {
        // Numbers that the usual dtype does not hold.
        DType::F64 | DType::U64 => Arg::call("full", [shape, value, Arg::DType(dtype)]),
        _ => with_dtype(Arg::call("full", [shape, value]), dtype),
    }
}

/// The dtype that tensors of a kind get when nothing is said needs no cast.
pub(super) fn with_dtype(made: Arg, dtype: DType) -> Arg {
    match dtype {
        DType::F32 | DType::I64 | DType::Bool => made,
        other => made.then("cast", [Arg::DType(other)]),
    }
}
