//! Reducing dims away.

use crate::compute::{Compute, wide_dtype};
use crate::ops::cast;
use crate::ops::lanes::Lanes;
use crate::order::{inverse, memory_order};
use crate::tensor::NdArrayTensor;
use alloc::vec::Vec;
use bytemuck::Pod;
use kiln_kernels::reduce as kernel;
use kiln_kernels::threads::parallel_chunks;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{ArgReduceOp, DType, Dims, Element, ReduceOp, Scalar, Shape};
use num_traits::{PrimInt, WrappingAdd, WrappingMul};

/// Elements summed in one go; sums of such blocks are then added up, which keeps rounding errors small.
const BLOCK: usize = 1024;

/// Reduces the dims in `axes` (sorted, distinct); they stay with size 1.
pub(crate) fn reduce(op: ReduceOp, tensor: NdArrayTensor, axes: &[usize]) -> NdArrayTensor {
    if let Some(order) = memory_order(tensor.layout()) {
        // Along the memory, as of images whose channels are last.
        let back = inverse(&order);
        let mut axes: Dims = axes.iter().map(|&axis| back[axis]).collect();
        axes.sort_unstable();
        let tensor = tensor.map_layout(|layout| layout.permute(&order));
        return reduce(op, tensor, &axes).map_layout(|layout| layout.permute(&back));
    }
    let mut shape = tensor.shape();
    axes.iter().for_each(|&axis| shape.dims[axis] = 1);
    let nothing = nothing(op, tensor.dtype());
    let (tensor, lanes) = gathered(tensor, axes);
    let dtype = tensor.dtype();
    // Extremes of integers need no wider type, and sums and products wrap as they do when they are narrowed at last: those of four bits before they fill their byte.
    let is_extreme = matches!(op, ReduceOp::Max | ReduceOp::Min | ReduceOp::Any | ReduceOp::All);
    if op != ReduceOp::Mean {
        match dtype {
            DType::I4 if is_extreme => return integers::<i8>(op, &tensor, lanes, shape, nothing),
            DType::Bool | DType::U4 if is_extreme => {
                return integers::<u8>(op, &tensor, lanes, shape, nothing);
            }
            DType::I8 => return integers::<i8>(op, &tensor, lanes, shape, nothing),
            DType::U8 => return integers::<u8>(op, &tensor, lanes, shape, nothing),
            DType::I16 => return integers::<i16>(op, &tensor, lanes, shape, nothing),
            DType::U16 => return integers::<u16>(op, &tensor, lanes, shape, nothing),
            DType::I32 => return integers::<i32>(op, &tensor, lanes, shape, nothing),
            DType::U32 => return integers::<u32>(op, &tensor, lanes, shape, nothing),
            DType::Bool | DType::I4 | DType::U4 => {}
            DType::I64 | DType::U64 | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {}
        }
    }
    let tensor = cast::cast(tensor, wide_dtype(dtype));
    let reduced = by_wide!(
        tensor.dtype(),
        F32 => single(op, tensor, lanes, shape, nothing),
        T => typed::<T>(op, tensor, lanes, shape, nothing)
    );
    cast::cast(reduced, dtype)
}

/// Integers, in their own type; no means.
fn integers<T: PrimInt + WrappingAdd + WrappingMul + Pod + Element>(
    op: ReduceOp,
    tensor: &NdArrayTensor,
    lanes: Lanes,
    shape: Shape,
    nothing: Scalar,
) -> NdArrayTensor {
    let nothing = T::from_scalar(nothing);
    match op {
        ReduceOp::Sum | ReduceOp::Mean => {
            whole(tensor, lanes, shape, nothing, |a: T, b: T| a.wrapping_add(&b))
        }
        ReduceOp::Prod => whole(tensor, lanes, shape, nothing, |a: T, b: T| a.wrapping_mul(&b)),
        ReduceOp::Max | ReduceOp::Any => whole(tensor, lanes, shape, nothing, |a: T, b: T| a.max(b)),
        ReduceOp::Min | ReduceOp::All => whole(tensor, lanes, shape, nothing, |a: T, b: T| a.min(b)),
    }
}

