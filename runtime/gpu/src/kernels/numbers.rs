//! Numbers beside tensors of integers: which of them a kernel can be told.
//!
//! On a GPU, integers of 32 bits stand in for wider ones ([`held`](kiln_tensor::backend::held)). A number that needs more is refused, unless what comes of
//! it needs no more.

use crate::language::Storage;
use crate::runtime::Runtime;
use crate::tensor::{held_as, supports};
use kiln_tensor::{BinaryOp, CompareOp, DType, Expression, Scalar, Step, StepId};
use std::borrow::Cow;
use std::cmp::Ordering;

/// The least and the largest number that tensors of a dtype hold, where the dtype stands in for wider ones.
fn integers(dtype: DType) -> Option<[i64; 2]> {
    match held_as(dtype) {
        Storage::I32 => Some([i64::from(i32::MIN), i64::from(i32::MAX)]),
        Storage::U32 => Some([0, i64::from(u32::MAX)]),
        Storage::F64
        | Storage::F32
        | Storage::F16
        | Storage::BF16
        | Storage::I64
        | Storage::I16
        | Storage::I8
        | Storage::U64
        | Storage::U16
        | Storage::U8
        | Storage::Bool => None,
    }
}

/// On which side of the integers that a dtype's tensors hold a number is. A float is never beyond: it becomes the nearest, as in every cast.
/// Among unsigned numbers, a negative one is what has its bits.
fn beyond(value: Scalar, dtype: DType) -> Ordering {
    let Some([_, most]) = integers(dtype) else { return Ordering::Equal };
    let value = match value {
        Scalar::Int(x) => i128::from(x),
        Scalar::UInt(x) => i128::from(x),
        Scalar::Float(_) | Scalar::Bool(_) => return Ordering::Equal,
    };
    match (value < i128::from(i32::MIN), value > i128::from(most)) {
        (true, _) => Ordering::Less,
        (_, true) => Ordering::Greater,
        (false, false) => Ordering::Equal,
    }
}

/// Whether a device has no wider integers, so that others stand in for them. One that has them holds numbers as a CPU does.
fn stand_in<R: Runtime>(device: &R::Device) -> bool {
    !supports::<R>(device, DType::I64)
}

/// Refuses a number that a dtype's tensors do not hold, on a device where that stands in for wider ones.
///
/// # Panics
/// When it is one.
#[track_caller]
pub(crate) fn expect_held<R: Runtime>(device: &R::Device, op: &str, value: Scalar, dtype: DType) {
    if stand_in::<R>(device) {
        refuse_beyond(op, value, dtype);
    }
}

/// Refuses a number that a dtype's tensors do not hold.
///
/// # Panics
/// When it is one.
#[track_caller]
fn refuse_beyond(op: &str, value: Scalar, dtype: DType) {
    if beyond(value, dtype) != Ordering::Equal {
        let number = match value {
            Scalar::Int(x) => x.to_string(),
            Scalar::UInt(x) => x.to_string(),
            Scalar::Float(x) => x.to_string(),
            Scalar::Bool(x) => x.to_string(),
        };
        panic!("{op}: {dtype}, which stands in for wider integers on this device, does not hold {number}");
    }
}

/// The number in place of one that is the other operand of the smaller or larger of two: the extreme on its side, where that makes no
/// difference.
///
/// # Panics
/// When it does: what is yielded would be beyond the dtype, or is not the smaller or larger.
#[track_caller]
pub(crate) fn operand<R: Runtime>(device: &R::Device, op: BinaryOp, value: Scalar, dtype: DType) -> Scalar {
    if stand_in::<R>(device) { bound(op, value, dtype) } else { value }
}

/// [`operand`] where dtypes stand in for wider ones.
#[track_caller]
fn bound(op: BinaryOp, value: Scalar, dtype: DType) -> Scalar {
    match (op, beyond(value, dtype)) {
        (BinaryOp::Min, Ordering::Greater) | (BinaryOp::Max, Ordering::Less) => {}
        _ => refuse_beyond(op.name(), value, dtype),
    }
    nearest(value, dtype)
}

/// The number that a dtype's tensors hold which is nearest.
fn nearest(value: Scalar, dtype: DType) -> Scalar {
    match (beyond(value, dtype), integers(dtype)) {
        (Ordering::Less, Some([least, _])) => Scalar::Int(least),
        (Ordering::Greater, Some([_, most])) => Scalar::Int(most),
        (Ordering::Equal, _) | (Ordering::Less | Ordering::Greater, None) => value,
    }
}

