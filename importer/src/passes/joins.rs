//! Concatenations that begin as another one does continue from it.
//!
//! A dense block joins all its features before each layer: `[a, b]`, `[a, b, c]`, … Each list goes on from the one before.

use super::{Pass, PassReport};
use crate::ir::{Concat, Graph, Op, ValueId};
use std::collections::HashMap;

/// Shortens lists of operands.
pub(super) struct ContinueJoins;

impl Pass for ContinueJoins {
    fn name(&self) -> &'static str {
        "joins"
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let mut report = PassReport::new(self.name());
        let mut lists = Lists::default();
        for id in graph.root.nodes.clone() {
            let node = graph.node(id);
            let (&Op::Concat(Concat { axis }), &[output]) = (&node.op, node.outputs.as_slice()) else {
                continue;
            };
            let Some(list) = node.inputs.iter().copied().collect::<Option<Vec<ValueId>>>() else { continue };
            if let Some((start, n)) = lists.add(axis, &list, output) {
                let rest = list[n..].iter().copied();
                graph.node_mut(id).inputs = std::iter::once(start).chain(rest).map(Some).collect();
                report.count("continued");
            }
        }
        report
    }
}

/// Lists of operands as a tree: lists that begin alike share the way from the root.
#[derive(Default)]
struct Lists {
    /// The step after a step, by the operand.
    next: HashMap<(Step, ValueId), usize>,
    /// What joins the operands up to a step.
    joined: HashMap<usize, ValueId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    /// Before the first operand of what is joined along an axis.
    Root(usize),
    After(usize),
}

impl Lists {
    /// Adds a list and what joins it; yields the longest beginning of it, of two or more, that was joined before: the
    /// result and the number of operands.
    fn add(&mut self, axis: usize, list: &[ValueId], output: ValueId) -> Option<(ValueId, usize)> {
        let (mut at, mut longest) = (Step::Root(axis), None);
        for (n, &operand) in list.iter().enumerate() {
            if let Step::After(step) = at
                && n >= 2
                && let Some(&start) = self.joined.get(&step)
            {
                longest = Some((start, n));
            }
            let fresh = self.next.len();
            at = Step::After(*self.next.entry((at, operand)).or_insert(fresh));
        }
        if let Step::After(step) = at {
            self.joined.entry(step).or_insert(output);
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Concat;
    use crate::passes::testing::{checked, graph};
    use kiln_types::UnaryOp;

    #[test]
    fn lists_that_grow_share_their_beginning() {
        let g = graph(&["f32[n, 2]"], |b, x| {
            let mut all = vec![x[0]];
            for _ in 0..3 {
                let joined = match all.as_slice() {
                    [one] => *one,
                    list => b.add(Op::Concat(Concat { axis: 1 }), list).unwrap(),
                };
                all.push(b.add(Op::Unary(UnaryOp::Exp), &[joined]).unwrap());
            }
            vec![b.add(Op::Concat(Concat { axis: 1 }), &all).unwrap()]
        });
        let g = checked(g, &[("n", 2)]);
        let lengths =
            g.root.nodes.iter().map(|&id| g.node(id)).filter(|node| matches!(node.op, Op::Concat(_)));
        assert_eq!(lengths.map(|node| node.inputs.len()).collect::<Vec<_>>(), [2, 2, 2], "{g}");
    }
}
