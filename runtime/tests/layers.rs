//! Layers and losses against PyTorch's; `scripts/tensor_goldens.py` writes the cases.

#[path = "shared/parameters.rs"]
mod parameters;

use kiln::backend::{Autodiff, NdArray};
use kiln::module::{Param, RunningState};
use kiln::nn::attention::{MhaInput, MultiHeadAttentionConfig};
use kiln::nn::conv::{Conv1dConfig, Conv2dConfig, Conv3dConfig, ConvTranspose2dConfig};
use kiln::nn::interpolate::{Interpolate1dConfig, Interpolate2dConfig, InterpolateMode};
use kiln::nn::loss::{
    BinaryCrossEntropyLossConfig, CosineEmbeddingLossConfig, CrossEntropyLossConfig, HuberLossConfig,
    MseLoss, PoissonNllLossConfig, Reduction,
};
use kiln::nn::pool::{AdaptiveAvgPool1dConfig, AvgPool2dConfig, MaxPool2dConfig};
use kiln::nn::transformer::{
    TransformerDecoderConfig, TransformerDecoderInput, TransformerEncoderConfig, TransformerEncoderInput,
};
use kiln::nn::{
    ActivationConfig, BatchNormConfig, BiGruConfig, BiLstmConfig, BiRnnConfig, GateController, GruConfig,
    Initializer, LstmConfig, PaddingConfig1d, PaddingConfig2d, RnnConfig, RnnState,
};
use kiln::tensor::backend::Backend;
use kiln::tensor::{Activation, Bool, Int, Tensor, TensorData};
use kiln_backend_tests::case::{Case, read};
use parameters::{get, param, put_attention, put_linear, put_norm};

type B = NdArray;

/// The case of a name.
fn case(name: &str) -> Case {
    let cases = read(include_str!("../../tests/backend/goldens/layers.txt"));
    cases.into_iter().find(|case| case.name == name).unwrap()
}

fn put_gate(gate: &mut GateController<B>, case: &Case, suffix: &str, part: usize, of: usize) {
    let named = |name: &str| format!("{name}_l0{suffix}");
    let (weight, bias) = (named("weight_ih"), named("bias_ih"));
    put_linear(&mut gate.input_transform, case, &weight, &bias, part, of);
    let (weight, bias) = (named("weight_hh"), named("bias_hh"));
    put_linear(&mut gate.hidden_transform, case, &weight, &bias, part, of);
}

#[test]
fn convolutions() {
    let device = Default::default();
    let c = case("conv1d");
    let config = Conv1dConfig::new(4, 6, 3).with_stride(2).with_groups(2);
    let mut conv = config.with_padding(PaddingConfig1d::Explicit(1)).init::<B>(&device);
    (conv.weight, conv.bias) = (param(&c, "weight"), Some(param(&c, "bias")));
    c.check("out", conv.forward(get(&c, "in0")));

    let c = case("conv2d_same");
    let config = Conv2dConfig::new([4, 3], [3, 4]).with_dilation([1, 2]).with_padding(PaddingConfig2d::Same);
    let mut conv = config.init::<B>(&device);
    (conv.weight, conv.bias) = (param(&c, "weight"), Some(param(&c, "bias")));
    c.check("out", conv.forward(get(&c, "in0")));

    let c = case("conv2d_asymmetric");
    let config = Conv2dConfig::new([4, 3], [2, 3]).with_bias(false);
    let mut conv = config.with_padding(PaddingConfig2d::Asymmetric([[0, 1], [2, 1]])).init::<B>(&device);
    conv.weight = param(&c, "weight");
    c.check("out", conv.forward_activated(get(&c, "in0"), Activation::Relu));

    let c = case("conv_transpose2d");
    let config = ConvTranspose2dConfig::new([4, 6], [3, 3]).with_stride([2, 2]).with_padding([1, 1]);
    let mut conv = config.with_padding_out([1, 1]).with_groups(2).init::<B>(&device);
    (conv.weight, conv.bias) = (param(&c, "weight"), Some(param(&c, "bias")));
    c.check("out", conv.forward(get(&c, "in0")));
}

