//! The guide with a learner, metrics of one's own, and types of one's own around a loop.
// The book writes the types that its traits once named.
#![allow(refining_impl_trait, missing_docs)]

use burn::backend::{Autodiff, NdArray};
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, InMemDataset};
use burn::module::AutodiffModule;
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig, MseLoss, Reduction};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig, Relu};
use burn::optim::{AdamConfig, GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn::record::{CompactRecorder, NoStdTrainingRecorder, Recorder};
use burn::tensor::Transaction;
use burn::tensor::backend::AutodiffBackend;
use burn::train::metric::state::{FormatOptions, NumericMetricState};
use burn::train::metric::store::{Aggregate, Direction, Split};
use burn::train::metric::{
    AccuracyInput, AccuracyMetric, Adaptor, ItemLazy, LearningRateMetric, LossInput, LossMetric, Metric,
    MetricEntry, MetricMetadata, MetricName, Numeric, NumericEntry, SerializedEntry,
};
use burn::train::{
    ClassificationOutput, LearnerBuilder, MetricEarlyStoppingStrategy, RegressionOutput, StoppingCondition,
    TrainOutput, TrainStep, ValidStep,
};
use std::marker::PhantomData;

type Inner = NdArray<f32>;
type Trained = Autodiff<Inner>;

// ---- the model ----

#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    linear1: Linear<B>,
    dropout: Dropout,
    linear2: Linear<B>,
    activation: Relu,
}

#[derive(Config, Debug)]
pub struct ModelConfig {
    num_classes: usize,
    hidden_size: usize,
    #[config(default = "0.5")]
    dropout: f64,
}

impl ModelConfig {
    pub fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            linear1: LinearConfig::new(16, self.hidden_size).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            linear2: LinearConfig::new(self.hidden_size, self.num_classes).init(device),
            activation: Relu::new(),
        }
    }
}

impl<B: Backend> Model<B> {
    pub fn forward(&self, images: Tensor<B, 3>) -> Tensor<B, 2> {
        let [batch_size, height, width] = images.dims();
        let x = self.linear1.forward(images.reshape([batch_size, height * width]));
        let x = self.dropout.forward(self.activation.forward(x));
        self.linear2.forward(x)
    }

    pub fn forward_classification(
        &self,
        images: Tensor<B, 3>,
        targets: Tensor<B, 1, Int>,
    ) -> ClassificationOutput<B> {
        let output = self.forward(images);
        let loss =
            CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), targets.clone());

        ClassificationOutput::new(loss, output, targets)
    }
}

// ---- the data: where a 4×4 image is bright ----

#[derive(Clone, Debug)]
pub struct QuarterItem {
    pub image: [[f32; 4]; 4],
    pub label: u8,
}

fn quarters(count: usize) -> InMemDataset<QuarterItem> {
    let item = |n: usize| {
        let label = n * 7 % 4;
        let mut image = [[0.0; 4]; 4];
        for (row, line) in image.iter_mut().enumerate() {
            for (column, pixel) in line.iter_mut().enumerate() {
                let noise = ((n * 31 + row * 17 + column * 5) % 13) as f32 * 6.0;
                let is_bright = row / 2 == label / 2 && column / 2 == label % 2;
                *pixel = if is_bright { 255.0 - noise } else { noise };
            }
        }
        QuarterItem { image, label: label as u8 }
    };
    InMemDataset::new((0..count).map(item).collect())
}

#[derive(Clone, Default)]
pub struct QuarterBatcher {}

#[derive(Clone, Debug)]
pub struct QuarterBatch<B: Backend> {
    pub images: Tensor<B, 3>,
    pub targets: Tensor<B, 1, Int>,
}

impl<B: Backend> Batcher<B, QuarterItem, QuarterBatch<B>> for QuarterBatcher {
    fn batch(&self, items: Vec<QuarterItem>, device: &B::Device) -> QuarterBatch<B> {
        let images = items
            .iter()
            .map(|item| TensorData::from(item.image).convert::<B::FloatElem>())
            .map(|data| Tensor::<B, 2>::from_data(data, device))
            .map(|tensor| tensor.reshape([1, 4, 4]))
            .map(|tensor| ((tensor / 255) - 0.25) / 0.4)
            .collect();

        let targets = items
            .iter()
            .map(|item| Tensor::<B, 1, Int>::from_data([(item.label as i64).elem::<B::IntElem>()], device))
            .collect();

        let images = Tensor::cat(images, 0);
        let targets = Tensor::cat(targets, 0);

        QuarterBatch { images, targets }
    }
}

