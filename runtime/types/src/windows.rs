//! Windows that slide over images of one to three spatial dims: the geometry that convolutions and poolings share.

use alloc::format;
use alloc::string::{String, ToString};
use core::ops::Range;

/// Windows over images. Entries are depth, height, width; missing ones are 1, in front.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Windows {
    /// Number of spatial dims that the caller sees.
    pub rank: usize,
    /// Size of an image.
    pub input: [usize; 3],
    /// Size of a window.
    pub kernel: [usize; 3],
    /// Step of the window.
    pub stride: [usize; 3],
    /// Distance between a window's elements.
    pub dilation: [usize; 3],
    /// Padding before and after.
    pub padding: [(usize, usize); 3],
    /// Number of windows along each dim.
    pub output: [usize; 3],
}

/// Three values for three axes: `values` behind as many `fill` as make three.
///
/// # Panics
/// Unless there are one to three.
pub fn spatial<T: Copy>(values: &[T], fill: T) -> [T; 3] {
    assert!((1..=3).contains(&values.len()), "1 to 3 spatial dims, got {}", values.len());
    let mut out = [fill; 3];
    out[3 - values.len()..].copy_from_slice(values);
    out
}

impl Windows {
    /// The windows that fit into the padded images; with `ceil`, also those that hang over the end but start before the
    /// end padding.
    ///
    /// # Panics
    /// When the arguments differ in rank, a size of the window or a step is 0, no window fits and `ceil` is not set, or windows or padded
    /// images reach farther than `isize` counts.
    pub fn new(
        input: &[usize],
        kernel: &[usize],
        stride: &[usize],
        padding: &[(usize, usize)],
        dilation: &[usize],
        ceil: bool,
    ) -> Self {
        Self::try_new(input, kernel, stride, padding, dilation, ceil).unwrap_or_else(|why| panic!("{why}"))
    }

    /// [`Windows::new`] of what may not be windows.
    ///
    /// # Errors
    /// Where that panics: why.
    pub fn try_new(
        input: &[usize],
        kernel: &[usize],
        stride: &[usize],
        padding: &[(usize, usize)],
        dilation: &[usize],
        ceil: bool,
    ) -> Result<Self, String> {
        let rank = input.len();
        let ranks = [kernel.len(), stride.len(), padding.len(), dilation.len()];
        if !(1..=3).contains(&rank) || ranks != [rank; 4] {
            return Err(format!("windows of {ranks:?} dims over images of {rank}; 1 to 3 dims are known"));
        }
        let mut windows = Self {
            rank,
            input: spatial(input, 1),
            kernel: spatial(kernel, 1),
            stride: spatial(stride, 1),
            dilation: spatial(dilation, 1),
            padding: spatial(padding, (0, 0)),
            output: [0; 3],
        };
        for axis in 0..3 {
            windows.output[axis] = windows.count(axis, ceil)?;
        }
        Ok(windows)
    }

    /// Number of windows along an axis.
    fn count(&self, axis: usize, ceil: bool) -> Result<usize, String> {
        let (stride, dilation, kernel) = (self.stride[axis], self.dilation[axis], self.kernel[axis]);
        if stride == 0 || dilation == 0 || kernel == 0 {
            return Err("stride, dilation or window of 0".to_string());
        }
        let (before, after) = self.padding[axis];
        let input = self.input[axis];
        // Kernels count positions with a sign, from the first element of the image on.
        let countable = |size: &usize| isize::try_from(*size).is_ok();
        let padded = input.checked_add(before).and_then(|size| size.checked_add(after)).filter(countable);
        let extent =
            (kernel - 1).checked_mul(dilation).and_then(|size| size.checked_add(1)).filter(countable);
        let (Some(padded), Some(extent)) = (padded, extent) else {
            return Err(format!(
                "windows of {kernel}, {dilation} apart, on {input} elements padded by {before} and {after}: too far to count"
            ));
        };
        if !countable(&stride) {
            return Err(format!("windows {stride} elements apart: too far to count"));
        }
        if padded < extent && !ceil {
            return Err(format!("a window of extent {extent} on {padded} padded elements"));
        }
        let Some(room) = padded.checked_sub(extent) else {
            // One that hangs over, if it has what a whole one would have within a step.
            return Ok(usize::from(padded + stride > extent && input + before > 0));
        };
        if !ceil {
            return Ok(room / stride + 1);
        }
        // Those that start in the padding behind the image do not count, whether they hang over or not.
        let starts_inside = (input + before).div_ceil(stride);
        Ok((room.div_ceil(stride) + 1).min(starts_inside))
    }

