//! Times greedy generation by one imported decoder: token, position and caches stay on the device, and the tokens are read at the end.
//!
//! `kiln-generation-bench DECODER RECORD BACKEND TOKENS RUNS [tf32]`, where `BACKEND` is `ndarray`, `ndarray=THREADS`, `cuda` or `captured` (on CUDA,
//! by a graph whose state all this is). Prints one JSON object. `scripts/cuda_generate.py` runs it beside PyTorch.

use kiln::tensor::backend::Backend;
use kiln::tensor::{DType, Int, Tensor, TensorData};
use std::error::Error;
use std::path::Path;
use std::time::Instant;

/// The token that everything begins with.
const FIRST: i64 = 1;

/// The caches of a decoder.
struct Caches {
    count: usize,
    /// Batch, heads, length, size.
    shape: [usize; 4],
    dtype: DType,
}

/// What a step of generation takes over from the one before.
#[derive(Clone)]
struct State<B: Backend> {
    token: Tensor<B, 2, Int>,
    position: Tensor<B, 1, Int>,
    caches: Vec<Tensor<B, 4>>,
}

/// An imported decoder with static caches.
trait Decoder<B: Backend> {
    /// What it needs.
    const CACHES: Caches;

    /// Loads its parameters.
    fn load(path: &Path, device: &B::Device) -> Self;

    /// The next token, its position, and the caches with what belongs to the last one.
    fn decode(&self, state: State<B>) -> State<B>;

    /// Before anything is generated.
    fn begin(device: &B::Device) -> State<B> {
        let Caches { count, shape, dtype } = Self::CACHES;
        State {
            token: Tensor::from_data(TensorData::new(vec![FIRST], [1, 1]), device),
            position: Tensor::from_data(TensorData::new(vec![0_i64], [1]), device),
            caches: (0..count).map(|_| Tensor::zeros(shape, (device, dtype))).collect(),
        }
    }
}

/// What was generated, the seconds that each run took, and what the GPU was asked to launch for a token.
struct Report {
    tokens: Vec<i64>,
    times: Vec<f64>,
    launches: Option<f64>,
}

/// How much is generated.
#[derive(Clone, Copy)]
struct Plan {
    tokens: usize,
    runs: usize,
}

impl Plan {
    /// Generates once untimed, and then as often as it says; `generate` yields each token on the device.
    fn time<B: Backend>(
        self,
        mut generate: impl FnMut(usize) -> Result<Vec<Tensor<B, 2, Int>>, Box<dyn Error>>,
    ) -> Result<Report, Box<dyn Error>> {
        let mut report = Report { tokens: Vec::new(), times: Vec::new(), launches: None };
        for run in 0..=self.runs {
            let started = Instant::now();
            // Reading waits for all of them.
            let data = Tensor::cat(generate(self.tokens)?, 1).into_data();
            if run > 0 {
                report.times.push(started.elapsed().as_secs_f64());
            }
            report.tokens = data.to_vec()?;
        }
        report.times.sort_by(f64::total_cmp);
        Ok(report)
    }

    /// Operation by operation.
    fn run<B: Backend, M: Decoder<B>>(
        self,
        record: &Path,
        device: &B::Device,
    ) -> Result<Report, Box<dyn Error>> {
        let model = M::load(record, device);
        self.time(|tokens| {
            let (mut state, mut text) = (M::begin(device), Vec::new());
            for _ in 0..tokens {
                // The state is moved, so that caches are written in place.
                state = model.decode(state);
                text.push(state.token.clone());
            }
            Ok(text)
        })
    }

    /// By a graph with state.
    #[cfg(feature = "cuda")]
    fn run_captured<M: Decoder<kiln::backend::Cuda>>(
        self,
        record: &Path,
        device: &kiln::backend::CudaDevice,
    ) -> Result<Report, Box<dyn Error>> {
        type B = kiln::backend::Cuda;
        let model = M::load(record, device);
        let parts = |State { token, position, caches }: State<B>| (token, position, caches);
        let graph = kiln::backend::cuda::Graph::capture_with_state(
            parts(M::begin(device)),
            (),
            |(token, position, caches), ()| {
                let next = model.decode(State { token, position, caches });
                let token = next.token.clone();
                (parts(next), token)
            },
        )?;
        self.time(|tokens| {
            graph.set_state(parts(M::begin(device)))?;
            (0..tokens).map(|_| Ok(graph.replay(())?)).collect()
        })
    }
}

