//! Where the elements of a tensor stand in its storage: the views of backends whose tensors share their memory.

use super::SliceRange;
use crate::{Dims, InlineVec, Shape};

/// Shape, strides and offset of a tensor, all in elements.
///
/// A stride may be 0 (a broadcast dim) or negative (a reversed one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The dims.
    pub shape: Shape,
    /// Distance between neighbours along each dim.
    pub strides: InlineVec<isize>,
    /// Position of the first element.
    pub offset: usize,
}

/// Row-major strides of a shape.
pub fn row_major(dims: &[usize]) -> InlineVec<isize> {
    let mut strides = InlineVec::new();
    row_major_into(dims, &mut strides);
    strides
}

/// [`row_major`] in the place of other strides.
pub fn row_major_into(dims: &[usize], strides: &mut InlineVec<isize>) {
    if strides.len() != dims.len() {
        *strides = InlineVec::repeat(1, dims.len());
    }
    let mut stride = 1;
    // The first dim, by which nothing is multiplied, may be of any size.
    for (i, to) in strides.iter_mut().enumerate().rev() {
        *to = stride;
        if i > 0 {
            stride *= dims[i].max(1) as isize;
        }
    }
}

/// Whether elements stand without gaps in the order of dims that come with their strides, the innermost first.
fn are_without_gaps<'a>(dims: impl Iterator<Item = (&'a usize, &'a isize)>) -> bool {
    let mut expected = 1;
    for (&dim, &stride) in dims {
        if dim == 0 {
            return true;
        }
        if dim != 1 && stride != expected {
            return false;
        }
        expected *= dim as isize;
    }
    true
}

impl Layout {
    /// Row-major from offset 0.
    pub fn contiguous(shape: Shape) -> Self {
        let strides = row_major(&shape.dims);
        Self { shape, strides, offset: 0 }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.shape.num_elements()
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.shape.dims.contains(&0)
    }

    /// Whether the elements stand in row-major order without gaps (from any offset).
    pub fn is_contiguous(&self) -> bool {
        are_without_gaps(self.shape.dims.iter().zip(&self.strides).rev())
    }

    /// The strides, if none is negative, as kernels take them.
    pub fn forward_strides(&self) -> Option<Dims> {
        self.strides.iter().map(|&stride| usize::try_from(stride).ok()).collect()
    }

    /// Whether the elements stand without gaps with the channels (dim 1) last, and not row-major as well.
    pub fn is_channels_last(&self) -> bool {
        let dims = || self.shape.dims.iter().zip(&self.strides);
        let channels_last = || dims().skip(1).take(1).chain(dims().skip(2).rev()).chain(dims().take(1));
        self.shape.rank() >= 3 && !self.is_contiguous() && are_without_gaps(channels_last())
    }

    /// The view with dim 1 moved behind the others.
    pub fn into_channels_last(mut self) -> Self {
        let (channels, stride) = (self.shape.dims.remove(1), self.strides.remove(1));
        self.shape.dims.push(channels);
        self.strides.push(stride);
        self
    }

    /// The view with the last dim moved to place 1.
    pub fn into_channels_first(mut self) -> Self {
        if let (Some(channels), Some(stride)) = (self.shape.dims.pop(), self.strides.pop()) {
            self.shape.dims.insert(1, channels);
            self.strides.insert(1, stride);
        }
        self
    }

    /// Output dim `i` is input dim `axes[i]`.
    pub fn permute(&self, axes: &[usize]) -> Self {
        let shape = axes.iter().map(|&axis| self.shape.dims[axis]).collect();
        let strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Self { shape, strides, offset: self.offset }
    }

    /// Broadcasts to a shape of the same or a higher rank; new and stretched dims get stride 0.
    ///
    /// # Panics
    /// When a dim is neither 1 nor equal.
    pub fn expand(&self, shape: &Shape) -> Self {
        Self { shape: shape.clone(), strides: self.expanded_strides(shape), offset: self.offset }
    }

