//! Gradients against PyTorch's (`scripts/tensor_goldens.py` writes them).

use crate::case::{Case, read};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::compose::{CrossEntropyOptions, NormGradients, RnnOperands, RnnOutput};
use kiln_tensor::{
    Activation, AttentionOptions, ConvOptions, ConvTransposeOptions, CoordinateTransform, Element,
    InterpolateMode, InterpolateOptions, NearestRounding, PoolOp, PoolOptions, RnnOptions, Shape, TensorData,
};

fn cases() -> impl Iterator<Item = Case> {
    read(include_str!("../../goldens/gradients.txt")).into_iter()
}

fn number(case: &Case, name: &str) -> usize {
    case.args[name].parse().expect("a size")
}

fn flag(case: &Case, name: &str) -> bool {
    case.args.get(name).is_some_and(|value| value == "1")
}

fn activation(name: &str) -> Option<Activation> {
    Some(match name {
        "relu" => Activation::Relu,
        "leaky_relu" => Activation::LeakyRelu { slope: 0.1 },
        "gelu" => Activation::Gelu,
        "gelu_approximate" => Activation::GeluTanh,
        "sigmoid" => Activation::Sigmoid,
        "tanh" => Activation::Tanh,
        "silu" => Activation::Silu,
        "mish" => Activation::Mish,
        "softplus" => Activation::Softplus,
        "hard_sigmoid" => Activation::HARD_SIGMOID,
        "hard_swish" => Activation::HardSwish,
        "elu" => Activation::Elu { alpha: 0.5 },
        "clamp" => Activation::Clamp { min: -0.5, max: 3.0 },
        _ => return None,
    })
}

pub fn activations<B: Backend>() {
    for case in cases() {
        let Some(activation) = activation(&case.name) else { continue };
        let (x, g) = (case.primitive::<B>("x"), case.primitive::<B>("g"));
        case.compare::<B>("dx", B::activation_gradient(activation, g, x));
    }
}

pub fn windows<B: Backend>() {
    for case in cases() {
        let tensor = |name: &str| case.primitive::<B>(name);
        let four = |name: &str| number(&case, name);
        match case.name.as_str() {
            "conv" => {
                let [stride, padding, dilation] =
                    ["stride", "padding", "dilation"].map(|name| [four(name); 2]);
                let options = ConvOptions::new(stride, padding, dilation, four("groups"));
                let (x, w, g) = (tensor("x"), tensor("w"), tensor("g"));
                case.compare::<B>("dx", B::conv_input_gradient(g.clone(), w.clone(), &x.shape(), &options));
                case.compare::<B>("dw", B::conv_weight_gradient(x, g, &w.shape(), &options));
            }
            "conv_transpose" => {
                let [stride, padding, dilation, extra] =
                    ["stride", "padding", "dilation", "extra"].map(|name| [four(name); 2]);
                let options = ConvTransposeOptions::new(stride, padding, extra, dilation, four("groups"));
                let (x, w, g) = (tensor("x"), tensor("w"), tensor("g"));
                let of_input = B::conv_transpose_input_gradient(g.clone(), w.clone(), &x.shape(), &options);
                case.compare::<B>("dx", of_input);
                case.compare::<B>("dw", B::conv_transpose_weight_gradient(x, g, &w.shape(), &options));
            }
            "lp_pool" => {
                let options = PoolOptions::new([3, 2], [2, 2], [0, 0], [1, 1], false);
                let op = PoolOp::Lp { p: number(&case, "p") as u32 };
                let found = B::pool_gradient(op, tensor("g"), tensor("x"), tensor("out"), &options);
                case.compare::<B>("dx", found);
            }
            "dilated_max_pool" => {
                let options = PoolOptions::new([3, 3], [2, 2], [1, 1], [2, 2], true);
                let found = B::pool_gradient(PoolOp::Max, tensor("g"), tensor("x"), tensor("out"), &options);
                case.compare::<B>("dx", found);
            }
            "max_pool" | "avg_pool" => {
                let options = PoolOptions::new([3, 3], [2, 2], [1, 1], [1, 1], flag(&case, "ceil"));
                let op = match case.name.as_str() {
                    "max_pool" => PoolOp::Max,
                    _ => PoolOp::Average { include_pad: flag(&case, "count") },
                };
                let (x, out) = (tensor("x"), tensor("out"));
                case.compare::<B>("dx", B::pool_gradient(op, tensor("g"), x, out, &options));
            }
            "adaptive_avg_pool" => {
                case.compare::<B>("dx", B::adaptive_avg_pool_gradient(tensor("g"), &tensor("x").shape()));
            }
            "interpolate" => {
                let (x, g) = (tensor("x"), tensor("g"));
                let options = resize(&case.args["mode"], &x.shape(), &g.shape());
                case.compare::<B>("dx", B::interpolate_gradient(g, &x.shape(), &options));
            }
            _ => {}
        }
    }
}

