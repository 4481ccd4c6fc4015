//! Computes a layer by the kernel and by operations, on the GPU, and says how far they and their gradients are apart.

use custom_kernel::{AutodiffBackend, dense_relu, reference};
use kiln::backend::wgpu::{self, InitError, WgpuDevice};
use kiln::backend::{Autodiff, Wgpu};
use kiln::tensor::{Device, Distribution, ElementConversion, Tensor};

fn main() -> Result<(), InitError> {
    let device = WgpuDevice::default();
    wgpu::init(&device)?;
    let before = wgpu::statistics(&device);
    let [values, gradients] = distances::<Autodiff<Wgpu>>(&device);
    let after = wgpu::statistics(&device);
    println!("largest distance of values: {values:e}, of the weight's gradients: {gradients:e}");
    println!("{} kernels were run", after.dispatches - before.dispatches);
    Ok(())
}

fn distances<B: AutodiffBackend>(device: &Device<B>) -> [f32; 2] {
    let random = |shape: [usize; 3]| {
        Tensor::<B, 3>::random(shape, Distribution::Uniform(-1.0, 1.0), device).require_grad()
    };
    let (x, weight, bias) = (random([4, 100, 64]), random([1, 64, 80]), random([1, 1, 80]));
    let ours = dense_relu(x.clone(), weight.clone(), bias.clone());
    let theirs = reference(x, weight.clone(), bias);
    let distance = |a: Tensor<B::InnerBackend, 3>, b: Tensor<B::InnerBackend, 3>| -> f32 {
        (a - b).abs().max().into_scalar().elem()
    };
    let values = distance(ours.clone().inner(), theirs.clone().inner());
    let gradient = |y: Tensor<B, 3>| weight.grad(&y.powi_scalar(2).sum().backward());
    let gradients = gradient(ours).zip(gradient(theirs)).map(|(ours, theirs)| distance(ours, theirs));
    [values, gradients.unwrap_or(f32::INFINITY)]
}
