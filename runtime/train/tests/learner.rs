//! The learner: what it trains, logs, keeps and shows.

mod common;

use common::{Batch, Batcher2d, Inner, Model, ModelConfig, Point, Trained, files, loaders, points};
use kiln_core::module::{AutodiffModule, Module, ModuleVisitor, Param};
use kiln_core::record::{CompactRecorder, DefaultRecorder, FullPrecisionSettings, NamedMpkGzFileRecorder};
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{Tensor, Tolerance};
use kiln_data::dataloader::DataLoaderBuilder;
use kiln_data::dataloader::batcher::Batcher;
use kiln_optim::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use kiln_optim::momentum::MomentumConfig;
use kiln_optim::{AdamConfig, GradientsAccumulator, GradientsParams, SgdConfig};
use kiln_train::checkpoint::{
    CheckpointingStrategy, ComposedCheckpointingStrategy, KeepLastNCheckpoints, MetricCheckpointingStrategy,
};
use kiln_train::logger::InMemoryMetricLogger;
use kiln_train::metric::store::{Aggregate, Direction, EventStoreClient, Split};
use kiln_train::metric::{
    AccuracyMetric, IterationSpeedMetric, LearningRateMetric, LossMetric, TopKAccuracyMetric,
};
use kiln_train::metric::{Metric, MetricEntry, MetricMetadata, MetricName};
use kiln_train::renderer::{CliMetricsRenderer, MetricState, MetricsRenderer, TrainingProgress};
use kiln_train::{
    EarlyStoppingStrategy, LearnerBuilder, LearnerSummary, LearningStrategy, MetricEarlyStoppingStrategy,
    StoppingCondition, TrainError, TrainStep, TrainingInterrupter,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Remembers what it was told.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    train: Vec<(TrainingProgress, Vec<MetricState>)>,
    valid: Vec<(TrainingProgress, Vec<MetricState>)>,
    states: Vec<MetricState>,
    summary: Option<LearnerSummary>,
    /// Interrupts the training after a step.
    interrupt: Option<(usize, TrainingInterrupter)>,
}

impl MetricsRenderer for Notes {
    fn update_train(&mut self, state: MetricState) {
        self.0.lock().expect("notes").states.push(state);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.0.lock().expect("notes").states.push(state);
    }

    fn render_train(&mut self, item: TrainingProgress) {
        let mut seen = self.0.lock().expect("notes");
        let states = std::mem::take(&mut seen.states);
        seen.train.push((item, states));
        if let Some((step, interrupter)) = &seen.interrupt
            && seen.train.len() >= *step
        {
            interrupter.stop();
        }
    }

    fn render_valid(&mut self, item: TrainingProgress) {
        let mut seen = self.0.lock().expect("notes");
        let states = std::mem::take(&mut seen.states);
        seen.valid.push((item, states));
    }

    fn on_train_end(&mut self, summary: Option<LearnerSummary>) -> Result<(), Box<dyn std::error::Error>> {
        self.0.lock().expect("notes").summary = summary;
        Ok(())
    }
}

fn model(seed: u64) -> Model<Trained> {
    let device = Default::default();
    Trained::seed(&device, seed);
    ModelConfig::new().init(&device)
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).expect("a log").lines().count()
}

