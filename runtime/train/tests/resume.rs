//! A run that was killed at any step and resumed leaves the same bytes as one that was not: weights, states, logs, curves.

mod common;

use common::{Batch, Batcher2d, Model, ModelConfig, Point, Trained, files, points};
use kiln_autodiff::Autodiff;
use kiln_core::module::Module;
use kiln_core::record::{CompactRecorder, DefaultRecorder};
use kiln_core::tensor::backend::{AutodiffBackend, Backend};
use kiln_core::tensor::{DType, Distribution};
use kiln_data::dataloader::DataLoaderBuilder;
use kiln_data::dataloader::batcher::Batcher;
use kiln_ndarray::NdArray;
use kiln_optim::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use kiln_optim::{AdamWConfig, LossScalerConfig};
use kiln_train::metric::store::{Aggregate, Direction, Split};
use kiln_train::metric::{AccuracyMetric, LearningRateMetric, LossMetric};
use kiln_train::renderer::CliMetricsRenderer;
use kiln_train::{
    LearnerBuilder, LearningStrategy, MetricEarlyStoppingStrategy, MixedPrecision, StoppingCondition,
    TrainingInterrupter,
};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const EPOCHS: usize = 4;
/// 7 of training, 3 of validation.
const BATCHES_AN_EPOCH: usize = 10;

/// Trainings of one process share the device's random numbers: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ends a run before its end.
#[derive(Clone)]
enum Trouble {
    None,
    /// A panic, with a batch.
    Panic(usize),
    /// The process ends as if it were killed, with a batch.
    Abort(usize),
    /// An interruption, with a batch.
    Interrupt(usize, TrainingInterrupter),
    /// Every batch takes this long, so that somebody else can kill the process.
    Slow(Duration),
}

/// [`Batcher2d`], with trouble.
#[derive(Clone)]
struct Troubled {
    trouble: Trouble,
    batches: Arc<AtomicUsize>,
}

impl<B: Backend> Batcher<B, Point, Batch<B>> for Troubled {
    fn batch(&self, items: Vec<Point>, device: &B::Device) -> Batch<B> {
        let batch = self.batches.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.trouble {
            Trouble::Panic(at) if batch == *at => panic!("the run was to be killed here"),
            Trouble::Abort(at) if batch == *at => std::process::abort(),
            Trouble::Interrupt(at, interrupter) if batch == *at => interrupter.stop(),
            Trouble::Slow(pause) => std::thread::sleep(*pause),
            Trouble::None | Trouble::Panic(_) | Trouble::Abort(_) | Trouble::Interrupt(..) => {}
        }
        // Random numbers of a batch follow from its place, whoever makes it.
        let batch: Batch<B> = Batcher2d.batch(items, device);
        let noise = batch.points.random_like(Distribution::Normal(0.0, 0.01));
        Batch { points: batch.points + noise, ..batch }
    }
}

/// How a run differs from others that are to leave the same.
struct Run {
    trouble: Trouble,
    workers: usize,
    /// Goes on after this epoch, instead of where the last run was stopped.
    after: Option<usize>,
    epochs: usize,
    devices: usize,
    /// Whether each device has a copy of the model.
    copies: bool,
    /// In 16 bits, with losses whose gradients overflow at first.
    mixed: bool,
    /// That of the parameters.
    dtype: DType,
    /// Whether low-rank pairs are trained, and all else is frozen.
    pairs: bool,
}

impl Run {
    fn new(trouble: Trouble) -> Self {
        let dtype = DType::F32;
        Self {
            trouble,
            workers: 0,
            after: None,
            epochs: EPOCHS,
            devices: 1,
            copies: false,
            mixed: false,
            dtype,
            pairs: false,
        }
    }
}

