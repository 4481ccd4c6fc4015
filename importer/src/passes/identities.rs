//! Operations that do nothing, or less than they say.

mod layout;
mod powers;
mod rows;
mod truth;

use super::{Rewrite, Rule};
use crate::ir::{
    Cast, Clamp, Concat, Dim, Expand, Fill, Op, Pad, Reduce, Repeat, Scatter, Slice, Take, ValueId,
};
use kiln_types::{Activation, BinaryOp, CompareOp, DType, Scalar, UnaryOp};

pub(super) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op().clone() {
        Op::Binary(op) => neutral(cx, op)
            .or_else(|| truth::decided(cx, op))
            .or_else(|| powers::power(cx, op))
            .or_else(|| bound(cx, op))
            .or_else(|| layout::mean(cx, op))
            .or_else(|| broadcast_operand(cx))
            .or_else(|| before_expansion(cx)),
        Op::Compare(op) => {
            truth::compared(cx, op).or_else(|| broadcast_operand(cx)).or_else(|| before_expansion(cx))
        }
        Op::Where => choice(cx).or_else(|| broadcast_operand(cx)).or_else(|| before_expansion(cx)),
        Op::Unary(op) => inverse(cx, op).or_else(|| before_expansion(cx)),
        Op::Activation(Activation::Relu) => {
            clamp_of_clamp(cx, Some(Scalar::Float(0.0)), None).or_else(|| before_expansion(cx))
        }
        Op::Activation(_) => before_expansion(cx),
        Op::Clamp(Clamp { min, max }) => clamp(cx, min, max).or_else(|| before_expansion(cx)),
        Op::Cast(Cast { to }) => {
            cast(cx, to).or_else(|| rows::in_list(cx, to)).or_else(|| before_expansion(cx))
        }
        Op::Expand(Expand { dims }) => layout::expand(cx, &dims),
        Op::Slice(Slice { ranges }) => layout::slice(cx, &ranges),
        Op::Concat(Concat { axis }) => layout::concat(cx, axis),
        Op::Pad(Pad { padding, .. }) => layout::pad(cx, &padding),
        Op::Repeat(Repeat { times }) => layout::repeat(cx, &times),
        Op::Reduce(Reduce { op, axes, .. }) => layout::reduce(cx, op, &axes),
        Op::Dropout(_) if !cx.options.trainable => same(cx, "dropout in inference"),
        Op::Take(Take { axis, .. }) => rows::in_one_value(cx).or_else(|| layout::take(cx, axis)),
        Op::Gather(_) => rows::in_one_value(cx),
        Op::Scatter(Scatter { axis, op }) => rows::assigned(cx, axis, op),
        Op::Conv(_) => {
            layout::padded_conv(cx).or_else(|| layout::conv_of_lines(cx)).or_else(|| layout::no_parameter(cx))
        }
        Op::ConvTranspose(_) | Op::Linear(_) | Op::LayerNorm(_) | Op::GroupNorm(_) => {
            layout::no_parameter(cx)
        }
        Op::Pool(_) => layout::padded_max_pool(cx),
        Op::Rnn(_) => layout::zero_state(cx),
        _ => None,
    }
}

/// The node yields its first operand.
fn same(cx: &mut Rewrite<'_>, what: &'static str) -> Option<&'static str> {
    let x = cx.input(0)?;
    cx.redirect(x)?;
    Some(what)
}

/// `x + 0`, `x * 1` and their like.
fn neutral(cx: &mut Rewrite<'_>, op: BinaryOp) -> Option<&'static str> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (neutral, commutes) = match op {
        BinaryOp::Add => (0.0, true),
        BinaryOp::Sub => (0.0, false),
        BinaryOp::Mul => (1.0, true),
        BinaryOp::Div | BinaryOp::Pow => (1.0, false),
        BinaryOp::And => (1.0, true),
        BinaryOp::Or => (0.0, true),
        _ => return None,
    };
    let (right, left) = (cx.uniform(b) == Some(neutral), commutes && cx.uniform(a) == Some(neutral));
    if right && cx.redirect(a).is_some() || left && cx.redirect(b).is_some() {
        return Some("neutral operand");
    }
    // A neutral operand that is larger spreads the other one out.
    let dims = cx.ty(cx.output()?).dims.clone();
    let kept =
        [(right, a), (left, b)].into_iter().find(|&(neutral, x)| neutral && cx.ty(x).rank() == dims.len());
    if let Some((_, x)) = kept {
        cx.replace(Op::Expand(Expand { dims }), vec![Some(x)])?;
        return Some("neutral operand");
    }
    if op == BinaryOp::Div && cx.uniform(a) == Some(1.0) && cx.ty(b).dtype.is_float() {
        cx.replace(Op::Unary(UnaryOp::Recip), vec![Some(b)])?;
        return Some("reciprocal");
    }
    None
}

