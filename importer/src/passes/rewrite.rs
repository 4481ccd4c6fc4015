//! Applies local rules to every node.
//!
//! A rule looks at one node and what it is computed from, and either changes that node in place ([`Rewrite::replace`]:
//! its outputs keep their ids, names and users) or finds that its output is a value that exists ([`Rewrite::redirect`]).
//! What is no longer used is removed by dead-code elimination afterwards.

use super::{Options, Pass, PassReport, dead_code};
use crate::ir::{
    Builder, Constant, Dim, Graph, Infer, Loop, Node, NodeId, Op, Origin, Provenance, Region, ScopeEntry,
    SymbolOrigin, TensorType, ValueId,
};
use kiln_types::TensorData;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A local rewrite.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Tries to rewrite the current node; yields what it did, in words, or `None` when nothing fits.
    pub apply: fn(&mut Rewrite<'_>) -> Option<&'static str>,
}

/// A pass that applies rules, in order, until none fits.
pub(super) struct Rules {
    pub(super) name: &'static str,
    pub(super) rules: &'static [Rule],
    pub(super) options: Options,
}

/// Sweeps over the graph in one run of a pass; each sees what the one before it made.
const MAX_SWEEPS: usize = 16;
/// Rewrites of one node in one sweep.
const MAX_REWRITES: usize = 8;

impl Pass for Rules {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let mut report = PassReport::new(self.name);
        for _ in 0..MAX_SWEEPS {
            let before = report.total();
            let mut root = std::mem::take(&mut graph.root);
            let mut rewrite = Rewrite::new(graph, &root, self.options);
            rewrite.sweep(&mut root, self.rules, &mut report);
            rewrite.finish();
            graph.root = root;
            if report.total() == before {
                break;
            }
            dead_code::remove(graph);
        }
        report
    }
}

/// What a rule sees and may do.
pub struct Rewrite<'g> {
    graph: &'g mut Graph,
    /// What the passes may do.
    pub options: Options,
    current: NodeId,
    /// Uses of each value by live nodes, by results, and by sizes that are read off it.
    uses: Vec<u32>,
    /// The last node of each that uses a value, as of the start of the sweep.
    users: Vec<Option<NodeId>>,
    /// Values that turned out to be others.
    alias: BTreeMap<ValueId, ValueId>,
    /// Nodes to stand before the current one.
    before: Vec<NodeId>,
    /// Nodes that lost their last use.
    dead: BTreeSet<NodeId>,
}

impl<'g> Rewrite<'g> {
    fn new(graph: &'g mut Graph, root: &Region, options: Options) -> Self {
        let (uses, users) = count_uses(graph, root);
        Self {
            graph,
            options,
            current: NodeId(0),
            uses,
            users,
            alias: BTreeMap::new(),
            before: Vec::new(),
            dead: BTreeSet::new(),
        }
    }

    fn sweep(&mut self, region: &mut Region, rules: &[Rule], report: &mut PassReport) {
        let nodes = std::mem::take(&mut region.nodes);
        for id in nodes {
            if self.dead.contains(&id) {
                continue;
            }
            self.resolve_inputs(id);
            let mut inner: Vec<Region> =
                self.graph.node_mut(id).op.regions_mut().into_iter().map(std::mem::take).collect();
            for region in &mut inner {
                self.sweep(region, rules, report);
            }
            for (slot, swept) in self.graph.node_mut(id).op.regions_mut().into_iter().zip(inner) {
                *slot = swept;
            }
            self.current = id;
            for _ in 0..MAX_REWRITES {
                let Some(what) = rules.iter().find_map(|rule| (rule.apply)(self)) else {
                    break;
                };
                report.count(what);
                if self.dead.contains(&id) {
                    break;
                }
            }
            region.nodes.append(&mut self.before);
            if !self.dead.contains(&id) {
                region.nodes.push(id);
            }
        }
        for output in &mut region.outputs {
            *output = self.resolve(*output);
        }
    }

    fn finish(mut self) {
        let alias = std::mem::take(&mut self.alias);
        for origin in self.graph.symbols.values_mut() {
            if let SymbolOrigin::Dim { value, .. } = origin {
                while let Some(&other) = alias.get(value) {
                    *value = other;
                }
            }
        }
    }

