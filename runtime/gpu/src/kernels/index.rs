//! Reads and writes at positions that a tensor names.

use super::access::{self, Access, Operand, Walk};
use super::epilogue::{self, EpilogueProgram};
use super::reduce::Reducer;
use super::{LINE, elementwise, launch, line_of, run, segments};
use crate::language::{Builder, Kernel, Storage, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{BinaryOp, CompareOp, DType, Expression, Scalar, ScatterOp, Shape, Step};

/// The row that a position names, and whether there is one of so many. It is compared before it loses bits, and what is negative is beyond all rows:
/// positions are the user's data, and memory of others lies beside a tensor's.
pub(super) fn named_row<'k>(position: Value<'k>, rows: Value<'k>) -> (Value<'k>, Value<'k>) {
    let unsigned = match position.ty() {
        Type::I64 | Type::U64 => Type::U64,
        Type::I32 | Type::U32 => Type::U32,
        Type::F64 | Type::F32 | Type::Bool => unreachable!("positions are integers"),
    };
    let number = position.to(unsigned);
    (number.to(Type::U32), number.below(rows.to(unsigned)))
}

/// What is read where there is something, else what is no number: 0 of integers.
pub(super) fn read_where<'k>(is_there: Value<'k>, ty: Type, read: impl FnOnce() -> Value<'k>) -> Value<'k> {
    let k = is_there.kernel();
    let nothing = match ty {
        Type::F64 => k.double(f64::NAN),
        Type::F32 => k.value(f32::NAN),
        Type::I64 | Type::I32 | Type::U64 | Type::U32 | Type::Bool => k.whole(0, ty),
    };
    let element = k.variable(nothing);
    k.when(is_there, || element.set(read()));
    element.get()
}

/// `result[…, i, …] = table[…, index[…, i, …], …]`; rows that the table does not have are NaN, of integers 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    /// The elements' dtype.
    pub dtype: DType,
    /// The positions' dtype.
    pub index: DType,
    /// How the index and the other dims of the table are walked, and over how many dims strides are told.
    pub access: (Access, Access, usize),
    /// What is done to each element after that.
    pub epilogues: Vec<EpilogueProgram>,
}

impl Gather {
    /// The kernel. Parameters: the number of results, the dims, operands index and table, the table's stride along the dim and its rows.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("gather", [LINE, 1], |k| {
            let (table, index) = (k.input(held_as(self.dtype)), k.input(held_as(self.index)));
            let output = k.output(held_as(self.dtype));
            let count = k.parameter();
            let rank = self.access.2;
            let dims = k.parameters(rank);
            let named = Operand::declare(k, self.access.0, rank);
            let start = Operand::declare(k, self.access.1, rank);
            let (stride, rows) = (k.parameter(), k.parameter());
            let epilogues = epilogue::declare(k, &self.epilogues);
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let coordinates = access::coordinates(position, &dims);
                let (row, is_there) = named_row(index.at(named.at(position, &coordinates)), rows);
                let start = start.at(position, &coordinates);
                let ty = held_as(self.dtype).value();
                let element = read_where(is_there, ty, || table.at(start + row * stride));
                output.set(position, epilogue::apply(&epilogues, position, element));
            });
        })
    }
}

/// How a kernel walks operands, and what it is told of that.
struct Walked {
    /// How each is walked.
    access: Vec<Access>,
    /// Over how many dims strides are told.
    rank: usize,
    /// The number of positions, the dims, the operands.
    words: Vec<u32>,
}

impl Walked {
    /// The walk over `dims` of operands, of each of which is said where it starts and what its strides are.
    fn new(dims: &[usize], operands: &[(usize, &[isize])]) -> Self {
        let strides: Vec<&[isize]> = operands.iter().map(|&(_, strides)| strides).collect();
        let walk = Walk::new(dims, &strides);
        let access: Vec<Access> = (0..operands.len()).map(|n| walk.access(n)).collect();
        let strided = access.contains(&Access::Strided);
        let mut words = vec![dims.iter().product::<usize>() as u32];
        words.extend(walk.dim_words().filter(|_| strided));
        for (n, &(start, _)) in operands.iter().enumerate() {
            words.push(start as u32);
            words.extend(walk.stride_words(n));
        }
        Self { access, rank: if strided { walk.dims.len() } else { 0 }, words }
    }
}

