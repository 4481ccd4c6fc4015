//! A training as Burn 0.20 spells it: steps with associated types, the loaders first, an evaluation afterwards, a renderer of
//! three parts. `burn::train::{Learner, TrainStep}` are these with the feature `burn-0-20`.

use burn::backend::{Autodiff, NdArray};
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::transform::{Mapper, MapperDataset, PartialDataset};
use burn::data::dataset::{Dataset, InMemDataset};
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::nn::loss::{CrossEntropyLossConfig, HuberLossConfig, Reduction};
use burn::nn::{Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig};
use burn::optim::{AdamWConfig, RmsPropConfig};
use burn::prelude::*;
use burn::record::{CompactRecorder, NoStdTrainingRecorder, Recorder};
use burn::tensor::backend::AutodiffBackend;
use burn::train::metric::store::{Aggregate, Direction, EpochSummary, MetricsUpdate, Split};
use burn::train::metric::{
    AccuracyMetric, ClassReduction, FBetaScoreMetric, IterationSpeedMetric, LearningRateMetric, LossMetric,
    MetricDefinition, NumericEntry, PrecisionMetric, TopKAccuracyMetric,
};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, TrainingProgress,
};
use burn::train::supervised::{Learner, MetricLogger, TrainStep};
use burn::train::{
    ClassificationOutput, EvaluatorBuilder, InferenceStep, MetricEarlyStoppingStrategy, RegressionOutput,
    StoppingCondition, SupervisedTraining, TrainOutput, TrainingStrategy,
};
use std::sync::{Arc, Mutex};

type Inner = NdArray;
type Trained = Autodiff<Inner>;

// ---- where a wave begins ----

const STEPS: usize = 12;

#[derive(Clone, Debug)]
struct Wave {
    values: [f32; STEPS],
    kind: usize,
}

/// The number of a wave to the wave: of one of three lengths.
struct Draw;

impl Mapper<usize, Wave> for Draw {
    fn map(&self, item: &usize) -> Wave {
        let kind = item % 3;
        let phase = *item as f32 * 0.37;
        let values = std::array::from_fn(|step| (phase + step as f32 * [0.4, 0.9, 1.6][kind]).sin());
        Wave { values, kind }
    }
}

type Waves = PartialDataset<MapperDataset<InMemDataset<usize>, Draw, usize>, Wave>;

fn waves(from: usize, to: usize) -> Waves {
    Waves::new(MapperDataset::new(InMemDataset::new((0..200).collect()), Draw), from, to)
}

#[derive(Clone, Debug)]
struct WaveBatch<B: Backend> {
    values: Tensor<B, 3>,
    kinds: Tensor<B, 1, Int>,
}

#[derive(Clone, Default)]
struct WaveBatcher {}

impl<B: Backend> Batcher<B, Wave, WaveBatch<B>> for WaveBatcher {
    fn batch(&self, items: Vec<Wave>, device: &B::Device) -> WaveBatch<B> {
        let wave = |item: &Wave| Tensor::<B, 1>::from_floats(item.values, device).reshape([1, STEPS, 1]);
        let values = Tensor::cat(items.iter().map(wave).collect(), 0);
        let kinds: Vec<i64> = items.iter().map(|item| item.kind as i64).collect();
        WaveBatch { values, kinds: Tensor::from_data(kinds.as_slice(), device) }
    }
}

// ---- the models ----

#[derive(Module, Debug)]
struct Tagger<B: Backend> {
    lstm: Lstm<B>,
    norm: LayerNorm<B>,
    activation: Gelu,
    head: Linear<B>,
}

#[derive(Config, Debug)]
struct TaggerConfig {
    #[config(default = 12)]
    hidden: usize,
    outputs: usize,
}

impl TaggerConfig {
    fn init<B: Backend>(&self, device: &B::Device) -> Tagger<B> {
        Tagger {
            lstm: LstmConfig::new(1, self.hidden, true).init(device),
            norm: LayerNormConfig::new(self.hidden).init(device),
            activation: Gelu::new(),
            head: LinearConfig::new(self.hidden, self.outputs).init(device),
        }
    }
}