    fn resolve(&self, mut id: ValueId) -> ValueId {
        while let Some(&other) = self.alias.get(&id) {
            id = other;
        }
        id
    }

    fn resolve_inputs(&mut self, id: NodeId) {
        for n in 0..self.graph.node(id).inputs.len() {
            let resolved = self.graph.node(id).inputs[n].map(|value| self.resolve(value));
            self.graph.node_mut(id).inputs[n] = resolved;
        }
    }

    // ---- looking ----

    /// The graph.
    pub fn graph(&self) -> &Graph {
        self.graph
    }

    /// The node under the rule.
    pub fn node(&self) -> &Node {
        self.graph.node(self.current)
    }

    /// The current node's operation.
    pub fn op(&self) -> &Op {
        &self.node().op
    }

    /// The current node's `n`-th operand.
    pub fn input(&self, n: usize) -> Option<ValueId> {
        self.node().inputs.get(n).copied().flatten()
    }

    /// The current node's first output.
    pub fn output(&self) -> Option<ValueId> {
        self.node().outputs.first().copied()
    }

    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        self.graph.ty(id)
    }

    /// The constant that a value is.
    pub fn constant(&self, id: ValueId) -> Option<&Constant> {
        self.graph.constant(id)
    }

    /// The node that computes a value.
    pub fn producer(&self, id: ValueId) -> Option<&Node> {
        self.graph.producer(id).map(|node| self.graph.node(node))
    }

    /// Whether a value has no more than one use.
    pub fn used_once(&self, id: ValueId) -> bool {
        self.uses.get(id.index()).is_some_and(|&uses| uses <= 1)
    }

    /// The node that uses a value that is used once.
    pub fn only_user(&self, id: ValueId) -> Option<&Node> {
        let user = self.users.get(id.index()).copied().flatten();
        user.filter(|user| !self.dead.contains(user)).map(|user| self.graph.node(user))
    }

    // ---- what it costs ----

    /// Takes the look at so many elements of a constant from the model's budget: many nodes may have one that is large.
    pub(super) fn look(&self, elements: usize) -> Option<()> {
        self.graph.budget.elements.take(elements as u64).then_some(())
    }

    /// Takes from the model's budget what a new constant of the size of another costs.
    pub(super) fn remake(&self, data: &TensorData) -> Option<()> {
        self.look(data.num_elements())?;
        self.graph.budget.bytes.take(data.bytes.len() as u64).then_some(())
    }

    // ---- changing ----

    /// Adds a constant that is known from the graph alone.
    pub fn add_constant(&mut self, name: Option<String>, data: TensorData) -> ValueId {
        self.add_derived(name, data, None)
    }

    /// Adds a constant that was made of others: of parameters of the original network, perhaps.
    pub fn add_derived(
        &mut self,
        name: Option<String>,
        data: TensorData,
        provenance: Option<Arc<Provenance>>,
    ) -> ValueId {
        let id = self.graph.add_derived(name, data, provenance);
        self.uses.resize(self.graph.values.len(), 0);
        id
    }

    /// Adds a node before the current one; `None` when its operands break a rule.
    pub fn insert(&mut self, op: Op, inputs: &[ValueId]) -> Option<ValueId> {
        self.insert_as(op, inputs, self.node().origin.clone())
    }

    /// Like [`Rewrite::insert`], with another origin than the current node's.
    pub fn insert_as(&mut self, op: Op, inputs: &[ValueId], origin: Origin) -> Option<ValueId> {
        self.insert_node(op, inputs.iter().copied().map(Some).collect(), origin)
    }

    /// Like [`Rewrite::insert`], where operands may be absent.
    pub fn insert_optional(&mut self, op: Op, inputs: Vec<Option<ValueId>>) -> Option<ValueId> {
        self.insert_node(op, inputs, self.node().origin.clone())
    }

    /// Both of these.
    pub fn insert_optional_as(
        &mut self,
        op: Op,
        inputs: Vec<Option<ValueId>>,
        origin: Origin,
    ) -> Option<ValueId> {
        self.insert_node(op, inputs, origin)
    }

    fn insert_node(&mut self, op: Op, inputs: Vec<Option<ValueId>>, origin: Origin) -> Option<ValueId> {
        if self.reads_own_size(&op) {
            return None;
        }
        let mut builder = Builder::new(self.graph);
        builder.origin = origin;
        let output = builder.add_one(op, inputs.clone()).ok()?;
        let nodes = builder.nodes;
        self.before.extend(nodes);
        self.uses.resize(self.graph.values.len(), 0);
        inputs.into_iter().flatten().for_each(|input| self.uses[input.index()] += 1);
        Some(output)
    }

    /// The current node does this instead. It gets the innermost module that holds all that it replaces. `None`, and
    /// nothing changed, when the result would have another type.
    pub fn replace(&mut self, op: Op, inputs: Vec<Option<ValueId>>) -> Option<()> {
        self.replace_as(op, inputs, None)
    }

    /// Like [`Rewrite::replace`]; with an origin to take over (a convolution's, when it absorbs what follows).
    pub fn replace_as(&mut self, op: Op, inputs: Vec<Option<ValueId>>, origin: Option<Origin>) -> Option<()> {
        if self.reads_own_size(&op) {
            return None;
        }
        let mut infer = Infer::new(self.graph, &inputs);
        let types = op.infer(&mut infer).ok()?;
        let outputs = &self.node().outputs;
        let same = types.len() == outputs.len()
            && types.iter().zip(outputs).all(|(new, &old)| {
                let old = self.graph.ty(old);
                // A size that inference makes up may be the one that is recorded.
                let unknown = |dim: &Dim| dim.symbols().iter().any(|s| !self.graph.symbols.contains_key(s));
                let fits = |(new, old): (&Dim, &Dim)| new == old || unknown(new);
                new.dtype == old.dtype && new.rank() == old.rank() && new.dims.iter().zip(&old.dims).all(fits)
            });
        if !same {
            return None;
        }
        let old = std::mem::replace(&mut self.graph.node_mut(self.current).inputs, inputs.clone());
        inputs.iter().flatten().for_each(|input| self.uses[input.index()] += 1);
        let mut consumed = vec![self.current];
        for input in old.into_iter().flatten() {
            self.release(input, &mut consumed);
        }
        let scope =
            origin.as_ref().map_or_else(|| self.common_scope(&consumed), |origin| origin.scope.clone());
        let node = self.graph.node_mut(self.current);
        node.op = op;
        if let Some(origin) = origin {
            node.origin = origin;
        }
        node.origin.scope = scope;
        Some(())
    }

    /// Whether an operation that is to stand here needs a size that is known from the current node's outputs only: of two
    /// unknown sizes that broadcast, say.
    fn reads_own_size(&self, op: &Op) -> bool {
        op.symbols().iter().any(|symbol| match self.graph.symbols.get(symbol) {
            Some(SymbolOrigin::Dim { value, .. }) => self.node().outputs.contains(value),
            Some(&(SymbolOrigin::Read { node, .. } | SymbolOrigin::Iteration { node })) => {
                node == self.current
            }
            None => false,
        })
    }

    /// The current node's output is this value. `None`, and nothing changed, when their types differ.
    pub fn redirect(&mut self, value: ValueId) -> Option<()> {
        let output = self.output()?;
        if self.ty(output) != self.ty(value) || self.node().outputs.len() != 1 {
            return None;
        }
        self.uses[value.index()] += self.uses[output.index()];
        self.uses[output.index()] = 0;
        self.alias.insert(output, value);
        // What is known of the contents, and a name for people, live on.
        let (name, host) = (self.graph.value(output).name.clone(), self.graph.value(output).host.clone());
        let kept = self.graph.value_mut(value);
        if kept.name.is_empty() {
            kept.name = name;
        }
        if kept.host.is_none() {
            kept.host = host;
        }
        self.dead.insert(self.current);
        let mut consumed = Vec::new();
        for input in self.node().inputs.clone().into_iter().flatten() {
            self.release(input, &mut consumed);
        }
        Some(())
    }

    /// Takes a use away; collects nodes that have none left.
    fn release(&mut self, id: ValueId, consumed: &mut Vec<NodeId>) {
        let mut released = vec![id];
        while let Some(id) = released.pop() {
            let uses = &mut self.uses[id.index()];
            *uses = uses.saturating_sub(1);
            let Some(node) = self.graph.producer(id).filter(|_| *uses == 0) else {
                continue;
            };
            let unused = self.graph.node(node).outputs.iter().all(|output| self.uses[output.index()] == 0);
            if unused && self.dead.insert(node) {
                consumed.push(node);
                released.extend(self.graph.node(node).inputs.iter().rev().flatten());
            }
        }
    }

    /// The current node's origin, in the deepest module that holds the nodes of all these values: the ones that make up
    /// a pattern, when others that go with it stand elsewhere (a mask that is computed once for all layers).
    pub fn origin_of(&self, values: &[ValueId]) -> Origin {
        let nodes: Vec<NodeId> = values.iter().filter_map(|&id| self.graph.producer(id)).collect();
        Origin { scope: self.common_scope(&nodes), ..self.node().origin.clone() }
    }

    /// The deepest module path that holds all of the given nodes; nodes of unknown origin say nothing.
    fn common_scope(&self, nodes: &[NodeId]) -> Vec<ScopeEntry> {
        let mut scopes = nodes.iter().map(|&id| &self.graph.node(id).origin.scope).filter(|s| !s.is_empty());
        let Some(first) = scopes.next() else {
            return Vec::new();
        };
        let mut length = first.len();
        for scope in scopes {
            let equal = first.iter().zip(scope).take_while(|(a, b)| a.path == b.path).count();
            length = length.min(equal);
        }
        first[..length].to_vec()
    }
}

