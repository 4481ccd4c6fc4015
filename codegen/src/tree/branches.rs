//! Branches and bodies of loops: what happens in them belongs to the module around them.

use super::grouping::{Draft, Grouping};
use super::{Content, Step};
use kiln_importer::ir::{Loop, NodeId, Op, Region};

/// Branches of fewer nodes are written out.
const MIN_NODES: usize = 8;

impl Grouping<'_> {
    /// The step of a node with regions: one that chooses between branches, or a loop.
    pub(super) fn branches(&mut self, draft: &mut Draft, node: NodeId) -> Step {
        let graph = self.nodes.graph;
        if let Op::Loop(Loop { body, .. }) = &graph.node(node).op {
            let ends = |id: NodeId| matches!(graph.node(id).op, Op::LoopCondition(_));
            let nodes = body.nodes.iter().copied().filter(|&id| !ends(id));
            return Step::Repeat { node, body: nodes.map(|inner| self.step(draft, inner)).collect() };
        }
        let mut regions = graph.node(node).op.regions().into_iter();
        let (then, otherwise) = (regions.next(), regions.next());
        let mut steps = |region: Option<&Region>, key: &str| {
            region.map(|region| self.branch(draft, region, key)).unwrap_or_default()
        };
        let then = steps(then, "then_branch");
        let otherwise = steps(otherwise, "else_branch");
        Step::Branches { node, then, otherwise }
    }

    /// The steps of a branch. A long one with layers of which the file does not say where they are held is a module.
    fn branch(&mut self, draft: &mut Draft, region: &Region, key: &str) -> Vec<Step> {
        let is_layer = |node: &NodeId| self.layers.called_by(*node).is_some();
        let is_anonymous = |node: &NodeId| self.placements[node].layer.is_none();
        let apart = region.nodes.len() >= MIN_NODES
            && region.nodes.iter().any(is_layer)
            && region.nodes.iter().filter(|node| is_layer(node)).all(is_anonymous);
        if !apart {
            return region.nodes.iter().map(|&node| self.step(draft, node)).collect();
        }
        let mut key = key.to_owned();
        while draft.keys.contains(&key) {
            key.push('_');
        }
        let path = &draft.module.path;
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let child = self.module(path, "Branch".to_owned(), 0, region.nodes.clone());
        self.modules[child].wanted.clone_from(&region.outputs);
        draft.push(key, Content::Module(child));
        vec![Step::Call(child)]
    }
}
