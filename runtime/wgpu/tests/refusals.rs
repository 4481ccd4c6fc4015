//! What a device cannot do is refused by name, and the process lives on.

use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{BinaryOp, CompareOp, DType, Expression, Scalar, Shape, Step, TensorData};
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
    for dtype in
        [DType::F64, DType::BF16, DType::I64, DType::I16, DType::I8, DType::U64, DType::U16, DType::U8]
    {
        assert!(!Wgpu::supports(&WgpuDevice::default(), dtype), "{dtype}");
        let wanted = format!("the device has no {dtype}");
        assert_eq!(message(|| drop(Wgpu::cast(x(), dtype))), wanted);
        let there_and_back =
            Expression::new(vec![Step::Input(0), Step::Cast(dtype, 0), Step::Cast(DType::F32, 1)]);
        assert_eq!(message(|| drop(Wgpu::elementwise(&there_and_back, vec![x()], &[]))), wanted);
    }
}

#[test]
fn tensors_with_too_many_elements_are_refused() {
    let full = || {
        let shape = Shape::from([1 << 16, 1 << 16]);
        let one = Wgpu::full([1, 1].into(), Scalar::Float(1.0), DType::F32, &WgpuDevice::default());
        // A broadcast takes no memory; its copy would.
        let wide = Wgpu::expand(one, shape);
        Wgpu::unary(kiln_tensor::UnaryOp::Neg, wide);
    };
    let message = message(full);
    assert!(message.contains("[65536, 65536] has more than 2^31 elements"), "{message}");
    let two = Wgpu::full([2].into(), Scalar::Float(2.0), DType::F32, &WgpuDevice::default());
    assert_eq!(two.shape().dims, [2]);
    assert_eq!(Wgpu::into_data(two).expect("a device").to_vec::<f32>().expect("floats"), [2.0, 2.0]);
}

fn integers(dtype: DType) -> <Wgpu as Backend>::Primitive {
    let numbers = TensorData::from([-5_i64, 0, 7]).convert_dtype(dtype);
    Wgpu::from_data(numbers, &WgpuDevice::default())
}

fn read<T: kiln_tensor::Element>(tensor: <Wgpu as Backend>::Primitive) -> Vec<T> {
    Wgpu::into_data(tensor).expect("a device").iter().collect()
}

/// Integers of 32 bits stand in for those of 64: none wraps unseen.
#[test]
fn numbers_that_32_bits_do_not_hold_are_refused() {
    let device = WgpuDevice::default();
    let large = Scalar::Int(1 << 40);
    let full =
        |number, dtype| message(|| drop(Wgpu::full([2].into(), number, dtype, &WgpuDevice::default())));
    let text = full(large, DType::I32);
    assert_eq!(
        text,
        "full: i32, which stands in for wider integers on this device, does not hold 1099511627776"
    );
    assert!(full(Scalar::Int(-(1 << 40)), DType::U32).contains("u32, which stands in"));
    assert!(full(Scalar::UInt(u64::MAX), DType::U32).contains("does not hold 18446744073709551615"));
    let range = |start, end, step| {
        message(|| drop(Wgpu::arange(start, end, step, DType::I32, &WgpuDevice::default())))
    };
    assert!(range(1 << 40, (1 << 40) + 2, 1).starts_with("arange: i32"));
    assert!(range(0, 3 << 30, 1 << 30).contains(
        "arange: i32, which stands in for wider integers on this device, does not hold 2147483648"
    ));
    assert_eq!(read::<i64>(Wgpu::arange(5, 1 << 40, 1 << 40, DType::I32, &device)), [5]);
    assert_eq!(read::<i64>(Wgpu::arange(0, 1 << 31, 1 << 30, DType::I32, &device)), [0, 1 << 30]);
    assert!(read::<i64>(Wgpu::arange(1 << 40, 0, 1, DType::I32, &device)).is_empty());
    for op in [BinaryOp::Add, BinaryOp::Mul, BinaryOp::BitwiseAnd, BinaryOp::Max, BinaryOp::Pow] {
        let text = message(|| drop(Wgpu::binary_scalar(op, integers(DType::I32), large)));
        assert!(text.contains("i32, which stands in for wider integers"), "{text}");
    }
    let program =
        |steps| Expression::new([vec![Step::Input(0), Step::Constant(large, DType::I32)], steps].concat());
    let text = message(|| {
        let sum = program(vec![Step::Binary(BinaryOp::Add, 0, 1)]);
        drop(Wgpu::elementwise(&sum, vec![integers(DType::I32)], &[]));
    });
    assert!(text.starts_with("elementwise: i32, which stands in"), "{text}");
    let text = message(|| {
        let told = vec![Step::Input(0), Step::Parameter(0, DType::I32), Step::Binary(BinaryOp::Max, 0, 1)];
        drop(Wgpu::elementwise(&Expression::new(told), vec![integers(DType::I32)], &[large]));
    });
    assert!(text.starts_with("elementwise: i32, which stands in"), "{text}");
    // Nothing of that broke the device.
    assert_eq!(read::<i64>(Wgpu::full([2].into(), Scalar::Int(-7), DType::I32, &device)), [-7, -7]);
}

