//! What a device cannot do is refused by name, and the process lives on.

use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{DType, Expression, ReduceOp, Scalar, Shape, Step, UnaryOp};
use kiln_wgpu::{WgpuDevice, init};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Wgpu = kiln_wgpu::Wgpu;

fn message(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it should be refused");
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => (*payload.downcast::<&str>().expect("a message")).to_owned(),
    }
}

#[test]
fn a_device_that_is_not_there_says_which_there_are() {
    let error = init(&WgpuDevice::DiscreteGpu(99)).expect_err("nobody has a hundred GPUs").to_string();
    assert!(error.contains("DiscreteGpu(99): no such GPU was found"), "{error}");
}

/// Above the backend, `Tensor` holds such dtypes in others.
#[test]
fn dtypes_that_shaders_have_not_are_refused() {
    let x = || Wgpu::full([2].into(), Scalar::Float(2.0), DType::F32, &WgpuDevice::default());
    for dtype in [DType::BF16, DType::I16, DType::I8, DType::U16, DType::U8] {
        assert!(!Wgpu::supports(&WgpuDevice::default(), dtype), "{dtype}");
        let wanted = format!("the device has no {dtype}");
        assert_eq!(message(|| drop(Wgpu::cast(x(), dtype))), wanted);
        let there_and_back =
            Expression::new(vec![Step::Input(0), Step::Cast(dtype, 0), Step::Cast(DType::F32, 1)]);
        assert_eq!(message(|| drop(Wgpu::elementwise(&there_and_back, [x()].into(), &[]))), wanted);
    }
}

#[test]
fn tensors_with_too_many_elements_are_refused() {
    // A broadcast takes no memory; its copy would, and its sum counts.
    let wide = || {
        let one = Wgpu::full([1, 1].into(), Scalar::Float(1.0), DType::F32, &WgpuDevice::default());
        Wgpu::expand(one, Shape::from([1 << 16, 1 << 16]))
    };
    let copied = message(|| drop(Wgpu::unary(UnaryOp::Neg, wide())));
    assert!(copied.contains("[65536, 65536] has more elements than the 2147483647"), "{copied}");
    let summed = message(|| drop(Wgpu::reduce(ReduceOp::Sum, wide(), &[0, 1])));
    assert!(summed.contains("[65536, 65536] has more elements than the 4278190079"), "{summed}");
    let two = Wgpu::full([2].into(), Scalar::Float(2.0), DType::F32, &WgpuDevice::default());
    assert_eq!(two.shape().dims, [2]);
    assert_eq!(Wgpu::into_data(two).expect("a device").to_vec::<f32>().expect("floats"), [2.0, 2.0]);
}
