//! Writing by index.

use crate::compute::{Compute, widened2};
use crate::ops::cast::cast;
use crate::ops::copy::reshape;
use crate::ops::create::full;
use crate::ops::index::{check, check_others, indices, select};
use crate::rows::{Rows, walk};
use crate::tensor::{NdArrayTensor, same_dtype};
use alloc::{vec, vec::Vec};
use kiln_kernels::copy;
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{DType, Scalar, ScatterOp, Shape, TensorData};

/// Combines `value` into `tensor` where `index` (of `value`'s shape) says along `dim`.
pub(crate) fn scatter(
    tensor: NdArrayTensor,
    dim: usize,
    index: NdArrayTensor,
    value: NdArrayTensor,
    op: ScatterOp,
) -> NdArrayTensor {
    let index = indices(index);
    check(index.slice(), tensor.dims()[dim], dim, "scatter");
    let layout = Layout::contiguous(index.shape());
    combine(tensor, dim, index.slice(), &layout, value, op)
}

/// Combines `value`'s rows into the rows of `dim` named by a rank-1 index.
pub(crate) fn select_assign(
    tensor: NdArrayTensor,
    dim: usize,
    index: NdArrayTensor,
    value: NdArrayTensor,
    op: ScatterOp,
) -> NdArrayTensor {
    let index = indices(index);
    check(index.slice(), tensor.dims()[dim], dim, "select_assign");
    let whole_rows = dim == 0 && tensor.dims()[1..] == value.dims()[1..] && value.dims()[0] == index.len();
    if op == ScatterOp::Add && whole_rows && matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16) {
        same_dtype("select_assign", &tensor, &value);
        return add_rows(tensor, index.slice(), value);
    }
    let mut strides = vec![0; value.dims().len()];
    strides[dim] = 1;
    let layout = Layout { shape: value.shape(), strides: strides.into(), offset: 0 };
    combine(tensor, dim, index.slice(), &layout, value, op)
}

/// Adds `value`'s rows to those of a tensor of f32, f16 or bf16, in time that depends on their number alone.
fn add_rows(tensor: NdArrayTensor, index: &[i64], value: NdArrayTensor) -> NdArrayTensor {
    let dtype = tensor.dtype();
    if dtype == DType::F32 {
        let (width, places) = (value.dims()[1..].iter().product(), places(index));
        let value = value.into_contiguous();
        return tensor.edit(|table| copy::add_rows(width, table, &places, value.slice()));
    }
    // Each row that is named is rounded once, after all was added to it.
    let mut named = index.to_vec();
    named.sort_unstable();
    named.dedup();
    let index: Vec<i64> = index.iter().map(|row| named.partition_point(|other| other < row) as i64).collect();
    let named = NdArrayTensor::from_data(TensorData::from(named.as_slice()));
    let rows = cast(select(tensor.clone(), 0, named.clone()), DType::F32);
    let sums = cast(add_rows(rows, &index, cast(value, DType::F32)), dtype);
    select_assign(tensor, 0, named, sums, ScatterOp::Assign)
}

/// Indices that were checked.
fn places(index: &[i64]) -> Vec<usize> {
    index.iter().map(|&index| index as usize).collect()
}

/// See [`kiln_tensor::backend::Backend::embedding_gradient`]; of f32, f16 or bf16.
pub(crate) fn embedding_gradient(
    gradient: NdArrayTensor,
    index: NdArrayTensor,
    rows: usize,
) -> NdArrayTensor {
    let (dtype, index) = (gradient.dtype(), indices(index));
    check(index.slice(), rows, 0, "embedding_gradient");
    let width = gradient.dims().last().copied().unwrap_or(1);
    let shape = Shape::from([rows, width]);
    if dtype != DType::F32 {
        let value = reshape(gradient, [index.len(), width].into());
        return add_rows(full(shape, Scalar::Int(0), dtype), index.slice(), value);
    }
    let (places, gradient) = (places(index.slice()), gradient.into_contiguous());
    NdArrayTensor::build(shape, dtype, |table| copy::sum_rows(width, table, &places, gradient.slice()))
}

/// `index_at` says where the index of each element of `value` stands.
fn combine(
    tensor: NdArrayTensor,
    dim: usize,
    index: &[i64],
    index_at: &Layout,
    value: NdArrayTensor,
    op: ScatterOp,
) -> NdArrayTensor {
    assert_eq!(index_at.shape, value.shape(), "scatter: the index does not have the value's shape");
    check_others(&index_at.shape, &tensor, dim, "scatter");
    same_dtype("scatter", &tensor, &value);
    if op == ScatterOp::Assign {
        return by_size!(tensor.dtype(), T => apply::<T>(tensor, dim, index, index_at, &value, |_, new| new));
    }
    widened2(tensor, value, |tensor, value| {
        by_compute!(tensor.dtype(), T => {
            let f: fn(T, T) -> T = match op {
                // What gradients ask for has a loop of its own, the others one together.
                ScatterOp::Add => return apply::<T>(tensor, dim, index, index_at, &value, T::add),
                ScatterOp::Assign => |_, new| new,
                ScatterOp::Mul => T::mul,
                ScatterOp::Max => <T as Compute>::max,
                ScatterOp::Min => <T as Compute>::min,
            };
            apply::<T>(tensor, dim, index, index_at, &value, f)
        })
    })
}

fn apply<T: bytemuck::Pod>(
    tensor: NdArrayTensor,
    dim: usize,
    index: &[i64],
    index_at: &Layout,
    value: &NdArrayTensor,
    f: impl Fn(T, T) -> T,
) -> NdArrayTensor {
    // Positions along `dim` come from the index, the others from where the value stands.
    let mut target = Layout { shape: value.shape(), ..Layout::contiguous(tensor.shape()) };
    let stride = core::mem::replace(&mut target.strides[dim], 0);
    let rows = Rows::new([&target, index_at, value.layout()]);
    let (len, [step, index_step, value_step]) = (rows.len, rows.steps);
    let source = value.storage::<T>();
    tensor.edit(|out: &mut [T]| {
        rows.for_each(|[to, named, from]| {
            if (index_step, value_step) == (1, 1) {
                // The same loop without steps that only a run tells.
                let pairs = index[named..][..len].iter().zip(&source[from..][..len]);
                for (i, (&named, &value)) in pairs.enumerate() {
                    let to = to as isize + i as isize * step + named as isize * stride;
                    let element = &mut out[to as usize];
                    *element = f(*element, value);
                }
                return;
            }
            if (step, index_step, value_step) == (1, 0, 1) && len > 0 {
                // A row that one index names.
                let to = (to as isize + index[named] as isize * stride) as usize;
                let pairs = out[to..][..len].iter_mut().zip(&source[from..][..len]);
                return pairs.for_each(|(element, &value)| *element = f(*element, value));
            }
            walk(from, value_step, len, |i, at| {
                let named = index[(named as isize + i as isize * index_step) as usize];
                let to = to as isize + i as isize * step + named as isize * stride;
                let element = &mut out[to as usize];
                *element = f(*element, source[at]);
            })
        });
    })
}
