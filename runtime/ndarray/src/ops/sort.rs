//! Sorting along a dim, by integer keys that order as the elements do: one instantiation for all dtypes.

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
    let tensor = tensor.into_contiguous();
    let lanes = Lanes::along(tensor.dims(), dim);
    assert!(keep <= lanes.size, "topk: {keep} of dim {dim} with size {}", lanes.size);
    let mut shape = tensor.shape();
    shape.dims[dim] = keep;
    let keys = keys(&tensor);
    let positions = NdArrayTensor::build(shape.clone(), DType::I64, |positions| {
        sort_lanes(&keys, lanes, descending, keep, positions);
    });
    let values = by_size!(tensor.dtype(), T => NdArrayTensor::build(shape, tensor.dtype(), |values: &mut [T]| {
        let source = tensor.slice::<T>();
        let positions = positions.slice::<i64>();
        for (at, value) in values.iter_mut().enumerate() {
            let (outer, inner) = (at / (keep * lanes.inner), at % lanes.inner);
            *value = source[(outer * lanes.size + positions[at] as usize) * lanes.inner + inner];
        }
    }));
    (values, positions)
}

/// Integers that compare as the elements of a contiguous tensor do.
fn keys(tensor: &NdArrayTensor) -> Vec<u64> {
    const SIGN: u64 = 1 << 63;
    match tensor.dtype() {
        DType::U64 => tensor.slice::<u64>().to_vec(),
        dtype if dtype.is_float() => {
            let wide = cast::cast(tensor.clone(), DType::F64);
            let key = |x: f64| {
                // Adding 0 makes -0 equal to 0; a NaN of either sign is above all.
                let bits = (x + 0.0).to_bits();
                match bits {
                    _ if x.is_nan() => u64::MAX,
                    _ if bits & SIGN != 0 => !bits,
                    _ => bits | SIGN,
                }
            };
            wide.slice::<f64>().iter().map(|&x| key(x)).collect()
        }
        _ => {
            let wide = cast::cast(tensor.clone(), DType::I64);
            wide.slice::<i64>().iter().map(|&x| x as u64 ^ SIGN).collect()
        }
    }
}

fn sort_lanes(keys: &[u64], lanes: Lanes, descending: bool, keep: usize, positions: &mut [i64]) {
    if positions.is_empty() {
        return;
    }
    let mut lane: Vec<(u64, usize)> = Vec::with_capacity(lanes.size);
    lanes.for_each(|start| {
        let keys = keys[start..].iter().step_by(lanes.inner).take(lanes.size);
        let ordered = keys.map(|&key| if descending { !key } else { key });
        lane.clear();
        // The position makes the order total, so that an unstable sort is stable.
        lane.extend(ordered.zip(0..));
        if keep < lanes.size && keep > 0 {
            lane.select_nth_unstable(keep - 1);
            lane.truncate(keep);
        }
        lane.sort_unstable();
        let (outer, inner) = (start / (lanes.size * lanes.inner), start % lanes.inner);
        for (i, &(_, position)) in lane.iter().take(keep).enumerate() {
            positions[(outer * keep + i) * lanes.inner + inner] = position as i64;
        }
    });
}
