//! Windows over images: convolutions, transposed convolutions, pooling, and their gradients. Images have three spatial dims here; absent
//! ones have size 1, in front.

mod channels;
mod conv;
mod depthwise;
mod gradient;
mod im2col;
mod library;
mod patches;
mod pointwise;
mod pool;
mod pool_gradient;
mod quantized;
mod reach;
mod rows;

pub use channels::FillChannels;
pub use conv::Conv;
pub use depthwise::DepthwiseConv;
pub use gradient::{RowWeightGradient, WeightGradient};
pub use im2col::Im2col;
pub use pointwise::NarrowConv;
pub use pool::{Pool, Pooling};
pub use pool_gradient::{AdaptivePoolGradient, Flow, PoolGradient};
pub use quantized::ConvInteger;
pub use rows::RowConv;

pub(crate) use conv::{conv, conv_added, conv_input_gradient, conv_transpose, conv_transpose_input_gradient};
pub(crate) use gradient::{conv_transpose_weight_gradient, conv_weight_gradient};
pub(crate) use pool::pool;
pub(crate) use pool_gradient::{adaptive_average_gradient, pool_gradient};
pub(crate) use quantized::conv_integer;

use super::LINE;
use super::elementwise::from_start;
use crate::language::{Builder, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::GpuTensor;
use kiln_tensor::Windows;

/// What a window's geometry is when its kernel is compiled: divisions by what is known cost little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Size of a window.
    pub kernel: [u32; 3],
    /// Step of the window.
    pub stride: [u32; 3],
    /// Distance between a window's elements.
    pub dilation: [u32; 3],
}

impl Geometry {
    fn of(windows: &Windows) -> Self {
        let words = |sizes: [usize; 3]| sizes.map(|size| size as u32);
        Self {
            kernel: words(windows.kernel),
            stride: words(windows.stride),
            dilation: words(windows.dilation),
        }
    }

    fn kernel_length(&self) -> u32 {
        self.kernel.iter().product()
    }

    /// The coordinates of an element of the window.
    fn within<'k>(&self, element: Value<'k>) -> [Value<'k>; 3] {
        let [_, height, width] = self.kernel;
        [element / (height * width), element / width % height, element % width]
    }
}

/// Sizes of images, as parameters.
struct Sizes<'k> {
    input: [Value<'k>; 3],
    output: [Value<'k>; 3],
    before: [Value<'k>; 3],
}

impl<'k> Sizes<'k> {
    /// The next parameters.
    fn declare(k: &'k Builder) -> Self {
        let three = || [k.parameter(), k.parameter(), k.parameter()];
        Self { input: three(), output: three(), before: three() }
    }

    fn words(windows: &Windows) -> impl Iterator<Item = u32> {
        let before = windows.padding.map(|(before, _)| before);
        [windows.input, windows.output, before].into_iter().flatten().map(|size| size as u32)
    }

    /// Where element `within` of window `at` is in a row-major image, and whether it is inside: coordinates before the
    /// image wrap around, and so are beyond its end.
    fn element(
        &self,
        geometry: &Geometry,
        at: [Value<'k>; 3],
        within: [Value<'k>; 3],
    ) -> (Value<'k>, Value<'k>) {
        let along = |axis: usize| {
            at[axis] * geometry.stride[axis] + within[axis] * geometry.dilation[axis] - self.before[axis]
        };
        let [z, y, x] = [along(0), along(1), along(2)];
        let inside = z.below(self.input[0]) & y.below(self.input[1]) & x.below(self.input[2]);
        (self.place([z, y, x]), inside)
    }

    /// Where coordinates are in a row-major image. A sum of coordinates is at the sum of their places.
    fn place(&self, [z, y, x]: [Value<'k>; 3]) -> Value<'k> {
        (z * self.input[1] + y) * self.input[2] + x
    }
}

/// The coordinates of a position in an image of a size.
fn within_image<'k>(position: Value<'k>, [_, height, width]: &[Value<'k>; 3]) -> [Value<'k>; 3] {
    let row = position / *width;
    [row / *height, row % *height, position % *width]
}

fn volume<'k>(size: &[Value<'k>; 3]) -> Value<'k> {
    size[0] * size[1] * size[2]
}

fn zero(k: &Builder, ty: Type) -> Value<'_> {
    if ty == Type::F32 { k.value(0.0) } else { k.value(0_u32).to(ty) }
}

/// The dims of images behind batch and channels.
fn spatial_dims<'a, R: Runtime>(op: &str, x: &'a GpuTensor<R>) -> &'a [usize] {
    match x.dims() {
        [_, _, spatial @ ..] if (1..=3).contains(&spatial.len()) => spatial,
        dims => panic!("{op}: images of shape {dims:?} do not have one to three spatial dims"),
    }
}
