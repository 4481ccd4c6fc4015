//! Types of an operation's outputs, from those of its operands.

use crate::ir::{Dim, Graph, Infer, Op, RuleResult, TensorType, ValueId};

impl Op {
    /// Types of the outputs, or the rule that the operands break.
    pub fn infer(&self, _cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        unimplemented!()
    }

    /// The contents of the single output as dims, when the operands' contents (or types) determine them.
    pub fn host(&self, _graph: &Graph, _inputs: &[Option<ValueId>]) -> Option<Vec<Dim>> {
        None
    }
}
