//! Walking strided operands row by row, with as few and as long rows as their strides allow.

use core::ops::Range;

/// Most dims that remain after merging.
const RANK: usize = 16;

/// `N` operands over common dims.
#[derive(Clone, Copy)]
pub(crate) struct Walk<const N: usize> {
    /// Dims in use; the last one is the row, and there is at least that.
    rank: usize,
    dims: [usize; RANK],
    strides: [[isize; RANK]; N],
}

/// A dim of a [`Walk`] that is not the row.
pub(crate) struct Axis<const N: usize> {
    at: usize,
    /// Its size.
    pub size: usize,
    /// Elements between its neighbours, for each operand.
    pub strides: [isize; N],
}

impl<const N: usize> Walk<N> {
    /// Merges neighbouring dims where every operand's strides allow, and leaves out dims of size 1.
    ///
    /// # Panics
    /// When more than 16 dims remain.
    pub fn new(dims: &[usize], stride: impl Fn(usize, usize) -> isize) -> Self {
        let mut walk = Self { rank: 0, dims: [1; RANK], strides: [[0; RANK]; N] };
        for (axis, &dim) in dims.iter().enumerate() {
            if dim == 1 {
                continue;
            }
            let last = walk.rank.wrapping_sub(1);
            let merges =
                walk.rank > 0 && (0..N).all(|n| walk.strides[n][last] == stride(n, axis) * dim as isize);
            let at = if merges { last } else { walk.rank };
            assert!(at < RANK, "more than {RANK} dims that cannot be merged: {dims:?}");
            walk.dims[at] = if merges { walk.dims[at] * dim } else { dim };
            for n in 0..N {
                walk.strides[n][at] = stride(n, axis);
            }
            walk.rank = at + 1;
        }
        walk.rank = walk.rank.max(1);
        walk
    }

    /// Elements of a row.
    pub fn row(&self) -> usize {
        self.dims[self.rank - 1]
    }

    /// Elements between neighbours in a row, for each operand.
    pub fn row_strides(&self) -> [isize; N] {
        core::array::from_fn(|n| self.strides[n][self.rank - 1])
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.dims[..self.rank - 1].iter().product()
    }

    /// The innermost dim but the row of which something holds, if any.
    pub fn axis_where(&self, is: impl Fn(&Axis<N>) -> bool) -> Option<Axis<N>> {
        let axis = |at: usize| Axis {
            at,
            size: self.dims[at],
            strides: core::array::from_fn(|n| self.strides[n][at]),
        };
        (0..self.rank - 1).rev().map(axis).find(is)
    }

    /// Whether no dim lies between it and the row.
    pub fn is_next_to_row(&self, axis: &Axis<N>) -> bool {
        axis.at + 2 == self.rank
    }

    /// The same with the rows' own dim and another one taken out: what is left to walk around the matrices of both.
    pub fn around(&self, axis: &Axis<N>) -> Self {
        let mut walk = *self;
        let rank = self.rank - 2;
        for at in axis.at..rank {
            walk.dims[at] = self.dims[at + 1];
            (0..N).for_each(|n| walk.strides[n][at] = self.strides[n][at + 1]);
        }
        walk.dims[rank] = 1;
        (0..N).for_each(|n| walk.strides[n][rank] = 0);
        walk.rank = rank + 1;
        walk
    }

    /// Calls `body` with each row's number and the operands' offsets.
    #[inline(always)]
    pub fn for_each(&self, rows: Range<usize>, mut body: impl FnMut(usize, [isize; N])) {
        let outer = self.rank - 1;
        let mut position = [0; RANK];
        let mut offsets = [0; N];
        let mut rest = rows.start;
        for axis in (0..outer).rev() {
            position[axis] = rest % self.dims[axis];
            rest /= self.dims[axis];
            for n in 0..N {
                offsets[n] += self.strides[n][axis] * position[axis] as isize;
            }
        }
        for row in rows {
            body(row, offsets);
            for axis in (0..outer).rev() {
                position[axis] += 1;
                (0..N).for_each(|n| offsets[n] += self.strides[n][axis]);
                if position[axis] < self.dims[axis] {
                    break;
                }
                position[axis] = 0;
                (0..N).for_each(|n| offsets[n] -= self.strides[n][axis] * self.dims[axis] as isize);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Walk;

    #[test]
    fn neighbouring_dims_merge_where_all_strides_allow() {
        let strides: [[isize; 4]; 2] = [[60, 12, 4, 1], [0, 1, 0, 0]];
        let walk = Walk::<2>::new(&[2, 5, 3, 4], |n, axis| strides[n][axis]);
        assert_eq!((walk.rows(), walk.row(), walk.row_strides()), (10, 12, [1, 0]));
        let mut seen = Vec::new();
        walk.for_each(4..7, |row, offsets| seen.push((row, offsets)));
        assert_eq!(seen, [(4, [48, 4]), (5, [60, 0]), (6, [72, 1])]);
    }

    #[test]
    fn a_scalar_is_one_row_of_one() {
        let walk = Walk::<1>::new(&[], |_, _| 0);
        assert_eq!((walk.rows(), walk.row()), (1, 1));
    }
}
