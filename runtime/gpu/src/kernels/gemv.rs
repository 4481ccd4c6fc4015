//! Products of few rows, such as a vector with a matrix: each element of the right side is used once a row, so that what counts is how fast
//! it is read. A workgroup shares the depth of a few columns.

use super::access::{self, Access, Operand};
use super::block;
use super::matmul::Epilogue;
use super::then::{self, Then};
use crate::language::{Builder, Builtin, Kernel, Value};
use crate::tensor::held_as;
use kiln_tensor::{Activation, DType};

/// Rows that are few.
pub(super) const MOST_ROWS: usize = 4;
/// Invocations of a workgroup along what lies together in memory: neighbours read neighbours.
const TOGETHER: u32 = 32;
/// And along the other axis.
const APART: u32 = 8;

/// A batch of products of few rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gemv {
    /// The elements' dtype.
    pub dtype: DType,
    /// How the batches of both sides are walked, and over how many dims strides are told.
    pub batch: (Access, Access, usize),
    /// Rows of the result, at least as many as there are.
    pub rows: u32,
    /// Whether the right side lies column by column, rather than row by row.
    pub by_columns: bool,
    /// Whether a bias is added to each row.
    pub bias: bool,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// And what came after that.
    pub then: Vec<Then>,
}

impl Gemv {
    /// Columns of the result that a workgroup computes.
    pub(super) fn columns(&self) -> u32 {
        if self.by_columns { APART } else { TOGETHER }
    }

    /// The kernel. Parameters: those of [`Matmul`](super::matmul::Matmul).
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("gemv", [TOGETHER, APART], |k| {
            let (lhs, rhs) = (k.input(storage), k.input(storage));
            let bias = self.bias.then(|| k.input(storage));
            let output = k.output(storage);
            let [block_column, _, batch] = block(k);
            let [rows, columns, depth] = [k.parameter(), k.parameter(), k.parameter()];
            let dims = k.parameters(self.batch.2);
            let [left, right] =
                [self.batch.0, self.batch.1].map(|access| Operand::declare(k, access, self.batch.2));
            let left_strides = [k.parameter(), k.parameter()];
            let right_strides = [k.parameter(), k.parameter()];
            let bias = bias.map(|bias| (bias, k.parameter(), k.parameter()));
            let then = then::declare(k, &self.then);
            let epilogue = Epilogue { bias, activation: self.activation };
            let coordinates = access::coordinates(batch, &dims);
            let (left, right) = (left.at(batch, &coordinates), right.at(batch, &coordinates));

            let (x, y) = (k.builtin(Builtin::LocalX), k.builtin(Builtin::LocalY));
            // Which of its columns an invocation works on, and which part of the depth, of how many.
            let (own, part, parts) = if self.by_columns { (y, x, TOGETHER) } else { (x, y, APART) };
            let column = block_column * self.columns() + own;
            // What lies beyond the product repeats its last row or column, and is not written.
            let right = right + column.min(columns - 1_u32) * right_strides[1];
            let lefts: Vec<_> =
                (0..self.rows).map(|row| left + (rows - 1_u32).min(row) * left_strides[0]).collect();
            let ty = storage.value();
            let sums: Vec<_> = (0..self.rows).map(|_| k.variable(k.whole(0, ty))).collect();
            k.range(part, depth, parts, |at| {
                let element = rhs.at(right + at * right_strides[0]);
                for (sum, &left) in sums.iter().zip(&lefts) {
                    sum.set(lhs.at(left + at * left_strides[1]).fma(element, sum.get()));
                }
            });

            let shared = k.shared(ty, self.rows * TOGETHER * APART);
            let place = |row: u32| (own + row * self.columns()) * parts + part;
            for (row, sum) in (0..).zip(&sums) {
                shared.set(place(row), sum.get());
            }
            let mut half = parts / 2;
            while half > 0 {
                k.barrier();
                k.when(part.below(half), || {
                    for at in (0..self.rows).map(place) {
                        shared.set(at, shared.at(at) + shared.at(at + half));
                    }
                });
                half /= 2;
            }
            let write = |row: u32| {
                k.when(rows.above(row), || {
                    let sum = epilogue.apply(shared.at(place(row)), |(bias, start, stride)| {
                        bias.at(start + column * stride)
                    });
                    let position: Value<'_> = (batch * rows + row) * columns + column;
                    output.set(position, then::apply(&then, position, sum));
                });
            };
            k.when(part.equals(0_u32) & column.below(columns), || (0..self.rows).for_each(write));
        })
    }
}
