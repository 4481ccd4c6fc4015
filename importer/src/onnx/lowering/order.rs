//! The order of a body's nodes: definitions before uses, otherwise as in the file.

use super::problems::MOST as MOST_PROBLEMS;
use super::{Body, Lowering, operator_name};
use crate::error::{ImportError, ImportErrorKind, ImportResult, Site};
use crate::onnx::proto::{GraphProto, NodeProto};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::rc::Rc;

impl<'m> Lowering<'_, 'm> {
    /// Sorts the nodes of a body that yields these names; finds duplicate names, names that nothing defines, and cycles.
    pub(super) fn sorted(&mut self, nodes: &'m [NodeProto], outputs: &[&'m str]) -> ImportResult<Body<'m>> {
        let mut read: HashSet<&'m str> = outputs.iter().copied().collect();
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
        let mut operands: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        let mut waits: Vec<usize> = vec![0; nodes.len()];
        let mut undefined = Vec::new();
        for (n, node) in nodes.iter().enumerate() {
            let mut seen = HashSet::new();
            for name in uses(node).into_iter().filter(|name| seen.insert(*name)) {
                read.insert(name);
                match producers.get(name) {
                    Some(&producer) => {
                        operands[n].push(producer);
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
        let ranks =
            if self.model.paths.tell() { ranks(&operands, &users) } else { (0..nodes.len()).collect() };
        let mut ready: BinaryHeap<Reverse<(usize, usize)>> =
            (0..nodes.len()).filter(|&n| waits[n] == 0).map(|n| Reverse((ranks[n], n))).collect();
        let mut order = Vec::with_capacity(nodes.len());
        while let Some(Reverse((_, n))) = ready.pop() {
            order.push(&nodes[n]);
            for &user in &users[n] {
                waits[user] -= 1;
                if waits[user] == 0 {
                    ready.push(Reverse((ranks[user], user)));
                }
            }
        }
        if order.len() < nodes.len() {
            let stuck = nodes.iter().zip(&waits).filter(|(_, waits)| **waits > 0);
            let nodes = stuck.map(|(node, _)| label(node)).collect();
            return Err(ImportErrorKind::Cycle { nodes }.into());
        }
        Ok(Body { nodes: order, read: Rc::new(read) })
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

/// Places in an order that follows from what nodes need: what makes a node's operands comes right before it, one operand after the
/// other. TensorFlow's exporter writes nodes in an order that chance decides, so that equal blocks look different.
fn ranks(operands: &[Vec<usize>], users: &[Vec<usize>]) -> Vec<usize> {
    // What is not reached, a cycle, comes last.
    let mut ranks = vec![usize::MAX; operands.len()];
    let mut visited = vec![false; operands.len()];
    let mut next = 0;
    for last in (0..operands.len()).filter(|&n| users[n].is_empty()) {
        // Nodes, and how many of their operands were looked at.
        let mut path = vec![(last, 0)];
        visited[last] = true;
        while let Some((node, seen)) = path.last_mut() {
            let node = *node;
            match operands[node].get(*seen) {
                Some(&operand) => {
                    *seen += 1;
                    if !std::mem::replace(&mut visited[operand], true) {
                        path.push((operand, 0));
                    }
                }
                None => {
                    ranks[node] = next;
                    next += 1;
                    path.pop();
                }
            }
        }
    }
    ranks
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
    let mut free = names_read(graph);
    free.retain(|name| !defined.contains(name));
    free
}

/// Names that a graph's nodes need, and those that it yields.
pub(crate) fn names_read(graph: &GraphProto) -> Vec<&str> {
    let mut read: Vec<&str> = graph.node.iter().flat_map(uses).collect();
    read.extend(graph.output.iter().map(|output| output.name.as_str()).filter(|name| !name.is_empty()));
    read
}

#[cfg(test)]
mod tests {
    use super::ranks;

    #[test]
    fn operands_come_right_before_their_user() {
        // 0 and 1 are what 2 needs, in the other order; 3 needs 2 and 4.
        let operands = [vec![], vec![], vec![1, 0], vec![2, 4], vec![]];
        let users = [vec![2], vec![2], vec![3], vec![], vec![3]];
        assert_eq!(ranks(&operands, &users), [1, 0, 2, 4, 3]);
        // A cycle has no place.
        assert_eq!(ranks(&[vec![1], vec![0]], &[vec![1], vec![0]]), [usize::MAX; 2]);
    }
}