/// Trains, with all that has a state: dropout, running statistics, AdamW, a schedule, sums of gradients over two of seven
/// steps, shuffling, early stopping. Yields how many batches were made.
fn train<T: AutodiffBackend>(start: &Path, folder: &Path, run: Run) -> usize {
    let device = Default::default();
    T::seed(&device, 11);
    let model: Model<T> = ModelConfig::new().init(&device);
    let model = model.load_file(start, &DefaultRecorder::new(), &device).expect("the start");
    let model = if run.dtype == DType::F32 { model } else { model.with_float_dtype(run.dtype) };
    let model = if run.pairs { model.with_low_rank("*", 2, 4.0).expect("weights") } else { model };
    let loss = LossMetric::<T>::new();
    let condition = StoppingCondition::NoImprovementSince { n_epochs: 3 };
    let builder = LearnerBuilder::new(folder)
        .metric_train_numeric(AccuracyMetric::new())
        .metric_valid_numeric(AccuracyMetric::new())
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .metric_train_numeric(LearningRateMetric::new())
        .with_file_checkpointer(CompactRecorder::new())
        .checkpoint_every(3)
        .early_stopping(MetricEarlyStoppingStrategy::new(
            &loss,
            Aggregate::Mean,
            Direction::Lowest,
            Split::Valid,
            condition,
        ))
        .grads_accumulation(2)
        .num_epochs(run.epochs)
        .seed(23)
        .learning_strategy(match run.copies {
            true => LearningStrategy::DistributedDataParallel { devices: vec![device; run.devices] },
            false => LearningStrategy::MultiDeviceNaive(vec![device; run.devices]),
        })
        .with_application_logger(None)
        .renderer(CliMetricsRenderer::to(std::io::sink()));
    let builder = match run.after {
        Some(epoch) => builder.checkpoint(epoch),
        None => builder.resume(),
    };
    let scaler = LossScalerConfig::new().with_init_scale(2.0_f64.powi(20)).with_growth_interval(4);
    let precision = MixedPrecision::new(DType::F16).with_scaler(Some(scaler));
    let builder = if run.mixed { builder.mixed_precision(precision) } else { builder };
    let trouble = match run.trouble {
        Trouble::Interrupt(at, _) => Trouble::Interrupt(at, builder.interrupter()),
        trouble => trouble,
    };
    let batches = Arc::new(AtomicUsize::new(0));
    let batcher = Troubled { trouble, batches: batches.clone() };
    let loader = DataLoaderBuilder::new(batcher.clone()).batch_size(16).shuffle(5).num_workers(run.workers);
    let valid = DataLoaderBuilder::new(batcher).batch_size(20).num_workers(run.workers);
    let (loader, valid) = (loader.build(points(110, 0)), valid.build(points(50, 1000)));
    let optimizer = AdamWConfig::new().with_weight_decay(0.05).init();
    let schedule = CosineAnnealingLrSchedulerConfig::new(0.05, 30).init().expect("a schedule");
    let result = builder.build(model, optimizer, schedule).fit(loader, valid);
    result.save_file(folder.join("trained"), &DefaultRecorder::new()).expect("saved");
    batches.load(Ordering::Relaxed)
}

/// Where models start: parameters have ids, which are new ones in each run otherwise.
fn start(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("start");
    let model: Model<Trained> = ModelConfig::new().init(&Default::default());
    model.save_file(path.clone(), &DefaultRecorder::new()).expect("saved");
    path
}

fn assert_same(found: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>, what: &str) {
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{what}: files");
    let different: Vec<_> = expected.keys().filter(|name| found[*name] != expected[*name]).collect();
    assert!(different.is_empty(), "{what}: {different:?} differ");
}

/// What a run leaves that nothing happened to.
fn undisturbed(folder: &Path) -> (std::path::PathBuf, BTreeMap<String, Vec<u8>>) {
    let start = start(folder);
    let whole = folder.join("whole");
    train::<Trained>(&start, &whole, Run::new(Trouble::None));
    let expected = files(&whole);
    for name in ["trained.mpk", "checkpoint/resume-4/model.bin", "train/epoch-4/Loss.log", "curves/Loss.svg"]
    {
        assert!(expected.contains_key(name), "{name}");
    }
    assert!(!expected.keys().any(|name| name.starts_with("checkpoint/resume-3-")), "{:?}", expected.keys());
    (start, expected)
}

