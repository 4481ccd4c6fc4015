//! Softmax from exponentials, log-softmax from a logarithm.

use crate::ir::{LogSoftmax, Op, Softmax, ValueId};
use crate::passes::{Rewrite, Rule};
use kiln_types::{BinaryOp, ReduceOp, UnaryOp};

pub(in crate::passes) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op() {
        Op::Binary(BinaryOp::Div) => softmax(cx),
        Op::Unary(UnaryOp::Log) => {
            let softmax = cx.producer(cx.input(0)?)?;
            let (Op::Softmax(Softmax { axis }), inputs) = (softmax.op.clone(), softmax.inputs.clone()) else {
                return None;
            };
            cx.replace(Op::LogSoftmax(LogSoftmax { axis }), inputs)?;
            Some("log_softmax")
        }
        _ => None,
    }
}

/// `exp(x - max(x)) / sum(exp(x - max(x)))`, with or without the maximum.
fn softmax(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (exp, sum) = (cx.input(0)?, cx.input(1)?);
    let (summed, axes) = cx.kept_reduction(sum, ReduceOp::Sum)?;
    let &[axis] = axes.as_slice() else {
        return None;
    };
    if summed != exp {
        return None;
    }
    let argument = cx.unary(exp, UnaryOp::Exp)?;
    let x = shifted(cx, argument, axis).unwrap_or(argument);
    cx.replace(Op::Softmax(Softmax { axis }), vec![Some(x)])?;
    Some("softmax")
}

/// `x - max(x)`.
fn shifted(cx: &Rewrite<'_>, id: ValueId, axis: usize) -> Option<ValueId> {
    let (x, most) = cx.binary(id, BinaryOp::Sub)?;
    let (of, axes) = cx.kept_reduction(most, ReduceOp::Max)?;
    (of == x && axes == [axis]).then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{LogSoftmax, Reduce};
    use crate::passes::testing::{checked, graph, single};

    #[test]
    fn softmax_is_raised_with_and_without_its_maximum() {
        for with_maximum in [false, true] {
            let g = graph(&["f32[n, 7]"], |b, x| {
                let mut x = x[0];
                let reduce = |op| Op::Reduce(Reduce { op, axes: vec![1], keep_dims: true });
                if with_maximum {
                    let most = b.add(reduce(ReduceOp::Max), &[x]).unwrap();
                    x = b.add(Op::Binary(BinaryOp::Sub), &[x, most]).unwrap();
                }
                let e = b.add(Op::Unary(UnaryOp::Exp), &[x]).unwrap();
                let s = b.add(reduce(ReduceOp::Sum), &[e]).unwrap();
                let p = b.add(Op::Binary(BinaryOp::Div), &[e, s]).unwrap();
                vec![b.add(Op::Unary(UnaryOp::Log), &[p]).unwrap()]
            });
            assert_eq!(single(&checked(g, &[("n", 3)])).op, Op::LogSoftmax(LogSoftmax { axis: 1 }));
        }
    }
}