/// Lanes of integers, in whatever order: it makes no difference.
fn whole<T: Pod + Send + Sync>(
    tensor: &NdArrayTensor,
    Lanes { size, inner, .. }: Lanes,
    shape: Shape,
    nothing: T,
    f: impl Fn(T, T) -> T + Copy + Sync,
) -> NdArrayTensor {
    /// Partial results of a row: a few vectors.
    const PARTS: usize = 32;
    /// Columns that are reduced together.
    const COLUMNS: usize = 1024;
    let bytes = size_of::<T>();
    NdArrayTensor::build_bytes(shape, tensor.dtype(), |out| {
        let out: &mut [T] = bytemuck::cast_slice_mut(out);
        let source = tensor.slice::<T>();
        if size == 0 {
            return out.fill(nothing);
        }
        if inner == 1 {
            let rows = (COLUMNS / size).max(1);
            return parallel_chunks(out, rows, rows * (size * bytes / 32 + 2), |piece, out| {
                for (out, row) in out.iter_mut().zip(source[piece * rows * size..].chunks_exact(size)) {
                    let (parts, rest) = row.as_chunks::<PARTS>();
                    let rest = rest.iter().fold(nothing, |x, &y| f(x, y));
                    *out = match parts {
                        [] => rest,
                        [first, others @ ..] => {
                            let mut sums = *first;
                            for part in others {
                                sums.iter_mut().zip(part).for_each(|(x, &y)| *x = f(*x, y));
                            }
                            sums.into_iter().fold(rest, f)
                        }
                    };
                }
            });
        }
        parallel_chunks(out, COLUMNS, COLUMNS * (size * bytes / 32 + 1), |piece, out| {
            let (mut at, mut out) = (piece * COLUMNS, out);
            while !out.is_empty() {
                let (lane, column) = (at / inner, at % inner);
                let (part, rest) = out.split_at_mut((inner - column).min(out.len()));
                let rows = source[lane * size * inner + column..].chunks(inner).take(size);
                part.fill(nothing);
                for row in rows {
                    part.iter_mut().zip(row).for_each(|(x, &y)| *x = f(*x, y));
                }
                (at, out) = (at + part.len(), rest);
            }
        });
    })
}

/// f32 by the kernels.
fn single(op: ReduceOp, tensor: NdArrayTensor, lanes: Lanes, shape: Shape, nothing: Scalar) -> NdArrayTensor {
    let Lanes { outer, size, inner } = lanes;
    NdArrayTensor::build(shape, DType::F32, |out| match (size, op) {
        (0, ReduceOp::Mean) => out.fill(f32::NAN),
        (0, _) => out.fill(nothing.to_f64() as f32),
        (1.., _) => kernel::reduce(op, outer, size, inner, tensor.slice(), out),
    })
}

fn typed<T: Compute>(
    op: ReduceOp,
    tensor: NdArrayTensor,
    lanes: Lanes,
    shape: Shape,
    nothing: Scalar,
) -> NdArrayTensor {
    let nothing = T::from_scalar(nothing);
    match op {
        ReduceOp::Sum => reduce_lanes(tensor, lanes, shape, nothing, T::add, |x, _| x),
        ReduceOp::Mean => reduce_lanes(tensor, lanes, shape, nothing, T::add, T::mean_of),
        ReduceOp::Prod => reduce_lanes(tensor, lanes, shape, nothing, T::mul, |x, _| x),
        ReduceOp::Max | ReduceOp::Any => {
            reduce_lanes(tensor, lanes, shape, nothing, <T as Compute>::max, |x, _| x)
        }
        ReduceOp::Min | ReduceOp::All => {
            reduce_lanes(tensor, lanes, shape, nothing, <T as Compute>::min, |x, _| x)
        }
    }
}

/// What a reduction of nothing yields: a sum's 0, a product's 1, the least element for a maximum, the greatest for a minimum. Of a mean, its sum.
pub(super) fn nothing(op: ReduceOp, dtype: DType) -> Scalar {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => Scalar::Int(0),
        ReduceOp::Prod => Scalar::Int(1),
        ReduceOp::Max | ReduceOp::Any => bounds(dtype).0,
        ReduceOp::Min | ReduceOp::All => bounds(dtype).1,
    }
}

