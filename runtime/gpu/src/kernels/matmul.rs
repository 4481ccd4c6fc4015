//! Matrix products, and what follows them: a bias and an activation. Which kernel computes a product, or whether a library does.

use super::access::{self, Access, Walk};
use super::direct::{Bias, Direct, LANES, Reading, fours_along, least_left_over};
use super::epilogue::{self, EpilogueProgram};
use super::gemv::{self, Gemv};
use super::grouped::{self, Grouped};
use super::product::ProductParameters;
use super::reduce::subgroups_of;
use super::right::Columns;
use super::tiling::{Division, Epilogue, Tile, Tiling};
use super::tune::{self, Name, Variant};
use super::wide::{self, is_wide};
use super::{Template, elementwise, launch_blocks, parts};
use crate::language::{Builder, Kernel};
use crate::runtime::{Matrices, MatrixProduct, Runtime, Subgroups};
use crate::tensor::{GpuTensor, computed_in, element_bytes, held_as};
use core::ops::Range;
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{Activation, DType, Shape};
use smallvec::{SmallVec, smallvec};

/// Rows of the blocks in which products of many rows are computed without shared memory.
const MOST_ROWS: u32 = 8;
/// Columns of an invocation's block there. Reading costs most where kernels run on a CPU (lavapipe reads lane by lane), and of a block of
/// `r · c` results `r + c` elements are read at a time: large blocks pay, though what they keep goes beyond the registers.
const MOST_COLUMNS: u32 = 16;

/// A batch of matrix products.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// The elements' dtype.
    pub dtype: DType,
    /// How the batches of both sides are walked, and over how many dims strides are told.
    pub batch: (Access, Access, usize),
    /// Who computes what of a tile.
    pub tiling: Tiling,
    /// Whether workgroups compute parts of the depth, whose sums are still to be added up, in the dtype in which they are
    /// computed. Nothing is done to those.
    pub in_parts: bool,
    /// What is in [groups](super::grouped), if anything is, and the dtype in which is told where they end.
    pub groups: Option<(Grouped, DType)>,
    /// Whether a bias is added to each row.
    pub bias: bool,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// And what came after that.
    pub epilogues: Vec<EpilogueProgram>,
}

impl Matmul {
    /// The kernel. Parameters: its `block`; rows, columns, depth; the parts, if it is done in such; the batch's dims and both operands; the strides of both sides, outer
    /// before inner; where the bias starts and its stride.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel(self.tiling.kernel("matmul"), self.tiling.workgroup(), |k| {
            let (lhs, rhs) = (k.input(storage), k.input(storage));
            let bias = self.bias.then(|| k.input(storage));
            let ends = self.groups.map(|(_, index)| k.input(held_as(index)));
            let output = k.output(if self.in_parts { held_as(computed_in(self.dtype)) } else { storage });
            let product =
                ProductParameters::declare(k, self.batch, bias, ends, &self.epilogues, self.in_parts);
            let ProductParameters {
                block: [block_column, block_row, batch], mut size, bias, epilogues, ..
            } = product;
            let ((mut left, left_strides), (mut right, right_strides)) = (product.left, product.right);
            let epilogue = Epilogue { bias, activation: self.activation };
            let [high, wide] = self.tiling.tile();
            let mut start = [block_row * high, block_column * wide];
            match (self.groups, &product.groups) {
                (Some((Grouped::Rows, _)), Some(groups)) => {
                    // There is one product, so that its number of rows matters to no position.
                    let place = groups.of_block(k, block_row, high);
                    (start[0], size[0]) = (place.first, place.end);
                    right = right + groups.matrix(place.group);
                    size[2] = groups.depth(place.group, size[2]);
                }
                (Some((Grouped::Depth, _)), Some(groups)) => {
                    let [first, end] = groups.rows(k, batch);
                    left = left + first * left_strides[1];
                    right = right + first * right_strides[0];
                    size[2] = end - first;
                }
                (_, None) | (None, _) => {}
            }
            let tile = Tile { tiling: self.tiling, start, size, storage, anew: None };
            tile.product(
                k,
                |row, depth| lhs.at(left + row * left_strides[0] + depth * left_strides[1]),
                Columns(
                    |column| right + column * right_strides[1],
                    |depth, column| rhs.at(column + depth * right_strides[0]),
                ),
                |row, column, sum| {
                    let sum = epilogue.apply(sum, |(bias, start, stride)| bias.at(start + column * stride));
                    let position = (batch * size[0] + row) * size[1] + column;
                    output.set(position, epilogue::apply(&epilogues, position, sum));
                },
            );
        })
    }
}

