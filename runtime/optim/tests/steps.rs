//! Ten steps of each optimizer, as PyTorch takes them (`scripts/optimizer_goldens.py`), and taken up in the middle.

use kiln_autodiff::Autodiff;
use kiln_core::Tensor;
use kiln_core::module::{Module, Param, ParamId};
use kiln_core::record::{BinBytesRecorder, DoublePrecisionSettings, Recorder};
use kiln_core::tensor::TensorData;
use kiln_core::tensor::backend::{Backend, DeviceOps};
use kiln_ndarray::NdArray;
use kiln_optim::decay::WeightDecayConfig;
use kiln_optim::momentum::MomentumConfig;
use kiln_optim::*;
use serde::Deserialize;
use std::collections::BTreeMap;

type Inner = NdArray<f64>;
type B = Autodiff<Inner>;

const LR: f64 = 0.05;

#[derive(Module, Debug)]
struct Model<B: Backend> {
    weight: Param<Tensor<B, 2>>,
}

#[derive(Deserialize)]
struct Goldens {
    start: Vec<f64>,
    target: Vec<f64>,
    weight: Vec<f64>,
    cases: BTreeMap<String, Vec<Vec<f64>>>,
    /// Whether parameters are the other way round here, as the weights of linear layers are.
    #[serde(skip)]
    transposed: bool,
}

impl Goldens {
    fn read() -> Self {
        serde_json::from_str(include_str!("goldens.json")).expect("goldens")
    }

    fn tensor(&self, values: &[f64]) -> Tensor<B, 2> {
        let tensor = Tensor::from_data(TensorData::new(values.to_vec(), [3, 4]), &Default::default());
        if self.transposed { tensor.transpose() } else { tensor }
    }

    fn numbers(&self, model: &Model<B>) -> Vec<f64> {
        let value = model.weight.val();
        let value = if self.transposed { value.transpose() } else { value };
        value.into_data().to_vec().expect("f64")
    }

    fn model(&self) -> Model<B> {
        let value = self.tensor(&self.start).require_grad();
        Model { weight: Param::initialized(ParamId::new(), value) }
    }

    fn step(&self, optimizer: &mut impl Optimizer<Model<B>, B>, model: Model<B>) -> Model<B> {
        let away = model.weight.val() - self.tensor(&self.target);
        let loss = (away.clone() * away * self.tensor(&self.weight) / 2.0).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        assert_eq!(gradients.len(), 1);
        optimizer.step(LR, model, gradients)
    }
}

fn numbers(model: &Model<B>) -> Vec<f64> {
    model.weight.val().into_data().to_vec().expect("f64")
}

/// Ten steps in one go and with a record in the middle.
fn check<O: Optimizer<Model<B>, B>>(name: &str, make: impl Fn() -> O) {
    // The one optimizer that tells inputs from outputs.
    let goldens = Goldens { transposed: name.starts_with("muon"), ..Goldens::read() };
    let expected = &goldens.cases[name];
    let (mut optimizer, mut model) = (make(), goldens.model());
    for (n, expected) in expected.iter().enumerate() {
        if n == 5 {
            let recorder = BinBytesRecorder::<DoublePrecisionSettings>::default();
            let bytes = Recorder::<B>::record(&recorder, optimizer.to_record(), ()).expect("a record");
            let record = Recorder::<B>::load(&recorder, bytes, &Default::default()).expect("the same");
            make().check_record(&record, &model).unwrap_or_else(|error| panic!("{name}: {error}"));
            // Of another model, whose parameter has the same id.
            let rows = model.weight.val().slice_dim(0, 0..1);
            let other = Model { weight: Param::initialized(model.weight.id, rows) };
            match make().check_record(&record, &other) {
                Ok(()) => assert!(name.starts_with("sgd"), "{name} remembers tensors"),
                Err(error) => {
                    assert!(error.to_string().contains("`weight` is not of its shape [1,"), "{error}")
                }
            }
            optimizer = make().load_record(record);
        }
        model = goldens.step(&mut optimizer, model);
        for (a, b) in goldens.numbers(&model).iter().zip(expected) {
            assert!((a - b).abs() <= 1e-6 * (1.0 + b.abs()), "{name}, step {}: {a} instead of {b}", n + 1);
        }
    }
    assert!(model.weight.val().is_require_grad(), "a stepped parameter is a leaf");
}