/// The least and the greatest element.
fn bounds(dtype: DType) -> (Scalar, Scalar) {
    let integer = |x: i128| i64::try_from(x).map_or_else(|_| Scalar::UInt(x as u64), Scalar::Int);
    match dtype.integers() {
        Some((least, greatest)) => (integer(least), integer(greatest)),
        None if dtype.is_bool() => (Scalar::Int(0), Scalar::Int(1)),
        None => (Scalar::Float(f64::NEG_INFINITY), Scalar::Float(f64::INFINITY)),
    }
}

/// The tensor row-major with the reduced axes side by side, moved last unless they are neighbours already.
fn gathered(tensor: NdArrayTensor, axes: &[usize]) -> (NdArrayTensor, Lanes) {
    let (Some(&first), Some(&last)) = (axes.first(), axes.last()) else {
        let lanes = Lanes { outer: tensor.len(), size: 1, inner: 1 };
        return (tensor.into_contiguous(), lanes);
    };
    let neighbours = (first..=last).all(|axis| axes.contains(&axis) || tensor.dims()[axis] == 1);
    if neighbours && tensor.is_contiguous() {
        let lanes = Lanes::over(tensor.dims(), first, last + 1);
        return (tensor, lanes);
    }
    let rank = tensor.dims().len();
    let kept = (0..rank).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let layout = tensor.layout().permute(&order);
    let tensor = tensor.with_layout(layout).into_contiguous();
    let lanes = Lanes::over(tensor.dims(), rank - axes.len(), rank);
    (tensor, lanes)
}

fn reduce_lanes<T: Compute>(
    tensor: NdArrayTensor,
    lanes: Lanes,
    shape: Shape,
    init: T,
    f: impl Fn(T, T) -> T + Copy,
    finish: impl Fn(T, usize) -> T,
) -> NdArrayTensor {
    let source = tensor.slice::<T>();
    let Lanes { size, inner, .. } = lanes;
    NdArrayTensor::build(shape, tensor.dtype(), |out: &mut [T]| {
        if size == 0 {
            out.fill(finish(init, 0));
        } else if inner == 1 {
            for (out, row) in out.iter_mut().zip(source.chunks_exact(size)) {
                *out = finish(reduce_row(row, init, f), size);
            }
        } else {
            for (out, rows) in
                out.chunks_exact_mut(inner.max(1)).zip(source.chunks_exact((size * inner).max(1)))
            {
                reduce_columns(out, rows, init, f);
                out.iter_mut().for_each(|x| *x = finish(*x, size));
            }
        }
    })
}

/// Reduces a contiguous row in eight interleaved lanes, which the compiler keeps in a vector register.
pub(crate) fn reduce_row<T: Compute>(row: &[T], init: T, f: impl Fn(T, T) -> T + Copy) -> T {
    let block = |row: &[T]| {
        let mut lanes = [init; 8];
        let mut chunks = row.chunks_exact(8);
        for chunk in &mut chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = f(*lane, x);
            }
        }
        let rest = chunks.remainder().iter().fold(init, |x, &y| f(x, y));
        f(lanes.into_iter().fold(init, f), rest)
    };
    if row.len() <= BLOCK { block(row) } else { row.chunks(BLOCK).fold(init, |x, part| f(x, block(part))) }
}

/// Reduces rows onto each other; long columns in blocks of rows, like [`reduce_row`].
fn reduce_columns<T: Compute>(out: &mut [T], rows: &[T], init: T, f: impl Fn(T, T) -> T + Copy) {
    let inner = out.len();
    out.fill(init);
    let onto = |out: &mut [T], rows: &[T]| {
        for row in rows.chunks_exact(inner) {
            out.iter_mut().zip(row).for_each(|(x, &y)| *x = f(*x, y));
        }
    };
    if rows.len() <= BLOCK * inner {
        return onto(out, rows);
    }
    let mut partial = alloc::vec![init; inner];
    for block in rows.chunks(BLOCK * inner) {
        partial.fill(init);
        onto(&mut partial, block);
        out.iter_mut().zip(&partial).for_each(|(x, &y)| *x = f(*x, y));
    }
}

