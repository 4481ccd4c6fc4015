//! The gradient of a table of which rows were taken: the sum of what arrives at each.

use super::index::{self, named_row};
use super::reduce::{Group, Reducer, reduce_leading, subgroups_of};
use super::{LINE, elementwise, line_of_groups, run, segments};
use crate::language::{Builder, Builtin, Kernel, Type};
use crate::runtime::{Runtime, Subgroups};
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::backend::Layout;
use kiln_tensor::{DType, Scalar, Shape};

/// A workgroup for some columns of each position that was looked up. The first position that names a row sums up what all of them have
/// for it, in their order: no two workgroups write the same, and the sum does not depend on which runs first. Of a table of few rows each run of
/// positions has one of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EmbeddingGradient {
    /// The elements' dtype.
    pub dtype: DType,
    /// The table's dtype.
    pub result: DType,
    /// The dtype of the rows' numbers.
    pub index: DType,
    /// What joins whether any invocation met the row before.
    pub subgroups: Subgroups,
}

impl EmbeddingGradient {
    /// The kernel. Buffers: the rows' numbers, what arrives, the tables. Parameters: how many positions there are, columns, workgroups a
    /// position; the positions of a run, the rows of a table; where the numbers and what arrives start.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("embedding_gradient", [LINE, 1], |k| {
            let (index, gradient) = (k.input(held_as(self.index)), k.input(held_as(self.dtype)));
            let table = k.output(held_as(self.result));
            let (count, width, chunks) = (k.parameter(), k.parameter(), k.parameter());
            let (run, rows) = (k.parameter(), k.parameter());
            let (index_start, start) = (k.parameter(), k.parameter());
            let (local, group) = (k.builtin(Builtin::LocalIndex), k.group());
            // A group beyond the last repeats it, so that none leaves before the barriers.
            let position = (group / chunks).min(count - 1_u32);
            let row_of = |position| index.at(index_start + position);
            let named = row_of(position);
            let (row, is_row) = named_row(named, rows);
            let number = position / run;
            let (first, end) = (number * run, (number * run + run).min(count));

            let before = k.variable(0_u32);
            k.range(first + local, position, LINE, |at| {
                k.when(row_of(at).equals(named), || before.set(k.value(1_u32)))
            });
            let workgroup = Group::new(k, Type::U32, local, LINE, self.subgroups);
            let is_first = workgroup.join(Reducer::Max, before.get()).equals(0_u32);

            let column = (group % chunks) * LINE + local;
            let there = group.below(count * chunks) & column.below(width);
            k.when(is_first & is_row & there, || {
                let arrives = |position| gradient.at(start + position * width + column);
                let sum = k.variable(arrives(position));
                k.range(position + 1_u32, end, 1_u32, |at| {
                    k.when(row_of(at).equals(named), || sum.set(sum.get() + arrives(at)));
                });
                table.set((number * rows + row) * width + column, sum.get());
            });
        })
    }
}

/// Positions of a run at least: of a table of two rows, which name what a word is a part of, 4,096 positions were added up one after another,
/// which took 4.4 ms on an H100.
const SHORTEST_RUN: usize = 32;

/// Positions of a run at most: each of them looks for others of its row among all, one after another, so that their work grows with the square of their number. Beyond that
/// they are brought into the order of their rows ([`segments`]), which takes as long as four launches or more whatever their number.
const LONGEST_RUN: usize = 512;

/// What `gradient`, `[…, width]`, sums to in each row of a table of `rows`; `indices` says which row each part of it was taken from. Nothing
/// where another way is faster or kernels do not see all of a tensor.
pub(crate) fn gradient<R: Runtime>(
    gradient: &GpuTensor<R>,
    indices: &GpuTensor<R>,
    rows: usize,
) -> Option<GpuTensor<R>> {
    let device = &gradient.device;
    let width = gradient.dims().last().copied().unwrap_or(1);
    if !R::limits(device).shared_memory {
        return None;
    }
    let seen = rows * width * held_as(gradient.dtype).bytes() <= R::limits(device).binding_bytes;
    if !seen || !gradient.is_visible() || !indices.is_visible() {
        return None;
    }
    let (dtype, shape) = (gradient.dtype, Shape::from([rows, width]));
    // All tables together have no more rows than there are positions.
    let count = indices.len();
    let runs = (count / SHORTEST_RUN).min(count / rows.max(1)).max(1);
    if count.div_ceil(runs) > LONGEST_RUN && !gradient.is_empty() {
        return Some(by_order(gradient, indices, rows));
    }
    let result = if runs == 1 { dtype } else { computed_in(dtype) };
    let tables = elementwise::full(Shape::from([runs, rows * width]), Scalar::Int(0), result, device);
    if gradient.is_empty() {
        return Some(reduce_leading(tables, dtype, &shape));
    }
    let (gradient, indices) =
        (elementwise::contiguous(gradient.clone()), elementwise::contiguous(indices.clone()));
    let (chunks, run_length) = (width.div_ceil(LINE as usize), count.div_ceil(runs));
    let starts = [indices.layout.offset, gradient.layout.offset];
    let words = [count, width, chunks, run_length, rows, starts[0], starts[1]].map(|n| n as u32);
    let subgroups = subgroups_of::<R>(device, DType::U32);
    let template = EmbeddingGradient { dtype, result, index: indices.dtype, subgroups };
    // Of the tables no more is written than arrives.
    let moved = indices.bytes_in_memory()
        + gradient.bytes_in_memory()
        + tables.bytes_in_memory().min(gradient.bytes_in_memory());
    let groups = line_of_groups::<R>(device, count * chunks);
    run::<R>(device, template.into(), &[&indices, &gradient, &tables], &words, groups, moved, None);
    Some(reduce_leading(tables, dtype, &shape))
}

/// Likewise by the order of the rows.
fn by_order<R: Runtime>(gradient: &GpuTensor<R>, indices: &GpuTensor<R>, rows: usize) -> GpuTensor<R> {
    let count = indices.len();
    let width = gradient.len() / count;
    let as_shape = |tensor: &GpuTensor<R>, shape: Shape| {
        let tensor = elementwise::contiguous(tensor.clone());
        let layout = Layout { offset: tensor.layout.offset, ..Layout::contiguous(shape) };
        tensor.with_layout(layout)
    };
    let table =
        elementwise::full(Shape::from([rows, width]), Scalar::Int(0), gradient.dtype, &gradient.device);
    let gradient = as_shape(gradient, Shape::from([count, width]));
    let indices = index::index_along(as_shape(indices, Shape::from([count])), gradient.dims(), 0);
    segments::reduce_rows(&table, 0, &indices, &gradient, Reducer::Sum);
    table
}