/// `max(x, number)` and `min(x, number)`.
fn bound(cx: &mut Rewrite<'_>, op: BinaryOp) -> Option<&'static str> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if !matches!(op, BinaryOp::Max | BinaryOp::Min) {
        return None;
    }
    let (x, number) = if let Some(number) = cx.uniform(b) { (a, number) } else { (b, cx.uniform(a)?) };
    let dtype = cx.ty(x).dtype;
    // Where both are equal an operand has half the gradient, a bound leaves none.
    if cx.options.trainable && dtype.is_float() {
        return None;
    }
    // A bound that is no number is ignored, where the operation yields NaN.
    if number.is_nan() {
        return None;
    }
    // Wide integers do not pass through f64 unharmed.
    if !dtype.is_float() && number.abs() > 2f64.powi(52) {
        return None;
    }
    let bound = Some(if dtype.is_float() { Scalar::Float(number) } else { Scalar::Int(number as i64) });
    let (min, max) = if op == BinaryOp::Max { (bound, None) } else { (None, bound) };
    if cx.output().map(|output| cx.ty(output).dims.clone()) != Some(cx.ty(x).dims.clone()) {
        return None;
    }
    cx.replace(Op::Clamp(Clamp { min, max }), vec![Some(x)])?;
    Some("bound")
}

