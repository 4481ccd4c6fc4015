//! Values that count (`0, 1, 2, …`) and tensors of one value, through what is done with them.
//!
//! Exporters compute masks from positions: shifted, cut, joined, subtracted from each other, compared. As long as the
//! result is known to count or to be one value, it is written as that, and a mask of "all true" goes.

use super::{Rewrite, Rule};
use crate::ir::{Arange, AxisRange, Concat, Cumulative, Dim, Fill, HostTensor, Op, Reshape, Slice, ValueId};
use kiln_types::{BinaryOp, CompareOp, CumulativeOp, DType, Scalar};

pub(super) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op().clone() {
        Op::Slice(Slice { ranges }) => slice(cx, &ranges),
        Op::Concat(Concat { axis }) => concat(cx, axis),
        Op::Binary(op) => shift(cx, op).or_else(|| difference(cx, op)).or_else(|| elementwise(cx)),
        Op::Compare(op) => decided(cx, op).or_else(|| elementwise(cx)),
        Op::Unary(_) | Op::Cast(_) | Op::Where => elementwise(cx),
        Op::Cumulative(Cumulative { op: CumulativeOp::Sum, .. }) => running_sum(cx),
        _ => None,
    }
}

/// `start, start + 1, …` before `end`, in row-major order.
pub(super) struct Counter {
    pub(super) start: Dim,
    pub(super) end: Dim,
}

/// A value that counts along its one axis that is longer than 1.
pub(super) fn counter(cx: &Rewrite<'_>, id: ValueId) -> Option<Counter> {
    let node = cx.producer(id)?;
    match &node.op {
        Op::Arange(Arange { start, end, step: 1 }) => {
            Some(Counter { start: start.clone(), end: end.clone() })
        }
        Op::Reshape(_) => {
            let alone = cx.ty(id).dims.iter().filter(|dim| !dim.is(1)).count() <= 1;
            counter(cx, node.inputs.first().copied().flatten()?).filter(|_| alone)
        }
        _ => None,
    }
}

/// The current node yields a counter.
fn become_counter(cx: &mut Rewrite<'_>, start: Dim, end: Dim) -> Option<()> {
    let ty = cx.ty(cx.output()?).clone();
    if ty.dtype != DType::I64 {
        return None;
    }
    let counter = cx.insert(Op::Arange(Arange { start, end, step: 1 }), &[])?;
    // A length that inference cannot tell to be the same stays as it was.
    if cx.ty(counter).num_elements() != ty.num_elements() {
        return None;
    }
    cx.replace(Op::Reshape(Reshape { dims: ty.dims }), vec![Some(counter)])
}

