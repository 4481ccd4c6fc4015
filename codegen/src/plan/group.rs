//! Nodes into a tree of modules, each of which can be one call.

use super::home::{Home, dependencies, relative};
use super::{Content, Field, Module, Plan, Step, calls, live};
use kiln_importer::ir::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Builds the tree; yields the root, and layers that are called from several modules, so that none can hold them.
pub fn group(
    plan: &mut Plan<'_>,
    homes: BTreeMap<NodeId, Home>,
    nodes: Vec<NodeId>,
) -> (usize, BTreeSet<NodeId>) {
    let depends = homes.keys().map(|&node| (node, dependencies(plan, node))).collect();
    let mut grouping = Grouping { plan, homes, depends, holders: BTreeMap::new(), homeless: BTreeSet::new() };
    let class = grouping.root_class(&nodes);
    let root = grouping.module(String::new(), class, 0, nodes);
    (root, grouping.homeless)
}

pub(super) struct Grouping<'a, 'g> {
    pub(super) plan: &'a mut Plan<'g>,
    pub(super) homes: BTreeMap<NodeId, Home>,
    depends: BTreeMap<NodeId, Vec<NodeId>>,
    /// The path of the module that holds each layer.
    holders: BTreeMap<NodeId, String>,
    homeless: BTreeSet<NodeId>,
}

/// Nodes that one step stands for.
struct Group {
    /// The child, if they are a child's.
    path: Option<String>,
    nodes: Vec<NodeId>,
}

impl Grouping<'_, '_> {
    fn root_class(&self, nodes: &[NodeId]) -> String {
        let scopes = nodes.iter().filter_map(|&node| self.plan.graph.node(node).origin.scope.first());
        let mut roots = scopes.filter(|entry| entry.path.is_empty() && !entry.class.is_empty());
        roots.next().map(|entry| entry.class.clone()).unwrap_or_default()
    }

    pub(super) fn module(&mut self, path: String, class: String, depth: usize, nodes: Vec<NodeId>) -> usize {
        let groups = self.ordered_groups(depth, &nodes);
        let mut module = Module { path, class, ..Module::default() };
        let mut called: BTreeMap<String, usize> = BTreeMap::new();
        for group in groups {
            let Some(path) = group.path else {
                for node in group.nodes {
                    let step = self.step(&mut module, node);
                    module.steps.push(step);
                }
                continue;
            };
            let class = group.nodes.first().and_then(|node| self.homes[node].chain.get(depth));
            let class = class.map(|entry| entry.class.clone()).unwrap_or_default();
            let key = relative(&path, &module.path).unwrap_or(&path).to_owned();
            let child = self.module(path.clone(), class, depth + 1, group.nodes);
            module.steps.push(Step::Call(child));
            match called.get(&path) {
                Some(&first) => self.plan.modules[child].call_of = Some(first),
                None => {
                    called.insert(path, child);
                    module.fields.push(Field { key, content: Content::Module(child) });
                }
            }
        }
        self.plan.modules.push(module);
        self.plan.modules.len() - 1
    }

    /// The step of a node that is the module's own, with the fields it needs.
    pub(super) fn step(&mut self, module: &mut Module, node: NodeId) -> Step {
        if let Some(&layer) = self.plan.layers.get(&node) {
            let holder = self.holders.entry(layer).or_insert_with(|| module.path.clone());
            if *holder != module.path {
                self.homeless.insert(layer);
            }
            let content = Content::Layer(layer);
            if !module.fields.iter().any(|field| field.content == content) {
                let key = self.layer_key(module, node);
                module.fields.push(Field { key, content });
            }
        }
        if live::regions(&self.plan.graph.node(node).op).is_empty() {
            return Step::Node(node);
        }
        self.branches(module, node)
    }

    /// The key of a layer in its module: its path, or a name made from its type.
    fn layer_key(&self, module: &Module, node: NodeId) -> String {
        let path = self.homes[&node].layer.as_deref();
        let taken = |key: &str| module.fields.iter().any(|field| field.key == key);
        if let Some(key) = path.and_then(|path| relative(path, &module.path)).filter(|key| !taken(key)) {
            return key.to_owned();
        }
        let ty = self.plan.layer(node).map_or("layer", |layer| layer.ty);
        let stem = crate::names::snake(ty.rsplit("::").next().unwrap_or(ty), "layer");
        let mut key = stem.clone();
        let mut n = 1;
        while taken(&key) {
            n += 1;
            key = format!("{stem}_{n}");
        }
        key
    }

