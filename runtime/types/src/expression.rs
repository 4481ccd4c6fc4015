//! A chain of elementwise operations as one small program.

use crate::{Activation, BinaryOp, CompareOp, DType, InlineVec, Scalar, UnaryOp};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Index of a [`Step`] within its [`Expression`].
pub type StepId = u16;

/// One instruction; it names earlier steps only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Step {
    /// The `n`-th operand.
    Input(u16),
    /// A constant of the given dtype.
    Constant(Scalar, DType),
    /// The `n`-th parameter: a number of the given dtype that is told when the program runs. What changes from run to
    /// run (a learning rate) is a parameter, so that a program compiled once serves every value.
    Parameter(u16, DType),
    /// The position of each element along a dim of the result, in an integer or float dtype.
    Iota(u16, DType),
    /// A unary operation.
    Unary(UnaryOp, StepId),
    /// A binary operation on two steps of one dtype.
    Binary(BinaryOp, StepId, StepId),
    /// A comparison; its result is bool.
    Compare(CompareOp, StepId, StepId),
    /// An activation of a float step.
    Activation(Activation, StepId),
    /// `condition ? a : b`.
    Where(StepId, StepId, StepId),
    /// A dtype conversion.
    Cast(DType, StepId),
}

impl Step {
    /// The steps that it reads, in the order in which it names them.
    pub fn operands(&self) -> impl Iterator<Item = StepId> + use<> {
        let ids = match *self {
            Step::Input(_) | Step::Constant(..) | Step::Parameter(..) | Step::Iota(..) => [None, None, None],
            Step::Unary(_, x) | Step::Activation(_, x) | Step::Cast(_, x) => [Some(x), None, None],
            Step::Binary(_, a, b) | Step::Compare(_, a, b) => [Some(a), Some(b), None],
            Step::Where(mask, a, b) => [Some(mask), Some(a), Some(b)],
        };
        ids.into_iter().flatten()
    }

    /// The same step, reading others.
    #[must_use]
    pub fn with_operands(self, other: impl Fn(StepId) -> StepId) -> Self {
        match self {
            Step::Input(_) | Step::Constant(..) | Step::Parameter(..) | Step::Iota(..) => self,
            Step::Unary(op, x) => Step::Unary(op, other(x)),
            Step::Activation(op, x) => Step::Activation(op, other(x)),
            Step::Cast(dtype, x) => Step::Cast(dtype, other(x)),
            Step::Binary(op, a, b) => Step::Binary(op, other(a), other(b)),
            Step::Compare(op, a, b) => Step::Compare(op, other(a), other(b)),
            Step::Where(mask, a, b) => Step::Where(other(mask), other(a), other(b)),
        }
    }
}

/// An elementwise program: steps in order, some of which are the results.
///
/// A backend runs it over all operands at once (broadcast against each other): the CPU in cache-sized blocks, a GPU as
/// one kernel, which it may keep under the program itself: equality and hash go by the bits of every number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Expression {
    /// The instructions.
    pub steps: Vec<Step>,
    /// The steps that are results, in the results' order; when empty, the last step alone is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<StepId>,
}

impl Expression {
    /// A program whose one result is the last step.
    pub fn new(steps: Vec<Step>) -> Self {
        Self { steps, outputs: Vec::new() }
    }

    /// The steps that are results, in the results' order.
    pub fn results(&self) -> InlineVec<StepId> {
        match self.outputs.is_empty() {
            true => self.steps.len().checked_sub(1).map(|last| last as StepId).into_iter().collect(),
            false => self.outputs.as_slice().into(),
        }
    }

    /// The step that is the result, where there is just one.
    pub fn only_result(&self) -> Option<StepId> {
        match *self.outputs.as_slice() {
            [] => self.steps.len().checked_sub(1).map(|last| last as StepId),
            [result] => Some(result),
            [_, _, ..] => None,
        }
    }

    /// The dtype of each step, for operands of the given dtypes; nothing when a step names what is not there.
    pub fn dtypes(&self, operands: &[DType]) -> Option<InlineVec<DType>> {
        let mut dtypes: InlineVec<DType> = InlineVec::with_capacity(self.steps.len());
        for step in &self.steps {
            let of = |id: StepId| dtypes.get(usize::from(id)).copied();
            dtypes.push(match *step {
                Step::Input(n) => operands.get(usize::from(n)).copied()?,
                Step::Constant(_, dtype)
                | Step::Parameter(_, dtype)
                | Step::Iota(_, dtype)
                | Step::Cast(dtype, _) => dtype,
                Step::Compare(..) | Step::Unary(UnaryOp::IsNan | UnaryOp::IsInf, _) => DType::Bool,
                Step::Unary(_, x) | Step::Activation(_, x) | Step::Binary(_, x, _) | Step::Where(_, x, _) => {
                    of(x)?
                }
            });
        }
        Some(dtypes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::hash::BuildHasher;

    #[test]
    fn programs_are_equal_by_the_bits_of_their_numbers() {
        let of = |number: f64| {
            let constant = Step::Constant(Scalar::Float(number), DType::F32);
            Expression::new(alloc::vec![Step::Input(0), constant, Step::Binary(BinaryOp::Add, 0, 1)])
        };
        assert_eq!(of(f64::NAN), of(f64::NAN));
        assert_ne!(of(0.0), of(-0.0));
        assert_ne!(Activation::Elu { alpha: 0.0 }, Activation::Elu { alpha: -0.0 });
        let hasher = std::hash::RandomState::new();
        assert_eq!(hasher.hash_one(of(f64::NAN)), hasher.hash_one(of(f64::NAN)));
        assert_ne!(hasher.hash_one(of(0.0)), hasher.hash_one(of(-0.0)));
    }

    #[test]
    fn results_are_the_last_step_unless_they_are_named() {
        let mut program = Expression::new(alloc::vec![Step::Input(0), Step::Unary(UnaryOp::Exp, 0)]);
        assert_eq!((program.results(), program.only_result()), ([1].into(), Some(1)));
        program.outputs = alloc::vec![1, 0];
        assert_eq!((program.results(), program.only_result()), ([1, 0].into(), None));
        assert_eq!(
            (Expression::default().results(), Expression::default().only_result()),
            (InlineVec::new(), None)
        );
    }
}
