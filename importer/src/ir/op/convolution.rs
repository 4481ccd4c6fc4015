//! Convolutions.

use super::activation::activate;
use super::linear::activated;
use super::prelude::*;
use super::windows::{
    AxisWindow, cell, check_options, each, need_places, plane, result_shape, spatial_rank, three,
};
use kiln_types::{Activation, ConvOptions, ConvTransposeOptions, Windows};

attributes! {
    /// A convolution of floats, to which a residual of its result's dims may be added.
    pub struct Conv {
        /// Where the kernel goes.
        pub options: ConvOptions,
        /// Applied to the result, after the residual.
        pub activation: Option<Activation>,
    }
}

impl Operation for Conv {
    facts!(operands: ["x", "weight", "bias?", "residual?"], parameters: [1, 2], effect: Pure, folding: Never, result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(vec![infer_conv(cx, &self.options)?])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, weight, bias, options, activation) =
            (operands.get(0)?, operands.get(1)?, operands.get(2), &self.options, self.activation);
        let (images, kernel) = (x.shape.get(2..)?, weight.shape.get(2..)?);
        let ConvOptions { stride, padding, dilation, .. } = options;
        let windows = Windows::try_new(images, kernel, stride, padding, dilation, false).ok()?;
        let (out_channels, in_group) = (weight.shape[0], weight.shape[1]);
        let out_group = out_channels.checked_div(options.groups)?.max(1);
        let sums =
            ConvSums { batch: x.shape[0], channels: x.shape[1], out_channels, in_group, out_group, windows };
        let out = match (Elements::load(x), Elements::load(weight), bias.map(Elements::load)) {
            (Elements::Float(x), weight, bias) => {
                let bias = bias.map(|bias| bias.floats());
                let mut out = sums.of(&x, &weight.floats(), bias.as_deref(), 0.0, |sum, x, w| sum + x * w);
                if let Some(residual) = operands.get(3) {
                    let residual = Elements::load(residual).floats();
                    out.iter_mut().zip(residual.iter()).for_each(|(sum, residual)| *sum += residual);
                }
                if let Some(activation) = activation {
                    out.iter_mut().for_each(|sum| *sum = activate(activation, *sum));
                }
                Elements::Float(out)
            }
            (Elements::Int(x), Elements::Int(weight), bias) if activation.is_none() => {
                let bias = match &bias {
                    None => None,
                    Some(Elements::Int(bias)) => Some(bias.as_slice()),
                    Some(Elements::Float(_)) => return None,
                };
                // They wrap at their dtype's width, where they are stored.
                let add = |sum: i128, x: i128, w: i128| sum.wrapping_add(x.wrapping_mul(w));
                Elements::Int(sums.of(&x, &weight, bias, 0, add))
            }
            // Inference lets operands of one kind pass, and an activation only on floats.
            (Elements::Int(_), ..) => return None,
        };
        Some(vec![out.store(x.dtype, result_shape(x, out_channels, sums.windows.output))])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let sizes = conv_sizes(&self.options, cx, 1)?;
        let operands =
            [KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Optional(2), KernelArg::Optional(3)];
        let [x, weight, bias, residual] = operands;
        let function = match (cx.shape(1)?.as_slice(), self.options.dilation.last()) {
            // Windows of so many elements side by side are worth a sum each.
            ([.., width], Some(1)) if *width >= 16 => "conv2d_wide",
            ([_, 1, ..], _) => "conv2d_depthwise",
            _ => "conv2d",
        };
        let activation = KernelArg::Function(self.activation);
        Some(Loops::kernel(function, [x, weight, bias, residual, sizes, activation]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let (options, activation) = (&self.options, self.activation);
        let residual = cx.input(3).is_some();
        let mut args = vec![Arg::Operand(0), Arg::Operand(1), cx.option(2)];
        let name = match activation {
            _ if residual => {
                args.extend(added(activation));
                "tensor::module::conv_added"
            }
            Some(activation) => {
                args.push(Arg::options(&activation));
                "tensor::module::conv_activated"
            }
            None => "tensor::module::conv",
        };
        args.push(Arg::options(options));
        let function = Arg::call(name, args);
        let (Some(weight), Some(value)) = (weight(cx), cx.input(1)) else {
            return Implementation::Call(function);
        };
        let mut config = windowed_config(&CONV, &weight, options);
        let bias = cx.input(2).is_some();
        config = config.with("bias", Arg::Bool(bias), bias);
        let (method, args) = match residual {
            true => ("forward_added", [vec![Arg::Operand(0)], added(activation)].concat()),
            false => activated(activation),
        };
        let layer = Layer::new(config, [Some(value), cx.input(2)], function);
        Implementation::Layer(layer.called(method, args))
    }
}

/// The sizes of a convolution for a kernel; the weight is the operand at a place.
pub(super) fn conv_sizes(options: &ConvOptions, cx: &Site<'_>, weight: usize) -> Option<KernelArg> {
    let (x, weight, result) = (cx.shape(0)?, cx.shape(weight)?, cx.result_shape()?);
    let padding: Vec<usize> = options.padding.iter().map(|&(before, _)| before).collect();
    // Kernels count places in 32 bits.
    const MOST: usize = 1 << 28;
    let after: Vec<usize> = options.padding.iter().map(|&(_, after)| after).collect();
    let all = [x.as_slice(), &weight, &result, &padding, &after, &options.stride, &options.dilation];
    if all.into_iter().flatten().any(|&size| size > MOST) {
        return None;
    }
    let sizes = vec![
        ("batch", KernelArg::Size(*x.first()?)),
        ("channels", KernelArg::Sizes(vec![*x.get(1)?, *result.get(1)?])),
        ("groups", KernelArg::Size(options.groups)),
        ("size", plane(x.get(2..)?, 1)?),
        ("result", plane(result.get(2..)?, 1)?),
        ("kernel", plane(weight.get(2..)?, 1)?),
        ("stride", plane(&options.stride, 1)?),
        ("padding", plane(&padding, 0)?),
        ("dilation", plane(&options.dilation, 1)?),
    ];
    Some(KernelArg::Fields("Conv2d", sizes))
}

/// The arguments for a residual and the activation after it.
fn added(activation: Option<Activation>) -> Vec<Arg> {
    let activation =
        activation.map_or(Arg::None, |activation| Arg::Some(Box::new(Arg::options(&activation))));
    vec![Arg::Operand(3), activation]
}

/// The sums of a convolution.
struct ConvSums {
    batch: usize,
    channels: usize,
    out_channels: usize,
    /// Channels of a group.
    in_group: usize,
    /// Results of a group.
    out_group: usize,
    windows: Windows,
}

impl ConvSums {
    /// All of them, row-major; `add` adds the product of its last two arguments to the first.
    fn of<T: Copy>(
        &self,
        x: &[T],
        weight: &[T],
        bias: Option<&[T]>,
        zero: T,
        add: impl Fn(T, T, T) -> T,
    ) -> Vec<T> {
        let Self { in_group, windows, .. } = self;
        let (cells, taps) = (windows.input_len(), windows.kernel_len());
        let mut out = Vec::new();
        for b in 0..self.batch {
            for o in 0..self.out_channels {
                let first = b * self.channels + o / self.out_group * in_group;
                each(windows.output, |place, _| {
                    let mut sum = bias.map_or(zero, |bias| bias[o]);
                    each(windows.kernel, |tap, t| {
                        if let Some(cell) = cell(windows, place, tap) {
                            for c in 0..*in_group {
                                sum = add(
                                    sum,
                                    x[(first + c) * cells + cell],
                                    weight[(o * in_group + c) * taps + t],
                                );
                            }
                        }
                    });
                    out.push(sum);
                });
            }
        }
        out
    }
}

impl Operation for ConvTransposeOptions {
    facts!(operands: ["x", "weight", "bias?"], parameters: [1, 2], effect: Pure, folding: Never, result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(vec![infer_conv_transpose(cx, self)?])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, weight, bias, options) = (operands.get(0)?, operands.get(1)?, operands.get(2), self);
        let size = three(x.shape.get(2..)?, 1usize)?;
        let kernel = three(weight.shape.get(2..)?, 1usize)?;
        let (stride, dilation) = (three(&options.stride, 1)?, three(&options.dilation, 1)?);
        let (padding, extra) = (three(&options.padding, (0, 0))?, three(&options.output_padding, 0)?);
        let mut places = [0; 3];
        for axis in 0..3 {
            let full = size[axis].checked_sub(1)? * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1;
            places[axis] = (full + extra[axis]).checked_sub(padding[axis].0 + padding[axis].1)?;
        }
        let (in_channels, out_group) = (weight.shape[0], weight.shape[1]);
        let channels = out_group.checked_mul(options.groups)?;
        let in_group = in_channels.checked_div(options.groups)?;
        let count = |dims: [usize; 3]| elements(&dims);
        let (cells, taps, spots) = (count(size), count(kernel), count(places));
        let (xs, ws) = (Elements::load(x).floats(), Elements::load(weight).floats());
        let bias = bias.map(|bias| Elements::load(bias).floats());
        let mut out: Vec<f64> = (0..x.shape[0] * channels * spots)
            .map(|i| bias.as_ref().map_or(0.0, |bias| bias[i / spots.max(1) % channels]))
            .collect();
        for b in 0..x.shape[0] {
            for c in 0..in_channels {
                each(size, |cell, n| {
                    let value = xs[(b * in_channels + c) * cells + n];
                    each(kernel, |tap, t| {
                        let mut at = 0;
                        for axis in 0..3 {
                            let i = (cell[axis] * stride[axis] + tap[axis] * dilation[axis])
                                .checked_sub(padding[axis].0)
                                .filter(|&i| i < places[axis]);
                            let Some(i) = i else {
                                return;
                            };
                            at = at * places[axis] + i;
                        }
                        for o in 0..out_group {
                            let channel = c / in_group.max(1) * out_group + o;
                            let w = ws[(c * out_group + o) * taps + t];
                            out[(b * channels + channel) * spots + at] += value * w;
                        }
                    });
                });
            }
        }
        Some(vec![Elements::Float(out).store(x.dtype, result_shape(x, channels, places))])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let (x, weight, result) = (cx.shape(0)?, cx.shape(1)?, cx.result_shape()?);
        let padding: Vec<usize> = self.padding.iter().map(|&(before, _)| before).collect();
        let sizes = KernelArg::Fields(
            "ConvTranspose2d",
            vec![
                ("batch", KernelArg::Size(*x.first()?)),
                ("channels", KernelArg::Sizes(vec![*x.get(1)?, *result.get(1)?])),
                ("groups", KernelArg::Size(self.groups)),
                ("size", plane(x.get(2..)?, 1)?),
                ("result", plane(result.get(2..)?, 1)?),
                ("kernel", plane(weight.get(2..)?, 1)?),
                ("stride", plane(&self.stride, 1)?),
                ("padding", plane(&padding, 0)?),
                ("dilation", plane(&self.dilation, 1)?),
            ],
        );
        let operands = [KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Optional(2)];
        let [x, weight, bias] = operands;
        Some(Loops::kernel("conv_transpose2d", [x, weight, bias, sizes]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let options = self;
        let args = [Arg::Operand(0), Arg::Operand(1), cx.option(2), Arg::options(options)];
        let function = Arg::call("tensor::module::conv_transpose", args);
        let symmetric = options.padding.iter().all(|(before, after)| before == after);
        let (Some(weight), Some(value), true) = (weight(cx), cx.input(1), symmetric) else {
            return Implementation::Call(function);
        };
        let padding: Vec<usize> = options.padding.iter().map(|&(before, _)| before).collect();
        let (channels_in, channels_out) = (weight.shape[0], weight.shape[1] * options.groups);
        let mut config = new_config(&CONV_TRANSPOSE, &weight, [channels_in, channels_out]);
        config = with_sizes(config, "stride", &options.stride, 1);
        config = with_sizes(config, "dilation", &options.dilation, 1);
        config = config.with("groups", Arg::named("groups", options.groups), options.groups == 1);
        config = with_sizes(config, "padding", &padding, 0);
        config = with_sizes(config, "padding_out", &options.output_padding, 0);
        let bias = cx.input(2).is_some();
        config = config.with("bias", Arg::Bool(bias), bias);
        Implementation::Layer(Layer::new(config, [Some(value), cx.input(2)], function))
    }
}

/// Checks a bias of one number a channel.
fn check_bias(cx: &Infer<'_>, x: &TensorType, channels: &Dim) -> RuleResult<()> {
    if let Some(bias) = cx.optional(2) {
        of_rank(cx, 2, "bias", 1)?;
        same_dtype("x", x, "bias", bias)?;
        need_equal("bias", &bias.dims[0], bias, channels, &x.with_dims(vec![channels.clone()]))?;
    }
    Ok(())
}

fn infer_conv(cx: &mut Infer<'_>, options: &ConvOptions) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    let weight = cx.ty(1)?;
    need_float("x", x)?;
    same_dtype("x", x, "weight", weight)?;
    let result = x.with_dims(conv_dims(cx, 1, options)?);
    check_bias(cx, x, &weight.dims[0])?;
    if let Some(residual) = cx.optional(3) {
        of_rank(cx, 3, "residual", x.rank())?;
        same_dtype("x", x, "residual", residual)?;
        for (a, b) in residual.dims.iter().zip(&result.dims) {
            need_equal("residual of a convolution", a, residual, b, &result)?;
        }
    }
    Ok(result)
}

/// The dims of a convolution of `x`, the first operand, with a weight at a place.
pub(super) fn conv_dims(cx: &Infer<'_>, weight: usize, options: &ConvOptions) -> RuleResult<Vec<Dim>> {
    let x = cx.ty(0)?;
    let rank = spatial_rank(x)?;
    let weight = of_rank(cx, weight, "weight", x.rank())?;
    let lengths = [options.stride.len(), options.padding.len(), options.dilation.len()];
    check_options(rank, &lengths, &[&options.stride, &options.dilation])?;
    let groups = Dim::from(options.groups);
    let divides = weight.dims[0].as_size().is_none_or(|out| out.checked_rem(options.groups) == Some(0));
    if options.groups == 0 || !divides {
        return Err(attribute("group", format!("is {} for weights {weight}", options.groups)));
    }
    need_equal("channels of a convolution", &x.dims[1], x, &(&weight.dims[1] * &groups), weight)?;
    let mut dims = vec![x.dims[0].clone(), weight.dims[0].clone()];
    for axis in 0..rank {
        let window = AxisWindow {
            kernel: weight.dims[axis + 2].clone(),
            stride: options.stride[axis],
            padding: options.padding[axis],
            dilation: options.dilation[axis],
        };
        dims.push(window.places(&x.dims[axis + 2], false));
    }
    Ok(need_places(x, dims)?.dims)
}

fn infer_conv_transpose(cx: &mut Infer<'_>, options: &ConvTransposeOptions) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    let rank = spatial_rank(x)?;
    let weight = of_rank(cx, 1, "weight", x.rank())?;
    need_float("x", x)?;
    same_dtype("x", x, "weight", weight)?;
    let lengths =
        [options.stride.len(), options.padding.len(), options.dilation.len(), options.output_padding.len()];
    check_options(rank, &lengths, &[&options.stride, &options.dilation])?;
    let divides = weight.dims[0].as_size().is_none_or(|inputs| inputs.checked_rem(options.groups) == Some(0));
    if options.groups == 0 || !divides {
        return Err(attribute("group", format!("is {} for weights {weight}", options.groups)));
    }
    need_equal("channels of a transposed convolution", &x.dims[1], x, &weight.dims[0], weight)?;
    let channels = &weight.dims[1] * &Dim::from(options.groups);
    check_bias(cx, x, &channels)?;
    let mut dims = vec![x.dims[0].clone(), channels];
    for axis in 0..rank {
        let one = Dim::constant(1);
        let (before, after) = options.padding[axis];
        let steps = &(&x.dims[axis + 2] - &one) * &Dim::from(options.stride[axis]);
        let window = &(&(&weight.dims[axis + 2] - &one) * &Dim::from(options.dilation[axis])) + &one;
        let cut = &Dim::from(before) + &Dim::from(after);
        dims.push(&(&(&steps + &window) + &Dim::from(options.output_padding[axis])) - &cut);
    }
    need_places(x, dims)
}

/// The configuration of a convolution but for what else it adds.
pub(super) fn windowed_config(
    of: &[&'static layers::Layer; 3],
    weight: &Weight,
    options: &ConvOptions,
) -> Config {
    let (channels_out, channels_in) = (weight.shape[0], weight.shape[1] * options.groups);
    let mut config = new_config(of, weight, [channels_in, channels_out]);
    config = with_sizes(config, "stride", &options.stride, 1);
    config = with_sizes(config, "dilation", &options.dilation, 1);
    config = config.with("groups", Arg::named("groups", options.groups), options.groups == 1);
    let unpadded = options.padding.iter().all(|&pad| pad == (0, 0));
    config.with("padding", padding(&options.padding), unpadded)
}

const CONV: [&layers::Layer; 3] = [&layers::CONV_1D, &layers::CONV_2D, &layers::CONV_3D];

const CONV_TRANSPOSE: [&layers::Layer; 3] =
    [&layers::CONV_TRANSPOSE_1D, &layers::CONV_TRANSPOSE_2D, &layers::CONV_TRANSPOSE_3D];

/// Kernel and channels of a constant weight, with the index of its rank among the layers.
pub(super) struct Weight {
    shape: Vec<usize>,
    kernel: Vec<usize>,
    at: usize,
}

fn weight(cx: &Site<'_>) -> Option<Weight> {
    let settled = cx.input(2).is_none() || cx.is_constant(2);
    weight_at(cx, 1).filter(|_| settled)
}

/// A weight that is the operand at a place.
pub(super) fn weight_at(cx: &Site<'_>, place: usize) -> Option<Weight> {
    let shape = cx.shape(place).filter(|_| cx.is_constant(place))?;
    let kernel = shape.get(2..)?.to_vec();
    let at = kernel.len().checked_sub(1).filter(|&at| at < 3)?;
    Some(Weight { shape, kernel, at })
}

fn new_config(
    of: &[&'static layers::Layer; 3],
    weight: &Weight,
    [channels_in, channels_out]: [usize; 2],
) -> Config {
    let (channels_in, channels_out) =
        (Arg::named("channels_in", channels_in), Arg::named("channels_out", channels_out));
    let kernel = spatial("kernel", &weight.kernel);
    let layer = of[weight.at];
    let args = if *layer == layers::CONV_1D || *layer == layers::QUANTIZED_CONV_1D {
        vec![channels_in, channels_out, kernel]
    } else {
        vec![Arg::Array(vec![channels_in, channels_out]), kernel]
    };
    Config::new(layer, args)
}

/// A size per spatial dim as layers take it: a number for one dim, else an array.
fn spatial(name: &'static str, values: &[usize]) -> Arg {
    match values {
        [value] => Arg::named(name, *value),
        values => Arg::Array(values.iter().map(|&value| Arg::named(name, value)).collect()),
    }
}

fn with_sizes(config: Config, name: &'static str, values: &[usize], default: usize) -> Config {
    config.with(name, spatial(name, values), values.iter().all(|&value| value == default))
}

/// `PaddingConfig2d::Explicit(1, 1)`, or its asymmetric form.
fn padding(padding: &[(usize, usize)]) -> Arg {
    const EXPLICIT: [&str; 3] =
        ["nn::PaddingConfig1d::Explicit", "nn::PaddingConfig2d::Explicit", "nn::PaddingConfig3d::Explicit"];
    const ASYMMETRIC: [&str; 3] = [
        "nn::PaddingConfig1d::Asymmetric",
        "nn::PaddingConfig2d::Asymmetric",
        "nn::PaddingConfig3d::Asymmetric",
    ];
    let at = padding.len().clamp(1, 3) - 1;
    if padding.iter().all(|(before, after)| before == after) {
        let sizes: Vec<Arg> = padding.iter().map(|&(before, _)| Arg::named("padding", before)).collect();
        return Arg::call(EXPLICIT[at], sizes);
    }
    let pair = |&(before, after): &(usize, usize)| {
        Arg::Array(vec![Arg::named("padding", before), Arg::named("padding", after)])
    };
    Arg::call(ASYMMETRIC[at], vec![Arg::Array(padding.iter().map(pair).collect())])
}