#[test]
fn a_model_learns_and_leaves_the_artifacts_of_the_book() {
    let folder = tempfile::tempdir().expect("a folder");
    let notes = Notes::default();
    let (train, valid) = loaders(2);
    let device = Default::default();
    let learner = LearnerBuilder::new(folder.path())
        .metric_train_numeric(AccuracyMetric::new())
        .metric_valid_numeric(AccuracyMetric::new())
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .metric_train_numeric(LearningRateMetric::new())
        .metric_train(IterationSpeedMetric::new())
        .metric_valid_numeric(TopKAccuracyMetric::new(2))
        .with_file_checkpointer(CompactRecorder::new())
        .devices(vec![device])
        .num_epochs(12)
        .renderer(notes.clone())
        .summary()
        .build(model(1), AdamConfig::new().init(), 2e-2);
    let result = learner.fit(train, valid);
    // Both ways in which books and programs save what was trained.
    result.save_file(folder.path().join("model"), &CompactRecorder::new()).expect("saved");
    result.model.clone().save_file(folder.path().join("inner"), &CompactRecorder::new()).expect("saved");
    let loaded = ModelConfig::new().init::<Inner>(&device).load_file(
        folder.path().join("model"),
        &CompactRecorder::new(),
        &device,
    );
    let batch = loaders(0).1.iter().next().expect("a batch");
    let (a, b) = (loaded.expect("loaded").forward(batch.points.clone()), result.model.forward(batch.points));
    a.into_data().assert_approx_eq::<f32>(&b.into_data(), Tolerance::absolute(0.05));

    let seen = notes.0.lock().expect("notes");
    assert_eq!((seen.train.len(), seen.valid.len()), (12 * 7, 12 * 3));
    let (progress, states) = &seen.train[8];
    assert_eq!((progress.epoch, progress.epoch_total, progress.iteration), (2, 12, 2));
    assert_eq!((progress.progress.items_processed, progress.progress.items_total), (32, 110));
    assert_eq!(states.len(), 4);
    assert!(matches!(&states[3], MetricState::Generic(entry) if entry.name.as_str() == "Iteration Speed"));
    let summary = seen.summary.as_ref().expect("a summary");
    assert_eq!((summary.epochs, summary.metrics.len()), (12, 6));
    let accuracy = summary.metrics.iter().find(|m| m.name == "Accuracy" && m.split == Split::Valid);
    let (_, best) = accuracy.and_then(|metric| metric.max()).expect("an accuracy");
    assert!(best > 90.0, "{summary}");

    for epoch in [1, 12] {
        let of =
            |part: &str, name: &str| lines(&folder.path().join(format!("{part}/epoch-{epoch}/{name}.log")));
        assert_eq!([of("train", "Accuracy"), of("train", "Loss"), of("train", "Learning_Rate")], [7, 7, 7]);
        assert_eq!([of("valid", "Loss"), of("valid", "Top-K_Accuracy_@_TopK(2)")], [3, 3]);
    }
    let found = files(folder.path());
    for name in ["model", "optim", "scheduler"] {
        // The last two at least, and the best one of validation.
        let kept = found.keys().filter(|path| path.starts_with(&format!("checkpoint/{name}-"))).count();
        assert!((2..=3).contains(&kept), "{kept} of {name}");
        assert!(found.contains_key(&format!("checkpoint/{name}-12.mpk")), "{:?}", found.keys());
        assert!(found.contains_key(&format!("checkpoint/{name}-11.mpk")));
    }
    assert!(found.contains_key("curves/Loss.svg") && found.contains_key("experiment.log"));
    assert!(!found.keys().any(|path| path.contains("part")));
}

/// A drawing is no reason to lose a model that is trained.
#[test]
fn a_model_is_there_when_its_curves_cannot_be_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("curves"), "no folder").expect("a file");
    let (train, valid) = loaders(2);
    let learner = LearnerBuilder::new(folder.path())
        .metric_train_numeric(LossMetric::new())
        .renderer(Notes::default())
        .build(model(1), AdamConfig::new().init(), 2e-2);
    let start = parameters(&model(1));
    let trained = learner.try_fit(train, valid).expect("a model");
    assert_ne!(parameters(&trained.model), start);
}

#[test]
fn metrics_are_registered_for_both_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    let (train, valid) = loaders(0);
    let result = LearnerBuilder::new(folder.path())
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .renderer(CliMetricsRenderer::to(std::io::sink()))
        .build(model(1), AdamConfig::new().init(), 1e-2)
        .fit(train, valid);
    assert!(result.num_params() > 0);
    for part in ["train", "valid"] {
        for name in ["Accuracy", "Loss"] {
            assert!(lines(&folder.path().join(format!("{part}/epoch-1/{name}.log"))) > 0);
        }
    }
}