#[test]
fn killed_with_any_batch() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (start, expected) = undisturbed(folder.path());
    for batch in 1..=EPOCHS * BATCHES_AN_EPOCH {
        let folder = folder.path().join(format!("killed-{batch}"));
        let killed = catch_unwind(AssertUnwindSafe(|| {
            train::<Trained>(&start, &folder, Run::new(Trouble::Panic(batch)))
        }));
        killed.expect_err("a panic");
        // Once more, soon after it went on.
        let again =
            catch_unwind(AssertUnwindSafe(|| train::<Trained>(&start, &folder, Run::new(Trouble::Panic(2)))));
        if batch < EPOCHS * BATCHES_AN_EPOCH - 3 {
            again.expect_err("a panic");
        }
        train::<Trained>(&start, &folder, Run::new(Trouble::None));
        assert_same(&files(&folder), &expected, &format!("killed with batch {batch}"));
    }
}

/// Of what is only partly there a run removes states, and nothing that is another's.
#[test]
fn parts_of_states_are_removed() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (start, _) = undisturbed(folder.path());
    let folder = folder.path().join("parts");
    let checkpoints = folder.join("checkpoint");
    let [state, notes] = ["resume-9.part", "notes.part"].map(|name| checkpoints.join(name));
    std::fs::create_dir_all(&state).expect("a folder");
    std::fs::write(&notes, "mine").expect("a file");
    train::<Trained>(&start, &folder, Run::new(Trouble::None));
    assert!(!state.exists() && notes.exists());
}

#[test]
fn interrupted_with_any_batch_and_with_workers() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (start, expected) = undisturbed(folder.path());
    for batch in (1..EPOCHS * BATCHES_AN_EPOCH).step_by(3) {
        let folder = folder.path().join(format!("interrupted-{batch}"));
        let run = Run::new(Trouble::Interrupt(batch, TrainingInterrupter::new()));
        train::<Trained>(&start, &folder, Run { workers: batch % 3, ..run });
        assert_ne!(files(&folder)["trained.mpk"], expected["trained.mpk"], "it was interrupted");
        train::<Trained>(&start, &folder, Run { workers: 2, ..Run::new(Trouble::None) });
        assert_same(&files(&folder), &expected, &format!("interrupted with batch {batch}"));
    }
}

/// The steps of an epoch are not taken again when its validation was interrupted.
#[test]
fn interrupted_in_validation() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (start, expected) = undisturbed(folder.path());
    for batch in [18, 19] {
        let folder = folder.path().join(format!("interrupted-{batch}"));
        train::<Trained>(&start, &folder, Run::new(Trouble::Interrupt(batch, TrainingInterrupter::new())));
        assert!(files(&folder).keys().any(|name| name.starts_with("checkpoint/resume-1-7/")), "{batch}");
        let made = train::<Trained>(&start, &folder, Run::new(Trouble::None));
        assert_eq!(made, 3 + 2 * BATCHES_AN_EPOCH, "validation of the second epoch, and two more epochs");
        assert_same(&files(&folder), &expected, &format!("interrupted with batch {batch}"));
    }
}

#[test]
fn after_any_epoch() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (start, expected) = undisturbed(folder.path());
    for epochs in 1..EPOCHS {
        let folder = folder.path().join(format!("ended-{epochs}"));
        train::<Trained>(&start, &folder, Run { epochs, ..Run::new(Trouble::None) });
        assert_ne!(files(&folder)["trained.mpk"], expected["trained.mpk"]);
        train::<Trained>(&start, &folder, Run { after: Some(epochs), ..Run::new(Trouble::None) });
        assert_same(&files(&folder), &expected, &format!("after epoch {epochs}"));
    }
    // What went further is done again from an epoch that was kept.
    let whole = folder.path().join("whole");
    train::<Trained>(&start, &whole, Run { after: Some(EPOCHS - 1), ..Run::new(Trouble::None) });
    assert_same(&files(&whole), &expected, "the last epoch again");
    // A training that is over stays so.
    train::<Trained>(&start, &whole, Run::new(Trouble::None));
    assert_same(&files(&whole), &expected, "after the end");
}

