//! Layers of sequences against PyTorch's (`scripts/tensor_goldens.py` writes the cases), and what they keep of sequences that grow.

#[path = "shared/parameters.rs"]
mod parameters;

use kiln::backend::{Autodiff, NdArray};
use kiln::module::Module;
use kiln::nn::attention::{
    CrossAttention, CrossAttentionCache, CrossAttentionConfig, MhaCache, MhaInput, MultiHeadAttentionConfig,
    generate_autoregressive_mask,
};
use kiln::nn::transformer::{
    TransformerDecoder, TransformerDecoderConfig, TransformerDecoderInput, TransformerEncoderConfig,
    TransformerEncoderInput,
};
use kiln::nn::{
    BatchNormConfig, GLU, GaussianNoiseConfig, GroupNormConfig, InstanceNormConfig, LayerNormConfig,
    NormalizationConfig, RmsNormConfig, RotaryEncodingConfig,
};
use kiln::tensor::{Bool, DType, Distribution, Tensor, Tolerance, backend::Backend};
use kiln_backend_tests::case::{Case, read};
use parameters::{get, put_attention, put_linear, put_norm};

type B = NdArray;

fn case(name: &str) -> Case {
    let cases = read(include_str!("../../tests/backend/goldens/sequences.txt"));
    cases.into_iter().find(|case| case.name == name).unwrap()
}

fn random<const D: usize>(dims: [usize; D]) -> Tensor<B, D> {
    Tensor::random(dims, Distribution::Normal(0.0, 1.0), &Default::default())
}

fn assert_close<const D: usize>(got: Tensor<B, D>, want: Tensor<B, D>) {
    got.into_data().assert_approx_eq::<f32>(&want.into_data(), Tolerance::absolute(1e-5));
}

fn first<const D: usize>(x: &Tensor<B, D>, rows: usize) -> Tensor<B, D> {
    x.clone().narrow(1, 0, rows)
}

/// PyTorch's grouped attention.
fn grouped(c: &Case) -> CrossAttention<B> {
    let mut attention = CrossAttentionConfig::new(6, 7, 4, 2, 2).init::<B>(&Default::default());
    let CrossAttention { query, key, value, output, .. } = &mut attention;
    for (linear, name) in [(query, "query"), (key, "key"), (value, "value"), (output, "output")] {
        put_linear(linear, c, &format!("{name}.weight"), &format!("{name}.bias"), 0, 1);
    }
    attention
}

#[test]
fn attention_to_a_context() {
    let c = case("cross_attention");
    let attention = grouped(&c);
    let (query, context) = (get::<3>(&c, "in0"), get::<3>(&c, "in1"));
    let mask: Tensor<B, 2, Bool> = c.get("mask");
    c.check("out", attention.forward(query.clone(), context.clone(), Some(mask.clone())));

    // The keys and values of the first context are used again: what comes after it is not looked at.
    let mut cache = CrossAttentionCache::new();
    for context in [context.clone(), context.zeros_like()] {
        let out = attention.forward_cache(query.clone(), context, Some(mask.clone()), &mut cache);
        c.check("out", out);
    }
}

#[test]
#[should_panic(expected = "4 heads cannot be divided among 3")]
fn heads_that_cannot_be_shared() {
    CrossAttentionConfig::new(6, 7, 4, 3, 2).init::<B>(&Default::default());
}

#[test]
fn rotations_by_position() {
    let c = case("rotary");
    let (device, rows) = (Default::default(), get::<3>(&c, "in0"));
    let config = RotaryEncodingConfig::new(10, 6);
    let mut encoding = config.init::<B>(&device);
    c.check("out", encoding.forward(rows.clone()));
    c.check("out1", encoding.apply(rows.clone(), 4));
    // The table goes on from where it is: part of it is kept, then none.
    encoding.shift(4);
    c.check("out1", encoding.forward(rows.clone()));
    let mut encoding = config.init::<B>(&device);
    encoding.shift(1);
    encoding.shift(4);
    c.check("out1", encoding.forward(rows.clone()));
    let scaled = RotaryEncodingConfig::new(5, 6);
    let mut encoding = scaled.init_with_frequency_scaling::<B>(|angles| angles * 0.25, &device);
    encoding.shift(9);
    c.check("out2", encoding.forward(rows));
}

