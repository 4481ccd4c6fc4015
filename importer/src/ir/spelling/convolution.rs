//! Convolution, pooling, resizing.

use super::{Cx, Expr, Layer, LayerField, Spelling, elementwise, linear};
use crate::ir::{Dim, Op};
use kiln_types::{
    ConvOptions, ConvTransposeOptions, CoordinateTransform, InterpolateMode, NearestRounding, PoolOp,
    PoolOptions,
};

pub(super) fn spell(op: &Op, cx: &Cx<'_>) -> Spelling {
    match op {
        Op::Conv(options) => conv(options, cx),
        Op::ConvTranspose(options) => conv_transpose(options, cx),
        Op::Pool(..) | Op::Interpolate { .. } if cx.dtype(0).is_int() => Spelling::Expr(as_float(op, cx)),
        Op::Pool(op, options) => {
            if let Some(call) = plain_pool(*op, options) {
                return Spelling::Expr(call);
            }
            let args = vec![pool_op(*op), Expr::Operand(0), pool_options(options)];
            Spelling::Expr(Expr::Call("tensor::module::pool", args))
        }
        Op::MaxPoolWithIndices(options) => {
            let args = vec![Expr::Operand(0), pool_options(options)];
            Spelling::Expr(Expr::Call("tensor::module::max_pool_with_indices", args))
        }
        Op::AdaptiveAvgPool { output_size } => {
            let args = vec![Expr::Operand(0), Expr::ints(output_size).reference()];
            Spelling::Expr(Expr::Call("tensor::module::adaptive_avg_pool", args))
        }
        Op::Interpolate { .. } => Spelling::Expr(interpolate(op, cx)),
        _ => Spelling::Expr(Expr::Operand(0)),
    }
}

/// Windows are computed on floats; the integers that ONNX allows here have at most 24 bits.
fn as_float(op: &Op, cx: &Cx<'_>) -> Expr {
    let dtype = cx.dtype(0);
    let made = match op {
        Op::Pool(op, options) => plain_pool(*op, options).unwrap_or_else(|| {
            Expr::Call("tensor::module::pool", vec![pool_op(*op), Expr::Operand(0), pool_options(options)])
        }),
        op => interpolate(op, cx),
    };
    let float = Expr::method(0, "float", Vec::new());
    let made = match made {
        Expr::Call(path, args) => {
            let swap = |arg: Expr| if arg == Expr::Operand(0) { float.clone() } else { arg };
            Expr::Call(path, args.into_iter().map(swap).collect())
        }
        other => other,
    };
    elementwise::cast(made, kiln_types::DType::F32, dtype)
}

fn vec_of(values: &[usize]) -> Expr {
    Expr::Vec(values.iter().map(|&v| Expr::Int(v as i64)).collect())
}

fn pairs(padding: &[(usize, usize)]) -> Expr {
    let pair = |&(a, b): &(usize, usize)| Expr::Tuple(vec![Expr::Int(a as i64), Expr::Int(b as i64)]);
    Expr::Vec(padding.iter().map(pair).collect())
}

