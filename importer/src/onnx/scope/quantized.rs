//! Modules of the nodes that ONNX Runtime's quantizer puts in place of others, which forget where these were: its weights still have
//! their names, and what has none belongs to what it is computed from.

use super::{DEEPEST, LONGEST, SlashPaths};
use crate::ir::{ScopeEntry, is_anonymous, without_quantization};
use crate::onnx::proto::{GraphProto, NodeProto};
use std::collections::{BTreeMap, BTreeSet};

/// The modules around nodes that say nothing themselves, by the names of their first results.
#[derive(Default)]
pub(crate) struct QuantizedScopes(BTreeMap<String, Vec<ScopeEntry>>);

/// The scope of what a value is computed by.
struct Made<'g> {
    scope: Vec<ScopeEntry>,
    /// Whether the innermost module is the layer that computes it.
    by_layer: bool,
    users: usize,
    name: &'g str,
}

/// Whether a node is one that only a quantizer makes.
fn is_quantized(node: &NodeProto) -> bool {
    let operator = node.op_type.as_str();
    operator.starts_with("QLinear") || matches!(operator, "QGemm" | "ConvInteger" | "MatMulInteger")
}

impl QuantizedScopes {
    /// The modules in a graph.
    pub(crate) fn of(graph: &GraphProto, paths: &SlashPaths) -> Self {
        if !graph.node.iter().any(|node| is_quantized(node) || node.op_type == "QuantizeLinear") {
            return Self::default();
        }
        let initializers: BTreeSet<&str> =
            graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let mut users: BTreeMap<&str, usize> = BTreeMap::new();
        for input in graph.node.iter().flat_map(|node| &node.input) {
            *users.entry(input.as_str()).or_insert(0) += 1;
        }
        let told: Vec<Vec<ScopeEntry>> = graph.node.iter().map(|node| paths.scope_of(node)).collect();
        let known = Known::of(&told);
        let tells = told.iter().any(|scope| !scope.is_empty());
        let (mut found, mut made): (BTreeMap<String, Vec<ScopeEntry>>, BTreeMap<&str, Made<'_>>) =
            Default::default();
        for (node, told) in graph.node.iter().zip(&told) {
            let Some(name) = node.output.first().map(String::as_str) else { continue };
            let mut scope = told.clone();
            let mut by_layer = false;
            if scope.is_empty() && is_quantized(node) {
                let layer = node.input.iter().filter(|name| initializers.contains(name.as_str()));
                match layer.filter_map(|name| layer_of(name)).next() {
                    Some(layer) => (scope, by_layer) = (known.scope(layer), true),
                    None => scope = around(node, &made),
                }
            } else if scope.is_empty() && node.op_type == "QuantizeLinear" {
                // Everybody who needs the number takes its integers; those of an input are made before any module.
                let input = node.input.first().map(String::as_str).unwrap_or_default();
                (scope, by_layer) = match made.get(input) {
                    Some(of) => (of.scope.clone(), of.by_layer),
                    None if tells && !initializers.contains(input) => (known.scope_of_root(), false),
                    None => (Vec::new(), false),
                };
            }
            if told.is_empty() && !scope.is_empty() {
                found.insert(name.to_owned(), scope.clone());
            }
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                let users = users.get(name.as_str()).copied().unwrap_or(0);
                made.insert(name, Made { scope: scope.clone(), by_layer, users, name });
            }
        }
        Self(found)
    }

    /// The modules around a node, the root first; empty when nothing tells.
    pub(crate) fn scope_of(&self, node: &NodeProto) -> Vec<ScopeEntry> {
        let scope = node.output.first().and_then(|name| self.0.get(name));
        scope.cloned().unwrap_or_default()
    }
}

/// The path of the layer that a parameter is one of: `layer1.0.conv1` of `layer1.0.conv1.weight_quantized`.
fn layer_of(parameter: &str) -> Option<&str> {
    let (path, last) = without_quantization(parameter).rsplit_once('.')?;
    let names = path.split('.').all(|part| !part.is_empty() && !part.contains('/'));
    let fits = path.len() <= LONGEST && path.split('.').count() < DEEPEST;
    (names && fits && !last.is_empty() && !is_anonymous(parameter)).then_some(path)
}

/// The innermost module of what a node alone uses, of all that it does: what it has from elsewhere comes into this.
fn around(node: &NodeProto, made: &BTreeMap<&str, Made<'_>>) -> Vec<ScopeEntry> {
    let operands = node.input.iter().filter_map(|name| made.get(name.as_str()));
    let own: BTreeMap<&str, &Made<'_>> = operands
        .filter(|made| made.users == 1 && !made.scope.is_empty())
        .map(|made| (made.name, made))
        .collect();
    let scopes = own.values().map(|made| {
        let scope = made.scope.as_slice();
        match scope.split_last() {
            Some((_, outer)) if made.by_layer => outer,
            _ => scope,
        }
    });
    let common = scopes.reduce(|a, b| {
        let shared = a.iter().zip(b).take_while(|(a, b)| a.path == b.path).count();
        a.get(..shared).unwrap_or_default()
    });
    common.unwrap_or_default().to_vec()
}

/// What other nodes of the file tell of modules.
struct Known<'t> {
    classes: BTreeMap<&'t str, &'t str>,
    /// Paths that have modules below them, and are none: lists of modules.
    lists: BTreeSet<&'t str>,
}

