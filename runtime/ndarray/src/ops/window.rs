//! The geometry of windows that slide over one to three spatial dims, as convolution and pooling share it.

/// Windows over three spatial dims; absent leading ones have size 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    pub(crate) input: [usize; 3],
    pub(crate) kernel: [usize; 3],
    pub(crate) output: [usize; 3],
    pub(crate) stride: [usize; 3],
    pub(crate) before: [usize; 3],
    pub(crate) after: [usize; 3],
    pub(crate) dilation: [usize; 3],
}

/// Three sizes from one to three, filled up in front.
fn three(sizes: &[usize], fill: usize) -> [usize; 3] {
    let mut out = [fill; 3];
    assert!(sizes.len() <= 3, "windows over {} spatial dims are not supported", sizes.len());
    out[3 - sizes.len()..].copy_from_slice(sizes);
    out
}

impl Windows {
    /// Windows over an input; the number of outputs follows.
    pub(crate) fn new(
        input: &[usize],
        kernel: &[usize],
        stride: &[usize],
        padding: &[(usize, usize)],
        dilation: &[usize],
        ceil: bool,
    ) -> Self {
        let mut windows = Self {
            input: three(input, 1),
            kernel: three(kernel, 1),
            output: [1; 3],
            stride: three(stride, 1),
            before: [0; 3],
            after: [0; 3],
            dilation: three(dilation, 1),
        };
        let lead = 3 - padding.len();
        for (i, &(before, after)) in padding.iter().enumerate() {
            (windows.before[lead + i], windows.after[lead + i]) = (before, after);
        }
        for i in 0..3 {
            windows.output[i] = windows.output_size(i, ceil);
        }
        windows
    }

    /// Number of windows along a dim: whole ones, or with `ceil` also those that hang over the end but start before it.
    fn output_size(&self, i: usize, ceil: bool) -> usize {
        let padded = self.input[i] + self.before[i] + self.after[i];
        let span = self.dilation[i] * (self.kernel[i].max(1) - 1) + 1;
        let stride = self.stride[i].max(1);
        let Some(room) = padded.checked_sub(span) else {
            // One that hangs over, if it has what a whole one would have within a step.
            return usize::from(ceil && padded + stride > span && self.input[i] + self.before[i] > 0);
        };
        if !ceil {
            return room / stride + 1;
        }
        let size = room.div_ceil(stride) + 1;
        if (size - 1) * stride >= self.input[i] + self.before[i] { size - 1 } else { size }
    }

    /// Elements of a channel of the input.
    pub(crate) fn input_len(&self) -> usize {
        self.input.iter().product()
    }

    /// Elements of a channel of the output.
    pub(crate) fn output_len(&self) -> usize {
        self.output.iter().product()
    }

    /// Elements of a window.
    pub(crate) fn kernel_len(&self) -> usize {
        self.kernel.iter().product()
    }

    /// The output's dims without the leading ones that are not there.
    pub(crate) fn output_dims(&self, spatial: usize) -> &[usize] {
        &self.output[3 - spatial..]
    }

    /// The input coordinate along dim `i` of kernel element `k` in window `o`, if it lies inside.
    #[inline]
    pub(crate) fn at(&self, i: usize, o: usize, k: usize) -> Option<usize> {
        let at = (o * self.stride[i] + k * self.dilation[i]).checked_sub(self.before[i])?;
        (at < self.input[i]).then_some(at)
    }

    /// The windows `from..to` along the last dim for which kernel element `k` lies inside the input.
    pub(crate) fn inside(&self, k: usize) -> (usize, usize) {
        let (stride, offset) = (self.stride[2], k * self.dilation[2]);
        let from = self.before[2].saturating_sub(offset).div_ceil(stride);
        let to = (self.input[2] + self.before[2]).saturating_sub(offset).div_ceil(stride);
        let to = to.min(self.output[2]);
        (from.min(to), to)
    }

    /// Calls `f(kernel element, output row, input row)` for every kernel element and row of outputs; the input row is
    /// absent when it lies in the padding.
    pub(crate) fn for_each_row(&self, mut f: impl FnMut([usize; 3], usize, Option<usize>)) {
        let [kd, kh, kw] = self.kernel;
        for d in 0..kd {
            for h in 0..kh {
                for w in 0..kw {
                    for od in 0..self.output[0] {
                        let z = self.at(0, od, d);
                        for oh in 0..self.output[1] {
                            let row = z.zip(self.at(1, oh, h)).map(|(z, y)| z * self.input[1] + y);
                            f([d, h, w], od * self.output[1] + oh, row);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(input: usize, kernel: usize, stride: usize, padding: (usize, usize), ceil: bool) -> usize {
        Windows::new(&[input], &[kernel], &[stride], &[padding], &[1], ceil).output[2]
    }

    #[test]
    fn output_sizes() {
        assert_eq!(size(7, 3, 2, (0, 0), false), 3);
        assert_eq!(size(8, 3, 2, (0, 0), true), 4);
        // The fourth window would start in the end padding.
        assert_eq!(size(5, 2, 2, (0, 2), true), 3);
        assert_eq!(size(2, 3, 1, (0, 0), false), 0);
    }

    #[test]
    fn windows_inside() {
        let windows = Windows::new(&[5], &[3], &[2], &[(1, 1)], &[1], false);
        assert_eq!([0, 1, 2].map(|k| windows.inside(k)), [(1, 3), (0, 3), (0, 2)]);
    }
}
