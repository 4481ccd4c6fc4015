//! Which module each constant that is no part of a layer belongs to.

use super::nodes::Nodes;
use super::placement::relative;
use super::{Content, Field, Keys, ModuleTree, Step, below};
use crate::ids::ModuleId;
use crate::names;
use kiln_importer::ir::{Arg, Constant, Graph, Name, NodeId, Op, ValueId};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Whether a constant is spelt out where it is used: few numbers that have no name of their own.
pub fn is_literal(graph: &Graph, value: ValueId) -> bool {
    let Some(constant) = graph.constant(value) else { return false };
    let named = constant.name.as_deref().is_some_and(|name| !names::is_anonymous(name));
    // What was made of weights belongs in the record.
    !named && constant.provenance.is_none() && Constant::are_few(&constant.data)
}

/// Where a constant is used.
struct Uses {
    /// The modules around all its uses, outermost first.
    around: Vec<ModuleId>,
    /// What the first call that says so calls it: the field of a struct that it is, `weight` of a recurrent
    /// layer's inputs.
    role: Option<Name>,
}

/// Makes every constant a field of the deepest module around all its uses.
pub fn place(tree: &mut ModuleTree<'_>) {
    let mut finder = Finder { tree, first: first_of_paths(tree), found: HashMap::new(), order: Vec::new() };
    finder.module(tree.root, &mut Vec::new());
    for &output in &tree.graph.root.outputs {
        if is_stored(tree, output) {
            finder.add(output, &[tree.root], None);
        }
    }
    let Finder { first, found, order, .. } = finder;
    // A later call's module has the fields of the first call's.
    let mut calls: HashMap<ModuleId, BTreeSet<ModuleId>> = HashMap::new();
    for module in tree.modules.ids() {
        for known in [tree.first_call(module), first[tree.modules[module].path.as_str()]] {
            calls.entry(known).or_default().insert(module);
        }
    }
    let mut elsewhere = paths_of_layers(tree);
    let mut keys: HashMap<ModuleId, Keys> = HashMap::new();
    let mut placed = Vec::new();
    for value in order {
        let Some(uses) = found.get(&value) else { continue };
        let module = uses.around.last().copied().unwrap_or(tree.root);
        let owner = &tree.modules[module];
        let keys = keys
            .entry(module)
            .or_insert_with(|| owner.fields.iter().map(|field| field.key.as_str()).collect());
        let key = key(tree.graph, &owner.path, value, uses.role.as_deref(), keys, &elsewhere);
        elsewhere.insert(below(&owner.path, &key));
        placed.push((module, Field { key, content: Content::Parameter(value) }));
    }
    for (module, field) in placed {
        for &call in calls.get(&module).into_iter().flatten() {
            tree.modules[call].fields.push(field.clone());
        }
    }
}

/// The first module of each path.
fn first_of_paths<'t>(tree: &'t ModuleTree<'_>) -> HashMap<&'t str, ModuleId> {
    let mut first = HashMap::new();
    for (id, module) in tree.modules.enumerate() {
        first.entry(module.path.as_str()).or_insert(id);
    }
    first
}

/// Whether a value is a constant of the record that no layer holds.
fn is_stored(tree: &ModuleTree<'_>, value: ValueId) -> bool {
    tree.graph.constant(value).is_some()
        && !is_literal(tree.graph, value)
        && tree.layers.holder(value).is_none()
}

/// Finds where constants are used.
struct Finder<'t, 'g> {
    tree: &'t ModuleTree<'g>,
    first: HashMap<&'t str, ModuleId>,
    found: HashMap<ValueId, Uses>,
    order: Vec<ValueId>,
}

impl Finder<'_, '_> {
    /// Looks at a module with the modules around it, outermost first. A later call's modules are those of the first.
    fn module(&mut self, module: ModuleId, around: &mut Vec<ModuleId>) {
        let data = &self.tree.modules[module];
        around.push(self.first.get(data.path.as_str()).copied().unwrap_or(module));
        self.steps(&data.steps, around);
        around.pop();
    }

    fn steps(&mut self, steps: &[Step], around: &mut Vec<ModuleId>) {
        for step in steps {
            match step {
                Step::Node(node) => self.node(*node, around),
                Step::Call(child) => self.module(*child, around),
                Step::Loop { modules, .. } => modules.iter().for_each(|&child| self.module(child, around)),
                Step::Repeat { node, body } => {
                    self.node(*node, around);
                    self.steps(body, around);
                }
                Step::Branches { node, then, otherwise } => {
                    self.node(*node, around);
                    self.steps(then, around);
                    self.steps(otherwise, around);
                }
            }
        }
    }

