//! From the position of a result's element to those of operands' elements.

use crate::language::{Builder, Value};
use kiln_tensor::{Dims, InlineVec};
use smallvec::SmallVec;

/// How the elements of an operand lie as a result is walked row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// One after another.
    Linear,
    /// The same one for all.
    Single,
    /// By a stride per dim.
    Strided,
    /// Likewise, neighbours along the innermost dim one after another. The first and every fourth of these begin at multiples of four.
    Runs,
}

/// Dims and the strides of several operands over them, in as few dims as all of them allow.
///
/// Dims of size 1 are left out, and neighbours that every operand walks as one are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The dims.
    pub dims: Dims,
    /// One stride per dim for each operand.
    pub strides: SmallVec<[InlineVec<isize>; 8]>,
}

impl Walk {
    /// The walk over `dims`, along which operands have the given strides.
    #[inline]
    pub fn new(dims: &[usize], strides: &[&[isize]]) -> Self {
        let mut walk = Walk { dims: Dims::new(), strides: SmallVec::new() };
        walk.strides.resize_with(strides.len(), InlineVec::new);
        for (axis, &dim) in dims.iter().enumerate() {
            if dim == 1 {
                continue;
            }
            let joins =
                !walk.dims.is_empty()
                    && walk.strides.iter().zip(strides).all(|(outer, strides)| {
                        outer.last().copied() == strides[axis].checked_mul(dim as isize)
                    });
            if joins && let Some(last) = walk.dims.last_mut() {
                *last *= dim;
                for (own, strides) in walk.strides.iter_mut().zip(strides) {
                    if let Some(last) = own.last_mut() {
                        *last = strides[axis];
                    }
                }
            } else {
                walk.dims.push(dim);
                for (own, strides) in walk.strides.iter_mut().zip(strides) {
                    own.push(strides[axis]);
                }
            }
        }
        walk
    }

    /// How an operand is read.
    #[inline]
    pub fn access(&self, operand: usize) -> Access {
        let strides = &self.strides[operand];
        if strides.iter().all(|&stride| stride == 0) {
            return Access::Single;
        }
        let mut expected = 1;
        for (&dim, &stride) in self.dims.iter().zip(strides).rev() {
            if stride != expected {
                return Access::Strided;
            }
            expected *= dim as isize;
        }
        Access::Linear
    }

    /// Whether an operand that begins at an element is read by strides, in [runs](Access::Runs), whose length is a multiple of four.
    pub fn is_of_runs(&self, operand: usize, start: usize) -> bool {
        let Some((&last, outer)) = self.strides[operand].split_last() else { return false };
        let whole = self.dims.last().is_some_and(|&dim| dim % 4 == 0);
        let aligned = start.is_multiple_of(4) && outer.iter().all(|&stride| stride % 4 == 0);
        self.access(operand) == Access::Strided && whole && last == 1 && aligned
    }

    /// The words that tell a kernel the dims.
    pub fn dim_words(&self) -> impl Iterator<Item = u32> {
        self.dims.iter().map(|&dim| dim as u32)
    }

    /// The words that tell a kernel an operand's strides: none unless it is read by them.
    pub fn stride_words(&self, operand: usize) -> impl Iterator<Item = u32> {
        let strided = self.access(operand) == Access::Strided;
        self.strides[operand].iter().filter(move |_| strided).map(|&stride| word(stride))
    }
}

/// A stride or an offset as a word; what is negative wraps, as all arithmetic on positions does.
pub fn word(offset: isize) -> u32 {
    offset as i32 as u32
}

/// The coordinates of a position over dims, outermost first.
pub fn coordinates<'k>(position: Value<'k>, dims: &[Value<'k>]) -> Vec<Value<'k>> {
    let mut rest = position;
    let mut coordinates = Vec::with_capacity(dims.len());
    for (axis, &dim) in dims.iter().enumerate().rev() {
        if axis == 0 {
            coordinates.push(rest);
        } else {
            coordinates.push(rest % dim);
            rest = rest / dim;
        }
    }
    coordinates.reverse();
    coordinates
}

/// `start + Σ coordinate · stride`.
pub fn offset<'k>(start: Value<'k>, coordinates: &[Value<'k>], strides: &[Value<'k>]) -> Value<'k> {
    coordinates.iter().zip(strides).fold(start, |sum, (&coordinate, &stride)| sum + coordinate * stride)
}

