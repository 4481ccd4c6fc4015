//! Parameters that an exporter merged because their contents were equal, as those of untrained networks often are: the file
//! has one of them, and does not tell where a checkpoint's others belong.

use super::super::proto::{GraphProto, NodeProto};
use super::super::scope;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What stands for more than itself.
#[derive(Default)]
pub(super) struct Merged {
    /// Initializers that stand for parameters which are no initializers, though modules use them.
    lost: HashMap<String, Vec<String>>,
    /// Initializers that modules use which ought to have their own.
    shared: HashSet<String>,
    /// Initializers with several uses that are different if all their numbers are the same.
    suspect: HashSet<String>,
}

impl Merged {
    /// By what the exporter tells: `targets` are the parameters of the network, `folded` those that are in other
    /// initializers.
    pub(super) fn told(graph: &GraphProto, targets: &HashSet<String>, folded: &HashSet<String>) -> Self {
        let there: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let here = |target: &str| there.contains(target) || folded.contains(target);
        let used: HashSet<String> = graph.node.iter().filter_map(path_of).collect();
        let present: BTreeSet<&str> =
            targets.iter().map(String::as_str).filter(|target| there.contains(target)).collect();
        let mut by_pattern: BTreeMap<String, &str> = BTreeMap::new();
        let mut by_parent: BTreeMap<&str, &str> = BTreeMap::new();
        for &target in &present {
            by_pattern.entry(pattern(target)).or_insert(target);
            by_parent.entry(parent(target)).or_insert(target);
        }
        let missing: BTreeSet<&str> =
            targets.iter().map(String::as_str).filter(|target| !here(target)).collect();
        let mut lost: HashMap<String, Vec<String>> = HashMap::new();
        for target in missing.into_iter().filter(|target| !target.ends_with("num_batches_tracked")) {
            let alike = by_pattern.get(&pattern(target)).filter(|_| used.contains(parent(target)));
            let beside = by_parent.get(parent(target)).filter(|_| !parent(target).is_empty());
            if let Some(stand_in) = alike.or(beside) {
                lost.entry((*stand_in).to_owned()).or_default().push(target.to_owned());
            }
        }
        Self { lost, ..Self::default() }
    }

    /// By where nodes use initializers, for an exporter that tells nothing else.
    pub(super) fn by_uses(graph: &GraphProto) -> Self {
        let there: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let mut uses: HashMap<&str, BTreeSet<(String, &str, usize)>> = HashMap::new();
        for node in &graph.node {
            let Some(path) = path_of(node) else { continue };
            for (at, input) in
                node.input.iter().enumerate().filter(|(_, input)| there.contains(input.as_str()))
            {
                uses.entry(input).or_default().insert((path.clone(), &node.op_type, at));
            }
        }
        let mut found = Self::default();
        for node in graph.node.iter().filter(|node| node.op_type == "Identity") {
            // `bn.running_var = Identity(bn.weight)`: the one that was equal, under the other's name.
            let (Some(name), Some(other)) = (node.input.first(), node.output.first()) else { continue };
            if there.contains(name.as_str()) && !other.starts_with('/') {
                let alike = pattern(name) == pattern(other);
                if alike { &mut found.shared } else { &mut found.suspect }.insert(name.clone());
            }
        }
        for (name, uses) in uses {
            // The same place of the same operation, in modules of a list.
            let places: BTreeSet<(String, &str, usize)> =
                uses.iter().map(|(path, operation, at)| (pattern(path), *operation, *at)).collect();
            let modules: BTreeSet<&str> = uses.iter().map(|(path, ..)| path.as_str()).collect();
            let norm = uses.iter().filter(|(_, operation, _)| operation.ends_with("Normalization")).count();
            if modules.len() > 1 && places.len() == 1 {
                found.shared.insert(name.to_owned());
            } else if modules.len() > 1 || norm > 1 {
                found.suspect.insert(name.to_owned());
            }
        }
        found
    }

    /// Which parameters an initializer may stand for besides its own, and whether there are any.
    pub(super) fn others(&self, name: &str, uniform: impl FnOnce() -> bool) -> Option<Vec<String>> {
        if let Some(others) = self.lost.get(name) {
            return Some(others.clone());
        }
        let merged = self.shared.contains(name) || (self.suspect.contains(name) && uniform());
        merged.then(Vec::new)
    }
}

