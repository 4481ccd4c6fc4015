//! Products whose rows are in groups, each with a matrix of its own.
//!
//! How many rows a group has is known to the device alone, so that every workgroup looks for its own place: there are as many of them as any division of the rows
//! takes, and those that are left over find none. Where groups have a row or less on average, each row is a product of its own (`gemv.rs`).

use super::access::Walk;
use super::matmul::{Kernels, Product, batch};
use super::tiling::Tiling;
use super::tune::{self, Variant};
use super::{access, elementwise, gemv, launch_blocks};
use crate::language::{Buffer, Builder, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, element_bytes};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{Scalar, Shape};

/// What of a product is in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grouped {
    /// The rows of its left side: those of each group are multiplied by the group's matrix.
    Rows,
    /// The depth: of both sides each product of a batch takes a group's.
    Depth,
}

/// The groups, as a workgroup sees them: those of the tensor, and one more of what is behind them.
pub(super) struct Groups<'k> {
    ends: Buffer<'k>,
    start: Value<'k>,
    count: Value<'k>,
    rows: Value<'k>,
    next: Value<'k>,
}

/// What a block of rows is of a grouped product.
pub(super) struct Place<'k> {
    /// The group to which its rows belong; that behind all others where it has none.
    pub group: Value<'k>,
    /// Its first row.
    pub first: Value<'k>,
    /// The first row behind its group; 0 where it has no rows.
    pub end: Value<'k>,
}

impl<'k> Groups<'k> {
    /// The next parameters: where the groups' ends start, how many there are, all rows, and from one group's matrix to the next.
    pub fn declare(k: &'k Builder, ends: Buffer<'k>) -> Self {
        let [start, count, rows, next] = [k.parameter(), k.parameter(), k.parameter(), k.parameter()];
        Self { ends, start, count, rows, next }
    }

    /// The first row behind a group. Whatever the tensor says, it is one of the rows, or the one behind them.
    fn end(&self, k: &'k Builder, group: Value<'k>) -> Value<'k> {
        let end = self.ends.at(self.start + group);
        let (nothing, rows) = (k.whole(0, end.ty()), self.rows.to(end.ty()));
        end.max(nothing).min(rows).to(self.rows.ty())
    }

    /// The first row of a group, and the first behind it.
    pub fn rows(&self, k: &'k Builder, group: Value<'k>) -> [Value<'k>; 2] {
        let first = k.variable(0_u32);
        k.when(group.above(0_u32), || first.set(self.end(k, group - 1_u32)));
        [first.get(), self.end(k, group).max(first.get())]
    }

    /// The group of a row.
    pub fn of_row(&self, k: &'k Builder, row: Value<'k>) -> Value<'k> {
        let group = k.variable(0_u32);
        k.range(0_u32, self.count, 1_u32, |n| {
            k.when(row.at_least(self.end(k, n)), || group.set(n + 1_u32));
        });
        group.get()
    }

    /// The place of a block of so many rows. Each group begins a block.
    pub fn of_block(&self, k: &'k Builder, block: Value<'k>, high: u32) -> Place<'k> {
        let [group, first, end] = [self.count, k.value(0_u32), k.value(0_u32)].map(|none| k.variable(none));
        let (start, blocks_before) = (k.variable(0_u32), k.variable(0_u32));
        k.range(0_u32, self.count + 1_u32, 1_u32, |n| {
            let end_of_group = k.variable(self.rows);
            k.when(n.below(self.count), || end_of_group.set(self.end(k, n)));
            let (from, to) = (start.get(), end_of_group.get().max(start.get()));
            let (before, blocks) = (blocks_before.get(), (to - from + (high - 1)) / high);
            k.when(block.at_least(before) & block.below(before + blocks), || {
                group.set(n);
                first.set(from + (block - before) * high);
                end.set(to);
            });
            start.set(to);
            blocks_before.set(before + blocks);
        });
        Place { group: group.get(), first: first.get(), end: end.get() }
    }

    /// From the first group's matrix to another's: to the first again where there is none.
    pub fn matrix(&self, group: Value<'k>) -> Value<'k> {
        group.below(self.count).select(group * self.next, 0_u32)
    }

    /// The depth of a group's product: what is behind the groups becomes 0.
    pub fn depth(&self, group: Value<'k>, depth: Value<'k>) -> Value<'k> {
        group.below(self.count).select(depth, 0_u32)
    }
}

/// The parameters of groups that end so.
pub(super) fn words<R: Runtime>(ends: &GpuTensor<R>, rows: usize, next: isize) -> [u32; 4] {
    [ends.layout.offset as u32, ends.len() as u32, rows as u32, access::word(next)]
}

/// How many blocks of so many rows groups are divided into at most, with what is behind them.
fn most_blocks(rows: usize, groups: usize, high: usize) -> usize {
    rows.min((rows + (groups + 1) * (high - 1)) / high)
}

/// The tensor for a result, where kernels see all of it and of both operands.
fn result<R: Runtime>(operands: [&GpuTensor<R>; 2], shape: Shape) -> Option<GpuTensor<R>> {
    let &GpuTensor { dtype, ref device, .. } = operands[0];
    let bytes = shape.num_elements().saturating_mul(element_bytes(dtype));
    let is_visible = bytes <= R::limits(device).binding_bytes && operands.iter().all(|of| of.is_visible());
    is_visible.then(|| GpuTensor::empty(shape, dtype, device))
}

