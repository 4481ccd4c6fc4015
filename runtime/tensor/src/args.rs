//! Argument types of `Tensor` methods: indices, slices, shapes with inferred dims.

use crate::backend::SliceRange;
use crate::check::{self, ensure};
use crate::{Dims, InlineVec, PadMode, Scalar, Shape};
use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// An integer that names a dim or a position; negative ones count from the end.
pub trait AsIndex: Copy + Debug {
    /// Whether the type can be negative.
    const SIGNED: bool;

    /// The number.
    fn as_index(self) -> isize;
}

impl<T: AsIndex> AsIndex for &T {
    const SIGNED: bool = T::SIGNED;

    fn as_index(self) -> isize {
        (*self).as_index()
    }
}

macro_rules! as_index {
    ($($ty:ty: $signed:literal),*) => {
        $(impl AsIndex for $ty {
            const SIGNED: bool = $signed;

            fn as_index(self) -> isize {
                self as isize
            }
        })*
    };
}

as_index!(usize: false, u64: false, u32: false, u16: false, u8: false, isize: true, i64: true, i32: true, i16: true,
    i8: true);

/// The part of one dim that a slice keeps. Negative bounds count from the end; bounds beyond the dim are cut to it. A
/// negative step walks the same elements from the last one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// First element.
    pub start: isize,
    /// One past the last; the dim's end when absent.
    pub end: Option<isize>,
    /// Distance between kept elements; not 0.
    pub step: isize,
}

impl Default for Slice {
    fn default() -> Self {
        Self::full()
    }
}

impl Slice {
    /// `start..end` in steps.
    ///
    /// # Panics
    /// When the step is 0.
    pub fn new<I: AsIndex>(start: I, end: Option<I>, step: isize) -> Self {
        ensure!(step != 0, "slice", "the step is 0");
        Self { start: start.as_index(), end: end.map(AsIndex::as_index), step }
    }

    /// The whole dim.
    pub const fn full() -> Self {
        Self { start: 0, end: None, step: 1 }
    }

    /// One element; its dim stays with size 1.
    pub const fn index(index: isize) -> Self {
        Self { start: index, end: if index == -1 { None } else { Some(index + 1) }, step: 1 }
    }

    /// A range with a step.
    ///
    /// # Panics
    /// When the step is 0.
    pub fn from_range_stepped<R: Into<Slice>>(range: R, step: isize) -> Self {
        let Slice { start, end, .. } = range.into();
        Self::new(start, end, step)
    }

    /// The range within a dim of the given size.
    pub fn to_range(&self, size: usize) -> SliceRange {
        let bound = |at: isize| {
            let at = if at < 0 { at + size as isize } else { at };
            at.clamp(0, size as isize) as usize
        };
        let end = self.end.map_or(size, bound);
        let start = bound(self.start).min(end);
        SliceRange { start, end, step: self.step }
    }
}

impl<I: AsIndex> From<Range<I>> for Slice {
    fn from(range: Range<I>) -> Self {
        Self::new(range.start, Some(range.end), 1)
    }
}

impl<I: AsIndex> From<RangeInclusive<I>> for Slice {
    fn from(range: RangeInclusive<I>) -> Self {
        Self { start: range.start().as_index(), ..Self::index(range.end().as_index()) }
    }
}

impl<I: AsIndex> From<RangeFrom<I>> for Slice {
    fn from(range: RangeFrom<I>) -> Self {
        Self::new(range.start, None, 1)
    }
}

impl<I: AsIndex> From<RangeTo<I>> for Slice {
    fn from(range: RangeTo<I>) -> Self {
        Self::new(0, Some(range.end.as_index()), 1)
    }
}

impl<I: AsIndex> From<RangeToInclusive<I>> for Slice {
    fn from(range: RangeToInclusive<I>) -> Self {
        Self { start: 0, ..Self::index(range.end.as_index()) }
    }
}

impl From<RangeFull> for Slice {
    fn from(_: RangeFull) -> Self {
        Self::full()
    }
}

macro_rules! slice_from_index {
    ($($ty:ty),*) => {
        $(impl From<$ty> for Slice {
            fn from(index: $ty) -> Self {
                Self::index(index as isize)
            }
        })*
    };
}

