//! Bool tensors.

use super::base::Tensor;
use super::kind::{Bool, Float, Int, TensorKind};
use crate::backend::Backend;
use crate::check::ensure;
use crate::compose::indexing::triangle_mask;
use crate::{BinaryOp, CompareOp, Shape, TensorData, UnaryOp, erased};
use alloc::vec::Vec;

impl<B: Backend, const D: usize> Tensor<B, D, Bool> {
    /// A tensor from bools.
    pub fn from_bool(data: TensorData, device: &B::Device) -> Self {
        Self::from_data(data, device)
    }

    /// 1 for true, 0 for false, in the usual integer dtype.
    pub fn int(self) -> Tensor<B, D, Int> {
        self.convert(<Int as TensorKind<B>>::default_dtype())
    }

    /// 1 for true, 0 for false, in the usual float dtype.
    pub fn float(self) -> Tensor<B, D> {
        self.convert(<Float as TensorKind<B>>::default_dtype())
    }

    /// Logical not.
    pub fn bool_not(self) -> Self {
        Self::wrap(B::unary(UnaryOp::Not, self.into_backend()))
    }

    fn logical(self, op: BinaryOp, other: Self) -> Self {
        let [a, b] = [self, other].map(Self::into_backend);
        Self::wrap(erased::binary::<B>(op, a, b))
    }

    /// Logical and; broadcasts.
    pub fn bool_and(self, rhs: Self) -> Self {
        self.logical(BinaryOp::And, rhs)
    }

    /// Logical or; broadcasts.
    pub fn bool_or(self, rhs: Self) -> Self {
        self.logical(BinaryOp::Or, rhs)
    }

    /// Logical exclusive or; broadcasts.
    pub fn bool_xor(self, rhs: Self) -> Self {
        self.logical(BinaryOp::Xor, rhs)
    }

    /// For each dim, the indices of the elements that are true. Reads the device.
    pub fn nonzero(self) -> Vec<Tensor<B, 1, Int>> {
        let indices = self.argwhere();
        (0..D).map(|dim| indices.clone().narrow(1, dim, 1).squeeze_dim(1)).collect()
    }

    /// The indices of the elements that are true, `[n, rank]`. Reads the device.
    pub fn argwhere(self) -> Tensor<B, 2, Int> {
        self.nonzero_indices()
    }

    /// [`Tensor::nonzero`] without blocking the thread.
    ///
    /// # Panics
    /// When the device failed.
    pub async fn nonzero_async(self) -> Vec<Tensor<B, 1, Int>> {
        let indices = self.argwhere_async().await;
        (0..D).map(|dim| indices.clone().narrow(1, dim, 1).squeeze_dim(1)).collect()
    }

    /// [`Tensor::argwhere`] without blocking the thread.
    ///
    /// # Panics
    /// When the device failed.
    pub async fn argwhere_async(self) -> Tensor<B, 2, Int> {
        self.nonzero_indices_async().await
    }

    /// False on and above the `offset`-th diagonal, true below it: what `mask_fill` needs to keep the upper triangle.
    pub fn triu_mask<S: Into<Shape>>(shape: S, offset: i64, device: &B::Device) -> Self {
        Self::diagonal_mask("triu_mask", shape.into(), CompareOp::Lower, offset, device)
    }

    /// False on and below the `offset`-th diagonal, true above it: what `mask_fill` needs to keep the lower triangle.
    pub fn tril_mask<S: Into<Shape>>(shape: S, offset: i64, device: &B::Device) -> Self {
        Self::diagonal_mask("tril_mask", shape.into(), CompareOp::Greater, offset, device)
    }

    /// False on the `offset`-th diagonal, true elsewhere.
    pub fn diag_mask<S: Into<Shape>>(shape: S, offset: i64, device: &B::Device) -> Self {
        Self::diagonal_mask("diag_mask", shape.into(), CompareOp::NotEqual, offset, device)
    }

    fn diagonal_mask(op: &str, shape: Shape, compare: CompareOp, offset: i64, device: &B::Device) -> Self {
        ensure!(shape.rank() == D && D >= 2, op, "{shape} should have rank {D}, of at least 2");
        let mask = triangle_mask::<B>(shape[D - 2], shape[D - 1], compare, offset, device);
        Self::wrap(B::expand(mask, shape))
    }
}
