//! Gradients against finite differences.

use super::{check, check_in_f32, has_f64, noise, shape_of};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::compose::{BatchNormTrained, CrossEntropyOptions, NormalizedBatch};
use kiln_tensor::{
    Activation, BinaryOp, ConvOptions, ConvTransposeOptions, CoordinateTransform, DType, InterpolateMode,
    InterpolateOptions, NearestRounding, PoolOp, PoolOptions, Scalar, UnaryOp,
};

pub fn activations<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    let activations = [
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.1 },
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Silu,
        Activation::Mish,
        Activation::Softplus,
        Activation::HardSigmoid { alpha: 0.2, beta: 0.5 },
        Activation::HardSwish,
        Activation::Elu { alpha: 0.7 },
        Activation::Clamp { min: -0.5, max: 2.5 },
        Activation::Affine { alpha: 0.7, beta: -0.4 },
        Activation::ScaledTanh { alpha: 1.3, beta: 0.6 },
        Activation::Softsign,
        Activation::ThresholdedRelu { alpha: 0.35 },
    ];
    let x = B::binary_scalar(BinaryOp::Mul, noise::<B>(&[5, 9], 1), Scalar::Float(5.0));
    for activation in activations {
        check::<B>(
            &activation.to_string(),
            vec![x.clone()],
            |x| B::activation(activation, x[0].clone()),
            |gradient, x| vec![B::activation_gradient(activation, gradient, x[0].clone())],
        );
    }
}

/// Strides, uneven padding, dilation, groups, windows that do not reach the end, 1 to 3 spatial dims.
pub fn convolutions<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    let options = |stride: &[usize], padding: &[(usize, usize)], dilation: &[usize], groups| ConvOptions {
        stride: stride.into(),
        padding: padding.into(),
        dilation: dilation.into(),
        groups,
    };
    let cases: [(&[usize], &[usize], ConvOptions); 6] = [
        (&[2, 3, 5, 4], &[2, 3, 2, 3], options(&[1, 1], &[(0, 0), (0, 0)], &[1, 1], 1)),
        (&[2, 4, 6, 5], &[6, 2, 3, 2], options(&[2, 3], &[(1, 0), (2, 1)], &[1, 1], 2)),
        (&[1, 3, 7, 8], &[3, 1, 2, 3], options(&[2, 1], &[(0, 1), (1, 1)], &[2, 2], 3)),
        (&[2, 2, 9], &[3, 2, 3], options(&[3], &[(1, 1)], &[2], 1)),
        (&[1, 2, 3, 4, 3], &[2, 1, 2, 2, 1], options(&[1, 2, 1], &[(1, 0), (0, 0), (0, 0)], &[1, 1, 1], 2)),
        (&[2, 2, 1, 1], &[3, 2, 1, 1], options(&[2, 2], &[(0, 0), (0, 0)], &[1, 1], 1)),
    ];
    for (x, weight, options) in cases {
        check_in_f32::<B>(
            &format!("conv of {x:?} with {weight:?}, {options:?}"),
            vec![noise::<B>(x, 1), noise::<B>(weight, 2)],
            |t| B::conv(t[0].clone(), t[1].clone(), None, &options),
            |gradient, t| {
                let (x, weight) = (shape_of(&t[0]), shape_of(&t[1]));
                vec![
                    B::conv_input_gradient(gradient.clone(), t[1].clone(), &x, &options),
                    B::conv_weight_gradient(t[0].clone(), gradient, &weight, &options),
                ]
            },
        );
    }
}

