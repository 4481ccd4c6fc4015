//! Checked operations on rank-erased tensors: what `Tensor` methods share, compiled once per backend.

use crate::api::TensorKind;
use crate::backend::{Backend, Primitive, SliceRange};
use crate::check::{self, ensure};
use crate::compose::calc::{T, narrow, reshape};
use crate::{BinaryOp, CompareOp, DType, Dims, InlineVec, ReduceOp, Scalar, Shape};
use alloc::vec::Vec;
use num_traits::Float;

/// Operands of one dtype that broadcast.
#[track_caller]
fn operands<B: Backend>(op: &str, a: &T<B>, b: &T<B>) {
    check::same_dtype(op, a.dtype(), b.dtype());
    check::compatible(op, a.dims(), b.dims());
}

/// [`Backend::binary`], checked.
#[track_caller]
pub(crate) fn binary<B: Backend>(op: BinaryOp, a: T<B>, b: T<B>) -> T<B> {
    operands::<B>(op.name(), &a, &b);
    B::binary(op, a, b)
}

/// [`Backend::compare`], checked.
#[track_caller]
pub(crate) fn compare<B: Backend>(op: CompareOp, a: T<B>, b: T<B>) -> T<B> {
    operands::<B>(op.name(), &a, &b);
    B::compare(op, a, b)
}

/// [`Backend::compare_scalar`] of a number as it is: one that an integer dtype does not have, by size or as a fraction, is not made one
/// that it has.
pub(crate) fn compare_scalar<B: Backend>(op: CompareOp, tensor: T<B>, number: Scalar) -> T<B> {
    let Some((least, greatest)) = tensor.dtype().integers() else {
        return B::compare_scalar(op, tensor, number);
    };
    // The greatest integer up to the number and the least one from it on; as conversion does, 2^127 and more saturates, and so do infinities.
    let (below, above) = match number {
        Scalar::Float(x) if x.is_nan() => return always::<B>(op == CompareOp::NotEqual, &tensor),
        Scalar::Float(x) => (Float::floor(x) as i128, Float::ceil(x) as i128),
        Scalar::Int(x) => (x.into(), x.into()),
        Scalar::UInt(x) => (x.into(), x.into()),
        Scalar::Bool(x) => (x.into(), x.into()),
    };
    let integer = match op {
        CompareOp::Equal | CompareOp::NotEqual if below != above => {
            return always::<B>(op == CompareOp::NotEqual, &tensor);
        }
        CompareOp::Equal | CompareOp::NotEqual | CompareOp::Greater | CompareOp::LowerEqual => below,
        CompareOp::GreaterEqual | CompareOp::Lower => above,
    };
    if integer < least {
        let truth = matches!(op, CompareOp::NotEqual | CompareOp::Greater | CompareOp::GreaterEqual);
        return always::<B>(truth, &tensor);
    }
    if integer > greatest {
        let truth = matches!(op, CompareOp::NotEqual | CompareOp::Lower | CompareOp::LowerEqual);
        return always::<B>(truth, &tensor);
    }
    B::compare_scalar(op, tensor, scalar(integer))
}

/// An integer that some dtype has.
fn scalar(integer: i128) -> Scalar {
    i64::try_from(integer).map_or(Scalar::UInt(integer as u64), Scalar::Int)
}

/// The integer of a dtype that is nearest to one; conversion would keep its lowest bits.
fn saturated(number: Scalar, dtype: DType) -> Scalar {
    let integer: i128 = match number {
        Scalar::Int(x) => x.into(),
        Scalar::UInt(x) => x.into(),
        // They saturate when they are converted.
        Scalar::Float(_) | Scalar::Bool(_) => return number,
    };
    dtype.integers().map_or(number, |(least, greatest)| scalar(integer.clamp(least, greatest)))
}

/// What a comparison of every element yields.
fn always<B: Backend>(truth: bool, tensor: &T<B>) -> T<B> {
    B::full(tensor.shape(), Scalar::Bool(truth), DType::Bool, &B::device(tensor))
}

/// [`Backend::clamp`] within bounds as they are.
pub(crate) fn clamp<B: Backend>(tensor: T<B>, min: Option<Scalar>, max: Option<Scalar>) -> T<B> {
    let dtype = tensor.dtype();
    let [min, max] = [min, max].map(|bound| bound.map(|bound| saturated(bound, dtype)));
    B::clamp(tensor, min, max)
}

