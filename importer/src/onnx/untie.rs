//! Parameters that are one in the file: which they are, and how they are made two.
//!
//! A language model's head often is its embedding's table: the file has one initializer under one of the two keys. Who replaces or
//! trains one of them alone wants each to have its own.

use crate::error::ImportErrorKind;
use crate::ir::{Graph, NodeId, Provenance, Region, ValueId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A use of a parameter under a key that it is not stored under.
struct Tie {
    node: NodeId,
    /// Which operand.
    operand: usize,
    value: ValueId,
    /// The key it is stored under.
    stored: String,
    /// The key of the module that uses it.
    key: String,
}

/// Gives a parameter that is tied to others contents of its own, wherever its module uses it.
///
/// # Errors
/// When no tied parameter has the key.
pub(super) fn untie(graph: &mut Graph, wanted: &str) -> Result<(), ImportErrorKind> {
    let mut ties = ties(graph);
    let mut known: Vec<String> = ties.iter().flat_map(|tie| [tie.stored.clone(), tie.key.clone()]).collect();
    // One that is stored under the key lets go of all others.
    ties.retain(|tie| tie.key == wanted || tie.stored == wanted);
    if ties.is_empty() {
        known.sort();
        known.dedup();
        return Err(ImportErrorKind::UnknownTie { key: wanted.to_owned(), known });
    }
    let mut copies: BTreeMap<(ValueId, String), ValueId> = BTreeMap::new();
    for Tie { node, operand, value, stored, key } in ties {
        let copy = match copies.get(&(value, key.clone())) {
            Some(&copy) => copy,
            None => {
                let Some(constant) = graph.constant(value).cloned() else { continue };
                let shape = constant.data.shape.clone();
                let made = Arc::new(Provenance::Key { key: key.clone(), shape });
                let copy = graph.add_derived(Some(key.clone()), constant.data, Some(made));
                graph.tied_keys.remove(&key);
                graph.ties.entry(stored).or_default().remove(&key);
                copies.insert((value, key), copy);
                copy
            }
        };
        if let Some(input) = graph.node_mut(node).inputs.get_mut(operand) {
            *input = Some(copy);
        }
    }
    Ok(())
}

/// Notes which keys the tied parameters are stored under.
pub(super) fn find_ties(graph: &mut Graph) {
    for Tie { stored, key, .. } in ties(graph) {
        graph.ties.entry(stored).or_default().insert(key);
    }
}

/// Every use of a tied parameter under another key than the file's.
fn ties(graph: &Graph) -> Vec<Tie> {
    let mut ties = Vec::new();
    let mut regions: Vec<&Region> = vec![&graph.root];
    while let Some(region) = regions.pop() {
        for &id in &region.nodes {
            ties.extend(ties_of(graph, id));
            regions.extend(graph.node(id).op.regions());
        }
    }
    ties
}

/// The operands of a node that the network has under another key than the file.
fn ties_of(graph: &Graph, id: NodeId) -> Vec<Tie> {
    let node = graph.node(id);
    let Some(module) = node.origin.scope.last().map(|entry| entry.path.as_str()) else { return Vec::new() };
    let tie = |(operand, input): (usize, &Option<ValueId>)| {
        let value = (*input)?;
        let Some(Provenance::Key { key: stored, .. }) = graph.constant(value)?.provenance.as_deref() else {
            return None;
        };
        let leaf = stored.rsplit('.').next().unwrap_or(stored);
        let key = if module.is_empty() { leaf.to_owned() } else { format!("{module}.{leaf}") };
        let tied = key != *stored && graph.tied_keys.contains(&key);
        tied.then(|| Tie { node: id, operand, value, stored: stored.clone(), key })
    };
    node.inputs.iter().enumerate().filter_map(tie).collect()
}

#[cfg(test)]
mod tests {
    use crate::ir::Graph;
    use crate::onnx::{LoadOptions, load};
    use crate::passes::{Options, optimize};
    use std::path::Path;

    fn gpt(untie: &[&str]) -> Result<Graph, String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/training/gpt/model.onnx");
        let untie = untie.iter().map(|key| (*key).to_owned()).collect();
        let options = LoadOptions { trainable: true, untie, ..LoadOptions::default() };
        let mut graph = load(&path, &options).map_err(|error| error.to_string())?;
        optimize(&mut graph, &Options { trainable: true, ..Options::default() });
        Ok(graph)
    }

    /// The parameters of the head and of the table that the graph still uses.
    fn used(graph: &Graph) -> Vec<String> {
        let inputs = graph.root.nodes.iter().flat_map(|&id| &graph.node(id).inputs);
        let names = inputs.flatten().filter_map(|&input| graph.constant(input)?.name.clone());
        let mut names: Vec<String> =
            names.filter(|name| name.contains("wte") || name.contains("lm_head")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_head_and_its_table_are_untied_by_either_name() {
        let tied = used(&gpt(&[]).unwrap());
        assert!(tied.iter().all(|name| *name == tied[0]), "{tied:?}");
        let both = ["model.lm_head.weight", "model.transformer.wte.weight"];
        for key in both {
            assert_eq!(used(&gpt(&[key]).unwrap()), both, "{key}");
        }
        let error = gpt(&["model.head.weight"]).unwrap_err();
        assert!(both.iter().all(|key| error.contains(key)), "{error}");
    }
}
