//! The gradient of a table of which rows were taken: the sum of what arrives at each.

use super::reduce::{Fold, Group, subgroups_of};
use super::{LINE, elementwise, line_of_groups, run};
use crate::language::{Builder, Builtin, Kernel, Type};
use crate::runtime::{Runtime, Subgroups};
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::{DType, Scalar, Shape};

/// A workgroup for some columns of each position that was looked up. The first position that names a row sums up what all of them have
/// for it, in their order: no two workgroups write the same, and the sum does not depend on which runs first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EmbeddingGradient {
    /// The elements' dtype.
    pub dtype: DType,
    /// The dtype of the rows' numbers.
    pub index: DType,
    /// What joins whether any invocation met the row before.
    pub subgroups: Subgroups,
}

impl EmbeddingGradient {
    /// The kernel. Buffers: the rows' numbers, what arrives, the table. Parameters: how many positions there are, columns, workgroups a
    /// position; where the numbers and what arrives start.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("embedding_gradient", [LINE, 1], |k| {
            let (index, gradient) = (k.input(held_as(self.index)), k.input(held_as(self.dtype)));
            let table = k.output(held_as(self.dtype));
            let (count, width, chunks) = (k.parameter(), k.parameter(), k.parameter());
            let (index_start, start) = (k.parameter(), k.parameter());
            let (local, group) = (k.builtin(Builtin::LocalIndex), k.group());
            // A group beyond the last repeats it, so that none leaves before the barriers.
            let position = (group / chunks).min(count - 1_u32);
            let row_of = |position| index.at(index_start + position);
            let row = row_of(position);

            let before = k.variable(0_u32);
            k.range(local, position, LINE, |at| {
                k.when(row_of(at).equals(row), || before.set(k.value(1_u32)))
            });
            let workgroup = Group::new(k, Type::U32, local, LINE, self.subgroups);
            let is_first = workgroup.join(Fold::Max, before.get()).equals(0_u32);

            let column = (group % chunks) * LINE + local;
            let there = group.below(count * chunks) & column.below(width);
            k.when(is_first & there, || {
                let arrives = |position| gradient.at(start + position * width + column);
                let sum = k.variable(arrives(position));
                k.range(position + 1_u32, count, 1_u32, |at| {
                    k.when(row_of(at).equals(row), || sum.set(sum.get() + arrives(at)));
                });
                table.set(row.to(Type::U32) * width + column, sum.get());
            });
        })
    }
}

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
    let table = elementwise::full(Shape::from([rows, width]), Scalar::Int(0), gradient.dtype, device);
    if gradient.is_empty() {
        return Some(table);
    }
    let (gradient, indices) =
        (elementwise::contiguous(gradient.clone()), elementwise::contiguous(indices.clone()));
    let (count, chunks) = (indices.len(), width.div_ceil(LINE as usize));
    let words = [count, width, chunks, indices.layout.offset, gradient.layout.offset].map(|n| n as u32);
    let template = EmbeddingGradient {
        dtype: gradient.dtype,
        index: indices.dtype,
        subgroups: subgroups_of::<R>(device, DType::U32),
    };
    // Of the table no more is written than arrives.
    let moved = indices.bytes_in_memory()
        + gradient.bytes_in_memory()
        + table.bytes_in_memory().min(gradient.bytes_in_memory());
    let groups = line_of_groups::<R>(device, count * chunks);
    run::<R>(device, template.into(), &[&indices, &gradient, &table], &words, groups, moved, None);
    Some(table)
}
