//! Times training steps of one imported model: forward, loss, backward, AdamW.
//!
//! `kiln-training-bench MODEL FOLDER THREADS SECONDS`; `FOLDER` holds the batch (`inputs.bin`, `targets.bin`). Prints one JSON
//! object. `scripts/bench_training.py` runs it beside PyTorch.

use kiln::backend::{Autodiff, NdArray};
use kiln::module::AutodiffModule;
use kiln::nn::loss::CrossEntropyLossConfig;
use kiln::optim::{AdamWConfig, GradientsParams};
use kiln::tensor::{Int, Tensor, TensorData};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

type B = Autodiff<NdArray>;

/// The modules that the build script wrote.
mod models {
    #![allow(missing_docs)]
    macro_rules! generated {
        ($($name:ident)*) => {
            $(pub mod $name {
                include!(concat!(env!("OUT_DIR"), "/models/", stringify!($name), ".rs"));
            })*
        };
    }
    generated!(resnet18 bert gpt2 lstm_tagger gru_tagger mlp);
}

/// Steps whose losses are reported, and which are not timed.
const LOSSES: usize = 5;
/// Steps that are timed at least.
const LEAST_STEPS: usize = 5;

/// One model on its batch.
struct Run<'a> {
    folder: &'a Path,
    length: Duration,
}

/// What the steps cost.
struct Report {
    losses: Vec<f32>,
    /// Seconds, sorted.
    times: Vec<f64>,
    /// Seconds that this thread ran in a step, on average: with one thread, its time on a machine that does nothing else.
    thread_time: f64,
    /// Resident before the first step and at most, in MiB.
    memory: [f64; 2],
}

impl Run<'_> {
    /// Elements of a file in the folder.
    fn elements<const N: usize, T>(
        &self,
        file: &str,
        read: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Box<dyn Error>> {
        let bytes = std::fs::read(self.folder.join(file))?;
        Ok(bytes.as_chunks::<N>().0.iter().map(|&bytes| read(bytes)).collect())
    }

    fn images<const D: usize>(&self, dims: [usize; D]) -> Result<Tensor<B, D>, Box<dyn Error>> {
        let data = TensorData::new(self.elements("inputs.bin", f32::from_le_bytes)?, dims);
        Ok(Tensor::from_data(data, &Default::default()))
    }

    fn tokens(&self, dims: [usize; 2]) -> Result<Tensor<B, 2, Int>, Box<dyn Error>> {
        let data = TensorData::new(self.elements("inputs.bin", i64::from_le_bytes)?, dims);
        Ok(Tensor::from_data(data, &Default::default()))
    }

    /// Trains a model whose `forward` yields a row of logits for each target.
    fn train<M: AutodiffModule<B>>(
        &self,
        mut model: M,
        forward: impl Fn(&M) -> Tensor<B, 2>,
    ) -> Result<Report, Box<dyn Error>> {
        let targets = self.elements("targets.bin", i64::from_le_bytes)?;
        let count = targets.len();
        let targets = Tensor::<B, 1, Int>::from_data(TensorData::new(targets, [count]), &Default::default());
        let loss = CrossEntropyLossConfig::new().init::<B>(&Default::default());
        let mut optimizer = AdamWConfig::new().with_epsilon(1e-6).with_weight_decay(1e-2).init::<B, M>();
        let before = resident("VmRSS")?;
        let mut report =
            Report { losses: Vec::new(), times: Vec::new(), thread_time: 0.0, memory: [before; 2] };
        let (mut begun, mut ran) = (Instant::now(), running()?);
        for step in 0.. {
            if step == LOSSES {
                (begun, ran) = (Instant::now(), running()?);
            }
            if report.times.len() >= LEAST_STEPS && begun.elapsed() >= self.length {
                break;
            }
            let started = Instant::now();
            let loss = loss.forward(forward(&model), targets.clone());
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(1e-4, model, gradients);
            let time = started.elapsed().as_secs_f64();
            if step < LOSSES {
                report.losses.push(loss.into_scalar());
            } else {
                report.times.push(time);
            }
        }
        report.times.sort_by(f64::total_cmp);
        report.thread_time = (running()? - ran) / report.times.len() as f64;
        report.memory[1] = resident("VmHWM")?;
        Ok(report)
    }
}

/// Seconds for which this thread has run.
fn running() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = text.split_whitespace().next().unwrap_or("0").parse()?;
    Ok(nanoseconds * 1e-9)
}

/// A line of `/proc/self/status`, in MiB.
fn resident(line: &str) -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kilobytes: f64 = value.unwrap_or("0").trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes / 1024.0)
}

fn rows(logits: Tensor<B, 3>) -> Tensor<B, 2> {
    let [batch, steps, classes] = logits.dims();
    logits.reshape([batch * steps, classes])
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, folder, threads, seconds] = arguments.as_slice() else {
        return Err("kiln-training-bench MODEL FOLDER THREADS SECONDS".into());
    };
    kiln_kernels::threads::set_threads(threads.parse()?);
    let run = Run { folder: Path::new(folder), length: Duration::from_secs_f64(seconds.parse()?) };
    let report = match model.as_str() {
        "resnet18" => {
            let x = run.images([8, 3, 224, 224])?;
            run.train(models::resnet18::Model::default(), |model| model.forward(x.clone()))
        }
        "bert" => {
            let x = run.tokens([8, 64])?;
            run.train(models::bert::Model::default(), |model| model.forward(x.clone()))
        }
        "gpt2" => {
            let x = run.tokens([2, 128])?;
            run.train(models::gpt2::Model::default(), |model| rows(model.forward(x.clone())))
        }
        "lstm_tagger" => {
            let x = run.tokens([16, 64])?;
            run.train(models::lstm_tagger::Model::default(), |model| rows(model.forward(x.clone())))
        }
        "gru_tagger" => {
            let x = run.tokens([16, 64])?;
            run.train(models::gru_tagger::Model::default(), |model| rows(model.forward(x.clone())))
        }
        "mlp" => {
            let x = run.images([64, 64])?;
            run.train(models::mlp::Model::default(), |model| model.forward(x.clone()))
        }
        other => Err(format!("no model is called {other}").into()),
    }?;
    let Report { losses, times, thread_time, memory } = report;
    let [before, peak] = memory;
    let median = |times: &[f64]| times.get(times.len() / 2).copied().unwrap_or(f64::NAN) * 1e3;
    println!(
        r#"{{"losses": {losses:?}, "median_ms": {}, "min_ms": {}, "thread_ms": {}, "steps": {}, "before_mb": {before}, "peak_mb": {peak}}}"#,
        median(&times),
        times.first().copied().unwrap_or(f64::NAN) * 1e3,
        thread_time * 1e3,
        times.len(),
    );
    Ok(())
}