    /// The strides of the [expanded](Self::expand) layout.
    ///
    /// # Panics
    /// When a dim is neither 1 nor equal.
    pub fn expanded_strides(&self, shape: &Shape) -> InlineVec<isize> {
        if self.shape == *shape {
            return self.strides.clone();
        }
        let lead = shape.rank().checked_sub(self.shape.rank());
        let fits = |lead: usize| {
            self.shape.dims.iter().zip(&shape.dims[lead..]).all(|(&from, &to)| from == to || from == 1)
        };
        let Some(lead) = lead.filter(|&lead| fits(lead)) else {
            panic!("expand: {} does not broadcast to {shape}", self.shape)
        };
        let mut strides = InlineVec::repeat(0, lead);
        for ((&from, &to), &stride) in self.shape.dims.iter().zip(&shape.dims[lead..]).zip(&self.strides) {
            strides.push(if from == to { stride } else { 0 });
        }
        strides
    }

    /// One range per dim.
    pub fn slice(&self, ranges: &[SliceRange]) -> Self {
        let mut out = self.clone();
        for (i, range) in ranges.iter().enumerate() {
            let len = range.len();
            if len > 0 {
                let first = if range.step > 0 { range.start } else { range.end - 1 };
                let moved = out.offset as isize + first as isize * self.strides[i];
                out.offset = moved as usize;
            }
            out.shape.dims[i] = len;
            out.strides[i] *= range.step;
        }
        if out.is_empty() {
            // What has no elements may have no memory, either, where others would begin.
            out.offset = 0;
        }
        out
    }

    /// The same elements in another shape without moving them, where the strides allow it.
    pub fn reshape(&self, shape: &Shape) -> Option<Self> {
        if self.is_empty() || self.is_contiguous() {
            return Some(Self { offset: self.offset, ..Self::contiguous(shape.clone()) });
        }
        // Runs of dims that one stride walks, innermost first; each new dim must divide such a run.
        let mut runs: InlineVec<(usize, isize)> = InlineVec::new();
        for (&dim, &stride) in self.shape.dims.iter().zip(&self.strides).rev() {
            match runs.last_mut() {
                _ if dim == 1 => {}
                Some((size, step)) if stride == *step * *size as isize => *size *= dim,
                _ => runs.push((dim, stride)),
            }
        }
        let mut runs = runs.into_iter();
        let (mut rest, mut step) = runs.next().unwrap_or((1, 1));
        let mut strides = InlineVec::repeat(0, shape.rank());
        for (i, &dim) in shape.dims.iter().enumerate().rev() {
            if dim == 1 {
                continue;
            }
            if rest == 1 {
                (rest, step) = runs.next()?;
            }
            if !rest.is_multiple_of(dim) {
                return None;
            }
            strides[i] = step;
            step *= dim as isize;
            rest /= dim;
        }
        Some(Self { shape: shape.clone(), strides, offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transposed() -> Layout {
        Layout::contiguous([2, 3, 4].into()).permute(&[1, 0, 2])
    }

    #[test]
    fn reshape_views_where_strides_allow() {
        let layout = transposed();
        assert_eq!(layout.reshape(&[3, 2, 2, 2].into()).map(|l| l.strides), Some([4, 12, 2, 1].into()));
        assert_eq!(layout.reshape(&[6, 4].into()), None);
        let expanded = Layout::contiguous([1, 4].into()).expand(&[3, 4].into());
        assert_eq!(expanded.reshape(&[3, 2, 2].into()).map(|l| l.strides), Some([0, 2, 1].into()));
        assert_eq!(expanded.reshape(&[12].into()), None);
    }

    #[test]
    fn slices_step_and_reverse() {
        let layout = Layout::contiguous([10].into());
        let forward = layout.slice(&[SliceRange { start: 1, end: 8, step: 3 }]);
        assert_eq!((forward.shape.dims, forward.strides, forward.offset), ([3].into(), [3].into(), 1));
        let backward = layout.slice(&[SliceRange { start: 1, end: 8, step: -3 }]);
        assert_eq!((backward.shape.dims, backward.strides, backward.offset), ([3].into(), [-3].into(), 7));
    }

    #[test]
    fn channels_move_there_and_back() {
        let image = Layout::contiguous([2, 5, 7, 3].into());
        let moved = image.clone().into_channels_first();
        assert_eq!(moved, image.permute(&[0, 3, 1, 2]));
        assert!(moved.is_channels_last() && !image.is_channels_last());
        assert!(!image.permute(&[0, 3, 2, 1]).is_channels_last());
        assert_eq!(moved.into_channels_last(), image);
    }

    #[test]
    fn contiguity_ignores_unit_dims() {
        assert!(Layout::contiguous([2, 1, 3].into()).permute(&[1, 0, 2]).is_contiguous());
        assert!(!transposed().is_contiguous());
    }
}
