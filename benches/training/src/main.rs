//! Times training steps of one imported model: forward, loss, backward, AdamW, each of which is waited for.
//!
//! `kiln-training-bench MODEL RECORD FOLDER BACKEND SECONDS [tf32] [captured]`, where `FOLDER` holds the batch (`inputs.bin`, `targets.bin`) and `BACKEND` is
//! `ndarray=THREADS`, `cuda` or `cuda-bf16`; by the last, weights, activations, gradients and the optimizer's averages are all bf16. On CUDA, products
//! may be of TF32, and forward and backward a captured graph. Prints one JSON object. `scripts/bench_training.py` and `scripts/cuda_training.py` run it beside PyTorch.

use kiln::backend::{Autodiff, NdArray};
use kiln::module::AutodiffModule;
use kiln::nn::loss::CrossEntropyLossConfig;
use kiln::optim::{AdamWConfig, GradientsParams};
use kiln::tensor::backend::{AutodiffBackend, Backend};
use kiln::tensor::{ElementConversion, Int, Tensor, TensorData};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const USAGE: &str = "kiln-training-bench MODEL RECORD FOLDER BACKEND SECONDS [tf32] [captured]";
/// Steps whose losses are reported, and which are not timed.
const LOSSES: usize = 5;
/// Steps that are timed at least.
const LEAST_STEPS: usize = 10;

/// An imported network that yields logits.
trait Network<B: Backend> {
    /// A batch on the device.
    type Inputs: Clone;

    /// Loads its parameters.
    fn load(record: &Path, device: &B::Device) -> Self;

    /// Sends the batch to the device.
    fn inputs(batch: &Batch, device: &B::Device) -> Result<Self::Inputs, Box<dyn Error>>;

    /// A row of logits for each target.
    fn logits(&self, inputs: Self::Inputs) -> Tensor<B, 2>;
}

/// What a network is trained on: a folder of files.
struct Batch<'a>(&'a Path);

impl Batch<'_> {
    fn elements<const N: usize, T>(
        &self,
        file: &str,
        read: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Box<dyn Error>> {
        let bytes = std::fs::read(self.0.join(file))?;
        Ok(bytes.as_chunks::<N>().0.iter().map(|&bytes| read(bytes)).collect())
    }

    fn images<const D: usize>(&self, dims: [usize; D]) -> Result<TensorData, Box<dyn Error>> {
        Ok(TensorData::new(self.elements("inputs.bin", f32::from_le_bytes)?, dims))
    }

    fn tokens<const D: usize>(&self, dims: [usize; D]) -> Result<TensorData, Box<dyn Error>> {
        Ok(TensorData::new(self.elements("inputs.bin", i64::from_le_bytes)?, dims))
    }

    fn targets(&self) -> Result<TensorData, Box<dyn Error>> {
        let targets = self.elements("targets.bin", i64::from_le_bytes)?;
        let count = targets.len();
        Ok(TensorData::new(targets, [count]))
    }
}

/// What a GPU was asked to do so far.
#[derive(Clone, Copy)]
struct Counts {
    launches: u64,
    /// Bytes that kernels read and wrote, each tensor once a kernel.
    moved: u64,
    /// Bytes that are held, in use or not.
    memory: u64,
}

/// One network on its batch.
struct Run<'a, B: Backend> {
    record: &'a Path,
    batch: Batch<'a>,
    length: Duration,
    device: B::Device,
    /// Nothing where there is no GPU.
    counts: fn(&B::Device) -> Option<Counts>,
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
    /// What a GPU launched and the MB that its kernels moved in a step, those of a graph's replay not counted, and the MiB of its memory that are held after the
    /// last.
    device: Option<[f64; 3]>,
}

/// A loss, and the gradients for the optimizer.
type Backward<B> = (Tensor<<B as AutodiffBackend>::InnerBackend, 1>, GradientsParams);

/// A batch on the device, with its targets.
type Given<B, M> = (<M as Network<B>>::Inputs, Tensor<B, 1, Int>);

