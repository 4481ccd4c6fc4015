//! Moves operations to the modules that they belong to, so that equal modules look equal. Nothing computed changes.
//!
//! What every layer of a network computes alike (a mask, the angles of rotary embeddings) is computed once after equal
//! nodes were merged, by Kiln or by the exporter: in the first layer, which then differs from all others. It goes to the
//! module around them. Likewise modules that join lists of different lengths (a dense block's layers) get the list
//! joined, and are equal.

use super::{Pass, PassReport};
use crate::ir::{Graph, NodeId, Op, ScopeEntry, SymbolOrigin, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Sets the scopes of nodes.
pub(super) struct PlaceShared;

/// Operations that may have to move with one.
const MOST_MOVED: usize = 32;

impl Pass for PlaceShared {
    fn name(&self) -> &'static str {
        "scopes"
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let mut report = PassReport::new(self.name());
        let users = users(graph);
        for id in graph.root.nodes.clone() {
            let Some(depth) = shared_from(graph, id, &users) else { continue };
            let mut moved = BTreeSet::new();
            if can_move(graph, id, depth, &mut moved) {
                for id in moved {
                    graph.node_mut(id).origin.scope.truncate(depth);
                    report.count("shared by modules");
                }
            }
        }
        for id in joined_at_entry(graph) {
            graph.node_mut(id).origin.scope.pop();
            report.count("joined before a module");
        }
        report
    }
}

/// The nodes of the root region that use each value; what a branch uses, its choice does.
fn users(graph: &Graph) -> BTreeMap<ValueId, Vec<NodeId>> {
    fn visit(graph: &Graph, id: NodeId, user: NodeId, users: &mut BTreeMap<ValueId, Vec<NodeId>>) {
        let node = graph.node(id);
        for &input in node.inputs.iter().flatten() {
            users.entry(input).or_default().push(user);
        }
        for region in node.op.regions() {
            for &inner in &region.nodes {
                visit(graph, inner, user, users);
            }
            for &output in &region.outputs {
                users.entry(output).or_default().push(user);
            }
        }
    }
    let mut found = BTreeMap::new();
    for &id in &graph.root.nodes {
        visit(graph, id, id, &mut found);
    }
    found
}

/// How many modules two scopes have in common.
fn common(a: &[ScopeEntry], b: &[ScopeEntry]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a.path == b.path).count()
}

/// For a node that its own module uses and others do, too: the number of modules around all of them.
fn shared_from(graph: &Graph, id: NodeId, users: &BTreeMap<ValueId, Vec<NodeId>>) -> Option<usize> {
    let node = graph.node(id);
    let scope = &node.origin.scope;
    let depths = node.outputs.iter().filter_map(|output| users.get(output)).flatten();
    let depths: Vec<usize> = depths.map(|&user| common(scope, &graph.node(user).origin.scope)).collect();
    let least = depths.iter().copied().min()?;
    (least > 0 && least < scope.len() && depths.contains(&scope.len())).then_some(least)
}

/// Whether a node needs nothing that only the modules below `depth` have; `moved` gets what must move with it.
fn can_move(graph: &Graph, id: NodeId, depth: usize, moved: &mut BTreeSet<NodeId>) -> bool {
    if moved.contains(&id) {
        return true;
    }
    let node = graph.node(id);
    let scope = &node.origin.scope;
    if !node.op.effect().is_repeatable() || !node.op.regions().is_empty() || moved.len() >= MOST_MOVED {
        return false;
    }
    moved.insert(id);
    let sizes = node.op.symbols().into_iter().filter_map(|symbol| match graph.symbols.get(&symbol) {
        Some(SymbolOrigin::Read { node, .. } | SymbolOrigin::Iteration { node }) => Some(*node),
        Some(SymbolOrigin::Dim { value, .. }) => graph.producer(*value),
        None => None,
    });
    let operands = node.inputs.iter().flatten().filter_map(|&input| graph.producer(input));
    let own = node.inputs.iter().flatten().any(|&input| is_parameter(graph, input));
    !own && sizes.chain(operands).collect::<Vec<_>>().into_iter().all(|producer| {
        let inside = common(scope, &graph.node(producer).origin.scope) > depth;
        !inside || can_move(graph, producer, depth, moved)
    })
}

/// Whether a constant has a parameter's name, which says where it belongs.
fn is_parameter(graph: &Graph, value: ValueId) -> bool {
    let name = graph.constant(value).and_then(|constant| constant.name.as_deref());
    name.is_some_and(|name| name.contains('.'))
}

