//! The geometry of a pooling, and which elements a window touches.

use crate::conv::spatial;
use alloc::vec::Vec;
use kiln_types::PoolOptions;

/// The geometry of a pooling. Spatial entries are depth, height, width; missing ones are 1, in front.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolShape {
    /// Images.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Number of spatial dims that the caller sees.
    pub rank: usize,
    /// Size of an image.
    pub input: [usize; 3],
    /// Size of the window.
    pub kernel: [usize; 3],
    /// Step of the window.
    pub stride: [usize; 3],
    /// Distance between window elements.
    pub dilation: [usize; 3],
    /// Padding before and after.
    pub padding: [(usize, usize); 3],
    /// Size of a result.
    pub output: [usize; 3],
}

impl PoolShape {
    /// From the dims of `x` (`[batch, channels, spatial…]`).
    ///
    /// # Panics
    /// When the options do not fit `x`, or the window is larger than the padded image.
    pub fn new(x: &[usize], options: &PoolOptions) -> Self {
        assert!(x.len() >= 3, "pooling needs batch, channels and spatial dims, got {x:?}");
        assert_eq!(options.kernel.len(), x.len() - 2, "one window size per spatial dim");
        let (input, kernel) = (spatial(&x[2..], 1), spatial(&options.kernel, 1));
        let (stride, dilation) = (spatial(&options.stride, 1), spatial(&options.dilation, 1));
        let padding = spatial(&options.padding, (0, 0));
        let mut output = [0; 3];
        for i in 0..3 {
            assert!(stride[i] > 0 && dilation[i] > 0 && kernel[i] > 0, "stride, dilation or window of 0");
            let padded = input[i] + padding[i].0 + padding[i].1;
            let extent = (kernel[i] - 1) * dilation[i] + 1;
            output[i] = if padded >= extent {
                (padded - extent) / stride[i] + 1
            } else {
                assert!(options.ceil_mode, "a window of extent {extent} on {padded} padded elements");
                0
            };
            if options.ceil_mode {
                let hangs =
                    padded + stride[i] > extent && !(padded + stride[i] - extent).is_multiple_of(stride[i]);
                // A window may hang over the end, but must start before the end padding.
                if (hangs || output[i] == 0) && output[i] * stride[i] < input[i] + padding[i].0 {
                    output[i] += 1;
                }
            }
        }
        Self {
            batch: x[0],
            channels: x[1],
            rank: x.len() - 2,
            input,
            kernel,
            stride,
            dilation,
            padding,
            output,
        }
    }

    /// The dims of the result, `[batch, channels, spatial…]`.
    pub fn output_dims(&self) -> Vec<usize> {
        let mut dims = alloc::vec![self.batch, self.channels];
        dims.extend_from_slice(&self.output[3 - self.rank..]);
        dims
    }

    pub(super) fn check(&self, x: &[f32], out: usize) {
        let input: usize = self.input.iter().product();
        let output: usize = self.output.iter().product();
        assert_eq!(x.len(), self.batch * self.channels * input, "size of the pooling's input");
        assert_eq!(out, self.batch * self.channels * output, "size of the pooling's output");
    }

    /// The coordinate that element `k` of the window of output `o` has, if it lies in the image.
    pub(super) fn position(&self, axis: usize, o: usize, k: usize) -> Option<usize> {
        let p = o * self.stride[axis] + k * self.dilation[axis];
        p.checked_sub(self.padding[axis].0).filter(|&p| p < self.input[axis])
    }

    /// Calls `visit` with the start of each row of the image that the windows in row `y` of slice `z` touch.
    pub(super) fn for_each_row(&self, z: usize, y: usize, mut visit: impl FnMut(usize)) {
        for z in (0..self.kernel[0]).filter_map(|k| self.position(0, z, k)) {
            for y in (0..self.kernel[1]).filter_map(|k| self.position(1, y, k)) {
                visit((z * self.input[1] + y) * self.input[2]);
            }
        }
    }

    /// For each output along an axis, how many of its window's elements count.
    pub(super) fn counts(&self, axis: usize, include_pad: bool) -> Vec<f32> {
        let padded = self.input[axis] + self.padding[axis].0 + self.padding[axis].1;
        let counts = |o: usize, k: &usize| match include_pad {
            true => o * self.stride[axis] + k * self.dilation[axis] < padded,
            false => self.position(axis, o, *k).is_some(),
        };
        (0..self.output[axis])
            .map(|o| (0..self.kernel[axis]).filter(|k| counts(o, k)).count() as f32)
            .collect()
    }
}