impl<B: AutodiffBackend> Run<'_, B> {
    fn loss<M: Network<B>>(&self) -> impl Fn(&M, Given<B, M>) -> Tensor<B, 1> + use<B, M> {
        let loss = CrossEntropyLossConfig::new().init::<B>(&self.device);
        move |model, (inputs, targets)| loss.forward(model.logits(inputs), targets)
    }

    /// Operation by operation.
    fn train<M: AutodiffModule<B> + Network<B>>(&self) -> Result<Report, Box<dyn Error>> {
        let loss = self.loss::<M>();
        self.train_by(|model: &M, given| {
            let loss = loss(model, given);
            let gradients = GradientsParams::from_grads(loss.backward(), model);
            Ok((loss.inner(), gradients))
        })
    }

    fn train_by<M: AutodiffModule<B> + Network<B>>(
        &self,
        mut backward: impl FnMut(&M, Given<B, M>) -> Result<Backward<B>, Box<dyn Error>>,
    ) -> Result<Report, Box<dyn Error>> {
        let mut model = M::load(self.record, &self.device);
        let inputs = M::inputs(&self.batch, &self.device)?;
        let targets = Tensor::<B, 1, Int>::from_data(self.batch.targets()?, &self.device);
        let mut optimizer = AdamWConfig::new().with_epsilon(1e-6).with_weight_decay(1e-2).init::<B, M>();
        let before = resident("VmRSS")?;
        let mut report = Report {
            losses: Vec::new(),
            times: Vec::new(),
            thread_time: 0.0,
            memory: [before; 2],
            device: None,
        };
        let (mut begun, mut ran, mut counted) = (Instant::now(), running()?, (self.counts)(&self.device));
        for step in 0.. {
            if step == LOSSES {
                (begun, ran, counted) = (Instant::now(), running()?, (self.counts)(&self.device));
            }
            if report.times.len() >= LEAST_STEPS && begun.elapsed() >= self.length {
                break;
            }
            let started = Instant::now();
            let (loss, gradients) = backward(&model, (inputs.clone(), targets.clone()))?;
            model = optimizer.step(1e-4, model, gradients);
            B::sync(&self.device)?;
            let time = started.elapsed().as_secs_f64();
            if step < LOSSES {
                report.losses.push(loss.into_scalar().elem());
            } else {
                report.times.push(time);
            }
        }
        let steps = report.times.len() as f64;
        report.device = (self.counts)(&self.device).zip(counted).map(|(counts, before)| {
            let a_step = |count: u64| count as f64 / steps;
            [
                a_step(counts.launches - before.launches),
                a_step(counts.moved - before.moved) / 1e6,
                counts.memory as f64 / f64::from(1 << 20),
            ]
        });
        report.times.sort_by(f64::total_cmp);
        report.thread_time = (running()? - ran) / steps;
        report.memory[1] = resident("VmHWM")?;
        Ok(report)
    }
}