#[test]
#[should_panic(expected = "shifted to position 3, which is not beyond 3")]
fn rotations_do_not_go_back() {
    let mut encoding = RotaryEncodingConfig::new(10, 6).init::<B>(&Default::default());
    encoding.shift(3);
    encoding.shift(3);
}

#[test]
fn gates() {
    let c = case("glu");
    c.check("out", GLU::new(2).forward(get::<3>(&c, "in0")));
}

/// PyTorch's decoder of two layers.
fn decoder(c: &Case) -> TransformerDecoder<B> {
    let mut decoder = TransformerDecoderConfig::new(6, 8, 2, 2).init::<B>(&Default::default());
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        let name = |part: &str| format!("layers.{i}.{part}");
        put_attention(&mut layer.self_attn, c, &name("self_attn."));
        put_attention(&mut layer.cross_attn, c, &name("multihead_attn."));
        let linear = |n: usize, part: &str| name(&format!("linear{n}.{part}"));
        put_linear(&mut layer.pwff.linear_inner, c, &linear(1, "weight"), &linear(1, "bias"), 0, 1);
        put_linear(&mut layer.pwff.linear_outer, c, &linear(2, "weight"), &linear(2, "bias"), 0, 1);
        put_norm(&mut layer.norm_1, c, &name("norm1"));
        put_norm(&mut layer.norm_2, c, &name("norm2"));
        put_norm(&mut layer.norm_3, c, &name("norm3"));
    }
    decoder
}

#[test]
fn a_target_that_grows() {
    let c = case("decoder");
    let (decoder, device) = (decoder(&c), Default::default());
    let (target, memory) = (get::<3>(&c, "in0"), get::<3>(&c, "in1"));
    let input = |rows: usize| {
        TransformerDecoderInput::new(first(&target, rows), memory.clone())
            .target_mask_attn(generate_autoregressive_mask::<B>(2, rows, &device))
    };
    c.check("out", decoder.forward(input(5)));
    // Two positions at once, then one, the same again, and the others.
    let mut cache = decoder.new_autoregressive_cache();
    for rows in [2, 3, 3, 5] {
        let out = decoder.forward_autoregressive_inference(input(rows), &mut cache);
        assert_close(out, first(&get(&c, "out"), rows));
    }
}

#[test]
fn a_sequence_that_grows() {
    let device = Default::default();
    B::seed(&device, 3);
    let x = random([2, 6, 8]);
    let pad = Tensor::<B, 2, Bool>::from_bool(
        [[false; 6], [false, true, false, false, false, false]].into(),
        &device,
    );
    for norm_first in [false, true] {
        let encoder =
            TransformerEncoderConfig::new(8, 16, 2, 3).with_norm_first(norm_first).init::<B>(&device);
        let input = |rows: usize| {
            TransformerEncoderInput::new(first(&x, rows))
                .mask_attn(generate_autoregressive_mask::<B>(2, rows, &device))
                .mask_pad(pad.clone().narrow(1, 0, rows))
        };
        let whole = encoder.forward(input(6));
        let mut cache = encoder.new_autoregressive_cache();
        for rows in 1..=6 {
            let out = encoder.forward_autoregressive_inference(input(rows), &mut cache);
            assert_close(out, first(&whole, rows));
        }
    }

    let attention = MultiHeadAttentionConfig::new(8, 2).init::<B>(&device);
    let masked =
        |input: MhaInput<B>, rows| input.mask_attn(generate_autoregressive_mask::<B>(2, rows, &device));
    let whole = attention.forward(masked(MhaInput::self_attn(x.clone()), 6));
    let mut cache = MhaCache::autoregressive();
    for rows in [1, 2, 4, 6, 6] {
        let out = attention.forward_cache(masked(MhaInput::self_attn(first(&x, rows)), rows), &mut cache);
        assert_close(out.context, first(&whole.context, rows));
        assert_close(out.weights, whole.weights.clone().slice([0..2, 0..2, 0..rows, 0..rows]));
    }

    let memory = random([2, 5, 8]);
    let whole = attention.forward(MhaInput::new(x.clone(), memory.clone(), memory.clone()));
    let mut cache = MhaCache::autoregressive_cross_attention();
    for rows in [2, 3, 6] {
        let input = MhaInput::new(first(&x, rows), memory.clone(), memory.clone());
        let out = attention.forward_cache(input, &mut cache);
        assert_close(out.context, first(&whole.context, rows));
        assert_close(out.weights, whole.weights.clone().narrow(2, 0, rows));
    }
}

