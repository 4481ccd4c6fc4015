//! Computing in 16 bits: the scaler's schedule is PyTorch's (`scripts/optimizer_goldens.py`), and modules learn.

use kiln_autodiff::Autodiff;
use kiln_core::Tensor;
use kiln_core::module::{Module, Param, ParamId};
use kiln_core::nn::loss::{BinaryCrossEntropyLossConfig, CrossEntropyLossConfig};
use kiln_core::nn::{
    BatchNorm, BatchNormConfig, Linear, LinearConfig, PositionalEncoding, PositionalEncodingConfig, Relu,
    RotaryEncoding, RotaryEncodingConfig,
};
use kiln_core::record::{BinBytesRecorder, DoublePrecisionSettings, Recorder};
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{DType, Distribution, Int, TensorData};
use kiln_ndarray::NdArray;
use kiln_optim::momentum::MomentumConfig;
use kiln_optim::*;
use serde::Deserialize;
use std::sync::{Mutex, PoisonError};

#[derive(Deserialize)]
struct Goldens {
    start: Vec<f64>,
    target: Vec<f64>,
    weight: Vec<f64>,
    scaler: Schedule,
}

#[derive(Deserialize)]
struct Schedule {
    bad: Vec<usize>,
    scales: Vec<f64>,
    steps: Vec<Vec<f64>>,
}

#[derive(Module, Debug)]
struct Weight<B: Backend> {
    weight: Param<Tensor<B, 2>>,
}

#[test]
fn the_schedule_is_pytorchs() {
    type B = Autodiff<NdArray<f64>>;
    let goldens: Goldens = serde_json::from_str(include_str!("training.json")).expect("goldens");
    let tensor = |values: &[f64]| {
        Tensor::<B, 2>::from_data(TensorData::new(values[..6].to_vec(), [2, 3]), &Default::default())
    };
    let mut model =
        Weight { weight: Param::initialized(ParamId::new(), tensor(&goldens.start).require_grad()) };
    let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false };
    let mut optimizer = SgdConfig::new().with_momentum(Some(momentum)).init::<B, Weight<B>>();
    let config = LossScalerConfig::new().with_init_scale(8.0).with_growth_interval(3);
    let mut scaler = config.init();
    for (step, (scale, expected)) in goldens.scaler.scales.iter().zip(&goldens.scaler.steps).enumerate() {
        if step == 7 {
            let recorder = BinBytesRecorder::<DoublePrecisionSettings>::default();
            let bytes = Recorder::<B>::record(&recorder, scaler.to_record(), ()).expect("a record");
            let record = Recorder::<B>::load(&recorder, bytes, &Default::default()).expect("the same");
            scaler = config.init().load_record(record);
        }
        let away = model.weight.val() - tensor(&goldens.target);
        let loss = (away.clone() * away * tensor(&goldens.weight) / 2.0).sum();
        let loss = if goldens.scaler.bad.contains(&step) { loss * f64::INFINITY } else { loss };
        let gradients = GradientsParams::from_grads(scaler.scale(loss).backward(), &model);
        model = scaler.step(&mut optimizer, 0.05, model, gradients);
        assert_eq!(scaler.factor(), *scale, "step {step}");
        let values = model.weight.val().into_data().to_vec::<f64>().expect("f64");
        for (a, b) in values.iter().zip(expected) {
            assert!((a - b).abs() <= 1e-6 * (1.0 + b.abs()), "step {step}: {a} instead of {b}");
        }
    }
}

#[test]
fn a_factor_stays_within_f32() {
    type B = Autodiff<NdArray>;
    let model = Weight::<B> { weight: Param::from_tensor(Tensor::ones([1, 1], &Default::default())) };
    let mut scaler =
        LossScalerConfig::new().with_init_scale(2.0_f64.powi(127)).with_growth_interval(1).init();
    assert!(scaler.unscale(&model, GradientsParams::new()).is_some());
    assert_eq!(scaler.factor(), 2.0_f64.powi(127));
}

