//! Comparisons: bool tensors from tensors of any kind.

use super::base::Tensor;
use super::kind::{Bool, Numeric, TensorKind};
use crate::args::AsIndex;
use crate::backend::Backend;
use crate::{CompareOp, ReduceOp, Scalar, check, erased};

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident, $(#[$elem_doc:meta])* $elem:ident => $op:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(self, other: Self) -> Tensor<B, D, Bool> {
                let [a, b] = [self, other].map(Self::into_backend);
                Tensor::wrap(erased::compare::<B>(CompareOp::$op, a, b))
            }

            $(#[$elem_doc])*
            pub fn $elem<E: Into<Scalar>>(self, other: E) -> Tensor<B, D, Bool> {
                Tensor::wrap(erased::compare_scalar::<B>(CompareOp::$op, self.into_backend(), other.into()))
            }
        )*
    };
}

impl<B: Backend, const D: usize, K: TensorKind<B>> Tensor<B, D, K> {
    comparisons! {
        /// `self == other`, elementwise; broadcasts.
        equal,
        /// `self == other` for one number.
        equal_elem => Equal;
        /// `self != other`, elementwise; broadcasts.
        not_equal,
        /// `self != other` for one number.
        not_equal_elem => NotEqual;
    }

    /// Whether any element is not zero, `[1]`.
    pub fn any(self) -> Tensor<B, 1, Bool> {
        let truth = erased::truth::<B>(self.into_backend());
        Tensor::wrap(erased::reduce_all::<B>(ReduceOp::Any, truth, 1))
    }

    /// Whether any element along a dim is not zero; the dim stays with size 1.
    pub fn any_dim(self, dim: impl AsIndex) -> Tensor<B, D, Bool> {
        let dim = check::dim("any_dim", dim.as_index(), D);
        Tensor::wrap(B::reduce(ReduceOp::Any, erased::truth::<B>(self.into_backend()), &[dim]))
    }

    /// Whether no element is zero, `[1]`.
    pub fn all(self) -> Tensor<B, 1, Bool> {
        let truth = erased::truth::<B>(self.into_backend());
        Tensor::wrap(erased::reduce_all::<B>(ReduceOp::All, truth, 1))
    }

    /// Whether no element along a dim is zero; the dim stays with size 1.
    pub fn all_dim(self, dim: impl AsIndex) -> Tensor<B, D, Bool> {
        let dim = check::dim("all_dim", dim.as_index(), D);
        Tensor::wrap(B::reduce(ReduceOp::All, erased::truth::<B>(self.into_backend()), &[dim]))
    }
}

impl<B: Backend, const D: usize, K: Numeric<B>> Tensor<B, D, K> {
    comparisons! {
        /// `self > other`, elementwise; broadcasts.
        greater,
        /// `self > other` for one number.
        greater_elem => Greater;
        /// `self >= other`, elementwise; broadcasts.
        greater_equal,
        /// `self >= other` for one number.
        greater_equal_elem => GreaterEqual;
        /// `self < other`, elementwise; broadcasts.
        lower,
        /// `self < other` for one number.
        lower_elem => Lower;
        /// `self <= other`, elementwise; broadcasts.
        lower_equal,
        /// `self <= other` for one number.
        lower_equal_elem => LowerEqual;
    }
}
