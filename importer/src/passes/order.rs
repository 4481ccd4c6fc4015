//! The order of nodes, where the file's lets many values wait.
//!
//! Any order is right in which operands come first. Some exporters write a graph breadth first: of a hundred trees all the
//! first operations, then all the second ones. A hundred values wait at every place then: in memory, and as variables of
//! one function, of which a compiler has to know at every call which ones to drop if it should panic. Depth first,
//! results are made right before they are used, and what repeats lies together, so that it can be found.

use super::{Pass, PassReport};
use crate::ir::{Graph, NodeId, SymbolOrigin};
use std::collections::HashMap;

/// Orders the nodes of the root region.
pub(super) struct OrderNodes;

/// Where no more values than this wait at once, the file's order is as good as any.
const FEW: usize = 16;
/// Another order is taken instead of the file's where at most three quarters of the values wait in it, over all places.
const GAIN: (usize, usize) = (3, 4);
/// Then a little more may wait at the worst place: a part in so many.
const MORE: usize = 8;

impl Pass for OrderNodes {
    fn name(&self) -> &'static str {
        "order"
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let mut report = PassReport::new(self.name());
        let nodes = &graph.root.nodes;
        let before = dependencies(graph);
        let file = Waiting::of(&(0..nodes.len()).collect::<Vec<_>>(), &before);
        if file.most <= FEW {
            return report;
        }
        let order = depth_first(graph, &before);
        let waiting = Waiting::of(&order, &before);
        if waiting.most <= file.most + file.most / MORE && waiting.total * GAIN.1 <= file.total * GAIN.0 {
            graph.root.nodes = order.into_iter().map(|i| nodes[i]).collect();
            report.count("depth first");
        }
        report
    }
}

/// For each node of the root region the places of those that it needs: for its operands first, in their order, then for sizes and
/// for what its regions take from around them. What draws random numbers, or is control flow, stays behind the last node
/// of its kind.
fn dependencies(graph: &Graph) -> Vec<Vec<usize>> {
    let nodes = &graph.root.nodes;
    let places: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, &node)| (node, i)).collect();
    let mut unrepeatable = None;
    let of = |(i, &id): (usize, &NodeId)| {
        let mut found: Vec<NodeId> = Vec::new();
        let mut work = vec![id];
        while let Some(id) = work.pop() {
            let node = graph.node(id);
            found.extend(node.inputs.iter().flatten().filter_map(|&input| graph.producer(input)));
            for region in node.op.regions() {
                work.extend(&region.nodes);
                found.extend(region.outputs.iter().filter_map(|&output| graph.producer(output)));
            }
            found.extend(node.op.symbols().iter().filter_map(|symbol| match graph.symbols.get(symbol) {
                Some(SymbolOrigin::Dim { value, .. }) => graph.producer(*value),
                Some(SymbolOrigin::Read { node, .. } | SymbolOrigin::Iteration { node }) => Some(*node),
                None => None,
            }));
        }
        // What is inside of a region has no place of its own.
        let mut before: Vec<usize> = found.iter().filter_map(|node| places.get(node).copied()).collect();
        before.retain(|&place| place != i);
        if !graph.node(id).op.effect().is_repeatable() {
            before.extend(unrepeatable.replace(i));
        }
        before
    };
    nodes.iter().enumerate().map(of).collect()
}

/// How many nodes there are whose results wait for a use.
struct Waiting {
    /// At one place.
    most: usize,
    /// Over all places.
    total: usize,
}

impl Waiting {
    /// In an order.
    fn of(order: &[usize], before: &[Vec<usize>]) -> Self {
        let mut last: Vec<usize> = vec![0; order.len()];
        for (at, &node) in order.iter().enumerate() {
            for &needed in &before[node] {
                last[needed] = at;
            }
        }
        let mut ends: Vec<usize> = vec![0; order.len() + 1];
        let (mut waiting, mut found) = (0usize, Waiting { most: 0, total: 0 });
        for (at, &node) in order.iter().enumerate() {
            waiting -= ends[at];
            if last[node] > at {
                waiting += 1;
                ends[last[node]] += 1;
            }
            found.most = found.most.max(waiting);
            found.total += waiting;
        }
        found
    }
}

