//! Branches whose condition only the run tells: attempts, and what follows from a choice between ranks.

use super::{Lowering, tensors};
use crate::error::{ImportError, ImportErrorKind, ImportResult};
use crate::ir::{Dim, Op, RegionState, RuleError, SymbolOrigin, ValueId, op};
use crate::onnx::operator::{Operand, Outputs};
use crate::onnx::proto::{GraphProto, NodeProto};

/// A state to return to when an attempt fails: how much there was. What an attempt does beside adding to the graph is
/// undone with its regions and scopes.
pub(crate) struct Snapshot {
    values: usize,
    nodes: usize,
    constants: usize,
    region: RegionState,
    named: usize,
    strings: usize,
    /// Names of parameters.
    met: usize,
}

/// What yields one of two ranks, as an `If` may: what follows must be lowered once for each.
pub(crate) struct Choice<'m> {
    /// Which branch runs.
    pub(crate) condition: Dim,
    /// The branches: taken, and not taken.
    pub(crate) branches: [Branch<'m>; 2],
}

/// One of the ways that the node's outputs may be found.
pub(crate) enum Branch<'m> {
    /// A graph of an `If`.
    Graph(&'m GraphProto),
    /// A value without these axes, for a `Squeeze`.
    Squeezed(ValueId, Vec<usize>),
}

