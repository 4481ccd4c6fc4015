//! Sorting along a dim.

use crate::compute::{Compute, compute_dtype};
use crate::ops::cast;
use crate::ops::lanes::Lanes;
use crate::tensor::NdArrayTensor;
use alloc::vec::Vec;
use kiln_tensor::DType;
use kiln_tensor::backend::Primitive;

/// The `keep` first of the sorted values along `dim`, and their positions (i64). Stable; NaN is the largest.
pub(crate) fn sorted(
    tensor: NdArrayTensor,
    dim: usize,
    descending: bool,
    keep: usize,
) -> (NdArrayTensor, NdArrayTensor) {
    let dtype = tensor.dtype();
    let wide = compute_dtype(dtype);
    let tensor = cast::cast(tensor, wide).into_contiguous();
    let lanes = Lanes::along(tensor.dims(), dim);
    assert!(keep <= lanes.size, "topk: {keep} of dim {dim} with size {}", lanes.size);
    let mut shape = tensor.shape();
    shape.dims[dim] = keep;
    let mut positions = NdArrayTensor::build(shape.clone(), DType::I64, |out: &mut [i64]| out.fill(0));
    let values = by_compute!(wide, T => NdArrayTensor::build(shape, wide, |values: &mut [T]| {
        if let Some(positions) = positions.slice_mut() {
            sort_lanes(tensor.slice::<T>(), lanes, descending, keep, values, positions);
        }
    }));
    (cast::cast(values, dtype), positions)
}

fn sort_lanes<T: Compute>(
    source: &[T],
    lanes: Lanes,
    descending: bool,
    keep: usize,
    values: &mut [T],
    positions: &mut [i64],
) {
    let compare = |a: &(T, i64), b: &(T, i64)| {
        let order = a.0.partial_cmp(&b.0).unwrap_or_else(|| a.0.is_nan().cmp(&b.0.is_nan()));
        let order = if descending { order.reverse() } else { order };
        // The position makes the order total, so that an unstable sort is stable.
        order.then(a.1.cmp(&b.1))
    };
    let mut lane: Vec<(T, i64)> = Vec::with_capacity(lanes.size);
    let out = Lanes { size: keep, ..lanes };
    lanes.for_each(|start| {
        let elements = source[start..].iter().step_by(lanes.inner).take(lanes.size).copied();
        lane.clear();
        lane.extend(elements.zip(0..));
        if keep < lanes.size && keep > 0 {
            lane.select_nth_unstable_by(keep - 1, compare);
            lane.truncate(keep);
        }
        lane.sort_unstable_by(compare);
        let (outer, inner) = (start / (lanes.size * lanes.inner), start % lanes.inner);
        for (i, &(value, position)) in lane.iter().take(keep).enumerate() {
            let at = (outer * out.size + i) * out.inner + inner;
            (values[at], positions[at]) = (value, position);
        }
    });
}