/// PyTorch's resizing of images, whose last two dims change.
fn resize(mode: &str, from: &Shape, to: &Shape) -> InterpolateOptions {
    let (mode, coordinates) = match mode {
        "nearest" => (InterpolateMode::Nearest(NearestRounding::Floor), CoordinateTransform::Asymmetric),
        "bilinear" => (InterpolateMode::Linear, CoordinateTransform::HalfPixel),
        _ => (InterpolateMode::Cubic { a: -0.75 }, CoordinateTransform::HalfPixel),
    };
    InterpolateOptions {
        output_size: to.dims.clone(),
        scales: to.dims.iter().zip(&from.dims).map(|(&to, &from)| to as f64 / from as f64).collect(),
        mode,
        coordinates,
        antialias: false,
        exclude_outside: false,
        roi: None,
        extrapolation_value: 0.0,
    }
}

pub fn norms<B: Backend>() {
    const EPSILON: f64 = 1e-5;
    for case in cases() {
        let tensor = |name: &str| case.primitive::<B>(name);
        let all = |found: NormGradients<B::Primitive>| {
            case.compare::<B>("dx", found.input);
            case.compare::<B>("dw", found.weight);
            case.compare::<B>("db", found.bias);
        };
        match case.name.as_str() {
            "softmax" => case.compare::<B>("dx", B::softmax_gradient(tensor("g"), tensor("out"), 1)),
            "log_softmax" => case.compare::<B>("dx", B::log_softmax_gradient(tensor("g"), tensor("out"), 1)),
            "layer_norm" => all(B::layer_norm_gradient(tensor("g"), tensor("x"), tensor("w"), EPSILON)),
            "rms_norm" => {
                let (of_input, of_weight) =
                    B::rms_norm_gradient(tensor("g"), tensor("x"), tensor("w"), EPSILON);
                case.compare::<B>("dx", of_input);
                case.compare::<B>("dw", of_weight);
            }
            "group_norm" => {
                let weight = Some(tensor("w"));
                all(B::group_norm_gradient(tensor("g"), tensor("x"), weight, 2, EPSILON));
            }
            "instance_norm" => {
                let (x, weight) = (tensor("x"), Some(tensor("w")));
                let groups = x.shape()[1];
                all(B::group_norm_gradient(tensor("g"), x, weight, groups, EPSILON));
            }
            "batch_norm" => {
                let trained = B::batch_norm_train(tensor("x"), tensor("w"), tensor("b"), EPSILON);
                case.compare::<B>("out", trained.output);
                let (mean, variance) = (trained.mean, trained.variance);
                all(B::batch_norm_gradient(tensor("g"), tensor("x"), tensor("w"), mean, variance, EPSILON));
            }
            "embedding" => {
                case.compare::<B>("dw", B::embedding_gradient(tensor("g"), tensor("x"), 4));
            }
            _ => {}
        }
    }
}

pub fn cross_entropies<B: Backend>() {
    for case in cases().filter(|case| case.name == "cross_entropy") {
        let tensor = |name: &str| case.primitive::<B>(name);
        let smoothing = case.float("smoothing").expect("every case says how much is spread");
        let options = CrossEntropyOptions { ignored: vec![-1, 50], smoothing };
        let weights = case.floats("weights").map(|weights| {
            let count = weights.len();
            let data = TensorData::new(weights, [count]).convert_dtype(B::FloatElem::DTYPE);
            B::from_data(data, &B::Device::default())
        });
        let trained = B::cross_entropy_train(tensor("x"), tensor("t"), weights.clone(), &options);
        case.compare::<B>("out", trained.losses);
        let plain = B::cross_entropy(tensor("x"), tensor("t"), weights.clone(), &options);
        case.compare::<B>("out", plain);
        let kept = (trained.largest, trained.log_sum);
        let found = B::cross_entropy_gradient(tensor("g"), tensor("x"), tensor("t"), weights, kept, &options);
        case.compare::<B>("dx", found);
    }
}

