//! Pooling layers.

use super::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d, display::layer_display};
use crate::config::Config;
use crate::module::{Ignored, Module};
use crate::tensor::{Dims, PoolOp, PoolOptions, Tensor, backend::Backend, module};

/// Burn has plain numbers in 1-D layers, arrays elsewhere.
trait Sizes {
    fn sizes(&self) -> Dims;
}

impl Sizes for usize {
    fn sizes(&self) -> Dims {
        [*self].into()
    }
}

impl<const N: usize> Sizes for [usize; N] {
    fn sizes(&self) -> Dims {
        (*self).into()
    }
}

macro_rules! max_pool {
    ($layer:ident, $config:ident, $padding:ident = $valid:tt, $dims:literal, $size:ty, $one:tt,
     $what:literal) => {
        #[doc = concat!("Configuration of [`", stringify!($layer), "`].")]
        #[derive(Config, Debug)]
        pub struct $config {
            /// Size of the window.
            pub kernel_size: $size,
            /// Step of the window.
            #[config(default = "kernel_size")]
            pub strides: $size,
            /// Padding around the input; it never wins.
            #[config(default = $valid)]
            pub padding: $padding,
            /// Distance between window elements.
            #[config(default = $one)]
            pub dilation: $size,
            /// Round the output size up.
            #[config(default = "false")]
            pub ceil_mode: bool,
        }

        #[doc = concat!("Largest element of each window over ", $what, ".")]
        #[derive(Module, Clone, Debug)]
        #[module(custom_display)]
        pub struct $layer {
            /// Step of the window.
            pub stride: $size,
            /// Size of the window.
            pub kernel_size: $size,
            /// Padding around the input.
            pub padding: Ignored<$padding>,
            /// Distance between window elements.
            pub dilation: $size,
            /// Whether the output size is rounded up.
            pub ceil_mode: bool,
        }

        impl $config {
            /// Sets `strides`; tutorials call it so too.
            #[must_use]
            pub fn with_stride(self, stride: $size) -> Self {
                self.with_strides(stride)
            }

            /// The layer.
            pub fn init(&self) -> $layer {
                $layer {
                    stride: self.strides,
                    kernel_size: self.kernel_size,
                    padding: Ignored(self.padding),
                    dilation: self.dilation,
                    ceil_mode: self.ceil_mode,
                }
            }
        }

        impl $layer {
            /// `[batch, channels, spatial…]` to the same with fewer spatial elements.
            pub fn forward<B: Backend>(&self, input: Tensor<B, $dims>) -> Tensor<B, $dims> {
                let (kernel, stride, dilation) =
                    (self.kernel_size.sizes(), self.stride.sizes(), self.dilation.sizes());
                let size: [usize; $dims] = input.dims();
                let padding = self.padding.resolve(stringify!($layer), &size[2..], &kernel, &dilation, &stride);
                let options = PoolOptions { kernel, stride, padding, dilation, ceil_mode: self.ceil_mode };
                module::pool(PoolOp::Max, input, options)
            }
        }

        layer_display!($layer, |layer| {
            "kernel_size" => alloc::format!("{:?}", layer.kernel_size),
            "stride" => alloc::format!("{:?}", layer.stride),
            "padding" => alloc::format!("{:?}", layer.padding.0),
            "dilation" => alloc::format!("{:?}", layer.dilation),
            "ceil_mode" => layer.ceil_mode,
        });
    };
}

max_pool!(
    MaxPool1d,
    MaxPool1dConfig,
    PaddingConfig1d = "PaddingConfig1d::Valid",
    3,
    usize,
    "1",
    "`[batch, channels, length]`"
);
max_pool!(
    MaxPool2d,
    MaxPool2dConfig,
    PaddingConfig2d = "PaddingConfig2d::Valid",
    4,
    [usize; 2],
    "[1, 1]",
    "`[batch, channels, height, width]`"
);
max_pool!(
    MaxPool3d,
    MaxPool3dConfig,
    PaddingConfig3d = "PaddingConfig3d::Valid",
    5,
    [usize; 3],
    "[1, 1, 1]",
    "`[batch, channels, depth, height, width]`"
);