/// `activation(lhs · rhs + bias)`: the last two dims are multiplied, those before broadcast.
pub(crate) fn matmul<R: Runtime>(
    lhs: &GpuTensor<R>,
    rhs: &GpuTensor<R>,
    bias: Option<&GpuTensor<R>>,
    activation: Option<Activation>,
) -> GpuTensor<R> {
    let (lhs, rhs) = (&lhs.narrowed(), &rhs.narrowed());
    if let Some(product) = in_halves(lhs, rhs, bias, activation) {
        return product;
    }
    let rank = lhs.dims().len();
    let [rows, depth] = [lhs.dims()[rank - 2], lhs.dims()[rank - 1]];
    let columns = rhs.dims()[rank - 1];
    let (mut left_shape, mut right_shape) = (lhs.shape(), rhs.shape());
    left_shape.dims.truncate(rank - 2);
    right_shape.dims.truncate(rank - 2);
    let Some(batch) = left_shape.broadcast(&right_shape) else {
        panic!("matmul: {} and {} do not broadcast", lhs.shape(), rhs.shape())
    };
    let full = |last: [usize; 2]| batch.dims.iter().copied().chain(last).collect::<Shape>();
    let out = GpuTensor::empty(full([rows, columns]), lhs.dtype, &lhs.device);
    if out.is_empty() {
        return out;
    }
    let left = lhs.layout.expand(&full([rows, depth]));
    let right = rhs.layout.expand(&full([depth, columns]));
    let walk = Walk::new(&batch.dims, &[&left.strides[..rank - 2], &right.strides[..rank - 2]]);
    let size = [rows, columns, depth];
    let count = batch.num_elements();
    let sides = [(lhs, &left), (rhs, &right)];
    let behind = |activation| Behind { bias, activation, ..Behind::default() };
    let by_library = || {
        if by_library(sides, behind(activation), &out, &walk, size, count) {
            return Some(out.clone());
        }
        let activation = activation?;
        by_library(sides, behind(None), &out, &walk, size, count)
            .then(|| elementwise::activated(activation, &out))
    };
    let product = Product {
        lhs,
        rhs,
        bias: bias.map(|bias| (bias, Bias::OfColumns)),
        activation,
        groups: None,
        out: &out,
    };
    let by_kernels = || {
        if let Some(division) = product.division(size, count) {
            let sums = product.in_parts(division, [&left, &right], &walk, size, count);
            let bias = bias.map(|bias| along_last(bias, rank));
            return parts::joined(sums, out.dtype, &out.shape(), bias, activation);
        }
        product.launch(&left, &right, &walk, size, count);
        out.clone()
    };
    let class = || {
        let lie = [&left, &right].map(|side| &side.strides);
        format!(
            "product by library {} {count} of {size:?} {lie:?} {} {activation:?}",
            out.dtype,
            bias.is_some()
        )
    };
    tune::by_fastest::<R, _>(&out.device, class, by_library, by_kernels)
}

/// `lhs · rhs + added`, by a library: nothing where that does not do it as all of them lie.
pub(crate) fn added<R: Runtime>(
    lhs: &GpuTensor<R>,
    rhs: &GpuTensor<R>,
    added: &GpuTensor<R>,
) -> Option<GpuTensor<R>> {
    let (&[rows, depth], &[_, columns]) = (lhs.dims(), rhs.dims()) else { return None };
    if added.is_empty() || !added.layout.is_contiguous() || added.dtype != lhs.dtype {
        return None;
    }
    let out = GpuTensor::empty(added.shape(), lhs.dtype, &lhs.device);
    let behind = Behind { added: Some(added), ..Behind::default() };
    let sides = [(lhs, &*lhs.layout), (rhs, &*rhs.layout)];
    let walk = Walk::new(&[], &[&[], &[]]);
    by_library(sides, behind, &out, &walk, [rows, columns, depth], 1).then_some(out)
}

