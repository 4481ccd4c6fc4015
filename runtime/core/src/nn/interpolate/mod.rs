//! Resizing layers.

use super::display::layer_display;
use crate::config::Config;
use crate::module::{Ignored, Module};
use crate::tensor::{CoordinateTransform, NearestRounding, Tensor, backend::Backend, module};

/// How values between samples are computed. Linear and cubic resizing keep the corners in place.
#[derive(Config, Debug, Copy, PartialEq)]
pub enum InterpolateMode {
    /// The sample at or before.
    Nearest,
    /// Linear in each dim.
    Linear,
    /// Cubic convolution in each dim.
    Cubic,
}

impl InterpolateMode {
    /// The tensor operation's mode and coordinates.
    fn resolve(self) -> (crate::tensor::InterpolateMode, CoordinateTransform) {
        use crate::tensor::InterpolateMode as Mode;
        match self {
            Self::Nearest => (Mode::Nearest(NearestRounding::Floor), CoordinateTransform::Asymmetric),
            Self::Linear => (Mode::Linear, CoordinateTransform::AlignCorners),
            Self::Cubic => (Mode::Cubic { a: -0.75 }, CoordinateTransform::AlignCorners),
        }
    }
}

/// The size along one dim, given or scaled.
fn scaled(size: usize, factor: f32) -> usize {
    (size as f64 * f64::from(factor)) as usize
}

macro_rules! interpolate {
    ($layer:ident, $config:ident, $dims:literal, $size:ty, $factor:ty, $what:literal,
     |$sizes:ident, $scale:ident| $scaled:expr, |$given:ident| $list:expr) => {
        #[doc = concat!("Configuration of [`", stringify!($layer), "`]: either `output_size` or `scale_factor` is set.")]
        #[derive(Config, Debug)]
        pub struct $config {
            /// Spatial size of the output.
            #[config(default = "None")]
            pub output_size: Option<$size>,
            /// Spatial size of the output by that of the input.
            #[config(default = "None")]
            pub scale_factor: Option<$factor>,
            /// How values between samples are computed.
            #[config(default = "InterpolateMode::Nearest")]
            pub mode: InterpolateMode,
        }

        #[doc = concat!("Resizes ", $what, ".")]
        #[derive(Module, Clone, Debug)]
        #[module(custom_display)]
        pub struct $layer {
            /// Spatial size of the output.
            pub output_size: Option<$size>,
            /// Spatial size of the output by that of the input.
            pub scale_factor: Option<$factor>,
            /// How values between samples are computed.
            pub mode: Ignored<InterpolateMode>,
        }

        impl $config {
            /// The layer.
            pub fn init(self) -> $layer {
                $layer {
                    output_size: self.output_size,
                    scale_factor: self.scale_factor,
                    mode: Ignored(self.mode),
                }
            }
        }

        impl $layer {
            /// `[batch, channels, spatial…]` to the same with another spatial size.
            ///
            /// # Panics
            /// When neither `output_size` nor `scale_factor` is set, or both.
            pub fn forward<B: Backend>(&self, input: Tensor<B, $dims>) -> Tensor<B, $dims> {
                let $sizes = input.dims();
                let $given = match (self.output_size, self.scale_factor) {
                    (Some(size), None) => size,
                    (None, Some($scale)) => $scaled,
                    _ => panic!(concat!(stringify!($layer), ": set either output_size or scale_factor")),
                };
                let (mode, coordinates) = self.mode.0.resolve();
                module::interpolate(input, &$list, mode, coordinates)
            }
        }

        layer_display!($layer, |layer| {
            "mode" => layer.mode,
            "output_size" => alloc::format!("{:?}", layer.output_size),
            "scale_factor" => layer.scale_factor,
        });
    };
}

interpolate!(
    Interpolate1d,
    Interpolate1dConfig,
    3,
    usize,
    f32,
    "one spatial dim",
    |sizes, factor| scaled(sizes[2], factor),
    |size| [size]
);
interpolate!(
    Interpolate2d,
    Interpolate2dConfig,
    4,
    [usize; 2],
    [f32; 2],
    "two spatial dims",
    |sizes, factor| [scaled(sizes[2], factor[0]), scaled(sizes[3], factor[1])],
    |size| size
);