fn slice(cx: &mut Rewrite<'_>, ranges: &[AxisRange]) -> Option<&'static str> {
    let x = cx.input(0)?;
    let found = counter(cx, x)?;
    let dims = &cx.ty(x).dims;
    let whole = |range: &AxisRange, dim: &Dim| range.start.is(0) && range.end == *dim && range.step == 1;
    let mut cut = ranges.iter().zip(dims).filter(|(range, dim)| !whole(range, dim));
    let (Some((range, dim)), None) = (cut.next(), cut.next()) else {
        return None;
    };
    if range.step != 1 || dim.is(1) {
        return None;
    }
    let (start, end) = (&found.start + &range.start, &found.start + &range.end);
    become_counter(cx, start, end)?;
    Some("slice of a counter")
}

fn concat(cx: &mut Rewrite<'_>, axis: usize) -> Option<&'static str> {
    let mut joined: Option<Counter> = None;
    for input in cx.node().inputs.clone() {
        let id = input?;
        let along = cx.ty(id).dims.iter().enumerate().all(|(i, dim)| i == axis || dim.is(1));
        let next = counter(cx, id).filter(|_| along)?;
        joined = Some(match joined {
            None => next,
            Some(before) if before.end == next.start => Counter { start: before.start, end: next.end },
            Some(_) => return None,
        });
    }
    let joined = joined?;
    become_counter(cx, joined.start, joined.end)?;
    Some("counters that join")
}

/// A counter plus or minus a number.
fn shift(cx: &mut Rewrite<'_>, op: BinaryOp) -> Option<&'static str> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let number = |id: ValueId| match cx.producer(id).map(|node| &node.op) {
        Some(Op::HostTensor(HostTensor { values, .. })) => match values.as_slice() {
            [value] => Some(value.clone()),
            _ => None,
        },
        _ => cx.graph().number(id).map(|number| Dim::constant(number.to_i64())),
    };
    let (x, by) = match op {
        BinaryOp::Add => match number(b) {
            Some(by) => (a, by),
            None => (b, number(a)?),
        },
        BinaryOp::Sub => (a, -&number(b)?),
        _ => return None,
    };
    let found = counter(cx, x)?;
    become_counter(cx, &found.start + &by, &found.end + &by)?;
    Some("shift of a counter")
}

/// One counter minus another of the same dims is one value.
fn difference(cx: &mut Rewrite<'_>, op: BinaryOp) -> Option<&'static str> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if op != BinaryOp::Sub || cx.ty(a) != cx.ty(b) {
        return None;
    }
    let (left, right) = (counter(cx, a)?, counter(cx, b)?);
    let value = Scalar::Int((&left.start - &right.start).as_constant()?);
    let (dims, dtype) = (cx.ty(a).dims.clone(), cx.ty(a).dtype);
    cx.replace(Op::Fill(Fill { dims, value, dtype }), Vec::new())?;
    Some("difference of counters")
}

/// A counter compared with a number that all or none of its values pass: positions are not negative.
fn decided(cx: &mut Rewrite<'_>, op: CompareOp) -> Option<&'static str> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (start, number) = (counter(cx, a)?.start.as_constant()?, cx.graph().number(b)?.to_i64());
    let value = match op {
        CompareOp::GreaterEqual if start >= number => true,
        CompareOp::Greater | CompareOp::NotEqual if start > number => true,
        CompareOp::Lower if start >= number => false,
        CompareOp::LowerEqual | CompareOp::Equal if start > number => false,
        _ => return None,
    };
    let dims = cx.ty(cx.output()?).dims.clone();
    cx.replace(Op::Fill(Fill { dims, value: Scalar::Bool(value), dtype: DType::Bool }), Vec::new())?;
    Some("comparison of positions")
}

/// An operation on tensors of one value yields one.
fn elementwise(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let mut filled = false;
    let mut numbers = Vec::new();
    for input in cx.node().inputs.clone() {
        let id = input?;
        let (value, dtype) = match (cx.constant(id), cx.producer(id).map(|node| &node.op)) {
            (Some(constant), _) => (cx.graph().number(id)?, constant.data.dtype),
            (None, Some(Op::Fill(Fill { value, dtype, .. }))) => {
                filled = true;
                (*value, *dtype)
            }
            _ => return None,
        };
        numbers.push(crate::data::fill(&[], value, dtype)?);
    }
    if !filled {
        return None;
    }
    let numbers: Vec<_> = numbers.iter().map(Some).collect();
    let data = cx.op().evaluate(&numbers)?.pop()?;
    let (value, dtype) = (crate::data::scalar(&data)?, data.dtype);
    let dims = cx.ty(cx.output()?).dims.clone();
    cx.replace(Op::Fill(Fill { dims, value, dtype }), Vec::new())?;
    Some("operation on one value")
}

/// A running sum of zeros.
fn running_sum(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let x = cx.input(0)?;
    let Op::Fill(Fill { value, .. }) = cx.producer(x)?.op else {
        return None;
    };
    if value.to_f64() != 0.0 {
        return None;
    }
    cx.redirect(x)?;
    Some("running sum of zeros")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Arange, Builder, Cast, Concat, Cumulative, Reshape, Slice};
    use crate::passes::testing::{checked, graph, kinds};
    use kiln_types::TensorData;

    /// The exporter's search for packed sequences: `cumsum(diff(positions, prepend) != 1)`, compared with itself.
    fn packed(b: &mut Builder<'_>) -> ValueId {
        let s = Dim::symbol("s");
        let one = b.constant(TensorData::new(vec![1i64], [] as [usize; 0]));
        let mut add = |op: Op, inputs: &[ValueId]| b.add(op, inputs).unwrap();
        let range = |start: Dim, end: Dim| AxisRange { start, end, step: 1 };
        let row = || range(0.into(), 1.into());
        let positions = add(Op::Arange(Arange { start: 0.into(), end: s.clone(), step: 1 }), &[]);
        let positions = add(Op::Reshape(Reshape { dims: vec![1.into(), s.clone()] }), &[positions]);
        let first = add(Op::Slice(Slice { ranges: vec![row(), row()] }), &[positions]);
        let before = add(Op::Binary(BinaryOp::Sub), &[first, one]);
        let all = add(Op::Concat(Concat { axis: 1 }), &[before, positions]);
        let ends = &s + &Dim::constant(1);
        let left = add(Op::Slice(Slice { ranges: vec![row(), range(0.into(), s.clone())] }), &[all]);
        let right = add(Op::Slice(Slice { ranges: vec![row(), range(1.into(), ends)] }), &[all]);
        let steps = add(Op::Binary(BinaryOp::Sub), &[right, left]);
        let breaks = add(Op::Compare(CompareOp::NotEqual), &[steps, one]);
        let breaks = add(Op::Cast(Cast { to: DType::I64 }), &[breaks]);
        let sum =
            Op::Cumulative(Cumulative { op: CumulativeOp::Sum, axis: 1, exclusive: false, reverse: false });
        let sequence = add(sum, &[breaks]);
        let column = add(Op::Reshape(Reshape { dims: vec![s.clone(), 1.into()] }), &[sequence]);
        add(Op::Compare(CompareOp::Equal), &[column, sequence])
    }

    #[test]
    fn positions_that_only_count_leave_no_mask() {
        let g = graph(&["bool[s, s]"], |b, x| {
            let mask = packed(b);
            vec![b.add(Op::Binary(BinaryOp::And), &[mask, x[0]]).unwrap()]
        });
        let g = checked(g, &[("s", 5)]);
        assert_eq!(kinds(&g), [""; 0], "{g}");
        assert_eq!(g.root.outputs, g.inputs);
    }

    /// Positions behind a cache, as decoders count them: a size of an input added to numbers from 0.
    #[test]
    fn a_size_shifts_a_counter() {
        let g = graph(&["f32[past]", "i64[s]"], |b, x| {
            let (past, s) = (Dim::symbol("past"), Dim::symbol("s"));
            let positions = b.add(Op::Arange(Arange { start: 0.into(), end: s, step: 1 }), &[]).unwrap();
            let past = b.add(Op::HostTensor(HostTensor { values: vec![past], dims: vec![1] }), &[]).unwrap();
            let behind = b.add(Op::Binary(BinaryOp::Add), &[positions, past]).unwrap();
            vec![b.add(Op::Binary(BinaryOp::Mul), &[behind, x[1]]).unwrap()]
        });
        let g = checked(g, &[("past", 3), ("s", 5)]);
        assert_eq!(kinds(&g), ["Arange", "Binary(Mul)"], "{g}");
    }

    #[test]
    fn positions_are_not_negative() {
        let g = graph(&["bool[s]"], |b, x| {
            let positions =
                b.add(Op::Arange(Arange { start: 0.into(), end: Dim::symbol("s"), step: 1 }), &[]).unwrap();
            let zero = b.constant(TensorData::new(vec![0i64], [] as [usize; 0]));
            let all = b.add(Op::Compare(CompareOp::GreaterEqual), &[positions, zero]).unwrap();
            vec![b.add(Op::Binary(BinaryOp::And), &[all, x[0]]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[("s", 3)])), [""; 0]);
    }
}
