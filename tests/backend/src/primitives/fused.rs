//! Fused operations: a backend's own must agree with the composed ones.

use super::products::values;
use super::{assert_close, counting, has, held_as, mask, read, tensor};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::compose::{self, RnnOperands};
use kiln_tensor::{
    Activation, AttentionOptions, BinaryOp, CompareOp, ConvOptions, DType, Expression, FullyMasked,
    RnnDirection, RnnKind, RnnOptions, Scalar, Shape, Step, UnaryOp,
};

const ACTIVATIONS: [Activation; 17] = [
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

fn random<B: Backend>(shape: &[usize], seed: u32) -> B::Primitive {
    tensor::<B, f32>(&values(shape.iter().product(), seed), shape)
}

#[track_caller]
fn agree<B: Backend>(own: B::Primitive, composed: B::Primitive) {
    assert_eq!(own.shape(), composed.shape());
    assert_eq!(own.dtype(), composed.dtype());
    let [own, composed] = [own, composed].map(|x| read::<B, f32>(B::cast(x, DType::F32)));
    assert_close(&own, &composed, 1e-4);
}

pub fn activations<B: Backend>() {
    let x = B::binary_scalar(BinaryOp::Mul, random::<B>(&[3, 37], 1), Scalar::Float(6.0));
    for activation in ACTIVATIONS {
        agree::<B>(B::activation(activation, x.clone()), compose::activation::<B>(activation, x.clone()));
        let turned = B::permute(x.clone(), &[1, 0]);
        agree::<B>(B::activation(activation, turned.clone()), compose::activation::<B>(activation, turned));
    }
    // Sigmoid is not 0 there on all devices.
    let far = B::activation(Activation::Silu, tensor::<B, f32>(&[-3e38, -1000.0, f32::NEG_INFINITY], &[3]));
    assert!(read::<B, f32>(far).iter().all(|y| y.abs() < 1e-30));
    let special = tensor::<B, f32>(&[f32::NAN, 1e30, -1e30], &[3]);
    let bounded = read::<B, f32>(B::clamp(special, Some(Scalar::Int(-1)), None));
    assert!(bounded[0].is_nan() && bounded[1..] == [1e30, -1.0]);
    let ints = B::clamp(tensor::<B, i32>(&[-5, 0, 5], &[3]), Some(Scalar::Int(-1)), Some(Scalar::Int(2)));
    assert_eq!(read::<B, i32>(ints), [-1, 0, 2]);
}

/// GELU of 16-bit floats is that of the same numbers in 32 bits, to the last bit but one.
pub fn gelu_of_halves<B: Backend>() {
    let numbers: Vec<f32> =
        (-4000..4000).map(|n| n as f32 / 400.0).chain([f32::NAN, f32::INFINITY, 6e4, -6e4]).collect();
    for (dtype, digits) in [(DType::F16, 10), (DType::BF16, 7)] {
        if !has::<B>(dtype) {
            continue;
        }
        let x = B::cast(tensor::<B, f32>(&numbers, &[numbers.len()]), dtype);
        let own = B::activation(Activation::Gelu, x.clone());
        assert_eq!(own.dtype(), dtype);
        let wanted = B::cast(B::activation(Activation::Gelu, B::cast(x, DType::F32)), dtype);
        let [own, wanted] = [own, wanted].map(|x| read::<B, f32>(B::cast(x, DType::F32)));
        for ((&x, own), wanted) in numbers.iter().zip(own).zip(wanted) {
            let off = (own - wanted).abs();
            // In 32 bits what erf lacks to 1 is rounded.
            let close = off <= wanted.abs() * 2_f32.powi(-digits) || off < 1e-6 || own == wanted;
            assert!(close || own.is_nan() && wanted.is_nan(), "{dtype:?} of {x}: {own}, not {wanted}");
        }
    }
}

pub fn linears<B: Backend>() {
    for (dims, outputs) in [(vec![5, 7], 9), (vec![2, 3, 16], 32), (vec![17], 4), (vec![0, 3], 2)] {
        let inputs = dims[dims.len() - 1];
        let x = random::<B>(&dims, 1);
        let weight = B::permute(random::<B>(&[outputs, inputs], 2), &[1, 0]);
        let bias = random::<B>(&[outputs], 3);
        for activation in [None, Some(Activation::Relu), Some(Activation::Gelu)] {
            for bias in [None, Some(bias.clone())] {
                let own = B::linear(x.clone(), &weight, bias.as_ref(), activation);
                agree::<B>(own, compose::linear::<B>(x.clone(), &weight, bias.as_ref(), activation));
            }
        }
        let mut dims = dims;
        dims.pop();
        dims.push(outputs);
        let added = random::<B>(&dims, 4);
        let product = compose::linear::<B>(x.clone(), &weight, None, None);
        let expected = B::binary(BinaryOp::Add, product, added.clone());
        agree::<B>(B::linear_added(x.clone(), &weight, added.clone()), expected);
        let (of_weight, of_bias) = B::linear_parameter_gradients(added.clone(), x.clone());
        let expected = compose::linear_parameter_gradients::<B>(added, x);
        agree::<B>(of_weight, expected.0);
        agree::<B>(of_bias, expected.1);
    }
}

pub fn attentions<B: Backend>() {
    let options = AttentionOptions::default();
    let causal = AttentionOptions { is_causal: true, ..options };
    let capped = AttentionOptions { scale: Some(0.3), softcap: Some(2.0), ..options };
    for (heads, kv_heads, q_len, k_len) in [(2, 2, 5, 5), (4, 2, 3, 7), (1, 1, 20, 33), (2, 1, 37, 41)] {
        let q = B::permute(random::<B>(&[2, q_len, heads, 8], 1), &[0, 2, 1, 3]);
        let k = random::<B>(&[2, kv_heads, k_len, 8], 2);
        let v = random::<B>(&[2, kv_heads, k_len, 6], 3);
        let keep: Vec<u8> = (0..2 * k_len).map(|i| u8::from(i % 3 != 1)).collect();
        let keep = mask::<B>(&keep, &[2, 1, 1, k_len]);
        let added = random::<B>(&[heads, q_len, k_len], 4);
        for options in [options, causal, capped] {
            for mask in [None, Some(keep.clone()), Some(added.clone())] {
                let own = B::attention(q.clone(), k.clone(), v.clone(), mask.clone(), &options);
                agree::<B>(own, compose::attention::<B>(q.clone(), k.clone(), v.clone(), mask, &options));
            }
        }
    }
}

/// Longer ones, of sizes that no tile divides: few queries and many, short heads and long ones.
pub fn long_attentions<B: Backend>() {
    let options = AttentionOptions::default();
    let causal = AttentionOptions { is_causal: true, ..options };
    let capped = AttentionOptions { scale: Some(0.3), softcap: Some(2.0), ..causal };
    // Batch, heads and those of keys; queries and keys; sizes of these and of values.
    let cases = [
        ([1, 4, 2], [70, 70], [64, 64]),
        ([2, 32, 8], [33, 80], [16, 8]),
        ([2, 16, 16], [70, 41], [12, 20]),
        ([3, 32, 32], [16, 20], [128, 128]),
        ([2, 24, 24], [17, 60], [80, 40]),
        ([1, 2, 1], [9, 40], [256, 256]),
        ([1, 3, 3], [19, 150], [7, 5]),
    ];
    for (n, ([batch, heads, key_heads], [queries, keys], [size, value_size])) in cases.into_iter().enumerate()
    {
        let q = B::permute(random::<B>(&[batch, queries, heads, size], 1), &[0, 2, 1, 3]);
        // A part of what is longer, and its transpose.
        let k = random::<B>(&[batch, key_heads, keys + 3, size], 2);
        let all = SliceRange::full;
        let range = SliceRange { start: 3, end: keys + 3, step: 1 };
        let k = B::slice(k, &[all(batch), all(key_heads), range, all(size)]);
        let v = random::<B>(&[batch, key_heads, keys, value_size], 3);
        let turned = B::permute(random::<B>(&[batch, key_heads, value_size, keys], 3), &[0, 1, 3, 2]);
        let keep: Vec<u8> = (0..batch * keys).map(|i| u8::from(i % 3 != 1)).collect();
        let keep = mask::<B>(&keep, &[batch, 1, 1, keys]);
        let added = random::<B>(&[heads, queries, keys], 4);
        let ways = [
            (options, &turned, None),
            (options, &v, Some(&keep)),
            (options, &v, Some(&added)),
            (causal, &v, None),
            (capped, &turned, Some(&keep)),
        ];
        // Each is a kernel that has to be compiled: two for a case, in turns.
        for (options, v, mask) in [n, n + 2].map(|n| ways[n % ways.len()]) {
            let own = B::attention(q.clone(), k.clone(), v.clone(), mask.cloned(), &options);
            let (q, k, v, mask) = (q.clone(), k.clone(), v.clone(), mask.cloned());
            agree::<B>(own, compose::attention::<B>(q, k, v, mask, &options));
        }
    }
}

/// What is added to a convolution's result, and may be needed afterwards.
pub fn convolutions_added<B: Backend>() {
    // Products, squares of results, few channels, groups of few channels, one channel each.
    for (channels, outputs, groups, size, kernel) in
        [(24, 20, 1, 9, 1), (16, 16, 1, 17, 3), (3, 8, 1, 9, 3), (16, 16, 4, 9, 3), (12, 12, 12, 9, 3)]
    {
        let x = random::<B>(&[2, channels, size, size], 1);
        let weight = B::prepare(random::<B>(&[outputs, channels / groups, kernel, kernel], 2));
        let residual = random::<B>(&[2, outputs, size, size], 3);
        let pads = [kernel / 2; 2];
        let options = ConvOptions::new([1, 1], pads, [1, 1], groups);
        for activation in [None, Some(Activation::Relu), Some(Activation::Silu)] {
            for bias in [None, Some(random::<B>(&[outputs], 4))] {
                let (x, weight) = (x.clone(), weight.clone());
                let added = |residual| {
                    B::conv_added(x.clone(), weight.clone(), bias.clone(), residual, activation, &options)
                };
                let own = added(residual.clone());
                let (x, weight, bias) = (x.clone(), weight.clone(), bias.clone());
                let residual = residual.clone();
                agree::<B>(own, compose::conv_added::<B>(x, weight, bias, residual, activation, &options));
            }
        }
        let unchanged = random::<B>(&[2, outputs, size, size], 3);
        assert_eq!(read::<B, f32>(residual), read::<B, f32>(unchanged));
    }
}

/// A query that no key may answer yields zeros.
pub fn masked_out<B: Backend>() {
    for queries in [1, 2, 40] {
        let [q, k, v] = [(queries, 1), (3, 2), (3, 3)].map(|(n, seed)| random::<B>(&[1, 1, n, 8], seed));
        let keep: Vec<u8> = (0..queries * 3).map(|i| u8::from(i >= 3)).collect();
        let keep = mask::<B>(&keep, &[1, 1, queries, 3]);
        let options = AttentionOptions::default();
        let own = B::attention(q.clone(), k.clone(), v.clone(), Some(keep.clone()), &options);
        assert_eq!(read::<B, f32>(own.clone())[..8], [0.0; 8]);
        agree::<B>(own, compose::attention::<B>(q.clone(), k.clone(), v.clone(), Some(keep), &options));
        // The last query sees the last key, so the first ones see none when there are more queries than keys.
        let causal = AttentionOptions { is_causal: true, ..options };
        let own = B::attention(q.clone(), k.clone(), v.clone(), None, &causal);
        agree::<B>(own, compose::attention::<B>(q, k, v, None, &causal));
    }
}

/// What a query yields that no key may answer, by both kinds of masks.
pub fn masked_out_otherwise<B: Backend>() {
    for (queries, keys) in [(1, 3), (40, 3), (40, 20), (2, 0)] {
        let [q, k, v] =
            [(queries, 1), (keys, 2), (keys, 3)].map(|(n, seed)| random::<B>(&[1, 1, n, 8], seed));
        let keep: Vec<u8> = (0..queries * keys).map(|i| u8::from(i >= keys)).collect();
        let kept = mask::<B>(&keep, &[1, 1, queries, keys]);
        let hidden = B::unary(UnaryOp::Not, kept.clone());
        let nothing = random::<B>(&[1, 1, queries, keys], 4);
        let added = B::mask_fill(nothing, hidden, Scalar::Float(f64::NEG_INFINITY));
        for yields in [FullyMasked::Zeros, FullyMasked::Mean] {
            let options = AttentionOptions { fully_masked: Some(yields), ..AttentionOptions::default() };
            for mask in [kept.clone(), added.clone()] {
                let own = B::attention(q.clone(), k.clone(), v.clone(), Some(mask.clone()), &options);
                let first = &read::<B, f32>(own.clone())[..8];
                let values = read::<B, f32>(v.clone());
                for (at, &y) in first.iter().enumerate() {
                    let mean = values.chunks(8).map(|value| value[at]).sum::<f32>() / keys.max(1) as f32;
                    let wanted = if yields == FullyMasked::Mean { mean } else { 0.0 };
                    assert!((y - wanted).abs() < 1e-6, "{yields:?} of {keys}: {y}, not {wanted}");
                }
                agree::<B>(
                    own,
                    compose::attention::<B>(q.clone(), k.clone(), v.clone(), Some(mask), &options),
                );
            }
        }
    }
}

/// A query from which an added mask hides all keys up to its own sees none of those after it.
pub fn masked_out_before_others<B: Backend>() {
    let [q, k, v] = [1, 2, 3].map(|seed| random::<B>(&[1, 1, 3, 8], seed));
    let first = mask::<B>(&[1, 0, 0], &[1, 1, 1, 3]);
    let mask = B::mask_fill(random::<B>(&[1, 1, 3, 3], 4), first, Scalar::Float(f64::NEG_INFINITY));
    let zeros = Some(FullyMasked::Zeros);
    let options = AttentionOptions { is_causal: true, fully_masked: zeros, ..AttentionOptions::default() };
    for dtype in crate::supported::<B>().filter(|dtype| dtype.is_float()) {
        let [q, k, v, mask] = [&q, &k, &v, &mask].map(|x| B::cast(x.clone(), dtype));
        let own = B::attention(q, k, v, Some(mask), &options);
        let found = read::<B, f32>(B::cast(own, DType::F32));
        assert_eq!(found[..8], [0.0; 8], "{dtype}");
        assert!(found[8..].iter().all(|x| x.is_finite() && *x != 0.0), "{dtype}: {found:?}");
    }
    let own = B::attention(q.clone(), k.clone(), v.clone(), Some(mask.clone()), &options);
    agree::<B>(own, compose::attention::<B>(q, k, v, Some(mask), &options));
}

pub fn softmaxes<B: Backend>() {
    let x = B::binary_scalar(BinaryOp::Mul, random::<B>(&[3, 19, 5], 1), Scalar::Float(20.0));
    for dim in 0..3 {
        agree::<B>(B::softmax(x.clone(), dim), compose::softmax::<B>(x.clone(), dim));
        agree::<B>(B::log_softmax(x.clone(), dim), compose::log_softmax::<B>(x.clone(), dim));
    }
    let half = B::softmax(B::cast(x, DType::F16), 1);
    assert_eq!(half.dtype(), DType::F16);
}

/// Rows of one invocation each, of a group's that keeps all of them, and of more than it can keep; few and many.
pub fn rows_of_all_lengths<B: Backend>() {
    for (rows, length) in [(3, 1), (2, 300), (2, 1500), (1, 8300), (1024, 40), (1025, 300)] {
        let x = random::<B>(&[rows, length], 1);
        let (weight, bias) = (random::<B>(&[length], 2), random::<B>(&[length], 3));
        agree::<B>(B::softmax(x.clone(), 1), compose::softmax::<B>(x.clone(), 1));
        let own = B::layer_norm(x.clone(), weight.clone(), Some(bias.clone()), 1e-5);
        agree::<B>(own, compose::layer_norm::<B>(x, weight, Some(bias), 1e-5));
    }
}

/// What rows have in common is more than their sum can be told apart by.
fn norms_of_rows_far_from_zero<B: Backend>() {
    for (rows, length) in [(3, 7), (2, 777), (1, 9000), (1024, 40)] {
        let row =
            B::full(Shape::from([rows, length]), Scalar::Float(1000.1), DType::F32, &B::Device::default());
        let ones = B::full(Shape::from([length]), Scalar::Float(1.0), DType::F32, &B::Device::default());
        let of_rows = B::layer_norm(row.clone(), ones, None, 1e-5);
        let of_groups = B::group_norm(B::reshape(row, Shape::from([rows, 1, length])), None, None, 1, 1e-5);
        for found in [of_rows, of_groups] {
            let most = read::<B, f32>(found).into_iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            assert!(most < 1e-5, "{rows} rows of {length} equal numbers: {most}");
        }
    }
}

/// Parameters of another dtype than the rows', as weights in f32 are of a network that computes in halves.
fn norms_by_parameters_of_another_dtype<B: Backend>() {
    if !has::<B>(DType::F16) {
        return;
    }
    let [x, weight, bias] = [(4, 1), (1, 2), (1, 3)].map(|(rows, seed)| random::<B>(&[rows, 33], seed));
    let [weight, bias] = [weight, bias].map(|row| B::reshape(row, Shape::from([33])));
    let half = |x: &B::Primitive| B::cast(x.clone(), DType::F16);
    for (x, weight, bias) in [(half(&x), weight.clone(), bias.clone()), (x, half(&weight), half(&bias))] {
        let of = |y: B::Primitive| {
            assert_eq!(y.dtype(), x.dtype());
            read::<B, f32>(B::cast(y, DType::F32))
        };
        let wide = B::cast(x.clone(), DType::F32);
        let [w, b] = [&weight, &bias].map(|x| B::cast(x.clone(), DType::F32));
        let layer = B::layer_norm(wide.clone(), w.clone(), Some(b), 1e-5);
        let rms = B::rms_norm(wide, w, 1e-5);
        let found = B::layer_norm(x.clone(), weight.clone(), Some(bias), 1e-5);
        assert_close(&of(found), &of(B::cast(layer, x.dtype())), 2e-3);
        assert_close(&of(B::rms_norm(x.clone(), weight, 1e-5)), &of(B::cast(rms, x.dtype())), 2e-3);
    }
}

pub fn norms<B: Backend>() {
    norms_of_rows_far_from_zero::<B>();
    norms_by_parameters_of_another_dtype::<B>();
    let x = random::<B>(&[2, 6, 33], 1);
    let (weight, bias) = (random::<B>(&[33], 2), random::<B>(&[33], 3));
    let own = B::layer_norm(x.clone(), weight.clone(), Some(bias.clone()), 1e-5);
    agree::<B>(own, compose::layer_norm::<B>(x.clone(), weight.clone(), Some(bias), 1e-5));
    agree::<B>(B::rms_norm(x.clone(), weight.clone(), 1e-5), compose::rms_norm::<B>(x.clone(), weight, 1e-5));
    let two = random::<B>(&[6, 33], 4);
    agree::<B>(
        B::layer_norm(x.clone(), two.clone(), None, 1e-5),
        compose::layer_norm::<B>(x.clone(), two, None, 1e-5),
    );
    let channels = |seed| random::<B>(&[6], seed);
    for groups in [1, 2, 6] {
        let (weight, bias) = (Some(channels(5)), Some(channels(6)));
        let own = B::group_norm(x.clone(), weight.clone(), bias.clone(), groups, 1e-5);
        agree::<B>(own, compose::group_norm::<B>(x.clone(), weight, bias, groups, 1e-5));
    }
    let variance = B::unary(UnaryOp::Abs, channels(8));
    let own = B::batch_norm(x.clone(), channels(5), channels(6), channels(7), variance.clone(), 1e-5);
    agree::<B>(own, compose::batch_norm::<B>(x, channels(5), channels(6), channels(7), variance, 1e-5));
}

/// Of rows that few or many compute together, of too long ones to be read once, of many, of none, and of rows that lie as columns.
/// Of rows of equal numbers, which are normalized to 0, nothing flows to a weight, and to the input what differs from the mean of what arrives.
fn norm_gradients_of_rows_far_from_zero<B: Backend>() {
    for (rows, length) in [(3, 7), (2, 777), (1, 9000), (70, 40)] {
        let full = |shape: &[usize], number: f64| {
            B::full(Shape::from(shape.to_vec()), Scalar::Float(number), DType::F32, &B::Device::default())
        };
        let (x, ones) = (full(&[rows, length], 1000.1), full(&[length], 1.0));
        let gradient = random::<B>(&[rows, length], 1);
        let numbers = read::<B, f32>(gradient.clone());
        let of_rows = numbers.chunks(length).flat_map(|row| {
            let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / length as f64;
            row.iter().map(move |&x| ((f64::from(x) - mean) / 1e-5_f64.sqrt()) as f32)
        });
        let expected: Vec<f32> = of_rows.collect();
        let image = |x: &B::Primitive| B::reshape(x.clone(), Shape::from([rows, 1, length]));
        let none = None::<B::Primitive>;
        for found in [
            B::layer_norm_gradient(gradient.clone(), x.clone(), ones.clone(), 1e-5),
            compose::layer_norm_gradient::<B>(gradient.clone(), x.clone(), ones, 1e-5),
            B::group_norm_gradient(image(&gradient), image(&x), none.clone(), 1, 1e-5),
            compose::group_norm_gradient::<B>(image(&gradient), image(&x), none, 1, 1e-5),
        ] {
            let most = read::<B, f32>(found.weight).into_iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            assert!(most < 1e-2, "{rows} rows of {length} equal numbers: {most} flows to a weight");
            assert_close(&read::<B, f32>(found.input), &expected, 1e-3);
        }
    }
}

pub fn norm_gradients<B: Backend>() {
    norm_gradients_of_rows_far_from_zero::<B>();
    let check = |gradient: B::Primitive, x: B::Primitive, weight: B::Primitive| {
        let own = B::layer_norm_gradient(gradient.clone(), x.clone(), weight.clone(), 1e-5);
        let composed = compose::layer_norm_gradient::<B>(gradient.clone(), x.clone(), weight.clone(), 1e-5);
        agree::<B>(own.input, composed.input);
        agree::<B>(own.weight, composed.weight);
        agree::<B>(own.bias, composed.bias);
        let own = B::rms_norm_gradient(gradient.clone(), x.clone(), weight.clone(), 1e-5);
        let composed = compose::rms_norm_gradient::<B>(gradient, x, weight, 1e-5);
        agree::<B>(own.0, composed.0);
        agree::<B>(own.1, composed.1);
    };
    for dims in [&[3, 1][..], &[2, 6, 33], &[2, 300], &[1030, 7], &[2, 9000], &[0, 4]] {
        check(random::<B>(dims, 1), random::<B>(dims, 2), random::<B>(&dims[dims.len() - 1..], 3));
    }
    check(random::<B>(&[2, 6, 33], 1), random::<B>(&[2, 6, 33], 2), random::<B>(&[6, 33], 3));
    let turned = |seed| B::permute(random::<B>(&[33, 6], seed), &[1, 0]);
    check(turned(1), turned(2), random::<B>(&[33], 3));
}

pub fn programs<B: Backend>() {
    // (a > 0 ? a · b : gelu(a)) + 1
    let expression = Expression::new(vec![
        Step::Input(0),
        Step::Input(1),
        Step::Constant(Scalar::Float(0.0), DType::F32),
        Step::Compare(CompareOp::Greater, 0, 2),
        Step::Binary(BinaryOp::Mul, 0, 1),
        Step::Activation(Activation::Gelu, 0),
        Step::Where(3, 4, 5),
        Step::Constant(Scalar::Float(1.0), DType::F32),
        Step::Binary(BinaryOp::Add, 6, 7),
    ]);
    let (a, b) = (random::<B>(&[4, 1, 50], 1), random::<B>(&[1, 3, 50], 2));
    let own = |operands| B::elementwise(&expression, operands, &[]).remove(0);
    let composed = |operands| compose::elementwise::<B>(&expression, operands, &[]).remove(0);
    agree::<B>(own([a.clone(), b.clone()].into()), composed([a, b.clone()].into()));
    // With an operand whose memory can take the result, in both places.
    let (full, scalar) = (|| random::<B>(&[2, 3, 50], 3), random::<B>(&[1, 1, 1], 4));
    let expected = composed([full(), scalar.clone()].into());
    agree::<B>(own([full(), scalar.clone()].into()), expected);
    let expected = composed([scalar.clone(), full()].into());
    agree::<B>(own([scalar, full()].into()), expected);
    // Integers inside: any backend must do these too.
    let rounded =
        Expression::new(vec![Step::Input(0), Step::Cast(DType::I32, 0), Step::Binary(BinaryOp::Mul, 1, 1)]);
    let squares = B::elementwise(&rounded, [counting::<B>(&[4])].into(), &[]).remove(0);
    assert_eq!(read::<B, i32>(squares), [0, 1, 4, 9]);
}

/// A parameter's step and its new moment: two results, one of them broadcast, with a rate that is told at each run and the
/// position along a dim.
pub fn several_results<B: Backend>() {
    let mut program = Expression::new(vec![
        Step::Input(0),
        Step::Input(1),
        Step::Parameter(0, DType::F32),
        Step::Binary(BinaryOp::Mul, 1, 2),
        Step::Iota(1, DType::F32),
        Step::Binary(BinaryOp::Mul, 3, 4),
        Step::Binary(BinaryOp::Sub, 0, 5),
    ]);
    program.outputs = vec![3, 6, 0];
    let (a, b) = (|| counting::<B>(&[2, 3]), || tensor::<B, f32>(&[1., 2., 3.], &[1, 3]));
    for (rate, moments) in [(2.0, [2., 4., 6., 2., 4., 6.]), (0.5, [0.5, 1., 1.5, 0.5, 1., 1.5])] {
        let expected = [0, 1, 2, 3, 4, 5].map(|i| i as f32 - moments[i] * (i % 3) as f32);
        for run in [B::elementwise, compose::elementwise::<B>] {
            let results = run(&program, [a(), b()].into(), &[Scalar::Float(rate)]);
            let [moment, step, same] = results.try_into().expect("three results");
            assert_eq!(read::<B, f32>(moment), moments);
            assert_eq!(read::<B, f32>(step), expected);
            assert_eq!(read::<B, f32>(same), [0., 1., 2., 3., 4., 5.]);
        }
    }
    // With channels last in memory, positions are those of the dims.
    let counted = Expression::new(vec![
        Step::Input(0),
        Step::Constant(Scalar::Float(0.0), DType::F32),
        Step::Binary(BinaryOp::Mul, 0, 1),
        Step::Iota(1, DType::F32),
        Step::Binary(BinaryOp::Add, 2, 3),
    ]);
    let image = B::permute(counting::<B>(&[1, 2, 2, 3]), &[0, 3, 1, 2]);
    let channels = B::elementwise(&counted, [image].into(), &[]).remove(0);
    assert_eq!(read::<B, f32>(channels), [0., 0., 0., 0., 1., 1., 1., 1., 2., 2., 2., 2.]);
}

/// A recurrent layer, of as many rows as there are lengths.
struct Layer<'a> {
    kind: RnnKind,
    activations: &'a [Activation],
    steps: usize,
    hidden: usize,
    /// Whether it has all that a layer may have, with batch first.
    full: bool,
    lengths: &'a [i32],
    /// Whether its rows have these lengths.
    with_lengths: bool,
}

