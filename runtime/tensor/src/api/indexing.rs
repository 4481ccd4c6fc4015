//! Slices, and elements named by index tensors.

use super::base::Tensor;
use super::kind::{Bool, Int, TensorKind};
use crate::args::{AsIndex, Slice, SliceArg};
use crate::backend::{Backend, held};
use crate::check::{self, ensure};
use crate::compose::indexing;
use crate::{Scalar, ScatterOp, erased};

impl<B: Backend, const D: usize, K: TensorKind<B>> Tensor<B, D, K> {
    /// The elements in ranges of the first dims: `[0..2, 1..3]`, `s![.., -1, 0..;2]`; see [`s!`](crate::s).
    pub fn slice<S: SliceArg>(self, slices: S) -> Self {
        let ranges = slices.into_ranges(&self.shape());
        Self::wrap(erased::slice::<B>(self.into_backend(), &ranges))
    }

    /// The tensor with the elements in the ranges replaced.
    pub fn slice_assign<S: SliceArg>(self, slices: S, values: Self) -> Self {
        let ranges = slices.into_ranges(&self.shape());
        Self::wrap(erased::slice_assign::<B>(self.into_backend(), &ranges, values.into_backend()))
    }

    /// The tensor with one value in the ranges.
    pub fn slice_fill<S: SliceArg, E: Into<Scalar>>(self, slices: S, value: E) -> Self {
        let ranges = slices.into_ranges(&self.shape());
        let one = B::full([1; D].into(), value.into(), self.dtype(), &self.device());
        Self::wrap(erased::slice_assign::<B>(self.into_backend(), &ranges, one))
    }

    /// The elements in a range of one dim.
    pub fn slice_dim<S: Into<Slice>>(self, dim: impl AsIndex, slice: S) -> Self {
        let mut slices = [Slice::full(); D];
        slices[check::dim("slice_dim", dim.as_index(), D)] = slice.into();
        self.slice(slices)
    }

    /// Rows of a dim, named by their (non-negative) indices.
    ///
    /// An index that names no row ends the program on the CPU. On a GPU, which nobody waits for, floats are NaN there and integers 0; the methods
    /// that write leave it out.
    pub fn select(self, dim: impl AsIndex, indices: Tensor<B, 1, Int>) -> Self {
        let dim = check::dim("select", dim.as_index(), D);
        Self::wrap(B::select(self.into_backend(), dim, indices.into_backend()))
    }

    /// The tensor with `values`' rows combined into the named rows of a dim.
    pub fn select_assign(
        self,
        dim: impl AsIndex,
        indices: Tensor<B, 1, Int>,
        values: Self,
        update: ScatterOp,
    ) -> Self {
        let dim = check::dim("select_assign", dim.as_index(), D);
        check::same_dtype("select_assign", self.dtype(), values.dtype());
        let mut wanted = self.shape();
        wanted.dims[dim] = indices.shape().num_elements();
        check::same_shape("select_assign", &values.shape(), &wanted);
        let [tensor, values] = [self, values].map(Self::into_backend);
        Self::wrap(B::select_assign(tensor, dim, indices.into_backend(), values, update))
    }

    /// For each index, the slice of `dim` there; the dims of `indices` take the place of `dim`. Indices are not
    /// negative; see [`Tensor::take_wrapped`].
    ///
    /// # Panics
    /// When `D2` is not `D + DI - 1`.
    pub fn take<const DI: usize, const D2: usize>(
        self,
        dim: impl AsIndex,
        indices: Tensor<B, DI, Int>,
    ) -> Tensor<B, D2, K> {
        ensure!(D + DI == D2 + 1, "take", "rank {D} with indices of rank {DI} does not give rank {D2}");
        let dim = check::dim("take", dim.as_index(), D);
        Tensor::wrap(indexing::take::<B>(self.into_backend(), dim, indices.into_backend(), false))
    }

