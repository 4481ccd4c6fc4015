//! Types of an operation's outputs, from those of its operands.
//!
//! One file a family. Whatever an operation yields, its dims are checked here once: no negative size, no tensor beyond
//! [`MAX_ELEMENTS`].

mod broadcast;
mod control;
mod elementwise;
mod fold;
mod indexing;
mod linear;
mod norm;
mod rnn;
mod shape;
mod spatial;

use crate::ir::{Dim, Infer, Op, RuleError, RuleResult, TensorType};
use kiln_types::{DType, ReduceOp};

/// More elements than any machine holds (a trillion); a model that asks for more is broken or hostile.
const MAX_ELEMENTS: i64 = 1 << 40;

impl Op {
    /// Types of the outputs, or the rule that the operands break.
    pub fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let types = self.rule(cx)?;
        for ty in &types {
            check_size(ty)?;
        }
        Ok(types)
    }

    fn rule(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let one = match self {
            Op::Unary(op) => elementwise::unary(cx, *op),
            Op::Binary(op) => elementwise::binary(cx, *op),
            Op::Compare(_) => elementwise::compare(cx),
            Op::Where => elementwise::select(cx),
            Op::Activation(_) => elementwise::activation(cx),
            Op::Clamp { .. } => elementwise::clamp(cx),
            Op::Cast { to } => Ok(cx.ty(0)?.with_dtype(*to)),
            Op::Elementwise(expression) => elementwise::expression(cx, expression),

            Op::Reshape { dims } => shape::reshape(cx, dims),
            Op::Permute { axes } => shape::permute(cx, axes),
            Op::Expand { dims } => shape::expand(cx, dims),
            Op::Slice { ranges } => shape::slice(cx, ranges),
            Op::Concat { axis } => shape::concat(cx, *axis),
            Op::Pad { padding, mode, .. } => shape::pad(cx, padding, *mode),
            Op::Repeat { times } => shape::repeat(cx, times),

            Op::Fill { dims, dtype, .. } => Ok(TensorType::new(*dtype, dims.iter().cloned())),
            Op::Arange { start, end, step } => shape::arange(cx, start, end, *step),
            Op::HostTensor { values, dims } => shape::host_tensor(values, dims),
            Op::HostRead { symbols } => return shape::host_read(cx, symbols.len()),

            Op::Take { axis, .. } => indexing::take(cx, *axis),
            Op::Gather { axis } => indexing::gather(cx, *axis),
            Op::Scatter { axis, .. } => indexing::scatter(cx, *axis),

            Op::Reduce { op, axes, keep_dims } => fold::reduce(cx, *op, axes, *keep_dims),
            Op::ArgReduce { axis, keep_dims, .. } => fold::arg_reduce(cx, *axis, *keep_dims),
            Op::Cumulative { axis, .. } => fold::cumulative(cx, *axis),
            Op::Trilu { .. } => fold::trilu(cx),

            Op::MatMul => linear::matmul(cx),
            Op::Linear { .. } => linear::linear(cx),
            Op::Attention(_) => linear::attention(cx),

            Op::Conv { options, activation } => spatial::conv(cx, options, *activation),
            Op::ConvTranspose(options) => spatial::conv_transpose(cx, options),
            Op::Pool(_, options) => spatial::pool(cx, options),
            Op::MaxPoolWithIndices(options) => {
                let maxima = spatial::pool(cx, options)?;
                let positions = maxima.with_dtype(DType::I64);
                return Ok(vec![maxima, positions]);
            }
            Op::AdaptiveAvgPool { output_size } => spatial::adaptive_pool(cx, output_size),
            Op::Interpolate { sizes, .. } => spatial::interpolate(cx, sizes),

            Op::Softmax { axis } | Op::LogSoftmax { axis } => norm::along(cx, *axis),
            Op::LayerNorm { .. } => norm::trailing(cx, 2),
            Op::RmsNorm { .. } => norm::trailing(cx, 1),
            Op::GroupNorm { groups, .. } => norm::group(cx, *groups),
            Op::BatchNorm { .. } => norm::batch(cx),
            Op::Dropout { .. } => Ok(cx.ty(0)?.clone()),

            Op::Rnn(options) => return rnn::rnn(cx, options),
            Op::If { then_region, else_region, .. } => {
                return control::branches(cx, then_region, else_region);
            }
            Op::Call(call) => return Ok(call.outputs.clone()),
        };
        one.map(|ty| vec![ty])
    }
}

