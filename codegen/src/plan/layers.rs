//! Which nodes become layers held in fields, and which of them are one layer that is called several times.

use super::{Plan, home};
use crate::names;
use kiln_importer::ir::{Implementation, Layer, LayerField, NodeId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes that could be calls of one layer.
struct Candidate {
    nodes: Vec<NodeId>,
    layer: Layer,
}

/// Decides it for the nodes of the model, in execution order.
pub fn choose(plan: &mut Plan<'_>, nodes: &[NodeId]) {
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    for &node in nodes {
        let Some(Implementation::Layer(layer)) = plan.implementations.get(&node) else { continue };
        if !has_plain_names(plan, layer) {
            continue;
        }
        let identity = format!("{} {:?} {:?}", layer.ty, layer.config, layer.fields);
        let at = *index.entry(identity).or_insert(candidates.len());
        match candidates.get_mut(at) {
            Some(candidate) => candidate.nodes.push(node),
            None => candidates.push(Candidate { nodes: vec![node], layer: layer.clone() }),
        }
    }
    let mut claimed: BTreeSet<ValueId> = BTreeSet::new();
    for candidate in candidates {
        if !may_be_field(plan, &candidate, &claimed) {
            continue;
        }
        let first = candidate.nodes[0];
        plan.layers.extend(candidate.nodes.iter().map(|&node| (node, first)));
        for (name, field) in &candidate.layer.fields {
            claimed.extend(field.value());
            if let LayerField::Parameter(value) = field {
                plan.held.entry(*value).or_insert((first, name));
            }
        }
    }
}

/// Takes a layer back: its nodes become plain calls.
pub fn refuse(plan: &mut Plan<'_>, first: NodeId) {
    plan.layers.retain(|_, layer| *layer != first);
    plan.held.retain(|_, (layer, _)| *layer != first);
}

/// Whether the layer has parameters, all of them constants, named as its fields are.
fn has_plain_names(plan: &Plan<'_>, layer: &Layer) -> bool {
    let mut parameters =
        layer.fields.iter().filter_map(|(name, field)| Some((name, field.value()?))).peekable();
    parameters.peek().is_some()
        && parameters.all(|(field, value)| {
            let Some(constant) = plan.graph.constant(value) else { return false };
            let name = constant.name.as_deref().filter(|name| name.contains('.'));
            name.is_none_or(|name| home::names_field(name, field))
        })
}

/// Whether each parameter belongs to this layer alone, or can be read from it, or is so small that each may have its own.
fn may_be_field(plan: &Plan<'_>, candidate: &Candidate, claimed: &BTreeSet<ValueId>) -> bool {
    candidate.layer.fields.iter().all(|(_, field)| {
        let Some(value) = field.value() else { return true };
        let own: usize = candidate
            .nodes
            .iter()
            .map(|&node| plan.graph.node(node).inputs.iter().filter(|input| **input == Some(value)).count())
            .sum();
        let alone = plan.uses.get(&value).copied().unwrap_or(0) <= own;
        let name = plan.graph.constant(value).and_then(|constant| constant.name.as_deref());
        let small = plan.graph.ty(value).rank() <= 1 && names::is_anonymous(name.unwrap_or_default());
        small || (!claimed.contains(&value) && (alone || matches!(field, LayerField::Parameter(_))))
    })
}
