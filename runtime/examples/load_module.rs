//! Loads a checkpoint of square matrices, `layers.<n>.weight`, into a list of `Linear`, which transposes each: what
//! `scripts/bench_weights.py` measures.
//!
//! `load_module load|record PATH` loads into a module that is there (`load_weights`), or a record (`PyTorchFileRecorder`).
//! Prints the seconds, the parameters' bytes, and on Linux the highest resident size.

use kiln::backend::NdArray;
use kiln::module::Module;
use kiln::nn::{Linear, LinearConfig};
use kiln::record::{FullPrecisionSettings, Recorder};
use kiln::tensor::backend::Backend;
use kiln::weights::{LoadArgs, PyTorchFileRecorder, load_weights};
use std::error::Error;
use std::time::Instant;

#[derive(Module, Debug)]
struct Layers<B: Backend> {
    layers: Vec<Linear<B>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (way, path) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let device = Default::default();
    let start = Instant::now();
    // The numbers have zeros before them.
    let args = LoadArgs::new(path.clone().into()).with_key_remap("^layers\\.0*(\\d)", "layers.$1");
    let checkpoint = kiln_weights::Checkpoint::open(&path)?;
    let layers = checkpoint.tensors().map(|(_, tensor)| match tensor.shape() {
        [to, from] => Ok(LinearConfig::new(*from, *to).with_bias(false).init::<NdArray>(&device)),
        shape => Err(format!("{shape:?} is no matrix")),
    });
    let module = Layers { layers: layers.collect::<Result<_, _>>()? };
    let module = match way.as_str() {
        "record" => {
            let recorder = PyTorchFileRecorder::<FullPrecisionSettings>::new();
            module.try_load_record(recorder.load(args, &device)?)?
        }
        _ => load_weights(module, args, &device)?,
    };
    let seconds = start.elapsed().as_secs_f64();
    let bytes = module.num_params() * 4;
    let peak = peak();
    println!(r#"{{"seconds": {seconds:.4}, "bytes": {bytes}, "peak_kb": {peak}}}"#);
    Ok(())
}

/// Highest resident size in kB, with the mapped file's pages; 0 where it cannot be told.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
