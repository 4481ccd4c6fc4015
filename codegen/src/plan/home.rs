//! Which modules each node is in.

use super::{Plan, live};
use kiln_importer::ir::{Implementation, NodeId, ScopeEntry};
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

/// The home of every node; `all` has those of branches too, which are at home where their `If` is.
pub fn homes(plan: &Plan<'_>, nodes: &[NodeId], all: &[NodeId]) -> BTreeMap<NodeId, Home> {
    let scopes = Scopes::new(plan, nodes, all);
    let mut homes: BTreeMap<NodeId, Home> =
        nodes.iter().map(|&node| (node, scopes.home(plan, node))).collect();
    let told = !scopes.population.is_empty();
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
    for &node in all {
        let inner = || Home { chain: Vec::new(), layer: scopes.home(plan, node).layer };
        homes.entry(node).or_insert_with(inner);
    }
    // All calls of a layer know it by one path.
    for (node, first) in &plan.layers {
        let path = homes.get(first).and_then(|home| home.layer.clone());
        if let (Some(home), true) = (homes.get_mut(node), node != first) {
            home.layer = path;
        }
    }
    homes
}

/// What the scopes of all nodes tell together.
struct Scopes {
    /// Number of nodes in each module, calls of one layer counted once.
    population: BTreeMap<String, usize>,
    /// Paths that the exporter made up for later calls: `layer.fc_1` for `layer.fc`.
    later: BTreeMap<String, String>,
}

impl Scopes {
    fn new(plan: &Plan<'_>, nodes: &[NodeId], all: &[NodeId]) -> Self {
        let later = later_calls(plan, all);
        let mut scopes = Self { population: BTreeMap::new(), later };
        for &node in nodes.iter().filter(|node| plan.layers.get(node).is_none_or(|first| first == *node)) {
            for entry in scopes.chain(plan, node) {
                *scopes.population.entry(entry.path).or_insert(0) += 1;
            }
        }
        scopes
    }

    /// The modules around a node, under their own paths, the root among them.
    fn chain(&self, plan: &Plan<'_>, node: NodeId) -> Vec<ScopeEntry> {
        let scope = plan.graph.node(node).origin.scope.iter();
        scope
            .map(|entry| match self.later.get(&entry.path) {
                Some(path) => ScopeEntry { path: path.clone(), class: entry.class.clone() },
                None => entry.clone(),
            })
            .collect()
    }

    fn home(&self, plan: &Plan<'_>, node: NodeId) -> Home {
        let mut chain: Vec<ScopeEntry> = Vec::new();
        for entry in self.chain(plan, node).into_iter().filter(|entry| !entry.path.is_empty()) {
            // Paths must nest; what does not is no part of a tree.
            if chain.last().is_none_or(|outer| is_below(&entry.path, &outer.path)) {
                chain.push(entry);
            }
        }
        if !plan.layers.contains_key(&node) {
            return Home { chain, layer: None };
        }
        let layer = self.layer_path(plan, node, chain.last());
        if let Some(path) = &layer {
            chain.retain(|entry| is_below(path, &entry.path));
        }
        Home { chain, layer }
    }

    /// The path of a layer: that of its parameters' names, or of the innermost module.
    fn layer_path(&self, plan: &Plan<'_>, node: NodeId, leaf: Option<&ScopeEntry>) -> Option<String> {
        let named = named_path(plan, node);
        let own = |leaf: &&ScopeEntry| self.population.get(leaf.path.as_str()) == Some(&1);
        // A tied parameter has one of its names in the file, which need not be this layer's.
        let class = plan.layer(node).and_then(|layer| layer.ty.rsplit("::").next());
        let tied = leaf.filter(|leaf| {
            own(leaf)
                && Some(leaf.class_name()) == class
                && named.as_deref().is_some_and(|path| path != leaf.path && !is_below(path, &leaf.path))
        });
        match tied {
            Some(leaf) => Some(leaf.path.clone()),
            None => named.or_else(|| leaf.filter(own).map(|leaf| leaf.path.clone())),
        }
    }
}

/// Paths that differ from a layer's only by a number that the TorchScript exporter adds for a later call, and those of
/// modules around such layers.
fn later_calls(plan: &Plan<'_>, all: &[NodeId]) -> BTreeMap<String, String> {
    let leaf = |node: &NodeId| plan.graph.node(*node).origin.scope.last();
    let mut later = BTreeMap::new();
    for (node, first) in &plan.layers {
        if let (Some(entry), Some(original)) = (leaf(node), leaf(first))
            && entry.class.is_empty()
            && unnumbered(&entry.path) == Some(original.path.as_str())
        {
            later.insert(entry.path.clone(), original.path.clone());
        }
    }
    let named = |path: &str| {
        let names = plan.graph.constants.iter().filter_map(|constant| constant.name.as_deref());
        names.into_iter().any(|name| relative(name, path).is_some())
    };
    let mut around = BTreeMap::new();
    for entry in all.iter().flat_map(|&node| &plan.graph.node(node).origin.scope) {
        if later.is_empty() || !entry.class.is_empty() || around.contains_key(&entry.path) {
            continue;
        }
        let Some(path) = unnumbered(&entry.path) else { continue };
        if later.values().any(|layer| is_below(layer, path)) && !named(&entry.path) {
            around.insert(entry.path.clone(), path.to_owned());
        }
    }
    later.extend(around);
    later
}

/// `layer` for `layer_3`.
fn unnumbered(path: &str) -> Option<&str> {
    let (stem, number) = path.rsplit_once('_')?;
    (!stem.is_empty() && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some(stem)
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

/// The path that the names of a layer's parameters share.
fn named_path(plan: &Plan<'_>, node: NodeId) -> Option<String> {
    let Implementation::Layer(layer) = plan.implementations.get(&node)? else { return None };
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
