//! Logic with an operand that is true, or false, everywhere.

use crate::ir::{Expand, Fill, Op, ValueId};
use crate::passes::Rewrite;
use kiln_types::{BinaryOp, CompareOp, DType, Scalar, UnaryOp};

/// The operand that is not known, and what the other one is.
fn known_side(cx: &Rewrite<'_>) -> Option<(ValueId, bool)> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if !cx.ty(a).dtype.is_bool() {
        return None;
    }
    let (x, value) = cx.uniform(b).map(|value| (a, value)).or_else(|| Some((b, cx.uniform(a)?)))?;
    Some((x, value != 0.0))
}

/// `x && false`, `x || true`, `x ^ true`.
pub(super) fn decided(cx: &mut Rewrite<'_>, op: BinaryOp) -> Option<&'static str> {
    let (x, known) = known_side(cx)?;
    let dims = cx.ty(cx.output()?).dims.clone();
    match (op, known) {
        (BinaryOp::And, false) | (BinaryOp::Or, true) => {
            let value = Scalar::Bool(op == BinaryOp::Or);
            cx.replace(Op::Fill(Fill { dims, value, dtype: DType::Bool }), Vec::new())?;
        }
        (BinaryOp::Xor, flips) => same_or_not(cx, x, flips)?,
        _ => return None,
    }
    Some("decided truth")
}

/// `x == true` and its like.
pub(super) fn compared(cx: &mut Rewrite<'_>, op: CompareOp) -> Option<&'static str> {
    if !matches!(op, CompareOp::Equal | CompareOp::NotEqual) {
        return None;
    }
    let (x, known) = known_side(cx)?;
    same_or_not(cx, x, known != (op == CompareOp::Equal))?;
    Some("comparison of truth")
}

/// The node yields an operand, or its opposite.
fn same_or_not(cx: &mut Rewrite<'_>, x: ValueId, opposite: bool) -> Option<()> {
    let dims = cx.ty(cx.output()?).dims.clone();
    let x = match &cx.ty(x).dims {
        own if *own == dims => x,
        own if own.len() == dims.len() => cx.insert(Op::Expand(Expand { dims }), &[x])?,
        _ => return None,
    };
    if opposite { cx.replace(Op::Unary(UnaryOp::Not), vec![Some(x)]) } else { cx.redirect(x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::{checked, graph, kinds};

    #[test]
    fn truths_are_not_compared() {
        let ops = [
            Op::Compare(CompareOp::Equal),
            Op::Compare(CompareOp::NotEqual),
            Op::Binary(BinaryOp::And),
            Op::Binary(BinaryOp::Or),
            Op::Binary(BinaryOp::Xor),
        ];
        for (op, value) in ops.iter().flat_map(|op| [(op, false), (op, true)]) {
            let g = graph(&["bool[n, 2]"], |b, x| {
                let number = b.constant(kiln_types::TensorData::new(vec![value], [1, 1]));
                vec![b.add(op.clone(), &[number, x[0]]).unwrap()]
            });
            let g = checked(g, &[("n", 3)]);
            let left = kinds(&g);
            let simple = left.iter().all(|kind| matches!(kind.as_str(), "Unary(Not)" | "Fill"));
            assert!(simple, "{op:?} {value}: {left:?}");
        }
    }
}
