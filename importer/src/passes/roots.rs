//! Roots of sums of squares have a derivative of 0 where the sum is 0.
//!
//! A plain root is infinitely steep there, and makes NaN of whatever flows back through a vector of zeros. PyTorch's norms, which
//! exporters write as such roots (`ReduceL2`), are flat there. Comes late: what raises patterns and folds parameters reads roots.

use super::{Rewrite, Rule};
use crate::ir::{Op, Reduce, ValueId};
use kiln_types::{BinaryOp, ReduceOp, UnaryOp};

pub(super) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let sum = cx.unary(cx.output()?, UnaryOp::Sqrt)?;
    if !of_squares(cx, sum) {
        return None;
    }
    cx.replace(Op::RootOfSquares, vec![Some(sum)])?;
    Some("root of squares")
}

/// Whether a value is a sum or a mean of `x · x`.
fn of_squares(cx: &Rewrite<'_>, sum: ValueId) -> bool {
    let squares = cx.producer(sum).and_then(|node| match &node.op {
        Op::Reduce(Reduce { op: ReduceOp::Sum | ReduceOp::Mean, .. }) => {
            node.inputs.first().copied().flatten()
        }
        _ => None,
    });
    let factors = squares.and_then(|squares| cx.binary(squares, BinaryOp::Mul));
    factors.is_some_and(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter;
    use crate::ir::Builder;
    use crate::passes::testing::{assert_close, checked, constant, graph, kinds, optimized};
    use kiln_types::TensorData;

    fn norm(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let square = b.add(Op::Binary(BinaryOp::Mul), &[x, x]).unwrap();
        let sum = Op::Reduce(Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dims: true });
        let sum = b.add(sum, &[square]).unwrap();
        b.add(Op::Unary(UnaryOp::Sqrt), &[sum]).unwrap()
    }

    #[test]
    fn norms_are_masked_and_other_roots_stay() {
        let g = graph(&["f32[n, 3]"], |b, x| vec![norm(b, x[0])]);
        assert_eq!(kinds(&checked(g, &[("n", 2)])), ["Binary(Mul)", "Reduce", "RootOfSquares"]);
        let g = graph(&["f32[n, 3]"], |b, x| {
            let sum = Op::Reduce(Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dims: true });
            let sum = b.add(sum, &[x[0]]).unwrap();
            vec![b.add(Op::Unary(UnaryOp::Sqrt), &[sum]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[("n", 2)])), ["Reduce", "Unary(Sqrt)"]);
    }

    #[test]
    fn norms_are_what_they_were() {
        let g = graph(&["f32[4, 3]"], |b, x| vec![norm(b, x[0])]);
        let rows = [3.0, 0.0, 4.0, 0.0, -0.0, 0.0, f32::NAN, 0.0, 0.0, f32::INFINITY, 0.0, 0.0];
        let x = [TensorData::new(rows.to_vec(), [4, 3])];
        let before = interpreter::run(&g, &x).unwrap();
        assert_close(&before, &interpreter::run(&optimized(g), &x).unwrap(), "of special numbers");
    }

    #[test]
    fn norms_of_parameters_are_folded_before() {
        let g = graph(&["f32[2, 3]"], |b, x| {
            let weight = constant(b, Some("weight"), &[2, 3], &[0.5; 6]);
            let length = norm(b, weight);
            vec![b.add(Op::Binary(BinaryOp::Mul), &[x[0], length]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[])), ["Binary(Mul)"]);
    }
}