impl<'m> Lowering<'_, 'm> {
    /// The state before an attempt.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let graph = &*self.builder.graph;
        Snapshot {
            values: graph.values.len(),
            nodes: graph.nodes.len(),
            constants: graph.constants.len(),
            region: self.builder.region_state(),
            named: self.named.len(),
            strings: graph.strings.table.len(),
            met: self.met.len(),
        }
    }

    /// Undoes an attempt whose regions and scopes are closed.
    pub(crate) fn restore(&mut self, before: &Snapshot) {
        self.builder.restore_region(before.region);
        let graph = &mut *self.builder.graph;
        let made = graph.values.get(before.values..).unwrap_or_default();
        let sizes = made.iter().flat_map(|value| &value.ty.dims).filter_map(Dim::as_symbol);
        let read =
            graph.nodes.get(before.nodes..).unwrap_or_default().iter().flat_map(|node| match &node.op {
                Op::HostRead(op::HostRead { symbols }) => symbols.as_slice(),
                Op::Loop(op::Loop { iteration, .. }) => std::slice::from_ref(iteration),
                _ => &[],
            });
        for symbol in sizes.chain(read) {
            if graph.symbols.get(symbol).is_some_and(|origin| !before.has(origin)) {
                graph.symbols.remove(symbol);
            }
        }
        for id in self.named.drain(before.named..).filter(|id| id.index() < before.values) {
            graph.value_mut(id).name.clear();
        }
        graph.values.truncate(before.values);
        graph.nodes.truncate(before.nodes);
        graph.constants.truncate(before.constants);
        for text in graph.strings.table.drain(before.strings..) {
            self.places.remove(&text);
        }
        for name in self.met.drain(before.met..) {
            self.keys.remove(name);
        }
        let first = ValueId(before.values as u32);
        self.narrow.split_off(&first);
        self.positions.split_off(&first);
        self.counted = self.counted.min(before.nodes);
        self.nested = None;
    }

    /// Asks for the rest of the graph to be lowered once for each branch.
    pub(crate) fn request_choice(&mut self, choice: Choice<'m>) {
        self.choice = Some(choice);
    }

    /// Whether what failed last in a subgraph contradicts the shapes that it met.
    pub(crate) fn failed_on_shapes(&self) -> bool {
        self.nested.as_ref().is_some_and(contradicts_shapes)
    }

    /// Lowers a branch and everything after it, for both branches. A branch with whose shapes the rest breaks a rule cannot
    /// be the one that runs (PyTorch's `squeeze` of a size that the file does not give): the other is taken. Any other error
    /// may lie in the branch that runs.
    pub(super) fn choose(
        &mut self,
        choice: &Choice<'m>,
        node: &'m NodeProto,
        rest: &[&'m NodeProto],
        outputs: &[&'m str],
    ) -> ImportResult<Vec<Operand>> {
        let before = self.snapshot();
        let [taken, other] = &choice.branches;
        let outer = self.builder.open_region();
        let first = self.attempt(taken, node, rest, outputs);
        let first = match first.and_then(|values| Ok(tensors(values).map_err(ImportErrorKind::Rule)?)) {
            Ok(values) => self.builder.close_region(outer, values),
            Err(error) => {
                self.builder.close_region(outer, Vec::new());
                self.restore(&before);
                if !contradicts_shapes(&error) {
                    return Err(error);
                }
                return self
                    .attempt(other, node, rest, outputs)
                    .map_err(|of_other| if contradicts_shapes(&of_other) { error } else { of_other });
            }
        };
        let outer = self.builder.open_region();
        let second = self.attempt(other, node, rest, outputs);
        let values = match second.and_then(|values| Ok(tensors(values).map_err(ImportErrorKind::Rule)?)) {
            Ok(values) => values,
            Err(error) => {
                self.builder.close_region(outer, Vec::new());
                self.restore(&before);
                if !contradicts_shapes(&error) {
                    return Err(error);
                }
                return self.attempt(taken, node, rest, outputs);
            }
        };
        if let Some(branch) = self.declared_branch(choice, outputs, [&first.outputs, &values]) {
            self.builder.close_region(outer, Vec::new());
            self.restore(&before);
            return self.attempt(branch, node, rest, outputs);
        }
        let second = self.builder.close_region(outer, values);
        let op =
            Op::If(op::If { condition: choice.condition.clone(), then_region: first, else_region: second });
        let values = self.builder.add_all(op, Vec::new()).map_err(ImportErrorKind::Rule)?;
        Ok(Outputs::from(values).0)
    }

    /// The branch that yields the ranks which the file declares for its outputs, when the other yields different ones:
    /// PyTorch's `squeeze` with nothing after it that would break a rule.
    fn declared_branch<'c>(
        &self,
        choice: &'c Choice<'m>,
        outputs: &[&'m str],
        results: [&[ValueId]; 2],
    ) -> Option<&'c Branch<'m>> {
        let ranks = results.map(|values| values.iter().map(|&value| self.rank(value)).collect::<Vec<_>>());
        if ranks[0] == ranks[1] {
            return None;
        }
        let declared: Option<Vec<usize>> =
            outputs.iter().map(|name| self.model.output_ranks.get(name).copied()).collect();
        let found = ranks.iter().position(|ranks| Some(ranks) == declared.as_ref())?;
        choice.branches.get(found)
    }

    fn attempt(
        &mut self,
        branch: &Branch<'m>,
        node: &'m NodeProto,
        rest: &[&'m NodeProto],
        outputs: &[&'m str],
    ) -> ImportResult<Vec<Operand>> {
        // What the attempt names is forgotten after it.
        self.open_scope(false, rest.len())?;
        let values = match branch {
            Branch::Graph(graph) => self.subgraph(graph),
            Branch::Squeezed(value, axes) => match self.squeeze(*value, axes) {
                Ok(value) => Ok(vec![Operand::Tensor(value)]),
                Err(rule) => Err(ImportErrorKind::Rule(rule).into()),
            },
        };
        let result = values.and_then(|values| Ok(self.bind_outputs(node, values)?));
        let result = result.and_then(|()| self.run(rest, outputs));
        self.scopes.pop();
        result
    }
}

/// Whether shapes do not fit what is done with them.
fn contradicts_shapes(error: &ImportError) -> bool {
    let ImportErrorKind::Rule(rule) = &*error.kind else {
        return false;
    };
    matches!(
        rule,
        RuleError::Rank { .. } | RuleError::Dims { .. } | RuleError::Axis { .. } | RuleError::Misfit { .. }
    )
}

impl Snapshot {
    /// Whether what a symbol is read from was there.
    pub(crate) fn has(&self, origin: &SymbolOrigin) -> bool {
        match origin {
            SymbolOrigin::Dim { value, .. } => value.index() < self.values,
            SymbolOrigin::Read { node, .. } | SymbolOrigin::Iteration { node } => node.index() < self.nodes,
        }
    }
}