/// `lhs · rhs` and the sums of the right side's columns, by a library: nothing where that does not do it as both lie.
pub(crate) fn with_sums<R: Runtime>(
    lhs: &GpuTensor<R>,
    rhs: &GpuTensor<R>,
) -> Option<(GpuTensor<R>, GpuTensor<R>)> {
    let (&[rows, depth], &[_, columns]) = (lhs.dims(), rhs.dims()) else { return None };
    let [out, sums] = [vec![rows, columns], vec![columns]]
        .map(|dims| GpuTensor::empty(Shape::from(dims), lhs.dtype, &lhs.device));
    if out.is_empty() {
        return None;
    }
    let behind = Behind { sums: Some(&sums), ..Behind::default() };
    let sides = [(lhs, &*lhs.layout), (rhs, &*rhs.layout)];
    let walk = Walk::new(&[], &[&[], &[]]);
    by_library(sides, behind, &out, &walk, [rows, columns, depth], 1).then_some((out, sums))
}

/// What is done to what a product yields: a bias of its columns is added, then what lies as it does, and then it is activated. The sums of the right side's
/// columns may be asked for beside it.
struct Behind<'a, R: Runtime> {
    bias: Option<&'a GpuTensor<R>>,
    added: Option<&'a GpuTensor<R>>,
    activation: Option<Activation>,
    sums: Option<&'a GpuTensor<R>>,
}

impl<R: Runtime> Default for Behind<'_, R> {
    fn default() -> Self {
        Self { bias: None, added: None, activation: None, sums: None }
    }
}

/// Has a library compute a batch of products, where the device has one that takes them as they lie.
fn by_library<R: Runtime>(
    sides: [(&GpuTensor<R>, &Layout); 2],
    Behind { bias, added, activation, sums }: Behind<'_, R>,
    out: &GpuTensor<R>,
    walk: &Walk,
    size: [usize; 3],
    count: usize,
) -> bool {
    let [rows, columns, depth] = size;
    if !out.dtype.is_float() || walk.dims.len() > 1 || depth == 0 {
        return false;
    }
    let next =
        |side: usize| walk.strides[side].first().map_or(Some(0), |&stride| usize::try_from(stride).ok());
    let matrices = |side: usize, dims: [usize; 2]| {
        let (tensor, layout) = sides[side];
        let strides = &layout.strides[layout.strides.len() - 2..];
        // A stride along a dim of one is never taken.
        let runs = |dim: usize| dims[dim] == 1 || strides[dim] == 1;
        let leading = |outer: usize, inner: usize| match dims[outer] {
            1 => Some(dims[inner]),
            _ => usize::try_from(strides[outer]).ok().filter(|&stride| stride >= dims[inner]),
        };
        let (transposed, leading) = match (runs(1), runs(0)) {
            (true, _) => (false, leading(0, 1)?),
            (false, true) => (true, leading(1, 0)?),
            (false, false) => return None,
        };
        let (memory, start) = (&tensor.memory, layout.offset);
        Some(Matrices { memory, start, next: next(side)?, transposed, leading })
    };
    let (Some(lhs), Some(rhs)) = (matrices(0, [rows, depth]), matrices(1, [depth, columns])) else {
        return false;
    };
    if bias.is_some_and(|bias| bias.layout.strides[0] != 1 && columns > 1) {
        return false;
    }
    let [bias, added] = [bias, added].map(|of| of.map(|tensor| (&tensor.memory, tensor.layout.offset)));
    let (dtype, out_memory, sums) = (out.dtype, &out.memory, sums.map(|sums| &sums.memory));
    let product =
        MatrixProduct { dtype, size, count, lhs, rhs, bias, added, activation, out: out_memory, sums };
    R::product(&out.device, &product)
}

/// A layout with its last two dims exchanged.
fn transposed(layout: &Layout) -> Layout {
    let rank = layout.strides.len();
    let mut axes: Vec<usize> = (0..rank).collect();
    axes.swap(rank - 2, rank - 1);
    layout.permute(&axes)
}

