//! Scans along a dim.

use crate::compute::{Compute, wide_dtype};
use crate::ops::cast;
use crate::ops::lanes::Lanes;
use crate::ops::reduce::nothing;
use crate::tensor::NdArrayTensor;
use kiln_kernels::scan::{ScanOptions, scan};
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
    let scan = Scan { op, nothing, lanes, options: ScanOptions { exclusive, reverse } };
    let reduced = by_wide!(
        tensor.dtype(),
        // The error of a running sum grows with its length: in f64, as in PyTorch, it stays below f32's rounding.
        F32 => scan.of::<f32, f64>(tensor, f64::from, |x| x as f32),
        T => scan.of::<T, T>(tensor, |x| x, |x| x)
    );
    cast::cast(reduced, dtype)
}

/// What is computed, along which lanes.
struct Scan {
    op: CumulativeOp,
    nothing: Scalar,
    lanes: Lanes,
    options: ScanOptions,
}

impl Scan {
    /// Reduces elements of `T`, as numbers of `A`.
    fn of<T: Compute, A: Compute>(
        &self,
        tensor: NdArrayTensor,
        widen: impl Fn(T) -> A + Sync,
        narrow: impl Fn(A) -> T + Sync,
    ) -> NdArrayTensor {
        let Lanes { outer, size, inner } = self.lanes;
        let (sizes, nothing) = ([outer, size, inner], A::from_scalar(self.nothing));
        let reduce: fn(A, A) -> A = match self.op {
            // Compiled for itself: most scans are sums.
            CumulativeOp::Sum => {
                return tensor.edit(|x: &mut [T]| {
                    scan(sizes, self.options, nothing, A::add, (widen, narrow), x);
                });
            }
            CumulativeOp::Prod => A::mul,
            CumulativeOp::Max => <A as Compute>::max,
            CumulativeOp::Min => <A as Compute>::min,
        };
        tensor.edit(|x: &mut [T]| scan(sizes, self.options, nothing, reduce, (widen, narrow), x))
    }
}
