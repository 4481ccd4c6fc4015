//! Creation of tensors: out of nothing but numbers and sizes.

use super::host::exact;
use super::prelude::*;
use crate::ir::builder::MAX_HOST_ELEMENTS;
use kiln_types::{DType, Expression, Scalar, Step};

attributes! {
    /// One value everywhere.
    pub struct Fill {
        /// Its dims.
        pub dims: Vec<Dim>,
        /// The value.
        pub value: Scalar,
        /// The dtype.
        pub dtype: DType,
    }
}

impl Operation for Fill {
    facts!(operands: [], effect: Pure, folding: PerElement(1), result: Made);
    none!(derivation);

    fn infer(&self, _: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(vec![TensorType::new(self.dtype, self.dims.iter().cloned())])
    }

    fn host(&self, _: &Host<'_>) -> Option<Vec<Dim>> {
        let (dims, value, dtype) = (self.dims.as_slice(), self.value, self.dtype);
        let count = Dim::product(dims).as_size().filter(|&n| n <= MAX_HOST_ELEMENTS)?;
        let value = if dtype.is_bool() { i64::from(value.to_bool()) } else { value.to_i64() };
        (!dtype.is_float()).then(|| vec![Dim::constant(value); count])
    }

    fn evaluate(&self, _: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![fill(&sizes(&self.dims)?, self.value, self.dtype)?])
    }

    fn loops(&self, _: &Site<'_>) -> Option<Loops> {
        let expression = Expression::new(vec![Step::Constant(self.value, self.dtype)]);
        let result = Strided::new(&sizes(&self.dims)?);
        Some(Loops::Elementwise(vec![ElementLoop { result, operands: Vec::new(), expression }]))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let (value, dtype) = (self.value.to_f64(), self.dtype);
        let made = |name| with_dtype(Arg::call(name, [Arg::Array(Arg::sizes(&self.dims))]), dtype);
        Implementation::Call(match dtype.is_bool() {
            false if value == 0.0 && !value.is_sign_negative() => made("zeros"),
            false if value == 1.0 => made("ones"),
            _ => full(&self.dims, Arg::Scalar(self.value, dtype), dtype),
        })
    }
}

attributes! {
    /// `start, start + step, …` before `end`, rank 1, i64.
    pub struct Arange {
        /// First.
        pub start: Dim,
        /// Bound.
        pub end: Dim,
        /// Step; never 0.
        pub step: i64,
    }
}

impl Operation for Arange {
    facts!(operands: [], effect: Pure, folding: PerElement(1), result: Made);
    none!(derivation, loops);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let (start, end, step) = (&self.start, &self.end, self.step);
        if step == 0 {
            return Err(attribute("delta", "is 0"));
        }
        let span = if step > 0 { end - start } else { start - end };
        let step = i64::try_from(step.unsigned_abs()).unwrap_or(i64::MAX);
        let count = span.ceil_div(&Dim::constant(step));
        let known = cx.graph().least(&span, 0).is_some_and(|least| least >= 0);
        let count = if known { count } else { count.maximum(&Dim::constant(0)) };
        Ok(vec![TensorType::new(DType::I64, [count])])
    }

    fn host(&self, _: &Host<'_>) -> Option<Vec<Dim>> {
        let (start, end, step) = (&self.start, &self.end, self.step);
        let span = (end - start).as_constant()?;
        let span = if step > 0 { span } else { span.checked_neg()? };
        let count = span.max(0) as u64;
        let count = count.div_ceil(step.unsigned_abs().max(1));
        if count > MAX_HOST_ELEMENTS as u64 {
            return None;
        }
        (0..count as i64).map(|i| exact(start + &Dim::constant(i.checked_mul(step)?))).collect()
    }

    fn evaluate(&self, _: &Known<'_>) -> Option<Vec<TensorData>> {
        let (start, end, step) = (self.start.as_constant()?, self.end.as_constant()?, self.step);
        /// More is not worth keeping as data.
        const LIMIT: u64 = 1 << 24;
        let span = if step > 0 { end.checked_sub(start)? } else { start.checked_sub(end)? };
        let count = (span.max(0) as u64).div_ceil(step.unsigned_abs().max(1));
        if count > LIMIT {
            return None;
        }
        let values =
            (0..count as i64).map(|i| start.wrapping_add(i.wrapping_mul(step))).collect::<Vec<i64>>();
        let count = values.len();
        Some(vec![TensorData::new(values, [count])])
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let Self { start, end, step } = self;
        Implementation::Call(match step {
            1 => Arg::call("arange", [range(start, end)]),
            1.. => Arg::call("arange_step", [range(start, end), Arg::Int(*step)]),
            _ => {
                // Counts up, then turns the numbers around.
                let count = (start - end).ceil_div(&Dim::constant(step.saturating_neg()));
                let counted = Arg::call("arange", [range(&Dim::constant(0), &count)]);
                let scaled = counted.then("mul", [Arg::Scalar(Scalar::Int(*step), DType::I64)]);
                scaled.then("add", [Arg::Integer(start.clone())])
            }
        })
    }
}

attributes! {
    /// Host integers as an i64 tensor; where shape arithmetic meets tensor arithmetic.
    pub struct HostTensor {
        /// Contents, row-major.
        pub values: Vec<Dim>,
        /// Its (known) dims.
        pub dims: Vec<usize>,
    }
}

impl Operation for HostTensor {
    facts!(operands: [], effect: Pure, folding: PerElement(1), result: Made);
    none!(derivation, loops);

    fn infer(&self, _: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let (values, dims) = (&self.values, &self.dims);
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if count != Some(values.len()) {
            return Err(attribute("dims", format!("{dims:?} do not hold {} values", values.len())));
        }
        Ok(vec![TensorType::new(DType::I64, dims.iter().copied())])
    }

    fn host(&self, _: &Host<'_>) -> Option<Vec<Dim>> {
        Some(self.values.clone())
    }

    fn evaluate(&self, _: &Known<'_>) -> Option<Vec<TensorData>> {
        let values = self.values.iter().map(Dim::as_constant).map(|value| value.map(i128::from));
        let values = Elements::Int(values.collect::<Option<_>>()?);
        Some(vec![values.store(DType::I64, self.dims.clone())])
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(match (self.dims.as_slice(), self.values.as_slice()) {
            ([], [value]) => Arg::call("full", [Arg::Array(Vec::new()), Arg::Integer(value.clone())]),
            (dims, values) => Arg::call("from_ints", [nested(values, dims)]),
        })
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
fn with_dtype(made: Arg, dtype: DType) -> Arg {
    match dtype {
        DType::F32 | DType::I64 | DType::Bool => made,
        other => made.then("cast", [Arg::DType(other)]),
    }
}
