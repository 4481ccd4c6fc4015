//! Binary operations and their broadcasting.

use crate::compute::{Compute, ComputeType, widened2};
use crate::ops::{copy, create};
use crate::order::{into_one_order, inverse, memory_order};
use crate::rows::{Rows, walk};
use crate::tensor::{NdArrayTensor, same_dtype};
use bytemuck::Pod;
use kiln_kernels::elementwise::{self, Strided};
use kiln_tensor::backend::Layout;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{BinaryOp, DType, Dims, Scalar, Shape};

/// See [`BinaryOp`]; broadcasts operands of equal rank.
pub(crate) fn binary(op: BinaryOp, lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
    same_dtype(op.name(), &lhs, &rhs);
    let mut both = [lhs, rhs];
    let moved = into_one_order(&mut both);
    let [lhs, rhs] = both;
    if moved {
        return binary(op, lhs, rhs).channels_first();
    }
    if lhs.layout().shape == rhs.layout().shape
        && lhs.layout().strides == rhs.layout().strides
        && let Some(axes) = memory_order(lhs.layout())
    {
        // Both are in one order without gaps, as parts of an image whose channels are last.
        let [lhs, rhs] = [lhs, rhs].map(|x| x.map_layout(|layout| layout.permute(&axes)));
        return binary(op, lhs, rhs).map_layout(|layout| layout.permute(&inverse(&axes)));
    }
    widened2(lhs, rhs, |lhs, rhs| match ComputeType::of(lhs.dtype()) {
        ComputeType::F32 => single(op, lhs, rhs),
        ComputeType::F64 => typed::<f64>(op, lhs, rhs),
        ComputeType::I64 => typed::<i64>(op, lhs, rhs),
        ComputeType::I32 => typed::<i32>(op, lhs, rhs),
        ComputeType::U64 => rare::<u64>(op, lhs, rhs),
        ComputeType::U8 => rare::<u8>(op, lhs, rhs),
    })
}

/// A view of an operand over the broadcast dims that is walked forwards: its strides are not negative, and its rows not scattered over memory.
#[inline]
pub(crate) fn forward(mut tensor: NdArrayTensor) -> NdArrayTensor {
    make_forward(&mut tensor);
    tensor
}

/// [`forward`], in its place.
#[inline]
pub(crate) fn make_forward(tensor: &mut NdArrayTensor) {
    if tensor.layout().strides.iter().any(|&stride| stride < 0) || is_scattered(tensor) {
        *tensor = copy::contiguous(tensor);
    }
}

/// Whether elements of a row lie apart while those of another dim lie side by side, as in a transposed matrix. A copy, which moves blocks, is then
/// less than what reading row by row would cost.
fn is_scattered(tensor: &NdArrayTensor) -> bool {
    /// Elements that the first-level cache has, however they are read.
    const FEW: usize = 4096;
    /// Neighbours in a row, and of the other dim, that make up a block.
    const SIDE: usize = 8;
    let layout = tensor.layout();
    if tensor.len() < FEW || layout.is_contiguous() {
        return false;
    }
    let mut axes = tensor.dims().iter().zip(&layout.strides).rev().filter(|(size, _)| **size > 1);
    let Some((&row, &step)) = axes.next() else { return false };
    let apart = row >= SIDE && step > 1;
    // What is repeated would be copied again and again.
    apart && axes.clone().all(|(_, &step)| step != 0) && axes.any(|(&size, &step)| step == 1 && size >= SIDE)
}

/// The elements from a view's first on; nothing for an empty view.
pub(crate) fn from_first<T: Pod>(tensor: &NdArrayTensor) -> &[T] {
    if tensor.is_empty() { &[] } else { &tensor.storage()[tensor.layout().offset..] }
}

/// The strides of an operand over the dims that it broadcasts to.
pub(crate) fn strides_over(tensor: &NdArrayTensor, shape: &Shape) -> Dims {
    let layout = tensor.layout();
    // Mostly the dims are the operand's own.
    let strides = if layout.shape == *shape {
        layout.forward_strides()
    } else {
        layout.expand(shape).forward_strides()
    };
    strides.unwrap_or_default()
}

