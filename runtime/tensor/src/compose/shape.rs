//! Padding, repetition and the largest of many.

use super::calc::{T, indices, reshape};
use crate::backend::{Backend, Primitive, SliceRange};
use crate::{Dims, InlineVec, PadMode, Scalar, Shape};
use alloc::vec::Vec;
use core::ops::Range;

/// Default of [`Backend::pad`].
pub fn pad<B: Backend>(tensor: T<B>, padding: &[(usize, usize)], mode: PadMode, value: Scalar) -> T<B> {
    if padding.iter().all(|&sides| sides == (0, 0)) {
        return tensor;
    }
    let shape = tensor.shape();
    if mode == PadMode::Constant {
        let padded = shape.dims.iter().zip(padding).map(|(size, (before, after))| before + size + after);
        let middle: InlineVec<SliceRange> = shape
            .dims
            .iter()
            .zip(padding)
            .map(|(&size, &(before, _))| SliceRange { start: before, end: before + size, step: 1 })
            .collect();
        let border = B::full(padded.collect(), value, tensor.dtype(), &B::device(&tensor));
        return B::slice_assign(border, &middle, tensor);
    }
    let mut tensor = tensor;
    for (dim, &(before, after)) in padding.iter().enumerate() {
        if (before, after) == (0, 0) {
            continue;
        }
        let size = shape[dim] as i64;
        let (first, end) = (-(before as i64), size + after as i64);
        let picked =
            |places| B::select(tensor.clone(), dim, indices::<B>(sources(size, places, mode), &tensor));
        if shape[dim] < LONG {
            tensor = picked(first..end);
            continue;
        }
        let (first, last) = ((before > 0).then(|| picked(first..0)), (after > 0).then(|| picked(size..end)));
        let parts: Vec<T<B>> = first.into_iter().chain([tensor]).chain(last).collect();
        tensor = B::cat(&parts, dim);
    }
    tensor
}

/// So many elements are copied as they stand, between those that are picked for either side.
const LONG: usize = 1024;

/// Which element of a dim places of the padded dim show, of which that of the first element is 0.
fn sources(size: i64, places: Range<i64>, mode: PadMode) -> Vec<i64> {
    assert!(size > 0, "pad: an empty dim has nothing to show outside");
    places
        .map(|at| match mode {
            PadMode::Wrap => at.rem_euclid(size),
            PadMode::Reflect if size > 1 => {
                let period = 2 * (size - 1);
                let at = at.rem_euclid(period);
                at.min(period - at)
            }
            // Of one element there is no other to mirror.
            PadMode::Edge | PadMode::Reflect | PadMode::Constant => at.clamp(0, size - 1),
        })
        .collect()
}

/// Default of [`Backend::repeat`].
pub fn repeat<B: Backend>(tensor: T<B>, times: &[usize]) -> T<B> {
    let shape = tensor.shape();
    // A dim of size 1 before each repeated dim is what gets broadcast.
    let (mut split, mut expanded, mut joined) = (Dims::new(), Dims::new(), Dims::new());
    for (&size, &times) in shape.dims.iter().zip(times) {
        if times != 1 {
            split.push(1);
            expanded.push(times);
        }
        split.push(size);
        expanded.push(size);
        joined.push(size * times);
    }
    if split.len() == shape.rank() {
        return tensor;
    }
    let expanded = B::expand(reshape::<B>(tensor, &split), Shape::from(expanded));
    reshape::<B>(expanded, &joined)
}

/// Default of [`Backend::topk`].
pub fn topk<B: Backend>(tensor: T<B>, k: usize, dim: usize, largest: bool) -> (T<B>, T<B>) {
    let mut ranges: InlineVec<SliceRange> =
        tensor.shape().dims.iter().map(|&size| SliceRange::full(size)).collect();
    ranges[dim].end = k;
    let (values, positions) = B::sort(tensor, dim, largest);
    (B::slice(values, &ranges), B::slice(positions, &ranges))
}
