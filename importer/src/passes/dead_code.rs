//! Removes what no result needs.

use super::{Pass, PassReport};
use crate::ir::{Graph, NodeId, Op, Region, Symbol, SymbolOrigin, ValueDef, ValueId};
use std::collections::BTreeSet;

/// Removes nodes whose outputs nobody uses, and the contents of constants nobody uses.
pub(super) struct RemoveDeadCode;

impl Pass for RemoveDeadCode {
    fn name(&self) -> &'static str {
        "dead code"
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let mut report = PassReport::new(self.name());
        for kind in remove(graph) {
            report.count(kind);
        }
        report
    }
}

/// Removes dead nodes; the kinds of what was removed.
pub(super) fn remove(graph: &mut Graph) -> Vec<String> {
    let mut live =
        Liveness { graph, nodes: BTreeSet::new(), values: BTreeSet::new(), symbols: BTreeSet::new() };
    live.outputs(&graph.root);
    let (nodes, values) = (live.nodes, live.values);
    let mut root = std::mem::take(&mut graph.root);
    let mut removed = Vec::new();
    keep(graph, &mut root, &nodes, &mut removed);
    graph.root = root;
    drop_constants(graph, &values);
    removed
}

struct Liveness<'a> {
    graph: &'a Graph,
    nodes: BTreeSet<NodeId>,
    values: BTreeSet<ValueId>,
    symbols: BTreeSet<Symbol>,
}

impl Liveness<'_> {
    /// Results of a region. Its other nodes live only if a result needs them.
    fn outputs(&mut self, region: &Region) {
        let mut work = region.outputs.clone();
        while let Some(value) = work.pop() {
            if !self.values.insert(value) {
                continue;
            }
            if let ValueDef::Node(node, _) | ValueDef::RegionParameter(node, _) = self.graph.value(value).def
            {
                self.node(node, &mut work);
            }
        }
    }

    fn node(&mut self, id: NodeId, work: &mut Vec<ValueId>) {
        if !self.nodes.insert(id) {
            return;
        }
        let graph = self.graph;
        let node = graph.node(id);
        work.extend(node.inputs.iter().flatten());
        for region in node.op.regions() {
            work.extend(&region.outputs);
        }
        for symbol in node.op.symbols() {
            if !self.symbols.insert(symbol.clone()) {
                continue;
            }
            match graph.symbols.get(&symbol) {
                Some(&SymbolOrigin::Dim { value, .. }) => work.push(value),
                Some(&SymbolOrigin::Read { node, .. }) => self.node(node, work),
                None => {}
            }
        }
    }
}

/// Keeps the live nodes of a region.
fn keep(graph: &mut Graph, region: &mut Region, live: &BTreeSet<NodeId>, removed: &mut Vec<String>) {
    region.nodes.retain(|&id| {
        let alive = live.contains(&id);
        if !alive {
            removed.push(graph.node(id).op.kind());
        }
        alive
    });
    for &id in &region.nodes {
        let mut inner: Vec<Region> =
            graph.node_mut(id).op.regions_mut().into_iter().map(std::mem::take).collect();
        for region in &mut inner {
            keep(graph, region, live, removed);
        }
        for (slot, kept) in graph.node_mut(id).op.regions_mut().into_iter().zip(inner) {
            *slot = kept;
        }
    }
}

/// Lets go of the bytes of constants that nothing uses: a pass may have made new weights from them.
fn drop_constants(graph: &mut Graph, live: &BTreeSet<ValueId>) {
    let mut used = vec![false; graph.constants.len()];
    for (i, value) in graph.values.iter().enumerate() {
        if let ValueDef::Constant(constant) = value.def
            && live.contains(&ValueId(i as u32))
            && let Some(used) = used.get_mut(constant.index())
        {
            *used = true;
        }
    }
    for value in &mut graph.values {
        let ValueDef::Constant(id) = value.def else {
            continue;
        };
        if let (Some(false), Some(constant)) = (used.get(id.index()), graph.constants.get_mut(id.index())) {
            constant.data.bytes = kiln_types::Bytes::default();
            constant.data.shape = vec![0];
            constant.name = None;
            value.ty.dims = vec![crate::ir::Dim::constant(0)];
            value.host = None;
        }
    }
}

/// Whether a node may be removed or merged with an equal one.
pub(super) fn is_pure(op: &Op) -> bool {
    match op {
        Op::Call(call) => call.pure,
        Op::HostRead { .. } | Op::If { .. } | Op::Dropout { .. } => false,
        _ => true,
    }
}