/// Both fans count the channels of a group.
#[test]
fn convolutions_with_initializers_that_ask_for_outputs() {
    let device = Default::default();
    B::seed(&device, 5);
    let check = |weight: TensorData, [fan_in, fan_out]: [usize; 2], what: &Initializer| {
        let bound = match what {
            Initializer::XavierUniform { .. } => (6.0 / (fan_in + fan_out) as f64).sqrt(),
            _ => (3.0 / fan_out as f64).sqrt(),
        };
        let largest = weight.iter::<f64>().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        assert!(largest < bound * 1.001 && largest > bound * 0.9, "{what:?}: {largest}, not {bound}");
    };
    for what in [
        Initializer::XavierUniform { gain: 1.0 },
        Initializer::KaimingUniform { gain: 1.0, fan_out_only: true },
    ] {
        let conv = Conv1dConfig::new(16, 8, 3).with_groups(2).with_initializer(what.clone());
        check(conv.init::<B>(&device).weight.val().into_data(), [24, 12], &what);
        let conv = Conv2dConfig::new([16, 8], [3, 3]).with_groups(2).with_initializer(what.clone());
        let conv = conv.init::<B>(&device);
        check(conv.weight.val().into_data(), [72, 36], &what);
        assert_eq!(conv.bias.map(|bias| bias.val().dims()), Some([8]));
        let conv = Conv3dConfig::new([4, 8], [3, 2, 2]).with_initializer(what.clone());
        check(conv.init::<B>(&device).weight.val().into_data(), [48, 96], &what);
    }
}

#[test]
#[should_panic(
    expected = "Conv1d: with the padding `Same`, the input's spatial size, the kernel and the stride are at least 1, \
                           not 0, 3 and 1"
)]
fn same_padding_of_nothing() {
    let device = Default::default();
    let conv = Conv1dConfig::new(2, 2, 3).with_padding(PaddingConfig1d::Same).init::<B>(&device);
    conv.forward(Tensor::zeros([1, 2, 0], &device));
}

#[test]
#[should_panic(expected = "MaxPool2d: with the padding `Same`")]
fn same_padding_of_a_window_that_stays() {
    let pool = MaxPool2dConfig::new([2, 2]).with_strides([1, 0]).with_padding(PaddingConfig2d::Same).init();
    pool.forward(Tensor::<B, 4>::zeros([1, 1, 4, 4], &Default::default()));
}

/// Of a batch of nothing there are no statistics.
#[test]
fn batch_norm_of_an_empty_batch() {
    let device = Default::default();
    let norm = BatchNormConfig::new(2).init::<Autodiff<B>>(&device);
    let out = norm.forward(Tensor::<Autodiff<B>, 2>::zeros([0, 2], &device));
    assert_eq!(out.dims(), [0, 2]);
    assert_eq!(norm.running_mean.value_sync().into_data().to_vec::<f32>().unwrap(), [0.0; 2]);
    assert_eq!(norm.running_var.value_sync().into_data().to_vec::<f32>().unwrap(), [1.0; 2]);
}

#[test]
fn batch_norm() {
    let c = case("batch_norm");
    let mut norm = BatchNormConfig::new(4).init::<B>(&Default::default());
    (norm.gamma, norm.beta) = (param(&c, "weight"), param(&c, "bias"));
    norm.running_mean = RunningState::new(get(&c, "running_mean"));
    norm.running_var = RunningState::new(get(&c, "running_var"));
    c.check("out", norm.forward(get::<4>(&c, "in0")));
}

#[test]
fn recurrent_layers() {
    let device = Default::default();
    let c = case("lstm");
    let mut lstm = LstmConfig::new(4, 3, true).init::<B>(&device);
    put_gate(&mut lstm.input_gate, &c, "", 0, 4);
    put_gate(&mut lstm.forget_gate, &c, "", 1, 4);
    put_gate(&mut lstm.cell_gate, &c, "", 2, 4);
    put_gate(&mut lstm.output_gate, &c, "", 3, 4);
    let (output, state) = lstm.forward(get(&c, "in0"), None);
    c.check("out", output);
    c.check("out1", state.hidden);
    c.check("out2", state.cell);

    let c = case("bi_lstm");
    let mut both = BiLstmConfig::new(4, 3, true).init::<B>(&device);
    for (lstm, suffix) in [(&mut both.forward, ""), (&mut both.reverse, "_reverse")] {
        put_gate(&mut lstm.input_gate, &c, suffix, 0, 4);
        put_gate(&mut lstm.forget_gate, &c, suffix, 1, 4);
        put_gate(&mut lstm.cell_gate, &c, suffix, 2, 4);
        put_gate(&mut lstm.output_gate, &c, suffix, 3, 4);
    }
    let (output, state) = both.forward(get(&c, "in0"), None);
    c.check("out", output);
    c.check("out1", state.hidden);
    c.check("out2", state.cell);

    let c = case("gru");
    let mut gru = GruConfig::new(4, 3, true).init::<B>(&device);
    put_gate(&mut gru.reset_gate, &c, "", 0, 3);
    put_gate(&mut gru.update_gate, &c, "", 1, 3);
    put_gate(&mut gru.new_gate, &c, "", 2, 3);
    c.check("out", gru.forward(get(&c, "in0"), None));

    // The sequence is the first dim, and there is a first state.
    let c = case("bi_gru");
    let mut both = BiGruConfig::new(4, 3, true).with_batch_first(false).init::<B>(&device);
    for (gru, suffix) in [(&mut both.forward, ""), (&mut both.reverse, "_reverse")] {
        put_gate(&mut gru.reset_gate, &c, suffix, 0, 3);
        put_gate(&mut gru.update_gate, &c, suffix, 1, 3);
        put_gate(&mut gru.new_gate, &c, suffix, 2, 3);
    }
    let (output, last) = both.forward(get(&c, "in0"), Some(get(&c, "in1")));
    c.check("out", output);
    c.check("out1", last);
}

