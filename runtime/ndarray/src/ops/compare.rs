//! Comparisons.

use crate::compute::{Compute, compute_dtype};
use crate::ops::binary::{broadcast_shape, forward, from_first, one_element, strides_over, zip_to};
use crate::ops::cast;
use crate::tensor::{NdArrayTensor, same_dtype};
use kiln_kernels::elementwise::{self, Strided};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{CompareOp, DType, Scalar};

/// See [`CompareOp`]; broadcasts operands of equal rank.
pub(crate) fn compare(op: CompareOp, lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
    same_dtype(op.name(), &lhs, &rhs);
    let wide = compute_dtype(lhs.dtype());
    let (lhs, rhs) = (cast::cast(lhs, wide), cast::cast(rhs, wide));
    by_compute!(wide, F32 => single(op, lhs, rhs), T => typed::<T>(op, &lhs, &rhs))
}

/// f32 by the kernels.
fn single(op: CompareOp, lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
    let shape = broadcast_shape(&lhs, &rhs, op.name());
    let (lhs, rhs) = (forward(lhs), forward(rhs));
    let (lhs_strides, rhs_strides) = (strides_over(&lhs, &shape), strides_over(&rhs, &shape));
    let dims = shape.dims.clone();
    NdArrayTensor::build(shape, DType::Bool, |out| {
        let lhs = Strided { data: from_first(&lhs), strides: &lhs_strides };
        let rhs = Strided { data: from_first(&rhs), strides: &rhs_strides };
        elementwise::compare(op, &dims, lhs, rhs, out);
    })
}

/// See [`CompareOp`]; the scalar is converted to the tensor's dtype first.
pub(crate) fn compare_scalar(op: CompareOp, lhs: NdArrayTensor, rhs: Scalar) -> NdArrayTensor {
    let rhs = one_element(lhs.dims().len(), rhs, lhs.dtype());
    compare(op, lhs, rhs)
}

fn typed<T: Compute>(op: CompareOp, lhs: &NdArrayTensor, rhs: &NdArrayTensor) -> NdArrayTensor {
    let shape = broadcast_shape(lhs, rhs, op.name());
    match op {
        CompareOp::Equal => zip_to(lhs, rhs, shape, DType::Bool, |a: T, b: T| u8::from(a == b)),
        CompareOp::NotEqual => zip_to(lhs, rhs, shape, DType::Bool, |a: T, b: T| u8::from(a != b)),
        CompareOp::Greater => zip_to(lhs, rhs, shape, DType::Bool, |a: T, b: T| u8::from(a > b)),
        CompareOp::GreaterEqual => zip_to(lhs, rhs, shape, DType::Bool, |a: T, b: T| u8::from(a >= b)),
        // `a < b` is `b > a`, also for NaN: four loops a type instead of six.
        CompareOp::Lower => typed::<T>(CompareOp::Greater, rhs, lhs),
        CompareOp::LowerEqual => typed::<T>(CompareOp::GreaterEqual, rhs, lhs),
    }
}
