//! One number into one.

use super::elementwise::elementwise_loops;
use super::host::{exact, fits};
use super::prelude::*;
use kiln_types::{CompareOp, DType, Step, UnaryOp};

impl Operation for UnaryOp {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        Ok(vec![x.with_dtype(unary_dtype(*self, x)?)])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let x = cx.operand(0)?;
        let one = |value| host_unary(cx, *self, value).filter(|result| fits(x.dtype, result));
        x.values.iter().map(one).collect()
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![unary(*self, operands.get(0)?)?])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        Ok(Derivation::Unary(*self, of.boxed(0)?))
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        elementwise_loops(cx, Step::Unary(*self, 0), 1)
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(unary_call(*self, Arg::Operand(0)))
    }
}

/// Dtype of a unary operation's result.
pub(super) fn unary_dtype(op: UnaryOp, x: &TensorType) -> RuleResult<DType> {
    match op {
        UnaryOp::Not => need_bool("x", x)?,
        UnaryOp::BitwiseNot => need_int("x", x)?,
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => {
            need("x", x, !x.dtype.is_bool(), "expected a number")?;
        }
        UnaryOp::IsNan | UnaryOp::IsInf => {
            need_float("x", x)?;
            return Ok(DType::Bool);
        }
        UnaryOp::Exp
        | UnaryOp::Log
        | UnaryOp::Log1p
        | UnaryOp::Sqrt
        | UnaryOp::Recip
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tan
        | UnaryOp::Asin
        | UnaryOp::Acos
        | UnaryOp::Atan
        | UnaryOp::Sinh
        | UnaryOp::Cosh
        | UnaryOp::Tanh
        | UnaryOp::Asinh
        | UnaryOp::Acosh
        | UnaryOp::Atanh
        | UnaryOp::Erf
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Round
        | UnaryOp::Trunc => need_float("x", x)?,
    }
    Ok(x.dtype)
}

fn host_unary(cx: &Host<'_>, op: UnaryOp, x: &Dim) -> Option<Dim> {
    let zero = Dim::constant(0);
    match op {
        UnaryOp::Neg => exact(-x),
        UnaryOp::Abs => Some(cx.graph.maximum(x, &exact(-x)?)),
        UnaryOp::Not => Some(cx.graph.compare(CompareOp::Equal, x, &zero)),
        UnaryOp::Sign => Some(Dim::constant(x.as_constant()?.signum())),
        _ => None,
    }
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

/// A call of it.
pub(super) fn unary_call(op: UnaryOp, x: Arg) -> Arg {
    x.then(op.name(), [])
}