impl<B: Backend> Tagger<B> {
    fn forward(&self, values: Tensor<B, 3>) -> Tensor<B, 2> {
        let (_, state) = self.lstm.forward(values, None);
        self.head.forward(self.activation.forward(self.norm.forward(state.hidden)))
    }

    fn classify(&self, batch: WaveBatch<B>) -> ClassificationOutput<B> {
        let output = self.forward(batch.values);
        let criterion = CrossEntropyLossConfig::new().with_smoothing(Some(0.05)).init(&output.device());
        let loss = criterion.forward(output.clone(), batch.kinds.clone());
        ClassificationOutput { loss, output, targets: batch.kinds }
    }
}

impl<B: AutodiffBackend> TrainStep for Tagger<B> {
    type Input = WaveBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: WaveBatch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let item = self.classify(batch);

        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl<B: Backend> InferenceStep for Tagger<B> {
    type Input = WaveBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: WaveBatch<B>) -> ClassificationOutput<B> {
        self.classify(batch)
    }
}

/// The next value of a wave.
#[derive(Module, Debug)]
struct Forecast<B: Backend> {
    body: Tagger<B>,
}

impl<B: Backend> Forecast<B> {
    fn forecast(&self, values: Tensor<B, 3>) -> RegressionOutput<B> {
        let known = values.clone().slice(s![.., 0..STEPS - 1, ..]);
        let targets = values.slice(s![.., STEPS - 1.., ..]).flatten::<2>(1, 2);
        let output = self.body.forward(known);
        let loss = HuberLossConfig::new(0.5).init().forward(output.clone(), targets.clone(), Reduction::Mean);
        RegressionOutput { loss, output, targets }
    }
}

impl<B: AutodiffBackend> TrainStep for Forecast<B> {
    type Input = WaveBatch<B>;
    type Output = RegressionOutput<B>;

    fn step(&self, batch: Self::Input) -> TrainOutput<Self::Output> {
        let item = self.forecast(batch.values);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl<B: Backend> InferenceStep for Forecast<B> {
    type Input = WaveBatch<B>;
    type Output = RegressionOutput<B>;

    fn step(&self, batch: Self::Input) -> Self::Output {
        self.forecast(batch.values)
    }
}

// ---- a renderer of three parts ----

#[derive(Clone, Default)]
struct Counter {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default, PartialEq)]
struct Seen {
    metrics: Vec<String>,
    train: usize,
    valid: usize,
    test: Vec<String>,
}

impl MetricsRendererTraining for Counter {
    fn update_train(&mut self, _state: MetricState) {}

    fn update_valid(&mut self, _state: MetricState) {}

    fn render_train(&mut self, item: TrainingProgress) {
        assert!(item.iteration > 0 && item.progress.items_processed <= item.progress.items_total);
        self.seen.lock().unwrap().train += 1;
    }

    fn render_valid(&mut self, _item: TrainingProgress) {
        self.seen.lock().unwrap().valid += 1;
    }
}

impl MetricsRendererEvaluation for Counter {
    fn update_test(&mut self, name: EvaluationName, state: MetricState) {
        let MetricState::Numeric(entry, _) = state else { panic!("numeric metrics alone") };
        self.seen.lock().unwrap().test.push(format!("{name}: {}", entry.name));
    }

    fn render_test(&mut self, _item: EvaluationProgress) {}
}

impl MetricsRenderer for Counter {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.seen.lock().unwrap().metrics.push(definition.name);
    }
}

