//! Elementwise operations on f32: unary, activations, binary with broadcasting, comparisons, whole programs.
//!
//! Binary operations and programs take *strided operands* over the dims of a contiguous output: stride 0 broadcasts, any
//! other view (transposed, sliced) works too. Dims are merged where the strides allow, so a contiguous operand costs
//! nothing extra.

mod broadcast;
mod program;
mod rows;
mod scalar;

pub use broadcast::{Strided, binary, binary_in_place, compare};
pub use program::{Program, ProgramOperand};
pub use scalar::{activation_of, binary_of, unary_of};

use crate::math::{Map, map_slice};
use crate::{InOut, threads};
use kiln_types::{Activation, UnaryOp};

/// Applies a unary operation to every element.
///
/// # Panics
/// For the operations that do not map f32 to f32 (`Not`, `BitwiseNot`, `IsNan`, `IsInf`), and when slices differ in
/// length.
pub fn unary(op: UnaryOp, data: InOut<'_>) {
    map(Map::Unary(op), data);
}

/// Applies an activation to every element.
///
/// # Panics
/// When slices differ in length.
pub fn activation(activation: Activation, data: InOut<'_>) {
    map(Map::Activation(activation), data);
}

fn map(map: Map, data: InOut<'_>) {
    const BLOCK: usize = 4096;
    let (from, to) = data.into_shared();
    let len = to.len();
    threads::parallel_for(len.div_ceil(BLOCK), map.work() * BLOCK / 8, |blocks| {
        let (start, end) = (blocks.start * BLOCK, len.min(blocks.end * BLOCK));
        // SAFETY: blocks are disjoint and inside; source and destination are equal or apart.
        unsafe { map_slice(map, from.ptr(start), to.ptr(start), end - start) };
    });
}

#[cfg(test)]
mod tests;
