//! Elementwise operations.

mod chain;

use super::Cx;
use super::making;
use crate::ir::{Arg, Op, TensorType};
use kiln_types::{Activation, BinaryOp, CompareOp, DType, DTypeKind, Scalar, UnaryOp};

pub(super) fn call(op: &Op, cx: &Cx<'_>) -> Arg {
    match op {
        Op::Unary(op) => unary(*op, Arg::Operand(0)),
        Op::Binary(op) => binary(*op, cx),
        Op::Compare(op) => compare(*op, cx),
        Op::Where => select(cx),
        Op::Activation(activation) => apply(*activation, Arg::Operand(0)),
        Op::Clamp { min, max } => clamp(*min, *max, cx.dtype(0)),
        Op::Cast { to } => cast(Arg::Operand(0), cx.dtype(0), *to),
        Op::Elementwise(expression) => chain::call(expression, cx),
        _ => Arg::Operand(0),
    }
}

fn unary(op: UnaryOp, x: Arg) -> Arg {
    x.then(op.name(), [])
}

/// Whether tensors and numbers meet in it on either side.
fn is_arithmetic(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div)
}

/// The method that takes a number on the right.
fn scalar_method(op: BinaryOp, dtype: DType) -> Option<&'static str> {
    Some(match op {
        BinaryOp::Atan2 => "atan2_scalar",
        BinaryOp::Pow if dtype.is_float() => "powf_scalar",
        BinaryOp::Pow => "powi_scalar",
        BinaryOp::Remainder => "remainder_scalar",
        BinaryOp::Fmod => "fmod_scalar",
        BinaryOp::Max => "clamp_min",
        BinaryOp::Min => "clamp_max",
        BinaryOp::BitwiseAnd => "bitwise_and_scalar",
        BinaryOp::BitwiseOr => "bitwise_or_scalar",
        BinaryOp::BitwiseXor => "bitwise_xor_scalar",
        BinaryOp::ShiftLeft => "bitwise_left_shift_scalar",
        BinaryOp::ShiftRight => "bitwise_right_shift_scalar",
        _ => return None,
    })
}

/// The method that takes a tensor.
fn method(op: BinaryOp, dtype: DType) -> &'static str {
    match op {
        BinaryOp::Pow if dtype.is_int() => "powi",
        op => op.name(),
    }
}

fn is_commutative(op: BinaryOp) -> bool {
    matches!(
        op,
        BinaryOp::Add
            | BinaryOp::Mul
            | BinaryOp::Max
            | BinaryOp::Min
            | BinaryOp::BitwiseAnd
            | BinaryOp::BitwiseOr
            | BinaryOp::BitwiseXor
    )
}

fn binary(op: BinaryOp, cx: &Cx<'_>) -> Arg {
    let dtype = cx.dtype(0);
    let (left, right) = (cx.scalar(0, cx.rank(1)), cx.scalar(1, cx.rank(0)));
    if let Some(number) = right
        && let Some(expr) = with_scalar(op, Arg::Operand(0), number, dtype)
    {
        return expr;
    }
    if let Some(number) = left {
        if is_commutative(op)
            && let Some(expr) = with_scalar(op, Arg::Operand(1), number.clone(), dtype)
        {
            return expr;
        }
        return scalar_first(op, number, Arg::Operand(1));
    }
    between(op, Arg::Operand(0), Arg::Operand(1), dtype)
}

fn between(op: BinaryOp, a: Arg, b: Arg, dtype: DType) -> Arg {
    a.then(method(op, dtype), [b])
}

fn with_scalar(op: BinaryOp, x: Arg, number: Arg, dtype: DType) -> Option<Arg> {
    if is_arithmetic(op) {
        return Some(x.then(op.name(), [number]));
    }
    if matches!(op, BinaryOp::Max | BinaryOp::Min) && is_nan(&number) {
        // A bound that is no number is ignored, where the operation yields NaN.
        return Some(x.clone().then("full_like", [number]).then(op.name(), [x]));
    }
    scalar_method(op, dtype).map(|method| x.then(method, [number]))
}

/// A number on the left of an operation that does not commute.
fn scalar_first(op: BinaryOp, number: Arg, x: Arg) -> Arg {
    if is_one(op, &number) {
        return x.then("recip", []);
    }
    if is_arithmetic(op) {
        return number.then(op.name(), [x]);
    }
    x.clone().then("full_like", [number]).then(op.name(), [x])
}

fn is_nan(number: &Arg) -> bool {
    matches!(number, Arg::Scalar(value, _) if value.to_f64().is_nan())
}

/// Whether it is `1.0 / …`.
fn is_one(op: BinaryOp, number: &Arg) -> bool {
    op == BinaryOp::Div
        && matches!(number, Arg::Scalar(value, dtype) if dtype.is_float() && value.to_f64() == 1.0)
}