// ---- the steps ----

impl<B: AutodiffBackend> TrainStep<QuarterBatch<B>, ClassificationOutput<B>> for Model<B> {
    fn step(&self, batch: QuarterBatch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let item = self.forward_classification(batch.images, batch.targets);

        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl<B: Backend> ValidStep<QuarterBatch<B>, ClassificationOutput<B>> for Model<B> {
    fn step(&self, batch: QuarterBatch<B>) -> ClassificationOutput<B> {
        self.forward_classification(batch.images, batch.targets)
    }
}

// ---- the training ----

#[derive(Config)]
pub struct TrainingConfig {
    pub model: ModelConfig,
    pub optimizer: AdamConfig,
    #[config(default = 10)]
    pub num_epochs: usize,
    #[config(default = 8)]
    pub batch_size: usize,
    #[config(default = 2)]
    pub num_workers: usize,
    #[config(default = 42)]
    pub seed: u64,
    #[config(default = 1.0e-2)]
    pub learning_rate: f64,
}

fn create_artifact_dir(artifact_dir: &str) {
    std::fs::remove_dir_all(artifact_dir).ok();
    std::fs::create_dir_all(artifact_dir).ok();
}

pub fn train<B: AutodiffBackend>(artifact_dir: &str, config: TrainingConfig, device: B::Device) {
    create_artifact_dir(artifact_dir);
    config.save(format!("{artifact_dir}/config.json")).expect("Config should be saved successfully");

    B::seed(&device, config.seed);

    let batcher = QuarterBatcher::default();

    let dataloader_train = DataLoaderBuilder::new(batcher.clone())
        .batch_size(config.batch_size)
        .shuffle(config.seed)
        .num_workers(config.num_workers)
        .build(quarters(64));

    let dataloader_test = DataLoaderBuilder::new(batcher)
        .batch_size(config.batch_size)
        .shuffle(config.seed)
        .num_workers(config.num_workers)
        .build(quarters(24));

    let learner = LearnerBuilder::new(artifact_dir)
        .metric_train_numeric(AccuracyMetric::new())
        .metric_valid_numeric(AccuracyMetric::new())
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .metric_train_numeric(LearningRateMetric::new())
        .with_file_checkpointer(CompactRecorder::new())
        .early_stopping(MetricEarlyStoppingStrategy::new(
            &LossMetric::<B>::new(),
            Aggregate::Mean,
            Direction::Lowest,
            Split::Valid,
            StoppingCondition::NoImprovementSince { n_epochs: 20 },
        ))
        .devices(vec![device.clone()])
        .num_epochs(config.num_epochs)
        .summary()
        .build(config.model.init::<B>(&device), config.optimizer.init(), config.learning_rate);

    let model_trained = learner.fit(dataloader_train, dataloader_test);

    model_trained
        .save_file(format!("{artifact_dir}/model"), &CompactRecorder::new())
        .expect("Trained model should be saved successfully");
}

pub fn infer<B: Backend>(artifact_dir: &str, device: B::Device, item: QuarterItem) -> (i64, u8) {
    let config = TrainingConfig::load(format!("{artifact_dir}/config.json"))
        .expect("Config should exist for the model; run train first");
    let record = CompactRecorder::new()
        .load(format!("{artifact_dir}/model").into(), &device)
        .expect("Trained model should exist; run train first");

    let model = config.model.init::<B>(&device).load_record(record);

    let label = item.label;
    let batcher = QuarterBatcher::default();
    let batch = batcher.batch(vec![item], &device);
    let output = model.forward(batch.images);
    let predicted = output.argmax(1).flatten::<1>(0, 1).into_scalar();
    (predicted.elem::<i64>(), label)
}

#[test]
fn the_guide() {
    let folder = tempfile::tempdir().expect("a folder");
    let artifact_dir = folder.path().join("guide");
    let artifact_dir = artifact_dir.to_str().expect("a path");
    let device = Default::default();
    train::<Trained>(artifact_dir, TrainingConfig::new(ModelConfig::new(4, 16), AdamConfig::new()), device);
    for index in 0..8 {
        let item = quarters(24).get(index).expect("an item");
        let (predicted, expected) = infer::<Inner>(artifact_dir, device, item);
        assert_eq!(predicted, i64::from(expected));
    }
    for path in [
        "config.json",
        "model.mpk",
        "experiment.log",
        "checkpoint/model-10.mpk",
        "checkpoint/optim-10.mpk",
        "checkpoint/scheduler-10.mpk",
        "train/epoch-1/Accuracy.log",
        "valid/epoch-10/Loss.log",
    ] {
        assert!(std::path::Path::new(artifact_dir).join(path).exists(), "{path}");
    }
}

// ---- metrics of one's own ----

/// As the book has it: a `String` for a name, an `f64` for a value.
#[derive(Default)]
pub struct MyLossMetric<B: Backend> {
    state: NumericMetricState,
    _b: B,
}

pub struct MyLossInput<B: Backend> {
    tensor: Tensor<B, 1>,
}

impl<B: Backend> Metric for MyLossMetric<B> {
    type Input = MyLossInput<B>;

    fn update(&mut self, loss: &Self::Input, _metadata: &MetricMetadata) -> MetricEntry {
        let [batch_size] = loss.tensor.dims();
        let loss = loss.tensor.clone().mean().into_data().iter::<f64>().next().unwrap();

        self.state.update(loss, batch_size, FormatOptions::new(self.name()).precision(2))
    }

    fn clear(&mut self) {
        self.state.reset()
    }

    fn name(&self) -> String {
        "My loss".to_string()
    }
}

impl<B: Backend> Numeric for MyLossMetric<B> {
    fn value(&self) -> f64 {
        self.state.value()
    }
}

/// As Burn 0.20 has it.
#[derive(Clone)]
struct LargestError<B: Backend> {
    name: MetricName,
    state: NumericMetricState,
    _b: PhantomData<B>,
}

impl<B: Backend> LargestError<B> {
    pub fn new() -> Self {
        Self {
            name: "Largest error".to_string().into(),
            state: NumericMetricState::default(),
            _b: PhantomData,
        }
    }
}

struct ErrorInput<B: Backend> {
    errors: Tensor<B, 2>,
}

impl<B: Backend> Metric for LargestError<B> {
    type Input = ErrorInput<B>;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn update(&mut self, item: &Self::Input, _metadata: &MetricMetadata) -> SerializedEntry {
        let [count, _] = item.errors.dims();
        let largest = item.errors.clone().abs().max().into_scalar().elem::<f64>();
        self.state.update(largest, count, FormatOptions::new(self.name()).unit("px").precision(3))
    }

    fn clear(&mut self) {
        self.state.reset()
    }
}

impl<B: Backend> Numeric for LargestError<B> {
    fn value(&self) -> NumericEntry {
        self.state.current_value()
    }

    fn running_value(&self) -> NumericEntry {
        self.state.running_value()
    }
}

/// A metric that is no number.
struct FirstPrediction;

impl Metric for FirstPrediction {
    type Input = ErrorInput<Inner>;

    fn name(&self) -> String {
        "First".into()
    }

    fn update(&mut self, item: &Self::Input, metadata: &MetricMetadata) -> MetricEntry {
        let value = item.errors.clone().slice([0..1, 0..1]).into_scalar();
        let text = format!("{value:.1} in epoch {} of {}", metadata.epoch, metadata.epoch_total);
        MetricEntry::new(self.name(), text.clone(), text)
    }

    fn clear(&mut self) {}
}

/// An output of one's own.
pub struct CentreOutput<B: Backend> {
    pub loss: Tensor<B, 1>,
    pub found: Tensor<B, 2>,
    pub centres: Tensor<B, 2>,
}

impl<B: Backend> ItemLazy for CentreOutput<B> {
    type ItemSync = CentreOutput<NdArray>;

    fn sync(self) -> Self::ItemSync {
        let [loss, found, centres] = Transaction::default()
            .register(self.loss)
            .register(self.found)
            .register(self.centres)
            .execute()
            .try_into()
            .expect("Correct amount of tensor data");
        let device = &Default::default();
        CentreOutput {
            loss: Tensor::from_data(loss, device),
            found: Tensor::from_data(found, device),
            centres: Tensor::from_data(centres, device),
        }
    }
}

impl<B: Backend> Adaptor<MyLossInput<B>> for CentreOutput<B> {
    fn adapt(&self) -> MyLossInput<B> {
        MyLossInput { tensor: self.loss.clone() }
    }
}

impl<B: Backend> Adaptor<LossInput<B>> for CentreOutput<B> {
    fn adapt(&self) -> LossInput<B> {
        LossInput::new(self.loss.clone())
    }
}

impl<B: Backend> Adaptor<ErrorInput<B>> for CentreOutput<B> {
    fn adapt(&self) -> ErrorInput<B> {
        ErrorInput { errors: self.found.clone() - self.centres.clone() }
    }
}

/// Finds where the bright quarter is, from the same images.
#[derive(Module, Debug)]
struct Centres<B: Backend> {
    body: Model<B>,
}

impl<B: Backend> Centres<B> {
    fn find(&self, batch: QuarterBatch<B>) -> CentreOutput<B> {
        let found = self.body.forward(batch.images);
        let [count] = batch.targets.dims();
        let row = batch.targets.clone().float() / 2.0;
        let row = row.floor();
        let column = batch.targets.float() - row.clone() * 2.0;
        let centres = Tensor::cat(vec![row.reshape([count, 1]), column.reshape([count, 1])], 1) * 2.0 + 0.5;
        let loss = MseLoss::new().forward(found.clone(), centres.clone(), Reduction::Mean);
        CentreOutput { loss, found, centres }
    }
}

impl<B: AutodiffBackend> TrainStep<QuarterBatch<B>, CentreOutput<B>> for Centres<B> {
    fn step(&self, batch: QuarterBatch<B>) -> TrainOutput<CentreOutput<B>> {
        let item = self.find(batch);
        TrainOutput::new(self, item.loss.backward(), item)
    }

    /// Weights are kept small.
    fn optimize<B1, O>(self, optim: &mut O, lr: f64, grads: GradientsParams) -> Self
    where
        B1: AutodiffBackend,
        O: Optimizer<Self, B1>,
        Self: AutodiffModule<B1>,
    {
        optim.step(lr, self, grads)
    }
}

impl<B: Backend> ValidStep<QuarterBatch<B>, RegressionOutput<B>> for Centres<B> {
    fn step(&self, batch: QuarterBatch<B>) -> RegressionOutput<B> {
        let CentreOutput { loss, found, centres } = self.find(batch);
        RegressionOutput::new(loss, found, centres)
    }
}

#[test]
fn outputs_and_metrics_of_ones_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = Default::default();
    let loader = DataLoaderBuilder::new(QuarterBatcher::default()).batch_size(16).shuffle(1);
    let valid = DataLoaderBuilder::new(QuarterBatcher::default()).batch_size(16).build(quarters(16));
    let model = Centres { body: ModelConfig::new(2, 16).with_dropout(0.0).init::<Trained>(&device) };
    let result = LearnerBuilder::new(folder.path())
        .metric_train_numeric(MyLossMetric::default())
        .metric_train_numeric(LargestError::new())
        .metric_train(FirstPrediction)
        .metric_valid_numeric(LossMetric::new())
        .with_file_checkpointer(NoStdTrainingRecorder::new())
        .num_epochs(8)
        .build(model, AdamConfig::new().init(), 1e-2)
        .fit(loader.build(quarters(64)), valid);
    let log = |path: &str| std::fs::read_to_string(folder.path().join(path)).expect("a log");
    let last = |path: &str| {
        let log = log(path);
        NumericEntry::deserialize(log.lines().last().expect("a line")).expect("a number").current()
    };
    assert!(last("train/epoch-8/My_loss.log") < last("train/epoch-1/My_loss.log"));
    assert!(last("train/epoch-8/Largest_error.log") > 0.0);
    assert!(log("train/epoch-2/First.log").contains("in epoch 2 of 8"));
    assert!(folder.path().join("checkpoint/model-8.bin").exists());
    assert!(folder.path().join("valid/epoch-8/Loss.log").exists());
    // The model for inference comes with the result.
    let batch = QuarterBatcher::default().batch(vec![quarters(1).get(0).expect("an item")], &device);
    assert_eq!(result.model.find(batch).found.dims(), [1, 2]);
}

// ---- a loop of one's own ----

/// The accuracy of a batch, in percent.
fn accuracy<B: Backend>(output: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> f64 {
    let mut metric = AccuracyMetric::<B>::new();
    let _: MetricEntry =
        metric.update(&AccuracyInput::new(output, targets), &MetricMetadata::default()).into();
    let value: NumericEntry = metric.value().into();
    value.current()
}

struct Learner1<B, O>
where
    B: AutodiffBackend,
{
    model: Model<B>,
    optim: O,
}

impl<B: AutodiffBackend, O: Optimizer<Model<B>, B>> Learner1<B, O> {
    fn step(&mut self, batch: QuarterBatch<B>) -> f64 {
        let output = self.model.forward(batch.images);
        let device = output.device();
        let loss = CrossEntropyLoss::new(None, &device).forward(output.clone(), batch.targets.clone());
        let accuracy = accuracy(output, batch.targets);
        let grads = GradientsParams::from_grads(loss.backward(), &self.model);
        self.model = self.optim.step(0.05, self.model.clone(), grads);
        accuracy
    }
}

struct Learner2<M, O> {
    model: M,
    optim: O,
}

impl<M, O> Learner2<M, O> {
    pub fn step<B>(&mut self, batch: QuarterBatch<B>)
    where
        B: AutodiffBackend,
        M: AutodiffModule<B> + TrainStep<QuarterBatch<B>, ClassificationOutput<B>>,
        O: Optimizer<M, B>,
    {
        let grads = TrainStep::step(&self.model, batch).grads;
        self.model = self.optim.step(0.05, self.model.clone(), grads);
    }
}

struct Learner3<B, M, O> {
    model: M,
    optim: O,
    _b: PhantomData<B>,
}

impl<B, M, O> Learner3<B, M, O>
where
    B: AutodiffBackend,
    M: AutodiffModule<B> + TrainStep<QuarterBatch<B>, ClassificationOutput<B>>,
    O: Optimizer<M, B>,
{
    pub fn step(&mut self, batch: QuarterBatch<B>) {
        let grads = TrainStep::step(&self.model, batch).grads;
        self.model = self.optim.step(0.05, self.model.clone(), grads);
    }
}

#[test]
fn three_types_around_a_loop() {
    let device = Default::default();
    // What it starts with is the same whatever other tests draw meanwhile.
    Trained::seed_thread(&device, Some(3));
    let model = ModelConfig::new(4, 16).with_dropout(0.0).init::<Trained>(&device);
    let loader = DataLoaderBuilder::new(QuarterBatcher::default()).batch_size(16).shuffle(3);
    let loader = loader.build(quarters(64));
    let mut first = Learner1 { model: model.clone(), optim: SgdConfig::new().init() };
    let mut second = Learner2 { model: model.clone(), optim: SgdConfig::new().init() };
    let mut third: Learner3<Trained, _, _> =
        Learner3 { model, optim: SgdConfig::new().init::<Trained, Model<Trained>>(), _b: PhantomData };
    let mut last = 0.0;
    for _ in 0..12 {
        for batch in loader.iter() {
            last = first.step(batch.clone());
            second.step(batch.clone());
            third.step(batch);
        }
    }
    assert!(last > 90.0, "{last}");
    let valid = first.model.valid();
    let batch = QuarterBatcher::default().batch(quarters(24).iter().collect(), &device);
    assert_eq!(accuracy(valid.forward(batch.images.clone()), batch.targets), 100.0);
    let of = |model: &Model<Trained>| model.valid().forward(batch.images.clone()).into_data();
    assert_eq!(of(&first.model), of(&second.model));
    assert_eq!(of(&first.model), of(&third.model));
}

// ---- configs ----

#[derive(Config, Debug)]
pub struct MyModuleConfig {
    d_model: usize,
    d_ff: usize,
    #[config(default = 0.1)]
    dropout: f64,
}

#[derive(Module, Debug)]
struct MyModule<B: Backend> {
    linear: Linear<B>,
    dropout: Dropout,
}

impl MyModuleConfig {
    fn init<B: Backend>(&self, device: &B::Device) -> MyModule<B> {
        MyModule {
            linear: LinearConfig::new(self.d_model, self.d_ff).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }
}

#[test]
fn configs_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = MyModuleConfig::new(512, 2048);
    assert_eq!((config.d_model, config.d_ff, config.dropout), (512, 2048, 0.1));
    let config = config.with_dropout(0.2);
    let path = folder.path().join("config.json");
    config.save(&path).unwrap();
    let loaded = MyModuleConfig::load(&path).unwrap();
    assert_eq!(loaded.to_string(), config.to_string());
    let device = Default::default();
    let my_module = loaded.init::<Inner>(&device);
    assert_eq!((my_module.num_params(), my_module.dropout.prob), (512 * 2048 + 2048, 0.2));
}