slice_from_index!(usize, isize, i64, i32);

/// What `slice` takes: one range, or an array of ranges for the first dims. See [`s!`](crate::s).
pub trait SliceArg {
    /// One range per dim.
    fn into_ranges(self, shape: &Shape) -> InlineVec<SliceRange>;
}

/// Ranges of the first dims, and the other dims whole.
#[track_caller]
fn ranges(slices: impl ExactSizeIterator<Item = Slice>, shape: &Shape) -> InlineVec<SliceRange> {
    ensure!(
        slices.len() <= shape.rank(),
        "slice",
        "{} ranges were given for a tensor of shape {shape}",
        slices.len()
    );
    let slices = slices.chain(core::iter::repeat(Slice::full()));
    shape.iter().zip(slices).map(|(&size, slice)| slice.to_range(size)).collect()
}

impl<S: Into<Slice> + Clone> SliceArg for &[S] {
    fn into_ranges(self, shape: &Shape) -> InlineVec<SliceRange> {
        ranges(self.iter().map(|slice| slice.clone().into()), shape)
    }
}

impl<S: Into<Slice> + Clone> SliceArg for &Vec<S> {
    fn into_ranges(self, shape: &Shape) -> InlineVec<SliceRange> {
        self.as_slice().into_ranges(shape)
    }
}

impl<S: Into<Slice>, const R: usize> SliceArg for [S; R] {
    fn into_ranges(self, shape: &Shape) -> InlineVec<SliceRange> {
        ranges(self.into_iter().map(Into::into), shape)
    }
}

impl<S: Into<Slice>> SliceArg for S {
    fn into_ranges(self, shape: &Shape) -> InlineVec<SliceRange> {
        ranges(core::iter::once(self.into()), shape)
    }
}

/// Ranges for `slice`, with steps after semicolons: `s![1.., 0..-1;2, 3]`.
///
/// A range of any form, an index (its dim stays, with size 1), negative bounds counting from the end. A negative step
/// reverses what the range covers.
#[macro_export]
macro_rules! s {
    (@parse [$($done:expr,)*]) => { [$($done),*] };
    (@parse [$($done:expr,)*] $range:expr; $step:expr $(, $($rest:tt)*)?) => {
        $crate::s!(@parse [$($done,)* $crate::Slice::from_range_stepped($range, $step),] $($($rest)*)?)
    };
    (@parse [$($done:expr,)*] $range:expr $(, $($rest:tt)*)?) => {
        $crate::s!(@parse [$($done,)* $crate::Slice::from($range),] $($($rest)*)?)
    };
    ($range:expr; $step:expr) => { $crate::Slice::from_range_stepped($range, $step) };
    ($range:expr) => { $crate::Slice::from($range) };
    ($($all:tt)+) => { $crate::s!(@parse [] $($all)+) };
}

/// A shape for `reshape`: -1 (at most once) is inferred, 0 keeps the dim at its place.
pub trait ReshapeArgs<const D2: usize> {
    /// The shape for a tensor of the given shape.
    fn into_shape(self, current: &Shape) -> Shape;
}

impl<const D2: usize> ReshapeArgs<D2> for Shape {
    fn into_shape(self, _current: &Shape) -> Shape {
        check::rank("reshape", &self, D2);
        self
    }
}

impl<const D2: usize, I: AsIndex> ReshapeArgs<D2> for [I; D2] {
    fn into_shape(self, current: &Shape) -> Shape {
        inferred_shape(&self.map(AsIndex::as_index), I::SIGNED, current)
    }
}

