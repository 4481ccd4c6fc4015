//! `Range`: `start, start + delta, …` before `limit`.

use super::prelude::*;
use crate::ir::{Quotient, op, quotients};

pub(super) struct Range {
    /// Whether numbers of 16 bits are computed in single precision.
    in_single: bool,
}

impl Range {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { in_single: node.opset >= 27 && node.int("stash_type", 1)? == 1 })
    }
}

impl<'m> Operator<'m> for Range {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Range", 11, &["start", "limit", "delta"]).reads(Self::read),
        Spec::microsoft("Range", &["start", "limit", "delta?"]).reads(|_| Ok(Self { in_single: false })),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let start = args.value("start")?;
        let delta = match args.optional("delta")? {
            Some(delta) => delta,
            None => to.number_like(start, 1_i64),
        };
        let inputs = [start, args.value("limit")?, delta];
        let dtype = to.dtype(start);
        if self.in_single && matches!(dtype, DType::F16 | DType::BF16) {
            let [start, limit, delta] = inputs.map(|input| to.cast(input, DType::F32));
            let range = floats(to, [start?, limit?, delta?], DType::F32)?;
            return Ok(to.cast(range, dtype)?.into());
        }
        if dtype.is_float() {
            return Ok(floats(to, inputs, dtype)?.into());
        }
        let step = match to.known_number(inputs[2]) {
            Some(step) => step.to_i64(),
            None => {
                let count = counted(to, inputs)?;
                return Ok(stepped(to, inputs, count, dtype)?.into());
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
fn floats(to: &mut Lowering<'_, '_>, inputs: [ValueId; 3], dtype: DType) -> RuleResult<ValueId> {
    let known = |n: usize| to.known_number(inputs[n]).map(|number| number.to_f64());
    let count = match (known(0), known(1), known(2)) {
        (Some(start), Some(limit), Some(delta)) => {
            let count = ((limit - start) / delta).ceil();
            if !count.is_finite() {
                return Err(invalid("delta", format!("is {delta}")));
            }
            Dim::constant((count as i64).max(0))
        }
        _ => {
            let of_sizes = inputs.map(|input| quotients(to.builder.graph, input));
            let count = match of_sizes.each_ref().map(Option::as_deref) {
                [Some([start]), Some([limit]), Some([delta])] => steps_before(to, [start, limit, delta])?,
                _ => None,
            };
            match count {
                Some(count) => count,
                None => counted(to, inputs)?,
            }
        }
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
        // In f64, as ONNX Runtime does; a device without it computes in f32. Already the difference may be beyond the integers of its dtype.
        let [start, limit, delta] = [start, limit, delta].map(|number| number.cast(DType::F64));
        let steps = (limit - start) / delta;
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
fn stepped(to: &mut Lowering<'_, '_>, inputs: [ValueId; 3], count: Dim, dtype: DType) -> RuleResult<ValueId> {
    let [start, _, delta] = scalars(to, inputs)?;
    let positions = to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: count, step: 1 }), &[])?;
    let positions = to.cast(positions, dtype)?;
    let steps = to.binary(BinaryOp::Mul, positions, delta)?;
    to.binary(BinaryOp::Add, steps, start)
}

/// How many steps fit before the limit, where sizes tell it.
fn steps_before(to: &Lowering<'_, '_>, [start, limit, delta]: [&Quotient; 3]) -> RuleResult<Option<Dim>> {
    let Some(step) = delta.dividend.as_constant() else { return Ok(None) };
    if step == 0 {
        return Err(invalid("delta", "is 0"));
    }
    let span = limit.plus(&start.negated()).filter(|_| delta.is_exact());
    let Some(Quotient { dividend, divisor }) = span else { return Ok(None) };
    let sign = Dim::constant(step.signum());
    let count =
        (&(&dividend * &delta.divisor) * &sign).ceil_div(&(&divisor * &Dim::constant(step.saturating_abs())));
    Ok(Some(to.builder.graph.maximum(&count, &Dim::constant(0))))
}