/// The learner does what a loop by hand does.
#[test]
fn it_is_the_loop_by_hand() {
    for accumulation in [1, 3] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = ModelConfig::new().with_dropout(0.0);
        let device = Default::default();
        Trained::seed(&device, 4);
        let start = config.init::<Trained>(&device);
        let (train, valid) = loaders(0);
        let mut by_hand = copied(&start);
        let mut optim = AdamConfig::new().init::<Trained, Model<Trained>>();
        for _ in 0..2 {
            let mut sum = GradientsAccumulator::new();
            let batches: Vec<_> = train.iter().collect();
            for steps in batches.chunks(accumulation) {
                for batch in steps {
                    sum.accumulate(&by_hand, TrainStep::step(&by_hand, batch.clone()).grads);
                }
                // What is left of the last steps is dropped.
                let gradients = sum.grads();
                if steps.len() == accumulation {
                    by_hand = optim.step(1e-2, by_hand, gradients);
                }
            }
        }
        let result = LearnerBuilder::new(folder.path())
            .num_epochs(2)
            .grads_accumulation(accumulation)
            .metric_loggers(InMemoryMetricLogger::new(), InMemoryMetricLogger::new())
            .renderer(Notes::default())
            .build(start, AdamConfig::new().init(), 1e-2)
            .fit(train, valid);
        assert_eq!(parameters(&*result), parameters(&by_hand), "{accumulation}");
    }
}

/// The same model with running statistics of its own, which clones share.
fn copied(model: &Model<Trained>) -> Model<Trained> {
    ModelConfig::new().with_dropout(0.0).init(&Default::default()).load_record(model.clone().into_record())
}

fn parameters<B: Backend>(module: &impl Module<B>) -> Vec<f32> {
    struct Collect(Vec<f32>);
    impl<B: Backend> ModuleVisitor<B> for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0.extend(param.val().into_data().iter::<f32>());
        }
    }
    let mut collect = Collect(Vec::new());
    module.visit(&mut collect);
    collect.0
}

#[test]
fn several_devices_share_the_items() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = ModelConfig::new().with_dropout(0.0);
    let device = Default::default();
    let start = config.init::<Trained>(&device);
    let (train, valid) = loaders(0);
    let (first, second) = (train.slice(0, 55), train.slice(55, 110));
    let mut by_hand = copied(&start);
    let mut optim = SgdConfig::new().init::<Trained, Model<Trained>>();
    for (a, b) in first.iter().zip(second.iter()) {
        let mut sum = GradientsAccumulator::new();
        sum.accumulate(&by_hand, TrainStep::step(&by_hand, a).grads);
        sum.accumulate(&by_hand, TrainStep::step(&by_hand, b).grads);
        by_hand = optim.step(0.05, by_hand, sum.grads());
    }
    let notes = Notes::default();
    let result = LearnerBuilder::new(folder.path())
        .metric_train_numeric(LossMetric::new())
        .learning_strategy(LearningStrategy::MultiDeviceNaive(vec![device, device]))
        .renderer(notes.clone())
        .build(start, SgdConfig::new().init(), 0.05)
        .fit(train, valid);
    assert_eq!(parameters(&*result), parameters(&by_hand));
    let seen = notes.0.lock().expect("notes");
    assert_eq!(seen.train.len(), 8, "each device's batch is measured");
    let last = seen.train.last().expect("a step").0;
    assert_eq!((last.iteration, last.progress.items_processed), (4, 110));
}

