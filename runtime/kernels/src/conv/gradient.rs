//! The gradients of convolutions, images with their channels last as for [`super::conv`].
//!
//! That of the image is a convolution of the result's gradient: at a step of 1 with the kernel turned around, else one for each
//! place that a pixel can have within a step, with those elements of the kernel that meet such pixels. That of the weights is
//! a product of the result's gradient with the windows of the image, which are gathered panel by panel when the product wants
//! them. Depthwise convolutions need no product in either.

mod depthwise;
mod input;
mod weight;

pub use input::conv_input_gradient;
pub use weight::conv_weight_gradient;

use super::ConvShape;

/// Checks the sizes of image, gradient of the result, and weights.
fn check(shape: &ConvShape, x: usize, gradient: usize, weight: usize) {
    shape.check_sizes(x, None, gradient);
    assert_eq!(weight, shape.weight_len(), "size of the convolution's weights");
}

/// Coordinates of an element of a box, by its row-major position.
#[inline(always)]
fn coordinates(at: usize, size: [usize; 3]) -> [usize; 3] {
    [at / (size[1] * size[2]), at / size[2] % size[1], at % size[2]]
}

#[cfg(test)]
mod tests;
