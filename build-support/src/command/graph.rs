//! `kiln graph`: the module tree and the dataflow as a picture.

mod dot;
mod layout;
mod svg;

use super::convert::Bindings;
use super::{CommandError, Outcome, show};
use crate::compile::{Imported, import};
use crate::{BuildError, destination};
use clap::Args;
use kiln_importer::ir::{Graph, Node, NodeId, ValueDef, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Arguments of `kiln graph`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The model
    model: PathBuf,
    /// The picture to write: a `.svg`, or a `.dot` for Graphviz
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    bindings: Bindings,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let extension = arguments.output.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if !matches!(extension, "svg" | "dot") {
        return Err(CommandError::Usage(format!(
            "{}: the picture must be a .svg or a .dot file",
            arguments.output.display()
        )));
    }
    let Imported { graph, sources, .. } = import(&arguments.model, &arguments.bindings.options()?)?;
    destination::check_read("the picture", &arguments.output, &sources)?;
    let tree = Module::tree(&graph);
    let text = match extension {
        "dot" => dot::print(&graph, &tree),
        _ => svg::print(&graph, &tree),
    };
    if let Some(folder) = arguments.output.parent() {
        std::fs::create_dir_all(folder).map_err(BuildError::folder(folder))?;
    }
    crate::compile::replace_text(&arguments.output, &text)?;
    show(&format!("{}\n", arguments.output.display()));
    Ok(true)
}

/// A module of the original network with what it holds, in execution order.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Last part of its path; empty for the root.
    name: String,
    /// Its class, when the file says so.
    class: String,
    /// Full path.
    path: String,
    items: Vec<Item>,
    /// Where among the items the module with a path is.
    places: BTreeMap<String, usize>,
}

/// What stands in a module.
#[derive(Debug)]
pub(super) enum Item {
    Module(Module),
    Node(NodeId),
}

impl Module {
    /// Groups the root region's nodes by the exporter's scopes.
    fn tree(graph: &Graph) -> Module {
        let mut root = Module::default();
        for &id in &graph.root.nodes {
            let mut module = &mut root;
            for entry in graph.node(id).origin.scope.iter().filter(|entry| !entry.path.is_empty()) {
                module = module.child(&entry.path, entry.class_name());
            }
            module.items.push(Item::Node(id));
        }
        root
    }

    /// The child with a path, made when it is new.
    fn child(&mut self, path: &str, class: &str) -> &mut Module {
        let found = self.places.get(path).copied();
        let at = found.unwrap_or_else(|| {
            let prefix = if self.path.is_empty() { String::new() } else { format!("{}.", self.path) };
            let name = path.strip_prefix(&prefix).unwrap_or(path).to_owned();
            let class = class.rsplit('.').next().unwrap_or_default().to_owned();
            let at = self.items.len();
            self.places.insert(path.to_owned(), at);
            self.items.push(Item::Module(Module { name, class, path: path.to_owned(), ..Module::default() }));
            at
        });
        match &mut self.items[at] {
            Item::Module(module) => module,
            Item::Node(_) => unreachable!("the position is that of a module"),
        }
    }

    /// What is printed for the module.
    fn label(&self) -> String {
        if self.class.is_empty() { self.name.clone() } else { format!("{}: {}", self.name, self.class) }
    }
}

/// What is printed in a node's box: operation, and type of its result.
fn labels(graph: &Graph, node: &Node) -> [String; 2] {
    let ty = node.outputs.first().map(|&value| graph.ty(value).to_string()).unwrap_or_default();
    [node.op.name(), ty]
}

/// The nodes and inputs that a node reads from, each once, as an arrow is drawn from each.
fn sources(graph: &Graph, node: &Node) -> BTreeSet<Source> {
    node.inputs.iter().flatten().filter_map(|&value| source(graph, value)).collect()
}

/// Where a value comes from, for drawing; constants are not drawn.
fn source(graph: &Graph, value: ValueId) -> Option<Source> {
    match graph.value(value).def {
        ValueDef::Node(node, _) | ValueDef::RegionParameter(node, _) => Some(Source::Node(node)),
        ValueDef::Input(n) => Some(Source::Input(n)),
        ValueDef::Constant(_) => None,
    }
}

/// Start of an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Source {
    Node(NodeId),
    Input(u32),
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_limits_tests::bounded;

    /// What a node takes twice, as squares and double edges do, has one arrow in either picture.
    #[test]
    fn arrows_are_drawn_once() {
        let text = "graph \"powers\" {\n  \
            %x: f32[2, 3] = input \"x\"\n  \
            %square: f32[2, 3] = Binary(Mul) %x, %x\n  \
            %fourth: f32[2, 3] = Binary(Mul) %square, %square\n  \
            return %fourth \"fourth\"\n}\n";
        let graph = Graph::parse(text).unwrap();
        let tree = Module::tree(&graph);
        let (dot, svg) = (dot::print(&graph, &tree), svg::print(&graph, &tree));
        for arrow in ["i0 -> n0;", "n0 -> n1;", "n1 -> o0;"] {
            assert_eq!(dot.matches(arrow).count(), 1, "{arrow} in {dot}");
        }
        assert_eq!([dot.matches("->").count(), svg.matches("marker-end").count()], [3, 3], "{dot}{svg}");
    }

    /// Each of so many modules is found again without a look at the others.
    #[test]
    fn many_modules_side_by_side() {
        bounded(|| {
            let mut root = Module::default();
            for n in (0..100_000).chain(0..100_000) {
                let module = root.child(&format!("m{n}"), "torch.nn.Linear");
                assert_eq!(module.label(), format!("m{n}: Linear"));
            }
            assert_eq!(root.items.len(), 100_000);
        });
    }
}