    /// [`Tensor::take`] with indices that may count from the end.
    pub fn take_wrapped<const DI: usize, const D2: usize>(
        self,
        dim: impl AsIndex,
        indices: Tensor<B, DI, Int>,
    ) -> Tensor<B, D2, K> {
        ensure!(D + DI == D2 + 1, "take", "rank {D} with indices of rank {DI} does not give rank {D2}");
        let dim = check::dim("take", dim.as_index(), D);
        Tensor::wrap(indexing::take::<B>(self.into_backend(), dim, indices.into_backend(), true))
    }

    /// `out[i][j] = self[indices[i][j]][j]` (for dim 0); indices are not negative.
    pub fn gather(self, dim: impl AsIndex, indices: Tensor<B, D, Int>) -> Self {
        let dim = check::dim("gather", dim.as_index(), D);
        check::gather("gather", &self.shape(), dim, &indices.shape());
        Self::wrap(B::gather(self.into_backend(), dim, indices.into_backend()))
    }

    /// [`Tensor::gather`] with indices that may count from the end.
    pub fn gather_wrapped(self, dim: impl AsIndex, indices: Tensor<B, D, Int>) -> Self {
        let dim = check::dim("gather", dim.as_index(), D);
        let size = self.shape()[dim];
        self.gather(dim, Tensor::wrap(indexing::wrapped::<B>(indices.into_backend(), size)))
    }

    /// The inverse of [`Tensor::gather`]: combines `values` into the elements that `indices` name.
    pub fn scatter(
        self,
        dim: impl AsIndex,
        indices: Tensor<B, D, Int>,
        values: Self,
        update: ScatterOp,
    ) -> Self {
        let dim = check::dim("scatter", dim.as_index(), D);
        check::same_dtype("scatter", self.dtype(), values.dtype());
        check::gather("scatter", &self.shape(), dim, &indices.shape());
        check::same_shape("scatter", &values.shape(), &indices.shape());
        let [tensor, values] = [self, values].map(Self::into_backend);
        Self::wrap(B::scatter(tensor, dim, indices.into_backend(), values, update))
    }

    /// [`Tensor::scatter`] with indices that may count from the end.
    pub fn scatter_wrapped(
        self,
        dim: impl AsIndex,
        indices: Tensor<B, D, Int>,
        values: Self,
        update: ScatterOp,
    ) -> Self {
        let dim = check::dim("scatter", dim.as_index(), D);
        let size = self.shape()[dim];
        self.scatter(dim, Tensor::wrap(indexing::wrapped::<B>(indices.into_backend(), size)), values, update)
    }

    /// ONNX `GatherND`: the last dim of `indices` holds coordinates (which may be negative) in the dims after the first
    /// `batch_dims`, which both tensors share.
    pub fn gather_nd<const DI: usize, const D2: usize>(
        self,
        indices: Tensor<B, DI, Int>,
        batch_dims: usize,
    ) -> Tensor<B, D2, K> {
        Tensor::from_backend(indexing::gather_nd::<B>(
            self.into_backend(),
            indices.into_backend(),
            batch_dims,
        ))
    }

    /// ONNX `ScatterND`: combines slices of `updates` at the coordinates (which may be negative) that the last dim of
    /// `indices` holds.
    pub fn scatter_nd<const DI: usize, const DU: usize>(
        self,
        indices: Tensor<B, DI, Int>,
        updates: Tensor<B, DU, K>,
        update: ScatterOp,
    ) -> Self {
        check::same_dtype("scatter_nd", self.dtype(), updates.dtype());
        let (tensor, updates) = (self.into_backend(), updates.into_backend());
        Self::wrap(indexing::scatter_nd::<B>(tensor, indices.into_backend(), updates, update))
    }

    /// `value` where the mask is true, else the tensor; all broadcast.
    pub fn mask_where(self, mask: Tensor<B, D, Bool>, value: Self) -> Self {
        let [tensor, value] = [self, value].map(Self::into_backend);
        Self::wrap(erased::select_where::<B>(mask.into_backend(), value, tensor))
    }

    /// One value where the mask is true, else the tensor; both broadcast.
    pub fn mask_fill<E: Into<Scalar>>(self, mask: Tensor<B, D, Bool>, value: E) -> Self {
        Self::wrap(erased::mask_fill::<B>(self.into_backend(), mask.into_backend(), value.into()))
    }

