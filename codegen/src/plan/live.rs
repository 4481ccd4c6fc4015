//! Which nodes run, and what they use.

use kiln_importer::ir::{Graph, Implementation, NodeId, Op, Region, Symbol, SymbolOrigin, ValueId};
use std::collections::BTreeSet;

/// The regions of an operation.
pub fn regions(op: &Op) -> Vec<&Region> {
    match op {
        Op::If { then_region, else_region, .. } => vec![then_region, else_region],
        _ => Vec::new(),
    }
}

/// The values that a node uses, with repetitions: its operands, and what its regions take from around them.
pub fn operands(graph: &Graph, node: NodeId) -> Vec<ValueId> {
    let data = graph.node(node);
    let mut values: Vec<ValueId> = data.inputs.iter().copied().flatten().collect();
    for region in regions(&data.op) {
        values.extend(captured(graph, region));
    }
    values
}

/// The values that a region takes from around it, with repetitions.
pub fn captured(graph: &Graph, region: &Region) -> Vec<ValueId> {
    let mut defined: BTreeSet<ValueId> = region.parameters.iter().copied().collect();
    let mut values = Vec::new();
    for &node in &region.nodes {
        values.extend(operands(graph, node).into_iter().filter(|value| !defined.contains(value)));
        defined.extend(&graph.node(node).outputs);
    }
    values.extend(region.outputs.iter().copied().filter(|value| !defined.contains(value)));
    values
}

/// The symbols in a node's spelling, condition and regions.
pub fn symbols(graph: &Graph, node: NodeId) -> BTreeSet<Symbol> {
    let data = graph.node(node);
    let mut found = BTreeSet::new();
    if let Implementation::Call(call) = data.op.implementation(graph, data) {
        call.visit_dims(&mut |dim| found.extend(dim.symbols()));
    }
    if let Op::If { condition, .. } = &data.op {
        found.extend(condition.symbols());
    }
    for region in regions(&data.op) {
        for &inner in &region.nodes {
            found.extend(symbols(graph, inner));
        }
    }
    found
}

/// The nodes of the root region that the outputs need, in order.
pub fn live_nodes(graph: &Graph) -> Vec<NodeId> {
    let mut values: BTreeSet<ValueId> = graph.root.outputs.iter().copied().collect();
    let mut needed: BTreeSet<Symbol> = BTreeSet::new();
    let mut live = Vec::new();
    for &node in graph.root.nodes.iter().rev() {
        let data = graph.node(node);
        let defines_symbol = needed.iter().any(|symbol| match graph.symbols.get(symbol) {
            Some(SymbolOrigin::Read { node: reader, .. }) => *reader == node,
            Some(SymbolOrigin::Dim { value, .. }) => data.outputs.contains(value),
            None => false,
        });
        if defines_symbol || data.outputs.iter().any(|value| values.contains(value)) {
            values.extend(operands(graph, node));
            needed.extend(symbols(graph, node));
            live.push(node);
        }
    }
    live.reverse();
    live
}
