//! Sorting along a dim, by integer keys that order as the elements do: one instantiation for all dtypes of up to 32 bits, one for the others.

use crate::ops::cast;
use crate::ops::lanes::Lanes;
use crate::tensor::NdArrayTensor;
use kiln_kernels::sort::{Key, first_positions};
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
    let positions = NdArrayTensor::build(shape.clone(), DType::I64, |positions| {
        order(&tensor, lanes, descending, keep, positions);
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

const SIGN: u32 = 1 << 31;
const LONG_SIGN: u64 = 1 << 63;

/// Adding 0 makes -0 equal to 0; a NaN of either sign is above all.
fn key_of_f32(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    // All bits of a negative number, and the sign of another.
    let flipped = bits ^ ((bits as i32 >> 31) as u32 | SIGN);
    if x.is_nan() { u32::MAX } else { flipped }
}

/// [`key_of_f32`] of 64 bits.
fn key_of_f64(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    let flipped = bits ^ ((bits as i64 >> 63) as u64 | LONG_SIGN);
    if x.is_nan() { u64::MAX } else { flipped }
}

fn order(tensor: &NdArrayTensor, lanes: Lanes, descending: bool, keep: usize, positions: &mut [i64]) {
    let dtype = tensor.dtype();
    // Entries of short keys have short positions.
    let is_short = dtype.size() <= 4 && dtype != DType::U32 && u32::fits(lanes.size);
    let by = |dtype: DType| cast::cast(tensor.clone(), dtype);
    match (dtype.is_float(), is_short) {
        (true, true) => {
            order_by(&by(DType::F32), lanes, keep, positions, |x| directed(key_of_f32(x), descending))
        }
        (true, false) => {
            order_by(&by(DType::F64), lanes, keep, positions, |x| directed(key_of_f64(x), descending))
        }
        (false, true) => {
            order_by(&by(DType::I32), lanes, keep, positions, |x: i32| directed(x as u32 ^ SIGN, descending));
        }
        (false, false) if dtype == DType::U64 => {
            order_by(tensor, lanes, keep, positions, |x: u64| directed(x, descending));
        }
        (false, false) => {
            let key = |x: i64| directed(x as u64 ^ LONG_SIGN, descending);
            order_by(&by(DType::I64), lanes, keep, positions, key);
        }
    }
}

/// A key that orders the other way, if that is wanted.
fn directed<K: core::ops::Not<Output = K>>(key: K, descending: bool) -> K {
    if descending { !key } else { key }
}

fn order_by<T: bytemuck::Pod + Sync, K: Key>(
    tensor: &NdArrayTensor,
    lanes: Lanes,
    keep: usize,
    positions: &mut [i64],
    key: impl Fn(T) -> K + Sync,
) {
    let source = tensor.slice::<T>();
    let Lanes { outer, size, inner } = lanes;
    let keys = |[outer, at]: [usize; 2], keys: &mut [K]| {
        let lane = &source[outer * size * inner + at..];
        if inner == 1 {
            keys.iter_mut().zip(lane).for_each(|(to, &x)| *to = key(x));
        } else {
            keys.iter_mut().zip(lane.iter().step_by(inner)).for_each(|(to, &x)| *to = key(x));
        }
    };
    first_positions([outer, size, inner], keep, &keys, positions);
}