/// Where a decoder runs, and what its record is.
struct Arguments<'a> {
    record: &'a Path,
    backend: &'a str,
    tf32: bool,
    plan: Plan,
}

impl Arguments<'_> {
    fn run_on_cpu<M: Decoder<kiln::backend::NdArray>>(&self) -> Result<Report, Box<dyn Error>> {
        if let Some(threads) = self.backend.strip_prefix("ndarray=") {
            kiln_kernels::threads::set_threads(threads.parse()?);
        } else if self.backend != "ndarray" {
            return Err(format!("no backend is called {}", self.backend).into());
        }
        self.plan.run::<_, M>(self.record, &Default::default())
    }

    #[cfg(not(feature = "cuda"))]
    fn run<M: Decoder<kiln::backend::NdArray>, G>(&self) -> Result<Report, Box<dyn Error>> {
        let _ = self.tf32;
        self.run_on_cpu::<M>()
    }

    #[cfg(feature = "cuda")]
    fn run<M: Decoder<kiln::backend::NdArray>, G: Decoder<kiln::backend::Cuda>>(
        &self,
    ) -> Result<Report, Box<dyn Error>> {
        let device = kiln::backend::CudaDevice::default();
        match self.backend {
            "cuda" | "captured" => kiln::backend::cuda::set_tf32(&device, self.tf32)?,
            _ => return self.run_on_cpu::<M>(),
        }
        if self.backend == "captured" {
            return self.plan.run_captured::<G>(self.record, &device);
        }
        let report = self.plan.run::<_, G>(self.record, &device)?;
        // With the few of each run that make the first state and join the tokens, and what packs weights.
        let launches = kiln::backend::cuda::statistics(&device).launches as f64;
        let tokens = self.plan.tokens * (self.plan.runs + 1);
        Ok(Report { launches: Some(launches / tokens as f64), ..report })
    }
}

/// Finds a decoder by its name.
macro_rules! decoders {
    ($($name:ident)*) => {
        fn run(name: &str, arguments: &Arguments<'_>) -> Result<Report, Box<dyn Error>> {
            match name {
                $(stringify!($name) => arguments.run::<on_cpu!($name), on_gpu!($name)>(),)*
                other => Err(format!("no decoder is called {other}").into()),
            }
        }
    };
}
macro_rules! on_cpu {
    ($name:ident) => { $name::Model<kiln::backend::NdArray> };
}
/// Where there is no other backend, it stands for the GPU's as well.
#[cfg(not(feature = "cuda"))]
macro_rules! on_gpu {
    ($name:ident) => { $name::Model<kiln::backend::NdArray> };
}
#[cfg(feature = "cuda")]
macro_rules! on_gpu {
    ($name:ident) => { $name::Model<kiln::backend::Cuda> };
}

include!(concat!(env!("OUT_DIR"), "/decoders.rs"));

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (&[name, record, backend, tokens, runs] | &[name, record, backend, tokens, runs, "tf32"]) =
        words.as_slice()
    else {
        return Err("kiln-generation-bench DECODER RECORD BACKEND TOKENS RUNS [tf32]".into());
    };
    let tf32 = words.last() == Some(&"tf32");
    let plan = Plan { tokens: tokens.parse()?, runs: runs.parse()? };
    let Report { tokens, times, launches } =
        run(name, &Arguments { record: Path::new(record), backend, tf32, plan })?;
    let seconds = |at: usize| times.get(at).copied().unwrap_or(f64::NAN);
    let launches = launches.map_or_else(|| String::from("null"), |launches| launches.to_string());
    println!(
        r#"{{"tokens": {tokens:?}, "median_s": {}, "min_s": {}, "launches": {launches}}}"#,
        seconds(times.len() / 2),
        seconds(0),
    );
    Ok(())
}
