//! Times gradients of the backend on one thread, by its kernels and as they are composed of other operations: `cargo run --release
//! -p kiln-ndarray --example gradients [SECONDS]`. Prints a JSON object a line; `scripts/bench_gradients.py` runs it beside PyTorch, with
//! the same names and sizes.

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{
    ConvTransposeOptions, CoordinateTransform, DType, Distribution, InterpolateMode, InterpolateOptions,
    NearestRounding, PoolOp, PoolOptions, compose,
};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

type B = NdArray;
type T = NdArrayTensor;

const CPU: NdArrayDevice = NdArrayDevice::Cpu;

fn random(dims: &[usize]) -> T {
    B::random(dims.into(), Distribution::Uniform(-1.0, 1.0), DType::F32, &CPU)
}

/// An image with its channels last in memory, as convolutions yield it.
fn image([batch, channels, height, width]: [usize; 4]) -> T {
    B::permute(random(&[batch, height, width, channels]), &[0, 3, 1, 2])
}

/// The least time of a run, in milliseconds.
fn least(length: Duration, run: &dyn Fn()) -> f64 {
    let (begun, mut least, mut count) = (Instant::now(), Duration::MAX, 0);
    while count < 4 || begun.elapsed() < length {
        let started = Instant::now();
        run();
        least = least.min(started.elapsed());
        count += 1;
    }
    least.as_secs_f64() * 1e3
}

/// A gradient by the backend's own kernels, and composed.
struct Case {
    name: String,
    own: Box<dyn Fn()>,
    composed: Box<dyn Fn()>,
}

fn case<R>(
    name: impl Into<String>,
    own: impl Fn() -> R + 'static,
    composed: impl Fn() -> R + 'static,
) -> Case {
    let own = Box::new(move || drop(black_box(own())));
    let composed = Box::new(move || drop(black_box(composed())));
    Case { name: name.into(), own, composed }
}

/// `[batch, in, size, size]`, out, kernel, stride, padding, groups.
fn conv_transpose(
    cases: &mut Vec<Case>,
    name: &str,
    dims: [usize; 4],
    [out, kernel, stride, padding, groups]: [usize; 5],
) {
    let options = ConvTransposeOptions::new([stride; 2], [padding; 2], [0, 0], [1, 1], groups);
    let (x, weight) = (image(dims), random(&[dims[1], out / groups, kernel, kernel]));
    let size = B::conv_transpose(x.clone(), weight.clone(), None, &options).shape();
    let gradient = image([size[0], size[1], size[2], size[3]]);
    let (g, w, o, shape) = (gradient.clone(), weight.clone(), options.clone(), x.shape());
    let operands = move || (g.clone(), w.clone(), shape.clone(), o.clone());
    let again = operands.clone();
    cases.push(case(
        format!("{name}, input"),
        move || {
            let (g, w, shape, o) = operands();
            B::conv_transpose_input_gradient(g, w, &shape, &o)
        },
        move || {
            let (g, w, shape, o) = again();
            compose::conv_transpose_input_gradient::<B>(g, w, &shape, &o)
        },
    ));
    let operands = move || (x.clone(), gradient.clone(), weight.shape(), options.clone());
    let again = operands.clone();
    cases.push(case(
        format!("{name}, weight"),
        move || {
            let (x, g, shape, o) = operands();
            B::conv_transpose_weight_gradient(x, g, &shape, &o)
        },
        move || {
            let (x, g, shape, o) = again();
            compose::conv_transpose_weight_gradient::<B>(x, g, &shape, &o)
        },
    ));
}

fn group_norm(cases: &mut Vec<Case>, name: &str, [gradient, x]: [T; 2], groups: usize) {
    let weight = random(&[x.dims()[1]]);
    let operands = move || (gradient.clone(), x.clone(), Some(weight.clone()));
    let again = operands.clone();
    cases.push(case(
        name,
        move || {
            let (g, x, w) = operands();
            B::group_norm_gradient(g, x, w, groups, 1e-5)
        },
        move || {
            let (g, x, w) = again();
            compose::group_norm_gradient::<B>(g, x, w, groups, 1e-5)
        },
    ));
}

