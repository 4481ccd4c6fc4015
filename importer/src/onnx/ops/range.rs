//! `Range`: `start, start + delta, …` before `limit`.

use super::prelude::*;
use crate::ir::op;
use std::ops::{Add, Sub};

pub(super) struct Range;

impl<'m> Operator<'m> for Range {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("Range", 11, &["start", "limit", "delta"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let inputs = [args.value("start")?, args.value("limit")?, args.value("delta")?];
        let dtype = to.dtype(inputs[0]);
        if dtype.is_float() {
            return floats(to, inputs, dtype);
        }
        let step = match to.known_number(inputs[2]) {
            Some(step) => step.to_i64(),
            None => {
                let count = counted(to, inputs)?;
                return stepped(to, inputs, count, dtype);
            }
        };
        if step == 0 {
            return Err(invalid("delta", "is 0"));
        }
        let start = to.host_integer(inputs[0], "start")?;
        let end = to.host_integer(inputs[1], "limit")?;
        let range = to.add(Op::Arange(op::Arange { start, end, step }), &[])?;
        Ok(to.cast(range, dtype)?.into())
    }
}

/// Floats: the number of elements is known, or computed from sizes, or only the run tells it.
fn floats(to: &mut Lowering<'_, '_>, inputs: [ValueId; 3], dtype: DType) -> RuleResult<Outputs> {
    let known = |n: usize| to.known_number(inputs[n]).map(|number| number.to_f64());
    let count = match (known(0), known(1), known(2)) {
        (Some(start), Some(limit), Some(delta)) => {
            let count = ((limit - start) / delta).ceil();
            if !count.is_finite() {
                return Err(invalid("delta", format!("is {delta}")));
            }
            Dim::constant((count as i64).max(0))
        }
        _ => match inputs.map(|input| Fraction::of(to, input, MAX_DEPTH)) {
            [Some(start), Some(limit), Some(delta)] => steps_before(to, &(limit - start), &delta)?,
            _ => counted(to, inputs)?,
        },
    };
    stepped(to, inputs, count, dtype)
}

/// How many elements a range has, read back when the model runs.
fn counted(to: &mut Lowering<'_, '_>, inputs: [ValueId; 3]) -> RuleResult<Dim> {
    if to.known_number(inputs[2]).is_some_and(|delta| delta.to_f64() == 0.0) {
        return Err(invalid("delta", "is 0"));
    }
    let inputs = scalars(to, inputs)?;
    let count = to.formula(|f| {
        let [start, limit, delta] = f.values(inputs);
        // In f64, as ONNX Runtime does; a device without it computes in f32.
        let steps = (limit - start).cast(DType::F64) / delta.cast(DType::F64);
        steps.unary(UnaryOp::Ceil).max(0.0).cast(DType::I64)
    })?;
    let count = to.host_integer(count, "count")?;
    Ok(to.builder.graph.maximum(&count, &Dim::constant(0)))
}

/// As tensors of rank 0; exporters write some with one axis.
fn scalars(to: &mut Lowering<'_, '_>, inputs: [ValueId; 3]) -> RuleResult<[ValueId; 3]> {
    let [start, limit, delta] = inputs.map(|input| to.reshape(input, Vec::new()));
    Ok([start?, limit?, delta?])
}

/// `start + n · delta` for so many `n`.
fn stepped(to: &mut Lowering<'_, '_>, inputs: [ValueId; 3], count: Dim, dtype: DType) -> RuleResult<Outputs> {
    let [start, _, delta] = scalars(to, inputs)?;
    let positions = to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: count, step: 1 }), &[])?;
    let positions = to.cast(positions, dtype)?;
    let steps = to.binary(BinaryOp::Mul, positions, delta)?;
    Ok(to.binary(BinaryOp::Add, steps, start)?.into())
}

/// How many steps fit before the limit.
fn steps_before(to: &Lowering<'_, '_>, span: &Fraction, delta: &Fraction) -> RuleResult<Dim> {
    if delta.numerator.as_constant().is_none_or(|step| step == 0) {
        return Err(invalid("delta", "is 0, or computed from sizes"));
    }
    let parts = span.denominator.max(delta.denominator);
    let (mut span, mut step) = (span.over(parts), delta.over(parts));
    if step.as_constant().is_some_and(|step| step < 0) {
        (span, step) = (-&span, -&step);
    }
    let count = span.ceil_div(&step);
    let none = Dim::constant(0);
    Ok(to.builder.graph.maximum(&count, &none))
}

/// Operations between a size and what is made of it.
const MAX_DEPTH: usize = 8;

/// A float that is made of sizes: an integer over a power of two.
struct Fraction {
    numerator: Dim,
    denominator: i64,
}

impl Fraction {
    fn of(to: &Lowering<'_, '_>, value: ValueId, depth: usize) -> Option<Self> {
        if let Some(number) = to.known_number(value) {
            return Self::of_number(number.to_f64());
        }
        let graph = &*to.builder.graph;
        if let Some([dim]) = graph.value(value).host.as_deref() {
            return Some(Self { numerator: dim.clone(), denominator: 1 });
        }
        let node = graph.node(graph.producer(value)?);
        let operand = |n: usize| Self::of(to, (*node.inputs.get(n)?)?, depth.checked_sub(1)?);
        match node.op {
            Op::Cast(_) if !to.dtype((*node.inputs.first()?)?).is_float() => operand(0),
            Op::Reshape(_) => operand(0),
            Op::Binary(BinaryOp::Add) => Some(operand(0)? + operand(1)?),
            Op::Binary(BinaryOp::Sub) => Some(operand(0)? - operand(1)?),
            Op::Binary(BinaryOp::Mul) => {
                let (a, b) = (operand(0)?, operand(1)?);
                let denominator = a.denominator.checked_mul(b.denominator).filter(|&d| d <= MOST_PARTS)?;
                Some(Self { numerator: &a.numerator * &b.numerator, denominator })
            }
            _ => None,
        }
    }

    fn of_number(number: f64) -> Option<Self> {
        let mut parts = (0..=MOST_PARTS.ilog2()).map(|power| 1i64 << power);
        let denominator = parts.find(|&parts| (number * parts as f64).fract() == 0.0)?;
        let numerator = number * denominator as f64;
        // Beyond this, floats have no fractions, and counts no meaning.
        (numerator.abs() < 2f64.powi(52))
            .then(|| Self { numerator: Dim::constant(numerator as i64), denominator })
    }

    /// The numerator over a larger denominator.
    fn over(&self, denominator: i64) -> Dim {
        &self.numerator * &Dim::constant(denominator / self.denominator)
    }
}

/// The smallest part that is told from a whole.
const MOST_PARTS: i64 = 1 << 20;

impl Add for Fraction {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let denominator = self.denominator.max(other.denominator);
        Self { numerator: &self.over(denominator) + &other.over(denominator), denominator }
    }
}

impl Sub for Fraction {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let denominator = self.denominator.max(other.denominator);
        Self { numerator: &self.over(denominator) - &other.over(denominator), denominator }
    }
}
