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
        let (whole, sin) = factors(cx, turned)
            .into_iter()
            .flatten()
            .find_map(|(turned, sin)| rotated_half(cx, turned).map(|whole| (whole, sin)))?;
        let is_whole = |x: ValueId| whole == Part::all_of(cx, x) || Part::of(cx, x).as_ref() == Some(&whole);
        let (x, cos) = factors(cx, straight).into_iter().flatten().find(|&(x, _)| is_whole(x))?;
        Some([x, cos, sin])
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

/// The `x` of `concat(-x[half..], x[..half])` along the last axis, which may be a part of something itself.
fn rotated_half(cx: &Rewrite<'_>, id: ValueId) -> Option<Part> {
    let node = cx.producer(id)?;
    let (&Op::Concat(Concat { axis }), &[Some(second), Some(first)]) = (&node.op, node.inputs.as_slice())
    else {
        return None;
    };
    let last = axis + 1 == cx.ty(id).rank();
    let (mut first, second) = (Part::of(cx, first)?, Part::of(cx, cx.unary(second, UnaryOp::Neg)?)?);
    let (kept, moved) = (first.ranges.pop()?, second.ranges.split_last()?);
    let same = first.source == second.source && first.ranges == moved.1;
    let half = &kept.end - &kept.start;
    let halves = kept.end == moved.0.start && &moved.0.end - &moved.0.start == half;
    let end = moved.0.end.clone();
    first.ranges.push(AxisRange { end, ..kept });
    (last && same && halves && half != Dim::constant(0)).then_some(first)
}

/// A part of a value: a range of each axis, every element of it.
#[derive(PartialEq)]
struct Part {
    source: ValueId,
    ranges: Vec<AxisRange>,
}

impl Part {
    /// What a slice takes, if it leaves out nothing between.
    fn of(cx: &Rewrite<'_>, id: ValueId) -> Option<Self> {
        let node = cx.producer(id)?;
        let Op::Slice(Slice { ranges }) = &node.op else { return None };
        let source = node.inputs.first().copied().flatten()?;
        ranges.iter().all(|range| range.step == 1).then(|| Self { source, ranges: ranges.clone() })
    }

    /// All of a value.
    fn all_of(cx: &Rewrite<'_>, id: ValueId) -> Self {
        let whole = |end: &Dim| AxisRange { start: Dim::constant(0), end: end.clone(), step: 1 };
        Self { source: id, ranges: cx.ty(id).dims.iter().map(whole).collect() }
    }
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
    fn a_part_of_something_is_turned() {
        // Of five heads, the three in the middle are turned; with `false` what stays is that of other heads.
        let spelled = |same: bool| {
            graph(&["f32[b, 5, s, 8]", "f32[1, 1, s, 8]", "f32[1, 1, s, 8]"], |b, x| {
                let dims = b.graph.ty(x[0]).dims.clone();
                let mut cut = |heads: [i64; 2], [start, end]: [i64; 2]| {
                    let range =
                        |start: i64, end: i64| AxisRange { start: start.into(), end: end.into(), step: 1 };
                    let whole = |end: &Dim| AxisRange { start: 0.into(), end: end.clone(), step: 1 };
                    let ranges =
                        vec![whole(&dims[0]), range(heads[0], heads[1]), whole(&dims[2]), range(start, end)];
                    b.add(Op::Slice(Slice { ranges }), &[x[0]]).unwrap()
                };
                let (first, second) = (cut([1, 4], [0, 4]), cut([1, 4], [4, 8]));
                let straight = cut(if same { [1, 4] } else { [2, 5] }, [0, 8]);
                let minus = b.add(Op::Unary(UnaryOp::Neg), &[second]).unwrap();
                let turned = b.add(Op::Concat(Concat { axis: 3 }), &[minus, first]).unwrap();
                let mul = Op::Binary(BinaryOp::Mul);
                let turned = b.add(mul.clone(), &[turned, x[2]]).unwrap();
                let straight = b.add(mul, &[straight, x[1]]).unwrap();
                vec![b.add(Op::Binary(BinaryOp::Add), &[straight, turned]).unwrap()]
            })
        };
        assert_eq!(kinds(&optimized(spelled(true))), ["Slice", "Call"]);
        assert!(!kinds(&optimized(spelled(false))).contains(&"Call".to_owned()));
    }

    #[test]
    fn unequal_parts_are_no_rotation() {
        assert!(!kinds(&optimized(spelled(false, 3))).contains(&"Call".to_owned()));
    }
}
