//! Views of row-major elements: permuted, broadcast, sliced, repeated, without moving anything.

/// Dims with a stride each, into the row-major elements of another tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Strided {
    dims: Vec<usize>,
    strides: Vec<isize>,
    offset: isize,
}

impl Strided {
    /// All of a row-major tensor.
    pub fn new(dims: &[usize]) -> Self {
        let mut strides = vec![0; dims.len()];
        let mut stride = 1isize;
        for (slot, &dim) in strides.iter_mut().zip(dims).rev() {
            *slot = stride;
            stride = stride.saturating_mul(dim.max(1) as isize);
        }
        Self { dims: dims.to_vec(), strides, offset: 0 }
    }

    /// The dims.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// How far the next element along each dim is.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Where the first element is.
    pub fn offset(&self) -> isize {
        self.offset
    }

    /// How far the next element along each dim is, where none is before the one before it.
    pub(crate) fn steps(&self) -> Option<Vec<usize>> {
        self.strides.iter().map(|&stride| usize::try_from(stride).ok()).collect()
    }

    /// Number of elements of the view.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        super::elements(&self.dims)
    }

    /// Axis `i` of the result is axis `axes[i]`.
    pub(crate) fn permute(&self, axes: &[usize]) -> Self {
        let dims = axes.iter().map(|&axis| self.dims[axis]).collect();
        let strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Self { dims, strides, offset: self.offset }
    }

    /// Broadcast to dims of the same or a higher rank; `None` when they do not fit.
    pub(crate) fn expand(&self, dims: &[usize]) -> Option<Self> {
        let skip = dims.len().checked_sub(self.dims.len())?;
        let mut strides = vec![0; dims.len()];
        for (i, (&from, &stride)) in self.dims.iter().zip(&self.strides).enumerate() {
            if from == dims[skip + i] {
                strides[skip + i] = stride;
            } else if from != 1 {
                return None;
            }
        }
        Some(Self { dims: dims.to_vec(), strides, offset: self.offset })
    }

    /// `start..end` by `step` along one axis; a negative step walks from `end - 1` back. `None` when outside.
    pub(crate) fn slice(&self, axis: usize, start: usize, end: usize, step: i64) -> Option<Self> {
        if step == 0 || start > end || end > *self.dims.get(axis)? {
            return None;
        }
        let mut view = self.clone();
        let walk = isize::try_from(step).ok()?;
        let first = if step > 0 || end == start { start } else { end - 1 };
        view.offset += first as isize * self.strides[axis];
        view.strides[axis] = self.strides[axis].saturating_mul(walk);
        view.dims[axis] = (end - start).div_ceil(usize::try_from(step.unsigned_abs()).ok()?);
        Some(view)
    }

    /// Repeats each axis; the view has two axes for each.
    pub(crate) fn repeat(&self, times: &[usize]) -> Self {
        let (mut dims, mut strides) = (Vec::new(), Vec::new());
        for ((&dim, &stride), &times) in self.dims.iter().zip(&self.strides).zip(times) {
            dims.extend([times, dim]);
            strides.extend([0, stride]);
        }
        Self { dims, strides, offset: self.offset }
    }

    /// Visits the places of the elements in row-major order of the view.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize)) {
        if self.dims.contains(&0) {
            return;
        }
        let Some((&inner, outer)) = self.dims.split_last() else {
            return visit(self.offset as usize);
        };
        let inner_stride = self.strides[outer.len()];
        let mut index = vec![0usize; outer.len()];
        let mut place = self.offset;
        loop {
            let mut at = place;
            for _ in 0..inner {
                visit(at as usize);
                at = at.wrapping_add(inner_stride);
            }
            // Count up the outer index, last axis first.
            let mut axis = outer.len();
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                place += self.strides[axis];
                if index[axis] < outer[axis] {
                    break;
                }
                place -= self.strides[axis] * outer[axis] as isize;
                index[axis] = 0;
            }
        }
    }

    /// The elements of the view, in row-major order.
    pub(crate) fn gather<T: Clone>(&self, elements: &[T]) -> Vec<T> {
        let mut out = Vec::with_capacity(self.len());
        self.for_each(|at| out.push(elements[at].clone()));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_walk_in_row_major_order() {
        let elements: Vec<i32> = (0..6).collect();
        let view = Strided::new(&[2, 3]);
        assert_eq!(view.permute(&[1, 0]).gather(&elements), [0, 3, 1, 4, 2, 5]);
        assert_eq!(view.slice(1, 0, 3, -2).unwrap().gather(&elements), [2, 0, 5, 3]);
        let row = view.slice(0, 1, 2, 1).unwrap();
        assert_eq!(row.expand(&[2, 3]).unwrap().gather(&elements), [3, 4, 5, 3, 4, 5]);
        assert_eq!(view.repeat(&[1, 2]).gather(&elements), [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
        assert_eq!(Strided::new(&[]).gather(&elements), [0]);
        assert!(view.expand(&[3, 3]).is_none());
    }
}