/// Each device has a model and an optimizer of its own: by hand, half as large a step along the sum is the same one.
#[test]
fn several_devices_take_the_same_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = Default::default();
    let start = ModelConfig::new().with_dropout(0.0).init::<Trained>(&device);
    let (train, valid) = loaders(0);
    let (first, second) = (train.slice(0, 55), train.slice(55, 110));
    let mut by_hand = copied(&start);
    let config = SgdConfig::new().with_momentum(Some(MomentumConfig::new()));
    let mut optim = config.init::<Trained, Model<Trained>>();
    for _ in 0..2 {
        for (a, b) in first.iter().zip(second.iter()) {
            let mut sum = GradientsAccumulator::new();
            // The other device's running statistics are its own.
            let other = copied(&by_hand);
            sum.accumulate(&by_hand, TrainStep::step(&by_hand, a).grads);
            sum.accumulate(&by_hand, TrainStep::step(&other, b).grads);
            by_hand = optim.step(0.025, by_hand, sum.grads());
        }
    }
    let result = LearnerBuilder::new(folder.path())
        .num_epochs(2)
        .learning_strategy(LearningStrategy::DistributedDataParallel { devices: vec![device, device] })
        .renderer(Notes::default())
        .build(start, config.init(), 0.05)
        .fit(train, valid);
    assert_eq!(parameters(&*result), parameters(&by_hand));
}

#[test]
fn it_stops_when_a_metric_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let (train, valid) = loaders(0);
    let notes = Notes::default();
    // Nothing is learnt: no epoch is better than the first.
    LearnerBuilder::new(folder.path())
        .metric_valid_numeric(LossMetric::new())
        .early_stopping(MetricEarlyStoppingStrategy::new(
            &LossMetric::<Inner>::new(),
            Aggregate::Mean,
            Direction::Lowest,
            Split::Valid,
            StoppingCondition::NoImprovementSince { n_epochs: 3 },
        ))
        .num_epochs(50)
        .renderer(notes.clone())
        .build(ModelConfig::new().init(&Default::default()).no_grad(), SgdConfig::new().init(), 0.0)
        .fit(train, valid);
    let epochs = notes.0.lock().expect("notes").valid.last().map(|(progress, _)| progress.epoch);
    assert!(epochs.is_some_and(|epochs| (4..50).contains(&epochs)), "{epochs:?}");
}

#[test]
fn it_stops_when_it_is_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (train, valid) = loaders(0);
    let notes = Notes::default();
    let builder = LearnerBuilder::new(folder.path())
        .metric_train_numeric(LossMetric::new())
        .num_epochs(1000)
        .renderer(notes.clone());
    notes.0.lock().expect("notes").interrupt = Some((9, builder.interrupter()));
    let start = model(2);
    let before = parameters(&start);
    let result = builder.build(start, AdamConfig::new().init(), 1e-2).fit(train, valid);
    assert_ne!(parameters(&*result), before);
    // The training may be ahead of the thread that measures, by what waits to be measured.
    let steps = notes.0.lock().expect("notes").train.len();
    assert!((9..=60).contains(&steps), "{steps}");
}

#[test]
fn a_recorder_of_ones_choice_and_a_number_of_checkpoints() {
    let folder = tempfile::tempdir().expect("a folder");
    let (train, valid) = loaders(0);
    let schedule = CosineAnnealingLrSchedulerConfig::new(0.05, 40).init().expect("a schedule");
    LearnerBuilder::new(folder.path())
        .with_file_checkpointer(NamedMpkGzFileRecorder::<FullPrecisionSettings>::new())
        .with_checkpointing_strategy(KeepLastNCheckpoints::new(1))
        .with_application_logger(None)
        .num_epochs(3)
        .renderer(CliMetricsRenderer::to(std::io::sink()))
        .build(model(3), AdamConfig::new().init(), schedule)
        .fit(train, valid);
    let found = files(&folder.path().join("checkpoint"));
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    let expected = [
        "model-3.mpk.gz",
        "optim-3.mpk.gz",
        "resume-3/model.bin",
        "resume-3/optim.bin",
        "resume-3/place.json",
        "resume-3/scheduler.bin",
        "scheduler-3.mpk.gz",
    ];
    assert_eq!(names, expected);
}