macro_rules! as_in_pytorch {
    ($($name:ident: $config:expr;)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name), || $config.init::<B, Model<B>>());
            }
        )*
    };
}

fn decay() -> Option<WeightDecayConfig> {
    Some(WeightDecayConfig::new(0.1))
}

fn momentum(momentum: f64, dampening: f64, nesterov: bool) -> Option<MomentumConfig> {
    Some(MomentumConfig { momentum, dampening, nesterov })
}

as_in_pytorch! {
    sgd: SgdConfig::new();
    sgd_decay: SgdConfig::new().with_weight_decay(decay());
    sgd_momentum: SgdConfig::new().with_momentum(momentum(0.9, 0.0, false));
    sgd_dampening: SgdConfig::new().with_momentum(momentum(0.8, 0.25, false));
    sgd_nesterov: SgdConfig::new().with_momentum(momentum(0.9, 0.0, true));
    adam: AdamConfig::new().with_beta_2(0.99);
    adam_decay: AdamConfig::new().with_weight_decay(decay());
    adam_amsgrad: AdamConfig::new().with_beta_2(0.9).with_amsgrad(true);
    adamw: AdamWConfig::new().with_weight_decay(0.1);
    adamw_amsgrad: AdamWConfig::new().with_beta_2(0.9).with_weight_decay(0.1).with_amsgrad(true);
    adamax: AdaMaxConfig::new().with_beta_2(0.9).with_weight_decay(decay());
    nadam: NAdamConfig::new().with_weight_decay(decay());
    rms_prop: RmsPropConfig::new()
        .with_alpha(0.9)
        .with_epsilon(1e-8)
        .with_momentum(0.0)
        .with_weight_decay(decay());
    rms_prop_centered: RmsPropConfig::new()
        .with_alpha(0.9)
        .with_epsilon(1e-6)
        .with_momentum(0.0)
        .with_centered(true);
    rms_prop_momentum: RmsPropConfig::new()
        .with_alpha(0.9)
        .with_epsilon(1e-6)
        .with_momentum(0.9);
    adagrad: AdaGradConfig::new().with_lr_decay(0.1).with_weight_decay(decay());
    muon: MuonConfig::new()
        .with_momentum(momentum(0.9, 0.0, true).expect("a config"))
        .with_weight_decay(decay());
    muon_plain: MuonConfig::new()
        .with_momentum(momentum(0.95, 0.0, false).expect("a config"))
        .with_adjust_lr_fn(AdjustLrFn::MatchRmsAdamW);
    adadelta: AdaDeltaConfig::new().with_weight_decay(decay());
}

#[test]
fn every_case_of_pytorch_is_tested() {
    assert_eq!(Goldens::read().cases.len(), 19);
}

/// By hand from the paper's program: `u = sign(β₁ m + (1-β₁) g)`, `θ ← θ - lr (u + λ θ)`, `m ← β₂ m + (1-β₂) g`.
#[test]
fn lion_is_the_papers() {
    let goldens = Goldens::read();
    let mut optimizer = LionConfig::new().with_weight_decay(0.1).init::<B, Model<B>>();
    let mut model = goldens.model();
    let (mut theta, mut m) = (goldens.start.clone(), vec![0.0; 12]);
    for _ in 0..10 {
        model = goldens.step(&mut optimizer, model);
        for i in 0..12 {
            let g = (theta[i] - goldens.target[i]) * goldens.weight[i];
            let u = f64::signum(0.9 * m[i] + 0.1 * g);
            theta[i] -= LR * (u + 0.1 * theta[i]);
            m[i] = 0.99 * m[i] + 0.01 * g;
        }
        for (a, b) in numbers(&model).iter().zip(&theta) {
            assert!((a - b).abs() < 1e-6, "{a} instead of {b}");
        }
    }
}

