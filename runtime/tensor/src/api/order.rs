//! Sorting, and the largest of many.

use super::base::Tensor;
use super::kind::{Int, Numeric};
use crate::args::AsIndex;
use crate::backend::Backend;
use crate::check;
use crate::check::ensure;

impl<B: Backend, const D: usize, K: Numeric<B>> Tensor<B, D, K> {
    fn sorted(self, dim: isize, descending: bool) -> (Self, Tensor<B, D, Int>) {
        let dim = check::dim("sort", dim, D);
        let (values, indices) = B::sort(self.into_backend(), dim, descending);
        (Self::wrap(values), Tensor::wrap(indices))
    }

    /// Sorts along a dim, smallest first; stable; NaN counts as the largest.
    pub fn sort(self, dim: impl AsIndex) -> Self {
        self.sorted(dim.as_index(), false).0
    }

    /// Sorts along a dim, largest first; stable.
    pub fn sort_descending(self, dim: impl AsIndex) -> Self {
        self.sorted(dim.as_index(), true).0
    }

    /// [`Tensor::sort`] with the elements' former indices.
    pub fn sort_with_indices(self, dim: impl AsIndex) -> (Self, Tensor<B, D, Int>) {
        self.sorted(dim.as_index(), false)
    }

    /// [`Tensor::sort_descending`] with the elements' former indices.
    pub fn sort_descending_with_indices(self, dim: impl AsIndex) -> (Self, Tensor<B, D, Int>) {
        self.sorted(dim.as_index(), true)
    }

    /// The indices that sort along a dim, smallest first.
    pub fn argsort(self, dim: impl AsIndex) -> Tensor<B, D, Int> {
        self.sorted(dim.as_index(), false).1
    }

    /// The indices that sort along a dim, largest first.
    pub fn argsort_descending(self, dim: impl AsIndex) -> Tensor<B, D, Int> {
        self.sorted(dim.as_index(), true).1
    }

    /// The `k` largest along a dim, largest first.
    pub fn topk(self, k: usize, dim: impl AsIndex) -> Self {
        self.topk_with_indices(k, dim).0
    }

    /// The `k` largest along a dim, largest first, and their indices.
    pub fn topk_with_indices(self, k: usize, dim: impl AsIndex) -> (Self, Tensor<B, D, Int>) {
        self.topk_by(k, dim, true)
    }

    /// The `k` largest, or smallest, along a dim, in that order, and their indices.
    pub fn topk_by(self, k: usize, dim: impl AsIndex, largest: bool) -> (Self, Tensor<B, D, Int>) {
        let dim = check::dim("topk", dim.as_index(), D);
        let shape = self.shape();
        ensure!(k <= shape[dim], "topk", "dim {dim} of {shape} has fewer than {k} elements");
        let (values, indices) = B::topk(self.into_backend(), k, dim, largest);
        (Self::wrap(values), Tensor::wrap(indices))
    }
}