/// Strides with that of one dim taken out.
fn without(strides: &[isize], dim: usize) -> Vec<isize> {
    strides.iter().enumerate().map(|(axis, &stride)| if axis == dim { 0 } else { stride }).collect()
}

/// `out[i][j] = tensor[indices[i][j]][j]` (for `dim` 0).
pub(crate) fn gather<R: Runtime>(tensor: &GpuTensor<R>, dim: usize, indices: &GpuTensor<R>) -> GpuTensor<R> {
    if tensor.is_visible() {
        return gather_from(tensor, dim, indices);
    }
    let mut parts = tensor.parts(dim).into_iter();
    let Some((_, first)) = parts.next() else {
        return GpuTensor::empty(indices.shape(), tensor.dtype, &tensor.device);
    };
    // What another part has is replaced by what that part has.
    let mut out = gather_from(&first, dim, indices);
    for (start, part) in parts {
        let found = gather_from(&part, dim, &behind(indices, start));
        out = elementwise::single(&from_part(indices.dtype), &[indices.clone(), found, out], &[start.into()]);
    }
    out
}

/// Positions in a part that starts at `start`.
fn behind<R: Runtime>(indices: &GpuTensor<R>, start: usize) -> GpuTensor<R> {
    let start_of_part = Step::Parameter(0, indices.dtype);
    let program = Expression::new(vec![Step::Input(0), start_of_part, Step::Binary(BinaryOp::Sub, 0, 1)]);
    elementwise::single(&program, core::slice::from_ref(indices), &[start.into()])
}

/// The program that takes what was found in a part for the positions from a parameter on.
fn from_part(index: DType) -> Expression {
    Expression::new(vec![
        Step::Input(0),
        Step::Parameter(0, index),
        Step::Compare(CompareOp::GreaterEqual, 0, 1),
        Step::Input(1),
        Step::Input(2),
        Step::Where(2, 3, 4),
    ])
}

/// [`gather`] from a tensor of which kernels see all.
fn gather_from<R: Runtime>(tensor: &GpuTensor<R>, dim: usize, indices: &GpuTensor<R>) -> GpuTensor<R> {
    let out = GpuTensor::empty(indices.shape(), tensor.dtype, &tensor.device);
    if out.is_empty() {
        return out;
    }
    let strides = without(&tensor.layout.strides, dim);
    let operands = [(indices.layout.offset, &*indices.layout.strides), (tensor.layout.offset, &*strides)];
    let Walked { access, rank, mut words } = Walked::new(out.dims(), &operands);
    words.extend([access::word(tensor.layout.strides[dim]), tensor.dims()[dim] as u32]);
    let (dtype, index, access) = (tensor.dtype, indices.dtype, (access[0], access[1], rank));
    let template = Gather { dtype, index, access, epilogues: Vec::new() };
    let tensors = [tensor, indices, &out];
    // Of the table no more is read than is written.
    let moved = indices.bytes_in_memory()
        + tensor.bytes_in_memory().min(out.bytes_in_memory())
        + out.bytes_in_memory();
    let groups = line_of::<R>(&tensor.device, out.len());
    run::<R>(&tensor.device, template.into(), &tensors, &words, groups, moved, Some((2, out.len())));
    out
}

/// A rank-1 index as one of the rank and the dims of what it selects, but along `dim`.
pub(super) fn index_along<R: Runtime>(indices: GpuTensor<R>, dims: &[usize], dim: usize) -> GpuTensor<R> {
    let mut shape = Shape::from(dims);
    shape.dims[dim] = indices.len();
    let mut strides = vec![0; dims.len()];
    strides[dim] = indices.layout.strides[0];
    let layout = Layout { shape, strides: strides.into(), offset: indices.layout.offset };
    indices.with_layout(layout)
}

/// Rows of `dim` named by a rank-1 index.
pub(crate) fn select<R: Runtime>(tensor: &GpuTensor<R>, dim: usize, indices: GpuTensor<R>) -> GpuTensor<R> {
    gather(tensor, dim, &index_along(indices, tensor.dims(), dim))
}