const DIRECTIONS: [RnnDirection; 3] =
    [RnnDirection::Forward, RnnDirection::Reverse, RnnDirection::Bidirectional];

impl Layer<'_> {
    #[track_caller]
    fn agrees<B: Backend>(&self, direction: RnnDirection) {
        self.agrees_in::<B>(direction, DType::F32, 1e-4);
    }

    /// Compares the layer in a dtype with what the CPU composes of the same numbers in 32 bits.
    #[track_caller]
    fn agrees_in<B: Backend>(&self, direction: RnnDirection, dtype: DType, tolerance: f32) {
        let options = self.options(direction);
        let own = B::rnn(self.operands::<B>(direction, dtype), &options);
        let composed =
            compose::rnn::<NdArray>(in_single(self.operands::<NdArray>(direction, dtype)), &options);
        let agree = |own: B::Primitive, composed: <NdArray as Backend>::Primitive| {
            assert_eq!((own.shape(), own.dtype()), (composed.shape(), dtype));
            let own = read::<B, f32>(B::cast(own, DType::F32));
            assert_close(&own, &read::<NdArray, f32>(composed), tolerance);
        };
        agree(own.output, composed.output);
        agree(own.hidden, composed.hidden);
        assert_eq!(own.cell.is_some(), self.is_lstm());
        if let (Some(own), Some(composed)) = (own.cell, composed.cell) {
            agree(own, composed);
        }
    }

    fn is_lstm(&self) -> bool {
        matches!(self.kind, RnnKind::Lstm { .. })
    }

    fn options(&self, direction: RnnDirection) -> RnnOptions {
        let Self { kind, activations, hidden, full, .. } = *self;
        RnnOptions {
            kind,
            direction,
            hidden_size: hidden,
            activations: activations.repeat(direction.count()).into(),
            clip: (full && self.is_lstm()).then_some(0.4),
            state_clip: full.then_some(0.3),
            batch_first: full,
        }
    }

    fn operands<B: Backend>(&self, direction: RnnDirection, dtype: DType) -> RnnOperands<B> {
        let Self { kind, steps, hidden, full, lengths, with_lengths, .. } = *self;
        let (directions, gates, batch, input) = (direction.count(), kind.gates(), lengths.len(), 5);
        let outer = |a, b, c| if full { [b, a, c] } else { [a, b, c] };
        let scaled = |t| B::binary_scalar(BinaryOp::Mul, t, Scalar::Float(7.0 / hidden as f64));
        let random = |dims: &[usize], seed| B::cast(random::<B>(dims, seed), dtype);
        let given = |dims: &[usize], seed| full.then(|| random(dims, seed));
        RnnOperands {
            input: random(&outer(steps, batch, input), 1),
            weight: random(&[directions, gates * hidden, input], 2),
            recurrent: scaled(random(&[directions, gates * hidden, hidden], 3)),
            bias: given(&[directions, 2 * gates * hidden], 4),
            sequence_lengths: with_lengths.then(|| tensor::<B, i32>(lengths, &[batch])),
            initial_hidden: given(&outer(directions, batch, hidden), 5),
            initial_cell: if self.is_lstm() { given(&outer(directions, batch, hidden), 6) } else { None },
            peepholes: if self.is_lstm() { given(&[directions, 3 * hidden], 7) } else { None },
        }
    }
}