    fn node(&mut self, node: NodeId, around: &[ModuleId]) {
        let roles = self.tree.call(node).map(|call| roles(&self.tree.nodes, node, call)).unwrap_or_default();
        let mut seen = HashSet::new();
        for value in mentioned(self.tree, node) {
            if seen.insert(value) && is_stored(self.tree, value) {
                self.add(value, around, roles.get(&value).cloned());
            }
        }
    }

    fn add(&mut self, value: ValueId, around: &[ModuleId], role: Option<Name>) {
        match self.found.get_mut(&value) {
            None => {
                self.order.push(value);
                self.found.insert(value, Uses { around: around.to_vec(), role });
            }
            Some(uses) => {
                let shared = uses.around.iter().zip(around).take_while(|(a, b)| a == b).count();
                uses.around.truncate(shared);
                uses.role = uses.role.take().or(role);
            }
        }
    }
}

/// The values that a node's call mentions, what a loop begins with, and what regions yield.
fn mentioned(tree: &ModuleTree<'_>, node: NodeId) -> Vec<ValueId> {
    let data = tree.graph.node(node);
    let mut values = Vec::new();
    let mut operand = |arg: &Arg| {
        if let Arg::Operand(n) = arg {
            values.extend(data.inputs.get(*n).copied().flatten());
        }
    };
    match tree.layer(node) {
        Some((_, layer)) => layer.args.iter().for_each(|arg| arg.visit(&mut operand)),
        None => {
            if let Some(call) = tree.call(node) {
                call.visit(&mut operand);
            }
        }
    }
    if let Op::Loop(_) = data.op {
        values.extend(data.inputs.iter().flatten());
    }
    values.extend(data.op.regions().into_iter().flat_map(|region| &region.outputs));
    values
}

/// Where records have the parameters of layers.
fn paths_of_layers(tree: &ModuleTree<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for module in tree.modules.iter() {
        for field in &module.fields {
            let Content::Layer(node) = field.content else { continue };
            let path = below(&module.path, &field.key);
            let fields = tree.layer(node).map(|(_, layer)| layer.declared.fields).unwrap_or_default();
            found.extend(fields.iter().map(|field| below(&path, field.name)));
        }
    }
    found
}

/// What a call calls its operands.
fn roles(nodes: &Nodes<'_>, node: NodeId, call: &Arg) -> HashMap<ValueId, Name> {
    let inputs = &nodes.graph.node(node).inputs;
    let operand = |arg: &Arg| match arg {
        Arg::Operand(n) => inputs.get(*n).copied().flatten(),
        _ => None,
    };
    let mut roles: HashMap<ValueId, Name> = HashMap::new();
    let mut add = |value: Option<ValueId>, name: &Name| {
        if let Some(value) = value {
            roles.entry(value).or_insert_with(|| name.clone());
        }
    };
    call.visit(&mut |part| match part {
        Arg::Struct(_, fields) => {
            for (name, arg) in fields {
                match arg {
                    Arg::Some(inner) => add(operand(inner), name),
                    arg => add(operand(arg), name),
                }
            }
        }
        Arg::Named(name, inner) => add(operand(inner), name),
        _ => {}
    });
    roles
}

/// The key of a constant in a module: none that its fields have, nor one that is the path of a parameter of another module,
/// as a name may be when what was made of a parameter is used elsewhere.
fn key(
    graph: &Graph,
    module: &str,
    value: ValueId,
    role: Option<&str>,
    keys: &mut Keys,
    elsewhere: &BTreeSet<String>,
) -> String {
    let is_free = |key: &str| !key.is_empty() && !elsewhere.contains(&below(module, key));
    let name = graph.constant(value).and_then(|constant| constant.name.as_deref()).unwrap_or_default();
    // A path of the file's that tells of a module, and perhaps of a parameter in it.
    let dotted = name.replace('/', ".");
    let name = match dotted != name && !module.is_empty() && !names::is_anonymous(name) {
        true if dotted == module => return keys.fresh(role.unwrap_or("weight"), is_free),
        true => dotted.as_str(),
        false => name,
    };
    if !names::is_anonymous(name)
        && let Some(key) = relative(name, module).filter(|key| is_free(key) && !keys.contains(key))
    {
        keys.insert(key);
        return key.to_owned();
    }
    // A name from outside of the module carries the exporter's count (`index_8`), which would tell equal modules apart.
    let last = name.rsplit('.').next().unwrap_or(name).trim_end_matches(|c: char| c.is_ascii_digit());
    let last = last.strip_suffix('_').unwrap_or(last);
    let stem = match role {
        _ if !names::is_anonymous(name) => names::snake(last, "constant"),
        Some(role) => role.to_owned(),
        None => "constant".to_owned(),
    };
    keys.fresh(&stem, is_free)
}
