//! What nodes do, numbers aside: equal outlines are one piece of code with other numbers.

use super::layers::Layers;
use super::nodes::Nodes;
use crate::code::{Code, CodeBuilder, Owner};
use crate::ids::{Id, OutlineId};
use kiln_importer::ir::NodeId;
use kiln_types::DTypeKind;
use std::collections::HashMap;

/// What a node does.
#[derive(PartialEq, Eq, Hash)]
struct Outline {
    /// For a call of a layer: its type and method.
    layer: Option<(&'static str, &'static str)>,
    /// The expression, or the layer's arguments. One that cannot be written is an error when its module is.
    codes: Option<Vec<Code>>,
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
        let next = OutlineId::at(self.known.len());
        *self.known.entry(outline).or_insert(next)
    }

    fn outline(&self, node: NodeId) -> Outline {
        let graph = self.nodes.graph;
        let owner = |_| Owner::Argument;
        let mut builder = CodeBuilder::new(graph, &owner);
        let (layer, calls) = match super::layer(self.nodes, self.layers, node) {
            Some(layer) => (Some((layer.declared.path, layer.method)), layer.args.as_slice()),
            None => (None, self.nodes.call(node).map_or(&[][..], std::slice::from_ref)),
        };
        let codes = calls.iter().map(|call| {
            let mut code = builder.node(node, call).ok()?;
            code.erase_numbers();
            Some(code)
        });
        let codes = codes.collect();
        let result = |&value| (graph.ty(value).dtype.kind(), graph.ty(value).rank());
        Outline { layer, codes, results: graph.node(node).outputs.iter().map(result).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_importer::ir::{Builder, Conv, Graph, Op, TensorType, ValueId};
    use kiln_types::{ConvOptions, DType, TensorData};

    /// A convolution of an input with so many channels and axes.
    fn conv(builder: &mut Builder<'_>, channels: usize, axes: usize) -> ValueId {
        let dims = |first: usize, size| [[first, channels].as_slice(), &vec![size; axes]].concat();
        let x = builder.input("x", TensorType::new(DType::F32, dims(1, 8)));
        let shape = dims(4, 3);
        let weight = TensorData::new(vec![0f32; shape.iter().product()], shape);
        let weight = builder.graph.add_constant(Some("conv.weight".into()), weight);
        let options = ConvOptions {
            stride: vec![1; axes].into(),
            padding: vec![(1, 1); axes].into(),
            dilation: vec![1; axes].into(),
            groups: 1,
        };
        builder.add(Op::Conv(Conv { options, activation: None }), &[x, weight]).expect("a convolution")
    }

    #[test]
    fn outlines_differ_in_names_and_not_in_numbers() {
        let mut graph = Graph::default();
        let mut builder = Builder::new(&mut graph);
        let outputs = [(3, 1), (3, 2), (5, 2)].map(|(channels, axes)| conv(&mut builder, channels, axes));
        graph.root.nodes = builder.nodes;
        graph.root.outputs = outputs.to_vec();
        let nodes = Nodes::new(&graph);
        let layers = Layers::choose(&nodes);
        // What tells a `Conv1d` from a `Conv2d` are digits of a name, which are no numbers.
        let types: Vec<_> = nodes
            .all
            .iter()
            .map(|&node| nodes.possible_layer(node).expect("a layer").declared.path)
            .collect();
        assert_eq!(types, ["nn::conv::Conv1d", "nn::conv::Conv2d", "nn::conv::Conv2d"]);
        let mut outlines = Outlines::new(&nodes, &layers);
        let [one, two, other] = [0, 1, 2].map(|i| outlines.of(nodes.all[i]));
        assert_ne!(one, two);
        assert_eq!(two, other);
    }
}
