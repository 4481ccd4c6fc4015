//! Branches: what happens in them belongs to the module around them.

use super::group::Grouping;
use super::{Content, Field, Module, Step, live};
use kiln_importer::ir::{NodeId, Region};

/// Branches of fewer nodes are written out.
const MIN_NODES: usize = 8;

impl Grouping<'_, '_> {
    /// The step of a node that chooses between branches.
    pub(super) fn branches(&mut self, module: &mut Module, node: NodeId) -> Step {
        let graph = self.plan.graph;
        let mut regions = live::regions(&graph.node(node).op).into_iter();
        let (then, otherwise) = (regions.next(), regions.next());
        let mut steps = |region: Option<&Region>, key: &str| {
            region.map(|region| self.branch(module, region, key)).unwrap_or_default()
        };
        let then = steps(then, "then_branch");
        let otherwise = steps(otherwise, "else_branch");
        Step::Branches { node, then, otherwise }
    }

    /// The steps of a branch. A long one with layers of which the file does not say where they are held is a module.
    fn branch(&mut self, module: &mut Module, region: &Region, key: &str) -> Vec<Step> {
        let own = |node: &NodeId| self.plan.layers.contains_key(node);
        let anonymous = |node: &NodeId| self.homes[node].layer.is_none();
        let apart = region.nodes.len() >= MIN_NODES
            && region.nodes.iter().any(own)
            && region.nodes.iter().filter(|node| own(node)).all(anonymous);
        if !apart {
            return region.nodes.iter().map(|&node| self.step(module, node)).collect();
        }
        let mut key = key.to_owned();
        while module.fields.iter().any(|field| field.key == key) {
            key.push('_');
        }
        let path = if module.path.is_empty() { key.clone() } else { format!("{}.{key}", module.path) };
        let child = self.module(path, "Branch".to_owned(), 0, region.nodes.clone());
        self.plan.modules[child].wanted.clone_from(&region.outputs);
        module.fields.push(Field { key, content: Content::Module(child) });
        vec![Step::Call(child)]
    }
}
