//! The order of a body's nodes: definitions before uses, otherwise as in the file.

use super::problems::MOST as MOST_PROBLEMS;
use super::{Lowering, operator_name};
use crate::error::{ImportError, ImportErrorKind, ImportResult, Site};
use crate::onnx::proto::{GraphProto, NodeProto};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

impl<'m> Lowering<'_, 'm> {
    /// Sorts the nodes; finds duplicate names, names that nothing defines, and cycles.
    pub(super) fn order(&mut self, nodes: &'m [NodeProto]) -> ImportResult<Vec<&'m NodeProto>> {
        let mut producers: HashMap<&str, usize> = HashMap::new();
        let taken = |name: &str| self.scopes.last().is_some_and(|scope| scope.values.contains_key(name));
        for (n, node) in nodes.iter().enumerate() {
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                if taken(name) || producers.insert(name, n).is_some() {
                    return Err(self.at(node, ImportErrorKind::Duplicate(name.clone())));
                }
            }
        }
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        let mut waits: Vec<usize> = vec![0; nodes.len()];
        let mut undefined = Vec::new();
        for (n, node) in nodes.iter().enumerate() {
            let needed: HashSet<&str> = uses(node).into_iter().collect();
            for name in needed {
                match producers.get(name) {
                    Some(&producer) => {
                        users[producer].push(n);
                        waits[n] += 1;
                    }
                    None if self.is_known(name) || undefined.len() > MOST_PROBLEMS => {}
                    None => undefined.push(self.at(node, ImportErrorKind::Undefined(name.to_owned()))),
                }
            }
        }
        // The nodes fail again when they are lowered, and lose their outputs then.
        undefined.into_iter().try_for_each(|error| self.note(error, []))?;
        let mut ready: BinaryHeap<Reverse<usize>> =
            (0..nodes.len()).filter(|&n| waits[n] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(nodes.len());
        while let Some(Reverse(n)) = ready.pop() {
            order.push(&nodes[n]);
            for &user in &users[n] {
                waits[user] -= 1;
                if waits[user] == 0 {
                    ready.push(Reverse(user));
                }
            }
        }
        if order.len() < nodes.len() {
            let stuck = nodes.iter().zip(&waits).filter(|(_, waits)| **waits > 0);
            let nodes = stuck.map(|(node, _)| label(node)).collect();
            return Err(ImportErrorKind::Cycle { nodes }.into());
        }
        Ok(order)
    }

    fn at(&self, node: &NodeProto, kind: ImportErrorKind) -> ImportError {
        let site = Site {
            node: node.name.clone(),
            output: node.output.first().cloned().unwrap_or_default(),
            operator: operator_name(node),
            opset: self.opset_of(&node.domain).unwrap_or(0),
            functions: self.frames.iter().filter_map(|f| f.function).map(|f| f.name.clone()).collect(),
        };
        ImportError { site: Some(Box::new(site)), ..kind.into() }
    }
}

/// What messages call a node.
pub(crate) fn label(node: &NodeProto) -> String {
    if node.name.is_empty() { node.output.first().cloned().unwrap_or_default() } else { node.name.clone() }
}

/// Names that a node needs: its inputs, and what its subgraphs use from around them.
fn uses(node: &NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> =
        node.input.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    for graph in subgraphs(node) {
        names.extend(free_names(graph));
    }
    names
}

/// The graphs among a node's attributes.
pub(crate) fn subgraphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|attribute| attribute.g.as_deref().into_iter().chain(&attribute.graphs))
}

/// Names that a graph uses and does not define.
fn free_names(graph: &GraphProto) -> Vec<&str> {
    let mut defined: HashSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
    defined.extend(graph.initializer.iter().map(|tensor| tensor.name.as_str()));
    let sparse = graph.sparse_initializer.iter().filter_map(|tensor| tensor.values.as_ref());
    defined.extend(sparse.map(|values| values.name.as_str()));
    defined.extend(graph.node.iter().flat_map(|node| &node.output).map(String::as_str));
    let mut free: Vec<&str> = graph.node.iter().flat_map(uses).collect();
    free.extend(graph.output.iter().map(|output| output.name.as_str()).filter(|name| !name.is_empty()));
    free.retain(|name| !defined.contains(name));
    free
}