    /// The indices of the elements that are not zero, `[n, rank]`, in row-major order. Reads the device: the size
    /// depends on the data.
    ///
    /// # Panics
    /// When the device failed.
    pub fn nonzero_indices(self) -> Tensor<B, 2, Int> {
        Tensor::wrap(check::ran("nonzero", B::nonzero(self.into_backend())))
    }

    /// [`Tensor::nonzero_indices`] without blocking the thread.
    ///
    /// # Panics
    /// When the device failed.
    pub async fn nonzero_indices_async(self) -> Tensor<B, 2, Int> {
        Tensor::wrap(check::ran("nonzero", B::nonzero_async(self.into_backend()).await))
    }

    /// The elements where the mask (of the tensor's shape) is true, in row-major order. Reads the device: the size
    /// depends on the data.
    pub fn masked_select(self, mask: Tensor<B, D, Bool>) -> Tensor<B, 1, K> {
        check::same_shape("masked_select", &self.shape(), &mask.shape());
        let positions = mask.reshape::<1, _>([-1]).nonzero_indices();
        self.reshape([-1]).select(0, positions.reshape([-1]))
    }

    /// [`Tensor::masked_select`] without blocking the thread.
    ///
    /// # Panics
    /// When the shapes differ, or the device failed.
    pub async fn masked_select_async(self, mask: Tensor<B, D, Bool>) -> Tensor<B, 1, K> {
        check::same_shape("masked_select", &self.shape(), &mask.shape());
        let positions = mask.reshape::<1, _>([-1]).nonzero_indices_async().await;
        self.reshape([-1]).select(0, positions.reshape([-1]))
    }

    /// Keeps the upper triangle of the last two dims, from the `diagonal`-th diagonal on; the rest becomes zero.
    pub fn triu(self, diagonal: i64) -> Self {
        ensure!(D >= 2, "triu", "rank {D} has no last two dims");
        Self::wrap(indexing::triangle::<B>(self.into_backend(), true, diagonal))
    }

    /// Keeps the lower triangle of the last two dims, up to the `diagonal`-th diagonal; the rest becomes zero.
    pub fn tril(self, diagonal: i64) -> Self {
        ensure!(D >= 2, "tril", "rank {D} has no last two dims");
        Self::wrap(indexing::triangle::<B>(self.into_backend(), false, diagonal))
    }

    /// For each element, a row of `num_classes` with 1 at the element's value and 0 elsewhere.
    pub fn one_hot<const D2: usize>(self, num_classes: usize) -> Tensor<B, D2, K> {
        self.one_hot_fill(num_classes, 1, 0, -1)
    }

    /// For each element (negative ones count from the end), `num_classes` values along a new dim at `axis`: `on_value` at
    /// the element's value, `off_value` elsewhere. A value that names no class has none on.
    pub fn one_hot_fill<const D2: usize>(
        self,
        num_classes: usize,
        on_value: impl Into<Scalar>,
        off_value: impl Into<Scalar>,
        axis: i64,
    ) -> Tensor<B, D2, K> {
        ensure!(D2 == D + 1, "one_hot", "rank {D} becomes {}, not {D2}", D + 1);
        let axis = check::dim("one_hot", axis as isize, D2);
        let dtype = self.dtype();
        let values = (on_value.into(), off_value.into());
        Tensor::wrap(indexing::one_hot::<B>(self.into_backend(), num_classes, values, dtype, axis))
    }

    /// [`Tensor::one_hot_fill`] with values of another kind and dtype.
    pub fn one_hot_as<const D2: usize, K2: TensorKind<B>>(
        self,
        num_classes: usize,
        on_value: impl Into<Scalar>,
        off_value: impl Into<Scalar>,
        axis: i64,
        dtype: crate::DType,
    ) -> Tensor<B, D2, K2> {
        ensure!(D2 == D + 1, "one_hot", "rank {D} becomes {}, not {D2}", D + 1);
        let axis = check::dim("one_hot", axis as isize, D2);
        let values = (on_value.into(), off_value.into());
        let dtype = held::<B>(dtype, &self.device());
        Tensor::from_backend(indexing::one_hot::<B>(self.into_backend(), num_classes, values, dtype, axis))
    }
}
