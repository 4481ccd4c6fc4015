//! Float tensors.

use super::base::Tensor;
use super::kind::{Bool, Float, Int, TensorKind};
use super::numeric::{binary_operations, unary_operations};
use crate::args::AsIndex;
use crate::backend::Backend;
use crate::compose::wide;
use crate::module::GridSampleOptions;
use crate::{BinaryOp, CompareOp, DType, Scalar, Shape, TensorData, UnaryOp, check, erased};
use alloc::vec::Vec;

impl<B: Backend, const D: usize> Tensor<B, D> {
    unary_operations! {
        /// `e^x`.
        exp => Exp;
        /// The natural logarithm.
        log => Log;
        /// `ln(1 + x)`, accurate near 0.
        log1p => Log1p;
        /// The Gauss error function.
        erf => Erf;
        /// `1 / x`.
        recip => Recip;
        /// The square root.
        sqrt => Sqrt;
        /// The sine (radians).
        sin => Sin;
        /// The cosine (radians).
        cos => Cos;
        /// The tangent (radians).
        tan => Tan;
        /// The inverse sine.
        asin => Asin;
        /// The inverse cosine.
        acos => Acos;
        /// The inverse tangent.
        atan => Atan;
        /// The hyperbolic sine.
        sinh => Sinh;
        /// The hyperbolic cosine.
        cosh => Cosh;
        /// The hyperbolic tangent.
        tanh => Tanh;
        /// The inverse hyperbolic sine.
        asinh => Asinh;
        /// The inverse hyperbolic cosine.
        acosh => Acosh;
        /// The inverse hyperbolic tangent.
        atanh => Atanh;
        /// The nearest whole number; halves go to the even one.
        round => Round;
        /// The largest whole number that is not above.
        floor => Floor;
        /// The smallest whole number that is not below.
        ceil => Ceil;
        /// The whole number towards zero.
        trunc => Trunc;
    }

    binary_operations! {
        /// The angle of the point `(other, self)`, elementwise; broadcasts.
        atan2,
        /// The angle of the point `(other, self)` for one number.
        atan2_scalar => Atan2;
    }

    /// `x²`.
    pub fn square(self) -> Self {
        self.clone().mul(self)
    }

    /// A tensor from floats, converted to the usual dtype.
    pub fn from_floats<A: Into<TensorData>>(floats: A, device: &B::Device) -> Self {
        Self::from_data(floats, device)
    }

    /// Converts to the usual float dtype, from any other.
    pub fn float(self) -> Self {
        self.cast(<Float as TensorKind<B>>::default_dtype())
    }

    /// Converts to the usual integer dtype: truncates, saturates, NaN is 0.
    pub fn int(self) -> Tensor<B, D, Int> {
        self.convert(<Int as TensorKind<B>>::default_dtype())
    }

    /// Converts to f32.
    pub fn to_full_precision(&self) -> Self {
        self.clone().cast(DType::F32)
    }

    /// Converts from f32 (or any float dtype) to the backend's usual one.
    pub fn from_full_precision(tensor: Self) -> Self {
        tensor.cast(<Float as TensorKind<B>>::default_dtype())
    }

    /// The variance along a dim, of a sample: divided by `n - 1`.
    pub fn var(self, dim: impl AsIndex) -> Self {
        self.var_mean(dim).0
    }

    /// The variance along a dim, of a whole population: divided by `n`.
    pub fn var_bias(self, dim: impl AsIndex) -> Self {
        self.var_mean_bias(dim).0
    }

    /// The variance of a sample and the mean along a dim.
    pub fn var_mean(self, dim: impl AsIndex) -> (Self, Self) {
        self.variance_and_mean(dim.as_index(), 1)
    }

    /// The variance of a whole population and the mean along a dim.
    pub fn var_mean_bias(self, dim: impl AsIndex) -> (Self, Self) {
        self.variance_and_mean(dim.as_index(), 0)
    }

    fn variance_and_mean(self, dim: isize, correction: usize) -> (Self, Self) {
        let dim = check::dim("var", dim, D);
        let n = self.shape()[dim];
        let mean = self.clone().mean_dim(dim);
        let centered = self.sub(mean.clone());
        // The mean is rounded, which is much where elements differ by less than they have in common.
        let rest = centered.clone().mean_dim(dim);
        // A mean of squares, since in f16 neither their sum nor their number may be finite.
        let squares = centered.sub(rest).square().mean_dim(dim);
        (squares.mul_scalar(n as f64 / (n as f64 - correction as f64)), mean)
    }

