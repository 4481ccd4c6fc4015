//! The concrete shape of a tensor.

use crate::Dims;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The dims of a tensor, outermost first. Rank 0 (no dims) is a scalar with one element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// One size per dim.
    pub dims: Dims,
}

impl Shape {
    /// A shape from an array of dims.
    pub fn new<const D: usize>(dims: [usize; D]) -> Self {
        Self { dims: dims.into() }
    }

    /// Number of elements: the product of the dims, 1 for rank 0.
    ///
    /// # Panics
    /// When there are more than an `isize` counts, or would be if the dims that are 0 were not there: kernels rely on it that no product wraps.
    #[inline]
    #[track_caller]
    pub fn num_elements(&self) -> usize {
        match Self::count(&self.dims) {
            Some(elements) => elements,
            None => panic!("a shape {self} has more elements than memory can have"),
        }
    }

    /// The number of elements that dims have; `None` where [`Shape::num_elements`] panics.
    #[inline]
    pub fn count(dims: &[usize]) -> Option<usize> {
        let (mut elements, mut is_empty) = (1_usize, false);
        for &dim in dims {
            is_empty |= dim == 0;
            elements = elements.checked_mul(dim.max(1))?;
        }
        (elements <= isize::MAX as usize).then_some(if is_empty { 0 } else { elements })
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of dims.
    pub fn num_dims(&self) -> usize {
        self.dims.len()
    }

    /// The dims as an array.
    ///
    /// # Panics
    /// When the rank is not `D`.
    pub fn dims<const D: usize>(&self) -> [usize; D] {
        match self.as_slice().try_into() {
            Ok(dims) => dims,
            Err(_) => panic!("a shape of rank {D} was expected, got {:?}", self.dims),
        }
    }

    /// The dims as a slice.
    pub fn as_slice(&self) -> &[usize] {
        &self.dims
    }

    /// The shape that `self` and `other` broadcast to (numpy's rule, aligned at the last dim), if they do.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let dim = |shape: &Shape, i: usize| (i + shape.rank()).checked_sub(rank).map_or(1, |k| shape.dims[k]);
        let dims = (0..rank).map(|i| match (dim(self, i), dim(other, i)) {
            (a, b) if a == b => Some(a),
            (1, b) => Some(b),
            (a, 1) => Some(a),
            _ => None,
        });
        Some(Shape { dims: dims.collect::<Option<_>>()? })
    }
}

impl core::ops::Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.dims
    }
}

impl From<Shape> for Vec<usize> {
    fn from(shape: Shape) -> Self {
        shape.dims.into_vec()
    }
}

impl<I: core::slice::SliceIndex<[usize]>> core::ops::Index<I> for Shape {
    type Output = I::Output;

    fn index(&self, index: I) -> &I::Output {
        &self.dims[index]
    }
}

impl<const D: usize> From<[usize; D]> for Shape {
    fn from(dims: [usize; D]) -> Self {
        Self::new(dims)
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self { dims: dims.into() }
    }
}

impl From<Dims> for Shape {
    fn from(dims: Dims) -> Self {
        Self { dims }
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Self {
        Self { dims: dims.into_iter().collect() }
    }
}

impl From<&[usize]> for Shape {
    #[inline]
    fn from(dims: &[usize]) -> Self {
        Self { dims: dims.into() }
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Self {
        shape.clone()
    }
}

impl core::fmt::Display for Shape {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", self.dims)
    }
}