/// Concatenations of what comes into a module, where modules of its kind differ in how many values come in.
fn joined_at_entry(graph: &Graph) -> Vec<NodeId> {
    // Of each kind: each module's concatenations at its entry.
    let mut kinds: BTreeMap<&str, BTreeMap<&str, Vec<NodeId>>> = BTreeMap::new();
    for &id in &graph.root.nodes {
        let node = graph.node(id);
        let Some(module) = node.origin.scope.last().filter(|module| !module.path.is_empty()) else {
            continue;
        };
        let within = node.origin.scope.len();
        let enters = |input: &ValueId| {
            let producer = graph.producer(*input);
            producer.is_none_or(|id| common(&node.origin.scope, &graph.node(id).origin.scope) < within)
                && graph.constant(*input).is_none()
        };
        if matches!(node.op, Op::Concat(_)) && node.inputs.iter().flatten().all(enters) {
            kinds.entry(kind(module)).or_default().entry(&module.path).or_default().push(id);
        }
    }
    let mut found = Vec::new();
    for modules in kinds.into_values() {
        let single: Vec<NodeId> =
            modules.into_values().filter_map(|ids| <[NodeId; 1]>::try_from(ids).ok()).flatten().collect();
        let lengths: BTreeSet<usize> = single.iter().map(|&id| graph.node(id).inputs.len()).collect();
        if lengths.len() > 1 {
            found.extend(single);
        }
    }
    found
}

/// What tells modules of one kind: their class, or their path without its number.
fn kind(module: &ScopeEntry) -> &str {
    if module.class.is_empty() {
        module.path.trim_end_matches(|c: char| c.is_ascii_digit())
    } else {
        &module.class
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Concat, Reduce, Reshape};
    use crate::passes::testing::{constant, graph};
    use kiln_types::{BinaryOp, UnaryOp};

    fn scope(paths: &[&str]) -> Vec<ScopeEntry> {
        paths.iter().map(|path| ScopeEntry { path: (*path).to_owned(), class: String::new() }).collect()
    }

    fn paths(graph: &Graph) -> Vec<String> {
        let path =
            |&id: &NodeId| graph.node(id).origin.scope.last().map_or("", |entry| &entry.path).to_owned();
        graph.root.nodes.iter().map(path).collect()
    }

    #[test]
    fn what_layers_share_goes_around_them() {
        let mut g = graph(&["f32[3, 3]", "f32[3]"], |b, x| {
            b.origin.scope = scope(&["", "layers.0"]);
            let row = b.add(Op::Reshape(Reshape { dims: vec![1.into(), 3.into()] }), &[x[1]]).unwrap();
            let mask = b.add(Op::Unary(UnaryOp::Neg), &[row]).unwrap();
            let first = b.add(Op::Binary(BinaryOp::Add), &[x[0], mask]).unwrap();
            b.origin.scope = scope(&["", "layers.1"]);
            vec![b.add(Op::Binary(BinaryOp::Add), &[first, mask]).unwrap()]
        });
        let report = PlaceShared.run(&mut g);
        assert_eq!(report.total(), 2);
        assert_eq!(paths(&g), ["", "", "layers.0", "layers.1"]);
        assert!(!PlaceShared.run(&mut g).changed());
    }

    #[test]
    fn results_and_own_parameters_stay() {
        let mut g = graph(&["f32[3]"], |b, x| {
            b.origin.scope = scope(&["", "layers.0"]);
            let bias = constant(b, Some("layers.0.bias"), &[3], &[1.0, 2.0, 3.0]);
            let biased = b.add(Op::Binary(BinaryOp::Add), &[x[0], bias]).unwrap();
            let y = b.add(Op::Unary(UnaryOp::Neg), &[biased]).unwrap();
            b.origin.scope = scope(&["", "layers.1"]);
            vec![b.add(Op::Binary(BinaryOp::Mul), &[biased, y]).unwrap()]
        });
        assert!(!PlaceShared.run(&mut g).changed());
    }

    #[test]
    fn lists_are_joined_before_modules_that_differ_in_nothing_else() {
        let mut g = graph(&["f32[3, 2]"], |b, x| {
            let mut features = vec![x[0]];
            for n in 0..3 {
                b.origin.scope = scope(&["", &format!("block.layer{n}")]);
                let joined = match features.as_slice() {
                    [one] => *one,
                    all => b.add(Op::Concat(Concat { axis: 1 }), all).unwrap(),
                };
                let sum =
                    Op::Reduce(Reduce { op: kiln_types::ReduceOp::Sum, axes: vec![1], keep_dims: true });
                features.push(b.add(sum, &[joined]).unwrap());
            }
            vec![*features.last().unwrap()]
        });
        PlaceShared.run(&mut g);
        assert_eq!(paths(&g), ["block.layer0", "", "block.layer1", "", "block.layer2"]);
    }
}
