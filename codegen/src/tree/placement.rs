//! Which modules each node is in.

use super::calls;
use super::layers::Layers;
use super::nodes::Nodes;
use super::partition;
use crate::names;
use kiln_importer::ir::{NodeId, ScopeEntry, scope_of_first_call};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Modules that lie deeper than this are part of the module around them.
const MAX_DEPTH: usize = 48;

/// So many operations may be done beside a layer in a module that is named after it.
const MOST_BESIDE: usize = 3;

/// Where a node belongs.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The modules around it below the root, outermost first.
    pub modules: Vec<ScopeEntry>,
    /// For a layer: its own path, when names or scopes tell.
    pub layer: Option<String>,
}

/// The place of every node. Those of branches are where their `If` is.
pub fn placements(nodes: &Nodes<'_>, layers: &Layers) -> BTreeMap<NodeId, Placement> {
    let scopes = Scopes::new(nodes, layers);
    let mut placements: BTreeMap<NodeId, Placement> =
        nodes.root.iter().map(|&node| (node, scopes.placement(node))).collect();
    let has_scopes = !scopes.population.is_empty();
    if !has_scopes {
        partition::partition(nodes, layers, &mut placements);
    }
    // What else happens in a layer's own scope, reshaping its operand, say, is done around the layer.
    let layer_paths: BTreeSet<String> =
        placements.values().filter_map(|placement| placement.layer.clone()).collect();
    for placement in placements.values_mut() {
        let depth = placement.modules.iter().position(|entry| layer_paths.contains(&entry.path));
        placement.modules.truncate(depth.unwrap_or(MAX_DEPTH));
    }
    let users = users(nodes);
    let parameterized = if has_scopes { Some(&scopes.parameterized) } else { None };
    place_the_rest(nodes, &users, &mut placements, parameterized);
    lift_shared(nodes, &users, &mut placements);
    for &node in &nodes.all {
        let inner = || Placement { modules: Vec::new(), layer: scopes.placement(node).layer };
        placements.entry(node).or_insert_with(inner);
    }
    // All calls of a layer know it by one path.
    for (node, first) in layers.calls() {
        let path = placements.get(&first).and_then(|placement| placement.layer.clone());
        if let (Some(placement), true) = (placements.get_mut(&node), node != first) {
            placement.layer = path;
        }
    }
    placements
}

/// What the scopes of all nodes say together.
struct Scopes<'a> {
    nodes: &'a Nodes<'a>,
    layers: &'a Layers,
    /// Number of nodes in each module, calls of one layer counted once.
    population: BTreeMap<String, usize>,
    /// Number of nodes with parameters in each module, likewise.
    parameterized: BTreeMap<String, usize>,
    /// Paths that the exporter made up for later calls: `layer.fc_1` for `layer.fc`.
    later: BTreeMap<String, String>,
    /// The layer that has each path which names of parameters tell.
    named: BTreeMap<String, NodeId>,
}

impl<'a> Scopes<'a> {
    fn new(nodes: &'a Nodes<'a>, layers: &'a Layers) -> Self {
        let later = later_calls(nodes, layers);
        let (population, parameterized) = (BTreeMap::new(), BTreeMap::new());
        let mut scopes = Self { nodes, layers, population, parameterized, later, named: BTreeMap::new() };
        for &node in
            nodes.root.iter().filter(|&&node| layers.called_by(node).is_none_or(|first| first == node))
        {
            let has_parameters = !calls::parameters(nodes, node).is_empty();
            for entry in scopes.around(node) {
                *scopes.parameterized.entry(entry.path.clone()).or_insert(0) += usize::from(has_parameters);
                *scopes.population.entry(entry.path).or_insert(0) += 1;
            }
        }
        scopes.named = scopes.owners();
        scopes
    }

    /// The layer that each path belongs to: one in a module around the path before others.
    fn owners(&self) -> BTreeMap<String, NodeId> {
        let mut owners: BTreeMap<String, (NodeId, bool)> = BTreeMap::new();
        for &node in &self.nodes.all {
            let Some(first) = self.layers.called_by(node) else { continue };
            let Some(path) = named_path(self.nodes, node) else { continue };
            let inside = self.around(node).last().is_some_and(|leaf| is_below(&path, &leaf.path));
            let owner = owners.entry(path).or_insert((first, inside));
            if inside && !owner.1 {
                *owner = (first, true);
            }
        }
        owners.into_iter().map(|(path, (first, _))| (path, first)).collect()
    }

