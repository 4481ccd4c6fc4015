//! A parameter in several layouts, in a model that is to be trained: it is kept in one, and read from that in the others.
//!
//! Folding lays a parameter out anew at each place where it is used, as layers have their weights. What is then two parameters would learn apart
//! from each other.

use super::{Reading, Uses};
use crate::ir::{Graph, NodeId, Op, Permute, Provenance, Reshape, ValueId};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How a value is made of a parameter of the network by moving elements, from the parameter's own layout on.
pub(super) struct Layout<'g> {
    pub(super) key: &'g str,
    shape: &'g [usize],
    steps: Vec<Step<'g>>,
}

/// An operation, and the shape that it makes.
#[derive(PartialEq)]
struct Step<'g> {
    op: &'g Op,
    shape: Vec<usize>,
}

impl<'g> Layout<'g> {
    pub(super) fn of(graph: &'g Graph, value: ValueId) -> Option<Self> {
        let mut steps = Vec::new();
        let mut here = graph.constant(value)?.provenance.as_deref()?;
        loop {
            match here {
                Provenance::Key { key, shape } => {
                    steps.reverse();
                    return Some(Self { key, shape, steps });
                }
                Provenance::Apply { op: op @ (Op::Permute(_) | Op::Reshape(_) | Op::Slice(_)), operands } => {
                    let [source] = operands.as_slice() else { return None };
                    steps.push(Step { op, shape: here.shape()? });
                    here = source;
                }
                Provenance::Apply { .. }
                | Provenance::Literal(_)
                | Provenance::Scaled { .. }
                | Provenance::NormScale(_)
                | Provenance::NormShift(_)
                | Provenance::Exporter { .. }
                | Provenance::TooMuch { .. } => return None,
            }
        }
    }

    fn is_whole(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step.op, Op::Slice(_)))
    }

    /// What makes this layout of another one, which is whole.
    fn from(&self, kept: &Self) -> Option<Vec<(Op, Vec<usize>)>> {
        let common = self.steps.iter().zip(&kept.steps).take_while(|(a, b)| a == b).count();
        let mut made = kept.undone_to(common)?;
        made.extend(self.steps[common..].iter().map(|step| (step.op.clone(), step.shape.clone())));
        Some(made)
    }

    /// What takes it back to the parameter's own layout, if all of that is there.
    pub(super) fn undone(&self) -> Option<Vec<(Op, Vec<usize>)>> {
        self.undone_to(0)
    }

    /// What takes it back to where it was after so many steps.
    fn undone_to(&self, steps: usize) -> Option<Vec<(Op, Vec<usize>)>> {
        let before = |at: usize| match at.checked_sub(1) {
            Some(before) => self.steps[before].shape.as_slice(),
            None => self.shape,
        };
        let undone = |at: usize| Some((undone(self.steps[at].op, before(at))?, before(at).to_vec()));
        (steps..self.steps.len()).rev().map(undone).collect()
    }
}

/// What takes an operation that moves all elements back to the shape before it.
fn undone(op: &Op, before: &[usize]) -> Option<Op> {
    match op {
        Op::Permute(Permute { axes }) => {
            let mut inverse = vec![0; axes.len()];
            for (to, &from) in axes.iter().enumerate() {
                *inverse.get_mut(from)? = to;
            }
            Some(Op::Permute(Permute { axes: inverse }))
        }
        Op::Reshape(_) => {
            Some(Op::Reshape(Reshape { dims: before.iter().map(|&size| size.into()).collect() }))
        }
        _ => None,
    }
}

/// What reads each layout of a parameter but one from that one.
pub(super) fn readings(graph: &Graph, uses: &Uses) -> BTreeMap<ValueId, Reading> {
    let mut by_key: BTreeMap<_, Vec<(ValueId, Layout<'_>)>> = BTreeMap::new();
    for &value in uses.users.keys() {
        if let Some(layout) = Layout::of(graph, value) {
            by_key.entry((layout.key, layout.shape)).or_default().push((value, layout));
        }
    }
    let mut readings = BTreeMap::new();
    for layouts in by_key.into_values().filter(|layouts| layouts.len() > 1) {
        let whole = layouts.iter().filter(|(_, layout)| layout.is_whole());
        let best = whole.max_by_key(|(value, layout)| {
            let steps = Reverse(layout.steps.len());
            (
                is_of_its_module(graph, uses, *value, layout.key),
                use_of(graph, uses, *value),
                steps,
                Reverse(*value),
            )
        });
        let Some((kept, from)) = best else { continue };
        for (value, layout) in layouts.iter().filter(|(value, _)| value != kept) {
            if let Some(steps) = layout.from(from) {
                readings.insert(*value, Reading::after(*kept, graph.ty(*value).dtype, steps));
            }
        }
    }
    readings
}

/// Whether it is used by the module that has it in the network.
fn is_of_its_module(graph: &Graph, uses: &Uses, value: ValueId, key: &str) -> bool {
    let module = key.rsplit_once('.').map_or("", |(module, _)| module);
    uses.module(graph, value).is_some_and(|found| found == module)
}

/// What a parameter is to those who use it, the least telling first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Number,
    Weight,
    Table,
}

fn use_of(graph: &Graph, uses: &Uses, value: ValueId) -> Use {
    let users = uses.users.get(&value).into_iter().flatten();
    let of = |&id: &NodeId| {
        let node = graph.node(id);
        let is = |operand: usize| node.inputs.get(operand).copied().flatten() == Some(value);
        match node.op {
            Op::Take(_) if is(0) => Use::Table,
            Op::Linear(_) | Op::Conv(_) | Op::ConvTranspose(_) if is(1) => Use::Weight,
            _ => Use::Number,
        }
    };
    users.map(of).max().unwrap_or(Use::Number)
}

#[cfg(test)]
mod tests {
    use crate::ir::{Op, Permute, Take};
    use crate::passes::testing::{constant, graph, kinds};
    use crate::passes::{Options, optimize};

    #[test]
    fn a_parameter_that_is_trained_is_kept_in_one_layout() {
        for trainable in [false, true] {
            let mut g = graph(&["i64[n]"], |b, x| {
                let table = constant(b, Some("e.weight"), &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
                let h = b.add(Op::Take(Take { axis: 0, wrapped: false }), &[table, x[0]]).unwrap();
                let head = b.add(Op::Permute(Permute { axes: vec![1, 0] }), &[table]).unwrap();
                vec![b.add(Op::MatMul, &[h, head]).unwrap()]
            });
            optimize(&mut g, &Options { trainable, ..Options::default() });
            g.verify().unwrap();
            let expected: &[&str] =
                if trainable { &["Take", "Permute", "Linear"] } else { &["Take", "Linear"] };
            assert_eq!(kinds(&g), expected, "{g}");
        }
    }
}
