//! Operands of different ranks meet.

use super::Lowering;
use crate::ir::{Dim, Op, RuleResult, ValueId};
use kiln_types::{BinaryOp, CompareOp, TensorData};

impl Lowering<'_, '_> {
    /// Gives operands one rank by leading axes of size 1; constants of one element become constants of rank 0, which
    /// are spelt as literals, as long as the result's rank does not depend on them.
    pub(crate) fn broadcast(&mut self, values: &[ValueId]) -> RuleResult<Vec<ValueId>> {
        let rank = values.iter().map(|&value| self.rank(value)).max().unwrap_or(0);
        let single: Vec<bool> = values.iter().map(|&value| self.is_single(value)).collect();
        let has_tensor = single.contains(&false);
        let mut result = Vec::with_capacity(values.len());
        for (&value, &single) in values.iter().zip(&single) {
            result.push(if single && has_tensor {
                self.literal(value)
            } else {
                self.with_rank(value, rank)?
            });
        }
        Ok(result)
    }

    /// A constant of one element that is no parameter of its own.
    fn is_single(&self, value: ValueId) -> bool {
        let Some(constant) = self.builder.graph.constant(value) else {
            return false;
        };
        // A parameter stays one: training changes it, and it is another in a checkpoint.
        let named = constant.name.is_some() && constant.data.dtype.is_float();
        let parameter = constant.provenance.is_some() || (self.trainable && named);
        constant.data.num_elements() == 1 && !constant.data.dtype.is_bool() && !parameter
    }

    fn literal(&mut self, value: ValueId) -> ValueId {
        let data = match self.builder.graph.constant(value) {
            Some(constant) if !constant.data.shape.is_empty() => {
                TensorData { shape: Vec::new(), ..constant.data.clone() }
            }
            _ => return value,
        };
        self.builder.graph.add_constant(None, data)
    }

    /// Leading axes of size 1 up to a rank.
    pub(crate) fn with_rank(&mut self, value: ValueId, rank: usize) -> RuleResult<ValueId> {
        let mut dims = self.dims(value);
        let missing = rank.saturating_sub(dims.len());
        dims.splice(..0, std::iter::repeat_n(Dim::constant(1), missing));
        self.reshape(value, dims)
    }

    pub(crate) fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> RuleResult<ValueId> {
        let operands = self.broadcast(&[a, b])?;
        self.add(Op::Binary(op), &operands)
    }

    pub(crate) fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> RuleResult<ValueId> {
        let operands = self.broadcast(&[a, b])?;
        self.add(Op::Compare(op), &operands)
    }

    /// `condition ? a : b`.
    pub(crate) fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> RuleResult<ValueId> {
        let operands = self.broadcast(&[condition, a, b])?;
        self.add(Op::Where, &operands)
    }
}
