//! Which nodes become layers held in fields, and which of them are one layer that is called several times.

use super::nodes::Nodes;
use crate::names;
use kiln_importer::ir::{Layer, NodeId, ValueId, names_field};
use kiln_types::layers::Slot;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The layers of a model. Each is known by the first node that calls it.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The layer that each node calls.
    calls: BTreeMap<NodeId, NodeId>,
    /// Parameters that layers hold: the layer, and its field.
    held: BTreeMap<ValueId, (NodeId, &'static str)>,
}

/// Nodes that could be calls of one layer.
struct Candidate<'n> {
    nodes: Vec<NodeId>,
    layer: &'n Layer,
}

impl Layers {
    /// Decides it for the nodes of a model.
    pub fn choose(nodes: &Nodes<'_>) -> Self {
        let mut layers = Layers::default();
        let mut claimed: BTreeSet<ValueId> = BTreeSet::new();
        for candidate in candidates(nodes) {
            if !may_be_field(nodes, &candidate, &claimed) {
                continue;
            }
            let first = candidate.nodes[0];
            layers.calls.extend(candidate.nodes.iter().map(|&node| (node, first)));
            for (field, value) in candidate.layer.parameters() {
                let Some(value) = value else { continue };
                claimed.insert(value);
                if field.slot == Slot::Parameter {
                    layers.held.entry(value).or_insert((first, field.name));
                }
            }
        }
        layers
    }

    /// Takes layers back: their nodes become plain calls.
    pub fn refuse(&mut self, refused: &BTreeSet<NodeId>) {
        self.calls.retain(|_, layer| !refused.contains(layer));
        self.held.retain(|_, (layer, _)| !refused.contains(layer));
    }

    /// Layers that more than one node calls.
    pub fn called_again(&self) -> BTreeSet<NodeId> {
        self.calls.iter().filter(|(node, layer)| node != layer).map(|(_, &layer)| layer).collect()
    }

    /// The layer that a node calls.
    pub fn called_by(&self, node: NodeId) -> Option<NodeId> {
        self.calls.get(&node).copied()
    }

    /// Every node that calls a layer, with the layer.
    pub fn calls(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.calls.iter().map(|(&node, &layer)| (node, layer))
    }

    /// The layer that holds a parameter, and the parameter's field there.
    pub fn holder(&self, value: ValueId) -> Option<(NodeId, &'static str)> {
        self.held.get(&value).copied()
    }

    /// Every parameter that a layer holds, with the layer.
    pub fn held(&self) -> impl Iterator<Item = (ValueId, NodeId)> {
        self.held.iter().map(|(&value, &(layer, _))| (value, layer))
    }
}

/// Nodes of equal layers with equal parameters together, in the order of the first of each.
fn candidates<'n>(nodes: &'n Nodes<'_>) -> Vec<Candidate<'n>> {
    let mut candidates: Vec<Candidate<'n>> = Vec::new();
    let mut by_parameters: HashMap<(&str, Vec<Option<ValueId>>), Vec<usize>> = HashMap::new();
    for &node in &nodes.all {
        let Some(layer) = nodes.possible_layer(node).filter(|layer| has_plain_names(nodes, layer)) else {
            continue;
        };
        let parameters = layer.parameters().map(|(_, value)| value).collect();
        let alike = by_parameters.entry((layer.declared.name, parameters)).or_default();
        let equal = |&&at: &&usize| candidates[at].layer.config == layer.config;
        // Layers that share parameters and have other settings are rare; of many, the oldest are not looked at.
        match alike.iter().rev().take(MAX_CONFIGS).find(equal) {
            Some(&at) => candidates[at].nodes.push(node),
            None => {
                alike.push(candidates.len());
                candidates.push(Candidate { nodes: vec![node], layer });
            }
        }
    }
    candidates
}

/// So many layers of one type that share all parameters are compared.
const MAX_CONFIGS: usize = 16;

/// Whether the layer has parameters, all of them constants, named as its fields are if they are named after anything.
fn has_plain_names(nodes: &Nodes<'_>, layer: &Layer) -> bool {
    let mut parameters = layer.parameters().filter_map(|(field, value)| Some((field, value?))).peekable();
    parameters.peek().is_some()
        && parameters.all(|(field, value)| {
            let Some(constant) = nodes.graph.constant(value) else { return false };
            let tells = |name: &&str| name.contains('.') && !names::is_anonymous(name);
            let name = constant.name.as_deref().filter(tells);
            name.is_none_or(|name| names_field(name, field.name))
        })
}

/// Whether each parameter belongs to this layer alone, or can be read from it, or is so small that each may have its own.
fn may_be_field(nodes: &Nodes<'_>, candidate: &Candidate<'_>, claimed: &BTreeSet<ValueId>) -> bool {
    candidate.layer.parameters().all(|(field, value)| {
        let Some(value) = value else { return true };
        let graph = nodes.graph;
        let uses_of =
            |&node: &NodeId| graph.node(node).inputs.iter().filter(|input| **input == Some(value)).count();
        let by_the_layer: usize = candidate.nodes.iter().map(uses_of).sum();
        let alone = nodes.uses(value) <= by_the_layer;
        let name = graph.constant(value).and_then(|constant| constant.name.as_deref());
        let small = graph.ty(value).rank() <= 1 && names::is_anonymous(name.unwrap_or_default());
        small || (!claimed.contains(&value) && (alone || field.slot == Slot::Parameter))
    })
}
