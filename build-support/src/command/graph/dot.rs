//! The graph in Graphviz's language.

use super::{Item, Module, Source, labels, source, sources};
use kiln_importer::ir::Graph;
use kiln_types::clipped;
use std::fmt::Write;

/// Prints modules as clusters, nodes as boxes, values as arrows.
pub(super) fn print(graph: &Graph, tree: &Module) -> String {
    let mut text =
        String::from("digraph model {\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n");
    for (n, &input) in graph.inputs.iter().enumerate() {
        let value = graph.value(input);
        let label = quoted(&[&value.name, &value.ty.to_string()]);
        let _ = writeln!(text, "  i{n} [label={label}, shape=ellipse];");
    }
    module(graph, tree, 1, &mut text, &mut 0);
    for &id in &graph.root.nodes {
        for from in sources(graph, graph.node(id)) {
            let _ = writeln!(text, "  {} -> n{};", name(from), id.index());
        }
    }
    for (n, (&value, label)) in graph.root.outputs.iter().zip(&graph.output_names).enumerate() {
        let _ = writeln!(
            text,
            "  o{n} [label={}, shape=ellipse];",
            quoted(&[label, &graph.ty(value).to_string()])
        );
        if let Some(from) = source(graph, value) {
            let _ = writeln!(text, "  {} -> o{n};", name(from));
        }
    }
    text.push_str("}\n");
    text
}

fn module(graph: &Graph, tree: &Module, depth: usize, text: &mut String, count: &mut usize) {
    let indent = "  ".repeat(depth);
    for item in &tree.items {
        match item {
            Item::Node(id) => {
                let [op, ty] = labels(graph, graph.node(*id));
                let _ = writeln!(text, "{indent}n{} [label={}];", id.index(), quoted(&[&op, &ty]));
            }
            Item::Module(child) => {
                *count += 1;
                let _ = writeln!(
                    text,
                    "{indent}subgraph cluster_{count} {{\n{indent}  label={};",
                    quoted(&[&child.label()])
                );
                module(graph, child, depth + 1, text, count);
                let _ = writeln!(text, "{indent}}}");
            }
        }
    }
}

fn name(source: Source) -> String {
    match source {
        Source::Node(id) => format!("n{}", id.index()),
        Source::Input(n) => format!("i{n}"),
    }
}

/// A quoted string with one line per part.
fn quoted(lines: &[&str]) -> String {
    let escaped = lines.iter().map(|line| {
        let shown = clipped(line, 200);
        shown.replace('\\', "\\\\").replace('"', "\\\"")
    });
    format!("\"{}\"", escaped.collect::<Vec<_>>().join("\\n"))
}
