//! Squared distances between rows: `Σ (x - y)²` over the last axis, where one axis of `x` and another of `y` have size 1, so that each row meets all others.

use crate::ir::{Dim, Op, Reduce, Reshape, Slice, TensorType, ValueId};
use crate::passes::matcher::{Factor, Polynomial, same};
use crate::passes::{Rewrite, Rule};
use kiln_types::{BinaryOp, ReduceOp};

pub(in crate::passes) const RULE: Rule = Rule { apply };

/// How far below the sum the difference may stand.
const DEPTH: usize = 2;

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op() {
        Op::Reduce(_) => all_at_once(cx),
        Op::Loop(_) => row_by_row(cx),
        _ => None,
    }
}

/// The operands of the difference whose squares these are.
fn difference(cx: &Rewrite<'_>, squares: ValueId) -> Option<(ValueId, ValueId)> {
    if !cx.ty(squares).dtype.is_float() {
        return None;
    }
    let is_square = |&of: &ValueId| {
        let wanted = Polynomial::from([(vec![Factor::Value(of); 2], 1.0)]);
        same(cx.ty(of).dtype, &cx.polynomial(squares, &[of]), &wanted)
    };
    cx.arguments(squares, DEPTH).into_iter().filter(is_square).find_map(|of| cx.binary(of, BinaryOp::Sub))
}

fn all_at_once(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let Op::Reduce(Reduce { op: ReduceOp::Sum, axes, keep_dims }) = cx.op() else {
        return None;
    };
    let (squares, keep_dims) = (cx.input(0)?, *keep_dims);
    let rank = cx.ty(squares).rank();
    if rank < 3 || *axes != [rank - 1] || !cx.used_once(squares) {
        return None;
    }
    let (a, b) = difference(cx, squares)?;
    // The axis of rows comes first in one of them.
    let (x, y) = match (spread(cx.ty(a)), spread(cx.ty(b))) {
        (Some(Spread::Last), Some(Spread::First)) => (a, b),
        (Some(Spread::First), Some(Spread::Last)) => (b, a),
        _ => return None,
    };
    let (of_x, of_y) = (&cx.ty(x).dims, &cx.ty(y).dims);
    if of_x[..rank - 3] != of_y[..rank - 3] || of_x[rank - 1] != of_y[rank - 1] {
        return None;
    }
    let [x, y] = [(x, rank - 2), (y, rank - 3)].map(|(rows, axis)| {
        let mut dims = cx.ty(rows).dims.clone();
        dims.remove(axis);
        cx.insert(Op::Reshape(Reshape { dims }), &[rows])
    });
    become_distances(cx, [x?, y?], keep_dims)
}

/// A loop over the rows of a matrix, of which each round leaves the distances of a row from all of another matrix: how scikit-learn's neighbours are exported.
fn row_by_row(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let Op::Loop(of) = cx.op() else {
        return None;
    };
    let (&[left], true) = (of.body.outputs.as_slice(), of.body.parameters.is_empty()) else {
        return None;
    };
    let (squares, axes) = cx.reduction(left, ReduceOp::Sum)?;
    let (a, b) = difference(cx, squares).filter(|_| cx.ty(squares).rank() == 2 && axes == [1])?;
    let is_outside =
        |value: ValueId| of.body.nodes.iter().all(|&id| !cx.graph().node(id).outputs.contains(&value));
    let (row, y) = if is_outside(a) { (b, a) } else { (a, b) };
    // A part whose dims a reshape only names again is that part.
    let mut part = cx.producer(row)?;
    while matches!(part.op, Op::Reshape(_)) {
        part = cx.producer(part.inputs.first().copied().flatten()?)?;
    }
    let (Op::Slice(Slice { ranges }), &[Some(x)]) = (&part.op, part.inputs.as_slice()) else {
        return None;
    };
    let (round, size) = (Dim::symbol(of.iteration.clone()), cx.ty(x).dims.get(1)?);
    let [rows, columns] = ranges.as_slice() else {
        return None;
    };
    let is_row = rows.step == 1 && rows.start == round && rows.end == &round + &Dim::constant(1);
    let is_whole = columns.step == 1 && columns.start.is(0) && columns.end == *size;
    let each = of.rounds(cx.graph()).is_some_and(|rounds| rounds == cx.ty(x).dims[0]);
    let fits = cx.ty(y).rank() == 2
        && cx.ty(y).dims[1] == *size
        && cx.ty(row).dims == [Dim::constant(1), size.clone()];
    let keep_dims = cx.ty(left).rank() == 2;
    let shown = cx.ty(left).dims.first() == cx.ty(y).dims.first()
        && cx.ty(left).dims.iter().skip(1).all(|dim| dim.is(1));
    if !(is_row && is_whole && each && fits && shown && is_outside(x) && is_outside(y)) {
        return None;
    }
    become_distances(cx, [x, y], keep_dims)
}

fn become_distances(cx: &mut Rewrite<'_>, rows: [ValueId; 2], keep_dims: bool) -> Option<&'static str> {
    let operands = rows.map(Some).to_vec();
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
    use crate::ir::{AxisRange, Builder, Graph};
    use crate::passes::testing::{checked, constant, graph, kinds};

    /// `Σ (x - y)²` of rows that are given these dims.
    fn distances(x: &[&str; 2], squared: fn(&mut Builder<'_>, ValueId) -> ValueId, keep_dims: bool) -> Graph {
        let g = graph(x, |b, x| {
            let difference = b.add(Op::Binary(BinaryOp::Sub), &[x[0], x[1]]).unwrap();
            let squares = squared(b, difference);
            let axes = vec![b.graph.value(squares).ty.rank() - 1];
            vec![b.add(Op::Reduce(Reduce { op: ReduceOp::Sum, axes, keep_dims }), &[squares]).unwrap()]
        });
        checked(g, &[("n", 3), ("m", 4)])
    }

    fn product(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        b.add(Op::Binary(BinaryOp::Mul), &[x, x]).unwrap()
    }

    fn power(b: &mut Builder<'_>, x: ValueId) -> ValueId {
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

    /// A loop over the rows of `x`, from the first or the second, of which each round leaves the distances from the rows of `y`.
    fn rounds(from: i64, keep_dims: bool) -> Graph {
        let g = graph(&["f32[6, 5]", "f32[n, 5]"], |b, x| {
            let open = b.open_loop(&[]);
            let round = Dim::symbol(open.iteration.clone());
            let start = &round + &Dim::constant(from);
            let end = &start + &Dim::constant(1);
            let whole = AxisRange { start: 0.into(), end: 5.into(), step: 1 };
            let ranges = vec![AxisRange { start, end, step: 1 }, whole];
            let row = b.add(Op::Slice(Slice { ranges }), &[x[0]]).unwrap();
            let difference = b.add(Op::Binary(BinaryOp::Sub), &[x[1], row]).unwrap();
            let squares = product(b, difference);
            let sum = Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dims };
            let left = b.add(Op::Reduce(sum), &[squares]).unwrap();
            let limits = (Some(Dim::constant(6 - from)), Dim::constant(1));
            b.close_loop(open, limits, vec![left]).unwrap()
        });
        checked(g, &[("n", 3)])
    }

    #[test]
    fn rows_may_come_round_by_round() {
        assert!(is_raised(&rounds(0, false)));
        assert!(is_raised(&rounds(0, true)));
        assert!(!is_raised(&rounds(1, false)));
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