/// More axes than any operator gives a tensor.
const MAX_RANK: usize = 64;

/// Refuses negative sizes, element counts beyond [`MAX_ELEMENTS`] and more than [`MAX_RANK`] axes.
fn check_size(ty: &TensorType) -> RuleResult<()> {
    if ty.rank() > MAX_RANK {
        return Err(RuleError::TooLarge { what: format!("a result of {} axes", ty.rank()) });
    }
    let mut count = 1i64;
    let mut empty = false;
    for dim in &ty.dims {
        match dim.as_constant() {
            Some(0) => empty = true,
            Some(size) if size < 0 => {
                return Err(RuleError::Attribute {
                    attribute: "shape".into(),
                    reason: format!("gives a result {ty} of negative size"),
                });
            }
            Some(size) => count = count.saturating_mul(size),
            None => {}
        }
    }
    if count > MAX_ELEMENTS && !empty {
        return Err(RuleError::TooLarge { what: format!("a result {ty}") });
    }
    Ok(())
}

/// The operand's type when its rank is at least `least`.
fn at_least_rank<'a>(cx: &Infer<'a>, n: usize, name: &str, least: usize) -> RuleResult<&'a TensorType> {
    let ty = cx.ty(n)?;
    if ty.rank() < least {
        return Err(RuleError::Rank {
            input: name.into(),
            actual: ty.rank(),
            expected: format!("expected at least {least}"),
        });
    }
    Ok(ty)
}

/// The operand's type when its rank is `rank`.
fn of_rank<'a>(cx: &Infer<'a>, n: usize, name: &str, rank: usize) -> RuleResult<&'a TensorType> {
    let ty = cx.ty(n)?;
    if ty.rank() != rank {
        return Err(RuleError::Rank {
            input: name.into(),
            actual: ty.rank(),
            expected: format!("expected {rank}"),
        });
    }
    Ok(ty)
}

/// Checks that a dtype is a float.
fn need_float(name: &str, ty: &TensorType) -> RuleResult<()> {
    need(name, ty, ty.dtype.is_float(), "expected a float")
}

/// Checks that a dtype is an integer.
fn need_int(name: &str, ty: &TensorType) -> RuleResult<()> {
    need(name, ty, ty.dtype.is_int(), "expected an integer")
}

/// Checks that a dtype is bool.
fn need_bool(name: &str, ty: &TensorType) -> RuleResult<()> {
    need(name, ty, ty.dtype.is_bool(), "expected bool")
}

/// An error about a dtype unless `holds`.
fn need(name: &str, ty: &TensorType, holds: bool, expected: &str) -> RuleResult<()> {
    if holds {
        return Ok(());
    }
    Err(RuleError::DType { input: name.into(), actual: ty.dtype, expected: expected.into() })
}

/// Checks that two operands have one dtype.
fn same_dtype(left: &str, a: &TensorType, right: &str, b: &TensorType) -> RuleResult<()> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(RuleError::DTypesDiffer {
        left: left.into(),
        left_dtype: a.dtype,
        right: right.into(),
        right_dtype: b.dtype,
    })
}

/// Checks that an axis lies inside a rank.
fn check_axis(axis: usize, rank: usize) -> RuleResult<()> {
    if axis < rank {
        return Ok(());
    }
    Err(RuleError::Axis { axis: i64::try_from(axis).unwrap_or(i64::MAX), rank })
}

/// Whether two sizes can be equal: not known to differ.
fn may_equal(a: &Dim, b: &Dim) -> bool {
    (a - b).as_constant().is_none_or(|difference| difference == 0)
}

/// An error about dims that contradict each other.
fn dims_error(what: &str, left: &TensorType, right: &TensorType) -> RuleError {
    RuleError::Dims { what: what.into(), left: left.clone(), right: right.clone() }
}

/// Checks that two sizes can be equal; the types are for the message.
fn need_equal(what: &str, a: &Dim, left: &TensorType, b: &Dim, right: &TensorType) -> RuleResult<()> {
    if may_equal(a, b) { Ok(()) } else { Err(dims_error(what, left, right)) }
}

/// An error about an attribute.
fn attribute(attribute: &str, reason: impl Into<String>) -> RuleError {
    RuleError::Attribute { attribute: attribute.into(), reason: reason.into() }
}

/// Whether a reduction takes a dtype.
fn reduces(op: ReduceOp, dtype: DType) -> bool {
    match op {
        ReduceOp::Any | ReduceOp::All => dtype.is_bool(),
        _ => !dtype.is_bool(),
    }
}