pub fn attentions<B: Backend>() {
    for case in cases().filter(|case| case.name == "attention") {
        let [q, k, v] = ["q", "k", "v"].map(|name| case.primitive::<B>(name));
        let mask = ["mask", "keep"].into_iter().find(|name| case.tensors.contains_key(*name));
        let mask = mask.map(|name| case.primitive::<B>(name));
        let options = AttentionOptions { is_causal: flag(&case, "causal"), ..AttentionOptions::default() };
        let trained = B::attention_train(q, k, v, mask, &options);
        case.compare::<B>("out", trained.output.clone());
        let found = B::attention_gradient(case.primitive::<B>("g"), trained, &options, true);
        case.compare::<B>("dq", found.q);
        case.compare::<B>("dk", found.k);
        case.compare::<B>("dv", found.v);
        assert_eq!(found.mask.is_some(), case.tensors.contains_key("dmask"));
        if let Some(mask) = found.mask {
            case.compare::<B>("dmask", mask);
        }
    }
}

pub fn recurrent<B: Backend>() {
    for case in read(include_str!("../../goldens/recurrent_gradients.txt")) {
        let options = case.recurrent_options();
        let maybe = |name: &str| case.tensors.contains_key(name).then(|| case.primitive::<B>(name));
        let operands = || RnnOperands::<B> {
            input: case.primitive::<B>("x"),
            weight: case.primitive::<B>("w"),
            recurrent: case.primitive::<B>("r"),
            bias: maybe("b"),
            sequence_lengths: maybe("lengths"),
            initial_hidden: maybe("h"),
            initial_cell: maybe("c"),
            peepholes: maybe("p"),
        };
        let check = |operands: &dyn Fn() -> RnnOperands<B>, options: &RnnOptions| {
            // With the batch first the outer dims are exchanged.
            let turned = |t: B::Primitive| if options.batch_first { B::permute(t, &[1, 0, 2]) } else { t };
            let output_as =
                |t: B::Primitive, axes: &[usize]| if options.batch_first { B::permute(t, axes) } else { t };
            let trained = B::rnn_train(operands(), options);
            case.compare::<B>("out", output_as(trained.output.output, &[1, 2, 0, 3]));
            case.compare::<B>("out_h", turned(trained.output.hidden));
            let gradient = RnnOutput::<B> {
                output: output_as(case.primitive::<B>("g"), &[2, 0, 1, 3]),
                hidden: turned(case.primitive::<B>("g_h")),
                cell: maybe("g_c").map(turned),
            };
            assert_eq!(trained.output.cell.is_some(), gradient.cell.is_some());
            if let Some(cell) = trained.output.cell {
                case.compare::<B>("out_c", turned(cell));
            }
            let found = B::rnn_gradient(gradient, operands(), trained.states, options);
            case.compare::<B>("dx", turned(found.input));
            case.compare::<B>("dw", found.weight);
            case.compare::<B>("dr", found.recurrent);
            case.compare::<B>("db", found.bias.expect("the layer has biases"));
            let states = [("dh", Some(turned(found.initial_hidden))), ("dc", found.initial_cell.map(turned))];
            for (name, gradient) in states.into_iter().chain([("dp", found.peepholes)]) {
                if case.tensors.contains_key(name) {
                    case.compare::<B>(name, gradient.expect("a gradient of what is given"));
                }
            }
        };
        check(&operands, &options);
        let turned = |t: B::Primitive| B::permute(t, &[1, 0, 2]);
        let batch_first = || {
            let given = operands();
            RnnOperands {
                input: turned(given.input),
                initial_hidden: given.initial_hidden.map(turned),
                initial_cell: given.initial_cell.map(turned),
                ..given
            }
        };
        check(&batch_first, &RnnOptions { batch_first: true, ..options.clone() });
    }
}