/// The position so many behind another.
pub fn behind(position: Value<'_>, n: u32) -> Value<'_> {
    if n == 0 { position } else { position + n }
}

/// The parameters of an operand: where it starts and, if it is read by them, its strides.
pub struct Operand<'k> {
    access: Access,
    start: Value<'k>,
    strides: Vec<Value<'k>>,
}

impl<'k> Operand<'k> {
    /// The next parameters as those of an operand over `rank` dims.
    pub fn declare(kernel: &'k Builder, access: Access, rank: usize) -> Self {
        let start = kernel.parameter();
        let strides = match access {
            Access::Strided | Access::Runs => kernel.parameters(rank),
            Access::Linear | Access::Single => Vec::new(),
        };
        Self { access, start, strides }
    }

    /// Where the operand's elements are for a position and its neighbours behind it along the innermost dim: so many in all.
    pub fn neighbours(&self, position: Value<'k>, coordinates: &[Value<'k>], count: u32) -> Vec<Value<'k>> {
        let first = self.at(position, coordinates);
        let neighbour = |n: u32| match (self.access, self.strides.last()) {
            (Access::Linear | Access::Runs, _) => behind(first, n),
            (Access::Strided, Some(&stride)) if n > 0 => first + stride * n,
            (Access::Single | Access::Strided, _) => first,
        };
        (0..count).map(neighbour).collect()
    }

    /// Where the operand's element for a position is.
    pub fn at(&self, position: Value<'k>, coordinates: &[Value<'k>]) -> Value<'k> {
        match self.access {
            Access::Linear => self.start + position,
            Access::Single => self.start,
            Access::Strided | Access::Runs => offset(self.start, coordinates, &self.strides),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    #[test]
    fn dims_join_where_all_operands_allow() {
        let walk = Walk::new(&[2, 1, 3, 4], &[&[12, 12, 4, 1], &[12, 0, 4, 1]]);
        assert_eq!(walk, Walk { dims: [24].into(), strides: smallvec![[1].into(), [1].into()] });
        assert_eq!(walk.access(0), Access::Linear);
        let walk = Walk::new(&[2, 3, 4], &[&[12, 4, 1], &[0, 0, 1]]);
        assert_eq!(walk, Walk { dims: [6, 4].into(), strides: smallvec![[4, 1].into(), [0, 1].into()] });
        assert_eq!((walk.access(0), walk.access(1)), (Access::Linear, Access::Strided));
    }

    #[test]
    fn runs_begin_at_multiples_of_four() {
        let walk = |strides: &[isize]| Walk::new(&[3, 8], &[strides]);
        assert!(walk(&[12, 1]).is_of_runs(0, 8));
        assert!(walk(&[0, 1]).is_of_runs(0, 0) && walk(&[-12, 1]).is_of_runs(0, 24));
        assert!(!walk(&[12, 1]).is_of_runs(0, 2) && !walk(&[10, 1]).is_of_runs(0, 0));
        assert!(!walk(&[16, 2]).is_of_runs(0, 0) && !walk(&[8, 1]).is_of_runs(0, 0));
        assert!(!Walk::new(&[3, 6], &[&[8, 1]]).is_of_runs(0, 0));
    }

    #[test]
    fn what_has_one_element_is_read_once() {
        let walk = Walk::new(&[2, 3], &[&[3, 1], &[0, 0]]);
        assert_eq!(walk.access(1), Access::Single);
        let empty = Walk { dims: Dims::new(), strides: smallvec![InlineVec::new()] };
        assert_eq!(Walk::new(&[1, 1], &[&[1, 1]]), empty);
        assert_eq!(Walk::new(&[1], &[&[7]]).access(0), Access::Single);
    }

    #[test]
    fn reversed_dims_stay_strided() {
        let walk = Walk::new(&[2, 3], &[&[3, -1]]);
        assert_eq!((walk.access(0), walk.dims.clone()), (Access::Strided, [2, 3].into()));
        assert_eq!(walk.stride_words(0).collect::<Vec<_>>(), [3, u32::MAX]);
    }
}