/// Combines values into rows that an index names. An invocation takes a whole lane, in order, so that duplicates meet one after
/// another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// How a value meets the one that is there.
    pub op: ScatterOp,
    /// The elements' dtype.
    pub dtype: DType,
    /// The positions' dtype.
    pub index: DType,
    /// How index, values and the other dims of the target are walked, and over how many dims strides are told.
    pub access: (Access, Access, Access, usize),
}

impl Scatter {
    /// The kernel. Parameters: the number of lanes, the dims without the lanes', operands index, values and target; the length
    /// of a lane, the strides along it of index, values and target, the target's rows.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("scatter", [LINE, 1], |k| {
            let (index, values) = (k.input(held_as(self.index)), k.input(held_as(self.dtype)));
            let target = k.output(held_as(self.dtype));
            let count = k.parameter();
            let rank = self.access.3;
            let dims = k.parameters(rank);
            let [named, value, to] =
                [self.access.0, self.access.1, self.access.2].map(|access| Operand::declare(k, access, rank));
            let length = k.parameter();
            let (index_stride, value_stride, stride) = (k.parameter(), k.parameter(), k.parameter());
            let rows = k.parameter();
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let coordinates = access::coordinates(position, &dims);
                let [named, value, to] =
                    [&named, &value, &to].map(|operand| operand.at(position, &coordinates));
                k.range(0_u32, length, 1_u32, |step| {
                    let (row, is_there) = named_row(index.at(named + step * index_stride), rows);
                    k.when(is_there, || {
                        let at = to + row * stride;
                        let new = values.at(value + step * value_stride);
                        target.set(at, self.met(target.at(at), new));
                    });
                });
            });
        })
    }

    fn met<'k>(&self, old: Value<'k>, new: Value<'k>) -> Value<'k> {
        let is_bool = new.ty() == Type::Bool;
        match self.op {
            ScatterOp::Assign => new,
            ScatterOp::Add | ScatterOp::Max if is_bool => old | new,
            ScatterOp::Mul | ScatterOp::Min if is_bool => old & new,
            ScatterOp::Add => old + new,
            ScatterOp::Mul => old * new,
            ScatterOp::Max => old.maximum(new),
            ScatterOp::Min => old.minimum(new),
        }
    }
}

/// How an element finds out whether it is the last of its lane that names its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Last {
    /// It looks at all that come after it.
    Search,
    /// A table of the rows has the last of each, read like so.
    Table(Access),
}

/// Writes values to the rows that an index names, an invocation each: the last in order that names a row, and no other, whichever runs
/// first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Assign {
    /// The elements' dtype.
    pub dtype: DType,
    /// The positions' dtype.
    pub index: DType,
    /// How index, values, the other dims of the target and places along the lane are walked, and over how many dims strides are told.
    pub access: (Access, Access, Access, Access, usize),
    /// How the last is found.
    pub last: Last,
}

impl Assign {
    /// The kernel. Buffers: index, values, the table if there is one, target. Parameters: the number of values, the dims, operands index,
    /// values, target, place and the table if there is one; the target's stride along the dim and its rows; without a table the length of a lane and the
    /// index's stride along it, else the table's stride along the dim.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("assign", [LINE, 1], |k| {
            let (index, values) = (k.input(held_as(self.index)), k.input(held_as(self.dtype)));
            let table = match self.last {
                Last::Search => None,
                Last::Table(access) => Some((k.input(Storage::U32), access)),
            };
            let target = k.output(held_as(self.dtype));
            let count = k.parameter();
            let rank = self.access.4;
            let dims = k.parameters(rank);
            let [named, value, to, place] = [self.access.0, self.access.1, self.access.2, self.access.3]
                .map(|access| Operand::declare(k, access, rank));
            let table = table.map(|(table, access)| (table, Operand::declare(k, access, rank)));
            let (stride, rows) = (k.parameter(), k.parameter());
            let further = k.parameters(if table.is_some() { 1 } else { 2 });
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let coordinates = access::coordinates(position, &dims);
                let [named, value, to, place] =
                    [&named, &value, &to, &place].map(|operand| operand.at(position, &coordinates));
                let own = index.at(named);
                let (row, is_there) = named_row(own, rows);
                let is_last = match &table {
                    Some((table, start)) => {
                        let at = start.at(position, &coordinates) + row * further[0];
                        read_where(is_there, Type::U32, || table.at(at)).equals(place + 1_u32)
                    }
                    None => {
                        let (length, index_stride) = (further[0], further[1]);
                        let replaced = k.variable(k.value(false));
                        k.range(place + 1_u32, length, 1_u32, |later| {
                            let other = index.at(named + (later - place) * index_stride);
                            replaced.set(replaced.get() | other.equals(own));
                        });
                        is_there & !replaced.get()
                    }
                };
                k.when(is_last, || target.set(to + row * stride, values.at(value)));
            });
        })
    }
}