    /// The spatial dims of a result.
    pub fn output_dims(&self) -> &[usize] {
        &self.output[3 - self.rank..]
    }

    /// Elements of an image's channel.
    pub fn input_len(&self) -> usize {
        self.input.iter().product()
    }

    /// Elements of a result's channel.
    pub fn output_len(&self) -> usize {
        self.output.iter().product()
    }

    /// Elements of a window.
    pub fn kernel_len(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Whether every window is one element, and each element has its window.
    pub fn are_points(&self) -> bool {
        self.kernel == [1; 3] && self.stride == [1; 3] && self.padding == [(0, 0); 3]
    }

    /// The coordinate that element `k` of window `o` has, if it lies in the image.
    #[inline(always)]
    pub fn position(&self, axis: usize, o: usize, k: usize) -> Option<usize> {
        let p = o * self.stride[axis] + k * self.dilation[axis];
        p.checked_sub(self.padding[axis].0).filter(|&p| p < self.input[axis])
    }

    /// The elements of window `o` that lie in the image.
    #[inline(always)]
    pub fn inside(&self, axis: usize, o: usize) -> Range<usize> {
        let (start, dilation) = (o * self.stride[axis], self.dilation[axis]);
        let before = |end: usize| end.saturating_sub(start).div_ceil(dilation).min(self.kernel[axis]);
        let (first, end) = (before(self.padding[axis].0), before(self.padding[axis].0 + self.input[axis]));
        first.min(end)..end
    }

    /// How many elements of the `o`-th window along an axis count: those in the image, or in its padding too.
    pub fn elements(&self, axis: usize, o: usize, include_pad: bool) -> usize {
        if !include_pad {
            return self.inside(axis, o).len();
        }
        let padded = self.input[axis] + self.padding[axis].0 + self.padding[axis].1;
        padded.saturating_sub(o * self.stride[axis]).div_ceil(self.dilation[axis]).min(self.kernel[axis])
    }
}

#[cfg(test)]
mod tests {
    use super::Windows;
    use alloc::vec::Vec;

    #[test]
    #[should_panic(expected = "too far to count")]
    fn padding_that_cannot_be_counted_is_refused() {
        Windows::new(&[10], &[2], &[1], &[(0, isize::MAX as usize)], &[isize::MAX as usize], false);
    }

    #[test]
    #[should_panic(expected = "too far to count")]
    fn extents_that_cannot_be_counted_are_refused() {
        Windows::new(&[10], &[3], &[1], &[(0, 0)], &[usize::MAX / 2 + 1], true);
    }

    /// Of windows that end with the padding, or beyond it, those that start in the padding behind the image do not count.
    #[test]
    fn windows_start_inside_of_images() {
        let count = |input, kernel, stride, padding, ceil| {
            Windows::new(&[input], &[kernel], &[stride], &[padding], &[1], ceil).output[2]
        };
        assert_eq!([count(7, 3, 2, (0, 0), false), count(8, 3, 2, (0, 0), true)], [3, 4]);
        assert_eq!([count(4, 2, 2, (0, 2), true), count(4, 2, 2, (0, 2), false)], [2, 3]);
        assert_eq!([count(5, 2, 2, (0, 2), true), count(2, 3, 2, (0, 0), true)], [3, 1]);
    }

    #[test]
    fn elements_inside_are_those_with_a_position() {
        for (input, kernel, stride, padding, dilation) in [
            (7, 3, 1, (1, 1), 1),
            (9, 5, 2, (3, 0), 2),
            (1, 3, 1, (2, 2), 1),
            (4, 2, 3, (0, 5), 3),
            (5, 4, 1, (6, 6), 1),
        ] {
            let w = Windows::new(&[input], &[kernel], &[stride], &[padding], &[dilation], true);
            for o in 0..w.output[2] {
                let found: Vec<usize> = (0..kernel).filter(|&k| w.position(2, o, k).is_some()).collect();
                assert_eq!(w.inside(2, o).collect::<Vec<_>>(), found, "{w:?} {o}");
            }
        }
    }
}