/// What takes part in a batch of products.
pub(super) struct Product<'a, R: Runtime> {
    pub lhs: &'a GpuTensor<R>,
    pub rhs: &'a GpuTensor<R>,
    pub bias: Option<(&'a GpuTensor<R>, Bias)>,
    pub activation: Option<Activation>,
    /// What is in groups, and where those end.
    pub groups: Option<(Grouped, &'a GpuTensor<R>)>,
    /// Row-major from the start of its memory.
    pub out: &'a GpuTensor<R>,
}

impl<R: Runtime> Product<'_, R> {
    /// How the device divides such products, if into parts of their depth.
    fn division(&self, size: [usize; 3], count: usize) -> Option<Division> {
        let device = &self.out.device;
        let tiled = R::limits(device).shared_memory && size[0].min(size[1]) > gemv::MOST_ROWS;
        let division = tiled.then(|| Tiling::divide::<R>(device, self.out.dtype, size, count, true));
        division.filter(|division| division.parts > 1)
    }

    /// The sums of parts, `[parts, elements]`, without what follows.
    fn in_parts(
        &self,
        Division { tiling, parts, run }: Division,
        [left, right]: [&Layout; 2],
        walk: &Walk,
        size: [usize; 3],
        count: usize,
    ) -> GpuTensor<R> {
        let dtype = computed_in(self.out.dtype);
        let sums = GpuTensor::empty(Shape::from([parts, self.out.len()]), dtype, &self.out.device);
        let of_parts = Product { bias: None, activation: None, out: &sums, ..*self };
        let words = of_parts.words([left, right], walk, size, Some([parts, run, count]));
        let kernels = Kernels { of: &of_parts, batch: batch(walk), left, right, size, count: count * parts };
        let Variant { template, blocks, .. } = kernels.tiled(tiling, true);
        launch_blocks::<R>(&sums.device, template, &[self.lhs, self.rhs, &sums], &words, blocks, false);
        sums
    }

    /// The parameters but for the block.
    pub(super) fn words(
        &self,
        [left, right]: [&Layout; 2],
        walk: &Walk,
        size: [usize; 3],
        parts: Option<[usize; 3]>,
    ) -> SmallVec<[u32; 32]> {
        let inner = |layout: &Layout| {
            [layout.strides[layout.strides.len() - 2], layout.strides[layout.strides.len() - 1]]
        };
        let (.., rank) = batch(walk);
        let mut words: SmallVec<[u32; 32]> = size.iter().map(|&n| n as u32).collect();
        words.extend(parts.into_iter().flatten().map(|n| n as u32));
        words.extend(walk.dim_words().filter(|_| rank > 0));
        for (n, view) in [left, right].into_iter().enumerate() {
            words.push(view.offset as u32);
            words.extend(walk.stride_words(n));
        }
        words.extend([inner(left), inner(right)].as_flattened().iter().map(|&stride| access::word(stride)));
        if let Some((bias, _)) = self.bias {
            words.extend([bias.layout.offset as u32, access::word(bias.layout.strides[0])]);
        }
        if let Some((_, ends)) = self.groups {
            words.extend(grouped::words(ends, self.lhs.dims()[0], right.strides[0]));
        }
        words
    }

    /// Runs `count` products of `left` and `right`, whose batches are walked so.
    pub(super) fn launch(&self, left: &Layout, right: &Layout, walk: &Walk, size: [usize; 3], count: usize) {
        let [rows, columns, depth] = size;
        if columns == 1 && rows > 1 && self.bias.is_none() {
            // A matrix with a vector is the vector with the matrix turned, and the result lies alike.
            let turned = Product { lhs: self.rhs, rhs: self.lhs, out: self.out, ..*self };
            let walk =
                Walk { dims: walk.dims.clone(), strides: walk.strides.iter().rev().cloned().collect() };
            return turned.launch(&transposed(right), &transposed(left), &walk, [1, rows, depth], count);
        }
        let mut tensors: SmallVec<[_; 4]> = smallvec![self.lhs, self.rhs];
        tensors.extend(self.bias.map(|(bias, _)| bias));
        tensors.extend(self.groups.map(|(_, ends)| ends));
        tensors.push(self.out);
        let words = self.words([left, right], walk, size, None);
        let batch = batch(walk);
        let kernels = Kernels { of: self, batch, left, right, size, count };
        let class = || {
            let [rows, columns, depth, count] = [rows, columns, depth, count].map(tune::rounded);
            let lies = [left, right].map(|side| (fours_along(side), fours_along(&transposed(side))));
            format!("product {} {count}x{rows}x{columns}x{depth} {lies:?}", self.out.dtype)
        };
        let device = &self.out.device;
        if R::limits(device).shared_memory {
            let (_, others) = Tiling::of::<R>(device, self.out.dtype, size);
            let usual = if rows <= gemv::MOST_ROWS {
                kernels.gemv()
            } else {
                // What is divided does not come here.
                kernels.tiled(Tiling::divide::<R>(device, self.out.dtype, size, count, false).tiling, false)
            };
            let others = || others.map(|tiling| kernels.tiled(tiling, false)).collect();
            tune::launch_fastest::<R>(device, class, usual, others, &tensors, &words);
        } else {
            tune::launch_fastest::<R>(
                device,
                class,
                kernels.direct(None),
                || kernels.directs(),
                &tensors,
                &words,
            );
        }
    }
}

