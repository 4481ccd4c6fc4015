//! Reads every tensor of a checkpoint and touches each page: what `scripts/bench_weights.py` times.
//!
//! Prints the seconds, the bytes, and the highest resident size on Linux.

use kiln_weights::{Checkpoint, WeightsError};
use std::time::Instant;

/// Smallest page of the machines that Kiln runs on.
const PAGE: usize = 4096;

fn main() -> Result<(), WeightsError> {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let checkpoint = Checkpoint::open(&path)?;
        let (mut bytes, mut sum) = (0, 0_u64);
        for (path, tensor) in checkpoint.tensors() {
            let data = checkpoint.data(path)?;
            sum += data.bytes.iter().step_by(PAGE).map(|byte| u64::from(*byte)).sum::<u64>();
            bytes += tensor.num_bytes();
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{{\"seconds\": {seconds:.4}, \"bytes\": {bytes}, \"sum\": {sum}, \"peak_kb\": {}}}",
            peak()
        );
    }
    Ok(())
}

/// Highest resident size in kB, with the mapped file's pages; 0 where it cannot be told.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
