//! Convolution, pooling, resizing.

use super::{Cx, elementwise, linear};
use crate::ir::{Arg, Config, Dim, Implementation, Layer, LayerField, Op, ValueId};
use kiln_types::{Activation, ConvOptions, ConvTransposeOptions, PoolOp, PoolOptions};

pub(super) fn call(op: &Op, cx: &Cx<'_>) -> Implementation {
    match op {
        Op::Conv { options, activation } => conv(options, *activation, cx),
        Op::ConvTranspose(options) => conv_transpose(options, cx),
        Op::Pool(..) | Op::Interpolate { .. } if cx.dtype(0).is_int() => {
            Implementation::Call(as_float(op, cx))
        }
        Op::Pool(op, options) => Implementation::Call(pool(*op, options, Arg::Operand(0))),
        Op::MaxPoolWithIndices(options) => {
            let args = [Arg::Operand(0), Arg::options(options)];
            Implementation::Call(Arg::call("tensor::module::max_pool_with_indices", args))
        }
        Op::AdaptiveAvgPool { output_size } => {
            let args = [Arg::Operand(0), Arg::List(Arg::ints(output_size))];
            Implementation::Call(Arg::call("tensor::module::adaptive_avg_pool", args))
        }
        Op::Interpolate { .. } => Implementation::Call(interpolate(op, cx, Arg::Operand(0))),
        _ => Implementation::Call(Arg::Operand(0)),
    }
}

/// Windows are computed on floats; the integers that ONNX allows here have at most 24 bits.
fn as_float(op: &Op, cx: &Cx<'_>) -> Arg {
    let float = Arg::Operand(0).then("float", []);
    let made = match op {
        Op::Pool(op, options) => pool(*op, options, float),
        _ => interpolate(op, cx, float),
    };
    elementwise::cast(made, kiln_types::DType::F32, cx.dtype(0))
}

/// A size per spatial dim as layers take it: a number for one dim, else an array.
fn spatial(name: &'static str, values: &[usize]) -> Arg {
    match values {
        [value] => Arg::named(name, *value),
        values => Arg::Array(values.iter().map(|&value| Arg::named(name, value)).collect()),
    }
}

