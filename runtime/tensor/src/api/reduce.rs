//! Reductions of dims. Reduced dims stay with size 1.

use super::base::Tensor;
use super::kind::{Int, Numeric, TensorKind};
use crate::args::AsIndex;
use crate::backend::Backend;
use crate::check::ensure;
use crate::{ArgReduceOp, ReduceOp, check, erased};

impl<B: Backend, const D: usize, K: TensorKind<B>> Tensor<B, D, K> {
    /// Reduces dims, which stay with size 1; no dims are no reduction.
    pub fn reduce(self, op: ReduceOp, dims: &[impl AsIndex]) -> Self {
        let axes = check::dims(op.name(), dims.iter().map(AsIndex::as_index), D);
        Self::wrap(erased::reduce::<B>(op, self.into_backend(), &axes))
    }

    /// Reduces everything.
    fn reduce_all(self, op: ReduceOp) -> Tensor<B, 1, K> {
        Tensor::wrap(erased::reduce_all::<B>(op, self.into_backend(), 1))
    }
}

macro_rules! reductions {
    ($($op:ident: $what:literal, $all:ident $one:ident $some:ident;)*) => {
        $(
            #[doc = concat!($what, " of all elements, `[1]`.")]
            pub fn $all(self) -> Tensor<B, 1, K> {
                self.reduce_all(ReduceOp::$op)
            }

            #[doc = concat!($what, " along a dim, which stays with size 1.")]
            pub fn $one(self, dim: impl AsIndex) -> Self {
                self.reduce(ReduceOp::$op, &[dim.as_index()])
            }

            #[doc = concat!($what, " over dims, which stay with size 1.")]
            pub fn $some(self, dims: &[impl AsIndex]) -> Self {
                self.reduce(ReduceOp::$op, dims)
            }
        )*
    };
}

impl<B: Backend, const D: usize, K: Numeric<B>> Tensor<B, D, K> {
    reductions! {
        Sum: "The sum", sum sum_dim sum_dims;
        Mean: "The mean", mean mean_dim mean_dims;
        Prod: "The product", prod prod_dim prod_dims;
        Max: "The largest", max max_dim max_dims;
        Min: "The smallest", min min_dim min_dims;
    }

    /// The sum over dims, which are dropped.
    pub fn sum_dims_squeeze<const D2: usize, I: AsIndex>(self, dims: &[I]) -> Tensor<B, D2, K> {
        self.sum_dims(dims).squeeze_dims(dims)
    }

    /// The largest absolute value, `[1]`.
    pub fn max_abs(self) -> Tensor<B, 1, K> {
        self.abs().max()
    }

    /// The largest absolute value along a dim, which stays with size 1.
    pub fn max_abs_dim(self, dim: impl AsIndex) -> Self {
        self.abs().max_dim(dim)
    }

    /// The largest absolute value over dims, which stay with size 1.
    pub fn max_abs_dims(self, dims: &[impl AsIndex]) -> Self {
        self.abs().max_dims(dims)
    }

    /// The index of an extreme along a dim, which stays with size 1; among equals the first, or the last.
    pub fn arg_reduce(self, op: ArgReduceOp, dim: impl AsIndex, select_last: bool) -> Tensor<B, D, Int> {
        let dim = check::dim(op.name(), dim.as_index(), D);
        let shape = self.shape();
        ensure!(shape[dim] > 0, op.name(), "dim {dim} of {shape} is empty");
        Tensor::wrap(B::arg_reduce(op, self.into_backend(), dim, select_last))
    }

    /// The index of the largest along a dim, which stays with size 1.
    pub fn argmax(self, dim: impl AsIndex) -> Tensor<B, D, Int> {
        self.arg_reduce(ArgReduceOp::Max, dim, false)
    }

    /// The index of the smallest along a dim, which stays with size 1.
    pub fn argmin(self, dim: impl AsIndex) -> Tensor<B, D, Int> {
        self.arg_reduce(ArgReduceOp::Min, dim, false)
    }

    /// [`Tensor::argmax`], the last among equals.
    pub fn argmax_last(self, dim: impl AsIndex) -> Tensor<B, D, Int> {
        self.arg_reduce(ArgReduceOp::Max, dim, true)
    }

    /// [`Tensor::argmin`], the last among equals.
    pub fn argmin_last(self, dim: impl AsIndex) -> Tensor<B, D, Int> {
        self.arg_reduce(ArgReduceOp::Min, dim, true)
    }

    /// The largest along a dim and its index, the first among equals; the dim stays with size 1. The gradient goes to that index,
    /// whereas equals share that of a reduction without indices; so do PyTorch's `max` of a dim and `amax`.
    pub fn max_dim_with_indices(self, dim: impl AsIndex) -> (Self, Tensor<B, D, Int>) {
        let indices = self.clone().argmax(dim);
        (self.gather(dim, indices.clone()), indices)
    }

    /// The smallest along a dim and its index, the first among equals; the dim stays with size 1. The gradient goes to that index,
    /// whereas equals share that of a reduction without indices; so do PyTorch's `min` of a dim and `amin`.
    pub fn min_dim_with_indices(self, dim: impl AsIndex) -> (Self, Tensor<B, D, Int>) {
        let indices = self.clone().argmin(dim);
        (self.gather(dim, indices.clone()), indices)
    }
}