/// A loss that no factor makes finite does not take the factor to 0, by which everything would be NaN for good.
#[test]
fn a_factor_has_a_least_value() {
    type B = Autodiff<NdArray>;
    let model = Weight::<B> { weight: Param::from_tensor(Tensor::ones([1, 1], &Default::default())) };
    let mut scaler = LossScalerConfig::new().with_init_scale(4.0).with_min_scale(0.25).init();
    let gradients = |value: f32| {
        let mut gradients = GradientsParams::new();
        gradients.register(model.weight.id, Tensor::<NdArray, 2>::full([1, 1], value, &Default::default()));
        gradients
    };
    for _ in 0..2000 {
        assert!(scaler.unscale(&model, gradients(f32::NAN)).is_none());
    }
    assert!(scaler.is_smallest());
    assert_eq!(scaler.factor(), 0.25);
    // Divided by a small factor, it is not finite any more.
    assert!(scaler.unscale(&model, gradients(f32::MAX)).is_none());
    assert!(scaler.unscale(&model, gradients(1.0)).is_some());
}

/// A factor of 0 has no inverse.
#[test]
fn factors_that_end_nowhere_are_refused() {
    let configs =
        [0.0, -0.5, 1.0, f64::NAN].map(|factor| LossScalerConfig::new().with_backoff_factor(factor));
    for config in configs {
        let refused = std::panic::catch_unwind(|| config.init()).expect_err("a panic");
        let message = refused.downcast_ref::<String>().expect("a message");
        assert!(message.contains("backoff_factor"), "{message}");
    }
    LossScalerConfig::new().with_backoff_factor(0.9).init();
}

type B = Autodiff<NdArray>;

#[derive(Module, Debug)]
struct Net<B: Backend> {
    first: Linear<B>,
    norm: BatchNorm<B>,
    second: Linear<B>,
}

impl Net<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.second.forward(Relu::new().forward(self.norm.forward(self.first.forward(x))))
    }
}

/// A network and a batch, the same at every call.
fn drawn() -> (Net<B>, Tensor<B, 2>) {
    // The device's random numbers are those of all tests that run beside this one, and weights are drawn when they are first used.
    static DRAWING: Mutex<()> = Mutex::new(());
    let _alone = DRAWING.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Default::default();
    B::seed(&device, 5);
    let net = Net {
        first: LinearConfig::new(4, 16).init(&device),
        norm: BatchNormConfig::new(16).init(&device),
        second: LinearConfig::new(16, 2).init(&device),
    };
    let x = Tensor::<B, 2>::random([64, 4], Distribution::Normal(0.0, 1.0), &device);
    // A record has every weight.
    drop(net.clone().into_record());
    (net, x)
}

/// The losses of steps on one batch, computed in a dtype, times a factor.
fn train(dtype: DType, scaler: Option<&mut LossScaler>, small: f64) -> (Vec<f32>, Net<B>) {
    let (mut model, x) = drawn();
    let y = Tensor::cat(vec![x.clone().sum_dim(1).sin(), x.clone().mean_dim(1)], 1);
    let mut optimizer = SgdConfig::new().init::<B, Net<B>>();
    let mut unscaled = LossScalerConfig::new().with_init_scale(1.0).init();
    let scaler = scaler.unwrap_or(&mut unscaled);
    let mut losses = Vec::new();
    for _ in 0..100 {
        let out = compute_in::<B, _>(&model, dtype).forward(x.clone().cast(dtype));
        assert_eq!(out.dtype(), dtype);
        // The loss itself is small, so that its gradients are.
        let error = out - y.clone().cast(dtype);
        let loss = (error.clone() * error).mean();
        losses.push(loss.clone().cast(DType::F32).into_scalar());
        let scaled = scaler.scale(loss * small);
        let gradients = GradientsParams::from_grads(scaled.backward(), &model);
        // Weights, gradients and what is learnt about them have 32 bits.
        let gradient = gradients.get::<NdArray, 2>(model.first.weight.id).expect("a gradient");
        assert_eq!(gradient.dtype(), DType::F32);
        model = scaler.step(&mut optimizer, 0.1 / small, model, gradients);
        assert_eq!(model.first.weight.val().dtype(), DType::F32);
    }
    (losses, model)
}

