//! Nodes into a tree of modules, each of which can be one call.

use super::layers::Layers;
use super::nodes::Nodes;
use super::placement::{Placement, relative};
use super::{Content, Field, Keys, Module, Step, calls};
use crate::ids::{Arena, ModuleId};
use kiln_importer::ir::NodeId;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A tree of modules.
pub struct Grouped {
    pub modules: Arena<ModuleId, Module>,
    pub root: ModuleId,
    /// Layers that are called from several modules, so that none can hold them.
    pub called_across: BTreeSet<NodeId>,
}

/// Builds the tree.
pub fn group(nodes: &Nodes<'_>, layers: &Layers, placements: BTreeMap<NodeId, Placement>) -> Grouped {
    let depends = placements.keys().map(|&node| (node, nodes.dependencies(node))).collect();
    let mut grouping = Grouping {
        nodes,
        layers,
        placements,
        depends,
        modules: Arena::default(),
        holders: BTreeMap::new(),
        parents: BTreeMap::new(),
        called_across: BTreeSet::new(),
    };
    let class = grouping.root_class();
    let root = grouping.module(String::new(), class, 0, nodes.root.clone());
    Grouped { modules: grouping.modules, root, called_across: grouping.called_across }
}

pub(super) struct Grouping<'a> {
    pub(super) nodes: &'a Nodes<'a>,
    pub(super) layers: &'a Layers,
    pub(super) placements: BTreeMap<NodeId, Placement>,
    depends: HashMap<NodeId, Vec<NodeId>>,
    pub(super) modules: Arena<ModuleId, Module>,
    /// The path of the module that holds each layer: the first that calls it.
    holders: BTreeMap<NodeId, String>,
    /// The same of each module, by its path.
    parents: BTreeMap<String, String>,
    called_across: BTreeSet<NodeId>,
}

/// A module that is being filled.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) module: Module,
    pub(super) keys: Keys,
    layers: HashSet<NodeId>,
}

impl Draft {
    /// Adds a field.
    pub(super) fn push(&mut self, key: String, content: Content) {
        self.keys.insert(&key);
        self.module.fields.push(Field { key, content });
    }
}

/// Nodes that one step stands for.
struct Group {
    /// The child, if they are a child's.
    path: Option<String>,
    nodes: Vec<NodeId>,
}

