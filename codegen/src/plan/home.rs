//! Which modules each node is in.

use super::{Plan, live};
use kiln_importer::ir::spelling::Spelling;
use kiln_importer::ir::{NodeId, ScopeEntry};
use std::collections::{BTreeMap, BTreeSet};

/// Where a node belongs.
#[derive(Clone, Debug, Default)]
pub struct Home {
    /// The modules around it below the root, outermost first.
    pub chain: Vec<ScopeEntry>,
    /// For a layer: its own path, when names or scopes tell.
    pub layer: Option<String>,
}

/// The last parts of names that a layer's parameters have in files.
const PARAMETER_NAMES: &[&str] =
    &["weight", "bias", "running_mean", "running_var", "weight_bias", "gamma", "beta"];

/// Whether a parameter's name in the file can be that of a layer's field.
pub fn names_field(name: &str, field: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last == field || PARAMETER_NAMES.contains(&last)
}

/// The home of every node.
pub fn homes(plan: &Plan<'_>, nodes: &[NodeId]) -> BTreeMap<NodeId, Home> {
    let mut population: BTreeMap<&str, usize> = BTreeMap::new();
    for &node in nodes {
        for entry in &plan.graph.node(node).origin.scope {
            *population.entry(&entry.path).or_insert(0) += 1;
        }
    }
    let mut homes: BTreeMap<NodeId, Home> =
        nodes.iter().map(|&node| (node, home(plan, node, &population))).collect();
    let told = !population.is_empty();
    if !told {
        super::cut::cut(plan, nodes, &mut homes);
    }
    // What else happens in a layer's own scope, reshaping its operand, say, is done around the layer.
    let layers: BTreeSet<String> = homes.values().filter_map(|home| home.layer.clone()).collect();
    for home in homes.values_mut() {
        let depth = home.chain.iter().position(|entry| layers.contains(&entry.path));
        home.chain.truncate(depth.unwrap_or(home.chain.len()));
    }
    place_strays(plan, nodes, &mut homes, told);
    homes
}

/// Puts nodes of which the file says nothing into the module of those that use them: that adds no dependency between
/// modules that was not there.
fn place_strays(plan: &Plan<'_>, nodes: &[NodeId], homes: &mut BTreeMap<NodeId, Home>, told: bool) {
    let mut users: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for &node in nodes {
        for producer in dependencies(plan, node) {
            users.entry(producer).or_default().push(node);
        }
    }
    let placed: BTreeSet<NodeId> = homes
        .iter()
        .filter(|(_, home)| home.layer.is_some() || !home.chain.is_empty())
        .map(|(&node, _)| node)
        .collect();
    for &node in nodes.iter().rev() {
        let scope = &plan.graph.node(node).origin.scope;
        let at_home = if told {
            scope.first().is_some_and(|root| root.path.is_empty())
        } else {
            placed.contains(&node)
        };
        if at_home {
            continue;
        }
        let users = users.get(&node).map(Vec::as_slice).unwrap_or_default();
        let mut chains = users.iter().filter_map(|user| homes.get(user)).map(|home| &home.chain);
        let Some(first) = chains.next() else { continue };
        let mut common = first.clone();
        for chain in chains {
            let shared = common.iter().zip(chain).take_while(|(a, b)| a.path == b.path).count();
            common.truncate(shared);
        }
        if let Some(home) = homes.get_mut(&node) {
            if let Some(path) = &home.layer {
                common.retain(|entry| is_below(path, &entry.path));
            }
            home.chain = common;
        }
    }
}

fn home(plan: &Plan<'_>, node: NodeId, population: &BTreeMap<&str, usize>) -> Home {
    let scope = &plan.graph.node(node).origin.scope;
    let mut chain: Vec<ScopeEntry> = Vec::new();
    for entry in scope.iter().filter(|entry| !entry.path.is_empty()) {
        // Paths must nest; what does not is no part of a tree.
        if chain.last().is_none_or(|outer| is_below(&entry.path, &outer.path)) {
            chain.push(entry.clone());
        }
    }
    if !plan.layers.contains(&node) {
        return Home { chain, layer: None };
    }
    let layer = named_path(plan, node).or_else(|| {
        let leaf = chain.last()?;
        (population.get(leaf.path.as_str()) == Some(&1)).then(|| leaf.path.clone())
    });
    if let Some(path) = &layer {
        chain.retain(|entry| is_below(path, &entry.path));
    }
    Home { chain, layer }
}

/// The path that the names of a layer's parameters share.
fn named_path(plan: &Plan<'_>, node: NodeId) -> Option<String> {
    let Spelling::Layer(layer) = plan.spellings.get(&node)? else { return None };
    let mut names = layer.fields.iter().filter_map(|(_, field)| {
        let name = plan.graph.constant(field.value()?)?.name.as_deref()?;
        name.rsplit_once('.').map(|(path, _)| path)
    });
    let path = names.next()?;
    names.all(|other| other == path).then(|| path.to_owned())
}

/// Whether `path` lies strictly below `outer`.
pub fn is_below(path: &str, outer: &str) -> bool {
    outer.is_empty() || path.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
}

/// `path` seen from a module, when it lies below it.
pub fn relative<'p>(path: &'p str, module: &str) -> Option<&'p str> {
    if module.is_empty() {
        return Some(path);
    }
    path.strip_prefix(module)?.strip_prefix('.')
}

/// Nodes on whose results or symbols a node depends.
pub fn dependencies(plan: &Plan<'_>, node: NodeId) -> Vec<NodeId> {
    use kiln_importer::ir::SymbolOrigin;
    let graph = plan.graph;
    let mut found: Vec<NodeId> =
        live::operands(graph, node).into_iter().filter_map(|value| graph.producer(value)).collect();
    for symbol in live::symbols(graph, node) {
        match graph.symbols.get(&symbol) {
            Some(SymbolOrigin::Read { node, .. }) => found.push(*node),
            Some(SymbolOrigin::Dim { value, .. }) => found.extend(graph.producer(*value)),
            None => {}
        }
    }
    found
}