#[test]
fn what_cannot_be_gone_on_with_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (train, valid) = loaders(0);
    let builder =
        || LearnerBuilder::new(folder.path()).renderer(CliMetricsRenderer::to(std::io::sink())).checkpoint(4);
    let learner = builder().build(model(3), AdamConfig::new().init(), 1e-3);
    let error = learner.try_fit(train.clone(), valid.clone()).expect_err("no checkpoint");
    assert!(matches!(&error, TrainError::NoCheckpoint { epoch: 4, .. }), "{error}");
    let learner = builder().with_file_checkpointer(DefaultRecorder::new());
    let learner = learner.build(model(3), AdamConfig::new().init(), 1e-3);
    let error = learner.try_fit(train, valid).expect_err("no checkpoint");
    assert!(error.to_string().contains("model-4"), "{error}");
}

/// A checkpoint that only the recorder kept will do: a training goes on, if not with the same numbers.
#[test]
fn it_goes_on_from_what_a_recorder_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = || {
        LearnerBuilder::new(folder.path())
            .metric_train_numeric(LossMetric::new())
            .with_file_checkpointer(CompactRecorder::new())
            .renderer(CliMetricsRenderer::to(std::io::sink()))
    };
    let fit = |builder: LearnerBuilder<_, _, _, _, _, _, _, _>| {
        let (train, valid) = loaders(0);
        builder.build(model(3), AdamConfig::new().init(), 1e-2).try_fit(train, valid)
    };
    fit(builder().num_epochs(3)).expect("trained");
    let state = folder.path().join("checkpoint/resume-2");
    std::fs::remove_dir_all(&state).expect("a state in full precision");
    fit(builder().num_epochs(4).checkpoint(2)).expect("trained from the recorder's files");
    assert!(lines(&folder.path().join("train/epoch-4/Loss.log")) == 7);
    assert!(folder.path().join("checkpoint/resume-4").exists());
    // Where it cannot go on, nothing is removed.
    fit(builder().num_epochs(5).checkpoint(1)).expect_err("no checkpoint");
    // A state from the future, and one that was damaged, are told by name.
    let place = folder.path().join("checkpoint/resume-4/place.json");
    let text = std::fs::read_to_string(&place).expect("a place");
    for (damaged, expected) in [
        (text.replace("\"version\": 1", "\"version\": 7"), "version 7"),
        (text.replace("steps", "stops"), "steps"),
        (String::new(), "EOF"),
    ] {
        std::fs::write(&place, damaged).expect("written");
        let error = fit(builder().num_epochs(5).resume()).expect_err("a broken state").to_string();
        assert!(error.contains("place.json") && error.contains(expected), "{error}");
    }
    std::fs::write(&place, text).expect("written");
    std::fs::write(folder.path().join("checkpoint/resume-4/optim.bin"), b"nothing").expect("written");
    let error = fit(builder().num_epochs(5).resume()).expect_err("a broken state").to_string();
    assert!(error.contains("optim"), "{error}");
    // Who begins anew does not mind.
    fit(builder()).expect("trained");
    assert!(!folder.path().join("checkpoint/resume-4").exists());
}

/// The epochs whose model a run leaves; the loggers know nothing of a run before, unless they are files.
fn models_after<CS: CheckpointingStrategy + 'static>(
    folder: &Path,
    epochs: usize,
    files: bool,
    strategy: CS,
) -> Vec<usize> {
    models_with(folder, epochs, files, true, strategy)
}

