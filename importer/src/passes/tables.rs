//! What is computed of elements of a table, element by element, is computed of the table.
//!
//! A tree leads to a leaf. What exporters compute of the number that it holds (how deep it lies, how many samples it had, a logarithm of
//! these) is known for every leaf while the model is compiled: a table again.

use super::{Rewrite, Rule};
use crate::ir::{Op, Provenance, Take, ValueId};
use kiln_types::TensorData;
use std::sync::Arc;

pub(super) const RULE: Rule = Rule { apply };

/// How many times as many bytes a table may have as those that it is made of: floats may be made of flags.
const GROWTH: usize = 4;

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let [table, taken] = match cx.op() {
        Op::Take(Take { axis: 0, .. }) => through(cx)?,
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Activation(_)
        | Op::Clamp(_)
        | Op::Compare(_)
        | Op::Where
        | Op::Cast(_) => elementwise(cx)?,
        _ => return None,
    };
    let node = cx.graph().producer(taken).map(|node| cx.graph().node(node).clone())?;
    let indices = *node.inputs.get(1)?;
    cx.replace(node.op, vec![Some(table), indices])?;
    Some("computed of a table")
}

/// A table with one axis, of which elements are taken: what is taken, the indices, and whether they may be negative.
struct Taken {
    table: ValueId,
    indices: ValueId,
    wrapped: bool,
}

/// How a value is taken out of a table that no checkpoint has and no training changes.
fn taken(cx: &Rewrite<'_>, id: ValueId) -> Option<Taken> {
    let node = cx.producer(id)?;
    let (&Op::Take(Take { axis: 0, wrapped }), &[Some(table), Some(indices)]) =
        (&node.op, node.inputs.as_slice())
    else {
        return None;
    };
    (cx.ty(table).rank() == 1 && is_fixed(cx, table)).then_some(Taken { table, indices, wrapped })
}

/// Whether a constant is known for good.
fn is_fixed(cx: &Rewrite<'_>, id: ValueId) -> bool {
    cx.constant(id).is_some_and(|constant| match &constant.provenance {
        None => true,
        Some(made) => is_only_exporters(made) && !cx.options.trainable,
    })
}

/// Whether no checkpoint has a constant, or any of what it was made of.
pub(super) fn is_only_exporters(made: &Provenance) -> bool {
    matches!(made, Provenance::Exporter { keys, .. } if keys.is_empty())
}

/// `table[other[i]]` as `(table[other])[i]`: the new table, and what was taken by `i`.
fn through(cx: &mut Rewrite<'_>) -> Option<[ValueId; 2]> {
    let (table, indices) = (cx.input(0)?, cx.input(1)?);
    let inner = taken(cx, indices)?;
    if cx.ty(table).rank() != 1 || !is_fixed(cx, table) {
        return None;
    }
    let count = cx.constant(inner.table)?.data.num_elements();
    Some([compute(cx, &[table, inner.table], count)?, indices])
}

/// An operation on what is taken from tables by the same indices, and on single numbers: its table, and what is taken by those indices.
fn elementwise(cx: &mut Rewrite<'_>) -> Option<[ValueId; 2]> {
    let operands: Vec<ValueId> = cx.node().inputs.iter().copied().collect::<Option<_>>()?;
    let dims = &cx.ty(cx.output()?).dims;
    let mut found: Option<(ValueId, Taken)> = None;
    let mut sources = Vec::with_capacity(operands.len());
    for operand in operands {
        if cx.constant(operand).is_some_and(|constant| constant.data.num_elements() == 1) {
            if !is_fixed(cx, operand) {
                return None;
            }
            sources.push(operand);
            continue;
        }
        let taken = taken(cx, operand).filter(|_| cx.ty(operand).dims == *dims)?;
        if let Some((_, first)) = &found
            && ((first.indices, first.wrapped) != (taken.indices, taken.wrapped)
                || cx.ty(first.table).dims != cx.ty(taken.table).dims)
        {
            return None;
        }
        sources.push(taken.table);
        found.get_or_insert((operand, taken));
    }
    let (operand, first) = found?;
    let count = cx.constant(first.table)?.data.num_elements();
    Some([compute(cx, &sources, count)?, operand])
}