/// What 32 bits hold is computed, whatever it is compared with.
#[test]
fn numbers_beyond_32_bits_are_bounds_and_compare() {
    let (above, below) = (Scalar::Int(1 << 40), Scalar::Int(-(1 << 40)));
    for number in [above, Scalar::Float(f64::INFINITY), Scalar::Float(1e12)] {
        let bounded = Wgpu::binary_scalar(BinaryOp::Min, integers(DType::I32), number);
        assert_eq!(read::<i64>(bounded), [-5, 0, 7]);
    }
    for number in [below, Scalar::Float(f64::NEG_INFINITY), Scalar::Float(-1e12)] {
        let bounded = Wgpu::binary_scalar(BinaryOp::Max, integers(DType::I32), number);
        assert_eq!(read::<i64>(bounded), [-5, 0, 7]);
    }
    let extremes = || {
        let numbers = TensorData::from([i32::MIN, 0, i32::MAX]);
        Wgpu::from_data(numbers, &WgpuDevice::default())
    };
    for &op in CompareOp::ALL {
        for (number, is_lower) in [(above, true), (below, false)] {
            let expected = match op {
                CompareOp::Equal => false,
                CompareOp::NotEqual => true,
                CompareOp::Lower | CompareOp::LowerEqual => is_lower,
                CompareOp::Greater | CompareOp::GreaterEqual => !is_lower,
            };
            assert_eq!(read::<bool>(Wgpu::compare_scalar(op, extremes(), number)), [expected; 3], "{op:?}");
            // The same within a program, from either side; and what no program yields but compares with.
            let constant = Step::Constant(number, DType::I32);
            let steps = vec![Step::Input(0), constant, Step::Compare(op, 0, 1), Step::Compare(op, 1, 0)];
            let program = Expression { steps, outputs: vec![2, 3] };
            let results = Wgpu::elementwise(&program, vec![extremes()], &[]);
            let found: Vec<Vec<bool>> = results.into_iter().map(read).collect();
            let turned =
                if matches!(op, CompareOp::Equal | CompareOp::NotEqual) { expected } else { !expected };
            assert_eq!(found, [[expected; 3], [turned; 3]], "{op:?}");
        }
    }
    let steps = vec![
        Step::Input(0),
        Step::Constant(below, DType::I32),
        Step::Constant(above, DType::I32),
        Step::Binary(BinaryOp::Max, 0, 1),
        Step::Binary(BinaryOp::Min, 2, 3),
    ];
    let [bounded] = <[_; 1]>::try_from(Wgpu::elementwise(&Expression::new(steps), vec![extremes()], &[]))
        .expect("one result");
    assert_eq!(read::<i64>(bounded), [i64::from(i32::MIN), 0, i64::from(i32::MAX)]);
    // Unsigned ones reach further up.
    let three_billion = Scalar::Int(3_000_000_000);
    let full = Wgpu::full([1].into(), three_billion, DType::U32, &WgpuDevice::default());
    assert_eq!(read::<i64>(full), [3_000_000_000]);
}