fn compare(op: CompareOp, cx: &Cx<'_>) -> Arg {
    // Bool tensors have no comparison with a number.
    let kind = cx.dtype(0).kind();
    if kind != DTypeKind::Bool {
        if let Some(number) = cx.scalar(1, cx.rank(0)) {
            return Arg::Operand(0).then(compare_scalar(op), [number]);
        }
        if let Some(number) = cx.scalar(0, cx.rank(1)) {
            return Arg::Operand(1).then(compare_scalar(mirrored(op)), [number]);
        }
    }
    Arg::Operand(0).then(op.name(), [Arg::Operand(1)])
}

fn compare_scalar(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Equal => "equal_elem",
        CompareOp::NotEqual => "not_equal_elem",
        CompareOp::Greater => "greater_elem",
        CompareOp::GreaterEqual => "greater_equal_elem",
        CompareOp::Lower => "lower_elem",
        CompareOp::LowerEqual => "lower_equal_elem",
    }
}

/// The comparison with its sides changed.
fn mirrored(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Greater => CompareOp::Lower,
        CompareOp::GreaterEqual => CompareOp::LowerEqual,
        CompareOp::Lower => CompareOp::Greater,
        CompareOp::LowerEqual => CompareOp::GreaterEqual,
        op => op,
    }
}

fn select(cx: &Cx<'_>) -> Arg {
    let (mask, yes, no) = (Arg::Operand(0), Arg::Operand(1), Arg::Operand(2));
    let output = cx.output();
    let rank = output.map_or(0, TensorType::rank);
    if let (Some(yes), Some(no), Some(ty)) = (cx.scalar(1, rank), cx.scalar(2, rank), output) {
        return making::full(&ty.dims, no, ty.dtype).then("mask_fill", [mask, yes]);
    }
    if let Some(number) = cx.scalar(1, rank)
        && cx.rank(2) == rank
    {
        return no.then("mask_fill", [mask, number]);
    }
    if let Some(number) = cx.scalar(2, rank)
        && cx.rank(1) == rank
    {
        return yes.then("mask_fill", [mask.then("bool_not", []), number]);
    }
    no.then("mask_where", [mask, yes])
}

/// An activation of an expression.
pub(super) fn apply(activation: Activation, x: Arg) -> Arg {
    let call = |path: &'static str, numbers: &[f64]| {
        let numbers = numbers.iter().map(|&n| Arg::Float(n));
        Arg::call(path, std::iter::once(x.clone()).chain(numbers).collect::<Vec<_>>())
    };
    match activation {
        Activation::Relu => call("tensor::activation::relu", &[]),
        Activation::LeakyRelu { slope } => call("tensor::activation::leaky_relu", &[slope]),
        Activation::Gelu => call("tensor::activation::gelu", &[]),
        Activation::GeluTanh => call("tensor::activation::gelu_approximate", &[]),
        Activation::Sigmoid => call("tensor::activation::sigmoid", &[]),
        Activation::Tanh => call("tensor::activation::tanh", &[]),
        Activation::Silu => call("tensor::activation::silu", &[]),
        Activation::Mish => call("tensor::activation::mish", &[]),
        Activation::Softplus => call("tensor::activation::softplus", &[1.0]),
        Activation::HardSigmoid { alpha, beta } => call("tensor::activation::hard_sigmoid", &[alpha, beta]),
        Activation::HardSwish => call("tensor::activation::hard_swish", &[]),
        Activation::Elu { alpha } => call("tensor::activation::elu", &[alpha]),
        Activation::Clamp { min, max } => x.clone().then("clamp", [Arg::Float(min), Arg::Float(max)]),
    }
}

fn clamp(min: Option<Scalar>, max: Option<Scalar>, dtype: DType) -> Arg {
    let x = Arg::Operand(0);
    let number = |scalar| Arg::Scalar(scalar, dtype);
    match (min, max) {
        (Some(min), Some(max)) => x.then("clamp", [number(min), number(max)]),
        (Some(min), None) => x.then("clamp_min", [number(min)]),
        (None, Some(max)) => x.then("clamp_max", [number(max)]),
        (None, None) => x,
    }
}

/// A dtype change. What a graph calls f32 or i64 is the backend's own float or integer dtype, whichever that is; the others
/// are named.
pub(super) fn cast(x: Arg, from: DType, to: DType) -> Arg {
    match (to, to.kind()) {
        (DType::F32, _) => x.then("float", []),
        (DType::I64, _) => x.then("int", []),
        (_, DTypeKind::Bool) if from.is_bool() => x,
        (_, DTypeKind::Bool) => x.then("bool", []),
        (_, kind) if kind == from.kind() => x.then("cast", [Arg::DType(to)]),
        (_, DTypeKind::Float) => x.then("to_float", [Arg::DType(to)]),
        (_, DTypeKind::Int) => x.then("to_int", [Arg::DType(to)]),
    }
}
