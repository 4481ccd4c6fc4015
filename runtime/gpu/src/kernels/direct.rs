//! Matrix products where shared memory is no faster than any other: devices whose kernels run on a CPU.
//!
//! There, invocations are the lanes of a vector, a barrier costs a switch between them, and what counts is how much is computed of what
//! was read. An invocation keeps a block of the result in variables; its lanes differ in columns alone, so that the left side is
//! read once for all of them. Both sides are read four elements at a time where they lie so.

use super::access::Access;
use super::epilogue::{self, EpilogueProgram};
use super::product::ProductParameters;
use super::tiling::Epilogue;
use crate::language::{Buffer, Builder, Builtin, Fours, Kernel, Type, Value};
use crate::tensor::held_as;
use kiln_tensor::backend::Layout;
use kiln_tensor::{Activation, DType};

/// Invocations of a workgroup: the lanes of the vectors that most CPUs have.
pub(super) const LANES: u32 = 8;

/// How the right side of a product is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// Four neighbouring columns at a time.
    Columns,
    /// Four neighbours along the depth at a time; so must the left side be.
    Depth,
    /// One element at a time.
    Single,
}

/// Which way a bias lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bias {
    /// A number for each column.
    OfColumns,
    /// A number for each row.
    OfRows,
}

/// A batch of matrix products.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Direct {
    /// The elements' dtype.
    pub dtype: DType,
    /// How the batches of both sides are walked, and over how many dims strides are told.
    pub batch: (Access, Access, usize),
    /// Whether the left side is read four elements along the depth at a time.
    pub lhs_fours: bool,
    /// How the right side is read.
    pub rhs: Reading,
    /// Rows of an invocation's block.
    pub rows: u32,
    /// Columns of an invocation's block.
    pub columns: u32,
    /// Whether a bias is added.
    pub bias: Option<Bias>,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// And what came after that.
    pub epilogues: Vec<EpilogueProgram>,
}

