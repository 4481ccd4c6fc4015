//! Matrix products in tiles that a workgroup shares, and what follows them: a bias and an activation.

use super::access::{self, Access, Walk};
use super::direct::{Bias, Direct, LANES, Reading, fours_along, least_left_over};
use super::gemv::{self, Gemv};
use super::product::ProductParameters;
use super::reduce::by_subgroups;
use super::then::{self, Then};
use super::tune::{self, Name, Variant};
use super::warps::{self, WarpTile};
use super::{Template, elementwise};
use crate::language::{Array, Builder, Builtin, Factors, Kernel, Storage, Value, Variable};
use crate::runtime::{Matrices, MatrixProduct, Runtime};
use crate::tensor::{GpuTensor, element_bytes, held_as};
use core::ops::Range;
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{Activation, DType};
use smallvec::{SmallVec, smallvec};
use std::fmt;

/// Invocations of a workgroup along x and y.
pub(super) const SIDE: u32 = 16;
/// Rows and columns of the result that an invocation computes: every [`SIDE`]-th of its workgroup's.
const EACH: [u32; 2] = [4, 4];
/// What else they may be: what a workgroup shares is within the 16 KB that all devices have.
const OTHERS: [[u32; 2]; 4] = [[2, 2], [4, 8], [8, 4], [8, 8]];
/// What they may be where the quads of subgroups share rows: the more rows there are, the more is handed on.
const OF_QUADS: [[u32; 2]; 3] = [[4, 4], [8, 4], [8, 8]];
/// Rows and columns of a warp, in 16s. Not chosen on a GPU yet.
const OF_WARP: [u32; 2] = [2, 2];
/// What else they may be: with more, sums do not find registers.
const OTHERS_OF_WARP: [[u32; 2]; 2] = [[2, 4], [4, 2]];
/// Rows, columns and depth from which on warps compute a product: of less most of what they compute is padding.
const LEAST_OF_WARPS: usize = 16;
/// Products that a workgroup adds between two looks at memory.
pub(super) const DEPTH: u32 = 16;

/// Rows of the blocks in which products of many rows are computed without shared memory.
const MOST_ROWS: u32 = 8;
/// Columns of an invocation's block there. Reading costs most where kernels run on a CPU (lavapipe reads lane by lane), and of a block of
/// `r · c` results `r + c` elements are read at a time: large blocks pay, though what they keep goes beyond the registers.
const MOST_COLUMNS: u32 = 16;

/// Who computes what of the tile of a product that a workgroup shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tiling {
    /// Each invocation so many rows and columns.
    Invocations([u32; 2]),
    /// Each invocation so many rows and columns, and four neighbours of a subgroup the same rows: each reads a part of the left side, and
    /// hands it to the others. Memory that the workgroup shares holds the right side alone.
    Quads([u32; 2]),
    /// Each of its warps so many times 16 rows and columns, by tensor cores.
    Warps(Factors, [u32; 2]),
}

impl Tiling {
    /// What products of so many rows, columns and depth are usually computed by, and what else they may be.
    pub(super) fn of<R: Runtime>(
        device: &R::Device,
        dtype: DType,
        size: [usize; 3],
    ) -> (Self, impl Iterator<Item = Self> + use<R>) {
        let is_large = size.iter().all(|&length| length >= LEAST_OF_WARPS);
        let factors = R::factors(device, dtype).filter(|_| is_large && dtype.is_float());
        let by_invocations = [EACH].into_iter().chain(OTHERS).map(Tiling::Invocations);
        let subgroups = by_subgroups::<R>(device, dtype);
        let by_quads = OF_QUADS.into_iter().filter(move |_| subgroups).map(Tiling::Quads);
        let by_warps = factors.map(|factors| OTHERS_OF_WARP.map(|each| Tiling::Warps(factors, each)));
        let usual = factors.map_or(Tiling::Invocations(EACH), |factors| Tiling::Warps(factors, OF_WARP));
        (usual, by_warps.into_iter().flatten().chain(by_invocations).chain(by_quads))
    }

    /// The size of a workgroup.
    pub(super) fn workgroup(self) -> [u32; 2] {
        match self {
            Tiling::Invocations(_) => [SIDE, SIDE],
            // Only in a line can subgroups be told apart.
            Tiling::Quads(_) => [SIDE * SIDE, 1],
            Tiling::Warps(..) => warps::GROUP,
        }
    }

    /// Rows and columns of a workgroup's tile.
    pub(super) fn tile(self) -> [u32; 2] {
        match self {
            Tiling::Invocations(each) | Tiling::Quads(each) => each.map(|each| SIDE * each),
            Tiling::Warps(_, each) => warps::tile(each),
        }
    }