#[test]
fn plain_recurrent_layers() {
    let device = Default::default();
    let c = case("rnn");
    let mut rnn = RnnConfig::new(4, 3, true).init::<B>(&device);
    put_gate(&mut rnn.gate, &c, "", 0, 1);
    let (output, last) = rnn.forward(get(&c, "in0"), Some(RnnState::new(get(&c, "in1"))));
    c.check("out", output.clone());
    c.check("out1", last.hidden.unsqueeze::<3>());
    // Read from its end, the sequence is the same one turned.
    let turned = RnnConfig { reverse: true, ..RnnConfig::new(4, 3, true) };
    let mut turned = turned.with_clip(Some(0.5)).init::<B>(&device);
    turned.gate = rnn.gate.clone();
    rnn.clip = Some(0.5);
    let (there, _) = rnn.forward(get::<3>(&c, "in0").flip([1]), None);
    let (back, _) = turned.forward(get(&c, "in0"), None);
    assert_eq!(there.flip([1]).into_data(), back.clone().into_data());
    assert!(back.abs().max().into_scalar() <= 0.5);

    let c = case("bi_rnn");
    let config = BiRnnConfig::new(4, 3, true).with_hidden_activation(ActivationConfig::Relu);
    let mut both = config.init::<B>(&device);
    put_gate(&mut both.forward.gate, &c, "", 0, 1);
    put_gate(&mut both.reverse.gate, &c, "_reverse", 0, 1);
    let (output, last) = both.forward(get(&c, "in0"), None);
    c.check("out", output);
    c.check("out1", last.hidden);
}

#[test]
fn attention_and_transformers() {
    let device = Default::default();
    let c = case("attention");
    let mut attention = MultiHeadAttentionConfig::new(4, 2).init::<B>(&device);
    put_attention(&mut attention, &c, "");
    let mask: Tensor<B, 2, Bool> = c.get("pad");
    c.check("out", attention.forward(MhaInput::self_attn(get(&c, "in0")).mask_pad(mask)).context);

    let c = case("attention_sizes");
    let config = MultiHeadAttentionConfig::new(4, 2).with_d_key(Some(3)).with_d_value(Some(2));
    let mut attention = config.init::<B>(&device);
    put_linear(&mut attention.query, &c, "q_proj_weight", "in_proj_bias", 0, 3);
    put_linear(&mut attention.key, &c, "k_proj_weight", "in_proj_bias", 1, 3);
    put_linear(&mut attention.value, &c, "v_proj_weight", "in_proj_bias", 2, 3);
    put_linear(&mut attention.output, &c, "out_proj.weight", "out_proj.bias", 0, 1);
    let input = MhaInput::new(get(&c, "in0"), get(&c, "in1"), get(&c, "in2"));
    c.check("out", attention.forward(input).context);

    let c = case("attention_unbiased");
    let mut attention = MultiHeadAttentionConfig::new(4, 2).with_bias(Some(false)).init::<B>(&device);
    assert!(attention.output.bias.is_none());
    let projections = [&mut attention.query, &mut attention.key, &mut attention.value];
    for (part, projection) in projections.into_iter().enumerate() {
        let weight = get::<2>(&c, "in_proj_weight").chunk(3, 0).swap_remove(part);
        projection.weight = Param::from_tensor(weight.transpose());
    }
    attention.output.weight = Param::from_tensor(get::<2>(&c, "out_proj.weight").transpose());
    c.check("out", attention.forward(MhaInput::self_attn(get(&c, "in0"))).context);

    let c = case("encoder");
    let mut encoder = TransformerEncoderConfig::new(4, 8, 2, 1).init::<B>(&device);
    let layer = &mut encoder.layers[0];
    put_attention(&mut layer.mha, &c, "self_attn.");
    put_linear(&mut layer.pwff.linear_inner, &c, "linear1.weight", "linear1.bias", 0, 1);
    put_linear(&mut layer.pwff.linear_outer, &c, "linear2.weight", "linear2.bias", 0, 1);
    put_norm(&mut layer.norm_1, &c, "norm1");
    put_norm(&mut layer.norm_2, &c, "norm2");
    c.check("out", encoder.forward(TransformerEncoderInput::new(get(&c, "in0"))));
}

