//! Parameters of another dtype than the backend's usual one: their optimizer goes on after a record as if there had been none.

use kiln_autodiff::Autodiff;
use kiln_core::Tensor;
use kiln_core::module::{Module, Param};
use kiln_core::record::{
    BinBytesRecorder, ExactPrecisionSettings, FullPrecisionSettings, PrecisionSettings, Record, Recorder,
};
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{DType, Device};
use kiln_ndarray::NdArray;
use kiln_optim::decay::WeightDecayConfig;
use kiln_optim::momentum::MomentumConfig;
use kiln_optim::*;

type Inner = NdArray<f32>;
type B = Autodiff<Inner>;

#[derive(Module, Debug)]
struct Model<B: Backend> {
    weight: Param<Tensor<B, 2>>,
}

impl Model<B> {
    fn new(dtype: DType) -> Self {
        let weight = Param::from_data([[0.3, -1.7, 0.9], [2.1, 0.4, -0.6]], &Default::default());
        Self { weight }.with_float_dtype(dtype)
    }

    fn step(self, optimizer: &mut impl Optimizer<Self, B>) -> Self {
        let value = self.weight.val();
        let loss = (value.clone() * value / 3.0).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &self);
        optimizer.step(0.05, self, gradients)
    }

    fn numbers(&self) -> Vec<f64> {
        self.weight.val().into_data().iter().collect()
    }
}

/// What a recorder makes of a record.
fn recorded<S: PrecisionSettings, R: Record<B>>(record: R) -> R {
    let recorder = BinBytesRecorder::<S>::default();
    let bytes = Recorder::<B>::record(&recorder, record, ()).expect("a record");
    Recorder::<B>::load(&recorder, bytes, &Default::default()).expect("the same")
}

/// Steps with model and optimizer from records in the middle are those without.
fn check<S: PrecisionSettings, O: Optimizer<Model<B>, B>>(dtype: DType, make: impl Fn() -> O) {
    let (mut optimizer, mut model) = (make(), Model::new(dtype));
    for _ in 0..2 {
        model = model.step(&mut optimizer);
    }
    let mut again = make().load_record(recorded::<S, _>(optimizer.to_record()));
    let mut loaded = Model::new(dtype).load_record(recorded::<S, _>(model.clone().into_record()));
    for _ in 0..2 {
        model = model.step(&mut optimizer);
        loaded = loaded.step(&mut again);
        assert_eq!(loaded.weight.val().dtype(), dtype);
        assert_eq!(loaded.numbers(), model.numbers(), "{dtype:?}");
    }
}

/// f32, in which records are stored otherwise, holds the numbers of 16 bits, but not those of 64.
fn check_all<O: Optimizer<Model<B>, B>>(make: impl Fn() -> O) {
    for dtype in [DType::F16, DType::BF16] {
        check::<FullPrecisionSettings, _>(dtype, &make);
        check::<ExactPrecisionSettings, _>(dtype, &make);
    }
    check::<ExactPrecisionSettings, _>(DType::F64, &make);
}

macro_rules! go_on {
    ($($name:ident: $config:expr;)*) => {
        $(
            #[test]
            fn $name() {
                check_all(|| $config.init::<B, Model<B>>());
            }
        )*
    };
}

fn momentum() -> MomentumConfig {
    MomentumConfig::new().with_nesterov(true)
}

go_on! {
    sgd: SgdConfig::new().with_momentum(Some(momentum()));
    adam: AdamConfig::new().with_weight_decay(Some(WeightDecayConfig::new(0.1)));
    adam_amsgrad: AdamConfig::new().with_amsgrad(true);
    adamw: AdamWConfig::new();
    adamax: AdaMaxConfig::new();
    nadam: NAdamConfig::new();
    rms_prop: RmsPropConfig::new().with_centered(true);
    adagrad: AdaGradConfig::new();
    adadelta: AdaDeltaConfig::new();
    lion: LionConfig::new();
    muon: MuonConfig::new();
}

/// Steps weights of 32 bits, of which the parameter is what its dtype holds.
#[derive(Clone)]
struct Masters;

impl<B: Backend> SimpleOptimizer<B> for Masters {
    type State<const D: usize> = Tensor<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Tensor<B, D>>,
    ) -> (Tensor<B, D>, Option<Tensor<B, D>>) {
        let dtype = tensor.dtype();
        let master = state.unwrap_or_else(|| tensor.cast(DType::F32));
        let master = master - grad.cast(DType::F32) * lr;
        (master.clone().cast(dtype), Some(master))
    }

    fn to_device<const D: usize>(state: Tensor<B, D>, device: &Device<B>) -> Tensor<B, D> {
        state.to_device(device)
    }
}

#[test]
fn a_state_may_have_a_dtype_of_its_own() {
    check_all(|| OptimizerAdaptor::from(Masters));
}