    /// The path that the names of a layer's parameters tell. Layers may share a weight and differ in what else they hold, as where
    /// inputs are quantized under other scales: a file has one name for it, which is that of one of them. Any other is called
    /// so in its own module.
    fn own_path(&self, node: NodeId, innermost: Option<&ScopeEntry>) -> Option<String> {
        let path = named_path(self.nodes, node)?;
        let layer = self.layers.called_by(node);
        let stray = |leaf: &&ScopeEntry| !is_below(&path, &leaf.path) && path != leaf.path;
        let Some(leaf) = innermost.filter(stray) else { return Some(path) };
        if self.named.get(&path).copied() == layer {
            return Some(path);
        }
        if self.population.get(leaf.path.as_str()) == Some(&1) {
            return Some(leaf.path.clone());
        }
        let last = path.rsplit('.').next().unwrap_or(&path);
        let own = format!("{}.{last}", leaf.path);
        (!self.named.contains_key(&own)).then_some(own)
    }

    /// The modules around a node, under their own paths, the root among them.
    fn around(&self, node: NodeId) -> Vec<ScopeEntry> {
        let scope = self.nodes.graph.node(node).origin.scope.iter();
        scope
            .map(|entry| match self.later.get(&entry.path) {
                Some(path) => ScopeEntry { path: path.clone(), class: entry.class.clone() },
                None => entry.clone(),
            })
            .collect()
    }

    fn placement(&self, node: NodeId) -> Placement {
        let mut modules: Vec<ScopeEntry> = Vec::new();
        for entry in self.around(node).into_iter().filter(|entry| !entry.path.is_empty()) {
            // Paths must nest; what does not is no part of a tree.
            if modules.last().is_none_or(|outer| is_below(&entry.path, &outer.path)) {
                modules.push(entry);
            }
        }
        if self.layers.called_by(node).is_none() {
            return Placement { modules, layer: None };
        }
        let layer = self.layer_path(node, modules.last());
        if let Some(path) = &layer {
            modules.retain(|entry| is_below(path, &entry.path));
        }
        Placement { modules, layer }
    }

    /// The path of a layer: that of its parameters' names, or of the innermost module.
    fn layer_path(&self, node: NodeId, innermost: Option<&ScopeEntry>) -> Option<String> {
        let named = self.own_path(node, innermost);
        let only_the_layer = |leaf: &&ScopeEntry| self.population.get(leaf.path.as_str()) == Some(&1);
        // A tied parameter has one of its names in the file, which need not be this layer's.
        let class = super::layer(self.nodes, self.layers, node).map(|layer| layer.declared.name);
        let tied = innermost.filter(|leaf| {
            only_the_layer(leaf)
                && Some(leaf.class_name()) == class
                && named.as_deref().is_some_and(|path| path != leaf.path && !is_below(path, &leaf.path))
        });
        match tied {
            Some(leaf) => Some(leaf.path.clone()),
            None => named
                .or_else(|| self.mainly_layer(node))
                .or_else(|| innermost.filter(only_the_layer).map(|leaf| leaf.path.clone())),
        }
    }

    /// The outermost module that is little more than the layer: what a file calls one may turn an image around, or activate
    /// what comes out. A module of a known class is more, and so is one whose path a checkpoint has.
    fn mainly_layer(&self, node: NodeId) -> Option<String> {
        let parameters = calls::parameters(self.nodes, node);
        let mut made = parameters.iter().filter_map(|&value| self.nodes.graph.provenance(value));
        if made.any(|made| made.is_of_checkpoints()) {
            return None;
        }
        let alone = |path: &str| {
            let small = self.population.get(path).is_some_and(|&nodes| nodes <= MOST_BESIDE + 1);
            small && !path.is_empty() && self.parameterized.get(path) == Some(&1)
        };
        let unknown = self.around(node).into_iter().filter(|entry| entry.class.is_empty());
        unknown.map(|entry| entry.path).find(|path| alone(path))
    }
}

/// Paths that differ from a layer's only by a number that an exporter adds for a later call, and those of
/// modules around such layers.
fn later_calls(nodes: &Nodes<'_>, layers: &Layers) -> BTreeMap<String, String> {
    let graph = nodes.graph;
    let leaf = |node: NodeId| graph.node(node).origin.scope.last();
    let mut later = BTreeMap::new();
    for (node, first) in layers.calls() {
        if let (Some(entry), Some(original)) = (leaf(node), leaf(first))
            && entry.class.is_empty()
            && scope_of_first_call(&entry.path) == Some(original.path.as_str())
        {
            later.insert(entry.path.clone(), original.path.clone());
        }
    }
    if later.is_empty() {
        return later;
    }
    let names: BTreeSet<&str> =
        graph.constants.iter().filter_map(|constant| constant.name.as_deref()).collect();
    let originals: BTreeSet<&str> = later.values().map(String::as_str).collect();
    let mut around = BTreeMap::new();
    for entry in nodes.all.iter().flat_map(|&node| &graph.node(node).origin.scope) {
        if !entry.class.is_empty() || around.contains_key(&entry.path) {
            continue;
        }
        let Some(path) = scope_of_first_call(&entry.path) else { continue };
        if has_below(&originals, path) && !has_below(&names, &entry.path) {
            around.insert(entry.path.clone(), path.to_owned());
        }
    }
    later.extend(around);
    later
}