    /// The name of a kernel of a family.
    pub(super) fn kernel(self, family: &str) -> String {
        match self {
            Tiling::Invocations(_) => family.to_owned(),
            Tiling::Quads(_) => format!("{family}_by_quads"),
            Tiling::Warps(..) => format!("{family}_by_warps"),
        }
    }
}

impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, wide] = self.tile();
        match self {
            Tiling::Invocations(_) => write!(f, "{high}x{wide}"),
            Tiling::Quads(_) => write!(f, "{high}x{wide} by quads"),
            Tiling::Warps(factors, _) => write!(f, "{high}x{wide} of {factors:?}"),
        }
    }
}

/// What one workgroup of a tiled product knows.
pub(super) struct Tile<'k> {
    /// Who computes what of it.
    pub tiling: Tiling,
    /// The first row and the first column of its tile.
    pub start: [Value<'k>; 2],
    /// Rows, columns and depth of the whole product.
    pub size: [Value<'k>; 3],
    /// How the elements of both sides lie in memory. The tile shares them so too, and computes with their [values](Storage::value).
    pub storage: Storage,
}

impl<'k> Tile<'k> {
    /// A tile of `Σ lhs(row, depth) · rhs(depth, column)`, handed to `write(row, column, sum)`.
    ///
    /// `column` prepares what `rhs` needs of a column, once for all depths. The functions are asked for elements inside the
    /// product alone.
    pub(super) fn product<C>(
        &self,
        k: &'k Builder,
        lhs: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
        column: impl Fn(Value<'k>) -> C,
        rhs: impl Fn(Value<'k>, &C) -> Value<'k>,
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        match self.tiling {
            Tiling::Invocations(each) => self.by_invocations(k, each, lhs, column, rhs, write),
            Tiling::Quads(each) => self.by_quads(k, each, lhs, column, rhs, write),
            Tiling::Warps(factors, each) => {
                let &Self { start, size, .. } = self;
                WarpTile { factors, each, start, size }.product(k, lhs, column, rhs, write);
            }
        }
    }

    fn by_invocations<C>(
        &self,
        k: &'k Builder,
        each: [u32; 2],
        lhs: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
        column: impl Fn(Value<'k>) -> C,
        rhs: impl Fn(Value<'k>, &C) -> Value<'k>,
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        let (row_start, [rows, _, depth]) = (self.start[0], self.size);
        let zero = k.whole(0, self.storage.value());
        let [high, wide] = self.tiling.tile();
        let (left, right) = (self.shared(k, high), self.shared(k, wide));
        let (x, y) = (k.builtin(Builtin::LocalX), k.builtin(Builtin::LocalY));
        let local = k.builtin(Builtin::LocalIndex);
        let sums: Vec<_> = (0..each[0] * each[1]).map(|_| k.variable(zero)).collect();

        // An invocation brings as many elements of either side as it has rows, or columns: of the left one neighbours along the depth are brought by
        // neighbouring invocations, of the right one neighbouring columns.
        let (left_row, left_depth) = (local / DEPTH, local % DEPTH);
        let bring_right = self.right_side(k, right, [zero, local], column, rhs);
        let left_step = SIDE * SIDE / DEPTH;

        k.range(0_u32, depth, DEPTH, |first| {
            for n in 0..each[0] {
                let (row, at) = (left_row + n * left_step, first + left_depth);
                let element = k.variable(zero);
                k.when((row_start + row).below(rows) & at.below(depth), || {
                    element.set(lhs(row_start + row, at));
                });
                left.set(left_depth * high + row, element.get());
            }
            bring_right(first);
            k.barrier();
            k.range(0_u32, DEPTH, 1_u32, |d| {
                let lefts: Vec<_> = (0..each[0]).map(|n| left.at(d * high + y + n * SIDE)).collect();
                let rights: Vec<_> = (0..each[1]).map(|n| right.at(d * wide + x + n * SIDE)).collect();
                add_products(&sums, &lefts, &rights);
            });
            k.barrier();
        });
        self.write_sums(k, [y, x], &sums, write);
    }

    /// Memory that the workgroup shares, for so many rows or columns.
    pub(super) fn shared(&self, k: &'k Builder, length: u32) -> Array<'k> {
        k.shared_elements(self.storage, length * DEPTH)
    }

    /// What brings [`DEPTH`] rows of the right side, from one on, into memory that the workgroup shares: row by row, zeros beyond the
    /// product. It is handed a zero, and the invocation's place in the workgroup.
    pub(super) fn right_side<C>(
        &self,
        k: &'k Builder,
        right: Array<'k>,
        [zero, local]: [Value<'k>; 2],
        column: impl Fn(Value<'k>) -> C,
        rhs: impl Fn(Value<'k>, &C) -> Value<'k>,
    ) -> impl Fn(Value<'k>) {
        let [_, columns, depth] = self.size;
        let [_, wide] = self.tiling.tile();
        let (right_depth, right_column) = (local / wide, local % wide);
        let own_column = self.start[1] + right_column;
        let prepared = column(own_column.min(columns - 1_u32));
        let right_step = SIDE * SIDE / wide;
        move |first| {
            for n in 0..wide / SIDE {
                let at = first + right_depth + n * right_step;
                let element = k.variable(zero);
                k.when(own_column.below(columns) & at.below(depth), || element.set(rhs(at, &prepared)));
                right.set((right_depth + n * right_step) * wide + right_column, element.get());
            }
        }
    }

    /// Hands on the sums of the invocation at a row and a column of a workgroup.
    pub(super) fn write_sums(
        &self,
        k: &'k Builder,
        [y, x]: [Value<'k>; 2],
        sums: &[Variable<'k>],
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        let ([row_start, column_start], [rows, columns, _]) = (self.start, self.size);
        let [_, wide] = self.tiling.tile();
        let across = wide / SIDE;
        for (n, sum) in (0_u32..).zip(sums) {
            let (row, column) = (row_start + y + n / across * SIDE, column_start + x + n % across * SIDE);
            k.when(row.below(rows) & column.below(columns), || write(row, column, sum.get()));
        }
    }
}

/// Adds the products of each row with each column to the sums, row by row.
pub(super) fn add_products<'k>(sums: &[Variable<'k>], lefts: &[Value<'k>], rights: &[Value<'k>]) {
    for (sums, &a) in sums.chunks(rights.len()).zip(lefts) {
        for (sum, &b) in sums.iter().zip(rights) {
            sum.set(a.fma(b, sum.get()));
        }
    }
}

/// What is done to a sum before it is written.
pub(super) struct Epilogue<T> {
    /// Where the bias is, if one is added.
    pub bias: Option<T>,
    /// What is done at last.
    pub activation: Option<Activation>,
}

impl<T: Copy> Epilogue<T> {
    /// The sum, finished; `read` reads the bias.
    pub(super) fn apply<'k>(&self, sum: Value<'k>, read: impl FnOnce(T) -> Value<'k>) -> Value<'k> {
        let sum = match self.bias {
            Some(bias) => sum + read(bias),
            None => sum,
        };
        match self.activation {
            Some(activation) => elementwise::activation(activation, sum),
            None => sum,
        }
    }
}

/// A batch of matrix products.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// The elements' dtype.
    pub dtype: DType,
    /// How the batches of both sides are walked, and over how many dims strides are told.
    pub batch: (Access, Access, usize),
    /// Who computes what of a tile.
    pub tiling: Tiling,
    /// Whether a bias is added to each row.
    pub bias: bool,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// And what came after that.
    pub then: Vec<Then>,
}

impl Matmul {
    /// The kernel. Parameters: its `block`; rows, columns, depth; the batch's dims and both operands; the strides of both sides, outer
    /// before inner; where the bias starts and its stride.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel(self.tiling.kernel("matmul"), self.tiling.workgroup(), |k| {
            let (lhs, rhs) = (k.input(storage), k.input(storage));
            let bias = self.bias.then(|| k.input(storage));
            let output = k.output(storage);
            let product = ProductParameters::declare(k, self.batch, bias, &self.then);
            let ProductParameters { block: [block_column, block_row, batch], size, bias, then, .. } = product;
            let ((left, left_strides), (right, right_strides)) = (product.left, product.right);
            let epilogue = Epilogue { bias, activation: self.activation };
            let [high, wide] = self.tiling.tile();
            let start = [block_row * high, block_column * wide];
            let tile = Tile { tiling: self.tiling, start, size, storage };
            tile.product(
                k,
                |row, depth| lhs.at(left + row * left_strides[0] + depth * left_strides[1]),
                |column| right + column * right_strides[1],
                |depth, column| rhs.at(*column + depth * right_strides[0]),
                |row, column, sum| {
                    let sum = epilogue.apply(sum, |(bias, start, stride)| bias.at(start + column * stride));
                    let position = (batch * size[0] + row) * size[1] + column;
                    output.set(position, then::apply(&then, position, sum));
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
    let full = |last: [usize; 2]| [batch.dims.as_slice(), &last].concat().into();
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
    if by_library(sides, bias, activation, &out, &walk, size, count) {
        return out;
    }
    if let Some(activation) = activation
        && by_library(sides, bias, None, &out, &walk, size, count)
    {
        return elementwise::activated(activation, &out);
    }
    let product = Product { lhs, rhs, bias: bias.map(|bias| (bias, Bias::OfColumns)), activation, out: &out };
    product.launch(&left, &right, &walk, size, count);
    out
}

/// Has a library compute a batch of products, where the device has one that takes them as they lie.
fn by_library<R: Runtime>(
    sides: [(&GpuTensor<R>, &Layout); 2],
    bias: Option<&GpuTensor<R>>,
    activation: Option<Activation>,
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
    let bias = bias.map(|bias| (&bias.memory, bias.layout.offset));
    let product =
        MatrixProduct { dtype: out.dtype, size, count, lhs, rhs, bias, activation, out: &out.memory };
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
    /// Row-major from the start of its memory.
    pub out: &'a GpuTensor<R>,
}

impl<R: Runtime> Product<'_, R> {
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
        let inner = |layout: &Layout| {
            [layout.strides[layout.strides.len() - 2], layout.strides[layout.strides.len() - 1]]
        };
        let access = [walk.access(0), walk.access(1)];
        let strided = access.contains(&Access::Strided);
        let mut tensors: SmallVec<[_; 4]> = smallvec![self.lhs, self.rhs];
        tensors.extend(self.bias.map(|(bias, _)| bias));
        tensors.push(self.out);
        let mut words: SmallVec<[u32; 32]> = size.iter().map(|&n| n as u32).collect();
        words.extend(walk.dim_words().filter(|_| strided));
        for (n, view) in [left, right].into_iter().enumerate() {
            words.push(view.offset as u32);
            words.extend(walk.stride_words(n));
        }
        words.extend([inner(left), inner(right)].as_flattened().iter().map(|&stride| access::word(stride)));
        if let Some((bias, _)) = self.bias {
            words.extend([bias.layout.offset as u32, access::word(bias.layout.strides[0])]);
        }
        let batch = (access[0], access[1], if strided { walk.dims.len() } else { 0 });
        let kernels = Kernels { of: self, batch, left, right, size, count };
        let class = || {
            let [rows, columns, depth, count] = [rows, columns, depth, count].map(tune::rounded);
            let lies = [left, right].map(|side| (fours_along(side), fours_along(&transposed(side))));
            format!("product {} {count}x{rows}x{columns}x{depth} {lies:?}", self.out.dtype)
        };
        let device = &self.out.device;
        if R::limits(device).shared_memory {
            let (tiling, others) = Tiling::of::<R>(device, self.out.dtype, size);
            let usual = if rows <= gemv::MOST_ROWS { kernels.gemv() } else { kernels.tiled(tiling) };
            let others = || others.map(|tiling| kernels.tiled(tiling)).collect();
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

/// The kernels for a batch of products.
struct Kernels<'a, 'b, R: Runtime> {
    of: &'a Product<'b, R>,
    batch: (Access, Access, usize),
    left: &'a Layout,
    right: &'a Layout,
    size: [usize; 3],
    count: usize,
}

impl<R: Runtime> Kernels<'_, '_, R> {
    fn variant(&self, name: Name, template: impl Into<Template>, tile: [u32; 2]) -> Variant {
        let [rows, columns, _] = self.size;
        let blocks = [columns.div_ceil(tile[1] as usize), rows.div_ceil(tile[0] as usize), self.count];
        Variant { name, template: template.into(), blocks }
    }

    fn gemv(&self) -> Variant {
        let by_columns = self.right.strides.last() != Some(&1);
        let template = Gemv {
            dtype: self.of.out.dtype,
            batch: self.batch,
            rows: self.size[0].next_power_of_two() as u32,
            by_columns,
            subgroups: by_columns && by_subgroups::<R>(&self.of.out.device, self.of.out.dtype),
            // A bias of rows is asked for where products do without shared memory alone.
            bias: self.of.bias.is_some(),
            activation: self.of.activation,
            then: Vec::new(),
        };
        let tile = [template.rows, template.columns()];
        self.variant(Name::Gemv, template, tile)
    }

    /// In tiles that workgroups share.
    fn tiled(&self, tiling: Tiling) -> Variant {
        let template = Matmul {
            dtype: self.of.out.dtype,
            batch: self.batch,
            tiling,
            bias: self.of.bias.is_some(),
            activation: self.of.activation,
            then: Vec::new(),
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
            then: Vec::new(),
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
    let layout = Layout { shape: dims.into(), strides, offset: vector.layout.offset };
    vector.clone().with_layout(layout)
}
