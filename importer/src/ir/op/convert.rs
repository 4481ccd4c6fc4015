//! Bounds, dtypes, and formats of floats.

use super::elementwise::{elementwise_loops, expression_loops};
use super::host::fits;
use super::prelude::*;
use crate::ir::builder::{MAX_HOST_ELEMENTS, host_of};
use crate::ir::{Quotient, known, quotients};
use kiln_types::{BinaryOp, CompareOp, DType, DTypeKind, Expression, Minifloat, Scalar, Step};

attributes! {
    /// Bounds as numbers of the dtype.
    pub struct Clamp {
        /// Lower bound.
        pub min: Option<Scalar>,
        /// Upper bound.
        pub max: Option<Scalar>,
    }
}

impl Clamp {
    /// The bounds, infinite where there is none: for floats up to f32 numbers of few digits that round to them.
    pub(crate) fn bounds(&self, dtype: DType) -> (f64, f64) {
        let number = |bound: Scalar| match dtype.is_float() && dtype != DType::F64 {
            true => crate::data::shortest(bound.to_f64()),
            false => bound.to_f64(),
        };
        (self.min.map_or(f64::NEG_INFINITY, number), self.max.map_or(f64::INFINITY, number))
    }
}

impl Operation for Clamp {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        need("x", x, !x.dtype.is_bool(), "expected a number")?;
        Ok(vec![x.clone()])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let (min, max) = (self.min, self.max);
        let x = cx.operand(0)?;
        let clamped = x.values.iter().map(|value| {
            let low = min
                .map_or_else(|| value.clone(), |min| cx.graph.maximum(value, &Dim::constant(min.to_i64())));
            max.map_or(low.clone(), |max| cx.graph.minimum(&low, &Dim::constant(max.to_i64())))
        });
        Some(clamped.collect())
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![clamp(self.min, self.max, operands.get(0)?)?])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        let bound = |x, op, bound: Option<Scalar>| match bound {
            Some(bound) => Derivation::binary(op, x, Derivation::Number(bound.to_f64())),
            None => x,
        };
        Ok(bound(bound(of.of(0)?, BinaryOp::Max, self.min), BinaryOp::Min, self.max))
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let dtype = cx.dtype(0);
        let mut steps = vec![Step::Input(0)];
        for (op, bound) in [(BinaryOp::Max, self.min), (BinaryOp::Min, self.max)] {
            if let Some(bound) = bound {
                let last = steps.len() as u16;
                steps.extend([Step::Constant(bound, dtype), Step::Binary(op, last - 1, last)]);
            }
        }
        expression_loops(cx, Expression::new(steps))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        Implementation::Call(clamp_call(self.min, self.max, cx.dtype(0)))
    }
}

attributes! {
    /// Another dtype.
    pub struct Cast {
        /// The new one.
        pub to: DType,
    }
}

impl Operation for Cast {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: LaidOut);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(vec![cx.ty(0)?.with_dtype(self.to)])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let to = self.to;
        if to.is_float() {
            return None;
        }
        if (*cx.inputs.first()?).is_some_and(|id| cx.graph.ty(id).dtype.is_float()) {
            return host_of_floats(cx, to);
        }
        let x = cx.operand(0)?;
        if to.is_bool() && !x.dtype.is_bool() {
            let zero = Dim::constant(0);
            return Some(x.values.iter().map(|v| cx.graph.compare(CompareOp::NotEqual, v, &zero)).collect());
        }
        x.values.iter().all(|value| fits(to, value)).then(|| x.values.to_vec())
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![cast(operands.get(0)?, self.to)])
    }

    /// Parameters get the backend's dtype anyway.
    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        if self.to.is_float() { of.bare(0) } else { Err(of.unknown()) }
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        elementwise_loops(cx, Step::Cast(self.to, 0), 1)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        Implementation::Call(cast_call(Arg::Operand(0), cx.dtype(0), self.to))
    }
}

