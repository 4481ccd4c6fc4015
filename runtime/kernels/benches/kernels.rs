//! Prints how fast the kernels are: `cargo bench -p kiln-kernels [-- FILTER]`, threads from `KILN_NUM_THREADS`.

use kiln_kernels::gemm::{Epilogue, Lhs, Matrix, PackedLhs, PackedRhs, Rhs, gemm};
use kiln_kernels::threads;
use std::hint::black_box;
use std::time::Instant;

/// The best time of a run in seconds, over about a fifth of a second.
fn time(mut run: impl FnMut()) -> f64 {
    run();
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed().as_secs_f64() < 0.2 {
        let one = Instant::now();
        run();
        best = best.min(one.elapsed().as_secs_f64());
    }
    best
}

fn noise(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5).collect()
}

fn gemms(wanted: &dyn Fn(&str) -> bool) {
    let sizes = [
        (64, 3136, 576, "resnet layer1"),
        (128, 784, 1152, "resnet layer2"),
        (512, 49, 4608, "resnet layer4"),
        (128, 768, 768, "bert linear"),
        (128, 3072, 768, "bert up"),
        (128, 768, 3072, "bert down"),
        (128, 128, 64, "bert scores"),
        (197, 576, 192, "vit qkv"),
        (96, 3136, 24, "mobilenet 1x1"),
        (1000, 1000, 1000, "square"),
        (4, 512, 128, "four rows"),
        (1, 1000, 2048, "one row"),
        (16, 16, 16, "tiny"),
    ];
    println!(
        "{:28} {:>9} {:>9} {:>9} {:>9} {:>9}  GFLOP/s",
        "gemm", "plain", "packed A", "packed B", "both", "gemm crate"
    );
    for (m, n, k, name) in sizes {
        if !wanted(name) {
            continue;
        }
        let (a, b, mut c) = (noise(m * k), noise(k * n), vec![0.0; m * n]);
        let flops = 2.0 * (m * n * k) as f64;
        let (va, vb) = (Matrix::row_major(&a, k), Matrix::row_major(&b, n));
        let (pa, pb) = (PackedLhs::new(va, m, k), PackedRhs::new(vb, k, n));
        let none = Epilogue::default();
        let mut rate =
            |a: Lhs<'_>, b: Rhs<'_>| flops / time(|| gemm(m, n, k, a, b, black_box(&mut c), n, &none)) / 1e9;
        let rates = [
            rate(Lhs::Plain(va), Rhs::Plain(vb)),
            rate(Lhs::Packed(&pa), Rhs::Plain(vb)),
            rate(Lhs::Plain(va), Rhs::Packed(&pb)),
            rate(Lhs::Packed(&pa), Rhs::Packed(&pb)),
        ];
        let parallelism = match threads::threads() {
            1 => ::gemm::Parallelism::None,
            threads => ::gemm::Parallelism::Rayon(threads),
        };
        let other = time(|| {
            // SAFETY: the pointers hold the sizes and strides given.
            unsafe {
                ::gemm::gemm(
                    m,
                    n,
                    k,
                    black_box(c.as_mut_ptr()),
                    1,
                    n as isize,
                    false,
                    a.as_ptr(),
                    1,
                    k as isize,
                    b.as_ptr(),
                    1,
                    n as isize,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    parallelism,
                );
            }
        });
        print!("{:28}", format!("{name} {m}x{n}x{k}"));
        rates.iter().for_each(|rate| print!(" {rate:9.1}"));
        println!(" {:9.1}", flops / other / 1e9);
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    println!("{} threads", threads::threads());
    gemms(&|name| format!("gemm {name}").contains(&filter));
}
