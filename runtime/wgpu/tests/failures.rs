//! What goes wrong on a device is an error of the next read or sync that says what it was; the process lives on, and so does the device.

use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::{BinaryOp, DType, ReduceOp, Scalar, Shape, TensorData, UnaryOp};
use kiln_wgpu::{WgpuDevice, statistics};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Wgpu = kiln_wgpu::Wgpu;
type T = <Wgpu as Backend>::Primitive;

/// A failure is told to whoever asks first, and the tests share the device.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tensor(values: &[f32]) -> T {
    Wgpu::from_data(TensorData::new(values.to_vec(), [values.len()]), &WgpuDevice::default())
}

fn full(shape: impl Into<Shape>, value: f64) -> T {
    Wgpu::full(shape.into(), Scalar::Float(value), DType::F32, &WgpuDevice::default())
}

fn floats(tensor: T) -> Vec<f32> {
    Wgpu::into_data(tensor).expect("a device").to_vec().expect("floats")
}

#[track_caller]
fn refused<X>(result: Result<X, kiln_tensor::backend::ExecutionError>, reasons: &[&str]) {
    let message = result.err().expect("it should fail").to_string();
    for reason in reasons {
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn tensors_larger_than_the_device_gives_are_errors() {
    let _alone = alone();
    let device = WgpuDevice::default();
    let before = tensor(&[1.0, 2.0]);
    let recorded = Wgpu::unary(UnaryOp::Neg, before.clone());
    // As many elements as kernels count, 8 GiB: drivers that compute on the CPU give 2.
    let large = full([(1 << 31) - 1], 1.0);
    match Wgpu::sync(&device) {
        // A GPU may have that much.
        Ok(()) => return,
        result => refused(result, &["no memory of 85899345", "for a tensor", "create_buffer"]),
    }
    // It is told once, and again where the tensor is used or read.
    Wgpu::sync(&device).expect("it was told");
    // These have memory of their own.
    let one = SliceRange { start: 5, end: 7, step: 1 };
    let added = Wgpu::binary(BinaryOp::Add, before.clone(), Wgpu::slice(large.clone(), &[one]));
    let lost = [added.clone(), Wgpu::reduce(ReduceOp::Sum, added, &[0]), Wgpu::slice(large.clone(), &[one])];
    refused(Wgpu::sync(&device), &["no memory"]);
    for _ in 0..2 {
        lost.iter().for_each(|lost| refused(Wgpu::into_data(lost.clone()), &["no memory of 85899345"]));
    }
    drop(lost);
    // A norm that computes the sum that it is of loses its result, and none of what it reads.
    let bias = tensor(&[0.5, 0.25]);
    let weight = Wgpu::slice(large.clone(), &[one]);
    let sum = Wgpu::reshape(Wgpu::binary(BinaryOp::Add, before.clone(), before.clone()), Shape::from([1, 2]));
    let norm = Wgpu::layer_norm(sum, weight, Some(bias.clone()), 1e-5);
    refused(Wgpu::sync(&device), &["no memory"]);
    refused(Wgpu::into_data(norm), &["no memory"]);
    assert_eq!(floats(bias), [0.5, 0.25]);
    // Their memory serves others.
    assert_eq!(floats(Wgpu::binary(BinaryOp::Add, before.clone(), before.clone())), [2.0, 4.0]);
    assert_eq!(floats(Wgpu::reduce(ReduceOp::Sum, before.clone(), &[0])), [3.0]);
    let part = Wgpu::unary(UnaryOp::Neg, large.clone());
    refused(Wgpu::sync(&device), &["no memory"]);
    refused(Wgpu::into_data(part), &["no memory"]);
    refused(Wgpu::into_data(large), &["no memory"]);
    // What was recorded before and what comes after do not suffer.
    assert_eq!(floats(recorded), [-1.0, -2.0]);
    assert_eq!(floats(Wgpu::binary(BinaryOp::Add, before, tensor(&[3.0, 4.0]))), [4.0, 6.0]);
}

#[test]
fn kernels_that_do_not_compile_are_errors() {
    let _alone = alone();
    let device = WgpuDevice::default();
    let truth = Wgpu::from_data(TensorData::new(vec![true, false], [2]), &device);
    let negated = || Wgpu::unary(UnaryOp::Neg, tensor(&[1.0, 2.0]));
    // A kernel is compiled when it is complete: this one is now, and need not be again.
    floats(negated());
    let recorded = negated();
    // No shader takes the root of a truth value, and no tensor's methods ask for it.
    for _ in 0..2 {
        let compiled = statistics(&device).pipelines;
        let wrong = Wgpu::unary(UnaryOp::Sqrt, truth.clone());
        refused(Wgpu::sync(&device), &["the kernel `elementwise` does not compile", "sqrt"]);
        assert_eq!(statistics(&device).pipelines, compiled + 1, "a kernel that is none was kept");
        // Somebody else was told, and what it would have computed is not there all the same.
        refused(Wgpu::into_data(wrong), &["the kernel `elementwise` does not compile", "sqrt"]);
    }
    let wrong = Wgpu::unary(UnaryOp::Sqrt, truth.clone());
    refused(Wgpu::into_data(wrong), &["the kernel `elementwise` does not compile"]);
    // Nor does what was recorded with it, though it was submitted with it.
    assert_eq!(floats(recorded), [-1.0, -2.0]);
}

/// The variable that says that this process has little memory.
const LITTLE_MEMORY: &str = "KILN_TEST_LITTLE_MEMORY";

/// A process of which the system takes no more than 3 GiB of addresses: drivers that compute on the CPU run out of them.
#[test]
#[cfg(target_os = "linux")]
fn a_device_without_memory_left_says_so_and_goes_on() {
    let this = std::env::current_exe().expect("the test's own path");
    let run = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 3145728 && exec \"$0\" --exact out_of_memory --nocapture"])
        .arg(this)
        .env(LITTLE_MEMORY, "1")
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn out_of_memory() {
    if std::env::var_os(LITTLE_MEMORY).is_none() {
        return;
    }
    const ELEMENTS: usize = 64 << 20;
    let device = WgpuDevice::default();
    let before = tensor(&[1.0, 2.0]);
    Wgpu::sync(&device).expect("a device");
    let mut held = Vec::new();
    let error = loop {
        held.push(full([ELEMENTS], held.len() as f64));
        match Wgpu::sync(&device) {
            Ok(()) => assert!(held.len() < 64, "3 GiB hold no more than a dozen of 256 MiB"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("no memory of 268435456 bytes for a tensor"), "{error}");
    println!("{} tensors, then {error}", held.len());
    // To be read, a tensor takes as much again: where that is not to be had, its reader is told and nobody else, and where nobody uses
    // what has it, the tensor is read.
    refused(Wgpu::into_data(held[1].clone()), &["no memory of 268435456 bytes to read tensors by"]);
    Wgpu::sync(&device).expect("nothing else is lost");
    held.truncate(2);
    let read = floats(held[1].clone());
    assert!(read.len() == ELEMENTS && read.iter().all(|&x| x == 1.0));
    drop(read);
    // What there is serves on, and so does what is given back: to tensors of its size, and of others.
    assert_eq!(floats(Wgpu::binary(BinaryOp::Add, before, tensor(&[3.0, 4.0]))), [4.0, 6.0]);
    held.truncate(2);
    held.push(full([ELEMENTS + ELEMENTS / 4], 7.0));
    Wgpu::sync(&device).expect("memory was given back");
    let last = Wgpu::slice(
        held.pop().expect("a tensor"),
        &[SliceRange { start: ELEMENTS, end: ELEMENTS + 2, step: 1 }],
    );
    assert_eq!(floats(last), [7.0, 7.0]);
}