#[test]
fn a_training_its_artifacts_and_an_evaluation() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = Default::default();
    Trained::seed(&device, 11);
    let train = DataLoaderBuilder::new(WaveBatcher::default()).batch_size(20).shuffle(5).num_workers(2);
    let train = train.build(waves(0, 150));
    let valid = DataLoaderBuilder::new(WaveBatcher::default()).batch_size(25).build(waves(150, 200));
    let early_stopping = MetricEarlyStoppingStrategy::new(
        &AccuracyMetric::<Inner>::new(),
        Aggregate::Mean,
        Direction::Highest,
        Split::Valid,
        StoppingCondition::NoImprovementSince { n_epochs: 3 },
    );
    let training = SupervisedTraining::new(folder.path(), train, valid)
        .metrics((AccuracyMetric::new(), LossMetric::new(), TopKAccuracyMetric::new(2)))
        .metrics_text((IterationSpeedMetric::new(),))
        .metric_train_numeric(LearningRateMetric::new())
        .metric_valid_numeric(FBetaScoreMetric::multiclass(1.0, 1, ClassReduction::Macro))
        .with_file_checkpointer(CompactRecorder::new())
        .with_training_strategy(TrainingStrategy::SingleDevice(device))
        .early_stopping(early_stopping)
        .num_epochs(15)
        .summary();
    let model = TaggerConfig::new(3).init::<Trained>(&device);
    let scheduler = LinearLrSchedulerConfig::new(2e-2, 1e-3, 120).init().expect("a schedule");
    let optim = AdamWConfig::new().with_weight_decay(1e-3).with_cautious_weight_decay(true).init();
    let result = training.launch(Learner::new(model, optim, scheduler));

    let path = folder.path().join("model");
    result.model.clone().save_file(path.clone(), &NoStdTrainingRecorder::new()).expect("saved");
    let record = NoStdTrainingRecorder::new().load(path, &device).expect("loaded");
    let loaded = TaggerConfig::new(3).init::<Inner>(&device).load_record(record);
    let batch: WaveBatch<Inner> = WaveBatcher::default().batch(waves(150, 200).iter().collect(), &device);
    let expected: Vec<i64> = batch.kinds.to_data().iter().collect();
    let found: Vec<i64> = loaded.forward(batch.values).argmax(1).into_data().iter().collect();
    let right = expected.iter().zip(&found).filter(|(expected, found)| expected == found).count();
    assert!(right >= 45, "{right} of 50");

    let test = DataLoaderBuilder::new(WaveBatcher::default()).batch_size(25).build(waves(150, 200));
    let evaluator = EvaluatorBuilder::new(folder.path())
        .renderer(result.renderer)
        .metrics((AccuracyMetric::new(), PrecisionMetric::multiclass(1, ClassReduction::Micro)))
        .build(result.model);
    evaluator.eval("Held out", test);
    let log = folder.path().join("test/held-out/epoch-1/Accuracy.log");
    let log = std::fs::read_to_string(log).expect("a log");
    let accuracy: f64 = log.lines().map(|line| line.split(',').next().unwrap().parse::<f64>().unwrap()).sum();
    assert_eq!(accuracy / 2.0, right as f64 * 2.0);
    for path in ["checkpoint/model-1.mpk", "train/epoch-1/Iteration_Speed.log", "valid/epoch-2/Loss.log"] {
        let pruned = path.starts_with("checkpoint");
        assert!(pruned || folder.path().join(path).exists(), "{path}");
    }
}

