//! Users' own kernels: their order among operations, in graphs, what they see, and their errors.

#![cfg(target_os = "linux")]

mod host;

use kiln_cuda::{Cuda, CudaDevice, CudaKernel, CudaTensor, Graph, KernelError, LaunchProblem, TensorProblem};
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::{BinaryOp, DType, Scalar, Shape, Tensor, TensorData};

type B = Cuda;

/// `y = factor · x + offset`.
const AFFINE: &str = r#"
extern "C" __global__ void affine(const float* x, float* y, unsigned count, float factor, int offset) {
    unsigned at = blockIdx.x * 64 + threadIdx.x;
    if (at < count) y[at] = factor * x[at] + (float)offset;
}
"#;

fn kernel() -> CudaKernel {
    CudaKernel::new("affine", AFFINE)
}

fn tensor(values: &[f32]) -> CudaTensor {
    B::from_data(TensorData::new(values.to_vec(), [values.len()]), &CudaDevice::default())
}

fn floats(tensor: CudaTensor) -> Vec<f32> {
    B::into_data(tensor).expect("a device").to_vec().expect("floats")
}

fn affine(kernel: &CudaKernel, x: CudaTensor, factor: f32, offset: i32) -> Result<CudaTensor, KernelError> {
    let x = x.into_contiguous();
    let mut y = CudaTensor::empty(x.shape(), DType::F32, x.device());
    let count = x.shape().num_elements() as u32;
    let launch =
        kernel.launch().input(&x).output(&mut y).parameter(count).parameter(factor).parameter(offset);
    // SAFETY: each thread writes the element that it checked to be there.
    unsafe { launch.run([count.div_ceil(64), 1, 1], [64, 1])? };
    Ok(y)
}

fn problem(result: Result<impl Sized, KernelError>) -> LaunchProblem {
    match result.err().expect("it should be refused") {
        KernelError::Launch { problem, .. } => problem,
        error => panic!("{error}"),
    }
}

#[test]
fn kernels_run_among_operations() {
    let x = tensor(&(0..1000).map(|n| n as f32).collect::<Vec<_>>());
    let doubled = B::binary_scalar(BinaryOp::Mul, x, Scalar::Float(2.0));
    let y = affine(&kernel(), doubled, 0.5, -3).expect("a kernel");
    let y = B::binary_scalar(BinaryOp::Add, y, Scalar::Float(1.0));
    let z = affine(&kernel(), y, 10.0, 0).expect("a kernel");
    let expected: Vec<f32> = (0..1000).map(|n| (n as f32 - 2.0) * 10.0).collect();
    assert_eq!(floats(z), expected);
}

#[test]
fn views_are_made_contiguous_and_graphs_hold_kernels() {
    let device = CudaDevice::default();
    let x = |first: usize| {
        let values: Vec<f32> = (first..first + 6).map(|n| n as f32).collect();
        Tensor::<B, 2>::from_data(TensorData::new(values, [2, 3]), &device)
    };
    let run = |x: Tensor<B, 2>| {
        let y = affine(&kernel(), x.transpose().into_backend(), 2.0, 1).expect("a kernel");
        Tensor::<B, 2>::from_backend(y) + 0.5
    };
    let graph = Graph::capture(x(0), run).expect("a graph");
    for first in [0, 10, 20] {
        let y = graph.replay(x(first)).expect("a replay").into_data().to_vec::<f32>().expect("floats");
        let expected: Vec<f32> = [0, 3, 1, 4, 2, 5].map(|n| ((first + n) * 2) as f32 + 1.5).to_vec();
        assert_eq!(y, expected);
    }
}

#[test]
fn what_a_kernel_cannot_take_is_refused_by_name() {
    let (kernel, device) = (kernel(), CudaDevice::default());
    let x = tensor(&[1.0; 8]);
    // SAFETY: none of these runs.
    let no_output = unsafe { kernel.launch().input(&x).run([1; 3], [64, 1]) };
    assert_eq!(problem(no_output), LaunchProblem::NoOutput);
    let mut y = CudaTensor::empty(Shape::from([8]), DType::F32, &device);
    for (blocks, threads) in [([0, 1, 1], [64, 1]), ([1; 3], [64, 17]), ([1, 70_000, 1], [64, 1])] {
        // SAFETY: as above.
        let refused = problem(unsafe { kernel.launch().input(&x).output(&mut y).run(blocks, threads) });
        assert_eq!(refused, LaunchProblem::Grid { blocks, threads, most: 65_535 });
    }
    let odd = B::slice(tensor(&[1.0; 8]), &[SliceRange { start: 0, end: 8, step: 2 }]);
    // SAFETY: as above.
    let view = problem(unsafe { kernel.launch().input(&odd).output(&mut y).run([1; 3], [64, 1]) });
    assert_eq!(view, LaunchProblem::Tensor { tensor: 0, problem: TensorProblem::NotContiguous });
    let mut shared = x.clone();
    // SAFETY: as above.
    let shared = problem(unsafe { kernel.launch().input(&x).output(&mut shared).run([1; 3], [64, 1]) });
    assert_eq!(shared, LaunchProblem::Tensor { tensor: 1, problem: TensorProblem::Shared });
    let elsewhere = B::to_device(x, &CudaDevice::new(1));
    // SAFETY: as above.
    let other = problem(unsafe { kernel.launch().input(&elsewhere).output(&mut y).run([1; 3], [64, 1]) });
    let on = CudaDevice::new(1);
    assert_eq!(
        other,
        LaunchProblem::Tensor { tensor: 0, problem: TensorProblem::OtherDevice { on, device } }
    );
}

#[test]
fn a_text_that_is_no_kernel_is_an_error() {
    let broken = CudaKernel::new(
        "broken",
        r#"extern "C" __global__ void broken(const float* x, float* y, unsigned count, float factor, int offset) { y[0] = nothing; }"#,
    );
    // Again without compiling it again.
    for _ in 0..2 {
        let error = affine(&broken, tensor(&[1.0]), 1.0, 0).expect_err("no kernel").to_string();
        assert!(error.starts_with("kernel `broken`") && error.contains("nothing"), "{error}");
    }
    // The device goes on.
    assert_eq!(floats(affine(&kernel(), tensor(&[1.0]), 2.0, 0).expect("a kernel")), [2.0]);
}
