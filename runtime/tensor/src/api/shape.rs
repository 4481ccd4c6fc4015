//! Shapes: the same elements, otherwise arranged; parts and joins.

use super::base::Tensor;
use super::kind::TensorKind;
use crate::args::{AsIndex, BroadcastArgs, MovedimArgs, PadArg, Padding, ReshapeArgs};
use crate::backend::Backend;
use crate::check::{self, ensure};
use crate::{Dims, InlineVec, PadMode, Scalar, Shape, erased};
use alloc::vec::Vec;

impl<B: Backend, const D: usize, K: TensorKind<B>> Tensor<B, D, K> {
    /// The same elements in row-major order under another shape: an array of sizes, in which -1 (once) is inferred and
    /// 0 keeps the dim at its place, or a [`Shape`].
    ///
    /// # Panics
    /// When the number of elements differs.
    pub fn reshape<const D2: usize, S: ReshapeArgs<D2>>(self, shape: S) -> Tensor<B, D2, K> {
        let current = self.shape();
        let shape = shape.into_shape(&current);
        if shape == current {
            return Tensor::wrap(self.into_backend());
        }
        check::reshape(&current, &shape);
        Tensor::wrap(B::reshape(self.into_backend(), shape))
    }

    /// Like [`Tensor::reshape`], but that a 0 is a size.
    ///
    /// # Panics
    /// When the number of elements differs, or -1 stands beside a 0.
    pub fn reshape_exact<const D2: usize>(self, dims: [i64; D2]) -> Tensor<B, D2, K> {
        let current = self.shape();
        let rest = dims.iter().filter(|&&dim| dim != -1).map(|&dim| dim.max(0) as usize).product::<usize>();
        let size = |dim: i64| match (usize::try_from(dim), dim) {
            (Ok(size), _) => size,
            (Err(_), -1) if rest > 0 => current.num_elements() / rest,
            (Err(_), _) => check::fail("reshape", format_args!("{dim} is no size in {dims:?}")),
        };
        let shape = Shape::new(dims.map(size));
        check::reshape(&current, &shape);
        Tensor::wrap(B::reshape(self.into_backend(), shape))
    }

    /// Gives the elements other dims, decided at run time.
    fn with_dims<const D2: usize>(self, op: &str, dims: Dims) -> Tensor<B, D2, K> {
        ensure!(dims.len() == D2, op, "{:?} becomes {dims:?}, rank {D2} was expected", self.shape().dims);
        Tensor::wrap(B::reshape(self.into_backend(), Shape::from(dims)))
    }

    /// Swaps the last two dims.
    ///
    /// # Panics
    /// When the rank is below 2.
    pub fn transpose(self) -> Self {
        ensure!(D >= 2, "transpose", "rank {D} has no two dims to swap");
        self.swap_dims(D - 2, D - 1)
    }

    /// See [`Tensor::transpose`].
    pub fn t(self) -> Self {
        self.transpose()
    }

    /// Swaps two dims.
    pub fn swap_dims(self, dim1: impl AsIndex, dim2: impl AsIndex) -> Self {
        let a = check::dim("swap_dims", dim1.as_index(), D);
        let b = check::dim("swap_dims", dim2.as_index(), D);
        if a == b {
            return self;
        }
        Self::wrap(B::permute(self.into_backend(), &crate::compose::calc::swapped(D, a, b)))
    }

    /// Reorders the dims: dim `i` of the result is dim `axes[i]`.
    pub fn permute<I: AsIndex>(self, axes: [I; D]) -> Self {
        let axes = check::permutation("permute", axes.into_iter().map(AsIndex::as_index), D);
        Self::wrap(B::permute(self.into_backend(), &axes))
    }

    /// Moves dims `src` to the places `dst`; the others keep their order.
    pub fn movedim<S1: MovedimArgs, S2: MovedimArgs>(self, src: S1, dst: S2) -> Self {
        let axes = erased::movedim(&src.into_dims(), &dst.into_dims(), D);
        Self::wrap(B::permute(self.into_backend(), &axes))
    }