#[test]
fn a_renderer_of_three_parts_sees_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = Default::default();
    let counter = Counter::default();
    let train = DataLoaderBuilder::new(WaveBatcher::default()).batch_size(20).build(waves(0, 60));
    let valid = DataLoaderBuilder::new(WaveBatcher::default()).batch_size(20).build(waves(60, 100));
    let training = SupervisedTraining::new(folder.path(), train.clone(), valid)
        .metrics((LossMetric::new(),))
        .renderer(counter.clone())
        .grads_accumulation(3)
        .num_epochs(3);
    let interrupter = training.interrupter();
    let model = Forecast { body: TaggerConfig::new(1).init::<Trained>(&device) };
    let result = training.launch(Learner::new(model, RmsPropConfig::new().with_momentum(0.5).init(), 1e-3));
    assert!(!interrupter.should_stop());
    let test = DataLoaderBuilder::new(WaveBatcher::default()).batch_size(50).build(waves(100, 200));
    EvaluatorBuilder::new(folder.path())
        .renderer(result.renderer)
        .metric_numeric(LossMetric::new())
        .build(result.model)
        .eval(1, test);
    let expected =
        Seen { metrics: vec!["Loss".to_owned(); 3], train: 9, valid: 6, test: vec!["1: Loss".to_owned(); 2] };
    assert_eq!(*counter.seen.lock().unwrap(), expected);

    // One that was stopped before takes no step.
    interrupter.stop(Some("there is enough"));
    let valid = DataLoaderBuilder::new(WaveBatcher::default()).build(waves(0, 1));
    let training = SupervisedTraining::new(folder.path(), train, valid).with_interrupter(interrupter.clone());
    let model = Forecast { body: TaggerConfig::new(1).init::<Trained>(&device) };
    training.metrics((LossMetric::new(),)).launch(Learner::new(model, AdamWConfig::new().init(), 1e-3));
    assert_eq!(interrupter.get_message().as_deref(), Some("there is enough"));
}

/// What a logger was told.
#[derive(Clone, Default)]
struct Notes {
    lines: Arc<Mutex<Vec<String>>>,
}

impl MetricLogger for Notes {
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: Split, tag: Option<Arc<String>>) {
        let mut lines = self.lines.lock().unwrap();
        assert!(tag.is_none());
        for update in &update.entries_numeric {
            let running = update.running_entry.current();
            lines.push(format!(
                "{split:?} {epoch} number {} of {}",
                running.is_finite(),
                update.running_entry.count()
            ));
            assert_eq!(update.entry.serialized_entry.serialized, update.numeric_entry.serialize());
        }
        lines.extend(update.entries.iter().map(|_| format!("{split:?} {epoch} text")));
    }

    fn read_numeric(
        &mut self,
        name: &str,
        _epoch: usize,
        _split: Split,
    ) -> Result<Vec<NumericEntry>, String> {
        Err(format!("{name} is not kept"))
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        self.lines.lock().unwrap().push(definition.name);
    }

    fn log_epoch_summary(&mut self, summary: EpochSummary) {
        self.lines.lock().unwrap().push(format!("{:?} {} is over", summary.split, summary.epoch_number));
    }
}

#[test]
fn a_logger_of_all_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    let (device, notes) = (Default::default(), Notes::default());
    let train = DataLoaderBuilder::new(WaveBatcher::default()).batch_size(20).build(waves(0, 40));
    let valid = DataLoaderBuilder::new(WaveBatcher::default()).batch_size(20).build(waves(60, 80));
    let training = SupervisedTraining::new(folder.path(), train, valid)
        .metrics((AccuracyMetric::new(),))
        .metric_train(IterationSpeedMetric::new())
        .with_metric_logger(notes.clone())
        .num_epochs(2);
    let model = TaggerConfig::new(3).init::<Trained>(&device);
    training.launch(Learner::new(model, AdamWConfig::new().init(), 1e-3));
    let lines = notes.lines.lock().unwrap().clone();
    let mut definitions = lines[..3].to_vec();
    definitions.sort();
    assert_eq!(definitions, ["Accuracy", "Accuracy", "Iteration Speed"]);
    let step = |epoch: usize, part: &str, of: usize| format!("{part} {epoch} number true of {of}");
    for epoch in [1, 2] {
        let at = 3 + (epoch - 1) * 7;
        let mut steps = lines[at..at + 4].to_vec();
        steps.sort();
        let text = format!("Train {epoch} text");
        assert_eq!(steps, [step(epoch, "Train", 20), step(epoch, "Train", 40), text.clone(), text]);
        let rest =
            [format!("Train {epoch} is over"), step(epoch, "Valid", 20), format!("Valid {epoch} is over")];
        assert_eq!(lines[at + 4..at + 7], rest);
    }
    assert!(!folder.path().join("train").exists());
}