/// How often each value is used: by nodes, by results of regions, and for a size that some operation needs. What a loop uses
/// of the values around it counts once more: moved into the loop, what makes them would run in every round.
fn count_uses(graph: &Graph, root: &Region) -> (Vec<u32>, Vec<Option<NodeId>>) {
    fn region_uses(
        graph: &Graph,
        region: &Region,
        uses: &mut [u32],
        users: &mut [Option<NodeId>],
        origins: &mut BTreeSet<ValueId>,
    ) {
        for &id in &region.nodes {
            let node = graph.node(id);
            for input in node.inputs.iter().flatten() {
                uses[input.index()] += 1;
                users[input.index()] = Some(id);
            }
            for symbol in node.op.symbols() {
                if let Some(SymbolOrigin::Dim { value, .. }) = graph.symbols.get(&symbol) {
                    origins.insert(*value);
                }
            }
            for inner in node.op.regions() {
                region_uses(graph, inner, uses, users, origins);
            }
            if let Op::Loop(Loop { body, .. }) = &node.op {
                captured(graph, body).into_iter().for_each(|value| uses[value.index()] += 1);
            }
        }
        for output in &region.outputs {
            uses[output.index()] += 1;
        }
    }
    let (mut uses, mut users) = (vec![0; graph.values.len()], vec![None; graph.values.len()]);
    let mut origins = BTreeSet::new();
    region_uses(graph, root, &mut uses, &mut users, &mut origins);
    for value in origins {
        uses[value.index()] += 1;
    }
    (uses, users)
}