/// [`Backend::binary_scalar`]; of a maximum and a minimum the number is a bound, which is not wrapped to its dtype.
pub(crate) fn binary_scalar<B: Backend>(op: BinaryOp, tensor: T<B>, number: Scalar) -> T<B> {
    let dtype = tensor.dtype();
    let number = match (op, number) {
        (BinaryOp::Max | BinaryOp::Min, _) => saturated(number, dtype),
        // Converted to the integers' dtype, a power of 1/2 would be one of 0.
        (BinaryOp::Pow, Scalar::Float(power)) if dtype.is_int() && Float::fract(power) != 0.0 => {
            // Doubles have all integers that the root of one may be.
            let floats = match B::supports(&B::device(&tensor), DType::F64) {
                true => DType::F64,
                false => <crate::api::Float as TensorKind<B>>::default_dtype(),
            };
            let floats = B::cast(tensor, floats);
            return B::cast(B::binary_scalar(op, floats, number), dtype);
        }
        _ => number,
    };
    B::binary_scalar(op, tensor, number)
}

/// [`Backend::select_where`], checked.
#[track_caller]
pub(crate) fn select_where<B: Backend>(mask: T<B>, on_true: T<B>, on_false: T<B>) -> T<B> {
    operands::<B>("mask_where", &on_true, &on_false);
    check::compatible("mask_where", mask.dims(), on_true.dims());
    check::compatible("mask_where", mask.dims(), on_false.dims());
    B::select_where(mask, on_true, on_false)
}

/// [`Backend::mask_fill`], checked; a mask may also be larger than the tensor.
#[track_caller]
pub(crate) fn mask_fill<B: Backend>(tensor: T<B>, mask: T<B>, value: Scalar) -> T<B> {
    let full = check::broadcast("mask_fill", tensor.dims(), mask.dims());
    let tensor = if tensor.dims() == full.as_slice() { tensor } else { B::expand(tensor, full) };
    B::mask_fill(tensor, mask, value)
}

/// [`Backend::matmul`], checked.
#[track_caller]
pub(crate) fn matmul<B: Backend>(a: T<B>, b: T<B>) -> T<B> {
    check::same_dtype("matmul", a.dtype(), b.dtype());
    check::matmul(a.dims(), b.dims());
    B::matmul(a, b)
}

/// [`Backend::reduce`] over checked axes; none is no reduction.
pub(crate) fn reduce<B: Backend>(op: ReduceOp, tensor: T<B>, axes: &[usize]) -> T<B> {
    if axes.is_empty() { tensor } else { B::reduce(op, tensor, axes) }
}

/// Reduces everything into one element of the given rank.
pub(crate) fn reduce_all<B: Backend>(op: ReduceOp, tensor: T<B>, rank: usize) -> T<B> {
    let axes: Dims = (0..tensor.shape().rank()).collect();
    reshape::<B>(reduce::<B>(op, tensor, &axes), &Dims::repeat(1, rank))
}

/// Whether elements are not zero, as bool.
pub(crate) fn truth<B: Backend>(tensor: T<B>) -> T<B> {
    if tensor.dtype() == DType::Bool {
        tensor
    } else {
        B::compare_scalar(CompareOp::NotEqual, tensor, Scalar::Int(0))
    }
}

/// [`Backend::cat`], checked.
#[track_caller]
pub(crate) fn cat<B: Backend>(tensors: &[T<B>], dim: usize) -> T<B> {
    check::cat(tensors.iter().map(Primitive::dims), dim);
    for pair in tensors.windows(2) {
        check::same_dtype("cat", pair[0].dtype(), pair[1].dtype());
    }
    match tensors {
        [tensor] => tensor.clone(),
        tensors => B::cat(tensors, dim),
    }
}

/// [`Backend::slice`]; a slice of everything is the tensor itself.
pub(crate) fn slice<B: Backend>(tensor: T<B>, ranges: &[SliceRange]) -> T<B> {
    if ranges.iter().zip(tensor.dims()).all(|(range, &size)| *range == SliceRange::full(size)) {
        return tensor;
    }
    B::slice(tensor, ranges)
}

/// `start..start + length` of one dim, checked.
#[track_caller]
pub(crate) fn narrowed<B: Backend>(op: &str, tensor: T<B>, dim: usize, start: usize, length: usize) -> T<B> {
    let shape = tensor.shape();
    ensure!(
        start.checked_add(length).is_some_and(|end| end <= shape[dim]),
        op,
        "{start}..{start}+{length} is not within dim {dim} of {shape}"
    );
    narrow::<B>(tensor, dim, start, length)
}