impl<'t> Known<'t> {
    fn of(told: &'t [Vec<ScopeEntry>]) -> Self {
        let entries = || told.iter().flatten();
        let classes: BTreeMap<&str, &str> =
            entries().map(|entry| (entry.path.as_str(), entry.class.as_str())).collect();
        let outer = entries().flat_map(|entry| beginnings(&entry.path));
        let lists = outer.filter(|path| !classes.contains_key(path)).collect();
        Self { classes, lists }
    }

    /// The network itself.
    fn scope_of_root(&self) -> Vec<ScopeEntry> {
        let class = self.classes.get("").copied().unwrap_or_default();
        vec![ScopeEntry { path: String::new(), class: class.to_owned() }]
    }

    /// The modules around and of a layer.
    fn scope(&self, layer: &str) -> Vec<ScopeEntry> {
        let paths = [""].into_iter().chain(beginnings(layer)).chain([layer]);
        let modules = paths.filter(|path| !self.lists.contains(path));
        let entry = |path: &str| {
            let class = self.classes.get(path).copied().unwrap_or_default();
            ScopeEntry { path: path.to_owned(), class: class.to_owned() }
        };
        modules.map(entry).collect()
    }
}

/// The paths around a path, the outermost first, without the root's.
fn beginnings(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('.').filter_map(|(at, _)| path.get(..at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{StringStringEntryProto, TensorProto};

    fn node(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
        NodeProto {
            op_type: operator.into(),
            input: inputs.iter().map(|&name| name.into()).collect(),
            output: vec![output.into()],
            ..NodeProto::default()
        }
    }

    fn scopes(nodes: Vec<NodeProto>, initializers: &[&str]) -> QuantizedScopes {
        let tensor = |name: &&str| TensorProto { name: (*name).into(), ..TensorProto::default() };
        let graph = GraphProto {
            node: nodes,
            initializer: initializers.iter().map(tensor).collect(),
            ..GraphProto::default()
        };
        QuantizedScopes::of(&graph, &SlashPaths::of(&graph))
    }

    fn paths(scopes: &QuantizedScopes, output: &str) -> Vec<String> {
        scopes.scope_of(&node("", &[], output)).into_iter().map(|entry| entry.path).collect()
    }

    #[test]
    fn a_weights_name_tells_and_a_sum_is_where_its_own_operands_are() {
        let weights =
            ["a.0.conv.weight_quantized", "a.1.conv.weight_quantized", "a.1.down.0.weight_quantized"];
        let nodes = vec![
            node("QLinearConv", &["x", weights[0]], "first"),
            node("QLinearAdd", &["first", "x"], "sum"),
            node("QLinearConv", &["sum", weights[1]], "second"),
            node("QLinearConv", &["sum", weights[2]], "other"),
            node("QLinearAdd", &["second", "other"], "last"),
            node("QLinearMul", &["x", "sum"], "unknown"),
        ];
        let scopes = scopes(nodes, &weights);
        assert_eq!(paths(&scopes, "first"), ["", "a", "a.0", "a.0.conv"]);
        assert_eq!(paths(&scopes, "sum"), ["", "a", "a.0"], "what comes from elsewhere says nothing");
        assert_eq!(paths(&scopes, "last"), ["", "a", "a.1"], "the innermost module of both");
        assert!(paths(&scopes, "unknown").is_empty());
    }

    #[test]
    fn lists_of_modules_are_none_and_classes_are_those_of_others() {
        let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
        let mut told = node("Relu", &["x"], "y");
        told.metadata_props = vec![
            entry("pkg.torch.onnx.name_scopes", "['', 'layers.0', 'layers.0.act', 'relu']"),
            entry("pkg.torch.onnx.class_hierarchy", "['Net', 'Block', 'ReLU', 'aten.relu']"),
        ];
        let weight = "layers.0.fc.weight_quantized";
        let scopes = scopes(vec![told, node("QGemm", &["y", weight], "z")], &[weight]);
        let scope = scopes.scope_of(&node("", &[], "z"));
        let found: Vec<(&str, &str)> =
            scope.iter().map(|entry| (entry.path.as_str(), entry.class.as_str())).collect();
        assert_eq!(found, [("", "Net"), ("layers.0", "Block"), ("layers.0.fc", "")]);
    }

    #[test]
    fn each_part_of_a_split_is_quantized_where_it_is_split() {
        let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
        let mut split = node("Split", &["x"], "first");
        split.output.push("second".into());
        split.metadata_props = vec![
            entry("pkg.torch.onnx.name_scopes", "['', 'attn', 'split']"),
            entry("pkg.torch.onnx.class_hierarchy", "['Net', 'Attention', 'aten.split']"),
        ];
        let quantized = |of: &str, to: &str| node("QuantizeLinear", &[of, "scale"], to);
        let nodes = vec![split, quantized("first", "a"), quantized("second", "b"), quantized("x", "c")];
        let scopes = scopes(nodes, &["scale"]);
        for (output, scope) in [("a", &["", "attn"][..]), ("b", &["", "attn"]), ("c", &[""])] {
            assert_eq!(paths(&scopes, output), scope, "{output}");
        }
    }

    #[test]
    fn names_that_are_no_paths_tell_nothing() {
        let long = format!("{}w", "a.".repeat(1000));
        let names = ["weight_quantized", "onnx::Conv_1_quantized", "a..b.weight", "/a/b.0/weight", &long];
        for name in names {
            let scopes = scopes(vec![node("QLinearConv", &["x", name], "y")], &[name]);
            assert!(paths(&scopes, "y").is_empty(), "{name}");
        }
    }
}
