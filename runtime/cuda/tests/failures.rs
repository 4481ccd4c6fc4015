//! What goes wrong on a device is told by what waits for it, and the process lives.

#![cfg(target_os = "linux")]

mod host;

use host::{faults, mend};
use kiln_cuda::{Cuda, CudaDevice, CudaTensor, InitError, init, statistics};
use kiln_tensor::backend::Backend;
use kiln_tensor::{DType, Scalar, Shape, UnaryOp};

type B = Cuda;

/// A device of its own for each of these tests, which run one after another.
const DEVICE: CudaDevice = CudaDevice { index: 1 };

fn full(elements: usize, value: f64) -> CudaTensor {
    B::full(Shape::from([elements]), Scalar::Float(value), DType::F32, &DEVICE)
}

fn read(tensor: CudaTensor) -> Result<Vec<f32>, String> {
    let data = B::into_data(tensor).map_err(|error| error.to_string())?;
    Ok(data.to_vec().expect("floats"))
}

fn there_is_no_such_device() {
    assert_eq!(init(&CudaDevice::new(2)), Err(InitError::NotFound { index: 2, found: 2 }));
    assert_eq!(
        InitError::NotFound { index: 2, found: 1 }.to_string(),
        "there is no CUDA device 2: the driver knows 1"
    );
}

fn memory_that_is_not_there_is_an_error() {
    let small = full(1000, 1.0);
    faults(&DEVICE, |faults| faults.memory = Some(1 << 20));
    let large = B::unary(UnaryOp::Neg, full(1 << 20, 1.0));
    let error = read(large).expect_err("no memory");
    assert!(error.contains("out of memory, asking for 4194304 bytes where tensors hold"), "{error}");
    // What has memory goes on.
    assert_eq!(read(B::unary(UnaryOp::Neg, small)), Ok(vec![-1.0; 1000]));
    B::sync(&DEVICE).expect("a device");
    mend(&DEVICE);
    assert_eq!(read(full(3, 2.0)), Ok(vec![2.0; 3]));
}

fn what_the_pool_keeps_serves_other_sizes() {
    B::sync(&DEVICE).expect("a device");
    let before = statistics(&DEVICE);
    let used = before.buffer_bytes - before.released_bytes;
    faults(&DEVICE, |faults| faults.memory = Some(used + (10 << 20)));
    for megabytes in 1..8 {
        // Each of another size: together they are more than there is.
        assert_eq!(read(full(megabytes << 18, 2.0)).map(|values| values.len()), Ok(megabytes << 18));
    }
    assert!(statistics(&DEVICE).released_bytes > before.released_bytes);
    mend(&DEVICE);
}

fn a_kernel_that_faults_is_an_error_of_what_waits() {
    let x = full(10, 1.0);
    B::sync(&DEVICE).expect("a device");
    faults(&DEVICE, |faults| faults.launch = Some("an illegal memory access was encountered"));
    let y = B::unary(UnaryOp::Neg, x);
    let z = B::unary(UnaryOp::Abs, y);
    let error = read(z.clone()).expect_err("a fault");
    assert_eq!(error, "the host: launch: an illegal memory access was encountered");
    // A device that failed stays so.
    let error = B::sync(&DEVICE).expect_err("a fault").to_string();
    assert!(error.contains("illegal memory access"), "{error}");
    mend(&DEVICE);
    assert_eq!(read(full(2, 4.0)), Ok(vec![4.0; 2]));
}

fn asynchronous_reads_tell_it_too() {
    faults(&DEVICE, |faults| faults.launch = Some("unspecified launch failure"));
    let read = B::into_data_async(B::unary(UnaryOp::Neg, full(10, 1.0)));
    let error = kiln_gpu::promise::block_on(read).expect_err("a fault").to_string();
    assert!(error.contains("unspecified launch failure"), "{error}");
    mend(&DEVICE);
    let read = B::into_data_async(full(10, 1.0));
    let data = kiln_gpu::promise::block_on(read).expect("a device");
    assert_eq!(data.to_vec::<f32>().expect("floats"), vec![1.0; 10]);
}

/// Faults are the device's: one after another.
#[test]
fn failures_are_errors() {
    there_is_no_such_device();
    memory_that_is_not_there_is_an_error();
    what_the_pool_keeps_serves_other_sizes();
    a_kernel_that_faults_is_an_error_of_what_waits();
    asynchronous_reads_tell_it_too();
}

#[test]
fn what_is_missing_is_named_with_how_to_get_it() {
    for (error, named) in
        [(InitError::NoDriver, "libcuda.so.1"), (InitError::NoCompiler, "pip install nvidia-cuda-nvrtc")]
    {
        assert!(error.to_string().contains(named), "{error}");
    }
}
