//! A chain of elementwise operations as one small program.

use crate::{Activation, BinaryOp, CompareOp, DType, Scalar, UnaryOp};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Index of a [`Step`] within its [`Expression`].
pub type StepId = u16;

/// One instruction; it names earlier steps only.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// The `n`-th operand.
    Input(u16),
    /// A constant of the given dtype.
    Constant(Scalar, DType),
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

/// An elementwise program: steps in order, the last one is the result.
///
/// A backend runs it over all operands at once (broadcast against each other): the CPU in cache-sized blocks, a GPU as
/// one kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Expression {
    /// The instructions; the result is the last.
    pub steps: Vec<Step>,
}