/// The same numbers in 32 bits.
fn in_single<B: Backend>(operands: RnnOperands<B>) -> RnnOperands<B> {
    let single = |t| B::cast(t, DType::F32);
    RnnOperands {
        input: single(operands.input),
        weight: single(operands.weight),
        recurrent: single(operands.recurrent),
        bias: operands.bias.map(single),
        sequence_lengths: operands.sequence_lengths,
        initial_hidden: operands.initial_hidden.map(single),
        initial_cell: operands.initial_cell.map(single),
        peepholes: operands.peepholes.map(single),
    }
}

pub fn recurrent<B: Backend>() {
    use Activation::{Relu, Sigmoid, Tanh};
    let kinds: [(RnnKind, &[Activation]); 5] = [
        (RnnKind::Lstm { input_forget: false }, &[Sigmoid, Tanh, Tanh]),
        (RnnKind::Lstm { input_forget: true }, &[Sigmoid, Tanh, Relu]),
        (RnnKind::Gru { linear_before_reset: true }, &[Sigmoid, Tanh]),
        (RnnKind::Gru { linear_before_reset: false }, &[Sigmoid, Tanh]),
        (RnnKind::Rnn, &[Tanh]),
    ];
    for (kind, activations) in kinds {
        for direction in DIRECTIONS {
            let sizes =
                [(6, 7, false, false), (6, 7, true, false), (6, 7, true, true), (2, 300, false, true)];
            for (steps, hidden, full, with_lengths) in sizes {
                let lengths = &[steps as i32, 0, 1];
                Layer { kind, activations, steps, hidden, full, lengths, with_lengths }
                    .agrees::<B>(direction);
            }
        }
    }
}

