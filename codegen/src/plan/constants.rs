//! Which module each constant that is no part of a layer belongs to.

use super::home::relative;
use super::{Content, Field, Plan, Step, live};
use crate::names;
use kiln_importer::ir::{Arg, NodeId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Integer constants of at most so many elements, and without a name of their own, are spelt out.
const MAX_LITERAL_ELEMENTS: usize = 8;

/// Whether a constant is spelt out where it is used.
pub fn is_literal(plan: &Plan<'_>, value: ValueId) -> bool {
    let Some(constant) = plan.graph.constant(value) else { return false };
    let named = constant.name.as_deref().is_some_and(|name| !names::is_anonymous(name));
    let elements = constant.data.num_elements();
    // Several floats are weights, which belong in the record; so does one that was made of weights.
    let most = if constant.data.dtype.is_float() { 1 } else { MAX_LITERAL_ELEMENTS };
    !named && constant.provenance.is_none() && (1..=most).contains(&elements)
}

/// The constants that the expression of a node mentions, and those that its branches yield.
pub fn mentioned(plan: &Plan<'_>, node: NodeId, found: &mut Vec<ValueId>) {
    let data = plan.graph.node(node);
    let mut push = |value: ValueId| {
        let stored = plan.graph.constant(value).is_some() && !is_literal(plan, value);
        if stored && !plan.held.contains_key(&value) && !found.contains(&value) {
            found.push(value);
        }
    };
    let mut operands = Vec::new();
    let mut operand = |arg: &Arg| {
        if let Arg::Operand(n) = arg {
            operands.extend(data.inputs.get(*n).copied().flatten());
        }
    };
    match plan.layer(node) {
        Some(layer) => layer.args.iter().for_each(|arg| arg.visit(&mut operand)),
        None => {
            if let Some(call) = plan.call(node) {
                call.visit(&mut operand);
            }
        }
    }
    operands.into_iter().for_each(&mut push);
    for region in live::regions(&data.op) {
        region.outputs.iter().for_each(|&output| push(output));
    }
}

/// Makes every constant a field of the deepest module around all its uses.
pub fn place(plan: &mut Plan<'_>) {
    let mut paths: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    let mut hints: BTreeMap<ValueId, String> = BTreeMap::new();
    let mut order = Vec::new();
    walk(plan, plan.root, &mut Vec::new(), &mut |plan, around, node| {
        let mut found = Vec::new();
        mentioned(plan, node, &mut found);
        for value in found {
            if let Some(hint) = plan.call(node).and_then(|call| role(plan, node, call, value)) {
                hints.entry(value).or_insert(hint);
            }
            match paths.get_mut(&value) {
                None => {
                    order.push(value);
                    paths.insert(value, around.to_vec());
                }
                Some(common) => {
                    let shared = common.iter().zip(around).take_while(|(a, b)| a == b).count();
                    common.truncate(shared);
                }
            }
        }
    });
    for &output in &plan.graph.root.outputs {
        let held = plan.held.contains_key(&output);
        if plan.graph.constant(output).is_some() && !is_literal(plan, output) && !held {
            if !paths.contains_key(&output) {
                order.push(output);
            }
            paths.insert(output, vec![plan.root]);
        }
    }
    let mut taken = layer_paths(plan);
    for value in order {
        let module = paths[&value].last().copied().unwrap_or(plan.root);
        let key = key(plan, module, value, hints.get(&value).map(String::as_str), &taken);
        taken.insert(below(&plan.modules[module].path, &key));
        let field = Field { key, content: Content::Parameter(value) };
        for n in 0..plan.modules.len() {
            if plan.first_call(n) == module || plan.modules[n].path == plan.modules[module].path {
                plan.modules[n].fields.push(field.clone());
            }
        }
    }
}

/// Where records have the parameters of layers.
fn layer_paths(plan: &Plan<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for module in &plan.modules {
        for field in &module.fields {
            let Content::Layer(node) = field.content else { continue };
            let path = below(&module.path, &field.key);
            let fields = plan.layer(node).map(|layer| layer.fields.as_slice()).unwrap_or_default();
            found.extend(fields.iter().map(|(name, _)| below(&path, name)));
        }
    }
    found
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// What a call calls an operand: the field of a struct that it is, `weight` of a recurrent layer's inputs.
fn role(plan: &Plan<'_>, node: NodeId, call: &Arg, value: ValueId) -> Option<String> {
    let inputs = &plan.graph.node(node).inputs;
    let is_value = |arg: &Arg| match arg {
        Arg::Operand(n) => inputs.get(*n).copied().flatten() == Some(value),
        _ => false,
    };
    let is_field = |arg: &Arg| match arg {
        Arg::Some(inner) => is_value(inner),
        arg => is_value(arg),
    };
    let mut role = None;
    call.visit(&mut |part| match part {
        Arg::Struct(_, fields) if role.is_none() => {
            role = fields.iter().find(|(_, arg)| is_field(arg)).map(|(name, _)| name.to_string());
        }
        Arg::Named(name, inner) if role.is_none() && is_value(inner) => role = Some(name.to_string()),
        _ => {}
    });
    role
}

/// The key of a constant in a module: none that its fields have, nor one that is the path of a parameter of another module,
/// as a name may be when what was made of a parameter is used elsewhere.
fn key(
    plan: &Plan<'_>,
    module: usize,
    value: ValueId,
    role: Option<&str>,
    elsewhere: &BTreeSet<String>,
) -> String {
    let owner = &plan.modules[module];
    let taken: BTreeSet<&str> = owner.fields.iter().map(|field| field.key.as_str()).collect();
    let free =
        |key: &str| !key.is_empty() && !taken.contains(key) && !elsewhere.contains(&below(&owner.path, key));
    let name = plan.graph.constant(value).and_then(|constant| constant.name.as_deref()).unwrap_or_default();
    if !names::is_anonymous(name)
        && let Some(key) = relative(name, &owner.path).filter(|key| free(key))
    {
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
    let mut key = stem.clone();
    let mut n = 1;
    while !free(&key) {
        n += 1;
        key = format!("{stem}_{n}");
    }
    key
}

type Visit<'v, 'g> = dyn FnMut(&Plan<'g>, &[usize], NodeId) + 'v;

/// Visits every node with the modules around it, outermost first. A later call's modules are those of the first.
fn walk<'g>(plan: &Plan<'g>, module: usize, around: &mut Vec<usize>, visit: &mut Visit<'_, 'g>) {
    let known = plan.modules.iter().position(|other| other.path == plan.modules[module].path);
    around.push(known.unwrap_or(module));
    walk_steps(plan, &plan.modules[module].steps, around, visit);
    around.pop();
}

fn walk_steps<'g>(plan: &Plan<'g>, steps: &[Step], around: &mut Vec<usize>, visit: &mut Visit<'_, 'g>) {
    for step in steps {
        match step {
            Step::Node(node) => visit(plan, around, *node),
            Step::Call(child) => walk(plan, *child, around, visit),
            Step::Loop { modules, .. } => modules.iter().for_each(|&child| walk(plan, child, around, visit)),
            Step::Branches { node, then, otherwise } => {
                visit(plan, around, *node);
                walk_steps(plan, then, around, visit);
                walk_steps(plan, otherwise, around, visit);
            }
        }
    }
}
