//! The geometry of a pooling, and which elements a window touches.

use crate::size::elements;
use kiln_types::{Dims, PoolOptions, Windows};

/// The geometry of a pooling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolShape {
    /// Images.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// What each element of a result sees.
    pub windows: Windows,
}

impl PoolShape {
    /// From the dims of `x` (`[batch, channels, spatial…]`).
    ///
    /// # Panics
    /// When the options do not fit `x`, or the window is larger than the padded image.
    pub fn new(x: &[usize], options: &PoolOptions) -> Self {
        assert!(x.len() >= 3, "pooling needs batch, channels and spatial dims, got {x:?}");
        let PoolOptions { kernel, stride, padding, dilation, ceil_mode } = options;
        let windows = Windows::new(&x[2..], kernel, stride, padding, dilation, *ceil_mode);
        Self { batch: x[0], channels: x[1], windows }
    }

    /// The dims of the result, `[batch, channels, spatial…]`.
    pub fn output_dims(&self) -> Dims {
        [self.batch, self.channels].iter().chain(self.windows.output_dims()).copied().collect()
    }

    pub(super) fn check(&self, x: usize, out: usize) {
        let (input, output) = (self.windows.input_len(), self.windows.output_len());
        assert_eq!(x, elements(&[self.batch, self.channels, input]), "size of the pooling's input");
        assert_eq!(out, elements(&[self.batch, self.channels, output]), "size of the pooling's output");
    }

    /// Calls `visit` with the start of each row of the image that the windows in row `y` of slice `z` touch.
    pub(super) fn for_each_row(&self, z: usize, y: usize, mut visit: impl FnMut(usize)) {
        let w = &self.windows;
        for z in (0..w.kernel[0]).filter_map(|k| w.position(0, z, k)) {
            for y in (0..w.kernel[1]).filter_map(|k| w.position(1, y, k)) {
                visit((z * w.input[1] + y) * w.input[2]);
            }
        }
    }
}
