//! What nodes do, numbers aside: equal outlines are one piece of code with other numbers.

use super::layers::Layers;
use super::nodes::Nodes;
use crate::code::{Code, Lowering, Owner};
use kiln_importer::ir::NodeId;
use kiln_types::DTypeKind;
use std::collections::HashMap;

/// Names an outline; equal ones have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutlineId(usize);

/// What a node does.
#[derive(PartialEq, Eq, Hash)]
struct Outline {
    /// For a call of a layer: its type and method.
    layer: Option<(&'static str, &'static str)>,
    /// The expression, or the layer's arguments.
    codes: Vec<Code>,
    /// Kind and rank of each result.
    results: Vec<(DTypeKind, usize)>,
}

/// Outlines by name.
pub struct Outlines<'a> {
    nodes: &'a Nodes<'a>,
    layers: &'a Layers,
    known: HashMap<Outline, OutlineId>,
}

impl<'a> Outlines<'a> {
    /// Of a graph's nodes.
    pub fn new(nodes: &'a Nodes<'a>, layers: &'a Layers) -> Self {
        Self { nodes, layers, known: HashMap::new() }
    }

    /// The outline of a node.
    pub fn of(&mut self, node: NodeId) -> OutlineId {
        let outline = self.outline(node);
        let next = OutlineId(self.known.len());
        *self.known.entry(outline).or_insert(next)
    }

    fn outline(&self, node: NodeId) -> Outline {
        let graph = self.nodes.graph;
        let owner = |_| Owner::Argument;
        let mut lowering = Lowering::new(graph, &owner);
        let (layer, calls) = match super::layer(self.nodes, self.layers, node) {
            Some(layer) => (Some((layer.ty, layer.method)), layer.args.as_slice()),
            None => (None, self.nodes.call(node).map_or(&[][..], std::slice::from_ref)),
        };
        let outline = |call| {
            let mut code = lowering.node(node, call);
            code.erase_numbers();
            code
        };
        let codes = calls.iter().map(outline).collect();
        let result = |&value| (graph.ty(value).dtype.kind(), graph.ty(value).rank());
        Outline { layer, codes, results: graph.node(node).outputs.iter().map(result).collect() }
    }
}
