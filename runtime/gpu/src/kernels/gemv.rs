//! Products of few rows, such as a vector with a matrix: each element of the right side is used once a row, so that what counts is how fast
//! it is read. A workgroup shares the depth of a few columns; devices with warps have ways of their own (`gemv/warps.rs`), and where subgroups have any
//! size all of the workgroup has a part of each column whose elements lie together.

mod warps;

pub(super) use warps::Division;

use super::access::Access;
use super::epilogue::{self, EpilogueProgram};
use super::product::ProductParameters;
use super::tiling::Epilogue;
use super::wide::Runs;
use crate::language::{Binary, Builder, Builtin, Kernel, Type, Value, Variable};
use crate::runtime::Subgroups;
use crate::tensor::held_as;
use kiln_tensor::{Activation, DType};

/// Rows that are few.
pub(super) const MOST_ROWS: usize = 4;
/// Columns of a workgroup, which are as many neighbours in memory as are read at once.
const FEW: u32 = 8;
/// Invocations that share the depth of each of them.
const PARTS: u32 = 32;
/// Invocations of a workgroup whose subgroups join the parts of columns.
const LANES: u32 = 64;
/// The columns of such a workgroup.
const COLUMNS: u32 = 4;

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
    /// What joins the parts of columns: where the right side does not lie column by column, warps or nothing but shared memory.
    pub subgroups: Subgroups,
    /// Whether of the left side and of the right one 16 bytes are read at once, which is for warps: of the right side along the columns, or
    /// along the depth where it lies column by column, and of the left one then too.
    pub wide: [bool; 2],
    /// Where the right side does not lie column by column, how many neighbours of a warp have columns of their own.
    pub across: u32,
    /// Whether a bias is added to each row.
    pub bias: bool,
    /// Where each product is that of a row with its [group's](super::grouped) matrix, the dtype in which is told where groups end.
    pub groups: Option<DType>,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// And what came after that.
    pub epilogues: Vec<EpilogueProgram>,
}

impl Gemv {
    /// Columns of the result that a workgroup computes.
    pub(super) fn columns(&self) -> u32 {
        match self.subgroups {
            Subgroups::None => FEW,
            Subgroups::OfAnySize => COLUMNS,
            Subgroups::Warps => warps::columns(self),
        }
    }

