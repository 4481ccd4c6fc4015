//! Determinants.

use crate::backend::Backend;
use crate::check::ensure;
use crate::compose::calc;
use crate::{Int, Shape, Tensor};

/// The determinants of the square matrices in the last two dims, which stay with size 1. By Gaussian elimination with
/// partial pivoting (Golub and Van Loan, "Matrix Computations", section 3.4), in f32 or f64, on the device.
///
/// Gradients are those of matrices that are not singular.
///
/// # Panics
/// When the last two dims are not one square matrix each.
pub fn det<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    let (shape, dtype, device) = (tensor.shape(), tensor.dtype(), tensor.device());
    let is_square = D >= 2 && shape[D - 1] == shape[D - 2];
    ensure!(is_square, "det", "the last two dims of {shape} are no square matrix");
    let wide = calc::wide(dtype);
    let mut dims = shape.dims.clone();
    let size = dims[D - 1];
    (dims[D - 2], dims[D - 1]) = (1, 1);
    let count = dims.iter().product();
    let mut det = Tensor::<B, 3>::ones([count, 1, 1], (&device, wide));
    let mut rest: Tensor<B, 3> = tensor.cast(wide).reshape([count, size, size]);
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
    det.cast(dtype).reshape(Shape::from(dims))
}
