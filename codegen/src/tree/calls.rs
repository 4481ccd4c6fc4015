//! Modules that are called more than once: their nodes, call by call.

use super::constants;
use super::layers::Layers;
use super::nodes::{self, Nodes};
use super::outline::Outlines;
use crate::ids::OutlineId;
use kiln_importer::ir::{NodeId, ValueId};
use std::collections::HashSet;

/// The calls of one module.
pub struct Calls {
    /// The nodes of each call.
    pub calls: Vec<Vec<NodeId>>,
    /// Nodes that all calls share: the caller's.
    pub shared: Vec<NodeId>,
}

/// A node of the module.
struct Item {
    node: NodeId,
    /// What it does, and with which parameters.
    does: (OutlineId, Vec<ValueId>),
    /// Whether it uses the parameters by which calls are told apart.
    is_anchor: bool,
}

/// Splits the nodes of a module, in execution order, where they do the same with the same parameters several times.
pub fn split(nodes: &Nodes<'_>, layers: &Layers, inside: &[NodeId]) -> Option<Calls> {
    let parameters: Vec<Vec<ValueId>> = inside.iter().map(|&node| parameters(nodes, node)).collect();
    let first = parameters.iter().find(|list| !list.is_empty())?.clone();
    if parameters.iter().filter(|list| **list == first).count() < 2 {
        return None;
    }
    let mut outlines = Outlines::new(nodes, layers);
    let items = inside.iter().zip(parameters).map(|(&node, parameters)| {
        let is_anchor = parameters == first;
        Item { node, does: (outlines.of(node), parameters), is_anchor }
    });
    let items: Vec<Item> = items.collect();
    if let Some(calls) = equal_parts(&items.iter().collect::<Vec<_>>()) {
        return Some(Calls { calls, shared: Vec::new() });
    }
    // What all calls share was computed in the first of them alone.
    let shared = shared(nodes, &items);
    let rest: Vec<&Item> = items.iter().filter(|item| !shared.contains(&item.node)).collect();
    let calls = equal_parts(&rest)?;
    Some(Calls { calls, shared: shared.into_iter().collect() })
}

/// The constants that a node uses and that are no literals.
pub fn parameters(nodes: &Nodes<'_>, node: NodeId) -> Vec<ValueId> {
    let graph = nodes.graph;
    let inputs = graph.node(node).inputs.iter().copied().flatten();
    inputs.filter(|&value| graph.constant(value).is_some() && !constants::is_literal(graph, value)).collect()
}

/// Parts that begin alike, one an anchor, if all are equal.
fn equal_parts(items: &[&Item]) -> Option<Vec<Vec<NodeId>>> {
    let anchors: Vec<usize> =
        items.iter().enumerate().filter(|(_, item)| item.is_anchor).map(|(i, _)| i).collect();
    let lead = *anchors.first()?;
    // A part may use its first parameter more than once.
    (1..=anchors.len() / 2).filter(|step| anchors.len().is_multiple_of(*step)).find_map(|step| {
        let starts: Vec<usize> = anchors.iter().step_by(step).filter_map(|at| at.checked_sub(lead)).collect();
        let ends = starts.iter().skip(1).copied().chain([items.len()]);
        let parts: Vec<&[&Item]> =
            starts.iter().zip(ends).filter_map(|(&start, end)| items.get(start..end)).collect();
        let alike = |part: &&[&Item]| {
            part.len() == parts[0].len() && part.iter().zip(parts[0]).all(|(a, b)| a.does == b.does)
        };
        (parts.len() >= 2 && parts.len() == starts.len() && parts.iter().all(alike))
            .then(|| parts.iter().map(|part| part.iter().map(|item| item.node).collect()).collect())
    })
}

/// Nodes before the first anchor whose results later calls use too, with what only these are made from.
fn shared(nodes: &Nodes<'_>, items: &[Item]) -> HashSet<NodeId> {
    let graph = nodes.graph;
    let mut anchors = items.iter().enumerate().filter(|(_, item)| item.is_anchor).map(|(i, _)| i);
    let (Some(lead), Some(second)) = (anchors.next(), anchors.next()) else { return HashSet::new() };
    let uses = |items: &[Item]| -> HashSet<ValueId> {
        items.iter().flat_map(|item| nodes::operands(graph, item.node)).collect()
    };
    let late = uses(&items[second..]);
    let mut used_by_others = uses(&items[lead..]);
    let mut shared = HashSet::new();
    for item in items[..lead].iter().rev() {
        let outputs = &graph.node(item.node).outputs;
        let used_late = outputs.iter().any(|value| late.contains(value));
        let only_shared = !shared.is_empty() && !outputs.iter().any(|value| used_by_others.contains(value));
        if used_late || only_shared {
            shared.insert(item.node);
        } else {
            used_by_others.extend(nodes::operands(graph, item.node));
        }
    }
    shared
}
