//! Elementwise operations.

mod chain;

use super::making::with_dtype;
use super::{Cx, Expr};
use crate::ir::{Op, TensorType};
use kiln_types::{Activation, BinaryOp, CompareOp, DType, DTypeKind, Scalar, UnaryOp};

pub(super) fn spell(op: &Op, cx: &Cx<'_>) -> Expr {
    match op {
        Op::Unary(op) => unary(*op, Expr::Operand(0)),
        Op::Binary(op) => binary(*op, cx),
        Op::Compare(op) => compare(*op, cx),
        Op::Where => select(cx),
        Op::Activation(activation) => apply(*activation, Expr::Operand(0)),
        Op::Clamp { min, max } => clamp(*min, *max, cx.dtype(0)),
        Op::Cast { to } => cast(Expr::Operand(0), cx.dtype(0), *to),
        Op::Elementwise(expression) => chain::program(expression, cx),
        _ => Expr::Operand(0),
    }
}

fn unary(op: UnaryOp, x: Expr) -> Expr {
    match op {
        UnaryOp::Neg => Expr::Prefix("-", Box::new(x)),
        op => x.then(op.name(), Vec::new()),
    }
}

/// The sign of an infix operation.
fn sign(op: BinaryOp) -> Option<&'static str> {
    match op {
        BinaryOp::Add => Some("+"),
        BinaryOp::Sub => Some("-"),
        BinaryOp::Mul => Some("*"),
        BinaryOp::Div => Some("/"),
        _ => None,
    }
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

fn binary(op: BinaryOp, cx: &Cx<'_>) -> Expr {
    let dtype = cx.dtype(0);
    let (left, right) = (cx.scalar(0, cx.rank(1)), cx.scalar(1, cx.rank(0)));
    if let Some(number) = right
        && let Some(expr) = with_scalar(op, Expr::Operand(0), number, dtype)
    {
        return expr;
    }
    if let Some(number) = left {
        if is_commutative(op)
            && let Some(expr) = with_scalar(op, Expr::Operand(1), number.clone(), dtype)
        {
            return expr;
        }
        return scalar_first(op, number, Expr::Operand(1));
    }
    between(op, Expr::Operand(0), Expr::Operand(1), dtype)
}

fn between(op: BinaryOp, a: Expr, b: Expr, dtype: DType) -> Expr {
    match sign(op) {
        Some(sign) => a.infix(sign, b),
        None => a.then(method(op, dtype), vec![b]),
    }
}

fn with_scalar(op: BinaryOp, x: Expr, number: Expr, dtype: DType) -> Option<Expr> {
    match sign(op) {
        Some(sign) => Some(x.infix(sign, number)),
        None => scalar_method(op, dtype).map(|method| x.then(method, vec![number])),
    }
}

/// A number on the left of an operation that does not commute.
fn scalar_first(op: BinaryOp, number: Expr, x: Expr) -> Expr {
    match sign(op) {
        Some(_) if is_one(op, &number) => x.then("recip", Vec::new()),
        Some(sign) => number.infix(sign, x),
        None => x.clone().then("full_like", vec![number]).then(op.name(), vec![x]),
    }
}

/// Whether it is `1.0 / …`.
fn is_one(op: BinaryOp, number: &Expr) -> bool {
    op == BinaryOp::Div
        && matches!(number, Expr::Scalar(value, dtype) if dtype.is_float() && value.to_f64() == 1.0)
}

