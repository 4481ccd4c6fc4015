//! Running folds along a dim.

use crate::compute::{Compute, wide_dtype};
use crate::ops::cast;
use crate::ops::lanes::Lanes;
use crate::tensor::NdArrayTensor;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{CumulativeOp, DType};

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
    let tensor = cast::cast(tensor, wide_dtype(dtype));
    let folded = match tensor.dtype() {
        DType::F32 => typed::<f32>(op, tensor, lanes, exclusive, reverse),
        wide => by_wide!(wide, T => typed::<T>(op, tensor, lanes, exclusive, reverse)),
    };
    cast::cast(folded, dtype)
}

fn typed<T: Compute>(
    op: CumulativeOp,
    tensor: NdArrayTensor,
    lanes: Lanes,
    exclusive: bool,
    reverse: bool,
) -> NdArrayTensor {
    let (init, f): (T, fn(T, T) -> T) = match op {
        CumulativeOp::Sum => (T::ZERO, T::add),
        CumulativeOp::Prod => (T::ONE, T::mul),
        CumulativeOp::Max => (T::LEAST, <T as Compute>::max),
        CumulativeOp::Min => (T::GREATEST, <T as Compute>::min),
    };
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