/// A record in exact precision says what was, and the module what is to be.
#[test]
fn a_module_keeps_its_dtypes() {
    for from in [DType::F64, DType::F32, DType::BF16] {
        for to in [DType::F64, DType::F32, DType::BF16] {
            let record = recorded::<ExactPrecisionSettings, _>(Model::new(from).into_record());
            let loaded = Model::new(to).load_record(record);
            assert_eq!(loaded.weight.val().dtype(), to, "from {from:?}");
            assert!(loaded.weight.val().is_require_grad());
        }
    }
}

/// Squares of numbers above 256 are beyond f16, and so is the factor of a long gradient: it is not 0 for that.
#[test]
fn long_gradients_of_16_bits_are_bounded() {
    let device = Default::default();
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let gradient = Tensor::<Inner, 1>::from_data_dtype([3e4, -4e4], &device, dtype);
        let clipped = GradientClippingConfig::Norm(1.0).init().clip_gradient(gradient.clone());
        assert_eq!(clipped.dtype(), dtype);
        near(clipped, &[0.6, -0.8]);
        near(GradientClippingConfig::Norm(1e6).init().clip_gradient(gradient), &[3e4, -4e4]);
    }
    let long = Tensor::<Inner, 1>::full([1 << 14], 6e4, (&device, DType::F16));
    let clipped = GradientClippingConfig::Norm(0.128).init().clip_gradient(long);
    near(clipped, &[1e-3; 1 << 14]);
}

fn near<const D: usize>(found: Tensor<Inner, D>, expected: &[f64]) {
    let found: Vec<f64> = found.into_data().iter().collect();
    let differ = found.iter().zip(expected).any(|(a, b)| (a - b).abs() > 1e-2 * b.abs());
    let shown = |numbers: &[f64]| format!("{:?}", &numbers[..numbers.len().min(4)]);
    assert!(found.len() == expected.len());
    assert!(!differ, "{} instead of {}", shown(&found), shown(expected));
}

#[derive(Module, Debug)]
struct Mixed<B: Backend> {
    half: Param<Tensor<B, 1>>,
    brain: Param<Tensor<B, 1>>,
    single: Param<Tensor<B, 2>>,
    double: Option<Param<Tensor<B, 1>>>,
}

#[test]
fn the_norm_of_gradients_of_several_dtypes_is_bounded() {
    let device = Default::default();
    let param = |dtype| Param::<Tensor<B, 1>>::from_data([0.0], &device).with_dtype(dtype);
    for double in [None, Some(param(DType::F64))] {
        let single = Param::from_data([[0.0]], &device);
        let (half, brain) = (param(DType::F16), param(DType::BF16));
        let model: Mixed<B> = Mixed { half, brain, single, double };
        let mut gradients = GradientsParams::new();
        let one = |number: f64, dtype| Tensor::<Inner, 1>::from_data_dtype([number], &device, dtype);
        gradients.register(model.half.id, one(1e3, DType::F16));
        gradients.register(model.brain.id, one(-1e3, DType::BF16));
        gradients.register(model.single.id, one(1e3, DType::F32).reshape([1, 1]));
        let wide = match &model.double {
            Some(param) => {
                gradients.register(param.id, one(1e3, DType::F64));
                DType::F64
            }
            None => DType::F32,
        };
        let length = (gradients.len() as f64).sqrt();
        let norm = gradients.clip_total_norm(&model, 1.0).expect("gradients");
        assert_eq!(norm.dtype(), wide);
        near(norm, &[1e3 * length]);
        for (id, sign, dtype) in [(model.half.id, 1.0, DType::F16), (model.brain.id, -1.0, DType::BF16)] {
            let gradient = gradients.get::<Inner, 1>(id).expect("a gradient");
            assert_eq!(gradient.dtype(), dtype);
            near(gradient, &[sign / length]);
        }
        near(gradients.get::<Inner, 2>(model.single.id).expect("a gradient"), &[1.0 / length]);
        if let Some(param) = &model.double {
            near(gradients.get::<Inner, 1>(param.id).expect("a gradient"), &[1.0 / length]);
        }
    }
}

/// Its matrix is divided by a norm that f16 does not hold.
#[test]
fn muon_steps_along_large_gradients_of_16_bits() {
    let config = MuonConfig::new();
    let stepped = |dtype, scale: f64| {
        let [theta, grad] = [[[0.0, 0.0], [0.0, 0.0]], [[3.0, 1.0], [-2.0, 4.0]]]
            .map(|numbers| Tensor::<Inner, 2>::from_data_dtype(numbers, &Default::default(), dtype));
        SimpleOptimizer::step(&Muon::from(&config), 0.1, theta, grad * scale, None).0
    };
    let expected: Vec<f64> = stepped(DType::F32, 1.0).into_data().iter().collect();
    near(stepped(DType::F16, 1e3), &expected);
}