/// Resolves -1 and 0. In an unsigned shape 0 means 0 when the tensor is empty; otherwise it could not be meant.
#[track_caller]
fn inferred_shape(dims: &[isize], signed: bool, current: &Shape) -> Shape {
    let literal_zero = !signed && current.num_elements() == 0;
    let mut inferred = None;
    let mut shape = Dims::new();
    for (i, &dim) in dims.iter().enumerate() {
        shape.push(match dim {
            0 if !literal_zero => match current.dims.get(i) {
                Some(&size) => size,
                None => check::fail("reshape", format_args!("0 at dim {i} keeps a dim that {current} lacks")),
            },
            -1 if inferred.is_none() => {
                inferred = Some(i);
                1
            }
            dim if dim >= 0 => dim as usize,
            _ => check::fail(
                "reshape",
                format_args!("{dims:?} is not a shape for a tensor of shape {current}"),
            ),
        });
    }
    if let Some(i) = inferred {
        let others: usize = shape.iter().product();
        ensure!(
            others > 0 && current.num_elements().is_multiple_of(others),
            "reshape",
            "{current} cannot become {dims:?}: no size for -1 fits"
        );
        shape[i] = current.num_elements() / others;
    }
    Shape::from(shape)
}

/// A shape for `expand`: -1 keeps a dim.
pub trait BroadcastArgs<const D1: usize, const D2: usize> {
    /// The shape for a tensor of the given shape.
    fn into_shape(self, current: &Shape) -> Shape;
}

impl<const D1: usize, const D2: usize> BroadcastArgs<D1, D2> for Shape {
    fn into_shape(self, _current: &Shape) -> Shape {
        check::rank("expand", &self, D2);
        self
    }
}

impl<const D1: usize, const D2: usize, I: AsIndex> BroadcastArgs<D1, D2> for [I; D2] {
    fn into_shape(self, current: &Shape) -> Shape {
        let dims = self.iter().enumerate().map(|(i, dim)| match dim.as_index() {
            -1 => match (i + D1).checked_sub(D2).and_then(|i| current.dims.get(i)) {
                Some(&size) => size,
                None => check::fail("expand", format_args!("-1 at dim {i} keeps a dim that {current} lacks")),
            },
            dim if dim >= 0 => dim as usize,
            dim => check::fail("expand", format_args!("{dim} is not a size")),
        });
        dims.collect()
    }
}

/// Dims for `movedim`: one, or several.
pub trait MovedimArgs {
    /// The dims as written.
    fn into_dims(self) -> InlineVec<isize>;
}

impl MovedimArgs for usize {
    fn into_dims(self) -> InlineVec<isize> {
        [self as isize].into()
    }
}

impl MovedimArgs for i32 {
    fn into_dims(self) -> InlineVec<isize> {
        [self as isize].into()
    }
}

impl<I: AsIndex> MovedimArgs for Vec<I> {
    fn into_dims(self) -> InlineVec<isize> {
        self.into_iter().map(AsIndex::as_index).collect()
    }
}

/// How much `pad` puts around: `(left, right, top, bottom)` of the last two dims, or pairs `(before, after)` of the last
/// dims.
pub trait PadArg<const D: usize> {
    /// One pair per dim.
    fn into_sides(self) -> [(usize, usize); D];
}

impl<const D: usize> PadArg<D> for (usize, usize, usize, usize) {
    fn into_sides(self) -> [(usize, usize); D] {
        let (left, right, top, bottom) = self;
        PadArg::<D>::into_sides([(top, bottom), (left, right)])
    }
}

impl<const D: usize, const N: usize> PadArg<D> for [(usize, usize); N] {
    fn into_sides(self) -> [(usize, usize); D] {
        ensure!(N <= D, "pad", "{N} pairs for rank {D}");
        core::array::from_fn(|dim| (dim + N).checked_sub(D).map_or((0, 0), |i| self[i]))
    }
}

/// What stands outside a padded tensor: a value, or a [`PadMode`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Padding {
    pub(crate) mode: PadMode,
    pub(crate) value: Scalar,
}

impl From<PadMode> for Padding {
    fn from(mode: PadMode) -> Self {
        Self { mode, value: Scalar::Int(0) }
    }
}

macro_rules! padding_from_value {
    ($($ty:ty),*) => {
        $(impl From<$ty> for Padding {
            fn from(value: $ty) -> Self {
                Self { mode: PadMode::Constant, value: value.into() }
            }
        })*
    };
}

padding_from_value!(f64, f32, i64, i32, i16, i8, u64, u32, u16, u8, bool, Scalar);
