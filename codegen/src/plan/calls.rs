//! Modules that are called more than once: their nodes, call by call.

use super::{Plan, constants, cut};
use kiln_importer::ir::{NodeId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The calls of one module.
pub struct Calls {
    /// The nodes of each call.
    pub calls: Vec<Vec<NodeId>>,
    /// Nodes that all calls share: the caller's.
    pub shared: Vec<NodeId>,
}

/// Splits the nodes of a module, in execution order, where they do the same with the same parameters several times.
pub fn split(plan: &Plan<'_>, nodes: &[NodeId]) -> Option<Calls> {
    let parameters: Vec<Vec<ValueId>> = nodes.iter().map(|&node| parameters(plan, node)).collect();
    let first = parameters.iter().find(|list| !list.is_empty())?;
    if parameters.iter().filter(|list| *list == first).count() < 2 {
        return None;
    }
    let tokens: BTreeMap<NodeId, String> = nodes
        .iter()
        .zip(&parameters)
        .map(|(&node, list)| (node, format!("{} {list:?}", cut::token(plan, node))))
        .collect();
    let anchor = |node: &NodeId| {
        let at = nodes.iter().position(|other| other == node);
        at.is_some_and(|at| parameters[at] == *first)
    };
    if let Some(calls) = equal_parts(nodes, &tokens, &anchor) {
        return Some(Calls { calls, shared: Vec::new() });
    }
    // What all calls share was computed in the first of them alone.
    let shared = shared(plan, nodes, &anchor);
    let rest: Vec<NodeId> = nodes.iter().copied().filter(|node| !shared.contains(node)).collect();
    let calls = equal_parts(&rest, &tokens, &anchor)?;
    Some(Calls { calls, shared })
}

/// The constants that a node uses and that are no literals.
fn parameters(plan: &Plan<'_>, node: NodeId) -> Vec<ValueId> {
    let inputs = plan.graph.node(node).inputs.iter().copied().flatten();
    inputs
        .filter(|&value| plan.graph.constant(value).is_some() && !constants::is_literal(plan, value))
        .collect()
}

/// Parts that begin alike, one an anchor, if all are equal.
fn equal_parts(
    nodes: &[NodeId],
    tokens: &BTreeMap<NodeId, String>,
    anchor: &dyn Fn(&NodeId) -> bool,
) -> Option<Vec<Vec<NodeId>>> {
    let anchors: Vec<usize> =
        nodes.iter().enumerate().filter(|(_, node)| anchor(node)).map(|(i, _)| i).collect();
    let lead = *anchors.first()?;
    // A part may use its first parameter more than once.
    (1..=anchors.len() / 2).filter(|step| anchors.len().is_multiple_of(*step)).find_map(|step| {
        let starts: Vec<usize> = anchors.iter().step_by(step).filter_map(|at| at.checked_sub(lead)).collect();
        let ends = starts.iter().skip(1).copied().chain([nodes.len()]);
        let parts: Vec<&[NodeId]> =
            starts.iter().zip(ends).filter_map(|(&start, end)| nodes.get(start..end)).collect();
        let alike = |part: &&[NodeId]| {
            part.len() == parts[0].len()
                && part.iter().zip(parts[0]).all(|(a, b)| tokens.get(a) == tokens.get(b))
        };
        (parts.len() >= 2 && parts.len() == starts.len() && parts.iter().all(alike))
            .then(|| parts.iter().map(|part| part.to_vec()).collect())
    })
}

/// Nodes before the first anchor whose results later calls use too, with what only these are made from.
fn shared(plan: &Plan<'_>, nodes: &[NodeId], anchor: &dyn Fn(&NodeId) -> bool) -> Vec<NodeId> {
    let Some(lead) = nodes.iter().position(anchor) else { return Vec::new() };
    let Some(second) = nodes.iter().skip(lead + 1).position(anchor).map(|at| at + lead + 1) else {
        return Vec::new();
    };
    let uses = |nodes: &[NodeId]| -> BTreeSet<ValueId> {
        nodes.iter().flat_map(|&node| super::operands(plan.graph, node)).collect()
    };
    let late = uses(&nodes[second..]);
    let mut shared: Vec<NodeId> = Vec::new();
    for at in (0..lead).rev() {
        let node = nodes[at];
        let outputs = &plan.graph.node(node).outputs;
        let used_late = outputs.iter().any(|value| late.contains(value));
        let others: Vec<NodeId> =
            nodes[at + 1..].iter().copied().filter(|other| !shared.contains(other)).collect();
        let users = uses(&others);
        let only_shared = !shared.is_empty() && outputs.iter().all(|value| !users.contains(value));
        if used_late || only_shared {
            shared.push(node);
        }
    }
    shared
}