/// The path of the module that a node is in, as the first call's: the older exporter numbers the later ones.
fn path_of(node: &NodeProto) -> Option<String> {
    let path = scope::scope_of(node).pop()?.path;
    if !node.metadata_props.is_empty() {
        return Some(path);
    }
    let first = |part: &str| match part.rsplit_once('_') {
        Some((stem, number)) if !stem.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => {
            stem.to_owned()
        }
        _ => part.to_owned(),
    };
    Some(path.split('.').map(first).collect::<Vec<_>>().join("."))
}

fn parent(key: &str) -> &str {
    key.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// A path with its numbers left out: the same for all items of a list.
fn pattern(path: &str) -> String {
    let part = |part: &str| match part.bytes().all(|byte| byte.is_ascii_digit()) {
        true => "#".to_owned(),
        false => part.to_owned(),
    };
    path.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::TensorProto;

    fn graph(initializers: &[&str], nodes: &[(&str, &str, &[&str])]) -> GraphProto {
        let tensor = |name: &&str| TensorProto { name: (*name).into(), ..TensorProto::default() };
        let node = |(operation, path, inputs): &(&str, &str, &[&str])| NodeProto {
            op_type: (*operation).into(),
            name: format!("/{path}/{operation}"),
            input: inputs.iter().map(|input| (*input).into()).collect(),
            ..NodeProto::default()
        };
        GraphProto {
            initializer: initializers.iter().map(tensor).collect(),
            node: nodes.iter().map(node).collect(),
            ..GraphProto::default()
        }
    }

    #[test]
    fn parameters_that_are_told_and_not_there_were_merged() {
        let targets = ["n.0.weight", "n.1.weight", "a.weight", "a.bias", "head.weight", "unused.weight"];
        let targets = targets.map(str::to_owned).into_iter().collect();
        let graph = graph(
            &["n.0.weight", "a.weight"],
            &[
                ("LayerNormalization", "n/n.0", &["x", "n.0.weight"]),
                ("LayerNormalization", "n/n.1", &["x", "n.0.weight"]),
            ],
        );
        let merged = Merged::told(&graph, &targets, &HashSet::new());
        assert_eq!(merged.others("n.0.weight", || false), Some(vec!["n.1.weight".to_owned()]));
        assert_eq!(merged.others("a.weight", || false), Some(vec!["a.bias".to_owned()]));
        assert_eq!(merged.lost.len(), 2, "{:?}", merged.lost);
    }

    #[test]
    fn copies_under_other_names_tell_of_merging() {
        let mut graph = graph(&["l.0.weight", "bn.weight", "table"], &[]);
        for (input, output) in [
            ("l.0.weight", "l.1.weight"),
            ("bn.weight", "bn.running_var"),
            ("table", "head.weight"),
            ("y", "z"),
        ] {
            let (input, output) = (vec![input.into()], vec![output.into()]);
            graph.node.push(NodeProto { op_type: "Identity".into(), input, output, ..NodeProto::default() });
        }
        let merged = Merged::by_uses(&graph);
        assert!(merged.others("l.0.weight", || false).is_some());
        for name in ["bn.weight", "table"] {
            assert!(
                merged.others(name, || false).is_none() && merged.others(name, || true).is_some(),
                "{name}"
            );
        }
        assert!(merged.others("y", || true).is_none());
    }

    #[test]
    fn uses_in_different_places_tell_of_merging() {
        let graph = graph(
            &["bn.weight", "l.0.weight", "table", "w"],
            &[
                ("BatchNormalization", "bn", &["x", "bn.weight", "b", "m", "bn.weight"]),
                ("MatMul", "l/l.0", &["x", "l.0.weight"]),
                ("MatMul", "l/l.1", &["x", "l.0.weight"]),
                ("Gather", "emb", &["table", "i"]),
                ("Transpose", "head", &["table"]),
                ("MatMul", "fc", &["x", "w"]),
                ("MatMul", "fc_1", &["x", "w"]),
            ],
        );
        let merged = Merged::by_uses(&graph);
        assert!(merged.others("l.0.weight", || false).is_some());
        for (name, when_uniform) in [("bn.weight", true), ("table", true), ("w", false)] {
            assert!(merged.others(name, || false).is_none(), "{name}");
            assert_eq!(merged.others(name, || true).is_some(), when_uniform, "{name}");
        }
    }
}