    /// Reverses the order of elements along dims.
    pub fn flip<I: AsIndex, const N: usize>(self, axes: [I; N]) -> Self {
        let axes = check::dims("flip", axes.into_iter().map(AsIndex::as_index), D);
        Self::wrap(erased::flip::<B>(self.into_backend(), &axes))
    }

    /// Shifts elements along a dim; what leaves at one end enters at the other.
    pub fn roll_dim(self, shift: impl AsIndex, dim: impl AsIndex) -> Self {
        let dim = check::dim("roll", dim.as_index(), D);
        Self::wrap(erased::roll::<B>(self.into_backend(), shift.as_index(), dim))
    }

    /// Shifts elements along several dims.
    pub fn roll<S: AsIndex, I: AsIndex>(self, shifts: &[S], dims: &[I]) -> Self {
        ensure!(shifts.len() == dims.len(), "roll", "{} shifts for {} dims", shifts.len(), dims.len());
        shifts.iter().zip(dims).fold(self, |tensor, (shift, dim)| tensor.roll_dim(shift, dim))
    }

    /// Joins the dims from `start_dim` to `end_dim` (included) into one.
    pub fn flatten<const D2: usize>(
        self,
        start_dim: impl AsIndex,
        end_dim: impl AsIndex,
    ) -> Tensor<B, D2, K> {
        let mut dims = self.shape().dims;
        if D == 0 {
            return self.with_dims("flatten", [1].into());
        }
        let start = check::dim("flatten", start_dim.as_index(), D);
        let end = check::dim("flatten", end_dim.as_index(), D);
        ensure!(start <= end, "flatten", "dim {start} comes after dim {end}");
        let size = dims[start..=end].iter().product();
        dims.splice(start..end + 1, [size]);
        self.with_dims("flatten", dims)
    }

    /// Drops dims of size 1, the first ones first, until rank `D2` is reached.
    ///
    /// # Panics
    /// When there are not enough such dims.
    pub fn squeeze<const D2: usize>(self) -> Tensor<B, D2, K> {
        let mut excess = D.saturating_sub(D2);
        let mut dims = self.shape().dims;
        // All dims of size 1 go when that gives the rank; else as many as needed.
        dims.retain(|&size| {
            let drop = size == 1 && excess > 0;
            excess -= usize::from(drop);
            !drop
        });
        self.with_dims("squeeze", dims)
    }

    /// Drops a dim of size 1.
    pub fn squeeze_dim<const D2: usize>(self, dim: impl AsIndex) -> Tensor<B, D2, K> {
        self.squeeze_dims(&[dim.as_index()])
    }

    /// Drops dims of size 1.
    pub fn squeeze_dims<const D2: usize>(self, dims: &[impl AsIndex]) -> Tensor<B, D2, K> {
        let shape = self.shape();
        let dropped = check::dims("squeeze", dims.iter().map(AsIndex::as_index), D);
        for &dim in &dropped {
            ensure!(shape[dim] == 1, "squeeze", "dim {dim} of {shape} is not 1");
        }
        let kept = (0..D).filter(|dim| !dropped.contains(dim)).map(|dim| shape[dim]);
        self.with_dims("squeeze", kept.collect())
    }

    /// Puts dims of size 1 in front, up to rank `D2`.
    pub fn unsqueeze<const D2: usize>(self) -> Tensor<B, D2, K> {
        let mut dims = Dims::repeat(1, D2.saturating_sub(D));
        dims.extend_from_slice(&self.shape());
        self.with_dims("unsqueeze", dims)
    }

    /// Puts in a dim of size 1 at `dim`.
    pub fn unsqueeze_dim<const D2: usize>(self, dim: impl AsIndex) -> Tensor<B, D2, K> {
        self.unsqueeze_dims(&[dim.as_index()])
    }

    /// Puts in dims of size 1, so that they have these places in the result. As in Burn, a place that is given again is the next one, and
    /// each negative one counts from the end of what those before it leave: `[0, -1, -1]` makes `[1, 3, 4, 5, 1, 1]` of `[3, 4, 5]`.
    pub fn unsqueeze_dims<const D2: usize>(self, dims: &[impl AsIndex]) -> Tensor<B, D2, K> {
        let rank = D + dims.len();
        let mut end = rank;
        let place = |dim: isize| match dim < 0 {
            true => {
                let place = check::dim("unsqueeze", dim, end);
                end -= 1;
                place
            }
            false => check::dim("unsqueeze", dim, rank),
        };
        let mut places: Dims = dims.iter().map(AsIndex::as_index).map(place).collect();
        places.sort_unstable();
        let mut shape = self.shape().dims;
        let mut next = 0;
        for place in places {
            let place = place.max(next).min(shape.len());
            shape.insert(place, 1);
            next = place + 1;
        }
        self.with_dims("unsqueeze", shape)
    }