/// More outputs than inputs make steps larger, by the root of how many there are more; more inputs do not.
#[test]
fn muon_tells_inputs_from_outputs() {
    let stepped = |dims: [usize; 2]| {
        let optimizer = Muon::from(&MuonConfig::new());
        let grad = Tensor::<Inner, 2>::from_data(
            TensorData::new(vec![1.0, -2.0, 0.5, 3.0], dims),
            &Default::default(),
        );
        let (tensor, _) = SimpleOptimizer::step(&optimizer, 0.1, grad.zeros_like(), grad, None);
        tensor.into_data().to_vec::<f64>().expect("f64")
    };
    let (many, few) = (stepped([1, 4]), stepped([4, 1]));
    assert!(many.iter().zip(&few).all(|(many, few)| (many - 2.0 * few).abs() < 1e-9), "{many:?} {few:?}");
}

#[test]
fn gradients_are_bounded() {
    let clip = |clipping: GradientClippingConfig, gradient: [f64; 2]| {
        let gradient = Tensor::<Inner, 1>::from_data(gradient, &Default::default());
        clipping.init().clip_gradient(gradient).into_data().to_vec::<f64>().expect("f64")
    };
    assert_eq!(clip(GradientClippingConfig::Value(1.0), [3.0, -0.5]), [1.0, -0.5]);
    let by_norm = clip(GradientClippingConfig::Norm(1.0), [3.0, -4.0]);
    assert!((by_norm[0] - 0.6).abs() < 1e-6 && (by_norm[1] + 0.8).abs() < 1e-6, "{by_norm:?}");
    assert_eq!(clip(GradientClippingConfig::Norm(10.0), [3.0, -4.0]), [3.0, -4.0]);
}

#[test]
fn accumulated_gradients_are_sums() {
    let goldens = Goldens::read();
    let model = goldens.model();
    let mut accumulator = GradientsAccumulator::new();
    for factor in [1.0, 2.0] {
        let loss = (model.weight.val() * factor).sum();
        accumulator.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
    }
    let sums = accumulator.grads();
    let sum = sums.get::<Inner, 2>(model.weight.id).expect("a gradient");
    assert_eq!(sum.into_data().to_vec::<f64>().expect("f64"), [3.0; 12]);
    assert!(accumulator.grads().is_empty());
}

#[test]
fn parameters_without_a_gradient_stay() {
    let goldens = Goldens::read();
    let frozen = goldens.model().no_grad();
    let before = numbers(&frozen);
    let mut optimizer = SgdConfig::new().init::<B, Model<B>>();
    let loss = frozen.weight.val().sum();
    let gradients = GradientsParams::from_grads(loss.backward(), &frozen);
    assert!(gradients.is_empty());
    assert_eq!(numbers(&optimizer.step(LR, frozen, gradients)), before);
}

/// The first step goes by the learning rate along each gradient's sign.
#[test]
fn cautious_decay_leaves_alone_what_moves_away() {
    let after = |cautious| {
        let config =
            AdamWConfig::new().with_epsilon(0.0).with_weight_decay(0.5).with_cautious_weight_decay(cautious);
        let optimizer = AdamW::from(&config);
        let tensor = |numbers: [f64; 4]| Tensor::<Inner, 1>::from_data(numbers, &Default::default());
        let (theta, grad) = (tensor([1.0, 1.0, -1.0, -1.0]), tensor([3.0, -3.0, 3.0, -3.0]));
        let (tensor, _) = SimpleOptimizer::step(&optimizer, 0.1, theta, grad, None);
        let numbers = tensor.into_data().to_vec::<f64>().expect("f64");
        numbers.into_iter().map(|x| (x * 1e6).round() / 1e6).collect::<Vec<_>>()
    };
    assert_eq!(after(false), [0.85, 1.05, -1.05, -0.85]);
    assert_eq!(after(true), [0.85, 1.1, -1.1, -0.85]);
}