/// `clamp` of `clamp`, and ReLU.
fn clamp(cx: &mut Rewrite<'_>, min: Option<Scalar>, max: Option<Scalar>) -> Option<&'static str> {
    let x = cx.input(0)?;
    let number = |bound: Option<Scalar>| bound.map(Scalar::to_f64);
    let low = number(min).filter(|&low| low > f64::NEG_INFINITY);
    let high = number(max).filter(|&high| high < f64::INFINITY);
    if cx.ty(x).dtype.is_float() && low == Some(0.0) && high.is_none() {
        cx.replace(Op::Activation(Activation::Relu), vec![Some(x)])?;
        return Some("relu");
    }
    if cx.ty(x).dtype.is_float() && low.is_none() && high.is_none() {
        return same(cx, "bound of infinity");
    }
    clamp_of_clamp(cx, min, max)
}

/// Bounds of what has bounds: one gives one of them, the other the other.
fn clamp_of_clamp(cx: &mut Rewrite<'_>, min: Option<Scalar>, max: Option<Scalar>) -> Option<&'static str> {
    let x = cx.input(0)?;
    let number = |bound: Option<Scalar>| bound.map(Scalar::to_f64);
    let inner = cx.producer(x)?;
    let source = inner.inputs.first().copied().flatten()?;
    let (inner_min, inner_max) = match &inner.op {
        Op::Clamp(Clamp { min, max }) => (*min, *max),
        Op::Activation(Activation::Relu) => (Some(Scalar::Float(0.0)), None),
        _ => return None,
    };
    let merged = match ((inner_min, inner_max), (min, max)) {
        ((low, None), (None, high)) | ((None, high), (low, None)) => (low, high),
        _ => return None,
    };
    let ordered = number(merged.0).zip(number(merged.1)).is_none_or(|(low, high)| low <= high);
    if !ordered || !cx.used_once(x) {
        return None;
    }
    cx.replace(Op::Clamp(Clamp { min: merged.0, max: merged.1 }), vec![Some(source)])?;
    Some("clamp of clamp")
}

fn choice(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (condition, a, b) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let chosen = match cx.uniform(condition) {
        Some(0.0) => b,
        Some(_) => a,
        None if a == b => a,
        None => return None,
    };
    if cx.redirect(chosen).is_none() {
        // The others spread it out.
        let dims = cx.ty(cx.output()?).dims.clone();
        if cx.ty(chosen).rank() == dims.len() {
            cx.replace(Op::Expand(Expand { dims }), vec![Some(chosen)])?;
        } else {
            let (value, dtype) = (literal(cx, chosen)?, cx.ty(chosen).dtype);
            cx.replace(Op::Fill(Fill { dims, value, dtype }), Vec::new())?;
        }
    }
    Some("decided choice")
}

/// Two operations of which one undoes the other.
fn inverse(cx: &mut Rewrite<'_>, op: UnaryOp) -> Option<&'static str> {
    let x = cx.input(0)?;
    if matches!(op, UnaryOp::Not | UnaryOp::Neg | UnaryOp::BitwiseNot)
        && let Some(source) = cx.unary(x, op)
    {
        cx.redirect(source)?;
        return Some("inverse of inverse");
    }
    let producer = cx.producer(x)?;
    let Op::Compare(compare) = producer.op else {
        return None;
    };
    let inputs = producer.inputs.clone();
    let float = cx.ty(inputs.first().copied().flatten()?).dtype.is_float();
    // Of NaN, neither `<` nor `>=` holds.
    let of_nan = matches!(compare, CompareOp::Equal | CompareOp::NotEqual);
    if op != UnaryOp::Not || !cx.used_once(x) || float && !of_nan {
        return None;
    }
    let opposite = compare.opposite();
    cx.replace(Op::Compare(opposite), inputs)?;
    Some("not of comparison")
}

fn cast(cx: &mut Rewrite<'_>, to: DType) -> Option<&'static str> {
    let x = cx.input(0)?;
    if cx.ty(x).dtype == to {
        return same(cx, "cast to itself");
    }
    let inner = cx.producer(x)?;
    let source = inner.inputs.first().copied().flatten()?;
    if !matches!(inner.op, Op::Cast(_)) || !holds_all(cx.ty(x).dtype, cx.ty(source).dtype) {
        return None;
    }
    if cx.ty(source).dtype == to {
        cx.redirect(source)?;
    } else {
        cx.replace(Op::Cast(Cast { to }), vec![Some(source)])?;
    }
    Some("cast of cast")
}

/// Whether every value of `narrow` is one of `wide`.
pub(super) fn holds_all(wide: DType, narrow: DType) -> bool {
    if let (Some((least, most)), Some(range)) = (narrow.integers(), wide.integers()) {
        return range.0 <= least && most <= range.1;
    }
    narrow.is_bool() || (narrow.is_float() && wide.is_float() && wide.size() > narrow.size())
}

/// An operation on a value that is spread out, and else on numbers: computed before it is.
fn before_expansion(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let mut inputs = cx.node().inputs.clone();
    let is_number = |id: ValueId| cx.ty(id).rank() == 0 && cx.constant(id).is_some();
    let mut spread = inputs.iter_mut().flatten().filter(|id| !is_number(**id));
    let (one, None) = (spread.next()?, spread.next()) else {
        return None;
    };
    let node = cx.producer(*one)?;
    let Op::Expand(Expand { dims }) = node.op.clone() else {
        return None;
    };
    *one = node.inputs.first().copied().flatten()?;
    let inputs: Vec<ValueId> = inputs.into_iter().collect::<Option<_>>()?;
    let op = cx.op().clone();
    let small = cx.insert(op, &inputs)?;
    cx.replace(Op::Expand(Expand { dims }), vec![Some(small)])?;
    Some("expansion after elementwise")
}

/// Operands of a broadcasting operation need not be spread out before, and one number is a literal.
fn broadcast_operand(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let inputs = cx.node().inputs.clone();
    let wanted = cx.ty(cx.output()?).dims.clone();
    for (n, &input) in inputs.iter().enumerate() {
        let id = input?;
        let others: Vec<ValueId> =
            inputs.iter().enumerate().filter(|&(i, _)| i != n).filter_map(|(_, &id)| id).collect();
        let covered = |dims: Option<&[Dim]>| {
            let axis = |i: usize| {
                let other = others.iter().any(|&id| cx.ty(id).dims.get(i) == wanted.get(i));
                other || dims.is_some_and(|dims| dims.get(i) == wanted.get(i))
            };
            (0..wanted.len()).all(axis)
        };
        // Masks have the rank of what they choose from, and bool tensors meet no number.
        let (rank, dtype) = (cx.ty(id).rank(), cx.ty(id).dtype);
        if rank > 0
            && !dtype.is_bool()
            && covered(None)
            && let Some(value) = literal(cx, id)
        {
            let data = crate::data::fill(&[], value, dtype)?;
            let scalar = cx.add_constant(None, data);
            return swap(cx, &inputs, n, scalar, "number as a literal");
        }
        if let Some(node) = cx.producer(id)
            && let Op::Expand(_) = node.op
            && let Some(source) = node.inputs.first().copied().flatten()
            && covered(Some(&cx.ty(source).dims))
        {
            return swap(cx, &inputs, n, source, "expansion of an operand");
        }
    }
    None
}

/// The one value of a constant or filled tensor.
fn literal(cx: &Rewrite<'_>, id: ValueId) -> Option<Scalar> {
    if cx.constant(id).is_some() {
        return cx.graph().number(id);
    }
    match cx.producer(id)?.op {
        Op::Fill(Fill { value, .. }) => Some(value),
        _ => None,
    }
}

fn swap(
    cx: &mut Rewrite<'_>,
    inputs: &[Option<ValueId>],
    n: usize,
    to: ValueId,
    what: &'static str,
) -> Option<&'static str> {
    let mut inputs = inputs.to_vec();
    *inputs.get_mut(n)? = Some(to);
    let (op, origin) = (cx.op().clone(), cx.node().origin.clone());
    cx.replace_as(op, inputs, Some(origin))?;
    Some(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{AxisRange, Permute, Pool, ScopeEntry};
    use crate::passes::testing::{checked, constant, graph, kinds, optimized};
    use kiln_types::{PadMode, PoolOp, PoolOptions};

    #[test]
    fn what_a_known_condition_chooses_is_spread_out() {
        struct Case {
            /// Dims of the side that is chosen; `None` is a number.
            chosen: Option<&'static str>,
            expected: &'static str,
        }
        let cases = [
            Case { chosen: None, expected: "Fill" },
            Case { chosen: Some("f32[1, m]"), expected: "Expand" },
            Case { chosen: Some("f32[n, 1]"), expected: "Expand" },
        ];
        for (Case { chosen, expected }, value) in cases.iter().flat_map(|case| [(case, false), (case, true)])
        {
            let g = graph(&["f32[n, m]", chosen.unwrap_or("f32[1]")], |b, x| {
                let (dims, value) = (b.graph.ty(x[0]).dims.clone(), Scalar::Bool(value));
                let condition = b.add(Op::Fill(Fill { dims, value, dtype: DType::Bool }), &[]).unwrap();
                let side = if chosen.is_some() { x[1] } else { constant(b, None, &[], &[0.5]) };
                let sides = if value == Scalar::Bool(true) { [side, x[0]] } else { [x[0], side] };
                vec![b.add(Op::Where, &[condition, sides[0], sides[1]]).unwrap()]
            });
            assert_eq!(kinds(&checked(g, &[("n", 2), ("m", 3)])), [*expected], "{chosen:?} {value}");
        }
    }

    #[test]
    fn slices_of_what_was_joined_read_its_parts() {
        struct Case {
            range: [Dim; 2],
            expected: &'static [&'static str],
        }
        let after = |n: i64| &Dim::symbol("n") + &Dim::from(n);
        let cases = [
            Case { range: [0.into(), 3.into()], expected: &[] },
            Case { range: [3.into(), after(3)], expected: &[] },
            Case { range: [4.into(), after(3)], expected: &["Slice"] },
            Case { range: [after(4), after(5)], expected: &["Slice"] },
            Case { range: [2.into(), 4.into()], expected: &["Concat", "Slice"] },
        ];
        for Case { range: [start, end], expected } in cases {
            let g = graph(&["f32[2, 3]", "f32[2, n]", "f32[2, 2]"], |b, x| {
                let joined = b.add(Op::Concat(Concat { axis: 1 }), x).unwrap();
                let rows = AxisRange { start: 0.into(), end: 2.into(), step: 1 };
                let columns = AxisRange { start: start.clone(), end: end.clone(), step: 1 };
                let slice = Op::Slice(Slice { ranges: vec![rows, columns] });
                vec![b.add(slice, &[joined]).unwrap()]
            });
            assert_eq!(kinds(&checked(g, &[("n", 4)])), expected, "{start}..{end}");
        }
    }

    #[test]
    fn what_another_module_joined_is_sliced() {
        let g = graph(&["f32[2, 3]", "f32[2, 3]"], |b, x| {
            let module = |path: &str| vec![ScopeEntry { path: path.into(), class: "Layer".into() }];
            b.origin.scope = module("embeddings");
            let joined = b.add(Op::Concat(Concat { axis: 0 }), x).unwrap();
            b.origin.scope = module("layers.0");
            let range = |start: i64, end: i64| AxisRange { start: start.into(), end: end.into(), step: 1 };
            let slice = Op::Slice(Slice { ranges: vec![range(2, 4), range(0, 3)] });
            vec![b.add(slice, &[joined]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[])), ["Concat", "Slice"]);
    }

    #[test]
    fn slices_of_what_was_joined_and_turned_read_its_parts() {
        let g = graph(&["f32[2, n, 1]", "f32[2, n, 1]"], |b, x| {
            let joined = b.add(Op::Concat(Concat { axis: 2 }), x).unwrap();
            let turned = b.add(Op::Permute(Permute { axes: vec![0, 2, 1] }), &[joined]).unwrap();
            let range = |start: i64, end: Dim| AxisRange { start: start.into(), end, step: 1 };
            let ranges = vec![range(0, 2.into()), range(1, 2.into()), range(0, Dim::symbol("n"))];
            vec![b.add(Op::Slice(Slice { ranges }), &[turned]).unwrap()]
        });
        let g = checked(g, &[("n", 4)]);
        assert!(!kinds(&g).contains(&"Concat".to_owned()), "{g}");
    }

    #[test]
    fn casts_that_lose_nothing_go() {
        // A nibble of -1 is no byte without a sign.
        for (wide, expected) in [
            (DType::U8, vec!["Cast", "Cast"]),
            (DType::U32, vec!["Cast", "Cast"]),
            (DType::I8, vec!["Cast"]),
            (DType::I64, vec!["Cast"]),
        ] {
            let g = graph(&["i4[2, 3]"], |b, x| {
                let between = b.add(Op::Cast(Cast { to: wide }), &[x[0]]).unwrap();
                vec![b.add(Op::Cast(Cast { to: DType::I32 }), &[between]).unwrap()]
            });
            assert_eq!(kinds(&optimized(g)), expected, "{wide}");
        }
    }

    #[test]
    fn an_upper_bound_before_relu_makes_two_bounds() {
        for (high, expected) in [(1.0, vec!["Clamp"]), (-1.0, vec!["Clamp", "Activation"])] {
            let g = graph(&["f32[n, 3]"], |b, x| {
                let max = Some(Scalar::Float(high));
                let below = b.add(Op::Clamp(Clamp { min: None, max }), &[x[0]]).unwrap();
                vec![b.add(Op::Activation(Activation::Relu), &[below]).unwrap()]
            });
            assert_eq!(kinds(&checked(g, &[("n", 4)])), expected);
        }
    }

    #[test]
    fn zeros_around_numbers_that_are_not_negative_are_padding_of_the_largest() {
        let pooled = |bounded: bool, kernel: usize| {
            let g = graph(&["f32[n, 1, 4, 5]"], |b, x| {
                let x =
                    if bounded { b.add(Op::Activation(Activation::Relu), &[x[0]]).unwrap() } else { x[0] };
                let pair = |size: i64| (size.into(), size.into());
                let padding = vec![pair(0), pair(0), pair(1), pair(1)];
                let pad = Pad { padding, mode: PadMode::Constant, value: Scalar::Float(0.0) };
                let x = b.add(Op::Pad(pad), &[x]).unwrap();
                let options = PoolOptions::new([kernel; 2], [2, 2], [0, 0], [1, 1], false);
                vec![b.add(Op::Pool(Pool { op: PoolOp::Max, options }), &[x]).unwrap()]
            });
            kinds(&checked(g, &[("n", 2)]))
        };
        assert_eq!(pooled(true, 3), ["Activation", "Pool"]);
        assert_eq!(pooled(false, 3), ["Pad", "Pool"]);
        // A window of nothing but padding.
        assert_eq!(pooled(true, 1), ["Activation", "Pad", "Pool"]);
    }

    #[test]
    fn a_mask_is_no_literal() {
        // A parameter is no number that could fill the result.
        let g = graph(&["f32[n, 3]"], |b, x| {
            let (dims, value) = (b.graph.ty(x[0]).dims.clone(), Scalar::Bool(true));
            let condition = b.add(Op::Fill(Fill { dims, value, dtype: DType::Bool }), &[]).unwrap();
            let side = constant(b, Some("scale"), &[], &[0.5]);
            vec![b.add(Op::Where, &[condition, side, x[0]]).unwrap()]
        });
        let g = checked(g, &[("n", 2)]);
        let masks = g.root.nodes.iter().map(|&id| g.node(id)).filter(|node| node.op == Op::Where);
        assert!(masks.filter_map(|node| node.inputs[0]).all(|mask| g.ty(mask).rank() == 2), "{g}");
    }
}