#[test]
fn decoder() {
    let c = case("decoder");
    let config = TransformerDecoderConfig::new(4, 8, 2, 1).with_norm_first(true);
    let mut decoder = config.init::<B>(&Default::default());
    let layer = &mut decoder.layers[0];
    put_attention(&mut layer.self_attn, &c, "self_attn.");
    put_attention(&mut layer.cross_attn, &c, "multihead_attn.");
    put_linear(&mut layer.pwff.linear_inner, &c, "linear1.weight", "linear1.bias", 0, 1);
    put_linear(&mut layer.pwff.linear_outer, &c, "linear2.weight", "linear2.bias", 0, 1);
    // Burn's order when normalization comes first: 3 before self-attention, 1 before cross-attention, 2 before the
    // feed-forward part.
    put_norm(&mut layer.norm_3, &c, "norm1");
    put_norm(&mut layer.norm_1, &c, "norm2");
    put_norm(&mut layer.norm_2, &c, "norm3");
    let hidden = Tensor::<B, 3, Bool>::tril_mask([2, 5, 5], 0, &Default::default());
    let input = TransformerDecoderInput::new(get(&c, "in0"), get(&c, "in1")).target_mask_attn(hidden);
    c.check("out", decoder.forward(input));
}

#[test]
fn classification_losses() {
    let device = Default::default();
    let configs = [
        ("cross_entropy", CrossEntropyLossConfig::new()),
        ("cross_entropy_weighted", CrossEntropyLossConfig::new().with_weights(Some(vec![0.5, 1.0, 2.0]))),
        ("cross_entropy_smoothed", CrossEntropyLossConfig::new().with_smoothing(Some(0.1))),
        ("cross_entropy_padded", CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![1]))),
    ];
    for (name, config) in configs {
        let c = case(name);
        c.check("out", config.init::<B>(&device).forward(get(&c, "in0"), c.get("in1")));
    }
    let c = case("binary_cross_entropy");
    let loss = BinaryCrossEntropyLossConfig::new().with_logits(true).init::<B>(&device);
    c.check("out", loss.forward(get::<2>(&c, "in0"), c.get("in1")));
    let c = case("cosine_embedding");
    let loss = CosineEmbeddingLossConfig::new().with_margin(0.2).init();
    let signs: Tensor<B, 1, Int> = c.get("in2");
    c.check("out", loss.forward(get(&c, "in0"), get(&c, "in1"), signs));
}

#[test]
fn regression_losses() {
    let c = case("mse");
    let pair = |c: &Case| (get::<2>(c, "in0"), get::<2>(c, "in1"));
    let (x, y) = pair(&c);
    c.check("out", MseLoss::new().forward(x, y, Reduction::Mean));
    let c = case("huber");
    let (x, y) = pair(&c);
    c.check("out", HuberLossConfig::new(0.5).init().forward(x, y, Reduction::Mean));
    let c = case("poisson");
    let (x, y) = pair(&c);
    c.check("out", PoissonNllLossConfig::new().init().forward(x, y, Reduction::Mean));
}

#[test]
fn pools_and_resizing() {
    let c = case("max_pool2d");
    let pool = MaxPool2dConfig::new([3, 3]).with_strides([2, 2]).with_ceil_mode(true);
    c.check("out", pool.with_padding(PaddingConfig2d::Explicit(1, 1)).init().forward(get(&c, "in0")));
    let c = case("avg_pool2d");
    let pool = AvgPool2dConfig::new([2, 3]).with_strides([1, 1]).with_count_include_pad(false);
    c.check("out", pool.with_padding(PaddingConfig2d::Explicit(1, 1)).init().forward(get(&c, "in0")));
    let c = case("adaptive_avg_pool1d");
    c.check("out", AdaptiveAvgPool1dConfig::new(4).init().forward(get(&c, "in0")));
    for (name, mode) in
        [("interpolate_linear", InterpolateMode::Linear), ("interpolate_cubic", InterpolateMode::Cubic)]
    {
        let c = case(name);
        let layer = Interpolate2dConfig::new().with_output_size(Some([10, 4])).with_mode(mode).init();
        c.check("out", layer.forward(get(&c, "in0")));
    }
    let c = case("interpolate_nearest");
    let layer = Interpolate1dConfig::new().with_scale_factor(Some(1.5)).init();
    c.check("out", layer.forward(get(&c, "in0")));
}