/// The index (i64) of an extreme along `dim`; a NaN is the extreme of its lane.
pub(crate) fn arg_reduce(op: ArgReduceOp, tensor: NdArrayTensor, dim: usize, last: bool) -> NdArrayTensor {
    let mut shape = tensor.shape();
    let size = core::mem::replace(&mut shape.dims[dim], 1);
    assert!(size > 0 || shape.num_elements() == 0, "{}: dim {dim} has no elements", op.name());
    let wide = wide_dtype(tensor.dtype());
    let tensor = cast::cast(tensor, wide).into_contiguous();
    let lanes = Lanes::along(tensor.dims(), dim);
    by_wide!(
        wide,
        F32 => NdArrayTensor::build(shape, DType::I64, |out| {
            let Lanes { outer, size, inner } = lanes;
            kernel::arg_reduce(op, outer, size, inner, last, tensor.slice(), out);
        }),
        T => NdArrayTensor::build(shape, DType::I64, |out: &mut [i64]| {
            let source = tensor.slice::<T>();
            let mut out = out.iter_mut();
            lanes.for_each(|start| {
                let lane = source[start..].iter().step_by(lanes.inner).take(lanes.size).copied();
                if let Some(out) = out.next() {
                    *out = extreme_of(op, lane, last);
                }
            });
        })
    )
}

fn extreme_of<T: Compute>(op: ArgReduceOp, lane: impl Iterator<Item = T>, last: bool) -> i64 {
    let (mut index, mut best) = (0, T::ZERO);
    for (i, x) in lane.enumerate() {
        let better = match op {
            ArgReduceOp::Max => x > best,
            ArgReduceOp::Min => x < best,
        };
        let beats = better && !best.is_nan() || x.is_nan() && !best.is_nan();
        let ties = x == best || x.is_nan() && best.is_nan();
        if i == 0 || beats || (last && ties) {
            (index, best) = (i, x);
        }
    }
    index as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use kiln_tensor::TensorData;

    /// Rows and columns of odd sizes, against sums in a wider type that wrap at last.
    fn check<T>(of: impl Fn(usize) -> T)
    where
        T: Element + PrimInt + WrappingAdd + WrappingMul + Pod + core::fmt::Debug,
    {
        for dims in [[3, 1, 5], [2, 7, 1], [1, 331, 3], [5, 67, 129], [1, 3, 2050], [70, 33, 1]] {
            let [outer, size, inner] = dims;
            let values: Vec<T> = (0..outer * size * inner).map(&of).collect();
            let x = NdArrayTensor::from_data(TensorData::new(values.clone(), dims.to_vec()));
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
                let got = reduce(op, x.clone(), &[1]);
                for (i, &got) in got.slice::<T>().iter().enumerate() {
                    let lane = (0..size).map(|k| values[(i / inner * size + k) * inner + i % inner]);
                    let want = lane.reduce(|a, b| match op {
                        ReduceOp::Sum => a.wrapping_add(&b),
                        ReduceOp::Prod => a.wrapping_mul(&b),
                        ReduceOp::Max => a.max(b),
                        _ => a.min(b),
                    });
                    assert_eq!(Some(got), want, "{op:?} of {dims:?} at {i}");
                }
            }
        }
    }

    /// Of bools, also of none.
    #[test]
    fn any_and_all_of_bools() {
        for [rows, columns] in [[5_usize, 0], [3, 1], [7, 67], [2, 1500]] {
            let values: Vec<bool> =
                (0..rows * columns).map(|i| i % columns.max(1) != i / columns.max(1)).collect();
            let x = NdArrayTensor::from_data(TensorData::new(values.clone(), vec![rows, columns]));
            let lanes = |of: &dyn Fn(&[bool]) -> bool| -> Vec<u8> {
                (0..rows).map(|i| u8::from(of(&values[i * columns..][..columns]))).collect()
            };
            let reduced = |op| reduce(op, x.clone(), &[1]);
            assert_eq!(reduced(ReduceOp::Any).slice::<u8>(), lanes(&|row| row.contains(&true)));
            assert_eq!(reduced(ReduceOp::All).slice::<u8>(), lanes(&|row| !row.contains(&false)));
        }
    }

    #[test]
    fn integers_are_reduced_in_their_own_type() {
        check(|i| (i * 37 % 251) as u8);
        check(|i| (i * 37) as i8);
        check(|i| (i * 7919) as i16);
        check(|i| (i * 7919) as u16);
        check(|i| (i as i32).wrapping_mul(1_000_003));
        check(|i| (i as u32).wrapping_mul(3_000_000_019));
        check(|i| (i as i64).wrapping_mul(6_364_136_223_846_793_005));
    }
}