#[test]
fn with_several_devices() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let start = start(folder.path());
    for (copies, mixed) in [(false, false), (true, false), (true, true)] {
        let run = |folder: &Path, trouble: Trouble| {
            train::<Trained>(&start, folder, Run { devices: 3, copies, mixed, ..Run::new(trouble) });
        };
        let folder = folder.path().join(format!("{copies}-{mixed}"));
        let whole = folder.join("whole");
        run(&whole, Trouble::None);
        for batch in [7, 16, 29, 40] {
            let folder = folder.join(format!("killed-{batch}"));
            catch_unwind(AssertUnwindSafe(|| run(&folder, Trouble::Panic(batch)))).expect_err("a panic");
            run(&folder, Trouble::None);
            assert_same(
                &files(&folder),
                &files(&whole),
                &format!("killed with batch {batch}, {copies}, {mixed}"),
            );
        }
    }
}

/// Trainings of one process do not draw each other's numbers.
#[test]
fn side_by_side() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (start, expected) = undisturbed(folder.path());
    let folders = ["left", "right"].map(|name| folder.path().join(name));
    std::thread::scope(|scope| {
        for folder in &folders {
            scope.spawn(|| train::<Trained>(&start, folder, Run::new(Trouble::None)));
        }
    });
    for folder in &folders {
        assert_same(&files(folder), &expected, "side by side");
    }
}

/// Pairs, whose ids are new ones in each run, are in a state apart from the weights beside which they are.
#[test]
fn low_rank_pairs_go_on() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let start = start(folder.path());
    let run = |folder: &Path, trouble: Trouble| {
        train::<Trained>(&start, folder, Run { pairs: true, ..Run::new(trouble) });
        let mut files = files(folder);
        let with_ids = |name: &str| {
            name.starts_with("checkpoint/") && ["pairs", "optim"].iter().any(|file| name.contains(file))
        };
        files.iter_mut().filter(|(name, _)| with_ids(name)).for_each(|(_, bytes)| bytes.clear());
        files
    };
    let expected = run(&folder.path().join("whole"), Trouble::None);
    assert!(expected.contains_key("checkpoint/resume-4/pairs.bin"), "{:?}", expected.keys());
    for batch in [5, 12, 26] {
        let folder = folder.path().join(format!("killed-{batch}"));
        catch_unwind(AssertUnwindSafe(|| run(&folder, Trouble::Panic(batch)))).expect_err("a panic");
        assert_same(&run(&folder, Trouble::None), &expected, &format!("killed with batch {batch}"));
    }
}

/// States hold all digits that a backend computes with, whatever the recorder keeps.
#[test]
fn in_double_precision() {
    type Double = Autodiff<NdArray<f64>>;
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let start = start(folder.path());
    let whole = folder.path().join("whole");
    train::<Double>(&start, &whole, Run::new(Trouble::None));
    for batch in [5, 18, 27] {
        let folder = folder.path().join(format!("killed-{batch}"));
        let run = || train::<Double>(&start, &folder, Run::new(Trouble::Panic(batch)));
        catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
        train::<Double>(&start, &folder, Run::new(Trouble::None));
        assert_same(&files(&folder), &files(&whole), &format!("killed with batch {batch}"));
    }
}

/// A model may have another dtype than the backend: its states have that, too, wider or narrower.
#[test]
fn with_parameters_of_another_dtype() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let start = start(folder.path());
    for dtype in [DType::F64, DType::BF16] {
        let run = |folder: &Path, trouble: Trouble| {
            train::<Trained>(&start, folder, Run { dtype, ..Run::new(trouble) });
        };
        let whole = folder.path().join(format!("whole-{dtype}"));
        run(&whole, Trouble::None);
        for batch in [5, 18, 27] {
            let folder = folder.path().join(format!("killed-{batch}-{dtype}"));
            catch_unwind(AssertUnwindSafe(|| run(&folder, Trouble::Panic(batch)))).expect_err("a panic");
            run(&folder, Trouble::None);
            assert_same(&files(&folder), &files(&whole), &format!("{dtype}, killed with batch {batch}"));
        }
        // What the user's recorder kept, of fewer digits, is enough to go on from, too.
        std::fs::remove_dir_all(whole.join("checkpoint/resume-3")).expect("removed");
        train::<Trained>(&start, &whole, Run { after: Some(3), dtype, ..Run::new(Trouble::None) });
    }
}