    /// Broadcasts to a shape (an array of sizes, in which -1 keeps a dim, or a [`Shape`]) of the same or a higher rank.
    ///
    /// # Panics
    /// When a dim is neither 1 nor the wanted size.
    pub fn expand<const D2: usize, S: BroadcastArgs<D, D2>>(self, shape: S) -> Tensor<B, D2, K> {
        let current = self.shape();
        let shape = shape.into_shape(&current);
        if shape == current {
            return Tensor::wrap(self.into_backend());
        }
        check::expand(&current, &shape);
        Tensor::wrap(B::expand(self.into_backend(), shape))
    }

    /// Repeats one dim.
    pub fn repeat_dim(self, dim: impl AsIndex, times: usize) -> Self {
        let mut all = [1; D];
        all[check::dim("repeat_dim", dim.as_index(), D)] = times;
        self.repeat(&all)
    }

    /// Repeats each dim; dims without a number stay.
    pub fn repeat(self, times: &[usize]) -> Self {
        ensure!(times.len() <= D, "repeat", "{} numbers for rank {D}", times.len());
        let mut all = [1; D];
        all[..times.len()].copy_from_slice(times);
        Self::wrap(B::repeat(self.into_backend(), &all))
    }

    /// Pads: `(left, right, top, bottom)` around the last two dims, or `[(before, after), …]` around the last dims. The
    /// mode is a value, or a [`PadMode`].
    pub fn pad(self, padding: impl PadArg<D>, mode: impl Into<Padding>) -> Self {
        let Padding { mode, value } = mode.into();
        self.pad_with(&padding.into_sides(), mode, value)
    }

    /// Pads each dim `(before, after)`; `value` is for [`PadMode::Constant`].
    pub fn pad_with<E: Into<Scalar>>(self, padding: &[(usize, usize)], mode: PadMode, value: E) -> Self {
        ensure!(padding.len() == D, "pad", "{} pairs for rank {D}", padding.len());
        let shape = self.shape();
        let visible = shape.iter().zip(padding).all(|(&size, &sides)| size > 0 || sides == (0, 0));
        ensure!(
            visible || mode == PadMode::Constant,
            "pad",
            "{shape} has an empty dim, which shows nothing outside"
        );
        Self::wrap(B::pad(self.into_backend(), padding, mode, value.into()))
    }

    /// Like [`Tensor::pad_with`], but that negative amounts cut.
    ///
    /// # Panics
    /// When more is cut than there is.
    pub fn pad_or_crop<E: Into<Scalar>>(self, padding: &[(i64, i64)], mode: PadMode, value: E) -> Self {
        let cut = |pad: i64| pad.min(0).unsigned_abs() as usize;
        let grown = |pad: i64| pad.max(0) as usize;
        let mut kept = self;
        for (dim, &(before, after)) in padding.iter().enumerate().filter(|(_, (a, b))| *a < 0 || *b < 0) {
            let size = kept.shape()[dim];
            let (start, end) = (cut(before), size.saturating_sub(cut(after)));
            ensure!(start <= end, "pad", "{before} and {after} cut more than the {size} of dim {dim}");
            kept = kept.slice_dim(dim, start..end);
        }
        let sides: InlineVec<(usize, usize)> = padding.iter().map(|&(a, b)| (grown(a), grown(b))).collect();
        kept.pad_with(&sides, mode, value)
    }

    /// Joins along an existing dim.
    ///
    /// # Panics
    /// When there are no tensors, or another dim differs.
    pub fn cat(tensors: Vec<Self>, dim: impl AsIndex) -> Self {
        let dim = check::dim("cat", dim.as_index(), D);
        let tensors: Vec<_> = tensors.into_iter().map(Self::into_backend).collect();
        Self::wrap(erased::cat::<B>(&tensors, dim))
    }