/// Launches products in the tiles that are the fastest for so many groups of which each has about so many rows, columns and depth.
fn launch_tiles<R: Runtime>(
    product: &Product<'_, R>,
    each: [usize; 3],
    groups: usize,
    tensors: [&GpuTensor<R>; 4],
    words: &[u32],
    tiled: impl Fn(Tiling) -> Variant,
) {
    let (device, dtype) = (&product.out.device, product.out.dtype);
    let (_, others) = Tiling::of::<R>(device, dtype, each);
    let usual = tiled(Tiling::divide::<R>(device, dtype, each, groups, false).tiling);
    let class = || {
        let ([rows, columns, depth], groups) = (each.map(tune::rounded), tune::rounded(groups));
        format!(
            "grouped product {dtype} {groups}x{rows}x{columns}x{depth} {:?}",
            product.groups.map(|(of, _)| of)
        )
    };
    tune::launch_fastest::<R>(device, class, usual, || others.map(&tiled).collect(), &tensors, words);
}

/// Rows, `[rows, in]`, times the matrix of their group of `[groups, in, out]`. Nothing where kernels do not see all of a tensor.
pub(crate) fn matmul<R: Runtime>(
    x: &GpuTensor<R>,
    weight: &GpuTensor<R>,
    ends: &GpuTensor<R>,
) -> Option<GpuTensor<R>> {
    let (&[rows, depth], &[groups, _, columns]) = (x.dims(), weight.dims()) else { return None };
    let out = result([x, weight], Shape::from([rows, columns]))?;
    if out.is_empty() {
        return Some(out);
    }
    if groups == 0 {
        return Some(elementwise::full(out.shape(), Scalar::Int(0), x.dtype, &x.device));
    }
    let ends = &elementwise::contiguous(ends.clone());
    let grouped = Some((Grouped::Rows, ends));
    let product = Product { lhs: x, rhs: weight, bias: None, activation: None, groups: grouped, out: &out };
    let (left, right) = (&*x.layout, &*weight.layout);
    let tensors = [x, weight, ends, &out];
    if rows <= groups.max(gemv::MOST_ROWS) {
        let walk = Walk::new(&[rows], &[&left.strides[..1], &[0]]);
        let size = [1, columns, depth];
        let kernels = Kernels { of: &product, batch: batch(&walk), left, right, size, count: rows };
        let Variant { template, blocks, .. } = kernels.gemv();
        let words = product.words([left, right], &walk, size, None);
        launch_blocks::<R>(&out.device, template, &tensors, &words, blocks, true);
        return Some(out);
    }
    let (walk, size) = (Walk::new(&[], &[&[], &[]]), [rows, columns, depth]);
    let kernels = Kernels { of: &product, batch: batch(&walk), left, right, size, count: 1 };
    let words = product.words([left, right], &walk, size, None);
    let tiled = |tiling: Tiling| {
        let mut variant = kernels.tiled(tiling, false);
        variant.blocks[1] = most_blocks(rows, groups, tiling.tile()[0] as usize);
        variant
    };
    launch_tiles(&product, [rows.div_ceil(groups), columns, depth], groups, tensors, &words, tiled);
    Some(out)
}

/// For each group its rows of `x`, `[rows, in]`, transposed, times its rows of `gradient`, `[rows, out]`. Nothing where kernels do not see all of a
/// tensor.
pub(crate) fn weight_gradient<R: Runtime>(
    gradient: &GpuTensor<R>,
    x: &GpuTensor<R>,
    ends: &GpuTensor<R>,
) -> Option<GpuTensor<R>> {
    let (&[rows, depth], &[_, columns], &[groups]) = (x.dims(), gradient.dims(), ends.dims()) else {
        return None;
    };
    let out = result([x, gradient], Shape::from([groups, depth, columns]))?;
    if out.is_empty() {
        return Some(out);
    }
    let ends = &elementwise::contiguous(ends.clone());
    let grouped = Some((Grouped::Depth, ends));
    let product = Product { lhs: x, rhs: gradient, bias: None, activation: None, groups: grouped, out: &out };
    let (left, right) = (&x.layout.permute(&[1, 0]), &*gradient.layout);
    let (walk, size) = (Walk::new(&[groups], &[&[0], &[0]]), [depth, columns, rows]);
    let kernels = Kernels { of: &product, batch: batch(&walk), left, right, size, count: groups };
    let words = product.words([left, right], &walk, size, None);
    let each = [depth, columns, rows.div_ceil(groups)];
    let tensors = [x, gradient, ends, &out];
    launch_tiles(&product, each, groups, tensors, &words, |tiling| kernels.tiled(tiling, false));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_blocks_for_all_rows_however_they_are_divided() {
        for high in [1, 2, 3, 16] {
            for code in 0..20_usize.pow(4) {
                let groups = [0, 1, 2, 3].map(|n| code / 20_usize.pow(n) % 20);
                let rows = groups.iter().sum();
                let blocks: usize = groups.iter().map(|rows| rows.div_ceil(high)).sum();
                // What is behind the groups is the last one here.
                assert!(blocks <= most_blocks(rows, groups.len() - 1, high), "{groups:?} by {high}");
            }
        }
    }
}
