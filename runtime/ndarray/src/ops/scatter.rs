//! Writing by index.

use crate::compute::{Compute, widened2};
use crate::ops::index::{check, check_others, indices};
use crate::rows::{Rows, walk};
use crate::tensor::{NdArrayTensor, same_dtype};
use alloc::vec;
use kiln_tensor::ScatterOp;
use kiln_tensor::backend::Layout;
use kiln_tensor::backend::Primitive;

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
    let mut strides = vec![0; value.dims().len()];
    strides[dim] = 1;
    let layout = Layout { shape: value.shape(), strides, offset: 0 };
    combine(tensor, dim, index.slice(), &layout, value, op)
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
                ScatterOp::Assign => |_, new| new,
                ScatterOp::Add => T::add,
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
            walk(from, value_step, len, |i, at| {
                let named = index[(named as isize + i as isize * index_step) as usize];
                let to = to as isize + i as isize * step + named as isize * stride;
                let element = &mut out[to as usize];
                *element = f(*element, source[at]);
            })
        });
    })
}