pub fn transposed_convolutions<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    let cases: [(&[usize], &[usize], ConvTransposeOptions); 8] = [
        (&[2, 3, 3, 4], &[3, 2, 2, 3], ConvTransposeOptions::new([1, 1], [0, 0], [0, 0], [1, 1], 1)),
        (&[2, 4, 3, 2], &[4, 1, 3, 2], ConvTransposeOptions::new([2, 3], [1, 0], [1, 2], [1, 1], 2)),
        (&[1, 2, 4], &[2, 3, 3], ConvTransposeOptions::new([2], [1], [1], [2], 1)),
        (
            &[1, 2, 3, 3],
            &[2, 2, 2, 2],
            ConvTransposeOptions {
                padding: [(0, 1), (1, 0)].into(),
                ..ConvTransposeOptions::new([2, 2], [0, 0], [0, 0], [1, 1], 1)
            },
        ),
        // Room for one window more, which the input does not have.
        (&[1, 3, 3, 2], &[3, 2, 3, 3], ConvTransposeOptions::new([2, 1], [1, 1], [1, 2], [1, 3], 1)),
        // Each channel for itself, groups with dilation, three dims.
        (&[2, 3, 4, 3], &[3, 1, 3, 3], ConvTransposeOptions::new([2, 2], [1, 1], [1, 0], [1, 1], 3)),
        (&[1, 4, 3, 3], &[4, 3, 2, 2], ConvTransposeOptions::new([1, 2], [1, 0], [0, 0], [2, 2], 2)),
        (
            &[1, 2, 2, 3, 2],
            &[2, 2, 2, 1, 3],
            ConvTransposeOptions::new([2, 1, 1], [0, 0, 1], [1, 0, 0], [1, 1, 1], 1),
        ),
    ];
    for (x, weight, options) in cases {
        check_in_f32::<B>(
            &format!("conv_transpose of {x:?} with {weight:?}, {options:?}"),
            vec![noise::<B>(x, 1), noise::<B>(weight, 2)],
            |t| B::conv_transpose(t[0].clone(), t[1].clone(), None, &options),
            |gradient, t| {
                let (x, weight) = (shape_of(&t[0]), shape_of(&t[1]));
                vec![
                    B::conv_transpose_input_gradient(gradient.clone(), t[1].clone(), &x, &options),
                    B::conv_transpose_weight_gradient(t[0].clone(), gradient, &weight, &options),
                ]
            },
        );
    }
}

pub fn pools<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    let ops = [
        PoolOp::Max,
        PoolOp::Average { include_pad: false },
        PoolOp::Average { include_pad: true },
        PoolOp::Lp { p: 1 },
        PoolOp::Lp { p: 2 },
        PoolOp::Lp { p: 3 },
    ];
    let options = [
        PoolOptions::new([2, 2], [2, 2], [0, 0], [1, 1], false),
        PoolOptions::new([3, 2], [2, 1], [1, 1], [1, 1], false),
        PoolOptions::new([2, 3], [3, 2], [0, 1], [1, 1], true),
        PoolOptions::new([2, 2], [1, 3], [0, 0], [2, 1], true),
        PoolOptions {
            padding: [(0, 2), (1, 0)].into(),
            ..PoolOptions::new([2, 2], [2, 2], [0, 0], [1, 1], true)
        },
    ];
    for options in &options {
        for op in ops {
            check_in_f32::<B>(
                &format!("{op:?} {options:?}"),
                vec![noise::<B>(&[2, 2, 5, 6], 1)],
                |t| B::pool(op, t[0].clone(), options),
                |gradient, t| {
                    let output = B::pool(op, t[0].clone(), options);
                    vec![B::pool_gradient(op, gradient, t[0].clone(), output, options)]
                },
            );
        }
    }
    let line = PoolOptions::new([3], [2], [1], [1], false);
    check_in_f32::<B>(
        "max_pool_with_indices",
        vec![noise::<B>(&[1, 2, 7], 1)],
        |t| B::max_pool_with_indices(t[0].clone(), &line).0,
        |gradient, t| {
            let (_, positions) = B::max_pool_with_indices(t[0].clone(), &line);
            vec![B::max_pool_gradient(gradient, positions, &shape_of(&t[0]), &line)]
        },
    );
    // A window of zeros has a norm without a slope; nothing flows.
    let zeros = B::full([1, 1, 2].into(), Scalar::Int(0), DType::F64, &B::Device::default());
    let pair = PoolOptions::new([2], [1], [0], [1], false);
    let norm = B::pool(PoolOp::Lp { p: 2 }, zeros.clone(), &pair);
    let none = B::pool_gradient(PoolOp::Lp { p: 2 }, norm.clone(), zeros, norm, &pair);
    assert_eq!(super::numbers::<B>(none), [0.0, 0.0]);
}

pub fn adaptive_pools<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    for output in [[1, 1], [2, 3], [3, 4], [5, 7], [1, 6]] {
        check_in_f32::<B>(
            &format!("adaptive_avg_pool to {output:?}"),
            vec![noise::<B>(&[2, 3, 4, 6], 1)],
            |t| B::adaptive_avg_pool(t[0].clone(), &output),
            |gradient, t| vec![B::adaptive_avg_pool_gradient(gradient, &shape_of(&t[0]))],
        );
    }
}