/// f32 by the kernels.
fn single(op: BinaryOp, lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
    if f32::binary(op).is_none() {
        panic!("{}: not defined for f32", op.name());
    }
    if lhs.dims() == rhs.dims() && lhs.is_contiguous() && rhs.is_contiguous() {
        return side_by_side(op, lhs, rhs);
    }
    let shape = broadcast_shape(&lhs, &rhs, op.name());
    let (mut lhs, mut rhs) = (forward(lhs), forward(rhs));
    for swapped in [false, true] {
        let (into, other) = if swapped { (&mut rhs, &lhs) } else { (&mut lhs, &rhs) };
        if into.layout().shape == shape && into.is_writable() {
            let strides = strides_over(other, &shape);
            let data = from_first(other);
            if let Some(elements) = into.slice_mut() {
                let other = Strided { data, strides: &strides };
                elementwise::binary_in_place(op, &shape.dims, elements, other, swapped);
            }
            return if swapped { rhs } else { lhs };
        }
    }
    let (lhs_strides, rhs_strides) = (strides_over(&lhs, &shape), strides_over(&rhs, &shape));
    let dims = shape.dims.clone();
    NdArrayTensor::build(shape, DType::F32, |out| {
        let lhs = Strided { data: from_first(&lhs), strides: &lhs_strides };
        let rhs = Strided { data: from_first(&rhs), strides: &rhs_strides };
        elementwise::binary(op, &dims, lhs, rhs, out);
    })
}

/// f32 of one shape, both row-major without gaps.
fn side_by_side(op: BinaryOp, mut lhs: NdArrayTensor, mut rhs: NdArrayTensor) -> NdArrayTensor {
    let (dims, strides) = ([lhs.len()], [1]);
    for swapped in [false, true] {
        let (into, other) = if swapped { (&mut rhs, &lhs) } else { (&mut lhs, &rhs) };
        if into.is_writable() {
            let other = Strided { data: other.slice(), strides: &strides };
            if let Some(elements) = into.slice_mut() {
                elementwise::binary_in_place(op, &dims, elements, other, swapped);
            }
            return if swapped { rhs } else { lhs };
        }
    }
    NdArrayTensor::build(lhs.shape(), DType::F32, |out| {
        let [lhs, rhs] = [&lhs, &rhs].map(|x| Strided { data: x.slice(), strides: &strides });
        elementwise::binary(op, &dims, lhs, rhs, out);
    })
}

/// See [`BinaryOp`]; the scalar is converted to the tensor's dtype first.
pub(crate) fn binary_scalar(op: BinaryOp, lhs: NdArrayTensor, rhs: Scalar) -> NdArrayTensor {
    if op == BinaryOp::Remainder && are_below(&lhs, rhs) {
        return lhs;
    }
    let rhs = one_element(lhs.dims().len(), rhs, lhs.dtype());
    binary(op, lhs, rhs)
}

/// Whether integers are all from 0 up to a bound, as indices mostly are: to look at them is less than to compute that they are their own remainders.
fn are_below(tensor: &NdArrayTensor, bound: Scalar) -> bool {
    let Scalar::Int(bound @ 0..) = bound else { return false };
    tensor.dtype() == DType::I64
        && tensor.layout().is_contiguous()
        // A negative number is a large one.
        && tensor.slice::<i64>().iter().fold(true, |all, &x| all & (x.cast_unsigned() < bound.cast_unsigned()))
}

/// A tensor with one element of the rank given.
pub(crate) fn one_element(rank: usize, value: Scalar, dtype: DType) -> NdArrayTensor {
    create::full(Shape::from(Dims::repeat(1, rank)), value, dtype)
}

fn typed<T: Compute>(op: BinaryOp, mut lhs: NdArrayTensor, mut rhs: NdArrayTensor) -> NdArrayTensor {
    let commutes = matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min);
    if commutes && rhs.is_writable() && !lhs.is_writable() {
        core::mem::swap(&mut lhs, &mut rhs);
    }
    match op {
        BinaryOp::Add => zip(lhs, rhs, op.name(), T::add),
        BinaryOp::Sub => zip(lhs, rhs, op.name(), T::sub),
        BinaryOp::Mul => zip(lhs, rhs, op.name(), T::mul),
        BinaryOp::Div => zip(lhs, rhs, op.name(), T::div),
        _ => rare::<T>(op, lhs, rhs),
    }
}

/// Through a function pointer: one loop a type, for what is not worth more.
fn rare<T: Compute>(op: BinaryOp, lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
    match T::binary(op) {
        Some(f) => zip(lhs, rhs, op.name(), f),
        None => panic!("{}: not defined for {}", op.name(), lhs.dtype()),
    }
}

/// The shape that operands of equal rank broadcast to.
pub(crate) fn broadcast_shape(lhs: &NdArrayTensor, rhs: &NdArrayTensor, op: &str) -> Shape {
    match lhs.layout().shape.broadcast(&rhs.layout().shape) {
        Some(shape) => shape,
        None => panic!("{op}: {} and {} do not broadcast", lhs.shape(), rhs.shape()),
    }
}

