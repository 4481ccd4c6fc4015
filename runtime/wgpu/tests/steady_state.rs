//! What a forward pass costs that ran before: no memory, no kernels, no bind groups, and no wait (design, law 11).

use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{
    Activation, AttentionOptions, BinaryOp, ConvOptions, DType, Distribution, PoolOp, PoolOptions, ReduceOp,
    Scalar, Shape, TensorData,
};
use kiln_wgpu::{WgpuDevice, WgpuTensor, WgslKernel, statistics};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Wgpu = kiln_wgpu::Wgpu;
type T = <Wgpu as Backend>::Primitive;

/// Counts are the device's, which the tests share.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn random(shape: &[usize]) -> T {
    Wgpu::random(Shape::from(shape), Distribution::Normal(0.0, 1.0), DType::F32, &WgpuDevice::default())
}

/// `x / (1 + |x|)`, a user's own kernel.
fn softsign(x: T) -> T {
    let kernel = WgslKernel::new(
        "softsign",
        "@group(0) @binding(0) var<storage, read> x: array<f32>;
         @group(0) @binding(1) var<storage, read_write> y: array<f32>;
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) at: vec3<u32>) {
             if at.x < arrayLength(&y) { y[at.x] = x[at.x] / (1.0 + abs(x[at.x])); }
         }",
        "main",
    );
    let x = x.into_contiguous();
    let mut y = WgpuTensor::empty(x.shape(), DType::F32, x.device());
    let groups = x.shape().num_elements().div_ceil(64) as u32;
    kernel.launch().input(&x).output(&mut y).run([groups, 1, 1]).expect("a kernel");
    y
}

/// A small network with what networks have: convolutions, pooling, attention, norms, layers.
struct Network {
    conv: T,
    bias: T,
    projection: T,
    gain: T,
}

impl Network {
    fn forward(&self, x: T) -> T {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        let x =
            Wgpu::conv_activated(x, self.conv.clone(), Some(self.bias.clone()), Activation::Relu, &options);
        let x = Wgpu::pool(PoolOp::Max, x, &PoolOptions::new([2, 2], [2, 2], [0, 0], [1, 1], false));
        let x = Wgpu::permute(Wgpu::reshape(x, [2, 8, 16].into()), &[0, 2, 1]);
        let q = Wgpu::linear(x.clone(), &self.projection, None, None);
        let heads = |x: T| Wgpu::permute(Wgpu::reshape(x, [2, 16, 2, 4].into()), &[0, 2, 1, 3]);
        let (k, v) = (heads(x.clone()), heads(x.clone()));
        let attended = Wgpu::attention(heads(q), k, v, None, &AttentionOptions::default());
        let attended = Wgpu::reshape(Wgpu::permute(attended, &[0, 2, 1, 3]), [2, 16, 8].into());
        let x = Wgpu::binary(BinaryOp::Add, x, attended);
        let x = Wgpu::layer_norm(x, self.gain.clone(), Some(self.bias.clone()), 1e-5);
        Wgpu::reduce(ReduceOp::Mean, softsign(x), &[1])
    }
}

#[test]
fn a_second_pass_makes_nothing_and_waits_for_nothing() {
    let _alone = alone();
    let device = WgpuDevice::default();
    let network = Network {
        conv: random(&[8, 3, 3, 3]),
        bias: random(&[8]),
        projection: random(&[8, 8]),
        gain: random(&[8]),
    };
    let x = random(&[2, 3, 8, 8]);
    let expected = Wgpu::into_data(network.forward(x.clone())).expect("a device");
    network.forward(x.clone());
    let before = statistics(&device);
    let y = network.forward(x);
    let after = statistics(&device);
    assert!(after.dispatches > before.dispatches);
    assert_eq!(after.waits, before.waits, "something was read back");
    assert_eq!(after.buffers, before.buffers, "memory was allocated");
    assert_eq!(after.pipelines, before.pipelines, "a kernel was compiled");
    assert_eq!(after.bind_groups, before.bind_groups, "a bind group was made");
    assert_eq!(after.uploaded_bytes, before.uploaded_bytes, "something was sent to the device");
    assert_eq!(Wgpu::into_data(y).expect("a device"), expected);
}

/// Kernels are looked for where the submission before had them: what stands there may be another, or the same of other memory or numbers.
#[test]
fn a_pass_is_not_taken_for_the_one_before() {
    let _alone = alone();
    let x = |n: usize| {
        let data = TensorData::new(vec![n as f32 + 1.0; 70 + n % 2], [70 + n % 2]);
        Wgpu::from_data(data, &WgpuDevice::default())
    };
    // Two operands, of which neither was computed by the last kernel, are a kernel of their own.
    let steps: [fn(T, T) -> T; 4] = [
        |a, b| Wgpu::binary(BinaryOp::Add, a, b),
        |a, b| Wgpu::binary(BinaryOp::Sub, b, a),
        |a, b| Wgpu::binary_scalar(BinaryOp::Mul, Wgpu::binary(BinaryOp::Mul, a, b), Scalar::Float(3.0)),
        |a, b| Wgpu::binary_scalar(BinaryOp::Mul, Wgpu::binary(BinaryOp::Mul, a, b), Scalar::Float(5.0)),
    ];
    let on_the_host: [fn(f32, f32) -> f32; 4] =
        [|a, b| a + b, |a, b| b - a, |a, b| a * b * 3.0, |a, b| a * b * 5.0];
    let (first, second, other) = (x(2), x(4), x(5));
    for pass in 0..12 {
        let mut expected = Vec::new();
        let results: Vec<T> = (0..5)
            .map(|n| {
                let which = (n + pass / 2) % steps.len();
                let (a, b, values) = match (n * pass) % 3 {
                    0 => (&first, &second, (3.0, 5.0)),
                    1 => (&second, &first, (5.0, 3.0)),
                    _ => (&other, &other, (6.0, 6.0)),
                };
                expected.push(on_the_host[which](values.0, values.1));
                steps[which](a.clone(), b.clone())
            })
            .collect();
        for (n, (result, expected)) in results.into_iter().zip(expected).enumerate() {
            let result = Wgpu::into_data(result).expect("a device").to_vec::<f32>().expect("floats");
            assert!(result.iter().all(|&x| x == expected), "pass {pass}, {n}: {result:?}, not {expected}");
        }
    }
}