fn compare(op: CompareOp, cx: &Cx<'_>) -> Expr {
    // Bool tensors have no comparison with a number.
    let kind = cx.dtype(0).kind();
    if kind != DTypeKind::Bool {
        if let Some(number) = cx.scalar(1, cx.rank(0)) {
            return Expr::Operand(0).then(compare_scalar(op), vec![number]);
        }
        if let Some(number) = cx.scalar(0, cx.rank(1)) {
            return Expr::Operand(1).then(compare_scalar(mirrored(op)), vec![number]);
        }
    }
    Expr::Operand(0).then(op.name(), vec![Expr::Operand(1)])
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

fn select(cx: &Cx<'_>) -> Expr {
    let (mask, yes, no) = (Expr::Operand(0), Expr::Operand(1), Expr::Operand(2));
    let output = cx.output();
    let rank = output.map_or(0, TensorType::rank);
    if let (Some(yes), Some(no), Some(ty)) = (cx.scalar(1, rank), cx.scalar(2, rank), output) {
        let full = Expr::Make("full", vec![Expr::sizes(&ty.dims), no, Expr::Device]);
        return with_dtype(full, ty.dtype).then("mask_fill", vec![mask, yes]);
    }
    if let Some(number) = cx.scalar(1, rank)
        && cx.rank(2) == rank
    {
        return no.then("mask_fill", vec![mask, number]);
    }
    if let Some(number) = cx.scalar(2, rank)
        && cx.rank(1) == rank
    {
        return yes.then("mask_fill", vec![mask.then("bool_not", Vec::new()), number]);
    }
    no.then("mask_where", vec![mask, yes])
}

/// An activation of an expression.
pub(super) fn apply(activation: Activation, x: Expr) -> Expr {
    let call = |path: &'static str, numbers: &[f64]| {
        Expr::Call(path, std::iter::once(x.clone()).chain(numbers.iter().map(|&n| Expr::Float(n))).collect())
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
        Activation::Clamp { min, max } => x.clone().then("clamp", vec![Expr::Float(min), Expr::Float(max)]),
    }
}

/// An activation as a value: `Activation::Relu`.
pub(super) fn value(activation: Activation) -> Expr {
    Expr::Choice("tensor::Activation", "activation", Box::new(plain_value(activation)))
}

fn plain_value(activation: Activation) -> Expr {
    let one =
        |path: &'static str, name: &'static str, n: f64| Expr::Struct(path, vec![(name, Expr::Float(n))]);
    match activation {
        Activation::Relu => Expr::Path("tensor::Activation::Relu"),
        Activation::LeakyRelu { slope } => one("tensor::Activation::LeakyRelu", "slope", slope),
        Activation::Gelu => Expr::Path("tensor::Activation::Gelu"),
        Activation::GeluTanh => Expr::Path("tensor::Activation::GeluTanh"),
        Activation::Sigmoid => Expr::Path("tensor::Activation::Sigmoid"),
        Activation::Tanh => Expr::Path("tensor::Activation::Tanh"),
        Activation::Silu => Expr::Path("tensor::Activation::Silu"),
        Activation::Mish => Expr::Path("tensor::Activation::Mish"),
        Activation::Softplus => Expr::Path("tensor::Activation::Softplus"),
        // As PyTorch has it; files have the slope as f32.
        Activation::HardSigmoid { alpha, beta: 0.5 } if alpha as f32 == 1.0 / 6.0 => {
            Expr::Path("tensor::Activation::HARD_SIGMOID")
        }
        Activation::HardSigmoid { alpha, beta } => Expr::Struct(
            "tensor::Activation::HardSigmoid",
            vec![("alpha", Expr::Float(alpha)), ("beta", Expr::Float(beta))],
        ),
        Activation::HardSwish => Expr::Path("tensor::Activation::HardSwish"),
        Activation::Elu { alpha } => one("tensor::Activation::Elu", "alpha", alpha),
        Activation::Clamp { min: 0.0, max: 6.0 } => Expr::Path("tensor::Activation::RELU6"),
        Activation::Clamp { min, max } => Expr::Struct(
            "tensor::Activation::Clamp",
            vec![("min", Expr::Float(min)), ("max", Expr::Float(max))],
        ),
    }
}

fn clamp(min: Option<Scalar>, max: Option<Scalar>, dtype: DType) -> Expr {
    let x = Expr::Operand(0);
    let number = |scalar| Expr::Scalar(scalar, dtype);
    match (min, max) {
        (Some(min), Some(max)) => x.then("clamp", vec![number(min), number(max)]),
        (Some(min), None) => x.then("clamp_min", vec![number(min)]),
        (None, Some(max)) => x.then("clamp_max", vec![number(max)]),
        (None, None) => x,
    }
}

/// A dtype change: by kind, then to the dtype unless it is the kind's own.
pub(super) fn cast(x: Expr, from: DType, to: DType) -> Expr {
    let x = match (from.kind(), to.kind()) {
        (a, b) if a == b => return x.then("cast", vec![Expr::DType(to)]),
        (_, DTypeKind::Float) => x.then("float", Vec::new()),
        (_, DTypeKind::Int) => x.then("int", Vec::new()),
        (_, DTypeKind::Bool) => x.then("bool", Vec::new()),
    };
    match to {
        DType::F32 | DType::I64 | DType::Bool => x,
        to => x.then("cast", vec![Expr::DType(to)]),
    }
}
