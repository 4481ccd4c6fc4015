//! Results of PyTorch and ONNX Runtime (`scripts/tensor_goldens.py` writes them).

use super::{finished, same};
use crate::case::{Case, read};
use kiln_tensor::backend::Backend;
use kiln_tensor::module::{
    self, DeformConvOptions, GridSampleOptions, RnnInputs, RoiAlignOptions, RoiPool, SampleMode,
    SamplePadding,
};
use kiln_tensor::{
    Activation, AttentionOptions, Bool, CoordinateTransform, Float, Int, InterpolateMode, InterpolateOptions,
    NearestRounding, RnnOptions, Tensor, activation,
};

pub fn activations<B: Backend>() {
    for case in read(include_str!("../../goldens/activations.txt")) {
        if case.args.contains_key("dim") || case.name == "prelu" {
            let x: Tensor<B, 3> = case.get("x");
            let actual = match case.name.as_str() {
                "softmax" => activation::softmax(x, case.dim()),
                "log_softmax" => activation::log_softmax(x, case.dim()),
                "softmin" => activation::softmin(x, case.dim()),
                "quiet_softmax" => activation::quiet_softmax(x, case.dim()),
                "glu" => activation::glu(x, case.dim()),
                _ => activation::prelu(x, case.get("alpha")),
            };
            case.check("out", actual);
            continue;
        }
        let x: Tensor<B, 1> = case.get("x");
        let actual = match case.name.as_str() {
            "relu" => activation::relu(x),
            "leaky_relu" => activation::leaky_relu(x, 0.1),
            "gelu" => activation::gelu(x),
            "gelu_approximate" => activation::gelu_approximate(x),
            "sigmoid" => activation::sigmoid(x),
            "log_sigmoid" => activation::log_sigmoid(x),
            "tanh" => activation::tanh(x),
            "silu" => activation::silu(x),
            "mish" => activation::mish(x),
            "softplus" => activation::softplus(x, 1.0),
            "softplus_2" => activation::softplus(x, 2.0),
            "hard_sigmoid" => activation::hard_sigmoid(x, 1.0 / 6.0, 0.5),
            "hard_swish" => activation::hard_swish(x),
            "elu" => activation::elu(x, 0.5),
            "relu6" => activation::clamp(x, 0.0, 6.0),
            "softsign" => activation::softsign(x),
            name => panic!("{name} has no function"),
        };
        case.check("out", actual);
    }
}

pub fn norms<B: Backend>() {
    let linear = |case: &Case| case.name == "linear";
    for case in read(include_str!("../../goldens/norms.txt")).into_iter().filter(|case| !linear(case)) {
        let image = || case.get::<B, 4, Float>("x");
        let rows = || case.get::<B, 3, Float>("x");
        let (w, b) = (case.maybe::<B, 1, Float>("w"), case.maybe::<B, 1, Float>("b"));
        match case.name.as_str() {
            "layer_norm" => case.check("out", module::layer_norm(rows(), w.unwrap(), b, 1e-5)),
            "rms_norm" => case.check("out", module::rms_norm(rows(), w.unwrap(), 1e-5)),
            "group_norm" => case.check("out", module::group_norm(image(), w, b, 2, 1e-5)),
            "instance_norm" => case.check("out", module::instance_norm(image(), w, b, 1e-5)),
            "batch_norm" => {
                let (mean, variance) = (case.get("mean"), case.get("variance"));
                case.check("out", module::batch_norm(image(), w.unwrap(), b.unwrap(), mean, variance, 1e-5));
            }
            "adaptive_avg_pool" => {
                case.check("out", module::adaptive_avg_pool2d(image(), case.sizes("size")));
            }
            "unfold4d" => {
                let [kernel, stride, padding, dilation] =
                    ["kernel", "stride", "padding", "dilation"].map(|name| case.sizes(name));
                case.check("out", module::unfold4d(image(), kernel, stride, padding, dilation));
            }
            "pixel_shuffle" => {
                let shuffled = module::depth_to_space(image(), 2, true);
                case.check("out", shuffled.clone());
                let blocks = module::depth_to_space(module::space_to_depth(shuffled.clone(), 2), 2, false);
                same(blocks, shuffled.into_data());
            }
            name => panic!("{name} has no function"),
        }
    }
}

