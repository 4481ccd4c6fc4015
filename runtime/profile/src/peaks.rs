//! What the machine can do at most.

use kiln_kernels::{peak, threads::threads};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::Backend;
use kiln_types::{DType, Peaks, Precision};
use std::time::{Duration, Instant};

/// What is streamed from memory: more than most caches hold. Where a cache is larger, as those that servers share, it takes part.
const MEMORY_BYTES: usize = 512 << 20;

/// What each thread streams from its caches: less than second-level caches hold.
const CACHE_BYTES: usize = 256 << 10;

/// How long each loop is repeated.
const TIME: Duration = Duration::from_millis(250);

/// The rows and columns of matrices whose product shows how fast products of bf16 can be.
const SIDE: usize = 1024;

/// Measures what the machine can do with the threads that kernels use: each loop's best of a quarter of a second.
///
/// FLOPs are multiply-adds of f32 in registers. Units for products of bf16 have no loop of their own: theirs are those of a product of two large matrices,
/// which is a few percent below what the unit could do. Bytes are those of a loop that reads, or one that negates in place, whichever moves more.
pub fn peaks(precision: Precision) -> Peaks {
    let gflops = best(|| peak::multiply_add(1_000_000));
    let mut memory = vec![1.0; MEMORY_BYTES / size_of::<f32>()];
    let (memory_gbs, memory_bytes) = (stream(&mut memory, 1), MEMORY_BYTES as u64);
    drop(memory);
    let mut cached = vec![1.0; threads() * CACHE_BYTES / size_of::<f32>()];
    let cache_bytes = (cached.len() * size_of::<f32>()) as u64;
    let cache_gbs = stream(&mut cached, 64);
    let gflops = match precision {
        Precision::F32 => gflops,
        Precision::Bf16 => gflops.max(products(precision)),
    };
    Peaks { gflops, memory_gbs, memory_bytes, cache_gbs, cache_bytes }
}

fn stream(data: &mut [f32], rounds: usize) -> f64 {
    let both = best(|| peak::read_and_write(data, rounds));
    both.max(best(|| peak::read(data, rounds)))
}

/// 10^9 FLOPs a second of products of large matrices.
fn products(precision: Precision) -> f64 {
    let device = Default::default();
    let ones = || NdArray::<f32>::full([SIDE, SIDE].into(), 1.0.into(), DType::F32, &device);
    let (lhs, rhs) = (ones(), <NdArray>::prepare(ones()));
    best(|| {
        precision.run(|| drop(<NdArray>::matmul(lhs.clone(), rhs.clone())));
        2 * SIDE.pow(3) as u64
    })
}

/// The highest rate of some work, in 10^9 a second.
fn best(mut work: impl FnMut() -> u64) -> f64 {
    // Threads start, and memory is touched.
    work();
    let (begun, mut best) = (Instant::now(), 0.0f64);
    while begun.elapsed() < TIME || best == 0.0 {
        let started = Instant::now();
        let done = work();
        best = best.max(done as f64 / started.elapsed().as_secs_f64().max(1e-9) / 1e9);
    }
    best
}
