//! Times operations off the beaten path, in shapes that are easily slow: `cargo run --release -p kiln-ndarray --example uncommon [SECONDS]
//! [THREADS] [NAME]`. Prints a JSON object a line, the median and the least time; `scripts/bench_uncommon.py` runs it beside PyTorch, with the
//! same names and sizes.

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{
    BinaryOp, ConvOptions, ConvTransposeOptions, DType, Distribution, ReduceOp, Scalar, ScatterOp,
};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

type B = NdArray;
type T = NdArrayTensor;

const CPU: NdArrayDevice = NdArrayDevice::Cpu;

fn random(dims: &[usize]) -> T {
    B::random(dims.into(), Distribution::Uniform(0.0, 1.0), DType::F32, &CPU)
}

/// An image with its channels last in memory, as convolutions yield it.
fn image([batch, channels, height, width]: [usize; 4]) -> T {
    B::permute(random(&[batch, height, width, channels]), &[0, 3, 1, 2])
}

/// Integers below `end`.
fn integers(dims: &[usize], end: usize, dtype: DType) -> T {
    B::cast(B::binary_scalar(BinaryOp::Mul, random(dims), Scalar::Float(end as f64 * 0.999)), dtype)
}

/// The median and the least time of a run, in milliseconds.
fn times(length: Duration, run: &dyn Fn()) -> [f64; 2] {
    let (begun, mut all) = (Instant::now(), Vec::new());
    while all.len() < 5 || begun.elapsed() < length {
        let started = Instant::now();
        run();
        all.push(started.elapsed().as_secs_f64() * 1e3);
    }
    all.sort_by(f64::total_cmp);
    [all[all.len() / 2], all[0]]
}

struct Cases {
    length: Duration,
    only: String,
}

