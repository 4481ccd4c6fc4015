//! Printing of graphs, complete or brief.

use super::{data, write};
use crate::ir::builder::host_of;
use crate::ir::dim::Name;
use crate::ir::{
    ConstantId, Graph, Node, NodeId, Origin, Provenance, Region, ScopeEntry, SymbolOrigin, Value, ValueDef,
    ValueId,
};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

/// Text that reads back.
pub(super) fn complete(graph: &Graph) -> String {
    let mut printer = Printer::new(graph, true);
    printer.number(&graph.root);
    printer.finish()
}

/// Text for people.
pub(super) fn brief(graph: &Graph) -> String {
    Printer::new(graph, false).finish()
}

struct Printer<'g> {
    graph: &'g Graph,
    complete: bool,
    /// Numbers of values in order of appearance; empty when ids serve.
    labels: BTreeMap<ValueId, usize>,
    /// Numbers of scopes, by the paths that lead to them.
    scopes: BTreeMap<Vec<ScopeEntry>, usize>,
    out: String,
}

/// A label: `%7`.
struct Label(Option<usize>);

impl Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(n) => write!(f, "%{n}"),
            None => write!(f, "%?"),
        }
    }
}

/// Adds a line's piece; writing to a `String` never fails.
macro_rules! put {
    ($out:expr, $($arguments:tt)*) => {{
        let _ = write!($out, $($arguments)*);
    }};
}

impl<'g> Printer<'g> {
    fn new(graph: &'g Graph, complete: bool) -> Self {
        Self { graph, complete, labels: BTreeMap::new(), scopes: BTreeMap::new(), out: String::new() }
    }

    // ---- numbers ----

    /// Gives numbers to inputs, to constants in the order of their first use, and to what the nodes yield.
    fn number(&mut self, root: &Region) {
        let mut constants = Vec::new();
        self.collect_constants(root, &mut constants);
        for value in self.graph.inputs.iter().copied().chain(constants) {
            self.label_next(value);
        }
        self.number_region(root);
    }

    fn label_next(&mut self, value: ValueId) {
        let next = self.labels.len();
        self.labels.entry(value).or_insert(next);
    }

    fn collect_constants(&self, region: &Region, found: &mut Vec<ValueId>) {
        let is_constant = |id: &ValueId| {
            self.graph.values.get(id.index()).is_some_and(|v| matches!(v.def, ValueDef::Constant(_)))
        };
        for &id in &region.nodes {
            let node = self.graph.node(id);
            found.extend(node.inputs.iter().flatten().copied().filter(is_constant));
            node.op.regions().into_iter().for_each(|inner| self.collect_constants(inner, found));
        }
        found.extend(region.outputs.iter().copied().filter(is_constant));
    }

    fn number_region(&mut self, region: &Region) {
        region.parameters.iter().for_each(|&value| self.label_next(value));
        for &id in &region.nodes {
            let node = self.graph.node(id);
            node.outputs.iter().for_each(|&value| self.label_next(value));
            node.op.regions().into_iter().for_each(|inner| self.number_region(inner));
        }
    }

    fn label(&self, id: ValueId) -> Label {
        Label(if self.complete { self.labels.get(&id).copied() } else { Some(id.index()) })
    }

    // ---- the head ----

    fn finish(mut self) -> String {
        put!(self.out, "graph {:?} {{\n", self.graph.name);
        for &input in &self.graph.inputs {
            let value = self.graph.value(input);
            put!(self.out, "  {}: {}", self.label(input), value.ty);
            self.host(value.host.as_ref());
            put!(self.out, " = input {:?}\n", value.name);
        }
        if self.complete {
            self.constants();
        }
        self.symbols();
        if self.complete {
            self.scopes(&self.graph.root);
        }
        self.region(&self.graph.root, 1);
        self.out.push_str("}\n");
        self.out
    }

    fn constants(&mut self) {
        let mut constants: Vec<(usize, ValueId)> = self
            .labels
            .iter()
            .filter(|(id, _)| matches!(self.graph.value(**id).def, ValueDef::Constant(_)))
            .map(|(&id, &label)| (label, id))
            .collect();
        constants.sort_unstable();
        for (label, id) in constants {
            let value = self.graph.value(id);
            let Some(constant) = self.graph.constant(id) else {
                continue;
            };
            put!(self.out, "  %{label}");
            let name = constant.name.as_deref();
            if value.name != name.unwrap_or_default() {
                put!(self.out, " {:?}", value.name);
            }
            put!(self.out, ": {}", value.ty);
            if value.host != host_of(&constant.data) {
                self.host(value.host.as_ref());
            }
            let own = |from: &Provenance| match from {
                Provenance::Key { key, shape } => Some(key.as_str()) == name && *shape == constant.data.shape,
                _ => false,
            };
            let parameter = constant.provenance.as_deref().is_some_and(own);
            put!(self.out, " = {} ", if parameter { "parameter" } else { "constant" });
            if let Some(name) = name {
                put!(self.out, "{name:?} ");
            }
            put!(self.out, "{}", data::text(&constant.data));
            if let Some(from) = constant.provenance.as_ref().filter(|_| !parameter) {
                // What is written of a provenance cannot fail, as with operations.
                put!(self.out, " from {}", write::notation(from).unwrap_or_default());
            }
            self.out.push('\n');
        }
    }

    fn host(&mut self, host: Option<&Vec<crate::ir::Dim>>) {
        if let Some(host) = host.filter(|_| self.complete) {
            put!(self.out, " host {host:?}");
        }
    }

