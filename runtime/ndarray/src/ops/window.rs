//! Windows as rows of elements that lie side by side: what convolutions of any type unfold and fold.

use core::ops::Range;
use kiln_kernels::Windows;

/// Calls `f(kernel element, output row, input row)` for every kernel element and row of outputs; the input row is absent when it lies in
/// the padding.
pub(crate) fn for_each_row(windows: &Windows, mut f: impl FnMut([usize; 3], usize, Option<usize>)) {
    let [kd, kh, kw] = windows.kernel;
    for d in 0..kd {
        for h in 0..kh {
            for w in 0..kw {
                for od in 0..windows.output[0] {
                    let z = windows.position(0, od, d);
                    for oh in 0..windows.output[1] {
                        let row = z.zip(windows.position(1, oh, h)).map(|(z, y)| z * windows.input[1] + y);
                        f([d, h, w], od * windows.output[1] + oh, row);
                    }
                }
            }
        }
    }
}

/// The windows along the last dim for which kernel element `k` lies inside the input.
pub(crate) fn columns_of(windows: &Windows, k: usize) -> Range<usize> {
    let (stride, offset) = (windows.stride[2], k * windows.dilation[2]);
    let before = windows.padding[2].0;
    let reaching = |end: usize| end.saturating_sub(offset).div_ceil(stride).min(windows.output[2]);
    let (from, to) = (reaching(before), reaching(before + windows.input[2]));
    from.min(to)..to
}

#[cfg(test)]
mod tests {
    use super::{Windows, columns_of};

    #[test]
    fn columns_of_a_kernel_element() {
        let windows = Windows::new(&[5], &[3], &[2], &[(1, 1)], &[1], false);
        assert_eq!([0, 1, 2].map(|k| columns_of(&windows, k)), [1..3, 0..3, 0..2]);
    }
}