/// A size per spatial dim as layers take it: a number for one dim, else an array.
fn spatial(name: &'static str, values: &[usize]) -> Expr {
    match values {
        [value] => Expr::named(name, *value),
        values => Expr::Array(values.iter().map(|&value| Expr::named(name, value)).collect()),
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

fn conv(options: &ConvOptions, cx: &Cx<'_>) -> Spelling {
    let activation = Expr::option(options.activation.map(elementwise::value));
    let function = Expr::Call(
        "tensor::module::conv",
        vec![
            Expr::Operand(0),
            Expr::Operand(1),
            cx.option(2),
            Expr::Struct(
                "tensor::ConvOptions",
                vec![
                    ("stride", vec_of(&options.stride)),
                    ("padding", pairs(&options.padding)),
                    ("dilation", vec_of(&options.dilation)),
                    ("groups", Expr::Int(options.groups as i64)),
                    ("activation", activation),
                ],
            ),
        ],
    );
    let (Some(weight), Some(value)) = (weight(cx), cx.input(1)) else { return Spelling::Expr(function) };
    let (channels_out, channels_in) = (weight.shape[0], weight.shape[1] * options.groups);
    let mut config = new_config(&CONV, &weight, [channels_in, channels_out]);
    config = with_sizes(config, "with_stride", "stride", &options.stride, 1);
    config = with_sizes(config, "with_dilation", "dilation", &options.dilation, 1);
    config = config.setting("with_groups", vec![Expr::named("groups", options.groups)], options.groups == 1);
    let unpadded = options.padding.iter().all(|&pad| pad == (0, 0));
    config = config.setting("with_padding", vec![padding(&options.padding)], unpadded);
    let bias = cx.input(2).is_some();
    config = config.setting("with_bias", vec![Expr::Bool(bias)], bias);
    let (method, args) = linear::activated(options.activation);
    let constants = ["stride", "kernel_size", "dilation", "groups", "padding"];
    let fields = fields(value, cx, &constants);
    Spelling::Layer(Layer {
        ty: CONV.layer[weight.at],
        generic: true,
        config,
        fields,
        method,
        args,
        function,
    })
}

fn new_config(names: &Names, weight: &Weight, [channels_in, channels_out]: [usize; 2]) -> Expr {
    let (channels_in, channels_out) =
        (Expr::named("channels_in", channels_in), Expr::named("channels_out", channels_out));
    let kernel = spatial("kernel", &weight.kernel);
    let args = if weight.at == 0 && names.layer[0] == CONV.layer[0] {
        vec![channels_in, channels_out, kernel]
    } else {
        vec![Expr::Array(vec![channels_in, channels_out]), kernel]
    };
    Expr::Call(names.config[weight.at], args)
}

fn with_sizes(
    config: Expr,
    method: &'static str,
    name: &'static str,
    values: &[usize],
    default: usize,
) -> Expr {
    config.setting(method, vec![spatial(name, values)], values.iter().all(|&value| value == default))
}

fn fields(
    weight: crate::ir::ValueId,
    cx: &Cx<'_>,
    constants: &[&'static str],
) -> Vec<(&'static str, LayerField)> {
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
fn padding(padding: &[(usize, usize)]) -> Expr {
    const EXPLICIT: [&str; 3] =
        ["nn::PaddingConfig1d::Explicit", "nn::PaddingConfig2d::Explicit", "nn::PaddingConfig3d::Explicit"];
    const ASYMMETRIC: [&str; 3] = [
        "nn::PaddingConfig1d::Asymmetric",
        "nn::PaddingConfig2d::Asymmetric",
        "nn::PaddingConfig3d::Asymmetric",
    ];
    let at = padding.len().clamp(1, 3) - 1;
    if padding.iter().all(|(before, after)| before == after) {
        let sizes = padding.iter().map(|&(before, _)| Expr::named("padding", before)).collect();
        return Expr::Call(EXPLICIT[at], sizes);
    }
    let pair = |&(before, after): &(usize, usize)| {
        Expr::Array(vec![Expr::named("padding", before), Expr::named("padding", after)])
    };
    Expr::Call(ASYMMETRIC[at], vec![Expr::Array(padding.iter().map(pair).collect())])
}

fn conv_transpose(options: &ConvTransposeOptions, cx: &Cx<'_>) -> Spelling {
    let function = Expr::Call(
        "tensor::module::conv_transpose",
        vec![
            Expr::Operand(0),
            Expr::Operand(1),
            cx.option(2),
            Expr::Struct(
                "tensor::ConvTransposeOptions",
                vec![
                    ("stride", vec_of(&options.stride)),
                    ("padding", pairs(&options.padding)),
                    ("output_padding", vec_of(&options.output_padding)),
                    ("dilation", vec_of(&options.dilation)),
                    ("groups", Expr::Int(options.groups as i64)),
                ],
            ),
        ],
    );
    let symmetric = options.padding.iter().all(|(before, after)| before == after);
    let (Some(weight), Some(value), true) = (weight(cx), cx.input(1), symmetric) else {
        return Spelling::Expr(function);
    };
    let padding: Vec<usize> = options.padding.iter().map(|&(before, _)| before).collect();
    let (channels_in, channels_out) = (weight.shape[0], weight.shape[1] * options.groups);
    let mut config = new_config(&CONV_TRANSPOSE, &weight, [channels_in, channels_out]);
    config = with_sizes(config, "with_stride", "stride", &options.stride, 1);
    config = with_sizes(config, "with_dilation", "dilation", &options.dilation, 1);
    config = config.setting("with_groups", vec![Expr::named("groups", options.groups)], options.groups == 1);
    config = with_sizes(config, "with_padding", "padding", &padding, 0);
    config = with_sizes(config, "with_padding_out", "padding_out", &options.output_padding, 0);
    let bias = cx.input(2).is_some();
    config = config.setting("with_bias", vec![Expr::Bool(bias)], bias);
    let constants = ["stride", "kernel_size", "dilation", "groups", "padding", "padding_out", "channels"];
    Spelling::Layer(Layer {
        ty: CONV_TRANSPOSE.layer[weight.at],
        generic: true,
        config,
        fields: fields(value, cx, &constants),
        method: "forward",
        args: vec![Expr::Operand(0)],
        function,
    })
}

/// A pooling in the form of Burn's functions, where these can say it: `max_pool2d(x, [3, 3], [2, 2], …)`.
fn plain_pool(op: PoolOp, options: &PoolOptions) -> Option<Expr> {
    let symmetric = options.padding.iter().all(|(before, after)| before == after);
    let padding: Vec<usize> = options.padding.iter().map(|&(before, _)| before).collect();
    let undilated = options.dilation.iter().all(|&step| step == 1);
    let path = match (op, options.kernel.len()) {
        (PoolOp::Max, 1) => "tensor::module::max_pool1d",
        (PoolOp::Max, 2) => "tensor::module::max_pool2d",
        (PoolOp::Average { .. }, 1) if undilated => "tensor::module::avg_pool1d",
        (PoolOp::Average { .. }, 2) if undilated => "tensor::module::avg_pool2d",
        _ => return None,
    };
    let numbers = |values: &[usize]| match values {
        [value] => Expr::Int(*value as i64),
        values => Expr::ints(values),
    };
    let mut args =
        vec![Expr::Operand(0), numbers(&options.kernel), numbers(&options.stride), numbers(&padding)];
    args.push(match op {
        PoolOp::Average { include_pad } => Expr::Bool(include_pad),
        _ => numbers(&options.dilation),
    });
    args.push(Expr::Bool(options.ceil_mode));
    symmetric.then_some(Expr::Call(path, args))
}

fn pool_op(op: PoolOp) -> Expr {
    match op {
        PoolOp::Max => Expr::Path("tensor::PoolOp::Max"),
        PoolOp::Average { include_pad } => {
            Expr::Struct("tensor::PoolOp::Average", vec![("include_pad", Expr::Bool(include_pad))])
        }
        PoolOp::Lp { p } => Expr::Struct("tensor::PoolOp::Lp", vec![("p", Expr::Int(i64::from(p)))]),
    }
}

fn pool_options(options: &PoolOptions) -> Expr {
    Expr::Struct(
        "tensor::PoolOptions",
        vec![
            ("kernel", vec_of(&options.kernel)),
            ("stride", vec_of(&options.stride)),
            ("padding", pairs(&options.padding)),
            ("dilation", vec_of(&options.dilation)),
            ("ceil_mode", Expr::Bool(options.ceil_mode)),
        ],
    )
}

fn interpolate(op: &Op, cx: &Cx<'_>) -> Expr {
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
        return Expr::Operand(0);
    };
    let from = cx.ty(0).map(|ty| ty.dims.as_slice()).unwrap_or_default();
    let scale = |(i, size): (usize, &Dim)| match scales.as_ref().and_then(|scales| scales.get(i)) {
        Some(&scale) => Expr::Float(scale),
        None => ratio(size, from.get(i)),
    };
    let roi = roi.as_ref().map(|roi| {
        let pair = |&(a, b): &(f64, f64)| Expr::Tuple(vec![Expr::Float(a), Expr::Float(b)]);
        Expr::Vec(roi.iter().map(pair).collect())
    });
    let options = Expr::Struct(
        "tensor::InterpolateOptions",
        vec![
            ("output_size", Expr::Vec(sizes.iter().cloned().map(Expr::Size).collect())),
            ("scales", Expr::Vec(sizes.iter().enumerate().map(scale).collect())),
            ("mode", interpolate_mode(*mode)),
            ("coordinates", coordinate_transform(*coordinates)),
            ("antialias", Expr::Bool(*antialias)),
            ("exclude_outside", Expr::Bool(*exclude_outside)),
            ("roi", Expr::option(roi)),
            ("extrapolation_value", Expr::Float(*extrapolation_value)),
        ],
    );
    Expr::Call("tensor::module::interpolate_with", vec![Expr::Operand(0), options])
}

/// `to / from`, as a number when both are known.
fn ratio(to: &Dim, from: Option<&Dim>) -> Expr {
    let known = |dim: &Dim| dim.as_constant().map(|size| size as f64);
    match (known(to), from.and_then(known)) {
        (Some(to), Some(from)) if from != 0.0 => Expr::Float(to / from),
        _ => {
            let float =
                |dim: &Dim| Expr::Call("tensor::module::size_as_float", vec![Expr::Size(dim.clone())]);
            float(to).infix("/", float(from.unwrap_or(to)))
        }
    }
}

fn interpolate_mode(mode: InterpolateMode) -> Expr {
    match mode {
        InterpolateMode::Nearest(rounding) => {
            let rounding = match rounding {
                NearestRounding::RoundPreferFloor => "tensor::NearestRounding::RoundPreferFloor",
                NearestRounding::RoundPreferCeil => "tensor::NearestRounding::RoundPreferCeil",
                NearestRounding::Floor => "tensor::NearestRounding::Floor",
                NearestRounding::Ceil => "tensor::NearestRounding::Ceil",
            };
            Expr::Call("tensor::InterpolateMode::Nearest", vec![Expr::Path(rounding)])
        }
        InterpolateMode::Linear => Expr::Path("tensor::InterpolateMode::Linear"),
        InterpolateMode::Cubic { a } => {
            Expr::Struct("tensor::InterpolateMode::Cubic", vec![("a", Expr::Float(a))])
        }
    }
}

fn coordinate_transform(transform: CoordinateTransform) -> Expr {
    Expr::Path(match transform {
        CoordinateTransform::HalfPixel => "tensor::CoordinateTransform::HalfPixel",
        CoordinateTransform::HalfPixelSymmetric => "tensor::CoordinateTransform::HalfPixelSymmetric",
        CoordinateTransform::PytorchHalfPixel => "tensor::CoordinateTransform::PytorchHalfPixel",
        CoordinateTransform::AlignCorners => "tensor::CoordinateTransform::AlignCorners",
        CoordinateTransform::Asymmetric => "tensor::CoordinateTransform::Asymmetric",
        CoordinateTransform::TfHalfPixelForNn => "tensor::CoordinateTransform::TfHalfPixelForNn",
        CoordinateTransform::TfCropAndResize => "tensor::CoordinateTransform::TfCropAndResize",
    })
}