impl Cases {
    fn case<R>(&self, name: &str, run: impl Fn() -> R) {
        if name.contains(&self.only) {
            let [median, least] = times(self.length, &|| drop(black_box(run())));
            println!(r#"{{"case": "{name}", "ms": {median}, "least_ms": {least}}}"#);
        }
    }

    /// Gradients of a convolution of `[batch, in, size, size]`; out, kernel, stride, groups.
    fn conv(&self, name: &str, dims: [usize; 4], [out, kernel, stride, groups]: [usize; 4]) {
        if !name.contains(&self.only) && !self.only.contains(name) {
            return;
        }
        let options = ConvOptions {
            stride: [stride; 2].into(),
            padding: [(kernel / 2, kernel / 2); 2].into(),
            dilation: [1, 1].into(),
            groups,
        };
        let (x, weight) = (image(dims), random(&[out, dims[1] / groups, kernel, kernel]));
        let size = B::conv(x.clone(), weight.clone(), None, &options).shape();
        let g = image([size[0], size[1], size[2], size[3]]);
        self.case(&format!("{name}, input"), || {
            B::conv_input_gradient(g.clone(), weight.clone(), &x.shape(), &options)
        });
        self.case(&format!("{name}, weight"), || {
            B::conv_weight_gradient(x.clone(), g.clone(), &weight.shape(), &options)
        });
    }

    /// `[batch, in, size, size]`; out, kernel, stride, padding, groups.
    fn transposed(
        &self,
        name: &str,
        dims: [usize; 4],
        [out, kernel, stride, padding, groups]: [usize; 5],
        last: bool,
    ) {
        let options = ConvTransposeOptions::new([stride; 2], [padding; 2], [0, 0], [1, 1], groups);
        let x = if last { image(dims) } else { random(&dims) };
        let (weight, bias) = (random(&[dims[1], out / groups, kernel, kernel]), random(&[out]));
        self.case(name, || B::conv_transpose(x.clone(), weight.clone(), Some(bias.clone()), &options));
    }

    /// A copy of a permuted tensor.
    fn permute(&self, name: &str, dims: &[usize], axes: &[usize]) {
        let x = random(dims);
        let len = dims.iter().product::<usize>();
        // Nothing but a copy makes the permuted dims one.
        self.case(name, || B::reshape(B::permute(x.clone(), axes), [len].into()));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(0.3), |text| text.parse())?;
    let threads = arguments.next().map_or(Ok(1), |text| text.parse())?;
    kiln_kernels::threads::set_threads(threads);
    let cases =
        Cases { length: Duration::from_secs_f64(seconds), only: arguments.next().unwrap_or_default() };

    cases.conv("conv depthwise 3x3", [8, 96, 56, 56], [96, 3, 1, 96]);
    cases.conv("conv depthwise 3x3 step 2", [8, 96, 56, 56], [96, 3, 2, 96]);
    cases.conv("conv depthwise 5x5", [8, 240, 14, 14], [240, 5, 1, 240]);
    cases.conv("conv 4 groups", [8, 96, 56, 56], [96, 3, 1, 4]);
    cases.conv("conv 4 groups step 2", [8, 96, 56, 56], [96, 3, 2, 4]);
    cases.conv("conv 32 groups", [8, 128, 28, 28], [128, 3, 1, 32]);
    cases.conv("conv 48 groups multiplier 2", [8, 48, 28, 28], [96, 3, 1, 48]);

    let dims = [1, 64, 64, 64];
    cases.transposed("transposed 1 group", dims, [32, 4, 2, 1, 1], true);
    cases.transposed("transposed 4 groups", dims, [32, 4, 2, 1, 4], true);
    cases.transposed("transposed depthwise", dims, [64, 4, 2, 1, 64], true);
    cases.transposed("transposed 1 group first", dims, [32, 4, 2, 1, 1], false);
    cases.transposed("transposed depthwise first", dims, [64, 4, 2, 1, 64], false);
    cases.transposed("transposed few channels", [1, 3, 128, 128], [3, 4, 2, 1, 1], false);
    cases.transposed("transposed 2x2 few channels", [4, 16, 64, 64], [1, 2, 2, 0, 1], false);

    let dims = &[64, 512, 512];
    cases.permute("permute 210", dims, &[2, 1, 0]);
    cases.permute("permute 021", dims, &[0, 2, 1]);
    cases.permute("permute 120", dims, &[1, 2, 0]);
    cases.permute("permute 102", dims, &[1, 0, 2]);
    cases.permute("permute 4 dims 3210", &[32, 64, 48, 40], &[3, 2, 1, 0]);
    cases.permute("permute 4 dims 2103", &[64, 64, 64, 8], &[2, 1, 0, 3]);
    let (x, y) = (random(&[2048, 2048]), random(&[2048, 2048]));
    let turned = |x: &T| B::permute(x.clone(), &[1, 0]);
    cases.case("add transposed", || B::binary(BinaryOp::Add, x.clone(), turned(&y)));
    cases.case("add both transposed", || B::binary(BinaryOp::Add, turned(&x), turned(&y)));
    let z = random(&[64, 256, 256]);
    let w = random(&[64, 256, 256]);
    cases.case("mul transposed in batches", || {
        B::binary(BinaryOp::Mul, z.clone(), B::permute(w.clone(), &[0, 2, 1]))
    });
    let q = random(&[256, 256, 64]);
    cases.case("mul permuted 210", || B::binary(BinaryOp::Mul, z.clone(), B::permute(q.clone(), &[2, 1, 0])));

    let (x, y) = (random(&[100_000, 32]), random(&[100_000, 32]));
    cases.case("xtx 32 of 100000", || B::matmul(turned(&x), y.clone()));
    let (x, y) = (random(&[100_000, 8]), random(&[100_000, 8]));
    cases.case("xtx 8 of 100000", || B::matmul(turned(&x), y.clone()));
    let (x, y) = (random(&[4096, 8, 8]), random(&[4096, 8, 8]));
    cases.case("batch 4096 of 8", || B::matmul(x.clone(), y.clone()));
    let (x, y) = (random(&[4096, 4, 4]), random(&[4096, 4, 4]));
    cases.case("batch 4096 of 4", || B::matmul(x.clone(), y.clone()));
    let (x, y) = (random(&[4096, 16, 16]), random(&[4096, 16, 16]));
    cases.case("batch 4096 of 16", || B::matmul(x.clone(), y.clone()));
    let (x, y) = (random(&[4096, 3, 3]), random(&[4096, 3, 1]));
    cases.case("batch 4096 of 3 by vector", || B::matmul(x.clone(), y.clone()));

    let mask = B::cast(integers(&[4096, 1024], 2, DType::I32), DType::Bool);
    cases.case("any of bool rows", || B::reduce(ReduceOp::Max, mask.clone(), &[1]));
    cases.case("any of bool columns", || B::reduce(ReduceOp::Max, mask.clone(), &[0]));
    let bytes = integers(&[4096, 1024], 100, DType::U8);
    cases.case("max of u8 rows", || B::reduce(ReduceOp::Max, bytes.clone(), &[1]));
    let ints = integers(&[4096, 1024], 100, DType::I32);
    cases.case("sum of i32 rows", || B::reduce(ReduceOp::Sum, ints.clone(), &[1]));
    cases.case("max of i32 columns", || B::reduce(ReduceOp::Max, ints.clone(), &[0]));
    let longs = integers(&[4096, 1024], 100, DType::I64);
    cases.case("sum of i64 rows", || B::reduce(ReduceOp::Sum, longs.clone(), &[1]));
    cases.case("sum of i64 columns", || B::reduce(ReduceOp::Sum, longs.clone(), &[0]));

    let x = random(&[1 << 20]);
    for power in [0.75, 0.5, -0.5, 1.5, 2.0, 3.0, 2.2] {
        cases.case(&format!("pow {power}"), || {
            B::binary_scalar(BinaryOp::Pow, x.clone(), Scalar::Float(power))
        });
    }
    let exponents = random(&[1 << 20]);
    cases.case("pow of tensors", || B::binary(BinaryOp::Pow, x.clone(), exponents.clone()));

    let x = random(&[1024, 1024]);
    let index = integers(&[1024, 1024], 1024, DType::I64);
    cases.case("gather dim 1", || B::gather(x.clone(), 1, index.clone()));
    cases.case("gather dim 0", || B::gather(x.clone(), 0, index.clone()));
    let value = random(&[1024, 1024]);
    cases
        .case("scatter_add dim 1", || B::scatter(x.clone(), 1, index.clone(), value.clone(), ScatterOp::Add));
    cases
        .case("scatter_add dim 0", || B::scatter(x.clone(), 0, index.clone(), value.clone(), ScatterOp::Add));
    let rows = integers(&[1024], 1024, DType::I64);
    cases.case("index_add dim 1", || {
        B::select_assign(x.clone(), 1, rows.clone(), value.clone(), ScatterOp::Add)
    });
    cases.case("index_copy dim 0", || {
        B::select_assign(x.clone(), 0, rows.clone(), value.clone(), ScatterOp::Assign)
    });

    for width in [8, 16, 32] {
        let x = random(&[(1 << 20) / width, width]);
        let (w, b) = (random(&[width]), random(&[width]));
        cases.case(&format!("layer_norm rows of {width}"), || {
            B::layer_norm(x.clone(), w.clone(), Some(b.clone()), 1e-5)
        });
        cases.case(&format!("softmax rows of {width}"), || B::softmax(x.clone(), 1));
        cases.case(&format!("sum rows of {width}"), || B::reduce(ReduceOp::Sum, x.clone(), &[1]));
    }
    Ok(())
}