/// Whether one of the paths lies below a path that is not the root's.
fn has_below(paths: &BTreeSet<&str>, outer: &str) -> bool {
    let start = format!("{outer}.");
    let mut from = paths.range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded));
    from.next().is_some_and(|path| path.starts_with(&start))
}

/// The nodes that use what each yields.
fn users(nodes: &Nodes<'_>) -> BTreeMap<NodeId, Vec<NodeId>> {
    let mut users: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for &node in &nodes.root {
        for producer in nodes.dependencies(node) {
            users.entry(producer).or_default().push(node);
        }
    }
    users
}

/// Takes what modules of one class compute alike of values from around them out of the first of these: exporters keep one of
/// equal nodes, as where every block of a diffusion transformer activates the embedding of the time.
fn lift_shared(
    nodes: &Nodes<'_>,
    users: &BTreeMap<NodeId, Vec<NodeId>>,
    placements: &mut BTreeMap<NodeId, Placement>,
) {
    for &node in &nodes.root {
        let Some(users) = users.get(&node) else { continue };
        let Some(placement) = placements.get(&node) else { continue };
        if placement.layer.is_some() || !calls::parameters(nodes, node).is_empty() {
            continue;
        }
        // How many of the modules around the node are around another.
        let shared = |other: &NodeId| {
            let modules = placements.get(other).map(|other| other.modules.as_slice()).unwrap_or_default();
            let is_same = |(a, b): &(&ScopeEntry, &ScopeEntry)| a.path == b.path;
            modules.iter().zip(&placement.modules).take_while(is_same).count()
        };
        let made = nodes.dependencies(node).iter().map(shared).max().unwrap_or(0);
        // Beyond it lies what has no users in it: a module of its own, an activation's, say.
        let used = users.iter().map(shared).max().unwrap_or(0);
        let mut alike = BTreeSet::new();
        for user in users {
            let depth = shared(user);
            let class = |node: &Placement| node.modules.get(depth).map(|entry| entry.class.clone());
            let own = class(placement).filter(|class| !class.is_empty());
            if own.is_some() && own == placements.get(user).and_then(class) {
                alike.insert(depth);
            }
        }
        let lifted = (made..used).rev().take_while(|depth| alike.contains(depth)).last();
        if let (Some(depth), Some(placement)) = (lifted, placements.get_mut(&node)) {
            placement.modules.truncate(depth);
        }
    }
}

/// Puts nodes of which the file says nothing into the module of those that use them: that adds no dependency between
/// modules that was not there. Where the file tells of modules, `parameterized` is how many nodes of each have parameters.
fn place_the_rest(
    nodes: &Nodes<'_>,
    users: &BTreeMap<NodeId, Vec<NodeId>>,
    placements: &mut BTreeMap<NodeId, Placement>,
    parameterized: Option<&BTreeMap<String, usize>>,
) {
    let placed: BTreeSet<NodeId> = placements
        .iter()
        .filter(|(_, placement)| placement.layer.is_some() || !placement.modules.is_empty())
        .map(|(&node, _)| node)
        .collect();
    for &node in nodes.root.iter().rev() {
        let scope = &nodes.graph.node(node).origin.scope;
        let is_placed = if parameterized.is_some() {
            scope.first().is_some_and(|root| root.path.is_empty())
        } else {
            placed.contains(&node)
        };
        if is_placed {
            continue;
        }
        let users = users.get(&node).map(Vec::as_slice).unwrap_or_default();
        let mut around = users.iter().filter_map(|user| placements.get(user)).map(|user| &user.modules);
        let Some(first) = around.next() else { continue };
        let mut common = first.clone();
        for modules in around {
            let shared = common.iter().zip(modules).take_while(|(a, b)| a.path == b.path).count();
            common.truncate(shared);
        }
        // What has parameters is no part of a module that has none.
        if let Some(parameterized) = parameterized.filter(|_| !calls::parameters(nodes, node).is_empty()) {
            let without = |entry: &&ScopeEntry| parameterized.get(&entry.path) == Some(&0);
            common.truncate(common.len() - common.iter().rev().take_while(without).count());
        }
        if let Some(placement) = placements.get_mut(&node) {
            if let Some(path) = &placement.layer {
                common.retain(|entry| is_below(path, &entry.path));
            }
            placement.modules = common;
        }
    }
}

/// The path that the names of a layer's parameters share.
fn named_path(nodes: &Nodes<'_>, node: NodeId) -> Option<String> {
    let mut paths = nodes.possible_layer(node)?.values().filter_map(|value| {
        let name = nodes.graph.constant(value)?.name.as_deref()?;
        name.rsplit_once('.').filter(|_| !names::is_anonymous(name)).map(|(path, _)| path)
    });
    let path = paths.next()?;
    paths.all(|other| other == path).then(|| path.to_owned())
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