/// The current node's operation on whole tables and single numbers: `count` elements.
fn compute(cx: &mut Rewrite<'_>, sources: &[ValueId], count: usize) -> Option<ValueId> {
    let mut operands: Vec<TensorData> = Vec::with_capacity(sources.len());
    for &source in sources {
        let data = cx.constant(source)?.data.clone();
        // A number of any rank is spread over the table.
        operands.push(TensorData { shape: vec![data.num_elements()], ..data });
    }
    // Before anything is computed: what is refused would be so for each user, at each visit.
    let before: usize = operands.iter().map(|data| data.bytes.len()).sum();
    if cx.ty(cx.output()?).dtype.size().saturating_mul(count) > GROWTH.saturating_mul(before) {
        return None;
    }
    cx.look(count)?;
    let known: Vec<Option<&TensorData>> = operands.iter().map(Some).collect();
    let data = cx.op().evaluate(&known)?.pop().filter(|data| data.shape == [count])?;
    cx.remake(&data)?;
    let (name, provenance) = origin(cx, sources);
    Some(cx.add_derived(name, data, provenance))
}

/// The name and the provenance of what is made of constants that no checkpoint has: those of the first that has any.
pub(super) fn origin(cx: &Rewrite<'_>, sources: &[ValueId]) -> (Option<String>, Option<Arc<Provenance>>) {
    let constants = || sources.iter().filter_map(|&source| cx.constant(source));
    let name = constants().find_map(|constant| constant.name.clone());
    (name, constants().find_map(|constant| constant.provenance.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Builder;
    use crate::passes::testing::{checked, constant, graph, kinds};
    use kiln_types::{BinaryOp, CompareOp, DType, UnaryOp};

    /// Elements of a table, of a name that an exporter gave it, at the places of the largest numbers.
    fn lookup(b: &mut Builder<'_>, name: &str, table: &[f32], indices: ValueId) -> ValueId {
        let table = TensorData::new(table.to_vec(), [table.len()]);
        let table = b.graph.add_constant(Some(name.to_owned()), table);
        b.add(Op::Take(Take { axis: 0, wrapped: false }), &[table, indices]).unwrap()
    }

    #[test]
    fn a_formula_of_looked_up_numbers_is_a_table() {
        let g = graph(&["i64[n, 1]"], |b, x| {
            let depth = lookup(b, "t.depth", &[0.5, 2.0, 7.0], x[0]);
            let count = lookup(b, "t.count", &[4.0, 1.0, 9.0], x[0]);
            let two = constant(b, None, &[1, 1], &[2.0]);
            let many = b.add(Op::Compare(CompareOp::Greater), &[count, two]).unwrap();
            let many = b.add(Op::Cast(crate::ir::Cast { to: DType::F32 }), &[many]).unwrap();
            let log = b.add(Op::Unary(UnaryOp::Log), &[count]).unwrap();
            let path = b.add(Op::Binary(BinaryOp::Mul), &[log, many]).unwrap();
            vec![b.add(Op::Binary(BinaryOp::Add), &[depth, path]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[("n", 3)])), ["Take"]);
    }

    #[test]
    fn a_table_of_places_in_another_is_one_table() {
        let g = graph(&["i64[n]"], |b, x| {
            let places =
                b.graph.add_constant(Some("t.places".into()), TensorData::new(vec![2i64, 0, 1], [3]));
            let place = b.add(Op::Take(Take { axis: 0, wrapped: false }), &[places, x[0]]).unwrap();
            vec![lookup(b, "t.values", &[0.5, 2.0, 7.0], place)]
        });
        assert_eq!(kinds(&checked(g, &[("n", 3)])), ["Take"]);
    }

    #[test]
    fn parameters_and_other_indices_stay_apart() {
        let g = graph(&["i64[n]", "i64[n]"], |b, x| {
            let one = lookup(b, "t.one", &[0.5, 2.0, 7.0], x[0]);
            let other = lookup(b, "t.one", &[0.5, 2.0, 7.0], x[1]);
            vec![b.add(Op::Binary(BinaryOp::Mul), &[one, other]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[("n", 3)])).last().unwrap(), "Binary(Mul)");
        let g = graph(&["i64[n]"], |b, x| {
            let table = constant(b, Some("scale.weight"), &[3], &[1.0, 2.0, 3.0]);
            let taken = b.add(Op::Take(Take { axis: 0, wrapped: false }), &[table, x[0]]).unwrap();
            vec![b.add(Op::Unary(UnaryOp::Exp), &[taken]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[("n", 3)])).len(), 2);
    }
}