/// Makes the table that [`Last::Table`] reads: the last place, counted from 1, in each lane of an index that names a row; 0 where none does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LastPlaces {
    /// The positions' dtype.
    pub index: DType,
    /// How index, the other dims of the table and places along the lane are walked, and over how many dims strides are told.
    pub access: (Access, Access, Access, usize),
}

impl LastPlaces {
    /// The kernel. Buffers: index, table. Parameters: the number of positions, the dims, operands index, table and place; the table's
    /// stride along the dim and its rows.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("last_places", [LINE, 1], |k| {
            let (index, table) = (k.input(held_as(self.index)), k.maxima());
            let count = k.parameter();
            let rank = self.access.3;
            let dims = k.parameters(rank);
            let [named, to, place] =
                [self.access.0, self.access.1, self.access.2].map(|access| Operand::declare(k, access, rank));
            let (stride, rows) = (k.parameter(), k.parameter());
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let coordinates = access::coordinates(position, &dims);
                let [named, to, place] =
                    [&named, &to, &place].map(|operand| operand.at(position, &coordinates));
                let (row, is_there) = named_row(index.at(named), rows);
                k.when(is_there, || table.raise(to + row * stride, place + 1_u32));
            });
        })
    }
}

/// The longest lanes in which elements look at those that come after them: longer ones have a table made, which is two launches.
const MOST_SEARCHED: usize = 64;

/// Writes `values` to the rows of `dim` that `indices` name; the last in order stays.
fn assign<R: Runtime>(tensor: &GpuTensor<R>, dim: usize, indices: &GpuTensor<R>, values: &GpuTensor<R>) {
    let device = &tensor.device;
    let dims = indices.dims();
    let rank = dims.len();
    let mut along = vec![0; rank];
    along[dim] = 1;
    // What is read for many elements has one place.
    let mut once = dims.to_vec();
    for (size, &stride) in once.iter_mut().zip(&indices.layout.strides) {
        *size = if stride == 0 { 1 } else { *size };
    }
    let mut shape = Shape::from(once.as_slice());
    shape.dims[dim] = tensor.dims()[dim];
    once[dim] = dims[dim];
    let bytes = shape.num_elements() * Storage::U32.bytes();
    let table = (dims[dim] > MOST_SEARCHED && bytes <= R::limits(device).binding_bytes)
        .then(|| last_places(indices, dim, &once, &along, shape));

    let strides = without(&tensor.layout.strides, dim);
    let mut operands = vec![
        (indices.layout.offset, &*indices.layout.strides),
        (values.layout.offset, &*values.layout.strides),
        (tensor.layout.offset, &*strides),
        (0, &*along),
    ];
    let table_strides = table.as_ref().map(|table| strides_of_table(table, dim));
    operands.extend(table_strides.as_ref().map(|strides| (0, &**strides)));
    let Walked { access, rank, mut words } = Walked::new(dims, &operands);
    words.extend([access::word(tensor.layout.strides[dim]), tensor.dims()[dim] as u32]);
    match &table {
        Some(table) => words.push(access::word(table.layout.strides[dim])),
        None => words.extend([dims[dim] as u32, access::word(indices.layout.strides[dim])]),
    }
    let template = Assign {
        dtype: tensor.dtype,
        index: indices.dtype,
        access: (access[0], access[1], access[2], access[3], rank),
        last: access.get(4).map_or(Last::Search, |&access| Last::Table(access)),
    };
    let tensors: Vec<&GpuTensor<R>> = [indices, values].into_iter().chain(&table).chain([tensor]).collect();
    launch::<R>(device, template, &tensors, &words, line_of::<R>(device, indices.len()));
}

