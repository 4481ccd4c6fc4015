//! Functions of 64-bit floats: of those shaders have arithmetic and square roots, but none that is transcendental (Khronos, "SPIR-V
//! Extended Instructions for GLSL"). These are written in WGSL, to 4 ulp; roundings are exact.

use crate::language::{Binary, Unary};

/// The functions that [`unary`] and [`binary`] name.
pub(super) const FUNCTIONS: &str = include_str!("doubles.wgsl");

/// The name of a function of one number, where shaders have none of their own, or none to rely on.
pub(super) fn unary(op: Unary) -> Option<&'static str> {
    Some(match op {
        Unary::Neg
        | Unary::Not
        | Unary::Abs
        | Unary::Sqrt
        | Unary::ShortExp
        | Unary::ToF16
        | Unary::ToBF16 => return None,
        // Shaders have these, but Mesa's driver for CPUs rounds 1.5 to 1 on some (seen without AVX-512) and leaves 2^52 - 0.5 as it is.
        Unary::Floor => "double_floor",
        Unary::Ceil => "double_ceil",
        Unary::Round => "double_round",
        Unary::Trunc => "double_trunc",
        Unary::Sin => "double_sin",
        Unary::Cos => "double_cos",
        Unary::Exp => "double_exp",
        Unary::ExpM1 => "double_exp_m1",
        Unary::Log => "double_log",
        Unary::Log1p => "double_log_1p",
        Unary::Tan => "double_tan",
        Unary::Asin => "double_asin",
        Unary::Acos => "double_acos",
        Unary::Atan => "double_atan",
        Unary::Sinh => "double_sinh",
        Unary::Cosh => "double_cosh",
        Unary::Tanh => "double_tanh",
        Unary::Asinh => "double_asinh",
        Unary::Acosh => "double_acosh",
        Unary::Atanh => "double_atanh",
        Unary::Erf => "double_erf",
    })
}

/// The name of a function of two numbers, where shaders have none of their own that is exact.
pub(super) fn binary(op: Binary) -> Option<&'static str> {
    match op {
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Div
        | Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::ShiftLeft
        | Binary::ShiftRight
        | Binary::Min
        | Binary::Max => None,
        Binary::Rem => Some("double_fmod"),
        Binary::Pow => Some("double_pow"),
        Binary::Atan2 => Some("double_atan2"),
    }
}
