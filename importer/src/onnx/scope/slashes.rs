//! Names that are paths as TensorFlow writes them: `model/block/conv/Conv2D`, from the network to the operation.

use super::{DEEPEST, LONGEST, counted, scope_of};
use crate::ir::ScopeEntry;
use crate::onnx::proto::{GraphProto, NodeProto};
use std::collections::HashMap;

/// What the names of a file's nodes and initializers say as paths.
#[derive(Default)]
pub(crate) struct SlashPaths {
    /// Whether nodes have such names.
    tell: bool,
    /// The modules that all nodes are in: the network's own name, which says nothing.
    around: String,
    /// Paths of names below it that tell of blocks.
    blocks: HashMap<String, String>,
    /// Initializers, by as many parts of their names as tell them apart.
    constants: HashMap<String, String>,
}

impl SlashPaths {
    /// The paths in a graph.
    pub(crate) fn of(graph: &GraphProto) -> Self {
        let within = || graph.node.iter().filter_map(|node| modules_of(path(&node.name)?));
        let mut all = within();
        let Some(first) = all.next() else { return Self::default() };
        let around = all.fold(first, common);
        let own = within().filter_map(|path| below(path, around));
        let blocks = counted::blocks(&own.filter_map(|path| path.split('/').next()).collect());
        let names = || graph.initializer.iter().map(|tensor| tensor.name.as_str());
        let mut starts: HashMap<&str, usize> = HashMap::new();
        for start in names().filter_map(path).flat_map(beginnings) {
            *starts.entry(start).or_insert(0) += 1;
        }
        let short = |name| {
            let path = path(name)?;
            let alone = beginnings(path)
                .find(|start| below(start, around).is_some() && starts.get(start) == Some(&1));
            let known = alone.unwrap_or(path);
            Some((name.to_owned(), below(known, around).unwrap_or(known).replace('.', "_")))
        };
        Self { constants: names().filter_map(short).collect(), around: around.to_owned(), blocks, tell: true }
    }

    /// Whether the file has such names.
    pub(crate) fn tell(&self) -> bool {
        self.tell
    }

    /// What a constant is called in the graph: `block/conv/Conv2D` for `model/block/conv/Conv2D/ReadVariableOp:0`.
    pub(crate) fn constant<'n>(&'n self, name: &'n str) -> &'n str {
        self.constants.get(name).map_or(name, String::as_str)
    }

    /// The modules around a node, the root first; empty when the file does not tell.
    pub(crate) fn scope_of(&self, node: &NodeProto) -> Vec<ScopeEntry> {
        let told = scope_of(node);
        if !told.is_empty() {
            return told;
        }
        let Some(modules) = path(&node.name).and_then(modules_of) else { return Vec::new() };
        let inner = if modules == self.around { Some("") } else { below(modules, &self.around) };
        let Some(inner) = inner else { return Vec::new() };
        let (first, rest) =
            inner.split_once('/').map_or((inner, ""), |(first, _)| (first, &inner[first.len()..]));
        let nested = self.blocks.get(first);
        // Dots part a path here.
        let inner = format!("{}{rest}", nested.map_or(first, String::as_str)).replace('.', "_");
        let block = nested.and_then(|path| modules_of(path));
        let entry = |path: &str| {
            let class = block.filter(|block| *block == path).and_then(counted::kind).unwrap_or_default();
            ScopeEntry { path: path.replace('/', "."), class: class.to_owned() }
        };
        let mut scope = vec![entry("")];
        scope.extend(beginnings(&inner).filter(|path| !path.is_empty()).map(entry));
        scope
    }
}

/// A name that is a path, without the number of an output.
pub(crate) fn path(name: &str) -> Option<&str> {
    let (path, number) = name.rsplit_once(':').unwrap_or((name, ""));
    let path = if number.bytes().all(|byte| byte.is_ascii_digit()) { path } else { name };
    let deep = path.bytes().filter(|byte| *byte == b'/').count();
    // As TensorFlow allows them.
    let word = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    };
    let plain = path.len() <= LONGEST && (1..DEEPEST).contains(&deep) && path.split('/').all(word);
    plain.then_some(path)
}

/// The path of what is around the last part.
fn modules_of(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(modules, _)| modules)
}

/// The first part of a path, the first two, and so on.
fn beginnings(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).chain([path])
}

/// What two paths begin with.
fn common<'p>(a: &'p str, b: &str) -> &'p str {
    beginnings(a).take_while(|start| *start == b || below(b, start).is_some()).last().unwrap_or_default()
}

/// A path seen from one around it.
fn below<'p>(path: &'p str, around: &str) -> Option<&'p str> {
    if around.is_empty() {
        return Some(path);
    }
    path.strip_prefix(around)?.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::TensorProto;

    fn paths(nodes: &[&str], initializers: &[&str]) -> SlashPaths {
        SlashPaths::of(&GraphProto {
            node: nodes.iter().map(|name| node(name)).collect(),
            initializer: initializers
                .iter()
                .map(|name| TensorProto { name: (*name).into(), ..TensorProto::default() })
                .collect(),
            ..GraphProto::default()
        })
    }

    fn node(name: &str) -> NodeProto {
        NodeProto { name: name.into(), ..NodeProto::default() }
    }

    #[test]
    fn nodes_are_in_modules_below_what_all_have_in_common() {
        let found =
            paths(&["Cast__7", "s/net_1.0/conv/Conv2D", "s/net_1.0/a/b.1/Relu", "s/net_1.0/add"], &[]);
        let scope = |name: &str| -> Vec<String> {
            found.scope_of(&node(name)).into_iter().map(|entry| entry.path).collect()
        };
        assert_eq!(scope("s/net_1.0/conv/Conv2D__12"), ["", "conv"]);
        assert_eq!(scope("s/net_1.0/a/b.1/Relu"), ["", "a", "a.b_1"]);
        assert_eq!(scope("s/net_1.0/add"), [""]);
        for name in ["Cast__7", "s/net_2/add", "s/net_1.0", "s//net_1.0/add", "/Add", "a/", "s/net_1.0/a b/c"]
        {
            assert!(scope(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn constants_have_as_much_of_their_names_as_tells_them_apart() {
        let all =
            ["n/norm/mul/Read:0", "n/norm/Read:0", "n/act/Neg:0", "other/act/Neg:0", "fc.weight", "axes__3"];
        let found = paths(&["n/norm/mul", "n/act/Neg"], &all);
        let short: Vec<&str> = all.iter().map(|name| found.constant(name)).collect();
        assert_eq!(short, ["norm/mul", "norm/Read", "act", "other/act/Neg", "fc.weight", "axes__3"]);
    }

    #[test]
    fn constants_keep_their_names_where_nodes_have_no_paths() {
        assert_eq!(paths(&["Add_1"], &["a/b/c:0"]).constant("a/b/c:0"), "a/b/c:0");
    }

    #[test]
    fn deep_and_long_names_are_no_paths() {
        for name in ["a/".repeat(1000) + "b", "a".repeat(1000) + "/b"] {
            assert!(paths(&[&name], &[]).scope_of(&node(&name)).is_empty());
        }
    }
}
