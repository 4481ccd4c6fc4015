//! Convolutions: `[batch, channels, spatial…]` with 1 to 3 spatial dims.

use crate::backend::Backend;
use crate::check::{self, ensure};
use crate::{Activation, ConvOptions, ConvTransposeOptions, Int, PadMode, Tensor};
use kiln_types::Windows;

/// What [`check_window`] looks at.
struct WindowArguments<'a> {
    op: &'a str,
    x: &'a [usize],
    kernel: &'a [usize],
    options: [usize; 3],
    /// Strides and dilations.
    steps: [&'a [usize]; 2],
}

/// Ranks and lengths of the options.
#[track_caller]
fn check_window(window: &WindowArguments<'_>) {
    let (op, x, spatial) = (window.op, window.x, window.x.len().saturating_sub(2));
    ensure!((1..=3).contains(&spatial), op, "{x:?} should be [batch, channels, …] with 1 to 3 spatial dims");
    ensure!(
        window.kernel.len() == spatial && window.options.iter().all(|&n| n == spatial),
        op,
        "the options are not for the {spatial} spatial dims of {x:?}"
    );
    let [stride, dilation] = window.steps;
    ensure!(
        [window.kernel, stride, dilation].iter().all(|sizes| !sizes.contains(&0)),
        op,
        "a kernel {:?} with stride {stride:?} and dilation {dilation:?} has a size of 0",
        window.kernel
    );
}

#[track_caller]
pub(super) fn check_conv(x: &[usize], weight: &[usize], bias: Option<&[usize]>, options: &ConvOptions) {
    let lengths = [options.stride.len(), options.padding.len(), options.dilation.len()];
    check_window(&WindowArguments {
        op: "conv",
        x,
        kernel: &weight[2..],
        options: lengths,
        steps: [&options.stride, &options.dilation],
    });
    let groups = options.groups;
    ensure!(
        groups > 0 && x[1] == weight[1] * groups && weight[0].is_multiple_of(groups),
        "conv",
        "{x:?} has {} channels, a weight {weight:?} in {groups} groups takes {}",
        x[1],
        weight[1] * groups
    );
    if let Some(bias) = bias {
        ensure!(bias[..] == weight[..1], "conv", "a bias {bias:?} does not fit a weight {weight:?}");
    }
    for (i, &kernel) in weight[2..].iter().enumerate() {
        let ((before, after), reach) = (options.padding[i], options.dilation[i] * (kernel.max(1) - 1) + 1);
        ensure!(
            x[i + 2] + before + after >= reach && options.stride[i] > 0,
            "conv",
            "a kernel of {reach} does not fit dim {} of {x:?}, padded by {before} and {after}",
            i + 2
        );
    }
}

/// Convolution: `weight` is `[out, in / groups, kernel…]`, `bias` `[out]`.
///
/// # Panics
/// When channels, kernel and options do not fit the input.
pub fn conv<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, D>,
    bias: Option<Tensor<B, 1>>,
    options: ConvOptions,
) -> Tensor<B, D> {
    check_conv(x.sizes(), weight.sizes(), bias.as_ref().map(Tensor::sizes), &options);
    check::same_dtypes("conv", x.dtype(), weight.dtype(), bias.as_ref().map(Tensor::dtype));
    let bias = bias.map(Tensor::into_backend);
    Tensor::wrap(B::conv(x.into_backend(), weight.into_backend(), bias, &options))
}

/// [`conv`] with an activation applied on the way out.
///
/// # Panics
/// When channels, kernel and options do not fit the input.
pub fn conv_activated<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, D>,
    bias: Option<Tensor<B, 1>>,
    activation: Activation,
    options: ConvOptions,
) -> Tensor<B, D> {
    check_conv(x.sizes(), weight.sizes(), bias.as_ref().map(Tensor::sizes), &options);
    check::same_dtypes("conv", x.dtype(), weight.dtype(), bias.as_ref().map(Tensor::dtype));
    let (weight, bias) = (weight.into_backend(), bias.map(Tensor::into_backend));
    Tensor::wrap(B::conv_activated(x.into_backend(), weight, bias, activation, &options))
}

/// `activation(conv(x) + residual)`: the residual has the result's shape.
///
/// # Panics
/// When channels, kernel and options do not fit the input, or the residual does not fit the result.
pub fn conv_added<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, D>,
    bias: Option<Tensor<B, 1>>,
    residual: Tensor<B, D>,
    activation: Option<Activation>,
    options: ConvOptions,
) -> Tensor<B, D> {
    check_conv(x.sizes(), weight.sizes(), bias.as_ref().map(Tensor::sizes), &options);
    check::same_dtypes("conv", x.dtype(), weight.dtype(), bias.as_ref().map(Tensor::dtype));
    check::same_dtype("conv", x.dtype(), residual.dtype());
    let windows = Windows::new(
        &x.sizes()[2..],
        &weight.sizes()[2..],
        &options.stride,
        &options.padding,
        &options.dilation,
        false,
    );
    let (lead, spatial) = ([x.sizes()[0], weight.sizes()[0]], windows.output_dims());
    ensure!(
        residual.sizes()[..2] == lead && residual.sizes()[2..] == *spatial,
        "conv",
        "a residual {:?} is added to {lead:?} of {spatial:?}",
        residual.sizes()
    );
    let (weight, bias) = (weight.into_backend(), bias.map(Tensor::into_backend));
    let residual = residual.into_backend();
    Tensor::wrap(B::conv_added(x.into_backend(), weight, bias, residual, activation, &options))
}

