//! New tensors: filled and counting ones.

use crate::compute::bits;
use crate::ops::cast;
use crate::tensor::NdArrayTensor;
use kiln_tensor::{DType, Scalar, Shape};

/// Filled with one value.
pub(crate) fn full(shape: Shape, value: Scalar, dtype: DType) -> NdArrayTensor {
    let bits = bits(value, dtype);
    by_size!(dtype, T => NdArrayTensor::build(shape, dtype, |out: &mut [T]| out.fill(bits as T)))
}

/// `start, start + step, …` before `end`.
pub(crate) fn arange(start: i64, end: i64, step: i64, dtype: DType) -> NdArrayTensor {
    assert!(step != 0, "arange: the step is 0");
    let span =
        if step > 0 { i128::from(end) - i128::from(start) } else { i128::from(start) - i128::from(end) };
    let len = span.max(0).unsigned_abs().div_ceil(u128::from(step.unsigned_abs())) as usize;
    let counted = NdArrayTensor::build([len].into(), DType::I64, |out: &mut [i64]| {
        out.iter_mut()
            .enumerate()
            .for_each(|(i, out)| *out = start.wrapping_add(step.wrapping_mul(i as i64)));
    });
    cast::cast(counted, dtype)
}
