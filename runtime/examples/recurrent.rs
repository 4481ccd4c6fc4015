//! Times training steps of one recurrent layer, forward and backward, with gradients of its parameters and of its input:
//! `recurrent lstm|gru|rnn SEQ BATCH INPUT HIDDEN DIRECTIONS THREADS SECONDS`. Prints one JSON object: the least and the median time of
//! a step, and for how long this thread ran in one on average. `scripts/bench_recurrent.py` runs it beside PyTorch.

use kiln::backend::{Autodiff, NdArray};
use kiln::nn::RecurrentConfig;
use kiln::tensor::{Distribution, RnnDirection, Tensor};
use std::error::Error;
use std::time::{Duration, Instant};

type B = Autodiff<NdArray>;

/// Steps that are not timed.
const WARM_UP: usize = 3;
/// Steps that are timed at least.
const LEAST_STEPS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, numbers @ .., seconds] = arguments.as_slice() else {
        return Err("recurrent lstm|gru|rnn SEQ BATCH INPUT HIDDEN DIRECTIONS THREADS SECONDS".into());
    };
    let numbers: Vec<usize> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [steps, batch, input, hidden, directions, threads] = numbers[..] else {
        return Err("six sizes are wanted".into());
    };
    kiln::backend::ndarray::set_threads(threads);
    let config = match kind.as_str() {
        "lstm" => RecurrentConfig::lstm(input, hidden),
        "gru" => RecurrentConfig::gru(input, hidden),
        "rnn" => RecurrentConfig::rnn(input, hidden),
        other => return Err(format!("no layer is called {other}").into()),
    };
    let direction = if directions == 2 { RnnDirection::Bidirectional } else { RnnDirection::Forward };
    let device = Default::default();
    let layer = config.with_direction(direction).init::<B>(&device);
    let x = Tensor::<B, 3>::random([steps, batch, input], Distribution::Normal(0.0, 1.0), &device);
    let length = Duration::from_secs_f64(seconds.parse()?);
    let (mut times, mut begun, mut ran) = (Vec::new(), Instant::now(), 0.0);
    for step in 0.. {
        if step == WARM_UP {
            (begun, ran) = (Instant::now(), running()?);
        }
        if times.len() >= LEAST_STEPS && begun.elapsed() >= length {
            break;
        }
        let started = Instant::now();
        let x = x.clone().require_grad();
        let (output, _) = layer.forward(x.clone());
        let gradients = output.sum().backward();
        let of_input = x.grad(&gradients).ok_or("the input has a gradient")?;
        if step >= WARM_UP {
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        assert_eq!(of_input.dims(), [steps, batch, input]);
    }
    let ran_for = (running()? - ran) * 1e3 / times.len() as f64;
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!(r#"{{"min_ms": {}, "median_ms": {median}, "thread_ms": {ran_for}}}"#, times[0]);
    Ok(())
}

/// Seconds for which this thread has run.
fn running() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = text.split_whitespace().next().unwrap_or("0").parse()?;
    Ok(nanoseconds * 1e-9)
}