pub fn resizes<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    let cubic = InterpolateMode::Cubic { a: -0.75 };
    let modes = [InterpolateMode::Nearest(NearestRounding::Floor), InterpolateMode::Linear, cubic];
    for mode in modes {
        for size in [[6, 9], [3, 2], [4, 5]] {
            for coordinates in [CoordinateTransform::HalfPixel, CoordinateTransform::AlignCorners] {
                for antialias in [false, true] {
                    let output_size = vec![1, 2, size[0], size[1]];
                    let options = InterpolateOptions {
                        scales: vec![1.0, 1.0, size[0] as f64 / 4.0, size[1] as f64 / 5.0].into(),
                        output_size: output_size.into(),
                        mode,
                        coordinates,
                        antialias,
                        exclude_outside: false,
                        roi: None,
                        extrapolation_value: 0.0,
                    };
                    resize::<B>(&options);
                }
            }
        }
    }
    // A region that reaches beyond the input.
    resize::<B>(&InterpolateOptions {
        output_size: [1, 2, 5, 5].into(),
        scales: [1.0, 1.0, 1.25, 1.0].into(),
        mode: InterpolateMode::Linear,
        coordinates: CoordinateTransform::TfCropAndResize,
        antialias: false,
        exclude_outside: false,
        roi: Some([(0.0, 1.0), (0.0, 1.0), (-0.3, 0.8), (0.2, 1.4)].into()),
        extrapolation_value: 3.0,
    });
}

fn resize<B: Backend>(options: &InterpolateOptions) {
    check_in_f32::<B>(
        &format!("{options:?}"),
        vec![noise::<B>(&[1, 2, 4, 5], 1)],
        |t| B::interpolate(t[0].clone(), options),
        |gradient, t| vec![B::interpolate_gradient(gradient, &shape_of(&t[0]), options)],
    );
}

pub fn softmaxes<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    for dim in 0..3 {
        check::<B>(
            "softmax",
            vec![noise::<B>(&[2, 3, 4], 1)],
            |t| B::softmax(t[0].clone(), dim),
            |gradient, t| vec![B::softmax_gradient(gradient, B::softmax(t[0].clone(), dim), dim)],
        );
        check::<B>(
            "log_softmax",
            vec![noise::<B>(&[2, 3, 4], 1)],
            |t| B::log_softmax(t[0].clone(), dim),
            |gradient, t| vec![B::log_softmax_gradient(gradient, B::log_softmax(t[0].clone(), dim), dim)],
        );
    }
}

/// With weights and without, smoothed, with targets that do not count, of which one is no class.
pub fn cross_entropies<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    let targets = || crate::primitives::tensor::<B, i32>(&[2, -1, 0, 9, 3], &[5]);
    let weights = B::unary(UnaryOp::Exp, noise::<B>(&[4], 3));
    for weights in [None, Some(weights)] {
        for smoothing in [0.0, 0.3] {
            let options = CrossEntropyOptions { ignored: vec![-1, 9], smoothing };
            let train =
                |x: &B::Primitive| B::cross_entropy_train(x.clone(), targets(), weights.clone(), &options);
            check::<B>(
                &format!("cross_entropy {options:?}, weighted: {}", weights.is_some()),
                vec![noise::<B>(&[5, 4], 1)],
                |t| B::cross_entropy(t[0].clone(), targets(), weights.clone(), &options),
                |gradient, t| {
                    let kept = train(&t[0]);
                    let (x, kept) = (t[0].clone(), (kept.largest, kept.log_sum));
                    vec![B::cross_entropy_gradient(gradient, x, targets(), weights.clone(), kept, &options)]
                },
            );
        }
    }
}

