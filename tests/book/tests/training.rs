//! Training by hand: gradients, optimizers, batches, records; the exercises on XOR.

use burn::backend::{Autodiff, NdArray};
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, InMemDataset};
use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::module::{ModuleVisitor, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::{AdamConfig, GradientsAccumulator, GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn::record::CompactRecorder;
use burn::tensor::Distribution;
use burn::tensor::backend::AutodiffBackend;

type Inner = NdArray;
type Trained = Autodiff<Inner>;

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
    last: Linear<B>,
    relu: Relu,
}

#[derive(Config, Debug)]
struct MlpConfig {
    #[config(default = 2)]
    inputs: usize,
    #[config(default = 16)]
    hidden: usize,
    #[config(default = 2)]
    classes: usize,
}

impl MlpConfig {
    fn init<B: Backend>(&self, device: &B::Device) -> Mlp<B> {
        Mlp {
            first: LinearConfig::new(self.inputs, self.hidden).init(device),
            second: LinearConfig::new(self.hidden, self.hidden).init(device),
            last: LinearConfig::new(self.hidden, self.classes).init(device),
            relu: Relu::new(),
        }
    }
}

impl<B: Backend> Mlp<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let x = self.relu.forward(self.first.forward(x));
        let x = self.relu.forward(self.second.forward(x));
        self.last.forward(x)
    }
}

#[derive(Clone, Debug)]
struct Sample {
    x: [f32; 2],
    y: i32,
}

#[derive(Clone, Debug)]
struct XorBatch<B: Backend> {
    inputs: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
}

#[derive(Clone, Debug)]
struct XorBatcher;

impl<B: Backend> Batcher<B, Sample, XorBatch<B>> for XorBatcher {
    fn batch(&self, items: Vec<Sample>, device: &B::Device) -> XorBatch<B> {
        let inputs: Vec<Tensor<B, 2>> =
            items.iter().map(|item| Tensor::<B, 1>::from_floats(item.x, device).unsqueeze_dim(0)).collect();
        let targets: Vec<Tensor<B, 1, Int>> =
            items.iter().map(|item| Tensor::from_data(TensorData::from([item.y]), device)).collect();
        XorBatch { inputs: Tensor::cat(inputs, 0), targets: Tensor::cat(targets, 0) }
    }
}

const PATTERNS: [([f32; 2], i32); 4] = [([0.0, 0.0], 0), ([0.0, 1.0], 1), ([1.0, 0.0], 1), ([1.0, 1.0], 0)];

fn dataset() -> InMemDataset<Sample> {
    let samples = (0..50).flat_map(|_| PATTERNS.map(|(x, y)| Sample { x, y }));
    InMemDataset::new(samples.collect())
}

/// The part of the patterns that a model gets right.
fn accuracy<B: Backend>(model: &Mlp<B>) -> f32 {
    let device = B::Device::default();
    let inputs = Tensor::<B, 2>::from_data(PATTERNS.map(|(x, _)| x), &device);
    let expected = Tensor::<B, 1, Int>::from_data(PATTERNS.map(|(_, y)| y), &device);
    let found = model.forward(inputs).argmax(1).squeeze_dim::<1>(1);
    found.equal(expected).int().sum().into_scalar().elem::<f32>() / 4.0
}

fn loss_of<B: Backend>(model: &Mlp<B>, batch: XorBatch<B>) -> Tensor<B, 1> {
    let device = batch.inputs.device();
    CrossEntropyLossConfig::new().init(&device).forward(model.forward(batch.inputs), batch.targets)
}

#[test]
fn one_step_lowers_the_loss() {
    let device = Default::default();
    Trained::seed(&device, 3);
    let mut model = MlpConfig::new().init::<Trained>(&device);
    let mut optim = AdamConfig::new().init();
    let items: Vec<Sample> = dataset().iter().take(8).collect();
    let batch = XorBatcher.batch(items, &device);
    let before = loss_of(&model, batch.clone());
    let grads = GradientsParams::from_grads(before.backward(), &model);
    model = optim.step(1e-2, model, grads);
    let after = loss_of(&model, batch).into_scalar();
    assert!(after < before.into_scalar(), "{after}");
}