/// All nodes, those of the outputs first, each right behind what it needs.
fn depth_first(graph: &Graph, before: &[Vec<usize>]) -> Vec<usize> {
    let nodes = &graph.root.nodes;
    let places: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, &node)| (node, i)).collect();
    let outputs = graph.root.outputs.iter().filter_map(|&output| graph.producer(output));
    let outputs = outputs.filter_map(|node| places.get(&node).copied());
    let mut order = Vec::with_capacity(nodes.len());
    let mut begun = vec![false; nodes.len()];
    // A file may nest deeper than a stack: of each node that is waited for how many of its needs were looked at.
    let mut stack: Vec<(usize, usize)> = Vec::new();
    for start in outputs.chain(0..nodes.len()) {
        if !std::mem::replace(&mut begun[start], true) {
            stack.push((start, 0));
        }
        while let Some((node, looked_at)) = stack.last_mut() {
            if let Some(&needed) = before[*node].get(*looked_at) {
                *looked_at += 1;
                if !std::mem::replace(&mut begun[needed], true) {
                    stack.push((needed, 0));
                }
            } else {
                order.push(*node);
                stack.pop();
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Builder, Op, ValueId};
    use crate::passes::testing::{assert_close, graph, sample};
    use kiln_types::{BinaryOp, UnaryOp};

    /// So many branches over one input, written breadth first, and their sum.
    fn branches(b: &mut Builder<'_>, x: ValueId, count: usize) -> Vec<ValueId> {
        let mut branches: Vec<ValueId> = vec![x; count];
        for op in [UnaryOp::Sin, UnaryOp::Exp, UnaryOp::Tanh] {
            for branch in &mut branches {
                *branch = b.add(Op::Unary(op), &[*branch]).unwrap();
            }
        }
        let sum = branches.into_iter().reduce(|a, c| b.add(Op::Binary(BinaryOp::Add), &[a, c]).unwrap());
        vec![sum.unwrap()]
    }

    fn kinds(graph: &Graph) -> Vec<String> {
        crate::passes::testing::kinds(graph)
    }

    #[test]
    fn branches_are_computed_one_after_the_other() {
        let mut g = graph(&["f32[n, 3]"], |b, x| branches(b, x[0], 20));
        let inputs = [sample(g.ty(g.inputs[0]), &[("n", 2)], 0)];
        let before = crate::interpreter::run(&g, &inputs).unwrap();
        assert!(OrderNodes.run(&mut g).changed());
        g.verify().unwrap();
        assert_close(&before, &crate::interpreter::run(&g, &inputs).unwrap(), "depth first");
        let branch = ["Unary(Sin)", "Unary(Exp)", "Unary(Tanh)"];
        assert_eq!(kinds(&g)[..6], [branch, branch].concat());
        assert_eq!(kinds(&g)[6], "Binary(Add)");
        assert_eq!(kinds(&g)[7..11], [branch.as_slice(), &["Binary(Add)"]].concat());
    }

    #[test]
    fn an_order_that_is_good_enough_stays() {
        let mut g = graph(&["f32[n, 3]"], |b, x| branches(b, x[0], FEW));
        assert!(!OrderNodes.run(&mut g).changed());
        // What is needed at the end waits in any order.
        let mut g = graph(&["f32[n, 3]"], |b, x| {
            let values: Vec<ValueId> =
                (0..40).map(|_| b.add(Op::Unary(UnaryOp::Sin), &[x[0]]).unwrap()).collect();
            values.into_iter().rev().collect()
        });
        assert!(!OrderNodes.run(&mut g).changed());
    }
}
