//! Reads the tensors of a checkpoint and touches each page: what `scripts/bench_weights.py` times.
//!
//! `read_checkpoint PATH [PREFIX]` reads all tensors, or those whose paths begin so. Prints the seconds, the bytes, and on
//! Linux the highest resident size, the page faults and the bytes that came from the disk since the start.

use kiln_weights::{Checkpoint, WeightsError};
use std::time::Instant;

/// Smallest page of the machines that Kiln runs on.
const PAGE: usize = 4096;

fn main() -> Result<(), WeightsError> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_default();
    let prefix = arguments.next().unwrap_or_default();
    let (before, fetched, start) = (faults(), fetched(), Instant::now());
    let checkpoint = Checkpoint::open(&path)?;
    let (mut bytes, mut sum) = (0, 0_u64);
    for (path, tensor) in checkpoint.tensors().filter(|(path, _)| path.starts_with(&prefix)) {
        let data = checkpoint.data(path)?;
        sum += data.bytes.iter().step_by(PAGE).map(|byte| u64::from(*byte)).sum::<u64>();
        bytes += tensor.num_bytes();
    }
    let seconds = start.elapsed().as_secs_f64();
    // What lies beside the tensors takes no part in the time, but in what a hostile file may cost.
    checkpoint.plain_data()?;
    let (peak, faults, fetched) = (peak(), faults() - before, self::fetched() - fetched);
    println!(
        r#"{{"seconds": {seconds:.4}, "bytes": {bytes}, "sum": {sum}, "peak_kb": {peak}, "faults": {faults}, "fetched": {fetched}}}"#
    );
    Ok(())
}

/// Highest resident size in kB, with the mapped file's pages; 0 where it cannot be told.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Bytes read from the disk so far; 0 where it cannot be told.
fn fetched() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("read_bytes:"));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}

/// Page faults so far, minor and major; 0 where it cannot be told.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may have spaces; the fields after it are numbered from 3.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    field(10) + field(12)
}