/// Layers so wide that GPUs compute each step by many workgroups, of few rows and of more than one workgroup has.
pub fn wide_recurrent<B: Backend>() {
    let lstm = |input_forget| RnnKind::Lstm { input_forget };
    let gru = |linear_before_reset| RnnKind::Gru { linear_before_reset };
    let cases = [
        (lstm(false), 96, 3, 1, false, false),
        (lstm(false), 101, 3, 3, true, true),
        (lstm(false), 132, 2, 9, true, false),
        (lstm(false), 96, 5, 9, false, true),
        (lstm(true), 100, 3, 2, true, true),
        (gru(true), 110, 3, 1, true, false),
        (gru(true), 128, 4, 9, true, true),
        (gru(true), 107, 2, 3, false, true),
        (gru(false), 108, 3, 1, false, false),
        (gru(false), 160, 4, 9, true, true),
        (gru(false), 111, 3, 3, true, false),
        (RnnKind::Rnn, 190, 4, 3, true, true),
        (RnnKind::Rnn, 184, 3, 9, false, false),
        // Its gates' sums are more than every device's workgroups share.
        (lstm(false), 1030, 2, 1, false, false),
    ];
    for (kind, hidden, steps, rows, full, with_lengths) in cases {
        let lengths: Vec<i32> = (0..rows).map(|row| (steps + row * 2) % (steps + 1)).collect();
        let (activations, lengths, steps) = (kind.activations(), &*lengths, steps as usize);
        for direction in DIRECTIONS {
            Layer { kind, activations, steps, hidden, full, lengths, with_lengths }.agrees::<B>(direction);
        }
    }
    // What goes from step to step is not rounded to 16 bits.
    for (kind, hidden) in [(lstm(false), 96), (gru(false), 108)] {
        let (activations, lengths) = (kind.activations(), &[6, 2]);
        let layer = Layer { kind, activations, steps: 6, hidden, full: true, lengths, with_lengths: true };
        for (dtype, tolerance) in [(DType::F16, 2e-3), (DType::BF16, 2e-2)] {
            layer.agrees_in::<B>(RnnDirection::Bidirectional, held_as::<B>(dtype), tolerance);
        }
    }
}