pub fn linear<B: Backend>() {
    for case in read(include_str!("../../goldens/norms.txt")).iter().filter(|case| case.name == "linear") {
        let (x, w, b) = (case.get::<B, 3, Float>("x"), case.get("w"), case.maybe("b"));
        case.check("out", module::linear_activated(x, w, b, Activation::Gelu));
    }
}

pub fn attention<B: Backend>() {
    for case in read(include_str!("../../goldens/attention.txt")) {
        let mask = match case.tensors.get("mask").map(|data| data.rank()) {
            None => None,
            Some(2) => Some(case.get::<B, 2, Float>("mask").into()),
            Some(_) => Some(case.get::<B, 4, Bool>("mask").into()),
        };
        let options = AttentionOptions {
            scale: case.float("scale"),
            is_causal: case.args.contains_key("causal"),
            softcap: case.float("softcap"),
            fully_masked: None,
        };
        let (q, k, v) = (case.get("q"), case.get("k"), case.get("v"));
        case.check::<B, 4>("out", module::attention(q, k, v, mask, options));
    }
}

pub fn interpolate<B: Backend>() {
    for case in read(include_str!("../../goldens/interpolate.txt")) {
        let x: Tensor<B, 4> = case.get("x");
        let output_size = case.tensors["out"].shape.clone();
        let ratios = output_size.iter().zip(x.dims()).map(|(&to, from)| to as f64 / from as f64).collect();
        let options = InterpolateOptions {
            output_size: output_size.into(),
            scales: case.floats("scales").unwrap_or(ratios).into(),
            mode: match case.args["mode"].as_str() {
                "nearest" => {
                    InterpolateMode::Nearest(match case.args.get("nearest_mode").map(String::as_str) {
                        Some("round_prefer_ceil") => NearestRounding::RoundPreferCeil,
                        Some("floor") => NearestRounding::Floor,
                        Some("ceil") => NearestRounding::Ceil,
                        _ => NearestRounding::RoundPreferFloor,
                    })
                }
                "linear" => InterpolateMode::Linear,
                _ => InterpolateMode::Cubic { a: case.float("cubic_coeff_a").unwrap_or(-0.75) },
            },
            coordinates: match case.args["transform"].as_str() {
                "half_pixel" => CoordinateTransform::HalfPixel,
                "half_pixel_symmetric" => CoordinateTransform::HalfPixelSymmetric,
                "pytorch_half_pixel" => CoordinateTransform::PytorchHalfPixel,
                "align_corners" => CoordinateTransform::AlignCorners,
                "asymmetric" => CoordinateTransform::Asymmetric,
                _ => CoordinateTransform::TfCropAndResize,
            },
            antialias: case.args.contains_key("antialias"),
            exclude_outside: case.args.contains_key("exclude_outside"),
            roi: case.floats("roi").map(|roi| (0..4).map(|i| (roi[i], roi[i + 4])).collect()),
            extrapolation_value: case.float("extrapolation_value").unwrap_or(0.0),
        };
        case.check("out", module::interpolate_with(x, options));
    }
}

fn rnn_inputs<B: Backend>(case: &Case) -> RnnInputs<B> {
    RnnInputs {
        input: case.get("x"),
        weight: case.get("w"),
        recurrent: case.get("r"),
        bias: case.maybe("b"),
        sequence_lengths: case.maybe::<B, 1, Int>("lengths"),
        initial_hidden: case.maybe("h"),
        initial_cell: case.maybe("c"),
        peepholes: case.maybe("p"),
    }
}

pub fn recurrent<B: Backend>() {
    for case in read(include_str!("../../goldens/recurrent.txt")) {
        let (inputs, options) = (rnn_inputs::<B>(&case), case.recurrent_options());
        if case.name == "LSTM" {
            let (output, hidden, cell) = module::lstm(inputs.clone(), options.clone());
            case.check("out", output);
            case.check("out_h", hidden.clone());
            case.check("out_c", cell);
        } else {
            let (output, hidden) = module::rnn(inputs.clone(), options.clone());
            case.check("out", output);
            case.check("out_h", hidden);
        }
        // Batch first is the same with the outer dims swapped.
        let swap = |t: Tensor<B, 3>| t.swap_dims(0, 1);
        let swapped = RnnInputs {
            input: swap(inputs.input),
            initial_hidden: inputs.initial_hidden.map(swap),
            initial_cell: inputs.initial_cell.map(swap),
            ..inputs
        };
        let (output, hidden) = module::rnn(swapped, RnnOptions { batch_first: true, ..options });
        case.check("out", output.permute([1, 2, 0, 3]));
        case.check("out_h", hidden.swap_dims(0, 1));
    }
}