/// [`models_after`] of a run that may have no metric.
fn models_with<CS: CheckpointingStrategy + 'static>(
    folder: &Path,
    epochs: usize,
    files: bool,
    loss: bool,
    strategy: CS,
) -> Vec<usize> {
    let (train, valid) = loaders(0);
    let builder = LearnerBuilder::new(folder)
        .with_file_checkpointer(CompactRecorder::new())
        .with_checkpointing_strategy(strategy)
        .with_application_logger(None)
        .renderer(CliMetricsRenderer::to(std::io::sink()))
        .num_epochs(epochs)
        .resume();
    let builder = match files {
        true => builder,
        false => builder.metric_loggers(InMemoryMetricLogger::new(), InMemoryMetricLogger::new()),
    };
    let builder = if loss { builder.metrics((LossMetric::new(),)) } else { builder };
    builder.build(model(2), AdamConfig::new().init(), 2e-2).fit(train, valid);
    let has_model = |epoch: &usize| {
        let has = |name: &str| folder.join("checkpoint").join(name).exists();
        let model = has(&format!("model-{epoch}.mpk"));
        assert!(!model || has(&format!("resume-{epoch}")), "the state of epoch {epoch}");
        model
    };
    (1..=epochs).filter(has_model).collect()
}

/// The best epoch is the first, by a loss that falls.
fn highest_loss() -> MetricCheckpointingStrategy {
    let loss = LossMetric::<Trained>::new();
    MetricCheckpointingStrategy::new(&loss, Aggregate::Mean, Direction::Highest, Split::Valid)
}

#[test]
fn what_is_not_known_any_more_is_not_removed() {
    let composed = || ComposedCheckpointingStrategy::builder().add(KeepLastNCheckpoints::new(2));
    let both = || composed().add(highest_loss()).build();
    for (files, first, second, third) in [
        (true, vec![1, 2], vec![1, 3, 4], vec![1, 4, 5]),
        (false, vec![1, 2], vec![1, 2, 3, 4], (1..=5).collect()),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(models_after(folder.path(), 2, files, both()), first, "files: {files}");
        assert_eq!(models_after(folder.path(), 4, files, both()), second, "files: {files}");
        assert_eq!(models_after(folder.path(), 5, files, both()), third, "files: {files}");
    }
    // Nothing but the best, which is not known when the training goes on.
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(models_after(folder.path(), 3, true, highest_loss()), [1]);
    std::fs::remove_dir_all(folder.path().join("valid")).expect("removed");
    assert!(models_after(folder.path(), 4, true, highest_loss()).contains(&1));
    // Who does not ask misses nothing.
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(models_after(folder.path(), 3, false, composed().build()), [2, 3]);
    assert_eq!(models_after(folder.path(), 5, false, composed().build()), [4, 5]);
}

/// A run may have other metrics than the one before it, and no values of what checkpoints are chosen by.
#[test]
fn what_another_run_measured_is_not_removed() {
    let both = || {
        let last = ComposedCheckpointingStrategy::builder().add(KeepLastNCheckpoints::new(2));
        last.add(highest_loss()).build()
    };
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(models_with(folder.path(), 3, true, true, both()), [1, 2, 3]);
    assert_eq!(models_with(folder.path(), 5, true, false, both()), [1, 2, 3, 4, 5]);
    // Nor was it by any run.
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(models_with(folder.path(), 3, true, false, both()), [2, 3]);
    assert_eq!(models_with(folder.path(), 5, true, false, both()), [4, 5]);
}

/// A metric waits, in the first step, until the fourth batch was made: the training has to go on without it.
#[test]
fn steps_do_not_wait_for_metrics() {
    #[derive(Clone)]
    struct Counting(Arc<AtomicUsize>);
    impl<B: Backend> Batcher<B, Point, Batch<B>> for Counting {
        fn batch(&self, items: Vec<Point>, device: &B::Device) -> Batch<B> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Batcher2d.batch(items, device)
        }
    }
    struct Patient {
        made: Arc<AtomicUsize>,
        late: Arc<AtomicBool>,
    }
    impl Metric for Patient {
        type Input = ();
        fn name(&self) -> impl Into<MetricName> {
            "Patient".to_owned()
        }
        fn update(&mut self, (): &(), _metadata: &MetricMetadata) -> impl Into<MetricEntry> {
            let until = Instant::now() + Duration::from_secs(20);
            while self.made.load(Ordering::Relaxed) < 4 {
                if Instant::now() > until {
                    self.late.store(true, Ordering::Relaxed);
                    break;
                }
                std::thread::yield_now();
            }
            MetricEntry::new("Patient".to_owned(), String::new(), String::new())
        }
        fn clear(&mut self) {}
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (made, late) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let train = DataLoaderBuilder::new(Counting(made.clone())).batch_size(16).build(points(110, 0));
    LearnerBuilder::new(folder.path())
        .metric_train(Patient { made, late: late.clone() })
        .renderer(CliMetricsRenderer::to(std::io::sink()))
        .build(model(3), AdamConfig::new().init(), 1e-3)
        .fit(train, loaders(0).1);
    assert!(!late.load(Ordering::Relaxed), "a step waited for its metrics");
}