pub fn half_weights<B: Backend>() {
    let (x, weight) = (random::<B>(&[4, 8], 1), random::<B>(&[8, 6], 2));
    let expected = read::<B, f32>(B::matmul(x.clone(), weight.clone()));
    for dtype in [DType::F16, DType::BF16].map(held_as::<B>) {
        let product = B::linear(B::cast(x.clone(), dtype), &B::cast(weight.clone(), dtype), None, None);
        assert_eq!(product.dtype(), dtype);
        assert_close(&read::<B, f32>(B::cast(product, DType::F32)), &expected, 0.03);
    }
}

/// The same weight again and again, in several ways, and changed in between.
pub fn cached_weights<B: Backend>() {
    let weight = B::prepare(random::<B>(&[8, 8], 1));
    let x = random::<B>(&[3, 8], 2);
    let first = read::<B, f32>(B::matmul(x.clone(), weight.clone()));
    for _ in 0..3 {
        assert_eq!(read::<B, f32>(B::matmul(x.clone(), weight.clone())), first);
        let turned = read::<B, f32>(B::matmul(x.clone(), B::permute(weight.clone(), &[1, 0])));
        assert_ne!(turned, first);
    }
    // A computed weight, then changed by its only holder: it is no weight until that is said again.
    let weight = B::prepare(B::binary_scalar(BinaryOp::Add, weight, Scalar::Float(0.0)));
    for _ in 0..3 {
        assert_close(&read::<B, f32>(B::matmul(x.clone(), weight.clone())), &first, 1e-6);
    }
    let mut doubled = B::binary_scalar(BinaryOp::Mul, weight, Scalar::Float(2.0));
    let expected: Vec<f32> = first.iter().map(|x| 2.0 * x).collect();
    for _ in 0..2 {
        assert_close(&read::<B, f32>(B::matmul(x.clone(), doubled.clone())), &expected, 1e-6);
        doubled = B::prepare(doubled);
    }
    // One convolution weight over images of several sizes.
    let weight = B::prepare(random::<B>(&[4, 2, 3], 3));
    let options = ConvOptions::new([1], [1], [1], 1);
    for size in [5, 9, 5] {
        let x = random::<B>(&[1, 2, size], 4);
        let own = B::conv_activated(x.clone(), weight.clone(), None, Activation::Relu, &options);
        let composed = B::activation(Activation::Relu, B::conv(x, weight.clone(), None, &options));
        agree::<B>(own, composed);
    }
}
