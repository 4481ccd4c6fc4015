//! A backend's tensor, and ranges of its dims.

use crate::{DType, Shape};
use core::fmt::Debug;

/// A backend's tensor: any dtype, any rank, cheap to clone (a reference count).
pub trait Primitive: Clone + Debug + Send + Sync + 'static {
    /// The dims.
    fn dims(&self) -> &[usize];

    /// The dims, as a value of their own.
    fn shape(&self) -> Shape {
        Shape::from(self.dims())
    }

    /// The element type.
    fn dtype(&self) -> DType;

    /// A number for the work that computes the elements when they are first read, as long as nobody has: a backend may let work wait for whoever
    /// reads what it yields. Every view of a result has the same number, and no other tensor meanwhile.
    fn waiting(&self) -> Option<usize> {
        None
    }

    /// Does the work that waits. (Reading the elements does it too.)
    fn complete(&self) {}

    /// [`Primitive::complete`] for a convolution that rounds what it reads ([`Precision::Bf16`](crate::Precision)): a backend may round the result at once.
    fn complete_rounded(&self) {
        self.complete();
    }
}

/// `start..end` with a step along one dim, already inside the dim: `start <= end <= size`, `step != 0`.
///
/// A negative step walks the same elements `start..end` from the last one back, as Burn's `s![a..b;-1]` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SliceRange {
    /// First element.
    pub start: usize,
    /// One past the last element.
    pub end: usize,
    /// Distance between kept elements; negative reverses.
    pub step: isize,
}

impl SliceRange {
    /// All of a dim of the given size.
    pub fn full(size: usize) -> Self {
        Self { start: 0, end: size, step: 1 }
    }

    /// Number of elements that remain.
    pub fn len(&self) -> usize {
        self.end.saturating_sub(self.start).div_ceil(self.step.unsigned_abs().max(1))
    }

    /// Whether nothing remains.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