macro_rules! avg_pool {
    ($layer:ident, $config:ident, $padding:ident = $valid:tt, $dims:literal, $size:ty,
     $what:literal) => {
        #[doc = concat!("Configuration of [`", stringify!($layer), "`].")]
        #[derive(Config, Debug)]
        pub struct $config {
            /// Size of the window.
            pub kernel_size: $size,
            /// Step of the window.
            #[config(default = "kernel_size")]
            pub strides: $size,
            /// Padding around the input.
            #[config(default = $valid)]
            pub padding: $padding,
            /// Count padding zeros in the mean's divisor.
            #[config(default = "true")]
            pub count_include_pad: bool,
            /// Round the output size up.
            #[config(default = "false")]
            pub ceil_mode: bool,
        }

        #[doc = concat!("Mean of each window over ", $what, ".")]
        #[derive(Module, Clone, Debug)]
        #[module(custom_display)]
        pub struct $layer {
            /// Step of the window.
            pub stride: $size,
            /// Size of the window.
            pub kernel_size: $size,
            /// Padding around the input.
            pub padding: Ignored<$padding>,
            /// Whether padding zeros count in the mean's divisor.
            pub count_include_pad: bool,
            /// Whether the output size is rounded up.
            pub ceil_mode: bool,
        }

        impl $config {
            /// Sets `strides`; tutorials call it so too.
            #[must_use]
            pub fn with_stride(self, stride: $size) -> Self {
                self.with_strides(stride)
            }

            /// The layer.
            pub fn init(&self) -> $layer {
                $layer {
                    stride: self.strides,
                    kernel_size: self.kernel_size,
                    padding: Ignored(self.padding),
                    count_include_pad: self.count_include_pad,
                    ceil_mode: self.ceil_mode,
                }
            }
        }

        impl $layer {
            /// `[batch, channels, spatial…]` to the same with fewer spatial elements.
            pub fn forward<B: Backend>(&self, input: Tensor<B, $dims>) -> Tensor<B, $dims> {
                let (kernel, stride) = (self.kernel_size.sizes(), self.stride.sizes());
                let dilation = Dims::repeat(1, kernel.len());
                let size: [usize; $dims] = input.dims();
                let padding = self.padding.resolve(stringify!($layer), &size[2..], &kernel, &dilation, &stride);
                let options = PoolOptions { kernel, stride, padding, dilation, ceil_mode: self.ceil_mode };
                module::pool(PoolOp::Average { include_pad: self.count_include_pad }, input, options)
            }
        }

        layer_display!($layer, |layer| {
            "kernel_size" => alloc::format!("{:?}", layer.kernel_size),
            "stride" => alloc::format!("{:?}", layer.stride),
            "padding" => alloc::format!("{:?}", layer.padding.0),
            "count_include_pad" => layer.count_include_pad,
            "ceil_mode" => layer.ceil_mode,
        });
    };
}

avg_pool!(
    AvgPool1d,
    AvgPool1dConfig,
    PaddingConfig1d = "PaddingConfig1d::Valid",
    3,
    usize,
    "`[batch, channels, length]`"
);
avg_pool!(
    AvgPool2d,
    AvgPool2dConfig,
    PaddingConfig2d = "PaddingConfig2d::Valid",
    4,
    [usize; 2],
    "`[batch, channels, height, width]`"
);
avg_pool!(
    AvgPool3d,
    AvgPool3dConfig,
    PaddingConfig3d = "PaddingConfig3d::Valid",
    5,
    [usize; 3],
    "`[batch, channels, depth, height, width]`"
);

macro_rules! adaptive_avg_pool {
    ($layer:ident, $config:ident, $dims:literal, $size:ty, $what:literal) => {
        #[doc = concat!("Configuration of [`", stringify!($layer), "`].")]
        #[derive(Config, Debug)]
        pub struct $config {
            /// Spatial size of the output.
            pub output_size: $size,
        }

        #[doc = concat!("Mean over windows that give the wanted size, over ", $what, ".")]
        #[derive(Module, Clone, Debug)]
        #[module(custom_display)]
        pub struct $layer {
            /// Spatial size of the output.
            pub output_size: $size,
        }

        impl $config {
            /// The layer.
            pub fn init(&self) -> $layer {
                $layer { output_size: self.output_size }
            }
        }

        impl $layer {
            /// `[batch, channels, spatial…]` to `[batch, channels, output_size…]`.
            pub fn forward<B: Backend>(&self, input: Tensor<B, $dims>) -> Tensor<B, $dims> {
                module::adaptive_avg_pool(input, &self.output_size.sizes())
            }
        }

        layer_display!($layer, |layer| { "output_size" => alloc::format!("{:?}", layer.output_size) });
    };
}

adaptive_avg_pool!(AdaptiveAvgPool1d, AdaptiveAvgPool1dConfig, 3, usize, "`[batch, channels, length]`");
adaptive_avg_pool!(
    AdaptiveAvgPool2d,
    AdaptiveAvgPool2dConfig,
    4,
    [usize; 2],
    "`[batch, channels, height, width]`"
);
