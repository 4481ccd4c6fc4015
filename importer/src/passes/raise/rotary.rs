//! Rotary position embeddings: `x * cos + rotate_half(x) * sin`, as most decoders spell them.

use crate::ir::{Arg, AxisRange, Call, Concat, Dim, Effect, Op, RuntimeCall, Slice, ValueId};
use crate::passes::{Rewrite, Rule};
use kiln_types::{BinaryOp, UnaryOp};

pub(in crate::passes) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    if *cx.op() != Op::Binary(BinaryOp::Add) {
        return None;
    }
    let output = cx.output()?;
    let (left, right) = (cx.input(0)?, cx.input(1)?);
    let found = [(left, right), (right, left)].into_iter().find_map(|(straight, turned)| {
        let (turned, sin) = factors(cx, turned)
            .into_iter()
            .flatten()
            .find_map(|(turned, sin)| rotated_half(cx, turned).map(|x| (x, sin)))?;
        let (_, cos) = factors(cx, straight).into_iter().flatten().find(|&(x, _)| x == turned)?;
        Some([turned, cos, sin])
    });
    let operands = found?;
    let ty = cx.ty(operands[0]).clone();
    let alike = operands.iter().all(|&id| cx.ty(id).rank() == ty.rank() && cx.ty(id).dtype == ty.dtype);
    if !alike || ty != *cx.ty(output) || !ty.dtype.is_float() {
        return None;
    }
    let call = Call::new("tensor::module::rotary", [0, 1, 2].map(Arg::Operand));
    let call = Op::Call(RuntimeCall { call, outputs: vec![ty], effect: Effect::Pure });
    cx.replace(call, operands.map(Some).to_vec())?;
    Some("rotary")
}

/// The factors of a product, in both orders.
fn factors(cx: &Rewrite<'_>, id: ValueId) -> Option<[(ValueId, ValueId); 2]> {
    let (a, b) = cx.binary(id, BinaryOp::Mul)?;
    Some([(a, b), (b, a)])
}

/// The `x` of `concat(-x[half..], x[..half])` along the last axis.
fn rotated_half(cx: &Rewrite<'_>, id: ValueId) -> Option<ValueId> {
    let node = cx.producer(id)?;
    let (&Op::Concat(Concat { axis }), &[Some(second), Some(first)]) = (&node.op, node.inputs.as_slice())
    else {
        return None;
    };
    let (first, kept) = part(cx, first, axis)?;
    let (second, moved) = part(cx, cx.unary(second, UnaryOp::Neg)?, axis)?;
    let dims = &cx.ty(first).dims;
    let (last, half) = (axis + 1 == dims.len(), kept.end.clone());
    let halves = kept.start.is(0) && moved.start == half && Some(&moved.end) == dims.get(axis);
    (last && halves && first == second && &half + &half == moved.end && half != Dim::constant(0))
        .then_some(first)
}

/// What a value is a part of, when the part is cut along one axis.
fn part(cx: &Rewrite<'_>, id: ValueId, axis: usize) -> Option<(ValueId, AxisRange)> {
    let node = cx.producer(id)?;
    let Op::Slice(Slice { ranges }) = &node.op else { return None };
    let x = node.inputs.first().copied().flatten()?;
    let whole = |(n, (range, dim)): (usize, (&AxisRange, &Dim))| {
        range.step == 1 && (n == axis || range.start.is(0) && range.end == *dim)
    };
    ranges.iter().zip(&cx.ty(x).dims).enumerate().all(whole).then(|| Some((x, ranges.get(axis)?.clone())))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Concat, Slice};
    use crate::passes::testing::{graph, kinds, optimized};

    fn spelled(swapped: bool, half: i64) -> crate::ir::Graph {
        graph(&["f32[b, 2, s, 8]", "f32[1, 1, s, 8]", "f32[1, 1, s, 8]"], |b, x| {
            let mut cut = |start: i64, end: i64| {
                let mut ranges: Vec<AxisRange> = b
                    .graph
                    .ty(x[0])
                    .dims
                    .iter()
                    .cloned()
                    .map(|end| AxisRange { start: 0.into(), end, step: 1 })
                    .collect();
                ranges[3] = AxisRange { start: start.into(), end: end.into(), step: 1 };
                b.add(Op::Slice(Slice { ranges }), &[x[0]]).unwrap()
            };
            let (first, second) = (cut(0, half), cut(half, 8));
            let minus = b.add(Op::Unary(UnaryOp::Neg), &[second]).unwrap();
            let turned = b.add(Op::Concat(Concat { axis: 3 }), &[minus, first]).unwrap();
            let mul = Op::Binary(BinaryOp::Mul);
            let turned = b.add(mul.clone(), &if swapped { [x[2], turned] } else { [turned, x[2]] }).unwrap();
            let straight = b.add(mul, &[x[0], x[1]]).unwrap();
            let terms = if swapped { [turned, straight] } else { [straight, turned] };
            vec![b.add(Op::Binary(BinaryOp::Add), &terms).unwrap()]
        })
    }

    #[test]
    fn both_orders_are_raised() {
        for swapped in [false, true] {
            assert_eq!(kinds(&optimized(spelled(swapped, 4))), ["Call"]);
        }
    }

    #[test]
    fn unequal_parts_are_no_rotation() {
        assert!(!kinds(&optimized(spelled(false, 3))).contains(&"Call".to_owned()));
    }
}
