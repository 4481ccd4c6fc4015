//! What nearly every operator needs: `use super::prelude::*;`.

pub(super) use super::super::lowering::{Lowering, Value, axes_of, axis_of};
pub(super) use super::super::node::{SourceNode, invalid, misfit};
pub(super) use super::super::operator::{Args, Forms, Operand, Operator, Outputs, Spec};
pub(super) use crate::ir::{Arg, Call, Dim, Op, RuleError, RuleResult, TensorType, ValueId};
pub(super) use kiln_types::{BinaryOp, CompareOp, DType, ReduceOp, Scalar, UnaryOp};
