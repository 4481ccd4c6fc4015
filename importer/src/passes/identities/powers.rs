//! Powers that are cheaper otherwise.

use crate::ir::{Cast, Op, Reduce, ValueId};
use crate::passes::Rewrite;
use kiln_types::{Activation, BinaryOp, ReduceOp, UnaryOp};

/// How many operations back the sign of an operand is looked for.
const DEPTH: usize = 5;

pub(super) fn power(cx: &mut Rewrite<'_>, op: BinaryOp) -> Option<&'static str> {
    let (x, exponent) = (cx.input(0)?, cx.input(1)?);
    if op != BinaryOp::Pow || !cx.ty(x).dtype.is_float() {
        return None;
    }
    let exponent = cx.uniform(exponent)?;
    if exponent == 2.0 {
        cx.replace(Op::Binary(BinaryOp::Mul), vec![Some(x), Some(x)])?;
    } else if exponent == -1.0 {
        cx.replace(Op::Unary(UnaryOp::Recip), vec![Some(x)])?;
    } else if exponent.abs() == 0.5 && (is_of_integers(cx, x) || is_not_negative(cx, x, DEPTH)) {
        // The power of -0 is 0 and that of -inf is infinite, whereas their roots are -0 and NaN (IEEE 754, 9.2.1).
        if exponent > 0.0 {
            cx.replace(Op::Unary(UnaryOp::Sqrt), vec![Some(x)])?;
        } else {
            let root = cx.insert(Op::Unary(UnaryOp::Sqrt), &[x])?;
            cx.replace(Op::Unary(UnaryOp::Recip), vec![Some(root)])?;
        }
    } else {
        return None;
    }
    Some("power")
}

/// Whether integers became these floats, none of which is -0 or infinite.
fn is_of_integers(cx: &Rewrite<'_>, x: ValueId) -> bool {
    let source = cx.producer(x).filter(|node| matches!(node.op, Op::Cast(_)));
    let source = source.and_then(|node| node.inputs.first().copied().flatten());
    source.is_some_and(|source| cx.ty(source).dtype.is_int())
}

/// Whether each element is +0, more, or no number; -0 is not.
fn is_not_negative(cx: &Rewrite<'_>, x: ValueId, depth: usize) -> bool {
    if let Some(number) = cx.uniform(x) {
        return number.is_sign_positive();
    }
    let (Some(node), Some(depth)) = (cx.producer(x), depth.checked_sub(1)) else {
        return false;
    };
    let operand = |n: usize| node.inputs.get(n).copied().flatten();
    let is = |n: usize| operand(n).is_some_and(|id| is_not_negative(cx, id, depth));
    match &node.op {
        Op::Unary(UnaryOp::Abs | UnaryOp::Exp) | Op::Activation(Activation::Sigmoid) => true,
        Op::Binary(BinaryOp::Mul) if operand(0) == operand(1) => true,
        Op::Binary(BinaryOp::Add | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Min) => is(0) && is(1),
        // A zero on one side may be -0 on the other.
        Op::Binary(BinaryOp::Max) => is(0) && is(1) || positive(cx, operand(0)) || positive(cx, operand(1)),
        Op::Clamp(clamp) => clamp.min.is_some_and(|min| min.to_f64() > 0.0),
        Op::Binary(BinaryOp::Pow)
        | Op::Unary(UnaryOp::Sqrt | UnaryOp::Recip)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Expand(_)
        | Op::Slice(_) => is(0),
        Op::Reduce(Reduce { op, .. }) => match op {
            ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod | ReduceOp::Min => is(0),
            // That of nothing is -inf.
            ReduceOp::Max | ReduceOp::Any | ReduceOp::All => false,
        },
        Op::Cast(Cast { .. }) => operand(0).is_some_and(|id| cx.ty(id).dtype.is_float()) && is(0),
        _ => false,
    }
}

/// Whether a value is one number above 0.
fn positive(cx: &Rewrite<'_>, x: Option<ValueId>) -> bool {
    x.and_then(|x| cx.uniform(x)).is_some_and(|number| number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Builder;
    use crate::passes::testing::{checked, constant, graph, kinds};

    #[test]
    fn roots_replace_powers_where_they_are_equal() {
        type Make = fn(&mut Builder<'_>, ValueId) -> ValueId;
        struct Case {
            of: Make,
            exponent: f32,
            expected: &'static [&'static str],
        }
        let square: Make = |b, x| b.add(Op::Binary(BinaryOp::Mul), &[x, x]).unwrap();
        let shifted: Make = |b, x| {
            let square = b.add(Op::Binary(BinaryOp::Mul), &[x, x]).unwrap();
            let epsilon = constant(b, None, &[], &[1e-5]);
            b.add(Op::Binary(BinaryOp::Add), &[square, epsilon]).unwrap()
        };
        let lowered: Make = |b, x| {
            let square = b.add(Op::Binary(BinaryOp::Mul), &[x, x]).unwrap();
            let below = constant(b, None, &[], &[-1e-5]);
            b.add(Op::Binary(BinaryOp::Add), &[square, below]).unwrap()
        };
        let cases = [
            Case { of: |_, x| x, exponent: 0.5, expected: &["Binary(Pow)"] },
            Case { of: |_, x| x, exponent: -0.5, expected: &["Binary(Pow)"] },
            Case { of: square, exponent: 0.5, expected: &["Binary(Mul)", "Unary(Sqrt)"] },
            Case { of: shifted, exponent: 0.5, expected: &["Elementwise"] },
            Case { of: lowered, exponent: 0.5, expected: &["Elementwise"] },
        ];
        for Case { of, exponent, expected } in cases {
            let g = graph(&["f32[n, 3]"], |b, x| {
                let of = of(b, x[0]);
                let exponent = constant(b, None, &[], &[exponent]);
                vec![b.add(Op::Binary(BinaryOp::Pow), &[of, exponent]).unwrap()]
            });
            let g = checked(g, &[("n", 4)]);
            assert_eq!(kinds(&g), expected, "{exponent} {g}");
        }
    }
}
