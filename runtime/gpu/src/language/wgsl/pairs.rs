//! Integers of 64 bits as pairs of words, for devices without such integers: `vec2<u32>`, the lower word first, as they stand in memory.
//! What is done with them are calls of the [functions](FUNCTIONS).

use crate::language::{Binary, Comparison, Type, Unary};

/// The functions that [this module](self) calls.
pub(super) const FUNCTIONS: &str = include_str!("pairs.wgsl");

/// A number.
pub(super) fn literal(bits: u64) -> String {
    format!("vec2<u32>({}u, {}u)", bits as u32, bits >> 32)
}

fn is_signed(ty: Type) -> bool {
    ty == Type::I64
}

/// The name of a function, which may be another for signed numbers.
fn function(ty: Type, name: &str) -> String {
    if is_signed(ty) { format!("pair_signed_{name}") } else { format!("pair_{name}") }
}

/// # Panics
/// When it is a function of floats.
pub(super) fn unary(op: Unary, x: &str) -> String {
    match op {
        Unary::Neg => format!("pair_negated({x})"),
        Unary::Not => format!("~{x}"),
        Unary::Abs => format!("pair_magnitude({x})"),
        Unary::Sqrt
        | Unary::Sin
        | Unary::Cos
        | Unary::Floor
        | Unary::Ceil
        | Unary::Round
        | Unary::Trunc
        | Unary::Exp
        | Unary::ExpM1
        | Unary::Log
        | Unary::Log1p
        | Unary::Tan
        | Unary::ShortExp
        | Unary::Asin
        | Unary::Acos
        | Unary::Atan
        | Unary::Sinh
        | Unary::Cosh
        | Unary::Tanh
        | Unary::Asinh
        | Unary::Acosh
        | Unary::Atanh
        | Unary::Erf
        | Unary::ToF16
        | Unary::ToBF16 => unreachable!("{op:?} of an integer"),
    }
}

/// # Panics
/// When it is a function of floats.
pub(super) fn binary(op: Binary, ty: Type, a: &str, b: &str) -> String {
    let call = |name: &str| format!("{name}({a}, {b})");
    match op {
        Binary::Add => call("pair_sum"),
        Binary::Sub => call("pair_difference"),
        Binary::Mul => call("pair_product"),
        Binary::Div => call(&function(ty, "quotient")),
        Binary::Rem => call(&function(ty, "remainder")),
        Binary::And => format!("{a} & {b}"),
        Binary::Or => format!("{a} | {b}"),
        Binary::Xor => format!("{a} ^ {b}"),
        Binary::ShiftLeft => call("pair_shifted_left"),
        Binary::ShiftRight => call(&function(ty, "shifted_right")),
        Binary::Min => format!("select({b}, {a}, {})", call(&function(ty, "below"))),
        Binary::Max => format!("select({a}, {b}, {})", call(&function(ty, "below"))),
        Binary::Pow | Binary::Atan2 => unreachable!("{op:?} of integers"),
    }
}

/// A comparison of two numbers of a type.
pub(super) fn compare(op: Comparison, ty: Type, a: &str, b: &str) -> String {
    let below = function(ty, "below");
    match op {
        Comparison::Equal => format!("all({a} == {b})"),
        Comparison::NotEqual => format!("any({a} != {b})"),
        Comparison::Less => format!("{below}({a}, {b})"),
        Comparison::LessEqual => format!("!{below}({b}, {a})"),
    }
}

/// A number in another type; one of the two is of pairs.
///
/// # Panics
/// When the other one is of 64-bit floats: no device without such integers has them here.
pub(super) fn convert(from: Type, to: Type, x: &str) -> String {
    match (from, to) {
        (Type::I64 | Type::U64, Type::I64 | Type::U64) => x.to_owned(),
        (Type::I64 | Type::U64, Type::I32) => format!("bitcast<i32>({x}.x)"),
        (Type::I64 | Type::U64, Type::U32) => format!("{x}.x"),
        (Type::I64 | Type::U64, Type::Bool) => format!("any({x} != vec2<u32>(0u, 0u))"),
        (Type::I64 | Type::U64, Type::F32) => format!("{}({x})", function(from, "float")),
        (Type::I32, Type::I64 | Type::U64) => {
            format!("vec2<u32>(bitcast<u32>({x}), bitcast<u32>({x} >> 31u))")
        }
        (Type::U32, Type::I64 | Type::U64) => format!("vec2<u32>({x}, 0u)"),
        (Type::Bool, Type::I64 | Type::U64) => format!("vec2<u32>(select(0u, 1u, {x}), 0u)"),
        (Type::F32, Type::I64) => format!("pair_of_signed_float({x})"),
        (Type::F32, Type::U64) => format!("pair_of_float({x})"),
        (Type::F64, _)
        | (_, Type::F64)
        | (Type::F32 | Type::I32 | Type::U32 | Type::Bool, Type::F32 | Type::I32 | Type::U32 | Type::Bool) => {
            unreachable!("{from:?} and {to:?} are no pair and another number")
        }
    }
}