#[test]
fn gradients_of_several_devices_are_summed() {
    let goldens = Goldens::read();
    let (model, device) = (goldens.model(), Default::default());
    let id = model.weight.id;
    let gradient = Tensor::<Inner, 2>::ones([3, 4], &device);
    let sets = |factors: &[f64]| {
        let mut sets = MultiGradientsParams::default();
        for &factor in factors {
            let mut grads = GradientsParams::new();
            grads.register(id, gradient.clone() * factor);
            sets.grads.push((grads, DeviceOps::to_id(&device)));
        }
        // One that knows nothing of the parameter.
        sets.grads.push((GradientsParams::new(), DeviceOps::to_id(&device)));
        sets
    };
    let (sum, at) = sets(&[1.0, 2.0, 0.5]).remove::<Inner, 2>(id).expect("a gradient");
    assert_eq!((sum.into_data(), at), ((gradient.clone() * 3.5).into_data(), device));
    assert!(sets(&[]).remove::<Inner, 2>(id).is_none());

    let mut one = GradientsParams::new();
    one.register(id, gradient.clone() * 3.0);
    let config = AdamConfig::new();
    let wanted = config.init().step(LR, model.clone(), one);
    let got = config.init().step_multi(LR, model, sets(&[1.0, 2.0]));
    assert_eq!(numbers(&got), numbers(&wanted));
}

/// What a set lacks counts as zeros, and comes out all the same; a parameter that no set has stays without.
#[test]
fn gradients_of_devices_become_their_sum_or_mean_on_each() {
    let goldens = Goldens::read();
    let (model, device) = (goldens.model(), Default::default());
    let (weight, bias) = (model.weight.id, ParamId::new());
    let ones = Tensor::<Inner, 2>::ones([3, 4], &device);
    let sets = || {
        [Some(1.0), None, Some(2.5)]
            .map(|factor| {
                let mut grads = GradientsParams::new();
                factor.into_iter().for_each(|factor| grads.register(weight, ones.clone() * factor));
                grads.register(bias, Tensor::<Inner, 1>::ones([2], &device));
                grads
            })
            .into_iter()
            .collect::<Vec<_>>()
    };
    for (operation, factor) in [(ReduceOperation::Sum, 3.5), (ReduceOperation::Mean, 3.5 / 3.0)] {
        let reduced = GradientsParams::all_reduce::<B, _>(sets(), &[device; 3], &model, operation);
        assert_eq!(reduced.len(), 3);
        for set in reduced {
            let gradient = set.get::<Inner, 2>(weight).expect("a gradient");
            gradient.into_data().assert_approx_eq::<f64>(
                &(ones.clone() * factor).into_data(),
                kiln_core::tensor::Tolerance::default(),
            );
            // It is no parameter of the module.
            assert_eq!(set.get::<Inner, 1>(bias).map(Tensor::into_data), Some(TensorData::from([1.0, 1.0])));
        }
    }
    // A device that had no batch makes the step of the others no smaller.
    let uneven = vec![sets().swap_remove(0), GradientsParams::new()];
    for set in GradientsParams::all_reduce::<B, _>(uneven, &[device; 2], &model, ReduceOperation::Mean) {
        assert_eq!(set.get::<Inner, 2>(weight).map(Tensor::into_data), Some(ones.clone().into_data()));
    }
    let one =
        GradientsParams::all_reduce::<B, _>(sets().split_off(2), &[device], &model, ReduceOperation::Mean);
    assert_eq!(one[0].get::<Inner, 2>(weight).map(Tensor::into_data), Some((ones * 2.5).into_data()));
}