pub fn norms<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    const EPSILON: f64 = 1e-3;
    for covered in [&[4][..], &[3, 4]] {
        let operands = || vec![noise::<B>(&[2, 3, 4], 1), noise::<B>(covered, 2)];
        let mut with_bias = operands();
        with_bias.push(noise::<B>(covered, 3));
        check::<B>(
            "layer_norm",
            with_bias,
            |t| B::layer_norm(t[0].clone(), t[1].clone(), Some(t[2].clone()), EPSILON),
            |gradient, t| {
                let found = B::layer_norm_gradient(gradient, t[0].clone(), t[1].clone(), EPSILON);
                vec![found.input, found.weight, found.bias]
            },
        );
        check::<B>(
            "rms_norm",
            operands(),
            |t| B::rms_norm(t[0].clone(), t[1].clone(), EPSILON),
            |gradient, t| {
                <[_; 2]>::from(B::rms_norm_gradient(gradient, t[0].clone(), t[1].clone(), EPSILON)).into()
            },
        );
    }
    for groups in [1, 2, 4] {
        check_in_f32::<B>(
            "group_norm",
            vec![noise::<B>(&[2, 4, 3, 2], 1), noise::<B>(&[4], 2), noise::<B>(&[4], 3)],
            |t| B::group_norm(t[0].clone(), Some(t[1].clone()), Some(t[2].clone()), groups, EPSILON),
            |gradient, t| {
                let weight = Some(t[1].clone());
                let found = B::group_norm_gradient(gradient, t[0].clone(), weight, groups, EPSILON);
                vec![found.input, found.weight, found.bias]
            },
        );
        check_in_f32::<B>(
            "group_norm without weights",
            vec![noise::<B>(&[2, 4, 3], 1)],
            |t| B::group_norm(t[0].clone(), None, None, groups, EPSILON),
            |gradient, t| vec![B::group_norm_gradient(gradient, t[0].clone(), None, groups, EPSILON).input],
        );
    }
    check_in_f32::<B>(
        "batch_norm",
        vec![noise::<B>(&[3, 2, 2, 2], 1), noise::<B>(&[2], 2), noise::<B>(&[2], 3)],
        |t| B::batch_norm_train(t[0].clone(), t[1].clone(), t[2].clone(), EPSILON).output,
        |gradient, t| {
            let trained = B::batch_norm_train(t[0].clone(), t[1].clone(), t[2].clone(), EPSILON);
            let (x, weight) = (t[0].clone(), t[1].clone());
            let found = B::batch_norm_gradient(gradient, x, weight, trained.mean, trained.variance, EPSILON);
            vec![found.input, found.weight, found.bias]
        },
    );
    let activations = [
        Activation::Relu,
        Activation::Silu,
        Activation::HardSwish,
        Activation::LeakyRelu { slope: 0.2 },
        Activation::Gelu,
    ];
    for activation in activations {
        check_in_f32::<B>(
            "an activation of batch_norm",
            vec![noise::<B>(&[3, 2, 2, 2], 1), noise::<B>(&[2], 2), noise::<B>(&[2], 3)],
            |t| {
                let trained = B::batch_norm_train(t[0].clone(), t[1].clone(), t[2].clone(), EPSILON);
                B::activation(activation, trained.output)
            },
            |gradient, t| {
                let [x, weight, bias] = [0, 1, 2].map(|n| t[n].clone());
                let trained = B::batch_norm_train(x.clone(), weight.clone(), bias.clone(), EPSILON);
                let BatchNormTrained { mean, variance, .. } = trained;
                let normalized = NormalizedBatch { x, weight, bias, mean, variance };
                let found = B::batch_norm_activation_gradient(activation, gradient, normalized, EPSILON);
                vec![found.input, found.weight, found.bias]
            },
        );
    }
}

pub fn embeddings<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    // Row 1 twice, row 3 never.
    let indices = || crate::primitives::tensor::<B, i32>(&[1, 0, 2, 1], &[2, 2]);
    check::<B>(
        "embedding",
        vec![noise::<B>(&[4, 3], 1)],
        |t| B::select(t[0].clone(), 0, B::reshape(indices(), [4].into())),
        |gradient, t| {
            let gradient = B::reshape(gradient, [2, 2, 3].into());
            vec![B::embedding_gradient(gradient, indices(), t[0].dims()[0])]
        },
    );
}

/// Tables of few rows that many positions name, and one row of which all do: sums in all orders are those in 64 bits.
pub fn embeddings_of_few_rows<B: Backend>() {
    for (positions, rows, width) in [(1000, 3, 5), (4099, 2, 300), (640, 21, 7), (70, 1, 2)] {
        let numbers: Vec<i32> = (0..positions).map(|n| n * n % 7 % rows).collect();
        let arrives: Vec<f32> = (0..positions * width).map(|n| (n * 31 % 17) as f32 - 8.0).collect();
        let mut wanted = vec![0.0_f32; (rows * width) as usize];
        for (position, &row) in numbers.iter().enumerate() {
            for column in 0..width as usize {
                wanted[row as usize * width as usize + column] += arrives[position * width as usize + column];
            }
        }
        let indices = crate::primitives::tensor::<B, i32>(&numbers, &[positions as usize]);
        let gradient = crate::primitives::tensor::<B, f32>(&arrives, &[positions as usize, width as usize]);
        let found = B::embedding_gradient(gradient, indices, rows as usize);
        assert_eq!(found.dims(), [rows as usize, width as usize]);
        assert_eq!(crate::primitives::read::<B, f32>(found), wanted, "{positions} positions, {rows} rows");
    }
}