/// Parameters of another dtype than the backend's.
#[test]
fn a_cache_of_half_floats() {
    let attention = MultiHeadAttentionConfig::new(4, 2).init::<B>(&Default::default());
    let attention = attention.with_float_dtype(DType::F16);
    let mut cache = MhaCache::autoregressive();
    for rows in 1..=3 {
        let input = random([1, rows, 4]).cast(DType::F16);
        let out = attention.forward_cache(MhaInput::self_attn(input), &mut cache);
        assert_eq!((out.weights.dtype(), out.context.dims()), (DType::F16, [1, rows, 4]));
    }
}

#[test]
#[should_panic(expected = "the cache has seen 3 positions, the sequence has 2")]
fn a_sequence_that_shrinks() {
    let encoder = TransformerEncoderConfig::new(4, 8, 2, 1).init::<B>(&Default::default());
    let mut cache = encoder.new_autoregressive_cache();
    for rows in [3, 2] {
        let input = TransformerEncoderInput::new(random([1, rows, 4]));
        encoder.forward_autoregressive_inference(input, &mut cache);
    }
}

#[test]
fn noise_is_for_training() {
    type A = Autodiff<B>;
    let (device, layer) = (Default::default(), GaussianNoiseConfig::new(0.5).init());
    let x = random([4, 4]);
    assert_eq!(layer.forward(x.clone()).into_data(), x.into_data());

    B::seed(&device, 5);
    let x = Tensor::<A, 1>::zeros([20_000], &device).require_grad();
    let out = layer.forward(x.clone());
    let gradients = out.clone().sum().backward();
    assert_eq!(x.grad(&gradients).unwrap().into_data(), Tensor::<B, 1>::ones([20_000], &device).into_data());
    let (variance, mean) = out.inner().var_mean(0);
    assert!(mean.into_scalar().abs() < 0.02);
    assert!((variance.into_scalar().sqrt() - 0.5).abs() < 0.02);
}

#[test]
fn normalizations_are_chosen_by_configuration() {
    let (device, x) = (Default::default(), random([2, 4, 3]));
    let configs: [NormalizationConfig; 5] = [
        BatchNormConfig::new(0).into(),
        GroupNormConfig::new(2, 0).into(),
        InstanceNormConfig::new(0).into(),
        LayerNormConfig::new(0).into(),
        RmsNormConfig::new(0).into(),
    ];
    let rows = || x.clone().swap_dims(1, 2);
    let wanted = [
        BatchNormConfig::new(4).init::<B>(&device).forward(x.clone()),
        GroupNormConfig::new(2, 4).init::<B>(&device).forward(x.clone()),
        InstanceNormConfig::new(4).init::<B>(&device).forward(x.clone()),
        LayerNormConfig::new(4).init::<B>(&device).forward(rows()),
        RmsNormConfig::new(4).init::<B>(&device).forward(rows()),
    ];
    for (i, (config, want)) in configs.into_iter().zip(wanted).enumerate() {
        assert_eq!(config.num_features(), 0);
        let layer = config.with_num_features(4).init::<B>(&device);
        assert_eq!(layer.num_features(), 4);
        let input = if i < 3 { x.clone() } else { rows() };
        assert_close(layer.forward(input), want);
    }
}