#[test]
fn a_module_learns_in_16_bits() {
    let (expected, _) = train(DType::F32, None, 1.0);
    assert!(expected[99] < 0.3 * expected[0], "{expected:?}");
    for (dtype, tolerance) in [(DType::F16, 0.02), (DType::BF16, 0.1)] {
        let (losses, model) = train(dtype, None, 1.0);
        for (a, b) in losses.iter().zip(&expected) {
            assert!((a - b).abs() <= tolerance * expected[0], "{dtype:?}: {a} instead of {b}");
        }
        // Statistics were moved in the module itself.
        let mean = model.norm.running_mean.value();
        assert_eq!(mean.dtype(), DType::F32);
        assert!(mean.abs().sum().into_scalar() > 0.0);
    }
}

#[test]
fn a_scaler_keeps_small_gradients_in_f16() {
    let small = 1e-6;
    let (lost, _) = train(DType::F16, None, small);
    assert!(lost[99] > 0.9 * lost[0], "gradients below 6e-8 vanish: {lost:?}");
    // It begins far too large, and finds its factor.
    let mut scaler =
        LossScalerConfig::new().with_init_scale(2.0_f64.powi(40)).with_growth_interval(20).init();
    let (losses, _) = train(DType::F16, Some(&mut scaler), small);
    assert!(losses[99] < 0.3 * losses[0], "{losses:?}");
    assert!(scaler.factor() < 2.0_f64.powi(40) && scaler.factor() > 1.0, "{}", scaler.factor());
}

#[derive(Module, Debug)]
struct Positions<B: Backend> {
    added: PositionalEncoding<B>,
    rotated: RotaryEncoding<B>,
}

/// Tables and weights that are no parameters have 32 bits still; they compute in those of what they meet.
#[test]
fn what_is_no_parameter_follows() {
    type B = Autodiff<NdArray>;
    let device = Default::default();
    let model = Positions::<B> {
        added: PositionalEncodingConfig::new(4).init(&device),
        rotated: RotaryEncodingConfig::new(8, 4).init(&device),
    };
    let x = Tensor::<B, 3>::random([2, 3, 4], Distribution::Uniform(-1.0, 1.0), &device);
    let targets = Tensor::<B, 1, Int>::from_data([0, 1], &device);
    let classes = CrossEntropyLossConfig::new()
        .with_weights(Some(vec![1.0, 2.0]))
        .with_smoothing(Some(0.1))
        .with_logits(false);
    let yes = BinaryCrossEntropyLossConfig::new().with_weights(Some(vec![1.0, 2.0])).with_logits(true);
    let results = |dtype: DType| {
        let model = compute_in::<B, _>(&model, dtype);
        let x = x.clone().cast(dtype);
        let y = model.rotated.forward(model.added.forward(x.clone()));
        let [shares, logits] =
            [x.clone().abs().narrow(2, 0, 2), x].map(|x| x.narrow(1, 0, 1).squeeze_dim::<2>(1));
        let losses = [
            classes.init(&device).forward(shares, targets.clone()),
            yes.init(&device).forward(logits.narrow(1, 0, 1).squeeze_dim::<1>(1), targets.clone()),
        ];
        let numbers = Tensor::cat(vec![y.flatten(0, 2), losses[0].clone(), losses[1].clone()], 0);
        assert_eq!(numbers.dtype(), dtype);
        numbers.into_data().iter::<f32>().collect::<Vec<_>>()
    };
    let exact = results(DType::F32);
    for dtype in [DType::F16, DType::BF16] {
        let far = results(dtype).iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 0.05, "{dtype}: {far}");
    }
}