/// How kernels walk the batches of both sides, and over how many dims strides are told.
pub(super) fn batch(walk: &Walk) -> (Access, Access, usize) {
    let access = [walk.access(0), walk.access(1)];
    (access[0], access[1], if access.contains(&Access::Strided) { walk.dims.len() } else { 0 })
}

/// The kernels for a batch of products.
pub(super) struct Kernels<'a, 'b, R: Runtime> {
    pub of: &'a Product<'b, R>,
    pub batch: (Access, Access, usize),
    pub left: &'a Layout,
    pub right: &'a Layout,
    pub size: [usize; 3],
    pub count: usize,
}

impl<R: Runtime> Kernels<'_, '_, R> {
    fn variant(&self, name: Name, template: impl Into<Template>, tile: [u32; 2]) -> Variant {
        let [rows, columns, _] = self.size;
        let blocks = [columns.div_ceil(tile[1] as usize), rows.div_ceil(tile[0] as usize), self.count];
        Variant { name, template: template.into(), blocks }
    }

    pub(super) fn gemv(&self) -> Variant {
        let (device, dtype) = (&self.of.out.device, self.of.out.dtype);
        let by_columns = self.right.strides.last() != Some(&1);
        let subgroups = match subgroups_of::<R>(device, dtype) {
            Subgroups::OfAnySize if !by_columns => Subgroups::None,
            subgroups => subgroups,
        };
        let right = if by_columns { transposed(self.right) } else { self.right.clone() };
        let has_warps = subgroups == Subgroups::Warps;
        let right_is_wide = has_warps && is_wide(&right, dtype);
        let [_, columns, _] = self.size;
        let width = if right_is_wide { wide::width(dtype) } else { 1 };
        let template = Gemv {
            dtype,
            batch: self.batch,
            rows: self.size[0].next_power_of_two() as u32,
            by_columns,
            subgroups,
            wide: [right_is_wide && by_columns && is_wide(self.left, dtype), right_is_wide],
            across: match has_warps && !by_columns {
                true => gemv::Division { columns, count: self.count, width }.across(),
                false => 1,
            },
            // A bias of rows is asked for where products do without shared memory alone.
            bias: self.of.bias.is_some(),
            groups: self.of.groups.map(|(_, ends)| ends.dtype),
            activation: self.of.activation,
            epilogues: Vec::new(),
        };
        let tile = [template.rows, template.columns()];
        self.variant(Name::Gemv, template, tile)
    }

    /// In tiles that workgroups share.
    pub(super) fn tiled(&self, tiling: Tiling, in_parts: bool) -> Variant {
        let template = Matmul {
            dtype: self.of.lhs.dtype,
            batch: self.batch,
            tiling,
            in_parts,
            groups: self.of.groups.map(|(grouped, ends)| (grouped, ends.dtype)),
            bias: self.of.bias.is_some(),
            activation: self.of.activation,
            epilogues: Vec::new(),
        };
        self.variant(Name::Tiles(tiling), template, tiling.tile())
    }

    /// Without shared memory: in the usual blocks, or those of so many rows and columns.
    fn direct(&self, block: Option<[u32; 2]>) -> Variant {
        let [rows, columns, _] = self.size;
        let lhs_fours = fours_along(self.left);
        let rhs = if fours_along(self.right) {
            Reading::Columns
        } else if lhs_fours && fours_along(&transposed(self.right)) {
            Reading::Depth
        } else {
            Reading::Single
        };
        let usual = || {
            let columns = match rhs {
                Reading::Columns | Reading::Depth => {
                    [4, 8].into_iter().find(|&few| columns <= (few * LANES) as usize).unwrap_or(MOST_COLUMNS)
                }
                Reading::Single => least_left_over(columns, [8, 7, 6, 4, 2, 1].map(|n| n * LANES)) / LANES,
            };
            [[1, 2, 4].into_iter().find(|&few| rows <= few as usize).unwrap_or(MOST_ROWS), columns]
        };
        let [high, wide] = block.unwrap_or_else(usual);
        let template = Direct {
            dtype: self.of.out.dtype,
            batch: self.batch,
            lhs_fours,
            rhs,
            rows: high,
            columns: wide,
            bias: self.of.bias.map(|(_, side)| side),
            activation: self.of.activation,
            epilogues: Vec::new(),
        };
        self.variant(Name::Blocks([high, wide]), template, [high, wide * LANES])
    }