/// A comparison of a tensor with a number as one with the [`nearest`] that its dtype holds.
pub(crate) fn comparison<R: Runtime>(
    device: &R::Device,
    op: CompareOp,
    value: Scalar,
    dtype: DType,
) -> (CompareOp, Scalar) {
    if stand_in::<R>(device) { compared(op, value, dtype) } else { (op, value) }
}

/// [`comparison`] where dtypes stand in for wider ones.
fn compared(op: CompareOp, value: Scalar, dtype: DType) -> (CompareOp, Scalar) {
    use CompareOp::{Equal, Greater, GreaterEqual, Lower, LowerEqual, NotEqual};
    let op = match (beyond(value, dtype), op) {
        (Ordering::Equal, op) => op,
        // All are at most the largest, and none is above.
        (Ordering::Greater, NotEqual | Lower | LowerEqual) => LowerEqual,
        (Ordering::Greater, Equal | Greater | GreaterEqual) => Greater,
        (Ordering::Less, NotEqual | Greater | GreaterEqual) => GreaterEqual,
        (Ordering::Less, Equal | Lower | LowerEqual) => Lower,
    };
    (op, nearest(value, dtype))
}

/// The comparison with its operands exchanged.
fn exchanged(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Equal | CompareOp::NotEqual => op,
        CompareOp::Greater => CompareOp::Lower,
        CompareOp::GreaterEqual => CompareOp::LowerEqual,
        CompareOp::Lower => CompareOp::Greater,
        CompareOp::LowerEqual => CompareOp::GreaterEqual,
    }
}

/// A program with numbers that its dtypes hold, which yields the same.
///
/// # Panics
/// When there is none: a number, or a parameter, is beyond its dtype.
#[track_caller]
pub(crate) fn within<'e, R: Runtime>(
    device: &R::Device,
    expression: &'e Expression,
    parameters: &[Scalar],
) -> Cow<'e, Expression> {
    if !stand_in::<R>(device) {
        return Cow::Borrowed(expression);
    }
    let mut any = false;
    for step in &expression.steps {
        match *step {
            Step::Constant(value, dtype) => any |= beyond(value, dtype) != Ordering::Equal,
            Step::Parameter(n, dtype) => {
                if let Some(&value) = parameters.get(usize::from(n)) {
                    refuse_beyond("elementwise", value, dtype);
                }
            }
            Step::Input(_)
            | Step::Iota(..)
            | Step::Unary(..)
            | Step::Binary(..)
            | Step::Compare(..)
            | Step::Activation(..)
            | Step::Where(..)
            | Step::Cast(..) => {}
        }
    }
    if any { Cow::Owned(rewritten(expression)) } else { Cow::Borrowed(expression) }
}

/// [`within`] of a program in which a number is beyond its dtype.
#[track_caller]
fn rewritten(expression: &Expression) -> Expression {
    let number = |id: StepId| match expression.steps.get(usize::from(id)) {
        Some(&Step::Constant(value, dtype)) if beyond(value, dtype) != Ordering::Equal => {
            Some((value, dtype))
        }
        _ => None,
    };
    let refuse = |id: StepId| {
        if let Some((value, dtype)) = number(id) {
            refuse_beyond("elementwise", value, dtype);
        }
    };
    expression.results().into_iter().for_each(refuse);
    let rewritten = expression.steps.iter().map(|step| match *step {
        Step::Constant(value, dtype) => Step::Constant(nearest(value, dtype), dtype),
        Step::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => {
            for (value, dtype) in [a, b].into_iter().filter_map(number) {
                bound(op, value, dtype);
            }
            *step
        }
        Step::Compare(op, a, b) => match (number(a), number(b)) {
            (None, Some((value, dtype))) => Step::Compare(compared(op, value, dtype).0, a, b),
            (Some((value, dtype)), None) => {
                Step::Compare(exchanged(compared(exchanged(op), value, dtype).0), a, b)
            }
            (None, None) | (Some(_), Some(_)) => {
                refuse(a);
                *step
            }
        },
        Step::Input(_)
        | Step::Parameter(..)
        | Step::Iota(..)
        | Step::Unary(..)
        | Step::Binary(..)
        | Step::Activation(..)
        | Step::Where(..)
        | Step::Cast(..) => {
            step.operands().for_each(refuse);
            *step
        }
    });
    Expression { steps: rewritten.collect(), outputs: expression.outputs.clone() }
}
