//! Elementwise operations on f32: unary, activations, binary with broadcasting, comparisons, whole programs.
//!
//! Binary operations and programs take *strided operands* over the dims of a contiguous output: stride 0 broadcasts, any
//! other view (transposed, sliced) works too. Dims are merged where the strides allow, so a contiguous operand costs
//! nothing extra.

mod broadcast;
mod program;
mod scalar;

pub use broadcast::{Strided, binary, binary_in_place, compare};
pub use program::{Program, ProgramOperand};
pub use scalar::{activation_of, binary_of, compare_of, unary_of};

use crate::{InOut, threads};
use kiln_types::{Activation, UnaryOp};

/// Applies a unary operation to every element.
///
/// # Panics
/// For the operations that do not map f32 to f32 (`Not`, `BitwiseNot`, `IsNan`, `IsInf`), and when slices differ in
/// length.
pub fn unary(op: UnaryOp, data: InOut<'_>) {
    let data = data.into_place();
    threads::parallel_chunks(data, 4096, 8192, |_, part| {
        for x in part {
            *x = unary_of(op, *x);
        }
    });
}

/// Applies an activation to every element.
///
/// # Panics
/// When slices differ in length.
pub fn activation(activation: Activation, data: InOut<'_>) {
    let data = data.into_place();
    threads::parallel_chunks(data, 4096, 8192, |_, part| {
        for x in part {
            *x = activation_of(activation, *x);
        }
    });
}