    /// In blocks of other sizes, none of which is twice as high as the product.
    fn directs(&self) -> Vec<Variant> {
        let most = self.size[0].next_power_of_two().min(MOST_ROWS as usize) as u32;
        let blocks = [most, most / 2].into_iter().filter(|&rows| rows > 0);
        let blocks = blocks.flat_map(|rows| [4, 8, MOST_COLUMNS].map(|columns| [rows, columns]));
        blocks.map(|block| self.direct(Some(block))).collect()
    }
}

/// [`matmul`] where kernels do not see all of an operand or of the result: in halves of the batch, of the rows, or of the right side
/// where it lies apart. Nothing where they see all, or there is nothing to halve.
fn in_halves<R: Runtime>(
    lhs: &GpuTensor<R>,
    rhs: &GpuTensor<R>,
    bias: Option<&GpuTensor<R>>,
    activation: Option<Activation>,
) -> Option<GpuTensor<R>> {
    let rank = lhs.dims().len();
    let (row, column) = (rank - 2, rank - 1);
    let (rows, depth, columns) = (lhs.dims()[row], lhs.dims()[column], rhs.dims()[column]);
    let along = |axis: usize| lhs.dims()[axis].max(rhs.dims()[axis]);
    let results = (0..row).map(along).product::<usize>().saturating_mul(rows).saturating_mul(columns);
    let result_fits =
        results.saturating_mul(element_bytes(lhs.dtype)) <= R::limits(&lhs.device).binding_bytes;
    let halves = |size: usize| [0..size / 2, size / 2..size];
    let joined = |products: [GpuTensor<R>; 2], axis: usize| Some(elementwise::join(&products, axis));
    let by_rows = || {
        let product = |range: Range<usize>| matmul(&lhs.part(row, range), rhs, bias, activation);
        joined(halves(rows).map(product), row)
    };
    if lhs.is_visible() && rhs.is_visible() && result_fits {
        return None;
    }
    if let Some(axis) = (0..row).find(|&axis| along(axis) > 1) {
        // What is broadcast over the batch goes to both.
        let part = |tensor: &GpuTensor<R>, range: Range<usize>| match tensor.dims()[axis] {
            1 => tensor.clone(),
            _ => tensor.part(axis, range),
        };
        let product =
            |range: Range<usize>| matmul(&part(lhs, range.clone()), &part(rhs, range), bias, activation);
        return joined(halves(along(axis)).map(product), axis);
    }
    if rows > 1 && !(lhs.is_visible() && result_fits) {
        return by_rows();
    }
    let strides = &rhs.layout.strides;
    if depth > 1 && result_fits && strides[column].unsigned_abs() < strides[row].unsigned_abs() {
        let product =
            |range: Range<usize>| matmul(&lhs.part(column, range.clone()), &rhs.part(row, range), None, None);
        let [first, second] = halves(depth).map(product);
        let sum = elementwise::add(&first, &second);
        let sum = bias.map_or(sum.clone(), |bias| elementwise::add(&sum, &along_last(bias, rank)));
        return Some(activation.map_or(sum.clone(), |activation| elementwise::activated(activation, &sum)));
    }
    if columns > 1 {
        let product = |range: Range<usize>| {
            let bias = bias.map(|bias| bias.part(0, range.clone()));
            matmul(lhs, &rhs.part(column, range), bias.as_ref(), activation)
        };
        return joined(halves(columns).map(product), column);
    }
    None
}

/// A vector along the last of `rank` dims.
fn along_last<R: Runtime>(vector: &GpuTensor<R>, rank: usize) -> GpuTensor<R> {
    let mut dims = vec![1; rank];
    dims[rank - 1] = vector.len();
    let mut strides = vec![0; rank];
    strides[rank - 1] = vector.layout.strides[0];
    let layout = Layout { shape: dims.into(), strides: strides.into(), offset: vector.layout.offset };
    vector.clone().with_layout(layout)
}