#[test]
fn two_metrics_of_one_name_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let build = || {
        LearnerBuilder::new(folder.path())
            .metric_train_numeric(LossMetric::new())
            .metric_train(LossMetric::new())
            .build(model(3), AdamConfig::new().init(), 1e-3)
            .fit(loaders(0).0, loaders(0).1);
    };
    let message = catch_unwind(AssertUnwindSafe(build)).expect_err("refused");
    let message = message.downcast_ref::<String>().expect("a message");
    assert!(message.contains("Loss"), "{message}");
}

#[test]
fn two_metrics_of_one_file_are_refused() {
    struct Named(&'static str);
    impl Metric for Named {
        type Input = ();
        fn name(&self) -> impl Into<MetricName> {
            self.0.to_owned()
        }
        fn update(&mut self, _item: &(), _metadata: &MetricMetadata) -> impl Into<MetricEntry> {
            MetricEntry::new(self.0.to_owned(), String::new(), String::new())
        }
        fn clear(&mut self) {}
    }
    let folder = tempfile::tempdir().expect("a folder");
    let build = || {
        LearnerBuilder::new(folder.path())
            .metric_train(Named("a b"))
            .metric_train(Named("a/b"))
            .build(model(3), AdamConfig::new().init(), 1e-3)
            .fit(loaders(0).0, loaders(0).1);
    };
    let message = catch_unwind(AssertUnwindSafe(build)).expect_err("refused");
    let message = message.downcast_ref::<String>().expect("a message");
    assert!(message.contains("have one name of a file"), "{message}");
}

/// A strategy that panics on the training's thread, and a renderer that does on its own.
#[test]
fn panics_are_passed_on() {
    struct Angry;
    impl EarlyStoppingStrategy for Angry {
        fn should_stop(&mut self, _epoch: usize, _store: &EventStoreClient) -> bool {
            panic!("angry strategy")
        }
    }
    struct Broken;
    impl MetricsRenderer for Broken {
        fn update_train(&mut self, _state: MetricState) {
            panic!("broken renderer")
        }
        fn update_valid(&mut self, _state: MetricState) {}
        fn render_train(&mut self, _item: TrainingProgress) {}
        fn render_valid(&mut self, _item: TrainingProgress) {}
    }
    let folder = tempfile::tempdir().expect("a folder");
    let builder = || LearnerBuilder::new(folder.path()).metric_train_numeric(LossMetric::new());
    let run = |renderer: bool| {
        let (train, valid) = loaders(0);
        let builder = match renderer {
            true => builder().renderer(Broken),
            false => builder().renderer(CliMetricsRenderer::to(std::io::sink())).early_stopping(Angry),
        };
        catch_unwind(AssertUnwindSafe(|| {
            builder.build(model(3), AdamConfig::new().init(), 1e-3).fit(train, valid);
        }))
    };
    for (renderer, expected) in [(true, "broken renderer"), (false, "angry strategy")] {
        let message = run(renderer).expect_err("a panic");
        assert_eq!(message.downcast_ref::<&str>(), Some(&expected));
    }
}

/// Gradients of a module whose parts are named elsewhere: the types that programs name.
#[allow(dead_code)]
fn names(grads: GradientsParams, module: &Model<Trained>) -> (GradientsParams, Model<Inner>) {
    let _ = points(1, 0);
    (grads, module.valid())
}
