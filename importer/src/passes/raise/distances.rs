//! Squared distances between rows: `Σ (x - y)²` over the last axis, where one axis of `x` and another of `y` have size 1, so that each row meets all others.

use crate::ir::{Dim, Op, Reduce, Reshape, TensorType, ValueId};
use crate::passes::matcher::{Factor, Polynomial, same};
use crate::passes::{Rewrite, Rule};
use kiln_types::{BinaryOp, ReduceOp};

pub(in crate::passes) const RULE: Rule = Rule { apply };

/// How far below the sum the difference may stand.
const DEPTH: usize = 2;

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let Op::Reduce(Reduce { op: ReduceOp::Sum, axes, keep_dims }) = cx.op().clone() else {
        return None;
    };
    let squares = cx.input(0).filter(|&squares| cx.ty(squares).dtype.is_float() && cx.used_once(squares))?;
    let rank = cx.ty(squares).rank();
    if rank < 3 || axes != [rank - 1] {
        return None;
    }
    let is_square = |&of: &ValueId| {
        let wanted = Polynomial::from([(vec![Factor::Value(of); 2], 1.0)]);
        same(cx.ty(of).dtype, &cx.polynomial(squares, &[of]), &wanted)
    };
    let arguments = cx.arguments(squares, DEPTH);
    let (a, b) = arguments.iter().filter(|of| is_square(of)).find_map(|&of| cx.binary(of, BinaryOp::Sub))?;
    // The axis of rows comes first in one of them.
    let (x, y) = match (spread(cx.ty(a)), spread(cx.ty(b))) {
        (Some(Spread::Last), Some(Spread::First)) => (a, b),
        (Some(Spread::First), Some(Spread::Last)) => (b, a),
        _ => return None,
    };
    if cx.ty(x).dims[..rank - 3] != cx.ty(y).dims[..rank - 3]
        || cx.ty(x).dims[rank - 1] != cx.ty(y).dims[rank - 1]
    {
        return None;
    }
    let [x, y] = [(x, rank - 2), (y, rank - 3)].map(|(rows, axis)| {
        let mut dims = cx.ty(rows).dims.clone();
        dims.remove(axis);
        cx.insert(Op::Reshape(Reshape { dims }), &[rows])
    });
    let operands = vec![Some(x?), Some(y?)];
    if keep_dims {
        let distances = cx.insert_optional(Op::SquaredDistances, operands)?;
        let mut dims = cx.ty(distances).dims.clone();
        dims.push(Dim::constant(1));
        cx.replace(Op::Reshape(Reshape { dims }), vec![Some(distances)])?;
    } else {
        cx.replace(Op::SquaredDistances, operands)?;
    }
    Some("distances of rows")
}

/// Which of the two axes before the last one of a tensor has size 1 alone.
enum Spread {
    First,
    Last,
}

fn spread(ty: &TensorType) -> Option<Spread> {
    let is_one = |dim: &Dim| dim.as_constant() == Some(1);
    match ty.dims.as_slice() {
        [.., first, last, _] => match (is_one(first), is_one(last)) {
            (true, false) => Some(Spread::First),
            (false, true) => Some(Spread::Last),
            (true, true) | (false, false) => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Graph;
    use crate::passes::testing::{checked, constant, graph, kinds};

    /// `Σ (x - y)²` of rows that are given these dims.
    fn distances(
        x: &[&str; 2],
        squared: fn(&mut crate::ir::Builder<'_>, ValueId) -> ValueId,
        keep_dims: bool,
    ) -> Graph {
        let g = graph(x, |b, x| {
            let difference = b.add(Op::Binary(BinaryOp::Sub), &[x[0], x[1]]).unwrap();
            let squares = squared(b, difference);
            let axes = vec![b.graph.value(squares).ty.rank() - 1];
            vec![b.add(Op::Reduce(Reduce { op: ReduceOp::Sum, axes, keep_dims }), &[squares]).unwrap()]
        });
        checked(g, &[("n", 3), ("m", 4)])
    }

    fn product(b: &mut crate::ir::Builder<'_>, x: ValueId) -> ValueId {
        b.add(Op::Binary(BinaryOp::Mul), &[x, x]).unwrap()
    }

    fn power(b: &mut crate::ir::Builder<'_>, x: ValueId) -> ValueId {
        let two = constant(b, None, &[], &[2.0]);
        b.add(Op::Binary(BinaryOp::Pow), &[x, two]).unwrap()
    }

    fn is_raised(g: &Graph) -> bool {
        kinds(g).iter().any(|kind| kind == "SquaredDistances")
    }

    #[test]
    fn each_row_meets_all_others() {
        assert!(is_raised(&distances(&["f32[n, 1, 5]", "f32[1, m, 5]"], product, false)));
        assert!(is_raised(&distances(&["f32[1, m, 5]", "f32[n, 1, 5]"], power, true)));
        assert!(is_raised(&distances(&["f32[2, n, 1, 5]", "f32[2, 1, m, 5]"], product, false)));
    }

    #[test]
    fn other_differences_are_left() {
        // Rows of the same number, a row for all batches, and one number for all of a row.
        for operands in [
            ["f32[n, m, 5]", "f32[n, m, 5]"],
            ["f32[n, 1, 5]", "f32[n, m, 5]"],
            ["f32[2, n, 1, 5]", "f32[1, 1, m, 5]"],
            ["f32[n, 1, 5]", "f32[1, m, 1]"],
            ["f32[1, 1, 5]", "f32[1, m, 5]"],
        ] {
            assert!(!is_raised(&distances(&operands, product, false)), "{operands:?}");
        }
    }
}