pub fn suppression<B: Backend>() {
    for case in read(include_str!("../../goldens/suppression.txt")) {
        let (boxes, scores) = (case.exactly("boxes"), case.exactly("scores"));
        let center = case.float("center") == Some(1.0);
        let (boxes, scores): (Tensor<B, 3>, Tensor<B, 3>) = (boxes, scores);
        let least = case.float("least");
        let later = module::non_max_suppression_async(boxes.clone(), scores.clone(), 4, 0.3, least, center);
        same(finished(later), case.tensors["out"].clone());
        let chosen = module::non_max_suppression::<B>(boxes.clone(), scores.clone(), 4, 0.3, least, center);
        same(chosen, case.tensors["out"].clone());
        let threshold = Tensor::from_data([0.3f32], &boxes.device());
        let within = module::non_max_suppression_within::<B>(boxes, scores, 4, threshold, least, center);
        same(within, case.tensors["out"].clone());
    }
}

pub fn sampling<B: Backend>() {
    for case in read(include_str!("../../goldens/sampling.txt")) {
        match case.name.as_str() {
            "grid_sample" => {
                let grid = case.exactly("grid");
                case.check("out", module::grid_sample::<B, 4>(case.get("x"), grid, grid_options(&case)));
            }
            "grid_sample_3d" => {
                let grid = case.exactly("grid");
                case.check("out", module::grid_sample::<B, 5>(case.get("x"), grid, grid_options(&case)));
            }
            "roi_align" => {
                let options = RoiAlignOptions {
                    output_size: [2, 3],
                    sampling_ratio: case.float("ratio").unwrap() as usize,
                    spatial_scale: case.float("scale").unwrap(),
                    half_pixel: case.args["transform"] == "half_pixel",
                    pool: if case.args["mode"] == "max" { RoiPool::Max } else { RoiPool::Average },
                };
                let (x, rois, which) = (case.get("x"), case.exactly("rois"), case.get("which"));
                let (x, rois, which): (Tensor<B, 4>, Tensor<B, 2>, Tensor<B, 1, Int>) = (x, rois, which);
                let later = module::roi_align_async(x.clone(), rois.clone(), which.clone(), options);
                case.check("out", finished(later));
                case.check("out", module::roi_align::<B>(x, rois, which, options));
            }
            _ => {
                let options = DeformConvOptions {
                    stride: [2, 1],
                    padding: [1, 1],
                    dilation: [1, 2],
                    weight_groups: 2,
                    offset_groups: 2,
                };
                let [x, w] = ["x", "w"].map(|name| case.get(name));
                let offset = case.exactly("offset");
                let (mask, bias) = (case.maybe("mask"), case.maybe("b"));
                case.check("out", module::deform_conv2d::<B>(x, offset, w, mask, bias, options));
            }
        }
    }
}

/// What is in no image is 0, whatever the images hold.
pub fn regions_beyond_the_image<B: Backend>() {
    let device = Default::default();
    let x: Tensor<B, 4> = Tensor::from_data([[[[f32::INFINITY, 1.0], [2.0, f32::NAN]]]], &device);
    let regions: Tensor<B, 2> =
        Tensor::from_data([[0.0f32, 0.0, 1.0, 0.0, 1.0], [0.0, 9.0, 9.0, 12.0, 12.0]], &device);
    let later = finished(module::max_roi_pool_async::<B>(x.clone(), regions.clone(), [1, 2], 1.0));
    for pooled in [later, module::max_roi_pool::<B>(x, regions, [1, 2], 1.0)] {
        same(pooled, [[[[2.0, 2.0]]], [[[0.0, 0.0]]]]);
    }
}

fn grid_options(case: &Case) -> GridSampleOptions {
    GridSampleOptions {
        mode: match case.args["mode"].as_str() {
            "nearest" => SampleMode::Nearest,
            "bilinear" => SampleMode::Linear,
            _ => SampleMode::Cubic,
        },
        padding: match case.args["padding"].as_str() {
            "zeros" => SamplePadding::Zeros,
            "border" => SamplePadding::Border,
            _ => SamplePadding::Reflection,
        },
        align_corners: case.args["corners"] == "1",
    }
}