attributes! {
    /// The nearest values of a format of few bits, in its dtype.
    pub struct RoundTo {
        /// Which.
        pub format: Minifloat,
        /// Whether what is beyond the greatest is the greatest.
        pub saturate: bool,
    }
}

impl Operation for RoundTo {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host, derivation, loops);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        need_float("x", x)?;
        Ok(vec![x.with_dtype(self.format.dtype())])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let x = operands.get(0)?;
        let Elements::Float(numbers) = Elements::load(x) else { return None };
        let rounded = numbers.into_iter().map(|x| self.format.round(x, self.saturate)).collect();
        Some(vec![Elements::Float(rounded).store(self.format.dtype(), x.shape.clone())])
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let method = if self.saturate { "round_to" } else { "round_to_or_overflow" };
        Implementation::Call(Arg::Operand(0).then(method, [Arg::options(&self.format)]))
    }
}

pub(super) fn clamp(min: Option<Scalar>, max: Option<Scalar>, x: &TensorData) -> Option<TensorData> {
    let elements = match Elements::load(x) {
        Elements::Float(x) => Elements::Float(
            x.into_iter()
                .map(|v| {
                    let low = min.map_or(v, |min| if v < min.to_f64() { min.to_f64() } else { v });
                    max.map_or(low, |max| if low > max.to_f64() { max.to_f64() } else { low })
                })
                .collect(),
        ),
        Elements::Int(x) => Elements::Int(
            x.into_iter()
                .map(|v| {
                    let low = min.map_or(v, |min| v.max(integer(min)));
                    max.map_or(low, |max| low.min(integer(max)))
                })
                .collect(),
        ),
    };
    Some(elements.store(x.dtype, x.shape.clone()))
}

/// A bound of integers, which may be beyond an `i64`.
fn integer(bound: Scalar) -> i128 {
    match bound {
        Scalar::UInt(bound) => bound.into(),
        bound => bound.to_i64().into(),
    }
}

fn clamp_call(min: Option<Scalar>, max: Option<Scalar>, dtype: DType) -> Arg {
    let x = Arg::Operand(0);
    let number = |scalar| Arg::Scalar(scalar, dtype);
    match (min, max) {
        (Some(min), Some(max)) => x.then("clamp", [number(min), number(max)]),
        (Some(min), None) => x.then("clamp_min", [number(min)]),
        (None, Some(max)) => x.then("clamp_max", [number(max)]),
        (None, None) => x,
    }
}

/// Floats as integers that are known, or made of sizes: those that went through a scale or a square root.
fn host_of_floats(cx: &Host<'_>, to: DType) -> Option<Vec<Dim>> {
    let id = (*cx.inputs.first()?)?;
    let count = cx.graph.ty(id).num_elements().as_size();
    if count.is_none_or(|count| count > MAX_HOST_ELEMENTS) {
        return None;
    }
    if let Some(known) = known(cx.graph, id) {
        return host_of(&cast(&known, to));
    }
    let whole = |quotient: &Quotient| quotient.truncated(cx.graph).filter(|dim| fits(to, dim));
    quotients(cx.graph, id)?.iter().map(whole).collect()
}

pub(super) fn cast(x: &TensorData, to: DType) -> TensorData {
    Elements::load(x).store(to, x.shape.clone())
}

/// A dtype change. What a graph calls f32 or i64 is the backend's own float or integer dtype, whichever that is; the others
/// are named.
pub(super) fn cast_call(x: Arg, from: DType, to: DType) -> Arg {
    match (to, to.kind()) {
        (DType::F32, _) => x.then("float", []),
        (DType::I64, _) => x.then("int", []),
        (_, DTypeKind::Bool) if from.is_bool() => x,
        (_, DTypeKind::Bool) => x.then("bool", []),
        (_, kind) if kind == from.kind() => x.then("cast", [Arg::DType(to)]),
        (_, DTypeKind::Float) => x.then("to_float", [Arg::DType(to)]),
        (_, DTypeKind::Int) => x.then("to_int", [Arg::DType(to)]),
    }
}
