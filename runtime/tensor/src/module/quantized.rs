//! Products of quantized integers, exact as long as the sums fit 32 bits.

use super::conv::check_conv;
use crate::backend::{Backend, Primitive};
use crate::check::{self, ensure};
use crate::compose::Quantized;
pub use crate::compose::ZeroPoint;
use crate::compose::calc::reshape;
use crate::{ConvOptions, Dims, Int, Tensor};

impl<T> From<i32> for ZeroPoint<T> {
    fn from(zero: i32) -> Self {
        ZeroPoint::Number(zero)
    }
}

impl<B: Backend, const D: usize> From<Tensor<B, D, Int>> for ZeroPoint<B::Primitive> {
    fn from(zero: Tensor<B, D, Int>) -> Self {
        ZeroPoint::Tensor(zero.into_backend())
    }
}

/// Values with their zero point, which may be one number of any rank, or differ along one dim.
#[track_caller]
fn quantized<B: Backend>(
    op: &str,
    values: B::Primitive,
    zero: ZeroPoint<B::Primitive>,
    varies: Option<usize>,
) -> Quantized<B::Primitive> {
    let zero = match zero {
        ZeroPoint::Number(zero) => ZeroPoint::Number(zero),
        ZeroPoint::Tensor(zero) if zero.shape().num_elements() == 1 => {
            ZeroPoint::Tensor(reshape::<B>(zero, &Dims::repeat(1, values.dims().len())))
        }
        ZeroPoint::Tensor(zero) => {
            let (of, dims) = (values.dims(), zero.dims());
            let fits = |(axis, (&n, &size)): (usize, (&usize, &usize))| {
                n == 1 || (varies.is_none_or(|varies| varies == axis) && n == size)
            };
            let fits = dims.len() == of.len() && dims.iter().zip(of).enumerate().all(fits);
            ensure!(fits, op, "zero points {dims:?} do not fit {of:?}");
            ZeroPoint::Tensor(zero)
        }
    };
    Quantized { values, zero }
}

/// The matrix product of `lhs - lhs_zero` and `rhs - rhs_zero` over the last two dims, in 32-bit integers; the leading dims broadcast.
///
/// The operands are integers of any dtypes. A zero point is a number, a tensor of one, or a tensor of the operand's rank with one for each
/// row of `lhs`, or each column of `rhs`.
///
/// # Panics
/// When the shapes do not fit.
pub fn quantized_matmul<B: Backend, const D: usize>(
    lhs: Tensor<B, D, Int>,
    lhs_zero: impl Into<ZeroPoint<B::Primitive>>,
    rhs: Tensor<B, D, Int>,
    rhs_zero: impl Into<ZeroPoint<B::Primitive>>,
) -> Tensor<B, D, Int> {
    const OP: &str = "quantized_matmul";
    check::matmul(lhs.sizes(), rhs.sizes());
    let (lhs, rhs) = (lhs.into_backend(), rhs.into_backend());
    let (lhs, rhs) =
        (quantized::<B>(OP, lhs, lhs_zero.into(), None), quantized::<B>(OP, rhs, rhs_zero.into(), None));
    for (side, summed) in [(&lhs, D - 1), (&rhs, D - 2)] {
        if let ZeroPoint::Tensor(zero) = &side.zero {
            ensure!(zero.dims()[summed] == 1, OP, "zero points {:?} differ along the sums", zero.dims());
        }
    }
    Tensor::wrap(B::quantized_matmul(lhs, rhs))
}

/// The convolution of `x - x_zero` with `weight - weight_zero`, in 32-bit integers: `weight` is `[out, in / groups, kernel…]`, and the
/// border is zero points.
///
/// The operands are integers of any dtypes. A zero point is a number or a tensor of one; that of the weight may also be a tensor of the
/// weight's rank with one for each of the first dim.
///
/// # Panics
/// When channels, kernel, options and zero points do not fit the input.
pub fn quantized_conv<B: Backend, const D: usize>(
    x: Tensor<B, D, Int>,
    x_zero: impl Into<ZeroPoint<B::Primitive>>,
    weight: Tensor<B, D, Int>,
    weight_zero: impl Into<ZeroPoint<B::Primitive>>,
    options: ConvOptions,
) -> Tensor<B, D, Int> {
    const OP: &str = "quantized_conv";
    check_conv(x.sizes(), weight.sizes(), None, &options);
    let x = quantized::<B>(OP, x.into_backend(), x_zero.into(), Some(D));
    let weight = quantized::<B>(OP, weight.into_backend(), weight_zero.into(), Some(0));
    Tensor::wrap(B::quantized_conv(x, weight, &options))
}
