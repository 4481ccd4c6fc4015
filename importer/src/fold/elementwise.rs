//! Elementwise operations.

use super::{Elements, Strided};
use kiln_types::{
    Activation, BinaryOp, CompareOp, DType, Expression, Scalar, Shape, Step, TensorData, UnaryOp,
};
use std::cmp::Ordering;

pub(super) fn cast(x: &TensorData, to: DType) -> TensorData {
    Elements::load(x).store(to, x.shape.clone())
}

pub(super) fn unary(op: UnaryOp, x: &TensorData) -> Option<TensorData> {
    let bool_result = matches!(op, UnaryOp::IsNan | UnaryOp::IsInf);
    let dtype = if bool_result { DType::Bool } else { x.dtype };
    let elements = match Elements::load(x) {
        Elements::Float(x) => Elements::Float(x.into_iter().map(|x| unary_float(op, x)).collect()),
        Elements::Int(x) => {
            Elements::Int(x.into_iter().map(|v| unary_int(op, v, dtype)).collect::<Option<_>>()?)
        }
    };
    Some(elements.store(dtype, x.shape.clone()))
}

fn unary_float(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign if x == 0.0 || x.is_nan() => x,
        UnaryOp::Sign => x.signum(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Log1p => x.ln_1p(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Recip => 1.0 / x,
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Asin => x.asin(),
        UnaryOp::Acos => x.acos(),
        UnaryOp::Atan => x.atan(),
        UnaryOp::Sinh => x.sinh(),
        UnaryOp::Cosh => x.cosh(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Asinh => x.asinh(),
        UnaryOp::Acosh => x.acosh(),
        UnaryOp::Atanh => x.atanh(),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Trunc => x.trunc(),
        UnaryOp::IsNan => f64::from(u8::from(x.is_nan())),
        UnaryOp::IsInf => f64::from(u8::from(x.is_infinite())),
        UnaryOp::Not | UnaryOp::BitwiseNot => f64::NAN,
    }
}

fn unary_int(op: UnaryOp, x: i128, dtype: DType) -> Option<i128> {
    match op {
        UnaryOp::Neg => Some(-x),
        UnaryOp::Abs => Some(x.abs()),
        UnaryOp::Sign => Some(x.signum()),
        UnaryOp::Not if dtype.is_bool() => Some(1 - x),
        UnaryOp::BitwiseNot => Some(!x),
        _ => None,
    }
}

/// Operands broadcast to one shape (aligned at the last axis).
fn broadcast(operands: &[&TensorData]) -> Option<(Vec<usize>, Vec<Elements>)> {
    let mut shape = Shape::default();
    for operand in operands {
        shape = shape.broadcast(&operand.shape.as_slice().into())?;
    }
    let spread = |data: &&TensorData| {
        let view = Strided::new(&data.shape).expand(&shape.dims)?;
        Some(match Elements::load(data) {
            Elements::Float(x) => Elements::Float(view.gather(&x)),
            Elements::Int(x) => Elements::Int(view.gather(&x)),
        })
    };
    let elements = operands.iter().map(spread).collect::<Option<_>>()?;
    Some((shape.dims, elements))
}

pub(super) fn binary(op: BinaryOp, a: &TensorData, b: &TensorData) -> Option<TensorData> {
    let (shape, elements) = broadcast(&[a, b])?;
    let result = match elements.as_slice() {
        [Elements::Float(x), Elements::Float(y)] => {
            Elements::Float(x.iter().zip(y).map(|(&x, &y)| binary_float(op, x, y)).collect())
        }
        [Elements::Int(x), Elements::Int(y)] => Elements::Int(
            x.iter().zip(y).map(|(&x, &y)| binary_int(op, x, y, a.dtype)).collect::<Option<_>>()?,
        ),
        _ => return None,
    };
    Some(result.store(a.dtype, shape))
}

fn binary_float(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Remainder => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
        BinaryOp::Fmod => a % b,
        BinaryOp::Max if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Min if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Atan2 => a.atan2(b),
        _ => f64::NAN,
    }
}

fn binary_int(op: BinaryOp, a: i128, b: i128, dtype: DType) -> Option<i128> {
    let bits = dtype.size() as u32 * 8;
    Some(match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a.checked_div(b)?,
        BinaryOp::Pow => {
            // The low bits are what a wrapping product keeps.
            a.wrapping_pow(u32::try_from(b).ok()?)
        }
        BinaryOp::Remainder => {
            let rest = a.checked_rem(b)?;
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        BinaryOp::Fmod => a.checked_rem(b)?,
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::And | BinaryOp::BitwiseAnd => a & b,
        BinaryOp::Or | BinaryOp::BitwiseOr => a | b,
        BinaryOp::Xor | BinaryOp::BitwiseXor => a ^ b,
        BinaryOp::ShiftLeft => u32::try_from(b).ok().filter(|&b| b < bits).map_or(0, |b| a << b),
        BinaryOp::ShiftRight => {
            u32::try_from(b).ok().filter(|&b| b < bits).map_or(if a < 0 { -1 } else { 0 }, |b| a >> b)
        }
        BinaryOp::Atan2 => return None,
    })
}

/// Whether a comparison holds; NaN is unequal to everything.
fn holds(op: CompareOp, order: Option<Ordering>) -> bool {
    match op {
        CompareOp::Equal => order == Some(Ordering::Equal),
        CompareOp::NotEqual => order != Some(Ordering::Equal),
        CompareOp::Greater => order == Some(Ordering::Greater),
        CompareOp::GreaterEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        CompareOp::Lower => order == Some(Ordering::Less),
        CompareOp::LowerEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
    }
}

pub(super) fn compare(op: CompareOp, a: &TensorData, b: &TensorData) -> Option<TensorData> {
    let (shape, elements) = broadcast(&[a, b])?;
    let result = match elements.as_slice() {
        [Elements::Float(x), Elements::Float(y)] => {
            x.iter().zip(y).map(|(x, y)| holds(op, x.partial_cmp(y))).collect::<Vec<bool>>()
        }
        [Elements::Int(x), Elements::Int(y)] => {
            x.iter().zip(y).map(|(x, y)| holds(op, x.partial_cmp(y))).collect()
        }
        _ => return None,
    };
    Some(Elements::Int(result.into_iter().map(i128::from).collect()).store(DType::Bool, shape))
}

pub(super) fn select(condition: &TensorData, a: &TensorData, b: &TensorData) -> Option<TensorData> {
    let (shape, elements) = broadcast(&[condition, a, b])?;
    let result = match elements.as_slice() {
        [Elements::Int(c), Elements::Float(x), Elements::Float(y)] => Elements::Float(
            c.iter().zip(x.iter().zip(y)).map(|(&c, (&x, &y))| if c != 0 { x } else { y }).collect(),
        ),
        [Elements::Int(c), Elements::Int(x), Elements::Int(y)] => Elements::Int(
            c.iter().zip(x.iter().zip(y)).map(|(&c, (&x, &y))| if c != 0 { x } else { y }).collect(),
        ),
        _ => return None,
    };
    Some(result.store(a.dtype, shape))
}

pub(super) fn clamp(min: Option<Scalar>, max: Option<Scalar>, x: &TensorData) -> Option<TensorData> {
    let elements = match Elements::load(x) {
        Elements::Float(x) => Elements::Float(
            x.into_iter()
                .map(|v| {
                    let low = min.map_or(v, |min| if v < min.to_f64() { min.to_f64() } else { v });
                    max.map_or(low, |max| if low > max.to_f64() { max.to_f64() } else { low })
                })
                .collect(),
        ),
        Elements::Int(x) => Elements::Int(
            x.into_iter()
                .map(|v| {
                    let low = min.map_or(v, |min| v.max(integer(min)));
                    max.map_or(low, |max| low.min(integer(max)))
                })
                .collect(),
        ),
    };
    Some(elements.store(x.dtype, x.shape.clone()))
}

/// A bound of integers, which may be beyond an `i64`.
fn integer(bound: Scalar) -> i128 {
    match bound {
        Scalar::UInt(bound) => bound.into(),
        bound => bound.to_i64().into(),
    }
}

pub(super) fn activation(activation: Activation, x: &TensorData) -> Option<TensorData> {
    let Elements::Float(values) = Elements::load(x) else {
        return None;
    };
    let values = values.into_iter().map(|x| activate(activation, x)).collect();
    Some(Elements::Float(values).store(x.dtype, x.shape.clone()))
}

/// One activation of one number.
pub(super) fn activate(activation: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    match activation {
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::LeakyRelu { slope } => {
            if x < 0.0 {
                slope * x
            } else {
                x
            }
        }
        Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Silu => x * sigmoid(x),
        Activation::Mish => x * softplus(x).tanh(),
        Activation::Softplus => softplus(x),
        Activation::HardSigmoid { alpha, beta } => (alpha * x + beta).clamp(0.0, 1.0),
        Activation::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Activation::Elu { alpha } => {
            if x < 0.0 {
                alpha * x.exp_m1()
            } else {
                x
            }
        }
        Activation::Clamp { min, max } => {
            let low = if x < min { min } else { x };
            if low > max { max } else { low }
        }
    }
}

/// Runs the steps one after the other on whole tensors.
pub(super) fn expression(expression: &Expression, operands: &[&TensorData]) -> Option<TensorData> {
    let mut steps: Vec<TensorData> = Vec::with_capacity(expression.steps.len());
    for step in &expression.steps {
        let at = |id: u16| steps.get(usize::from(id));
        let next = match *step {
            Step::Input(n) => (*operands.get(usize::from(n))?).clone(),
            Step::Constant(value, dtype) => super::fill(&[], value, dtype)?,
            Step::Parameter(..) | Step::Iota(..) => return None,
            Step::Unary(op, x) => unary(op, at(x)?)?,
            Step::Binary(op, a, b) => binary(op, at(a)?, at(b)?)?,
            Step::Compare(op, a, b) => compare(op, at(a)?, at(b)?)?,
            Step::Activation(op, x) => activation(op, at(x)?)?,
            Step::Where(condition, a, b) => select(at(condition)?, at(a)?, at(b)?)?,
            Step::Cast(dtype, x) => cast(at(x)?, dtype),
        };
        steps.push(next);
    }
    // The result has the shape of all operands together, whichever of them the last step reads.
    let result = steps.pop()?;
    let (shape, _) = broadcast(operands)?;
    let view = Strided::new(&result.shape).expand(&shape)?;
    super::movement::view(&result, view)
        .and_then(|data| TensorData::from_bytes(data.bytes, shape, data.dtype).ok())
}