#[track_caller]
fn check_conv_transpose(
    x: &[usize],
    weight: &[usize],
    bias: Option<&[usize]>,
    options: &ConvTransposeOptions,
) {
    let lengths = [options.stride.len(), options.padding.len(), options.dilation.len()];
    check_window(&WindowArguments {
        op: "conv_transpose",
        x,
        kernel: &weight[2..],
        options: lengths,
        steps: [&options.stride, &options.dilation],
    });
    let groups = options.groups;
    ensure!(
        groups > 0 && x[1] == weight[0] && weight[0].is_multiple_of(groups),
        "conv_transpose",
        "{x:?} has {} channels, a weight {weight:?} in {groups} groups takes {}",
        x[1],
        weight[0]
    );
    if let Some(bias) = bias {
        ensure!(
            bias[..] == [weight[1] * groups],
            "conv_transpose",
            "a bias {bias:?} does not fit a weight {weight:?} in {groups} groups"
        );
    }
    for (i, &kernel) in weight[2..].iter().enumerate() {
        let ((before, after), size) = (options.padding[i], x[i + 2]);
        let whole = size.saturating_sub(1) * options.stride[i] + options.dilation[i] * (kernel - 1) + 1;
        let whole = whole + options.output_padding.get(i).copied().unwrap_or(0);
        ensure!(
            size == 0 || whole >= before + after,
            "conv_transpose",
            "the padding {before} and {after} cuts off more than the {whole} that dim {} of {x:?} becomes",
            i + 2
        );
    }
}

/// Transposed convolution: `weight` is `[in, out / groups, kernel…]`, `bias` `[out]`.
///
/// # Panics
/// When channels and options do not fit the input.
pub fn conv_transpose<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, D>,
    bias: Option<Tensor<B, 1>>,
    options: ConvTransposeOptions,
) -> Tensor<B, D> {
    check_conv_transpose(x.sizes(), weight.sizes(), bias.as_ref().map(Tensor::sizes), &options);
    check::same_dtypes("conv_transpose", x.dtype(), weight.dtype(), bias.as_ref().map(Tensor::dtype));
    let bias = bias.map(Tensor::into_backend);
    Tensor::wrap(B::conv_transpose(x.into_backend(), weight.into_backend(), bias, &options))
}

macro_rules! of_rank {
    ($($name:ident $transposed:ident $rank:literal $spatial:literal;)*) => {
        $(
            #[doc = concat!("[`conv`] with ", $spatial, ".")]
            pub fn $name<B: Backend>(
                x: Tensor<B, $rank>,
                weight: Tensor<B, $rank>,
                bias: Option<Tensor<B, 1>>,
                options: ConvOptions,
            ) -> Tensor<B, $rank> {
                conv(x, weight, bias, options)
            }

            #[doc = concat!("[`conv_transpose`] with ", $spatial, ".")]
            pub fn $transposed<B: Backend>(
                x: Tensor<B, $rank>,
                weight: Tensor<B, $rank>,
                bias: Option<Tensor<B, 1>>,
                options: ConvTransposeOptions,
            ) -> Tensor<B, $rank> {
                conv_transpose(x, weight, bias, options)
            }
        )*
    };
}

of_rank! {
    conv1d conv_transpose1d 3 "one spatial dim";
    conv2d conv_transpose2d 4 "two spatial dims";
    conv3d conv_transpose3d 5 "three spatial dims";
}

/// Windows of `[batch, channels, height, width]` as columns: `[batch, channels · kernel, positions]`.
///
/// # Panics
/// When a window does not fit the padded image, or a step is 0.
pub fn unfold4d<B: Backend>(
    x: Tensor<B, 4>,
    kernel_size: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
) -> Tensor<B, 3> {
    let device = x.device();
    let shape = x.shape();
    let [batch, channels, ..] = x.dims();
    // Along a spatial dim: for each element of the kernel the places that it has in the windows, one after the other.
    let places = |dim: usize| {
        let (kernel, stride, dilation) = (kernel_size[dim], stride[dim], dilation[dim]);
        let size = shape[2 + dim] + 2 * padding[dim];
        let reach = dilation * (kernel.max(1) - 1) + 1;
        ensure!(
            kernel > 0 && stride > 0 && size >= reach,
            "unfold4d",
            "windows of {reach} every {stride} do not fit dim {} of {shape}, padded by {}",
            2 + dim,
            padding[dim]
        );
        let count = (size - reach) / stride + 1;
        let steps = |count: usize, step: usize| {
            Tensor::<B, 1, Int>::arange(0..count as i64, &device).mul_scalar(step as i64)
        };
        let elements = steps(kernel, dilation).unsqueeze_dim::<2>(1);
        let places = elements.add(steps(count, stride).unsqueeze_dim(0));
        (count, places.flatten::<1>(0, 1))
    };
    let ((rows, in_rows), (columns, in_columns)) = (places(0), places(1));
    let sides = [0, 0, padding[0], padding[1]].map(|side| (side, side));
    let padded = if padding == [0, 0] { x } else { x.pad_with(&sides, PadMode::Constant, 0) };
    // Elements are moved and not computed with, so that infinities and NaN stay where they are.
    let [kernel_rows, kernel_columns] = kernel_size;
    padded
        .select(2, in_rows)
        .select(3, in_columns)
        .reshape([batch, channels, kernel_rows, rows, kernel_columns, columns])
        .permute([0, 1, 2, 4, 3, 5])
        .reshape([batch, channels * kernel_rows * kernel_columns, rows * columns])
}