    /// The covariance of the vectors that lie along `dim`; the divisor is their number less `correction_factor`.
    pub fn cov(self, dim: impl AsIndex, correction_factor: usize) -> Self {
        let dim = check::dim("cov", dim.as_index(), D);
        let n = self.shape()[dim];
        let centered = self.clone().sub(self.mean_dim(dim)).swap_dims(dim, 0);
        // Neither a sum of products nor a number of them that is beyond f16 makes the covariance so.
        let dtype = centered.dtype();
        let centered = centered.cast(wide(dtype));
        let sums = centered.clone().transpose().matmul(centered);
        sums.div_scalar(n as f64 - correction_factor as f64).cast(dtype)
    }

    /// Whether elements are close: `|a - b| ≤ atol + rtol · |b|`, or equal infinities. The defaults are 1e-5 and 1e-8.
    pub fn is_close(self, other: Self, rtol: Option<f64>, atol: Option<f64>) -> Tensor<B, D, Bool> {
        let (rtol, atol) = (rtol.unwrap_or(1e-5), atol.unwrap_or(1e-8));
        let same = self.clone().equal(other.clone());
        let bound = other.clone().abs().mul_scalar(rtol).add_scalar(atol);
        let finite = other.clone().is_finite().bool_and(self.clone().is_finite());
        let near = self.sub(other).abs().lower_equal(bound).bool_and(finite);
        same.bool_or(near)
    }

    /// Whether all elements are close; reads the device. See [`Tensor::is_close`].
    pub fn all_close(self, other: Self, rtol: Option<f64>, atol: Option<f64>) -> bool {
        truth(&self.is_close(other, rtol, atol).all().into_data())
    }

    /// [`Tensor::all_close`] without blocking the thread.
    ///
    /// # Panics
    /// When the device failed.
    pub async fn all_close_async(self, other: Self, rtol: Option<f64>, atol: Option<f64>) -> bool {
        let close = self.is_close(other, rtol, atol).all().into_data_async().await;
        truth(&check::ran("all_close", close))
    }

    /// Whether elements are NaN.
    pub fn is_nan(self) -> Tensor<B, D, Bool> {
        Tensor::wrap(B::unary(UnaryOp::IsNan, self.into_backend()))
    }

    /// Whether any element is NaN, `[1]`.
    pub fn contains_nan(self) -> Tensor<B, 1, Bool> {
        self.is_nan().any()
    }

    /// Whether elements are +∞ or -∞.
    pub fn is_inf(self) -> Tensor<B, D, Bool> {
        Tensor::wrap(B::unary(UnaryOp::IsInf, self.into_backend()))
    }

    /// Whether elements are neither NaN nor infinite.
    pub fn is_finite(self) -> Tensor<B, D, Bool> {
        // x - x is 0 for finite numbers and NaN for all others.
        let zero = self.clone().sub(self);
        Tensor::wrap(B::compare_scalar(CompareOp::Equal, zero.into_backend(), Scalar::Int(0)))
    }

    /// Reads images `[batch, channels, height, width]` where a grid `[batch, rows, columns, 2]` says: `[batch, channels, rows, columns]`.
    /// See [`module::grid_sample`](crate::module::grid_sample).
    ///
    /// # Panics
    /// When the rank is not 4, or the grid does not fit.
    pub fn grid_sample_2d(self, grid: Self, options: impl Into<GridSampleOptions>) -> Self {
        check::ensure!(D == 4, "grid_sample_2d", "{} is no batch of images", self.shape());
        crate::module::grid_sample(self, grid, options.into())
    }

    /// The cross product of vectors of three elements along `dim`.
    pub fn cross(self, other: Self, dim: impl AsIndex) -> Self {
        let dim = check::dim("cross", dim.as_index(), D);
        let (a, b) = (self.shape(), other.shape());
        check::ensure!(a[dim] == 3 && b[dim] == 3, "cross", "dim {dim} of {a} and {b} should be 3");
        // a × b = (a₁, a₂, a₀) · (b₂, b₀, b₁) - (a₂, a₀, a₁) · (b₁, b₂, b₀)
        let next = |t: &Self| t.clone().roll_dim(-1, dim);
        let previous = |t: &Self| t.clone().roll_dim(1, dim);
        next(&self).mul(previous(&other)).sub(previous(&self).mul(next(&other)))
    }
}

/// Whether all elements are true.
fn truth(data: &TensorData) -> bool {
    data.iter::<bool>().all(|element| element)
}

impl<B: Backend> Tensor<B, 1> {
    /// `start, start + step, …` before `end` (after it, for a negative step).
    ///
    /// # Panics
    /// When the step is 0.
    pub fn range(start: f64, end: f64, step: f64, device: &B::Device) -> Self {
        check::ensure!(step != 0.0, "range", "the step is 0");
        let count = num_traits::Float::ceil((end - start) / step).max(0.0) as usize;
        let values: Vec<f64> = (0..count).map(|i| start + i as f64 * step).collect();
        Self::from_data(TensorData::new(values, Shape::from([count])), device)
    }
}