/// The strides of a table of rows over the dims that what is written has, but along the rows: 0 where it has one place for all.
fn strides_of_table<R: Runtime>(table: &GpuTensor<R>, dim: usize) -> Vec<isize> {
    let strides = without(&table.layout.strides, dim);
    strides.iter().zip(table.dims()).map(|(&stride, &size)| if size == 1 { 0 } else { stride }).collect()
}

/// The table of [`LastPlaces`], of a shape, from the places of an index that has the `dims`.
fn last_places<R: Runtime>(
    indices: &GpuTensor<R>,
    dim: usize,
    dims: &[usize],
    along: &[isize],
    shape: Shape,
) -> GpuTensor<R> {
    let device = &indices.device;
    let table = elementwise::full(shape, Scalar::Int(0), DType::U32, device);
    let strides = strides_of_table(&table, dim);
    let operands = [(indices.layout.offset, &*indices.layout.strides), (0, &*strides), (0, along)];
    let Walked { access, rank, mut words } = Walked::new(dims, &operands);
    words.extend([access::word(table.layout.strides[dim]), table.dims()[dim] as u32]);
    let template = LastPlaces { index: indices.dtype, access: (access[0], access[1], access[2], rank) };
    let count = dims.iter().product();
    launch::<R>(device, template, &[indices, &table], &words, line_of::<R>(device, count));
    table
}

/// Combines `values` into the rows of `dim` that `indices`, of the same rank, name.
pub(crate) fn scatter<R: Runtime>(
    mut tensor: GpuTensor<R>,
    dim: usize,
    indices: &GpuTensor<R>,
    values: &GpuTensor<R>,
    op: ScatterOp,
) -> GpuTensor<R> {
    if !tensor.is_writable() {
        tensor = elementwise::copy(&tensor);
    }
    if indices.is_empty() {
        return tensor;
    }
    // What replaces need not meet what it replaces; where a lane is one element, nothing is replaced twice.
    if op == ScatterOp::Assign && indices.dims()[dim] > 1 {
        assign(&tensor, dim, indices, values);
        return tensor;
    }
    let mut dims = indices.dims().to_vec();
    let length = core::mem::replace(&mut dims[dim], 1);
    let lanes: usize = dims.iter().product();
    let different = segments::different(&indices.layout, dim).len() / length;
    if let Some(reducer) = Reducer::of_scattered(op)
        && segments::are_faster::<R>(&tensor.device, lanes, length, different)
    {
        segments::reduce_rows(&tensor, dim, indices, values, reducer);
        return tensor;
    }
    let strides = without(&tensor.layout.strides, dim);
    let views = [&indices.layout, &values.layout, &tensor.layout];
    let strides = [&*indices.layout.strides, &*values.layout.strides, &*strides];
    let operands = [0, 1, 2].map(|n| (views[n].offset, strides[n]));
    let Walked { access, rank, mut words } = Walked::new(&dims, &operands);
    words.push(length as u32);
    words.extend(views.map(|layout| access::word(layout.strides[dim])));
    words.push(tensor.dims()[dim] as u32);
    let template = Scatter {
        op,
        dtype: tensor.dtype,
        index: indices.dtype,
        access: (access[0], access[1], access[2], rank),
    };
    let tensors = [indices, values, &tensor];
    launch::<R>(&tensor.device, template, &tensors, &words, line_of::<R>(&tensor.device, lanes));
    tensor
}

/// Combines `values` into the rows of `dim` that a rank-1 index names.
pub(crate) fn select_assign<R: Runtime>(
    tensor: GpuTensor<R>,
    dim: usize,
    indices: GpuTensor<R>,
    values: &GpuTensor<R>,
    op: ScatterOp,
) -> GpuTensor<R> {
    let indices = index_along(indices, values.dims(), dim);
    scatter(tensor, dim, &indices, values, op)
}