/// Combines two tensors of one dtype, into the left one's memory where possible.
fn zip<T: Pod>(mut lhs: NdArrayTensor, rhs: NdArrayTensor, op: &str, f: impl Fn(T, T) -> T) -> NdArrayTensor {
    let shape = broadcast_shape(&lhs, &rhs, op);
    if lhs.layout().shape == shape && lhs.is_writable() {
        let (to, from) = (Layout::contiguous(shape.clone()), rhs.layout().expand(&shape));
        return lhs.edit(|out: &mut [T]| {
            let rows = Rows::new([&to, &from]);
            let (len, [_, step], source) = (rows.len, rows.steps, rhs.storage::<T>());
            rows.for_each(|[to, from]| {
                let out = &mut out[to..][..len];
                match step {
                    0 => out.iter_mut().for_each(|x| *x = f(*x, source[from])),
                    1 => out.iter_mut().zip(&source[from..][..len]).for_each(|(x, &y)| *x = f(*x, y)),
                    _ => walk(from, step, len, |i, at| out[i] = f(out[i], source[at])),
                }
            });
        });
    }
    let dtype = lhs.dtype();
    zip_to(&lhs, &rhs, shape, dtype, f)
}

/// Combines two tensors of one element type into a new one.
pub(crate) fn zip_to<T: Pod, R: Pod>(
    lhs: &NdArrayTensor,
    rhs: &NdArrayTensor,
    shape: Shape,
    dtype: DType,
    f: impl Fn(T, T) -> R,
) -> NdArrayTensor {
    let to = Layout::contiguous(shape.clone());
    let rows = Rows::new([&to, &lhs.layout().expand(&shape), &rhs.layout().expand(&shape)]);
    let (len, [_, a_step, b_step]) = (rows.len, rows.steps);
    let (lhs, rhs) = (lhs.storage::<T>(), rhs.storage::<T>());
    NdArrayTensor::build(shape, dtype, |out: &mut [R]| {
        rows.for_each(|[to, a, b]| {
            let out = &mut out[to..][..len];
            match (a_step, b_step) {
                (1, 1) => {
                    let pairs = lhs[a..][..len].iter().zip(&rhs[b..][..len]);
                    out.iter_mut().zip(pairs).for_each(|(out, (&x, &y))| *out = f(x, y));
                }
                (1, 0) => {
                    let y = rhs[b];
                    out.iter_mut().zip(&lhs[a..][..len]).for_each(|(out, &x)| *out = f(x, y));
                }
                (0, 1) => {
                    let x = lhs[a];
                    out.iter_mut().zip(&rhs[b..][..len]).for_each(|(out, &y)| *out = f(x, y));
                }
                _ => walk(a, a_step, len, |i, at| {
                    out[i] = f(lhs[at], rhs[(b as isize + i as isize * b_step) as usize]);
                }),
            }
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::compare::compare;
    use alloc::{vec, vec::Vec};
    use kiln_tensor::TensorData;

    /// Operands whose rows are scattered, and which are copied for it: the same, to the bit, as of row-major copies.
    #[test]
    fn transposed_operands_yield_what_their_copies_do() {
        for (dims, axes) in [
            (vec![67, 93], vec![1, 0]),
            (vec![9, 35, 41], vec![2, 1, 0]),
            (vec![9, 35, 41], vec![0, 2, 1]),
            (vec![3, 11, 8, 33], vec![3, 0, 2, 1]),
        ] {
            let len = dims.iter().product::<usize>();
            let tensor = |seed: usize, dims: &[usize]| {
                let values: Vec<f32> = (0..len).map(|i| (i * seed % 1013) as f32 / 7.0 - 60.0).collect();
                NdArrayTensor::from_data(TensorData::new(values, dims.to_vec()))
            };
            let turned = tensor(37, &dims);
            let layout = turned.layout().permute(&axes);
            let turned = turned.with_layout(layout);
            let (copy, other) = (copy::contiguous(&turned), tensor(59, turned.dims()));
            assert!(is_scattered(&turned) && !is_scattered(&copy), "{dims:?} by {axes:?}");
            for [a, b, x, y] in [[&turned, &other, &copy, &other], [&other, &turned, &other, &copy]] {
                let got = binary(BinaryOp::Sub, a.clone(), b.clone()).into_contiguous();
                let want = binary(BinaryOp::Sub, x.clone(), y.clone());
                assert_eq!(got.slice::<f32>(), want.slice::<f32>(), "{dims:?} by {axes:?}");
                let [got, want] = [[a, b], [x, y]].map(|[a, b]| {
                    compare(kiln_tensor::CompareOp::Lower, a.clone(), b.clone()).into_contiguous()
                });
                assert_eq!(got.slice::<u8>(), want.slice::<u8>(), "{dims:?} by {axes:?}");
            }
            // What was read is as it was.
            assert_eq!(copy::contiguous(&turned).slice::<f32>(), copy.slice::<f32>());
        }
    }
}
