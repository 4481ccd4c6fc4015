//! Branches whose condition only the run tells: attempts, and what follows from a choice between ranks.

use super::{Lowering, Scope, tensors};
use crate::error::{ImportErrorKind, ImportResult};
use crate::ir::{Dim, Graph, NodeId, Op, RuleError, RuleResult};
use crate::onnx::operator::{Operand, Outputs};
use crate::onnx::proto::{GraphProto, NodeProto};

/// Branches that both must be lowered, each after a copy of the graph.
const MAX_BRANCHES: usize = 1024;

/// A state to return to when an attempt fails.
pub(crate) struct Snapshot<'m> {
    graph: Graph,
    nodes: Vec<NodeId>,
    scopes: Vec<Scope<'m>>,
}

/// An `If` whose branches yield different ranks: what follows must be lowered once for each.
pub(crate) struct Choice<'m> {
    /// Which branch runs.
    pub(crate) condition: Dim,
    /// The branches: taken, and not taken.
    pub(crate) branches: [&'m GraphProto; 2],
}

impl<'m> Lowering<'_, 'm> {
    /// The state before branches; an error when a model has too many.
    pub(crate) fn before_branches(&mut self) -> RuleResult<Snapshot<'m>> {
        self.branches += 1;
        if self.branches > MAX_BRANCHES {
            let what = format!("more than {MAX_BRANCHES} choices that only the run makes");
            return Err(RuleError::TooLarge { what });
        }
        Ok(self.snapshot())
    }

    fn snapshot(&self) -> Snapshot<'m> {
        Snapshot {
            graph: self.builder.graph.clone(),
            nodes: self.builder.nodes.clone(),
            scopes: self.scopes.clone(),
        }
    }

    pub(crate) fn restore(&mut self, snapshot: &Snapshot<'m>) {
        *self.builder.graph = snapshot.graph.clone();
        self.builder.nodes = snapshot.nodes.clone();
        self.scopes = snapshot.scopes.clone();
        self.nested = None;
    }

    /// Asks for the rest of the graph to be lowered once for each branch.
    pub(crate) fn request_choice(&mut self, choice: Choice<'m>) {
        self.choice = Some(choice);
    }

    /// Lowers a branch and everything after it, for both branches. A branch with which the rest breaks a rule cannot
    /// be the one that runs (PyTorch's `squeeze` of a size that the file does not give): the other is taken.
    pub(super) fn choose(
        &mut self,
        choice: &Choice<'m>,
        node: &'m NodeProto,
        rest: &[&'m NodeProto],
        outputs: &[&'m str],
    ) -> ImportResult<Vec<Operand>> {
        let before = self.snapshot();
        let [taken, other] = choice.branches;
        let outer = self.builder.open_region();
        let first = self.attempt(taken, node, rest, outputs);
        let first = match first.and_then(|values| Ok(tensors(values).map_err(ImportErrorKind::Rule)?)) {
            Ok(values) => self.builder.close_region(outer, values),
            Err(error) => {
                self.restore(&before);
                return self.attempt(other, node, rest, outputs).map_err(|_| error);
            }
        };
        self.scopes.clone_from(&before.scopes);
        let outer = self.builder.open_region();
        let second = self.attempt(other, node, rest, outputs);
        let Ok(Ok(values)) = second.map(tensors) else {
            self.restore(&before);
            return self.attempt(taken, node, rest, outputs);
        };
        let second = self.builder.close_region(outer, values);
        let op = Op::If { condition: choice.condition.clone(), then_region: first, else_region: second };
        let values = self.builder.add_all(op, Vec::new()).map_err(ImportErrorKind::Rule)?;
        Ok(Outputs::from(values).0)
    }

    fn attempt(
        &mut self,
        branch: &'m GraphProto,
        node: &'m NodeProto,
        rest: &[&'m NodeProto],
        outputs: &[&'m str],
    ) -> ImportResult<Vec<Operand>> {
        let values = self.subgraph(branch)?;
        self.bind_outputs(node, values)?;
        self.run(rest, outputs)
    }
}