/// The scaler of losses goes on where it was.
#[test]
fn in_mixed_precision() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let start = start(folder.path());
    let run = |folder: &Path, trouble: Trouble| {
        train::<Trained>(&start, folder, Run { mixed: true, ..Run::new(trouble) });
    };
    let whole = folder.path().join("whole");
    run(&whole, Trouble::None);
    let expected = files(&whole);
    for name in ["checkpoint/resume-4/scaler.bin", "checkpoint/scaler-4.mpk"] {
        assert!(expected.contains_key(name), "{name}");
    }
    for batch in [2, 7, 16, 29, 40] {
        let folder = folder.path().join(format!("killed-{batch}"));
        catch_unwind(AssertUnwindSafe(|| run(&folder, Trouble::Panic(batch)))).expect_err("a panic");
        run(&folder, Trouble::None);
        assert_same(&files(&folder), &expected, &format!("killed with batch {batch}"));
    }
    let plain = folder.path().join("plain");
    train::<Trained>(&start, &plain, Run::new(Trouble::None));
    let last = |folder: &Path| {
        let log = std::fs::read_to_string(folder.join("valid/epoch-4/Loss.log")).expect("a log");
        log.lines()
            .map(|line| line.split(',').next().and_then(|x| x.parse::<f64>().ok()).expect("x"))
            .sum::<f64>()
    };
    let (mixed, plain) = (last(&whole), last(&plain));
    assert!(mixed < plain * 1.5, "{mixed} in mixed precision, {plain} without");
}

/// Which folder the process that [`killed_processes`] starts trains in.
const FOLDER: &str = "KILN_TRAIN_TEST_FOLDER";
/// With which batch it ends.
const ABORT: &str = "KILN_TRAIN_TEST_ABORT";

/// What another process runs; nothing in this one.
#[test]
fn as_a_process() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let trouble = match std::env::var(ABORT).ok().and_then(|batch| batch.parse().ok()) {
        Some(batch) => Trouble::Abort(batch),
        None => Trouble::Slow(Duration::from_millis(4)),
    };
    let folder = Path::new(&folder);
    train::<Trained>(&folder.with_file_name("start"), folder, Run::new(trouble));
}

#[test]
fn killed_processes() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (_, expected) = undisturbed(folder.path());
    let process = |folder: &Path| {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "as_a_process"]).env(FOLDER, folder);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    // It ends by itself with a batch, and once more; then it may go on to its end.
    for batch in [1, 6, 11, 19, 26, 40] {
        let folder = folder.path().join(format!("aborted-{batch}"));
        let status = process(&folder).env(ABORT, batch.to_string()).status().expect("a process");
        assert!(!status.success(), "it was to be killed with batch {batch}");
        // Once more, soon after it went on, unless it is over by then.
        process(&folder).env(ABORT, "3").status().expect("a process");
        assert!(process(&folder).status().expect("a process").success());
        assert_same(&files(&folder), &expected, &format!("aborted with batch {batch}"));
    }
    // It is killed wherever it happens to be, which may be in the middle of writing, until it is through.
    let folder = folder.path().join("killed");
    let mut kills = 0;
    for pause in (20..).step_by(7) {
        let mut child = process(&folder).spawn().expect("a process");
        std::thread::sleep(Duration::from_millis(pause));
        if let Some(status) = child.try_wait().expect("a status") {
            assert!(status.success());
            break;
        }
        child.kill().expect("killed");
        child.wait().expect("a status");
        kills += 1;
    }
    assert!(kills > 2, "{kills}");
    assert_same(&files(&folder), &expected, &format!("killed {kills} times"));
}