fn pool(cases: &mut Vec<Case>, name: &str, op: PoolOp, dims: [usize; 4], options: PoolOptions) {
    let x = image(dims);
    let output = B::pool(op, x.clone(), &options);
    let size = output.shape();
    let gradient = image([size[0], size[1], size[2], size[3]]);
    let operands = move || (gradient.clone(), x.clone(), output.clone(), options.clone());
    let again = operands.clone();
    cases.push(case(
        name,
        move || {
            let (g, x, y, o) = operands();
            B::pool_gradient(op, g, x, y, &o)
        },
        move || {
            let (g, x, y, o) = again();
            compose::pool_gradient::<B>(op, g, x, y, &o)
        },
    ));
}

fn adaptive(cases: &mut Vec<Case>, name: &str, dims: [usize; 4], size: usize) {
    let gradient = image([dims[0], dims[1], size, size]);
    let again = gradient.clone();
    cases.push(case(
        name,
        move || B::adaptive_avg_pool_gradient(gradient.clone(), &dims.into()),
        move || compose::adaptive_avg_pool_gradient::<B>(again.clone(), &dims.into()),
    ));
}

/// To twice the size.
fn interpolate(cases: &mut Vec<Case>, name: &str, mode: InterpolateMode, dims: [usize; 4]) {
    let to = [dims[0], dims[1], 2 * dims[2], 2 * dims[3]];
    let coordinates = match mode {
        InterpolateMode::Nearest(_) => CoordinateTransform::Asymmetric,
        InterpolateMode::Linear | InterpolateMode::Cubic { .. } => CoordinateTransform::HalfPixel,
    };
    let options = InterpolateOptions {
        output_size: to.into(),
        scales: [1.0, 1.0, 2.0, 2.0].into(),
        mode,
        coordinates,
        antialias: false,
        exclude_outside: false,
        roi: None,
        extrapolation_value: 0.0,
    };
    let (gradient, other) = (image(to), options.clone());
    let again = gradient.clone();
    cases.push(case(
        name,
        move || B::interpolate_gradient(gradient.clone(), &dims.into(), &options),
        move || compose::interpolate_gradient::<B>(again.clone(), &dims.into(), &other),
    ));
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(0.3), |text| text.parse())?;
    let length = Duration::from_secs_f64(seconds);
    kiln_kernels::threads::set_threads(1);
    let cases = &mut Vec::new();
    conv_transpose(cases, "conv_transpose 4x4, step 2", [8, 64, 32, 32], [32, 4, 2, 1, 1]);
    conv_transpose(cases, "conv_transpose 2x2, step 2", [4, 64, 32, 32], [32, 2, 2, 0, 1]);
    conv_transpose(cases, "conv_transpose 3x3", [8, 64, 28, 28], [64, 3, 1, 1, 1]);
    conv_transpose(cases, "conv_transpose, depthwise", [8, 64, 32, 32], [64, 4, 2, 1, 64]);
    let dims = [8, 128, 32, 32];
    group_norm(cases, "group_norm", [image(dims), image(dims)], 32);
    group_norm(cases, "group_norm, channels first", [random(&dims), random(&dims)], 32);
    let dims = [8, 64, 64, 64];
    group_norm(cases, "instance_norm", [image(dims), image(dims)], 64);
    adaptive(cases, "adaptive_avg_pool to 1", [32, 256, 14, 14], 1);
    adaptive(cases, "adaptive_avg_pool to 7", [8, 256, 15, 15], 7);
    let dims = [8, 64, 32, 32];
    interpolate(cases, "nearest", InterpolateMode::Nearest(NearestRounding::Floor), dims);
    interpolate(cases, "linear", InterpolateMode::Linear, dims);
    interpolate(cases, "cubic", InterpolateMode::Cubic { a: -0.75 }, dims);
    let dims = [8, 64, 65, 65];
    pool(
        cases,
        "lp_pool",
        PoolOp::Lp { p: 2 },
        dims,
        PoolOptions::new([2, 2], [2, 2], [0, 0], [1, 1], false),
    );
    pool(
        cases,
        "max_pool, dilated",
        PoolOp::Max,
        dims,
        PoolOptions::new([3, 3], [2, 2], [1, 1], [2, 2], true),
    );
    let mean = PoolOp::Average { include_pad: false };
    pool(cases, "avg_pool, ceil mode", mean, dims, PoolOptions::new([3, 3], [2, 2], [1, 1], [1, 1], true));
    for Case { name, own, composed } in cases {
        let (own, composed) = (least(length, own), least(length, composed));
        println!(r#"{{"case": "{name}", "own_ms": {own}, "composed_ms": {composed}}}"#);
    }
    Ok(())
}
