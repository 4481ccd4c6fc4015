//! Reads and writes at positions that a tensor names.

use super::access::{self, Access, Operand, Walk};
use super::then::{self, Then};
use super::{LINE, elementwise, launch, line_of, run};
use crate::language::{Builder, Kernel, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{BinaryOp, CompareOp, DType, Expression, ScatterOp, Shape, Step};

/// `result[…, i, …] = table[…, index[…, i, …], …]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    /// The elements' dtype.
    pub dtype: DType,
    /// The positions' dtype.
    pub index: DType,
    /// How the index and the other dims of the table are walked, and over how many dims strides are told.
    pub access: (Access, Access, usize),
    /// What is done to each element after that.
    pub then: Vec<Then>,
}

impl Gather {
    /// The kernel. Parameters: the number of results, the dims, operands index and table, the table's stride along the dim.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("gather", [LINE, 1], |k| {
            let (table, index) = (k.input(held_as(self.dtype)), k.input(held_as(self.index)));
            let output = k.output(held_as(self.dtype));
            let count = k.parameter();
            let rank = self.access.2;
            let dims = k.parameters(rank);
            let named = Operand::declare(k, self.access.0, rank);
            let start = Operand::declare(k, self.access.1, rank);
            let stride = k.parameter();
            let then = then::declare(k, &self.then);
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let coordinates = access::coordinates(position, &dims);
                let row = index.at(named.at(position, &coordinates)).to(Type::U32);
                let element = table.at(start.at(position, &coordinates) + row * stride);
                output.set(position, then::apply(&then, position, element));
            });
        })
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
    // What another part has is read from its end, and replaced by what that part has.
    let mut out = gather_from(&first, dim, &within(indices, 0, first.dims()[dim]));
    for (start, part) in parts {
        let found = gather_from(&part, dim, &within(indices, start, part.dims()[dim]));
        out = elementwise::single(&from_part(indices.dtype), &[indices.clone(), found, out], &[start.into()]);
    }
    out
}

/// Positions in a part that starts at `start`; those before and beyond it are moved to its ends.
fn within<R: Runtime>(indices: &GpuTensor<R>, start: usize, length: usize) -> GpuTensor<R> {
    let dtype = indices.dtype;
    let program = Expression::new(vec![
        Step::Input(0),
        Step::Parameter(0, dtype),
        Step::Binary(BinaryOp::Max, 0, 1),
        Step::Binary(BinaryOp::Sub, 2, 1),
        Step::Parameter(1, dtype),
        Step::Binary(BinaryOp::Min, 3, 4),
    ]);
    let last = length.saturating_sub(1);
    elementwise::single(&program, core::slice::from_ref(indices), &[start.into(), last.into()])
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
    let walk = Walk::new(out.dims(), &[&indices.layout.strides, &strides]);
    let access = [walk.access(0), walk.access(1)];
    let strided = access.contains(&Access::Strided);
    let mut words = vec![out.len() as u32];
    words.extend(walk.dim_words().filter(|_| strided));
    for (n, layout) in [&indices.layout, &tensor.layout].into_iter().enumerate() {
        words.push(layout.offset as u32);
        words.extend(walk.stride_words(n));
    }
    words.push(access::word(tensor.layout.strides[dim]));
    let rank = if strided { walk.dims.len() } else { 0 };
    let (dtype, index, access) = (tensor.dtype, indices.dtype, (access[0], access[1], rank));
    let template = Gather { dtype, index, access, then: Vec::new() };
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
fn index_along<R: Runtime>(indices: GpuTensor<R>, dims: &[usize], dim: usize) -> GpuTensor<R> {
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
/// another; where they replace one another, an invocation takes each element.
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
    /// of a lane, the strides along it of index, values and target.
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
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let coordinates = access::coordinates(position, &dims);
                let [named, value, to] =
                    [&named, &value, &to].map(|operand| operand.at(position, &coordinates));
                k.range(0_u32, length, 1_u32, |step| {
                    let row = index.at(named + step * index_stride).to(Type::U32);
                    let at = to + row * stride;
                    let new = values.at(value + step * value_stride);
                    target.set(at, self.met(target.at(at), new));
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
    // What replaces may do so in any order: each element is a lane of its own.
    let parallel = op == ScatterOp::Assign;
    let mut dims = indices.dims().to_vec();
    let length = if parallel { 1 } else { core::mem::replace(&mut dims[dim], 1) };
    let strides = without(&tensor.layout.strides, dim);
    let views = [&indices.layout, &values.layout, &tensor.layout];
    let walk = Walk::new(&dims, &[&indices.layout.strides, &values.layout.strides, &strides]);
    let access = [walk.access(0), walk.access(1), walk.access(2)];
    let strided = access.contains(&Access::Strided);
    let lanes: usize = dims.iter().product();
    let mut words = vec![lanes as u32];
    words.extend(walk.dim_words().filter(|_| strided));
    for (n, layout) in views.into_iter().enumerate() {
        words.push(layout.offset as u32);
        words.extend(walk.stride_words(n));
    }
    words.push(length as u32);
    words.extend(views.map(|layout| access::word(layout.strides[dim])));
    let rank = if strided { walk.dims.len() } else { 0 };
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