    /// The kernel. Parameters: those of [`Matmul`](super::matmul::Matmul).
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        let workgroup = match self.subgroups {
            Subgroups::None => [FEW * PARTS, 1],
            Subgroups::OfAnySize => [LANES, 1],
            Subgroups::Warps => [warps::invocations(self), 1],
        };
        Builder::kernel("gemv", workgroup, |k| {
            let [lhs, rhs] = self.wide.map(|is_wide| Runs::declare(k, self.dtype, is_wide));
            let bias = self.bias.then(|| k.input(storage));
            let ends = self.groups.map(|index| k.input(held_as(index)));
            let output = k.output(storage);
            let product = ProductParameters::declare(k, self.batch, bias, ends, &self.epilogues, false);
            let ProductParameters {
                block: [block_column, _, batch],
                size: [rows, columns, mut depth],
                bias,
                groups,
                epilogues,
                ..
            } = product;
            let ((left, left_strides), (mut right, right_strides)) = (product.left, product.right);
            if let Some(groups) = &groups {
                let group = groups.of_row(k, batch);
                right = right + groups.matrix(group);
                depth = groups.depth(group, depth);
            }
            let epilogue = Epilogue { bias, activation: self.activation };
            let first_column = block_column * self.columns();
            // What lies beyond the product repeats its last row or column, and is not written.
            let sides = Sides {
                ty: storage.value(),
                lhs,
                rhs,
                lefts: (0..self.rows).map(|row| left + (rows - 1_u32).min(row) * left_strides[0]).collect(),
                right: &|column| right + column.min(columns - 1_u32) * right_strides[1],
                depth,
                strides: [left_strides[1], right_strides[0]],
            };
            let write = |row: Value<'_>, column: Value<'_>, sum: Value<'_>| {
                k.when(row.below(rows) & column.below(columns), || {
                    let sum = epilogue.apply(sum, |(bias, start, stride)| bias.at(start + column * stride));
                    let position: Value<'_> = (batch * rows + row) * columns + column;
                    output.set(position, epilogue::apply(&epilogues, position, sum));
                });
            };
            match self.subgroups {
                Subgroups::None => self.by_halves(k, &sides, first_column, write),
                Subgroups::OfAnySize => self.by_subgroups(k, &sides, first_column, write),
                Subgroups::Warps if self.by_columns => {
                    warps::of_columns(self, k, &sides, first_column, write)
                }
                Subgroups::Warps => warps::of_rows(self, k, &sides, first_column, write),
            }
        })
    }

    /// Each invocation has a part of one column's depth; what is shared is halved until it is one sum.
    fn by_halves<'k>(
        &self,
        k: &'k Builder,
        sides: &Sides<'_, 'k>,
        first_column: Value<'k>,
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        let local = k.builtin(Builtin::LocalIndex);
        // Which of its columns an invocation works on, and which part of the depth: neighbours read neighbours.
        let (own, part) =
            if self.by_columns { (local / PARTS, local % PARTS) } else { (local % FEW, local / FEW) };
        let column = first_column + own;
        let sums = sides.sums(k, [(sides.right)(column)], part, PARTS);
        let shared = k.shared(sides.ty, self.rows * FEW * PARTS);
        let place = |row: u32| (part + row * PARTS) * FEW + own;
        for (row, [sum]) in (0..).zip(&sums) {
            shared.set(place(row), *sum);
        }
        let mut half = PARTS / 2;
        while half > 0 {
            k.barrier();
            k.when(part.below(half), || {
                for at in (0..self.rows).map(place) {
                    shared.set(at, shared.at(at) + shared.at(at + half * FEW));
                }
            });
            half /= 2;
        }
        k.when(part.equals(0_u32), || {
            for row in 0..self.rows {
                write(k.value(row), column, shared.at(place(row)));
            }
        });
    }

    /// Each invocation has a part of the depth of all columns, so that it does not matter which of them a device puts into a subgroup.
    fn by_subgroups<'k>(
        &self,
        k: &'k Builder,
        sides: &Sides<'_, 'k>,
        first_column: Value<'k>,
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        let local = k.builtin(Builtin::LocalIndex);
        let rights: [Value<'_>; COLUMNS as usize] =
            core::array::from_fn(|n| (sides.right)(first_column + n as u32));
        let sums = sides.sums(k, rights, local, LANES);
        let count = self.rows * COLUMNS;
        let shared = k.shared(sides.ty, LANES * count);
        let joined: Vec<_> = sums.as_flattened().iter().map(|sum| sum.join_subgroup(Binary::Add)).collect();
        k.when(k.builtin(Builtin::SubgroupLane).equals(0_u32), || {
            for (n, &sum) in (0_u32..).zip(&joined) {
                shared.set(k.builtin(Builtin::Subgroup) * count + n, sum);
            }
        });
        k.barrier();
        k.when(local.below(count), || {
            let sum = k.variable(shared.at(local));
            k.range(1_u32, k.builtin(Builtin::Subgroups), 1_u32, |subgroup| {
                sum.set(sum.get() + shared.at(subgroup * count + local));
            });
            write(local / COLUMNS, first_column + local % COLUMNS, sum.get());
        });
    }
}

/// Both sides of a product.
struct Sides<'s, 'k> {
    /// The type in which is computed.
    ty: Type,
    lhs: Runs<'k>,
    rhs: Runs<'k>,
    /// Where the rows of the left side start.
    lefts: Vec<Value<'k>>,
    /// Where a column of the right side starts.
    right: &'s dyn Fn(Value<'k>) -> Value<'k>,
    depth: Value<'k>,
    /// From one element to the next along the depth, of the left side and of the right one.
    strides: [Value<'k>; 2],
}

impl<'k> Sides<'_, 'k> {
    /// The products of each row with columns that start so, over one of several parts of the depth.
    fn sums<const N: usize>(
        &self,
        k: &'k Builder,
        columns: [Value<'k>; N],
        part: Value<'k>,
        parts: u32,
    ) -> Vec<[Value<'k>; N]> {
        let zero = || k.variable(k.whole(0, self.ty));
        let sums: Vec<[Variable<'_>; N]> =
            self.lefts.iter().map(|_| core::array::from_fn(|_| zero())).collect();
        k.range(part, self.depth, parts, |at| {
            let element = |side: Runs<'k>, at: Value<'k>| side.at(at, k.value(1_u32), 1)[0];
            let elements = columns.map(|column| element(self.rhs, column + at * self.strides[1]));
            for (sums, &left) in sums.iter().zip(&self.lefts) {
                let left = element(self.lhs, left + at * self.strides[0]);
                for (sum, &element) in sums.iter().zip(&elements) {
                    sum.set(left.fma(element, sum.get()));
                }
            }
        });
        sums.iter().map(|sums| sums.map(Variable::get)).collect()
    }
}
