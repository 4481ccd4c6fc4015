//! Running folds along a dim.

use crate::compute::{Compute, wide_dtype};
use crate::ops::cast;
use crate::ops::lanes::Lanes;
use crate::ops::reduce::extreme;
use crate::tensor::NdArrayTensor;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{CumulativeOp, DType, ReduceOp, Scalar};

/// See [`CumulativeOp`]. `exclusive` leaves out the element itself, `reverse` runs from the end.
pub(crate) fn cumulative(
    op: CumulativeOp,
    tensor: NdArrayTensor,
    dim: usize,
    exclusive: bool,
    reverse: bool,
) -> NdArrayTensor {
    let lanes = Lanes::along(tensor.dims(), dim);
    let dtype = tensor.dtype();
    // What stands before the first element; of a dtype's own, not of the wider one in which it is computed.
    let nothing = match op {
        CumulativeOp::Sum => Scalar::Int(0),
        CumulativeOp::Prod => Scalar::Int(1),
        CumulativeOp::Max => extreme(ReduceOp::Max, dtype),
        CumulativeOp::Min => extreme(ReduceOp::Min, dtype),
    };
    let tensor = cast::cast(tensor, wide_dtype(dtype));
    let folded = match tensor.dtype() {
        DType::F32 => typed::<f32>(op, nothing, tensor, lanes, exclusive, reverse),
        wide => by_wide!(wide, T => typed::<T>(op, nothing, tensor, lanes, exclusive, reverse)),
    };
    cast::cast(folded, dtype)
}

fn typed<T: Compute>(
    op: CumulativeOp,
    nothing: Scalar,
    tensor: NdArrayTensor,
    lanes: Lanes,
    exclusive: bool,
    reverse: bool,
) -> NdArrayTensor {
    let f: fn(T, T) -> T = match op {
        CumulativeOp::Sum => T::add,
        CumulativeOp::Prod => T::mul,
        CumulativeOp::Max => <T as Compute>::max,
        CumulativeOp::Min => <T as Compute>::min,
    };
    let init = T::from_scalar(nothing);
    tensor.edit(|elements: &mut [T]| {
        let step = |i: usize| if reverse { lanes.size - 1 - i } else { i };
        lanes.for_each(|start| {
            let mut running = init;
            for i in 0..lanes.size {
                let x = &mut elements[start + step(i) * lanes.inner];
                let before = running;
                running = f(running, *x);
                *x = if exclusive { before } else { running };
            }
        });
    })
}
