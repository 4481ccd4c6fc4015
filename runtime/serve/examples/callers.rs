//! Requests a second of concurrent callers, with and without a batcher: `cargo run --release -p kiln-serve --example callers [SECONDS] [TURNS]`.
//!
//! Each caller asks for one row, reads the answer, and asks again. All ways take turns, so that whatever else the machine does hits all of
//! them; what is printed are medians over the turns, and of ratios within a turn.

use kiln_core::Tensor;
use kiln_core::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use kiln_core::nn::{Linear, LinearConfig, Lstm, LstmConfig};
use kiln_core::tensor::{Distribution, activation::relu};
use kiln_ndarray::NdArray;
use kiln_serve::DynamicBatcherConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type B = NdArray;
type Model<const D: usize> = Arc<dyn Fn(Tensor<B, D>) -> Tensor<B, D> + Send + Sync>;

const CALLERS: [usize; 5] = [1, 2, 8, 32, 64];
const WORKERS: [usize; 2] = [1, 2];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(0.5);
    let turns = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    let device = Default::default();
    print!("| model | callers | alone, 1/s |");
    WORKERS.iter().for_each(|workers| print!(" workers: {workers}, 1/s | ratio | mean batch |"));
    println!("\n| --- | ---: | ---: |{}", " ---: | ---: | ---: |".repeat(WORKERS.len()));

    let layers: [Linear<B>; 3] =
        [[512, 2048], [2048, 2048], [2048, 512]].map(|[from, to]| LinearConfig::new(from, to).init(&device));
    let mlp: Model<2> = Arc::new(move |x| layers.iter().fold(x, |x, layer| relu(layer.forward(x))));
    compare("mlp", &mlp, [1, 512], seconds, turns);

    let lstm: Lstm<B> = LstmConfig::new(128, 256, true).init(&device);
    let lstm: Model<3> = Arc::new(move |x| lstm.forward(x, None).0);
    compare("lstm", &lstm, [1, 32, 128], seconds, turns);

    let encoder: TransformerEncoder<B> = TransformerEncoderConfig::new(256, 1024, 4, 4).init(&device);
    let encoder: Model<3> = Arc::new(move |x| encoder.forward(TransformerEncoderInput::new(x)));
    compare("transformer", &encoder, [1, 16, 256], seconds, turns);
}

/// Prints a line for each number of callers.
fn compare<const D: usize>(name: &str, model: &Model<D>, dims: [usize; D], seconds: f64, turns: usize) {
    let input = Tensor::random(dims, Distribution::Default, &Default::default());
    for callers in CALLERS {
        let mut alone = Vec::new();
        // By the number of workers: rates, ratios to `alone` in the same turn, mean batches.
        let mut batched = WORKERS.map(|workers| (workers, Vec::new(), Vec::new(), Vec::new()));
        for _ in 0..turns {
            let direct = rate(callers, seconds, || drop(model(input.clone()).into_data()));
            alone.push(direct);
            for (workers, rates, ratios, sizes) in &mut batched {
                let shared = model.clone();
                let config = DynamicBatcherConfig::new().with_workers(*workers);
                let batcher =
                    config.init(move |x: Tensor<B, D>| shared(x)).expect("workers are all that it changes");
                let found = rate(callers, seconds, || {
                    drop(batcher.call(input.clone()).expect("the queue takes 1024 rows").into_data());
                });
                rates.push(found);
                ratios.push(found / direct);
                sizes.push(batcher.stats().mean_batch_size());
            }
        }
        print!("| {name} | {callers} | {:.0} |", median(alone));
        for (_, rates, ratios, sizes) in batched {
            print!(" {:.0} | {:.2} | {:.1} |", median(rates), median(ratios), median(sizes));
        }
        println!();
    }
}

/// How often all callers together are answered in a second.
fn rate(callers: usize, seconds: f64, call: impl Fn() + Sync) -> f64 {
    // What is packed at the first pass, and memory of a new size, is not what is measured.
    call();
    let answers = AtomicUsize::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                while start.elapsed() < Duration::from_secs_f64(seconds) {
                    call();
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    answers.into_inner() as f64 / start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