#[test]
fn a_network_learns_xor_and_keeps_it() {
    let device = Default::default();
    Trained::seed(&device, 42);
    let mut model = MlpConfig::new().init::<Trained>(&device);
    let mut optim = AdamConfig::new().init();
    let loader =
        DataLoaderBuilder::new(XorBatcher).batch_size(20).shuffle(42).num_workers(2).build(dataset());
    let mut epochs = 0;
    while accuracy(&model.valid()) < 1.0 {
        epochs += 1;
        assert!(epochs <= 50, "50 epochs are enough");
        for batch in loader.iter() {
            let grads = GradientsParams::from_grads(loss_of(&model, batch).backward(), &model);
            model = optim.step(1e-2, model, grads);
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("xor");
    model.valid().save_file(path.clone(), &CompactRecorder::new()).expect("saved");
    let loaded = MlpConfig::new().init::<Inner>(&device).load_file(path, &CompactRecorder::new(), &device);
    assert_eq!(accuracy(&loaded.expect("loaded")), 1.0);
}

#[test]
fn accumulated_gradients_are_those_of_the_whole_batch() {
    let device = Default::default();
    let model = MlpConfig::new().init::<Trained>(&device);
    let items: Vec<Sample> = dataset().iter().take(8).collect();
    let whole = XorBatcher.batch(items.clone(), &device);
    let expected = GradientsParams::from_grads(loss_of(&model, whole).backward(), &model);
    let mut accumulator = GradientsAccumulator::new();
    for half in items.chunks(4) {
        let loss = loss_of(&model, XorBatcher.batch(half.to_vec(), &device)) / 2.0;
        accumulator.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
    }
    let found = accumulator.grads();
    let id = model.second.weight.id;
    let (a, b) = (found.get::<Inner, 2>(id).expect("a gradient"), expected.get::<Inner, 2>(id).expect("one"));
    a.into_data().assert_approx_eq::<f32>(&b.into_data(), burn::tensor::Tolerance::default());
}

/// The body of a learner of one's own, generic over the backend, with two optimizers.
struct Learner<O1, O2> {
    body: O1,
    head: O2,
}

impl<O1, O2> Learner<O1, O2> {
    fn step<B: AutodiffBackend>(&mut self, mut model: Mlp<B>, batch: XorBatch<B>, lr: f64) -> Mlp<B>
    where
        O1: Optimizer<Mlp<B>, B>,
        O2: Optimizer<Mlp<B>, B>,
    {
        let mut grads = loss_of(&model, batch).backward();
        let head =
            [model.last.weight.id, model.last.bias.as_ref().map_or(model.last.weight.id, |bias| bias.id)];
        let of_head = GradientsParams::from_params(&mut grads, &model, &head);
        let of_body = GradientsParams::from_grads(grads, &model);
        assert_eq!((of_head.len(), of_body.len()), (2, 4));
        model = self.head.step(lr, model, of_head);
        self.body.step(lr, model, of_body)
    }
}

#[test]
fn two_optimizers_and_a_schedule() {
    let device = Default::default();
    Trained::seed(&device, 1);
    let mut model = MlpConfig::new().init::<Trained>(&device);
    let mut learner = Learner {
        body: AdamConfig::new().init::<Trained, Mlp<_>>(),
        head: SgdConfig::new().init::<Trained, Mlp<_>>(),
    };
    let mut schedule = CosineAnnealingLrSchedulerConfig::new(0.05, 40).init().expect("a schedule");
    let items: Vec<Sample> = dataset().iter().take(40).collect();
    let batch: XorBatch<Trained> = XorBatcher.batch(items, &device);
    let first = loss_of(&model, batch.clone()).into_scalar();
    for _ in 0..40 {
        model = learner.step(model, batch.clone(), schedule.step());
    }
    let last = loss_of(&model, batch).into_scalar();
    assert!(last < first * 0.8, "{first} became {last}");
}

/// A model that was imported learns as it stands: every one of its parameters has a gradient.
#[test]
fn an_imported_model_is_fine_tuned() {
    use book_programs::imported::Model;
    let device = Default::default();
    Trained::seed(&device, 5);
    let mut model = Model::<Trained>::default();
    let images = Tensor::<Trained, 4>::random([4, 3, 32, 32], Distribution::Normal(0.0, 1.0), &device);
    let plain = Model::<Inner>::default().forward(images.clone().inner());
    let outputs = model.forward(images.clone());
    plain.into_data().assert_approx_eq::<f32>(&outputs.to_data(), burn::tensor::Tolerance::default());
    let classes = outputs.dims()[1];
    let targets =
        Tensor::<Trained, 1, Int>::from_data(TensorData::from([0, 1, 2, 3]), &device) % classes as i32;
    let criterion = CrossEntropyLossConfig::new().init(&device);
    let mut optim = AdamConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..5 {
        let loss = criterion.forward(model.forward(images.clone()), targets.clone());
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        assert_eq!(grads.len(), parameters(&model));
        model = optim.step(1e-3, model, grads);
        losses.push(loss.into_scalar());
    }
    assert!(losses[4] < losses[0] * 0.9, "{losses:?}");
}

/// The number of float parameters.
fn parameters<B: Backend>(module: &impl Module<B>) -> usize {
    struct Count(usize);
    impl<B: Backend> ModuleVisitor<B> for Count {
        fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<B, D>>) {
            self.0 += 1;
        }
    }
    let mut count = Count(0);
    module.visit(&mut count);
    count.0
}

/// Muon's config has a momentum's config, as SGD's; the last layer and the biases have an optimizer of their own.
#[test]
fn muon_for_matrices_and_another_for_the_rest() {
    use burn::optim::adaptor::OptimizerAdaptor;
    use burn::optim::decay::WeightDecayConfig;
    use burn::optim::momentum::MomentumConfig;
    use burn::optim::{AdjustLrFn, Muon, MuonConfig, RmsProp, RmsPropConfig};
    type Of<O> = OptimizerAdaptor<O, Mlp<Trained>, Trained>;
    let device = Default::default();
    Trained::seed(&device, 8);
    let mut model = MlpConfig::new().init::<Trained>(&device);
    let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: true };
    let mut matrices: Of<Muon<Inner>> = MuonConfig::new()
        .with_momentum(momentum)
        .with_weight_decay(Some(WeightDecayConfig::new(1e-3)))
        .with_adjust_lr_fn(AdjustLrFn::MatchRmsAdamW)
        .init();
    let mut rest: Of<RmsProp> = RmsPropConfig::new().with_momentum(0.5).with_centered(true).init();
    let items: Vec<Sample> = dataset().iter().take(40).collect();
    let batch: XorBatch<Trained> = XorBatcher.batch(items, &device);
    let first = loss_of(&model, batch.clone()).into_scalar();
    for _ in 0..60 {
        let mut grads = loss_of(&model, batch.clone()).backward();
        let weights = [model.first.weight.id, model.second.weight.id];
        let of_matrices = GradientsParams::from_params(&mut grads, &model, &weights);
        let of_rest = GradientsParams::from_grads(grads, &model);
        model = matrices.step(0.02, model, of_matrices);
        model = rest.step(2e-3, model, of_rest);
    }
    let last = loss_of(&model, batch).into_scalar();
    assert!(last < first * 0.5, "{first} became {last}");
}

/// What `valid()` yields shares its weights with the model that is trained. Products of weights that kernels have packed may round otherwise: a training
/// that goes on from a record, with no validation before its first step, would end elsewhere.
#[test]
fn validation_leaves_the_bits_of_the_training_model() {
    let device = Default::default();
    for (inputs, outputs, batch) in [(8, 1, 4), (8, 1, 33), (3, 1, 16), (8, 8, 1), (64, 5, 1)] {
        let layer = LinearConfig::new(inputs, outputs).init::<Trained>(&device);
        let count = (batch * inputs) as i64;
        let x = Tensor::<Trained, 1, Int>::arange(0..count, &device).float().mul_scalar(0.73).sin();
        let x = x.reshape([batch, inputs]);
        let grads = GradientsParams::from_grads(layer.forward(x.clone()).mean().backward(), &layer);
        let layer = SgdConfig::new().init().step(0.1, layer, grads);
        let before = layer.forward(x.clone()).into_data();
        let valid = layer.valid();
        valid.forward(x.clone().inner());
        layer.forward(x).into_data().assert_eq(&before, true);
    }
}