struct Names {
    layer: [&'static str; 3],
    config: [&'static str; 3],
}

const CONV: Names = Names {
    layer: ["nn::conv::Conv1d", "nn::conv::Conv2d", "nn::conv::Conv3d"],
    config: ["nn::conv::Conv1dConfig::new", "nn::conv::Conv2dConfig::new", "nn::conv::Conv3dConfig::new"],
};

const CONV_TRANSPOSE: Names = Names {
    layer: ["nn::conv::ConvTranspose1d", "nn::conv::ConvTranspose2d", "nn::conv::ConvTranspose3d"],
    config: [
        "nn::conv::ConvTranspose1dConfig::new",
        "nn::conv::ConvTranspose2dConfig::new",
        "nn::conv::ConvTranspose3dConfig::new",
    ],
};

/// Kernel and channels of a constant weight, with the index of its rank in [`Names`].
struct Weight {
    shape: Vec<usize>,
    kernel: Vec<usize>,
    at: usize,
}

fn weight(cx: &Cx<'_>) -> Option<Weight> {
    let shape = cx.shape(1).filter(|_| cx.is_constant(1))?;
    let settled = cx.input(2).is_none() || cx.is_constant(2);
    let kernel = shape.get(2..)?.to_vec();
    let at = kernel.len().checked_sub(1).filter(|&at| at < 3 && settled)?;
    Some(Weight { shape, kernel, at })
}

fn conv(options: &ConvOptions, activation: Option<Activation>, cx: &Cx<'_>) -> Implementation {
    if cx.dtype(0).is_int() {
        let args = [Arg::Operand(0), Arg::Operand(1), Arg::options(options)];
        return Implementation::Call(Arg::call("tensor::module::conv_integer", args));
    }
    let mut args = vec![Arg::Operand(0), Arg::Operand(1), cx.option(2)];
    args.extend(activation.as_ref().map(Arg::options));
    args.push(Arg::options(options));
    let name = if activation.is_some() { "tensor::module::conv_activated" } else { "tensor::module::conv" };
    let function = Arg::call(name, args);
    let (Some(weight), Some(value)) = (weight(cx), cx.input(1)) else {
        return Implementation::Call(function);
    };
    let (channels_out, channels_in) = (weight.shape[0], weight.shape[1] * options.groups);
    let mut config = new_config(&CONV, &weight, [channels_in, channels_out]);
    config = with_sizes(config, "stride", &options.stride, 1);
    config = with_sizes(config, "dilation", &options.dilation, 1);
    config = config.with("groups", Arg::named("groups", options.groups), options.groups == 1);
    let unpadded = options.padding.iter().all(|&pad| pad == (0, 0));
    config = config.with("padding", padding(&options.padding), unpadded);
    let bias = cx.input(2).is_some();
    config = config.with("bias", Arg::Bool(bias), bias);
    let (method, args) = linear::activated(activation);
    let constants = ["stride", "kernel_size", "dilation", "groups", "padding"];
    let fields = fields(value, cx, &constants);
    Implementation::Layer(Layer {
        ty: CONV.layer[weight.at],
        generic: true,
        config,
        fields,
        method,
        args,
        function,
    })
}

fn new_config(names: &Names, weight: &Weight, [channels_in, channels_out]: [usize; 2]) -> Config {
    let (channels_in, channels_out) =
        (Arg::named("channels_in", channels_in), Arg::named("channels_out", channels_out));
    let kernel = spatial("kernel", &weight.kernel);
    let args = if weight.at == 0 && names.layer[0] == CONV.layer[0] {
        vec![channels_in, channels_out, kernel]
    } else {
        vec![Arg::Array(vec![channels_in, channels_out]), kernel]
    };
    Config::new(names.config[weight.at], args)
}

fn with_sizes(config: Config, name: &'static str, values: &[usize], default: usize) -> Config {
    config.with(name, spatial(name, values), values.iter().all(|&value| value == default))
}

fn fields(weight: ValueId, cx: &Cx<'_>, constants: &[&'static str]) -> Vec<(&'static str, LayerField)> {
    let parameters = [("weight", LayerField::Parameter(weight)), ("bias", LayerField::Optional(cx.input(2)))];
    let spatial = cx.rank(1).saturating_sub(2);
    let constant = |&name: &&'static str| {
        // Arrays in the layers' structs; of one spatial dim they are numbers.
        let field = match name {
            "channels" => LayerField::Constants(2),
            "groups" => LayerField::Constant,
            "padding" if constants.len() == 5 => LayerField::Constant,
            _ if spatial > 1 => LayerField::Constants(spatial),
            _ => LayerField::Constant,
        };
        (name, field)
    };
    parameters.into_iter().chain(constants.iter().map(constant)).collect()
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

fn conv_transpose(options: &ConvTransposeOptions, cx: &Cx<'_>) -> Implementation {
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
    let constants = ["stride", "kernel_size", "dilation", "groups", "padding", "padding_out", "channels"];
    Implementation::Layer(Layer {
        ty: CONV_TRANSPOSE.layer[weight.at],
        generic: true,
        config,
        fields: fields(value, cx, &constants),
        method: "forward",
        args: vec![Arg::Operand(0)],
        function,
    })
}

/// A pooling, as one of Burn's functions where these can say it: `max_pool2d(x, [3, 3], [2, 2], …)`.
fn pool(op: PoolOp, options: &PoolOptions, x: Arg) -> Arg {
    let symmetric = options.padding.iter().all(|(before, after)| before == after);
    let undilated = options.dilation.iter().all(|&step| step == 1);
    let path = match (op, options.kernel.len()) {
        (PoolOp::Max, 1) if symmetric => "tensor::module::max_pool1d",
        (PoolOp::Max, 2) if symmetric => "tensor::module::max_pool2d",
        (PoolOp::Average { .. }, 1) if symmetric && undilated => "tensor::module::avg_pool1d",
        (PoolOp::Average { .. }, 2) if symmetric && undilated => "tensor::module::avg_pool2d",
        _ => return Arg::call("tensor::module::pool", [Arg::options(&op), x, Arg::options(options)]),
    };
    let numbers = |values: &[usize]| match values {
        [value] => Arg::Int(*value as i64),
        values => Arg::Array(Arg::ints(values)),
    };
    let padding: Vec<usize> = options.padding.iter().map(|&(before, _)| before).collect();
    let last = match op {
        PoolOp::Average { include_pad } => Arg::Bool(include_pad),
        _ => numbers(&options.dilation),
    };
    let windows = [numbers(&options.kernel), numbers(&options.stride), numbers(&padding)];
    let [kernel, stride, padding] = windows;
    Arg::call(path, [x, kernel, stride, padding, last, Arg::Bool(options.ceil_mode)])
}

fn interpolate(op: &Op, cx: &Cx<'_>, x: Arg) -> Arg {
    let Op::Interpolate {
        sizes,
        scales,
        mode,
        coordinates,
        antialias,
        exclude_outside,
        roi,
        extrapolation_value,
    } = op
    else {
        return x;
    };
    let from = cx.ty(0).map(|ty| ty.dims.as_slice()).unwrap_or_default();
    let scale = |(i, size): (usize, &Dim)| match scales.as_ref().and_then(|scales| scales.get(i)) {
        Some(&scale) => Arg::Float(scale),
        None => ratio(size, from.get(i)),
    };
    let options = Arg::fields(
        "tensor::InterpolateOptions",
        [
            ("output_size", Arg::List(Arg::sizes(sizes))),
            ("scales", Arg::List(sizes.iter().enumerate().map(scale).collect())),
            ("mode", Arg::options(mode)),
            ("coordinates", Arg::options(coordinates)),
            ("antialias", Arg::Bool(*antialias)),
            ("exclude_outside", Arg::Bool(*exclude_outside)),
            ("roi", Arg::options(roi)),
            ("extrapolation_value", Arg::Float(*extrapolation_value)),
        ],
    );
    Arg::call("tensor::module::interpolate_with", [x, options])
}

/// `to / from`, as a number when both are known.
fn ratio(to: &Dim, from: Option<&Dim>) -> Arg {
    let known = |dim: &Dim| dim.as_constant().map(|size| size as f64);
    match (known(to), from.and_then(known)) {
        (Some(to), Some(from)) if from != 0.0 => Arg::Float(to / from),
        _ => {
            let float = |dim: &Dim| Arg::call("tensor::module::size_as_float", [Arg::Size(dim.clone())]);
            float(to).then("div", [float(from.unwrap_or(to))])
        }
    }
}