/// The values that a region uses of those around it.
fn captured(graph: &Graph, region: &Region) -> BTreeSet<ValueId> {
    let (mut used, mut defined) = (BTreeSet::new(), BTreeSet::new());
    let mut regions = vec![region];
    while let Some(region) = regions.pop() {
        defined.extend(&region.parameters);
        used.extend(&region.outputs);
        for &id in &region.nodes {
            let node = graph.node(id);
            used.extend(node.inputs.iter().flatten());
            defined.extend(&node.outputs);
            regions.extend(node.op.regions());
        }
    }
    used.difference(&defined).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Fill;
    use crate::passes::testing::{checked, graph};
    use kiln_types::{BinaryOp, DType, Scalar};

    #[test]
    fn a_size_that_only_the_result_knows_is_not_used_to_make_it() {
        // n + m broadcast to a size of its own; that zeros are neutral cannot make it an expansion to that size.
        let g = graph(&["f32[n]", "f32[m]"], |b, x| {
            let dims = b.graph.ty(x[1]).dims.clone();
            let zeros = Op::Fill(Fill { dims, value: Scalar::Float(0.0), dtype: DType::F32 });
            let zeros = b.add(zeros, &[]).unwrap();
            let sum = b.add(Op::Binary(BinaryOp::Add), &[x[0], zeros]).unwrap();
            vec![sum, x[1]]
        });
        let g = checked(g, &[("n", 1), ("m", 3)]);
        assert!(g.root.nodes.iter().any(|&id| matches!(g.node(id).op, Op::Binary(_))), "{g}");
    }
}