    /// Joins along a new dim.
    ///
    /// # Panics
    /// When there are no tensors, their shapes differ, or `D2` is not `D + 1`.
    pub fn stack<const D2: usize>(tensors: Vec<Self>, dim: impl AsIndex) -> Tensor<B, D2, K> {
        ensure!(D2 == D + 1, "stack", "rank {D} becomes {}, not {D2}", D + 1);
        let dim = check::dim("stack", dim.as_index(), D2);
        ensure!(!tensors.is_empty(), "stack", "there are no tensors to join");
        for pair in tensors.windows(2) {
            check::same_shape("stack", pair[0].sizes(), pair[1].sizes());
        }
        Tensor::cat(tensors.into_iter().map(|tensor| tensor.unsqueeze_dim::<D2>(dim)).collect(), dim)
    }

    /// `length` elements of a dim.
    pub fn narrow(self, dim: impl AsIndex, start: usize, length: usize) -> Self {
        let dim = check::dim("narrow", dim.as_index(), D);
        Self::wrap(erased::narrowed::<B>("narrow", self.into_backend(), dim, start, length))
    }

    /// Cuts a dim into at most `chunks` parts of equal size; the last one may be smaller.
    pub fn chunk(self, chunks: usize, dim: impl AsIndex) -> Vec<Self> {
        ensure!(chunks > 0, "chunk", "there must be at least one part");
        let dim = check::dim("chunk", dim.as_index(), D);
        let size = self.shape()[dim];
        self.split(size.div_ceil(chunks).max(1), dim)
    }

    /// Cuts a dim every `split_size` elements.
    pub fn split(self, split_size: usize, dim: impl AsIndex) -> Vec<Self> {
        let dim = check::dim("split", dim.as_index(), D);
        ensure!(split_size > 0, "split", "parts of size 0");
        let sizes = erased::part_sizes(self.shape()[dim], split_size);
        self.split_with_sizes(sizes, dim)
    }

    /// Cuts a dim into parts of the given sizes.
    ///
    /// # Panics
    /// When they do not add up to the dim.
    pub fn split_with_sizes(self, split_sizes: Vec<usize>, dim: impl AsIndex) -> Vec<Self> {
        let dim = check::dim("split", dim.as_index(), D);
        erased::split::<B>(self.into_backend(), &split_sizes, dim).into_iter().map(Self::wrap).collect()
    }

    /// Each slice of size 1 along a dim.
    pub fn iter_dim(self, dim: impl AsIndex) -> DimIter<B, D, K> {
        let dim = check::dim("iter_dim", dim.as_index(), D);
        DimIter { start: 0, end: self.shape()[dim], dim, tensor: self }
    }

    /// Windows of `size` elements every `step` along `dim`, which becomes the number of windows; the window is a new
    /// last dim.
    pub fn unfold<const D2: usize, I: AsIndex>(self, dim: I, size: usize, step: usize) -> Tensor<B, D2, K> {
        ensure!(D2 == D + 1, "unfold", "rank {D} becomes {}, not {D2}", D + 1);
        let dim = check::dim("unfold", dim.as_index(), D);
        Tensor::wrap(erased::unfold::<B>(self.into_backend(), dim, size, step))
    }
}

/// Slices of size 1 along a dim; see [`Tensor::iter_dim`].
pub struct DimIter<B: Backend, const D: usize, K: TensorKind<B>> {
    tensor: Tensor<B, D, K>,
    dim: usize,
    start: usize,
    end: usize,
}

impl<B: Backend, const D: usize, K: TensorKind<B>> Iterator for DimIter<B, D, K> {
    type Item = Tensor<B, D, K>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.start < self.end).then(|| {
            self.start += 1;
            self.tensor.clone().narrow(self.dim, self.start - 1, 1)
        })
    }
}

impl<B: Backend, const D: usize, K: TensorKind<B>> DoubleEndedIterator for DimIter<B, D, K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        (self.start < self.end).then(|| {
            self.end -= 1;
            self.tensor.clone().narrow(self.dim, self.end, 1)
        })
    }
}