#[cfg(feature = "cuda")]
impl<F: kiln::tensor::Element> Run<'_, Autodiff<kiln::backend::Cuda<F>>> {
    /// Forward and backward by a graph.
    fn train_captured<M>(&self) -> Result<Report, Box<dyn Error>>
    where
        M: AutodiffModule<Autodiff<kiln::backend::Cuda<F>>>
            + Network<Autodiff<kiln::backend::Cuda<F>>, Inputs: kiln::backend::cuda::Tensors>,
    {
        let loss = self.loss::<M>();
        let mut backward =
            kiln::backend::cuda::CapturedGradients::new(|model: &M, given| (loss(model, given), ()));
        self.train_by(|model: &M, given| {
            let (loss, (), gradients) = backward.run(model, given)?;
            Ok((loss, gradients))
        })
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

/// Logits of a sequence as rows.
fn rows<B: Backend, const D: usize>(logits: Tensor<B, D>) -> Tensor<B, 2> {
    let dims = logits.dims();
    let (classes, outer) = dims.split_last().map_or((1, &[][..]), |(&classes, outer)| (classes, outer));
    logits.reshape([outer.iter().product(), classes])
}

/// Finds a network by its name.
macro_rules! networks {
    ($($name:ident)*) => {
        fn train<B: AutodiffBackend>(name: &str, run: &Run<'_, B>) -> Result<Report, Box<dyn Error>> {
            match name {
                $(stringify!($name) => run.train::<$name::Model<B>>(),)*
                other => Err(format!("no model is called {other}").into()),
            }
        }

        #[cfg(feature = "cuda")]
        fn train_captured<F: kiln::tensor::Element>(
            name: &str,
            run: &Run<'_, Autodiff<kiln::backend::Cuda<F>>>,
        ) -> Result<Report, Box<dyn Error>> {
            match name {
                $(stringify!($name) => run.train_captured::<$name::Model<_>>(),)*
                other => Err(format!("no model is called {other}").into()),
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/networks.rs"));

/// What is run on one backend or another.
struct Arguments<'a> {
    model: &'a str,
    record: &'a Path,
    folder: &'a Path,
    length: Duration,
}

impl<'a> Arguments<'a> {
    fn run<B: AutodiffBackend>(
        &self,
        device: B::Device,
        counts: fn(&B::Device) -> Option<Counts>,
    ) -> Run<'a, B> {
        let &Self { record, folder, length, .. } = self;
        Run { record, batch: Batch(folder), length, device, counts }
    }

    fn train_on_cpu(&self, threads: usize) -> Result<Report, Box<dyn Error>> {
        kiln_kernels::threads::set_threads(threads);
        train::<Autodiff<NdArray>>(self.model, &self.run(Default::default(), |_| None))
    }

    #[cfg(feature = "cuda")]
    fn train_on_cuda<F: kiln::tensor::Element>(&self, options: &[&str]) -> Result<Report, Box<dyn Error>> {
        use kiln::backend::{Cuda, CudaDevice, cuda};

        let device = CudaDevice::default();
        cuda::set_tf32(&device, options.contains(&"tf32"))?;
        let counts = |device: &CudaDevice| {
            let found = cuda::statistics(device);
            let memory = found.buffer_bytes - found.released_bytes;
            Some(Counts { launches: found.launches, moved: found.moved_bytes, memory })
        };
        let run = self.run::<Autodiff<Cuda<F>>>(device, counts);
        if options.contains(&"captured") { train_captured(self.model, &run) } else { train(self.model, &run) }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let &[model, record, folder, backend, seconds, ref options @ ..] = words.as_slice() else {
        return Err(USAGE.into());
    };
    let is_on_cpu = backend.starts_with("ndarray=");
    if options.iter().any(|option| is_on_cpu || !["tf32", "captured"].contains(option)) {
        return Err(USAGE.into());
    }
    let arguments = Arguments {
        model,
        record: Path::new(record),
        folder: Path::new(folder),
        length: Duration::from_secs_f64(seconds.parse()?),
    };
    let report = match (backend, backend.strip_prefix("ndarray=")) {
        (_, Some(threads)) => arguments.train_on_cpu(threads.parse()?),
        #[cfg(feature = "cuda")]
        ("cuda", _) => arguments.train_on_cuda::<f32>(options),
        #[cfg(feature = "cuda")]
        ("cuda-bf16", _) => arguments.train_on_cuda::<kiln::tensor::bf16>(options),
        _ => Err(format!("no backend is called {backend}").into()),
    }?;
    let Report { losses, times, thread_time, memory: [before, peak], device } = report;
    let device = device.map_or_else(String::new, |[launches, moved, memory]| {
        format!(r#", "launches": {launches}, "moved_mb": {moved}, "device_mb": {memory}"#)
    });
    let median = |times: &[f64]| times.get(times.len() / 2).copied().unwrap_or(f64::NAN) * 1e3;
    println!(
        r#"{{"losses": {losses:?}, "median_ms": {}, "min_ms": {}, "thread_ms": {}, "steps": {}, "before_mb": {before}, "peak_mb": {peak}{device}}}"#,
        median(&times),
        times.first().copied().unwrap_or(f64::NAN) * 1e3,
        thread_time * 1e3,
        times.len(),
    );
    Ok(())
}
