//! Concatenations that begin as another one does continue from it.
//!
//! A dense block joins all its features before each layer: `[a, b]`, `[a, b, c]`, … Each list goes on from the one before.

use super::{Pass, PassReport};
use crate::ir::{Graph, Op, ValueId};
use std::collections::BTreeMap;

/// Shortens lists of operands.
pub(super) struct ContinueJoins;

impl Pass for ContinueJoins {
    fn name(&self) -> &'static str {
        "joins"
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let mut report = PassReport::new(self.name());
        let mut joined: BTreeMap<(usize, Vec<ValueId>), ValueId> = BTreeMap::new();
        for id in graph.root.nodes.clone() {
            let node = graph.node(id);
            let (&Op::Concat { axis }, &[output]) = (&node.op, node.outputs.as_slice()) else { continue };
            let Some(list) = node.inputs.iter().copied().collect::<Option<Vec<ValueId>>>() else { continue };
            let found = (2..list.len())
                .rev()
                .find_map(|n| joined.get(&(axis, list[..n].to_vec())).map(|&start| (start, n)));
            if let Some((start, n)) = found {
                let rest = list[n..].iter().copied();
                graph.node_mut(id).inputs = std::iter::once(start).chain(rest).map(Some).collect();
                report.count("continued");
            }
            joined.entry((axis, list)).or_insert(output);
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::{checked, graph};
    use kiln_types::UnaryOp;

    #[test]
    fn lists_that_grow_share_their_beginning() {
        let g = graph(&["f32[n, 2]"], |b, x| {
            let mut all = vec![x[0]];
            for _ in 0..3 {
                let joined = match all.as_slice() {
                    [one] => *one,
                    list => b.add(Op::Concat { axis: 1 }, list).unwrap(),
                };
                all.push(b.add(Op::Unary(UnaryOp::Exp), &[joined]).unwrap());
            }
            vec![b.add(Op::Concat { axis: 1 }, &all).unwrap()]
        });
        let g = checked(g, &[("n", 2)]);
        let lengths =
            g.root.nodes.iter().map(|&id| g.node(id)).filter(|node| matches!(node.op, Op::Concat { .. }));
        assert_eq!(lengths.map(|node| node.inputs.len()).collect::<Vec<_>>(), [2, 2, 2], "{g}");
    }
}