/// An operand that is read one or four elements at a time.
pub(super) enum Side<'k> {
    Single(Buffer<'k>),
    Fours(Fours<'k>),
}

impl<'k> Side<'k> {
    pub(super) fn declare(k: &'k Builder, dtype: DType, fours: bool) -> Self {
        let storage = held_as(dtype);
        if fours { Side::Fours(k.input_of_fours(storage)) } else { Side::Single(k.input(storage)) }
    }

    /// The elements from a position on: one, or four.
    pub(super) fn at(&self, index: Value<'k>) -> Vec<Value<'k>> {
        match self {
            Side::Single(buffer) => vec![buffer.at(index)],
            Side::Fours(buffer) => buffer.at(index / 4_u32).to_vec(),
        }
    }

    /// The element at a position.
    pub(super) fn one(&self, index: Value<'k>) -> Value<'k> {
        match self {
            Side::Single(buffer) => buffer.at(index),
            Side::Fours(buffer) => {
                let ([first, second, third, fourth], place) = (buffer.at(index / 4_u32), index % 4_u32);
                let is = |n: u32| place.equals(n);
                is(0).select(first, is(1).select(second, is(2).select(third, fourth)))
            }
        }
    }

    /// So many elements from a position on, a stride apart; of fours, neighbours.
    pub(super) fn run(&self, start: Value<'k>, stride: Value<'k>, count: u32) -> Vec<Value<'k>> {
        match self {
            Side::Single(buffer) => (0..count).map(|n| buffer.at(start + stride * n)).collect(),
            Side::Fours(_) => (0..count).step_by(4).flat_map(|n| self.at(start + n)).collect(),
        }
    }
}

/// Whether the elements along the last dim can be read four at a time: neighbours, of which every fourth starts at a multiple of four.
pub(super) fn fours_along(layout: &Layout) -> bool {
    let (Some(&size), Some((&last, outer))) = (layout.shape.dims.last(), layout.strides.split_last()) else {
        return false;
    };
    let aligned = |stride: isize| stride % 4 == 0;
    size % 4 == 0 && last == 1 && aligned(layout.offset as isize) && outer.iter().copied().all(aligned)
}

impl Direct {
    /// The kernel. Parameters: those of [`Matmul`](super::matmul::Matmul).
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("direct", [LANES, 1], |k| {
            let lhs = Side::declare(k, self.dtype, self.lhs_fours);
            let rhs = Side::declare(k, self.dtype, self.rhs != Reading::Single);
            let bias = self.bias.map(|_| k.input(storage));
            // Blocks of neighbouring columns are written four at a time too.
            let (output, output_fours) = match self.rhs {
                Reading::Columns => (None, Some(k.output_of_fours(storage))),
                Reading::Depth | Reading::Single => (Some(k.output(storage)), None),
            };
            let product = ProductParameters::declare(k, self.batch, bias, None, &self.epilogues, false);
            let ProductParameters { block, size: [rows, columns, depth], bias, epilogues, .. } = product;
            let [block_column, block_row, batch] = block;
            let ((left, left_strides), (right, right_strides)) = (product.left, product.right);
            let epilogue = Epilogue { bias: bias.zip(self.bias), activation: self.activation };

            // What lies beyond the product repeats its last row or column, and is not written.
            let row_start = block_row * self.rows;
            let row = |n: u32| row_start + n;
            let lefts: Vec<_> =
                (0..self.rows).map(|n| left + row(n).min(rows - 1_u32) * left_strides[0]).collect();
            let first_column = block_column * (LANES * self.columns);
            let local = k.builtin(Builtin::LocalX);
            // Vectors of neighbours are a lane's own; single columns take turns among the lanes.
            let vector = |n: u32| first_column + (local + n * LANES) * 4_u32;
            let single = |n: u32| first_column + local + n * LANES;
            let rights: Vec<_> = match self.rhs {
                Reading::Columns => {
                    (0..self.columns / 4).map(|n| right + vector(n).min(columns - 4_u32)).collect()
                }
                Reading::Depth | Reading::Single => (0..self.columns)
                    .map(|n| right + single(n).min(columns - 1_u32) * right_strides[1])
                    .collect(),
            };
            let ty = storage.value();
            let zero = if ty == Type::F32 { k.value(0.0) } else { k.value(0_u32).to(ty) };
            let sums: Vec<Vec<_>> =
                (0..self.rows).map(|_| (0..self.columns).map(|_| k.variable(zero)).collect()).collect();

            let step: u32 = if self.lhs_fours { 4 } else { 1 };
            k.range(0_u32, depth, step, |at| {
                let of_rows: Vec<_> =
                    lefts.iter().map(|&start| lhs.at(start + at * left_strides[1])).collect();
                let add = |deep: usize, of_columns: &[Value<'_>]| {
                    for (sums, row) in sums.iter().zip(&of_rows) {
                        for (sum, &column) in sums.iter().zip(of_columns) {
                            sum.set(row[deep].fma(column, sum.get()));
                        }
                    }
                };
                match self.rhs {
                    Reading::Depth => {
                        let of_columns: Vec<_> = rights.iter().map(|&start| rhs.at(start + at)).collect();
                        for deep in 0..step as usize {
                            add(deep, &of_columns.iter().map(|column| column[deep]).collect::<Vec<_>>());
                        }
                    }
                    Reading::Columns | Reading::Single => {
                        for deep in 0..step {
                            let from = (at + deep) * right_strides[0];
                            let of_columns: Vec<_> =
                                rights.iter().flat_map(|&start| rhs.at(start + from)).collect();
                            add(deep as usize, &of_columns);
                        }
                    }
                }
            });

            for (n, sums) in sums.iter().enumerate() {
                let row = row(n as u32);
                let start = (batch * rows + row) * columns;
                if let Some(output) = output_fours {
                    for (n, sums) in sums.chunks(4).enumerate() {
                        let column = vector(n as u32);
                        k.when(row.below(rows) & column.below(columns), || {
                            let value = |n: usize| {
                                let column = column + n as u32;
                                let sum = finished(&epilogue, sums[n].get(), row, column);
                                epilogue::apply(&epilogues, start + column, sum)
                            };
                            output.set((start + column) / 4_u32, [0, 1, 2, 3].map(value));
                        });
                    }
                } else if let Some(output) = output {
                    for (n, sum) in sums.iter().enumerate() {
                        let column = single(n as u32);
                        k.when(row.below(rows) & column.below(columns), || {
                            let sum = finished(&epilogue, sum.get(), row, column);
                            output.set(start + column, epilogue::apply(&epilogues, start + column, sum));
                        });
                    }
                }
            }
        })
    }
}

/// A sum with its bias and activation.
fn finished<'k>(
    epilogue: &Epilogue<((Buffer<'k>, Value<'k>, Value<'k>), Bias)>,
    sum: Value<'k>,
    row: Value<'k>,
    column: Value<'k>,
) -> Value<'k> {
    epilogue.apply(sum, |((bias, start, stride), side)| match side {
        Bias::OfColumns => bias.at(start + column * stride),
        Bias::OfRows => bias.at(start + row * stride),
    })
}

/// Of several lengths of a block the one whose blocks cover `size` with the least left over; the first of equals.
pub(super) fn least_left_over(size: usize, lengths: impl IntoIterator<Item = u32>) -> u32 {
    let covered = |&length: &u32| size.next_multiple_of(length as usize);
    lengths.into_iter().min_by_key(covered).unwrap_or(1)
}
