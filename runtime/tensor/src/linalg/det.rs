//! Determinants.

use super::matrices::square_matrices;
use crate::backend::Backend;
use crate::{Int, Tensor};

/// The determinants of the square matrices in the last two dims, which stay with size 1. By Gaussian elimination with
/// partial pivoting (Golub and Van Loan, "Matrix Computations", section 3.4), in f32 or f64, on the device.
///
/// Gradients are those of matrices that are not singular.
///
/// # Panics
/// When the last two dims are not one square matrix each.
pub fn det<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    let (matrices, origin) = square_matrices("det", tensor);
    let [count, size, _] = matrices.dims();
    let device = matrices.device();
    let mut det = Tensor::<B, 3>::ones([count, 1, 1], (&device, matrices.dtype()));
    let mut rest = matrices;
    for left in (1..=size).rev() {
        let place = rest.clone().narrow(2, 0, 1).abs().argmax(1);
        let places: Tensor<B, 3, Int> = place.clone().expand([count, 1, left]);
        let pivot_row = rest.clone().gather(1, places);
        let pivot = pivot_row.clone().narrow(2, 0, 1);
        // Rows that change places change the sign.
        let step = pivot.clone().mask_where(place.clone().greater_elem(0), pivot.clone().neg());
        det = det.mul(step);
        if left == 1 {
            break;
        }
        let first = rest.clone().narrow(1, 0, 1);
        let rows = Tensor::<B, 1, Int>::arange(0..left as i64, &device).reshape([1, left, 1]);
        let below = rest.mask_where(rows.equal(place), first).narrow(1, 1, left - 1);
        // What is below a pivot of 0 is 0 as well.
        let divisor = pivot.clone().mask_fill(pivot.equal_elem(0), 1);
        let factors = below.clone().narrow(2, 0, 1).div(divisor);
        rest = below.narrow(2, 1, left - 1).sub(factors.mul(pivot_row.narrow(2, 1, left - 1)));
    }
    origin.restore(det)
}