    /// Where the sizes come from; those that are read back stand in the operation that reads them.
    fn symbols(&mut self) {
        for (symbol, origin) in &self.graph.symbols {
            match origin {
                SymbolOrigin::Dim { value, axis } if !self.complete || self.labels.contains_key(value) => {
                    put!(self.out, "  symbol {} = dim {axis} of {}\n", Name(symbol), self.label(*value));
                }
                _ => {}
            }
        }
    }

    /// One line a module, each after the one around it.
    fn scopes(&mut self, region: &Region) {
        for &id in &region.nodes {
            let node = self.graph.node(id);
            for depth in 1..=node.origin.scope.len() {
                let path = &node.origin.scope[..depth];
                if self.scopes.contains_key(path) {
                    continue;
                }
                let number = self.scopes.len();
                put!(self.out, "  @{number} = scope ");
                if let Some(parent) = self.scopes.get(&path[..depth - 1]) {
                    put!(self.out, "@{parent} ");
                }
                put!(self.out, "{:?} {:?}\n", path[depth - 1].path, path[depth - 1].class);
                self.scopes.insert(path.to_vec(), number);
            }
            node.op.regions().into_iter().for_each(|inner| self.scopes(inner));
        }
    }

    // ---- the body ----

    fn region(&mut self, region: &Region, depth: usize) {
        for &id in &region.nodes {
            self.node(id, depth);
        }
        put!(self.out, "{:1$}return", "", depth * 2);
        for (i, &output) in region.outputs.iter().enumerate() {
            put!(self.out, "{} {}", if i > 0 { "," } else { "" }, self.operand(Some(output)));
            if depth == 1
                && let Some(name) = self.graph.output_names.get(i).filter(|_| self.complete)
            {
                put!(self.out, " {name:?}");
            }
        }
        self.out.push('\n');
    }

    fn node(&mut self, id: NodeId, depth: usize) {
        let node = self.graph.node(id);
        put!(self.out, "{:1$}", "", depth * 2);
        for (i, &output) in node.outputs.iter().enumerate() {
            put!(self.out, "{}", if i > 0 { ", " } else { "" });
            self.definition(output);
        }
        put!(self.out, "{}{}", if node.outputs.is_empty() { "" } else { " = " }, node.op);
        for (i, &input) in node.inputs.iter().enumerate() {
            put!(self.out, "{} {}", if i > 0 { "," } else { "" }, self.operand(input));
        }
        if self.complete {
            self.origin(&node.origin)
        } else {
            self.comment(node)
        }
        for inner in node.op.regions() {
            self.out.push_str(" region");
            if !inner.parameters.is_empty() {
                self.out.push_str(" (");
                for (i, &parameter) in inner.parameters.iter().enumerate() {
                    put!(self.out, "{}", if i > 0 { ", " } else { "" });
                    self.definition(parameter);
                }
                self.out.push(')');
            }
            self.out.push_str(" {\n");
            self.region(inner, depth + 1);
            put!(self.out, "{:1$}}}", "", depth * 2);
        }
        self.out.push('\n');
    }

    /// A value where it is defined: its label, its name, its type, its contents.
    fn definition(&mut self, id: ValueId) {
        let Value { name, ty, host, .. } = self.graph.value(id);
        put!(self.out, "{}", self.label(id));
        if self.complete && !name.is_empty() {
            put!(self.out, " {name:?}");
        }
        put!(self.out, ": {ty}");
        self.host(host.as_ref());
    }

    fn origin(&mut self, origin: &Origin) {
        if *origin == Origin::default() {
            return;
        }
        self.out.push_str(" at");
        if let Some(number) = self.scopes.get(&origin.scope) {
            put!(self.out, " @{number}");
        }
        put!(self.out, " {:?} {:?}", origin.name, origin.operator);
    }

    /// The innermost module, or the node's name.
    fn comment(&mut self, node: &Node) {
        // A comment reaches to the end of the line, where a region may have to begin.
        if !node.op.regions().is_empty() {
            return;
        }
        match node.origin.scope.last().filter(|scope| !scope.path.is_empty()) {
            Some(scope) => put!(self.out, "  // {}", scope.path.escape_debug()),
            None if node.origin.name.is_empty() => {}
            None => put!(self.out, "  // {:?}", node.origin.name),
        }
    }

    /// An operand: `%7`, or `_` for an absent one. For people, `c3("conv1.weight")` and a literal for a scalar.
    fn operand(&self, id: Option<ValueId>) -> String {
        let Some(id) = id else {
            return "_".into();
        };
        let constant = self.graph.values.get(id.index()).and_then(|value| match value.def {
            ValueDef::Constant(constant) => Some((constant, value)),
            _ => None,
        });
        match constant {
            Some((constant, value)) if !self.complete => self.brief_constant(constant, value),
            _ => self.label(id).to_string(),
        }
    }

    fn brief_constant(&self, id: ConstantId, value: &Value) -> String {
        let Some(constant) = self.graph.constants.get(id.index()) else {
            return format!("{id}?");
        };
        match (&constant.name, crate::data::scalar(&constant.data)) {
            (_, Some(scalar)) => format!("{}:{}", crate::data::scalar_text(scalar), value.ty),
            (Some(name), _) => format!("{id}({name:?})"),
            (None, _) => format!("{id}:{}", value.ty),
        }
    }
}