/// [`Backend::slice_assign`], checked; the values broadcast to the ranges.
#[track_caller]
pub(crate) fn slice_assign<B: Backend>(tensor: T<B>, ranges: &[SliceRange], values: T<B>) -> T<B> {
    check::same_dtype("slice_assign", tensor.dtype(), values.dtype());
    let wanted: Shape = ranges.iter().map(SliceRange::len).collect();
    let given = values.shape();
    let fits = given.iter().zip(wanted.iter()).all(|(&given, &wanted)| given == wanted || given == 1);
    ensure!(fits, "slice_assign", "values {given} do not fit the slice, which is {wanted}");
    let values = if given == wanted { values } else { B::expand(values, wanted) };
    B::slice_assign(tensor, ranges, values)
}

/// Cuts a dim into parts of the given sizes.
#[track_caller]
pub(crate) fn split<B: Backend>(tensor: T<B>, sizes: &[usize], dim: usize) -> Vec<T<B>> {
    let shape = tensor.shape();
    ensure!(
        sizes.iter().sum::<usize>() == shape[dim],
        "split",
        "{sizes:?} do not add up to dim {dim} of {shape}"
    );
    let mut start = 0;
    sizes
        .iter()
        .map(|&size| {
            start += size;
            narrow::<B>(tensor.clone(), dim, start - size, size)
        })
        .collect()
}

/// Sizes of the parts when a dim is cut every `size` elements.
pub(crate) fn part_sizes(total: usize, size: usize) -> Vec<usize> {
    (0..total.div_ceil(size.max(1))).map(|i| size.min(total - i * size)).collect()
}

/// Reverses dims.
pub(crate) fn flip<B: Backend>(tensor: T<B>, axes: &[usize]) -> T<B> {
    let mut ranges: InlineVec<SliceRange> =
        tensor.shape().iter().map(|&size| SliceRange::full(size)).collect();
    axes.iter().for_each(|&axis| ranges[axis].step = -1);
    B::slice(tensor, &ranges)
}

/// Shifts elements along a dim, around its end.
pub(crate) fn roll<B: Backend>(tensor: T<B>, shift: isize, dim: usize) -> T<B> {
    let size = tensor.shape()[dim];
    if size == 0 {
        return tensor;
    }
    let start = (-shift).rem_euclid(size as isize) as usize;
    if start == 0 {
        return tensor;
    }
    let head = narrow::<B>(tensor.clone(), dim, start, size - start);
    let tail = narrow::<B>(tensor, dim, 0, start);
    B::cat(&[head, tail], dim)
}

/// Moves dims to other places; the rest keep their order.
#[track_caller]
pub(crate) fn movedim(src: &[isize], dst: &[isize], rank: usize) -> Dims {
    ensure!(src.len() == dst.len(), "movedim", "{src:?} and {dst:?} name different numbers of dims");
    let src: Dims = src.iter().map(|&d| check::dim("movedim", d, rank)).collect();
    let dst: Dims = dst.iter().map(|&d| check::dim("movedim", d, rank)).collect();
    let mut rest = (0..rank).filter(|d| !src.contains(d));
    let axes: InlineVec<isize> = (0..rank)
        .filter_map(|at| match dst.iter().position(|&d| d == at) {
            Some(i) => Some(src[i]),
            None => rest.next(),
        })
        .map(|d| d as isize)
        .collect();
    check::permutation("movedim", axes.into_iter(), rank)
}

/// Windows of `size` every `step` elements of `dim`; the window becomes the last dim.
#[track_caller]
pub(crate) fn unfold<B: Backend>(tensor: T<B>, dim: usize, size: usize, step: usize) -> T<B> {
    let shape = tensor.shape();
    ensure!(
        size > 0 && step > 0 && size <= shape[dim],
        "unfold",
        "windows of {size} every {step} do not fit dim {dim} of {shape}"
    );
    let windows = (shape[dim] - size) / step + 1;
    let positions = (0..windows).flat_map(|w| (0..size).map(move |i| (w * step + i) as i64)).collect();
    let positions = crate::compose::calc::indices::<B>(positions, &tensor);
    let mut dims = shape.dims.clone();
    dims.splice(dim..dim + 1, [windows, size]);
    let split = reshape::<B>(B::select(tensor, dim, positions), &dims);
    let mut axes: Dims = (0..dims.len()).filter(|&d| d != dim + 1).collect();
    axes.push(dim + 1);
    B::permute(split, &axes)
}