impl Grouping<'_> {
    fn root_class(&self) -> String {
        let scopes =
            self.nodes.root.iter().filter_map(|&node| self.nodes.graph.node(node).origin.scope.first());
        let mut roots = scopes.filter(|entry| entry.path.is_empty() && !entry.class.is_empty());
        roots.next().map(|entry| entry.class.clone()).unwrap_or_default()
    }

    /// Makes a module of nodes; `depth` modules are around it.
    pub(super) fn module(
        &mut self,
        path: String,
        class: String,
        depth: usize,
        nodes: Vec<NodeId>,
    ) -> ModuleId {
        let groups = self.ordered_groups(depth, &nodes);
        let mut draft = Draft { module: Module { path, class, ..Module::default() }, ..Draft::default() };
        let mut called: HashMap<String, ModuleId> = HashMap::new();
        for group in groups {
            let Some(path) = group.path else {
                for node in group.nodes {
                    let step = self.step(&mut draft, node);
                    draft.module.steps.push(step);
                }
                continue;
            };
            // A part of another module that is called here, too, is written out: its parameters are in one place.
            let parent = self.parents.entry(path.clone()).or_insert_with(|| draft.module.path.clone());
            if *parent != draft.module.path {
                for node in group.nodes {
                    let step = self.step(&mut draft, node);
                    draft.module.steps.push(step);
                }
                continue;
            }
            let class = group.nodes.first().and_then(|node| self.placements[node].modules.get(depth));
            let class = class.map(|entry| entry.class.clone()).unwrap_or_default();
            let key = relative(&path, &draft.module.path).unwrap_or(&path).to_owned();
            let child = self.module(path.clone(), class, depth + 1, group.nodes);
            draft.module.steps.push(Step::Call(child));
            match called.get(&path) {
                Some(&first) => self.modules[child].call_of = Some(first),
                None => {
                    called.insert(path, child);
                    draft.push(key, Content::Module(child));
                }
            }
        }
        self.modules.push(draft.module)
    }

    /// The step of a node that is the module's own, with the fields it needs.
    pub(super) fn step(&mut self, draft: &mut Draft, node: NodeId) -> Step {
        if let Some(layer) = self.layers.called_by(node) {
            let holder = self.holders.entry(layer).or_insert_with(|| draft.module.path.clone());
            if *holder != draft.module.path {
                self.called_across.insert(layer);
            }
            if draft.layers.insert(layer) {
                let key = self.layer_key(draft, node);
                draft.push(key, Content::Layer(layer));
            }
        }
        if self.nodes.graph.node(node).op.regions().is_empty() {
            return Step::Node(node);
        }
        self.branches(draft, node)
    }

    /// The key of a layer in its module: its path, or a name made from its type.
    fn layer_key(&self, draft: &mut Draft, node: NodeId) -> String {
        let path = self.placements[&node].layer.as_deref();
        let key = path.and_then(|path| relative(path, &draft.module.path));
        if let Some(key) = key.filter(|key| !draft.keys.contains(key)) {
            return key.to_owned();
        }
        let class = super::layer(self.nodes, self.layers, node).map_or("layer", |layer| layer.declared.name);
        draft.keys.fresh(&crate::names::snake(class, "layer"), |_| true)
    }

    /// Groups of a module in an order that respects all dependencies. A child whose nodes cannot be one call (or several
    /// equal ones) is written out in the module: of those that wait for each other one that waits for itself, if there is any,
    /// since the others may be calls then.
    fn ordered_groups(&mut self, depth: usize, nodes: &[NodeId]) -> Vec<Group> {
        /// Children are written out one at a time, the smallest first, since that may be enough; but not for ever.
        const ROUNDS: usize = 12;
        /// Whether a child waits for itself is found out by a look at all nodes.
        const LOOKED_AT: usize = 16;
        let mut round = 0;
        loop {
            let groups = self.groups(depth, nodes);
            let mut entangled = match self.order(&groups) {
                Ok(order) => {
                    let mut slots: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
                    return order.into_iter().filter_map(|i| slots[i].take()).collect();
                }
                // Single nodes are ordered by their graph, so that there is always a child.
                Err(entangled) if entangled.is_empty() => return groups,
                Err(entangled) => entangled,
            };
            round += 1;
            if round < ROUNDS {
                entangled.sort_unstable_by_key(|&i| (groups[i].nodes.len(), i));
                let mut looked_at = entangled.iter().take(LOOKED_AT);
                let reentered = looked_at.find(|&&i| self.is_reentered(nodes, &groups[i]));
                entangled = reentered.or(entangled.first()).copied().into_iter().collect();
            }
            let paths: HashSet<&str> = entangled.iter().filter_map(|&i| groups[i].path.as_deref()).collect();
            let written_out = |group: &&Group| group.path.as_deref().is_some_and(|path| paths.contains(path));
            for node in groups.iter().filter(written_out).flat_map(|group| &group.nodes) {
                if let Some(placement) = self.placements.get_mut(node)
                    && depth < placement.modules.len()
                {
                    placement.modules.remove(depth);
                }
            }
        }
    }

    /// Whether nodes of a child wait for others that wait for some of the same child. `nodes` are the module's, in order.
    fn is_reentered(&self, nodes: &[NodeId], child: &Group) -> bool {
        let inside: HashSet<NodeId> = child.nodes.iter().copied().collect();
        let mut behind: HashSet<NodeId> = HashSet::new();
        for node in nodes {
            let Some(depends) = self.depends.get(node) else { continue };
            let is_late = depends.iter().any(|before| behind.contains(before));
            if inside.contains(node) {
                if is_late {
                    return true;
                }
            } else if is_late || depends.iter().any(|before| inside.contains(before)) {
                behind.insert(*node);
            }
        }
        false
    }

    fn groups(&mut self, depth: usize, nodes: &[NodeId]) -> Vec<Group> {
        let mut by_path: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
        for &node in nodes {
            if let Some(entry) = self.placements[&node].modules.get(depth) {
                by_path.entry(&entry.path).or_default().push(node);
            }
        }
        // Which call each node of a child is in, and the path of the child that each call is of.
        let mut call_of: HashMap<NodeId, usize> = HashMap::new();
        let mut paths: Vec<String> = Vec::new();
        let mut callers: Vec<NodeId> = Vec::new();
        for (path, nodes) in by_path {
            let calls = calls::split(self.nodes, self.layers, &nodes);
            let (calls, shared) =
                calls.map_or((vec![nodes], Vec::new()), |split| (split.calls, split.shared));
            for call in calls {
                call_of.extend(call.into_iter().map(|node| (node, paths.len())));
                paths.push(path.to_owned());
            }
            callers.extend(shared);
        }
        for node in callers {
            if let Some(placement) = self.placements.get_mut(&node) {
                placement.modules.truncate(depth);
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of: HashMap<usize, usize> = HashMap::new();
        for &node in nodes {
            let Some(call) = call_of.get(&node) else {
                groups.push(Group { path: None, nodes: vec![node] });
                continue;
            };
            let at = *group_of.entry(*call).or_insert(groups.len());
            if at == groups.len() {
                groups.push(Group { path: Some(paths[*call].clone()), nodes: Vec::new() });
            }
            groups[at].nodes.push(node);
        }
        groups
    }

    /// An order of the groups, or the children that depend on themselves by way of others, or lie between such.
    fn order(&self, groups: &[Group]) -> Result<Vec<usize>, Vec<usize>> {
        let mut group_of: HashMap<NodeId, usize> = HashMap::new();
        for (i, group) in groups.iter().enumerate() {
            group_of.extend(group.nodes.iter().map(|&node| (node, i)));
        }
        let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); groups.len()];
        let mut after: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); groups.len()];
        for (node, &group) in &group_of {
            for dependency in &self.depends[node] {
                if let Some(&other) = group_of.get(dependency)
                    && other != group
                {
                    before[group].insert(other);
                    after[other].insert(group);
                }
            }
        }
        let order = peel(&before, &after);
        if order.len() == groups.len() {
            return Ok(order);
        }
        // What leads to no such child is none of them either.
        let ordered: HashSet<usize> = order.into_iter().chain(peel(&after, &before)).collect();
        Err((0..groups.len()).filter(|i| groups[*i].path.is_some() && !ordered.contains(i)).collect())
    }
}

/// Takes what waits for nothing any more, the first of it each time, until all that is left waits for itself.
fn peel(before: &[BTreeSet<usize>], after: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut waiting: Vec<usize> = before.iter().map(BTreeSet::len).collect();
    let mut ready: BTreeSet<usize> = (0..before.len()).filter(|&i| waiting[i] == 0).collect();
    let mut order = Vec::with_capacity(before.len());
    while let Some(i) = ready.pop_first() {
        order.push(i);
        for &next in &after[i] {
            waiting[next] -= 1;
            if waiting[next] == 0 {
                ready.insert(next);
            }
        }
    }
    order
}
