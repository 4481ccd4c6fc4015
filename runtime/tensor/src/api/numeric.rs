//! Arithmetic on floats and integers.

use super::base::Tensor;
use super::kind::{Bool, Numeric};
use crate::args::AsIndex;
use crate::backend::{Backend, held};
use crate::compose::indexing::triangle_mask;
use crate::{BinaryOp, CompareOp, CumulativeOp, DType, Distribution, Scalar, Shape, UnaryOp, check, erased};

macro_rules! binary_operations {
    ($($(#[$doc:meta])* $name:ident, $(#[$scalar_doc:meta])* $scalar:ident => $op:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(self, other: Self) -> Self {
                let [a, b] = [self, other].map(Self::into_backend);
                Self::wrap(erased::binary::<B>(BinaryOp::$op, a, b))
            }

            $(#[$scalar_doc])*
            pub fn $scalar<E: Into<Scalar>>(self, other: E) -> Self {
                Self::wrap(erased::binary_scalar::<B>(BinaryOp::$op, self.into_backend(), other.into()))
            }
        )*
    };
}
pub(super) use binary_operations;

macro_rules! unary_operations {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(self) -> Self {
                Self::wrap(B::unary(UnaryOp::$op, self.into_backend()))
            }
        )*
    };
}
pub(super) use unary_operations;

#[allow(clippy::should_implement_trait, reason = "the traits are implemented too, in `operators`, by these")]
impl<B: Backend, const D: usize, K: Numeric<B>> Tensor<B, D, K> {
    binary_operations! {
        /// `self + other`, elementwise; broadcasts.
        add,
        /// `self + other` for one number, converted to the tensor's dtype.
        add_scalar => Add;
        /// `self - other`, elementwise; broadcasts.
        sub,
        /// `self - other` for one number.
        sub_scalar => Sub;
        /// `self * other`, elementwise; broadcasts.
        mul,
        /// `self * other` for one number.
        mul_scalar => Mul;
        /// `self / other`, elementwise; broadcasts. Integers truncate towards zero.
        div,
        /// `self / other` for one number.
        div_scalar => Div;
        /// The remainder with the sign of the divisor, elementwise; broadcasts.
        remainder,
        /// The remainder with the sign of the divisor, for one divisor.
        remainder_scalar => Remainder;
        /// The remainder with the sign of the dividend, elementwise; broadcasts.
        fmod,
        /// The remainder with the sign of the dividend, for one divisor.
        fmod_scalar => Fmod;
        /// `self` to the power of `other`, elementwise; broadcasts.
        powf,
        /// `self` to one power; of integers with a fraction, the root as a float without its own fraction.
        powf_scalar => Pow;
        /// `self` to the power of `other`, elementwise; broadcasts.
        powi,
        /// `self` to one power.
        powi_scalar => Pow;
        /// The larger of both, elementwise; NaN if either is; broadcasts.
        max_pair,
        /// The larger of the tensor and one number. Where both are equal, half the gradient is the tensor's; [`Tensor::clamp_min`] leaves it none.
        max_pair_scalar => Max;
        /// The smaller of both, elementwise; NaN if either is; broadcasts.
        min_pair,
        /// The smaller of the tensor and one number. Where both are equal, half the gradient is the tensor's; [`Tensor::clamp_max`] leaves it none.
        min_pair_scalar => Min;
    }

    unary_operations! {
        /// `-self`.
        neg => Neg;
        /// The absolute value.
        abs => Abs;
        /// -1, 0 or 1.
        sign => Sign;
    }

    /// See [`Tensor::remainder`].
    pub fn rem(self, other: Self) -> Self {
        self.remainder(other)
    }

    /// The elements within bounds: `min` for what is below, `max` for what is above; NaN stays.
    pub fn clamp<E: Into<Scalar>>(self, min: E, max: E) -> Self {
        Self::wrap(erased::clamp::<B>(self.into_backend(), Some(min.into()), Some(max.into())))
    }

    /// At least `min`.
    pub fn clamp_min<E: Into<Scalar>>(self, min: E) -> Self {
        Self::wrap(erased::clamp::<B>(self.into_backend(), Some(min.into()), None))
    }

    /// At most `max`.
    pub fn clamp_max<E: Into<Scalar>>(self, max: E) -> Self {
        Self::wrap(erased::clamp::<B>(self.into_backend(), None, Some(max.into())))
    }

    /// Whether elements are not zero.
    pub fn bool(self) -> Tensor<B, D, Bool> {
        Tensor::wrap(erased::truth::<B>(self.into_backend()))
    }

    /// The matrix product over the last two dims; the leading dims broadcast.
    ///
    /// # Panics
    /// When the inner dims differ.
    pub fn matmul(self, other: Self) -> Self {
        let [a, b] = [self, other].map(Self::into_backend);
        Self::wrap(erased::matmul::<B>(a, b))
    }

    /// The scan (a running sum, product or extreme) along a dim. `exclusive` leaves out the element itself, `reverse` runs from the end.
    pub fn cumulative(self, op: CumulativeOp, dim: impl AsIndex, exclusive: bool, reverse: bool) -> Self {
        let dim = check::dim(op.name(), dim.as_index(), D);
        Self::wrap(B::cumulative(op, self.into_backend(), dim, exclusive, reverse))
    }

    /// The running sum along a dim.
    pub fn cumsum(self, dim: impl AsIndex) -> Self {
        self.cumulative(CumulativeOp::Sum, dim, false, false)
    }

    /// The running product along a dim.
    pub fn cumprod(self, dim: impl AsIndex) -> Self {
        self.cumulative(CumulativeOp::Prod, dim, false, false)
    }

    /// The running maximum along a dim.
    pub fn cummax(self, dim: impl AsIndex) -> Self {
        self.cumulative(CumulativeOp::Max, dim, false, false)
    }

    /// The running minimum along a dim.
    pub fn cummin(self, dim: impl AsIndex) -> Self {
        self.cumulative(CumulativeOp::Min, dim, false, false)
    }

    /// Random values.
    pub fn random<S: Into<Shape>>(shape: S, distribution: Distribution, device: &B::Device) -> Self {
        let shape = shape.into();
        check::rank("random", &shape, D);
        Self::wrap(B::random(shape, distribution, K::default_dtype(), device))
    }

    /// Random values in the same shape, dtype and device.
    pub fn random_like(&self, distribution: Distribution) -> Self {
        Self::wrap(B::random(self.shape(), distribution, self.dtype(), &self.device()))
    }
}

impl<B: Backend, K: Numeric<B>> Tensor<B, 1, K> {
    /// The sum of the products of two vectors, `[1]`.
    pub fn dot(self, other: Self) -> Self {
        check::same_shape("dot", &self.shape(), &other.shape());
        self.mul(other).sum()
    }
}

impl<B: Backend, K: Numeric<B>> Tensor<B, 2, K> {
    /// The identity matrix.
    pub fn eye(size: usize, device: &B::Device) -> Self {
        Self::eye_with([size, size], 0, K::default_dtype(), device)
    }

    /// Ones on the `diagonal`-th diagonal of a matrix of zeros.
    pub fn eye_with([rows, columns]: [usize; 2], diagonal: i64, dtype: DType, device: &B::Device) -> Self {
        let mask = triangle_mask::<B>(rows, columns, CompareOp::Equal, diagonal, device);
        Self::from_backend(B::cast(mask, held::<B>(dtype, device)))
    }
}
