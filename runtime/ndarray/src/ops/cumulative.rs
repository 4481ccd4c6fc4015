//! Scans along a dim.

use crate::compute::{Compute, wide_dtype};
use crate::ops::cast;
use crate::ops::lanes::Lanes;
use crate::ops::reduce::nothing;
use crate::tensor::NdArrayTensor;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{CumulativeOp, ReduceOp, Scalar};

/// See [`CumulativeOp`]. `exclusive` leaves out the element itself, `reverse` runs from the end.
pub(crate) fn cumulative(
    op: CumulativeOp,
    tensor: NdArrayTensor,
    dim: usize,
    exclusive: bool,
    reverse: bool,
) -> NdArrayTensor {
    let lanes = Lanes::along(tensor.dims(), dim);
    if tensor.is_empty() {
        return tensor;
    }
    let dtype = tensor.dtype();
    // What stands before the first element; of a dtype's own, not of the wider one in which it is computed.
    let nothing = match op {
        CumulativeOp::Sum => nothing(ReduceOp::Sum, dtype),
        CumulativeOp::Prod => nothing(ReduceOp::Prod, dtype),
        CumulativeOp::Max => nothing(ReduceOp::Max, dtype),
        CumulativeOp::Min => nothing(ReduceOp::Min, dtype),
    };
    let tensor = cast::cast(tensor, wide_dtype(dtype));
    let reduced = by_wide!(
        tensor.dtype(),
        // The error of a running sum grows with its length: in f64, as in PyTorch, it stays below f32's rounding.
        F32 => typed::<f32, f64>(op, nothing, tensor, lanes, exclusive, reverse, f64::from, |x| x as f32),
        T => typed::<T, T>(op, nothing, tensor, lanes, exclusive, reverse, |x| x, |x| x)
    );
    cast::cast(reduced, dtype)
}

/// Reduces elements of `T`, as numbers of `A`.
#[allow(clippy::too_many_arguments, reason = "those of `cumulative`, and how elements become numbers")]
fn typed<T: Compute, A: Compute>(
    op: CumulativeOp,
    nothing: Scalar,
    tensor: NdArrayTensor,
    lanes: Lanes,
    exclusive: bool,
    reverse: bool,
    widen: impl Fn(T) -> A,
    narrow: impl Fn(A) -> T,
) -> NdArrayTensor {
    let f: fn(A, A) -> A = match op {
        CumulativeOp::Sum => A::add,
        CumulativeOp::Prod => A::mul,
        CumulativeOp::Max => <A as Compute>::max,
        CumulativeOp::Min => <A as Compute>::min,
    };
    let init = A::from_scalar(nothing);
    tensor.edit(|elements: &mut [T]| {
        let step = |i: usize| if reverse { lanes.size - 1 - i } else { i };
        lanes.for_each(|start| {
            let mut running = init;
            for i in 0..lanes.size {
                let x = &mut elements[start + step(i) * lanes.inner];
                let before = running;
                running = f(running, widen(*x));
                *x = narrow(if exclusive { before } else { running });
            }
        });
    })
}
