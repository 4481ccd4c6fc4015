//! Times gradients of convolutions and poolings on the default GPU, and counts their kernels: `cargo run --release -p kiln-wgpu --example
//! gpu_gradients [SECONDS]`. Prints a line for each: milliseconds (the least of all runs) and kernels of one run. A run ends when the device has
//! done it.

use kiln_autodiff::Autodiff;
use kiln_tensor::backend::{AutodiffBackend, Backend, Primitive};
use kiln_tensor::{
    Activation, ConvOptions, ConvTransposeOptions, DType, Distribution, PoolOp, PoolOptions, ReduceOp, Shape,
};
use kiln_wgpu::{Wgpu, WgpuDevice, statistics};
use std::error::Error;
use std::time::{Duration, Instant};

type B = Wgpu;
type T = <B as Backend>::Primitive;

fn random<B: Backend>(dims: &[usize]) -> B::Primitive {
    B::random(dims.into(), Distribution::Uniform(-1.0, 1.0), DType::F32, &B::Device::default())
}

/// The least time of a run in milliseconds, and the kernels of one.
fn measured(length: Duration, run: &dyn Fn() -> Vec<T>) -> Result<(f64, u64), Box<dyn Error>> {
    let device = WgpuDevice::default();
    let (begun, mut least, mut count, mut kernels) = (Instant::now(), Duration::MAX, 0, 0);
    while count < 3 || begun.elapsed() < length {
        B::sync(&device)?;
        let (started, before) = (Instant::now(), statistics(&device).dispatches);
        let results = run();
        B::sync(&device)?;
        least = least.min(started.elapsed());
        kernels = statistics(&device).dispatches - before;
        drop(results);
        count += 1;
    }
    Ok((least.as_secs_f64() * 1e3, kernels))
}

type Case = (&'static str, Box<dyn Fn() -> Vec<T>>);

/// Both gradients of a convolution: `[batch, in, size, size]`, out, kernel, stride, groups; padded by half a window.
fn conv(
    cases: &mut Vec<Case>,
    [input, weight]: [&'static str; 2],
    dims: [usize; 4],
    [out, kernel, stride, groups]: [usize; 4],
) {
    let options = ConvOptions::new([stride; 2], [kernel / 2; 2], [1, 1], groups);
    let (x, w) = (random::<B>(&dims), random::<B>(&[out, dims[1] / groups, kernel, kernel]));
    let gradient = random::<B>(B::conv(x.clone(), w.clone(), None, &options).dims());
    let (g, shape, o) = (gradient.clone(), x.shape(), options.clone());
    let weight_shape = w.shape();
    cases.push((input, Box::new(move || vec![B::conv_input_gradient(g.clone(), w.clone(), &shape, &o)])));
    cases.push((
        weight,
        Box::new(move || vec![B::conv_weight_gradient(x.clone(), gradient.clone(), &weight_shape, &options)]),
    ));
}

fn transposed() -> Case {
    let options = ConvTransposeOptions::new([2, 2], [1, 1], [0, 0], [1, 1], 1);
    let (x, w) = (random::<B>(&[4, 64, 16, 16]), random::<B>(&[64, 32, 4, 4]));
    (
        "conv_transpose 4x4, step 2",
        Box::new(move || vec![B::conv_transpose(x.clone(), w.clone(), None, &options)]),
    )
}

fn pool(name: &'static str, op: PoolOp) -> Case {
    let options = PoolOptions::new([3, 3], [2, 2], [1, 1], [1, 1], false);
    let x = random::<B>(&[4, 64, 56, 56]);
    let y = B::pool(op, x.clone(), &options);
    let gradient = random::<B>(y.dims());
    (name, Box::new(move || vec![B::pool_gradient(op, gradient.clone(), x.clone(), y.clone(), &options)]))
}

/// Forward and backward of a residual block of two convolutions, `[4, 64, 28, 28]`, and of a step to 128 channels behind it.
fn block() -> Case {
    type A = Autodiff<B>;
    let weights =
        [[64, 64, 3, 3], [64, 64, 3, 3], [128, 64, 3, 3], [128, 64, 1, 1]].map(|dims| random::<B>(&dims));
    let x = random::<B>(&[4, 64, 28, 28]);
    let run = move || {
        let leaf = |tensor: &T| A::set_require_grad(A::from_inner(tensor.clone()), true);
        let (x, weights) = (leaf(&x), weights.each_ref().map(leaf));
        let [first, second, third, aside] = weights.clone();
        let same = |x, weight| A::conv(x, weight, None, &ConvOptions::new([1, 1], [1, 1], [1, 1], 1));
        let y = same(A::activation(Activation::Relu, same(x.clone(), first)), second);
        let y = A::activation(Activation::Relu, A::binary(kiln_tensor::BinaryOp::Add, y, x.clone()));
        let halved = |padding| ConvOptions::new([2, 2], [padding, padding], [1, 1], 1);
        let aside = A::conv(y.clone(), aside, None, &halved(0));
        let y = A::binary(kiln_tensor::BinaryOp::Add, A::conv(y, third, None, &halved(1)), aside);
        let count = y.shape().num_elements();
        let found = A::backward(A::reduce(ReduceOp::Sum, A::reshape(y, Shape::from([count])), &[0]));
        weights.iter().chain([&x]).filter_map(|leaf| A::grad(leaf, &found)).collect()
    };
    ("residual blocks, forward and backward", Box::new(run))
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(1.0), |text| text.parse())?;
    let mut cases = Vec::new();
    conv(&mut cases, ["3x3, 64 to 64, input", "3x3, 64 to 64, weight"], [4, 64, 28, 28], [64, 3, 1, 1]);
    conv(
        &mut cases,
        ["3x3, 64 to 128, step 2, input", "3x3, 64 to 128, step 2, weight"],
        [4, 64, 28, 28],
        [128, 3, 2, 1],
    );
    conv(
        &mut cases,
        ["7x7, 3 to 64, step 2, input", "7x7, 3 to 64, step 2, weight"],
        [2, 3, 112, 112],
        [64, 7, 2, 1],
    );
    conv(&mut cases, ["1x1, 64 to 256, input", "1x1, 64 to 256, weight"], [4, 64, 28, 28], [256, 1, 1, 1]);
    conv(&mut cases, ["3x3, depthwise, input", "3x3, depthwise, weight"], [4, 64, 28, 28], [64, 3, 1, 64]);
    cases.push(transposed());
    cases.push(pool("max_pool 3x3, step 2", PoolOp::Max));
    cases.push(pool("avg_pool 3x3, step 2", PoolOp::Average { include_pad: true }));
    let gradient = random::<B>(&[4, 64, 7, 7]);
    cases.push((
        "adaptive_avg_pool, 28 to 7",
        Box::new(move || vec![B::adaptive_avg_pool_gradient(gradient.clone(), &[4, 64, 28, 28].into())]),
    ));
    cases.push(block());
    println!("{:40} {:>10} {:>8}", B::name(&WgpuDevice::default()), "ms", "kernels");
    for (name, run) in &cases {
        let (milliseconds, kernels) = measured(Duration::from_secs_f64(seconds), run)?;
        println!("{name:40} {milliseconds:10.2} {kernels:8}");
    }
    Ok(())
}