    /// Groups of a module in an order that respects all dependencies. A child whose nodes cannot be one call (or several
    /// equal ones) is dissolved into the module.
    fn ordered_groups(&mut self, depth: usize, nodes: &[NodeId]) -> Vec<Group> {
        loop {
            let groups = self.groups(depth, nodes);
            match self.order(&groups) {
                Ok(order) => {
                    let mut slots: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
                    return order.into_iter().filter_map(|i| slots[i].take()).collect();
                }
                Err(offender) => {
                    let path = groups[offender].path.clone();
                    for node in
                        groups.iter().filter(|group| group.path == path).flat_map(|group| &group.nodes)
                    {
                        if let Some(home) = self.homes.get_mut(node)
                            && depth < home.chain.len()
                        {
                            home.chain.remove(depth);
                        }
                    }
                }
            }
        }
    }

    fn groups(&mut self, depth: usize, nodes: &[NodeId]) -> Vec<Group> {
        let mut by_path: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
        for &node in nodes {
            if let Some(entry) = self.homes[&node].chain.get(depth) {
                by_path.entry(&entry.path).or_default().push(node);
            }
        }
        // The group of each node in a child: its path, and which call it is.
        let mut child_of: BTreeMap<NodeId, (String, usize)> = BTreeMap::new();
        let mut own: Vec<NodeId> = Vec::new();
        for (path, nodes) in by_path {
            let calls = calls::split(self.plan, &nodes);
            let (calls, shared) =
                calls.map_or((vec![nodes], Vec::new()), |split| (split.calls, split.shared));
            for (n, call) in calls.into_iter().enumerate() {
                child_of.extend(call.into_iter().map(|node| (node, (path.to_owned(), n))));
            }
            own.extend(shared);
        }
        for node in own {
            if let Some(home) = self.homes.get_mut(&node) {
                home.chain.truncate(depth);
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut index: BTreeMap<(String, usize), usize> = BTreeMap::new();
        for &node in nodes {
            let Some(child) = child_of.remove(&node) else {
                groups.push(Group { path: None, nodes: vec![node] });
                continue;
            };
            let path = child.0.clone();
            let next = groups.len();
            let at = *index.entry(child).or_insert(next);
            if at == next {
                groups.push(Group { path: Some(path), nodes: Vec::new() });
            }
            groups[at].nodes.push(node);
        }
        groups
    }

    /// An order of the groups, or a child that is part of a cycle.
    fn order(&self, groups: &[Group]) -> Result<Vec<usize>, usize> {
        let mut group_of: BTreeMap<NodeId, usize> = BTreeMap::new();
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
        let mut waiting: Vec<usize> = before.iter().map(BTreeSet::len).collect();
        let mut ready: BTreeSet<usize> = (0..groups.len()).filter(|&i| waiting[i] == 0).collect();
        let mut order = Vec::with_capacity(groups.len());
        while let Some(i) = ready.pop_first() {
            order.push(i);
            for &next in &after[i] {
                waiting[next] -= 1;
                if waiting[next] == 0 {
                    ready.insert(next);
                }
            }
        }
        if order.len() == groups.len() {
            return Ok(order);
        }
        Err(offender(groups, &order, &after))
    }
}

/// The smallest child on a cycle, given the groups that could be ordered.
fn offender(groups: &[Group], order: &[usize], after: &[BTreeSet<usize>]) -> usize {
    let mut rest: BTreeSet<usize> = (0..groups.len()).collect();
    for i in order {
        rest.remove(i);
    }
    // What leads to no cycle any more is none of them.
    while let Some(&end) = rest.iter().find(|&&i| after[i].is_disjoint(&rest)) {
        rest.remove(&end);
    }
    let children = rest.into_iter().filter(|&i| groups[i].path.is_some());
    // A cycle always has a child in it: single nodes are ordered by their graph.
    children.min_by_key(|&i| (groups[i].nodes.len(), i)).unwrap_or(0)
}
