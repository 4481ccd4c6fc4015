//! What warps do together: matrix products and convolutions by tensor cores, on the host's form of the same tiles, and joins of numbers.
//! Numbers are small and whole, so that sums are exact in any order, and every dtype rounds results alike.

#![cfg(target_os = "linux")]

mod host;

use host::numbers::{floats, tensor};
use host::{faults, mend};
use kiln_cuda::{Cuda, CudaDevice, set_tf32};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::Backend;
use kiln_tensor::compose::{Quantized, ZeroPoint};
use kiln_tensor::{Activation, BinaryOp, ConvOptions, DType, ReduceOp, Scalar, TensorData};
use std::sync::Mutex;

const DEVICE: CudaDevice = CudaDevice { index: 1 };

/// More rows and columns than a tile, and a depth that ends within a word and a step.
fn ragged<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    B::matmul(tensor::<B>(&[70, 77], 1, dtype, device), tensor::<B>(&[77, 67], 2, dtype, device))
}

/// A batch on one side, the other turned, and what follows.
fn finished<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let x = tensor::<B>(&[2, 19, 16], 1, dtype, device);
    let w = B::permute(tensor::<B>(&[18, 16], 2, dtype, device), &[1, 0]);
    let y = B::linear(x, &w, Some(&tensor::<B>(&[18], 3, dtype, device)), Some(Activation::Relu));
    B::binary(BinaryOp::Add, y, tensor::<B>(&[2, 19, 18], 4, dtype, device))
}

/// Windows with steps, gaps and unequal borders, in groups.
fn convolved<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let x = tensor::<B>(&[2, 6, 9, 11], 1, dtype, device);
    let weight = tensor::<B>(&[34, 3, 3, 2], 2, dtype, device);
    let options = ConvOptions {
        stride: [1, 2].into(),
        padding: [(1, 0), (2, 1)].into(),
        dilation: [2, 1].into(),
        groups: 2,
    };
    let bias = Some(tensor::<B>(&[34], 3, dtype, device));
    B::conv_activated(x, weight, bias, Activation::Relu, &options)
}

/// What windows with steps and gaps spread over an image, in groups.
fn gathered<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let gradient = tensor::<B>(&[1, 20, 7, 5], 1, dtype, device);
    let weight = tensor::<B>(&[20, 17, 2, 3], 2, dtype, device);
    let options = ConvOptions {
        stride: [1, 2].into(),
        padding: [(1, 0), (2, 1)].into(),
        dilation: [2, 1].into(),
        groups: 2,
    };
    B::conv_input_gradient(gradient, weight, &[1, 34, 8, 9].into(), &options)
}

/// The gradient of the weight of such a convolution.
fn weights<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (x, gradient) =
        (tensor::<B>(&[2, 6, 8, 9], 1, dtype, device), tensor::<B>(&[2, 34, 7, 5], 2, dtype, device));
    let options = ConvOptions {
        stride: [1, 2].into(),
        padding: [(1, 0), (2, 1)].into(),
        dilation: [2, 1].into(),
        groups: 2,
    };
    B::conv_weight_gradient(x, gradient, &[34, 3, 2, 3].into(), &options)
}

/// Where rows end that are in three groups of unlike size, of which one has none, with some behind them all.
fn ends<B: Backend>(device: &B::Device) -> B::Primitive {
    B::from_data(TensorData::new(vec![50_i64, 50, 83], [3]), device)
}

/// Rows times the matrix of their group.
fn grouped<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (x, weight) = (tensor::<B>(&[90, 77], 1, dtype, device), tensor::<B>(&[3, 77, 67], 2, dtype, device));
    B::grouped_matmul(x, weight, ends::<B>(device))
}

/// The gradient of such matrices.
fn matrices<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (gradient, x) = (tensor::<B>(&[90, 67], 1, dtype, device), tensor::<B>(&[90, 77], 2, dtype, device));
    B::grouped_matmul_weight_gradient(gradient, x, ends::<B>(device))
}

type Compute<B> = fn(DType, &<B as Backend>::Device) -> <B as Backend>::Primitive;

const CASES: [(&str, Compute<Cuda>, Compute<NdArray>); 7] = [
    ("ragged", ragged::<Cuda>, ragged::<NdArray>),
    ("finished", finished::<Cuda>, finished::<NdArray>),
    ("convolved", convolved::<Cuda>, convolved::<NdArray>),
    ("gathered", gathered::<Cuda>, gathered::<NdArray>),
    ("weights", weights::<Cuda>, weights::<NdArray>),
    ("grouped", grouped::<Cuda>, grouped::<NdArray>),
    ("matrices", matrices::<Cuda>, matrices::<NdArray>),
];

/// Who asks for what the device was asked for: one test at a time.
static ASKING: Mutex<()> = Mutex::new(());

/// The result, and how many kernels of warps computed it.
fn by_warps(own: Compute<Cuda>, dtype: DType) -> (Vec<f32>, usize) {
    let _asking = ASKING.lock();
    faults(&DEVICE, |faults| faults.asked = Some(Vec::new()));
    let found = floats::<Cuda>(own(dtype, &DEVICE));
    let asked = faults(&DEVICE, |faults| faults.asked.take()).expect("what was asked for");
    mend(&DEVICE);
    (found, asked.iter().filter(|what| what.starts_with("launch") && what.ends_with("[128, 1]")).count())
}

#[test]
fn warps_multiply_as_the_cpu_does() {
    let cpu = <NdArray as Backend>::Device::default();
    for (name, own, expected) in CASES {
        for dtype in [DType::F16, DType::BF16] {
            let (found, kernels) = by_warps(own, dtype);
            assert_eq!(found, floats::<NdArray>(expected(dtype, &cpu)), "{name}, {dtype}");
            assert_eq!(kernels, 1, "{name}, {dtype}");
        }
        // Floats of 32 bits are rounded to TF32 where that was asked for alone.
        for (allowed, wanted) in [(true, 1), (false, 0)] {
            set_tf32(&DEVICE, allowed).expect("a device");
            let (found, kernels) = by_warps(own, DType::F32);
            set_tf32(&DEVICE, false).expect("a device");
            assert_eq!(found, floats::<NdArray>(expected(DType::F32, &cpu)), "{name}");
            assert_eq!(kernels, wanted, "{name}, tf32 {allowed}");
        }
    }
    // Neither are integers and 64-bit floats.
    for dtype in [DType::F64, DType::I32] {
        assert_eq!(by_warps(ragged::<Cuda>, dtype).1, 0, "{dtype}");
    }
}

/// Bytes with zero points, and what follows their sums: read four at a time on the left, and one by one.
fn of_bytes<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (x, w) = (tensor::<B>(&[20, 68], 1, dtype, device), tensor::<B>(&[68, 18], 2, DType::I8, device));
    let x = Quantized { values: x, zero: ZeroPoint::Tensor(tensor::<B>(&[1, 1], 4, dtype, device)) };
    let y = B::matmul_integer(x, Quantized { values: w, zero: ZeroPoint::Number(0) });
    B::binary_scalar(BinaryOp::Mul, B::cast(y, DType::F32), Scalar::Float(0.5))
}

/// Windows of bytes, whose border is a zero point.
fn of_images_of_bytes<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let x = tensor::<B>(&[2, 4, 9, 11], 1, dtype, device);
    let weight = tensor::<B>(&[34, 2, 3, 2], 2, DType::I8, device);
    let options = ConvOptions {
        stride: [1, 2].into(),
        padding: [(1, 0), (2, 1)].into(),
        dilation: [2, 1].into(),
        groups: 2,
    };
    let x = Quantized { values: x, zero: ZeroPoint::Number(3) };
    let zero = ZeroPoint::Tensor(tensor::<B>(&[34, 1, 1, 1], 5, DType::I8, device));
    let y = B::conv_integer(x, Quantized { values: weight, zero }, &options);
    B::binary_scalar(BinaryOp::Mul, B::cast(y, DType::F32), Scalar::Float(0.5))
}

#[test]
fn warps_multiply_bytes_as_the_cpu_does() {
    let cpu = <NdArray as Backend>::Device::default();
    let cases: [(&str, Compute<Cuda>, Compute<NdArray>); 2] = [
        ("product", of_bytes::<Cuda>, of_bytes::<NdArray>),
        ("convolution", of_images_of_bytes::<Cuda>, of_images_of_bytes::<NdArray>),
    ];
    for (name, own, expected) in cases {
        for dtype in [DType::U8, DType::I8] {
            let (found, kernels) = by_warps(own, dtype);
            assert_eq!(found, floats::<NdArray>(expected(dtype, &cpu)), "{name}, {dtype}");
            assert_eq!(kernels, 1, "{name}, {dtype}");
        }
    }
}

#[test]
fn what_is_no_number_goes_through() {
    let cpu = <NdArray as Backend>::Device::default();
    let device = CudaDevice { index: 0 };
    for special in [f32::NAN, f32::INFINITY] {
        let side = |of: usize| {
            let mut values = vec![1.0_f32; of * 20];
            values[25] = special;
            TensorData::new(values, [of, 20])
        };
        let found = Cuda::<f32, i64>::cast(Cuda::<f32, i64>::from_data(side(20), &device), DType::F16);
        let wanted = NdArray::<f32>::cast(NdArray::<f32>::from_data(side(20), &cpu), DType::F16);
        let found = floats::<Cuda>(Cuda::<f32, i64>::matmul(found.clone(), found));
        let wanted = floats::<NdArray>(NdArray::<f32>::matmul(wanted.clone(), wanted));
        let same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
        assert!(found.iter().zip(&wanted).all(same), "{special}");
    }
}

fn softmax<B: Backend>(shape: [usize; 2], dtype: DType, device: &B::Device) -> B::Primitive {
    B::softmax(tensor::<B>(&shape, 1, dtype, device), 1)
}

fn reduced<B: Backend>(op: ReduceOp, dtype: DType, device: &B::Device) -> B::Primitive {
    B::reduce(op, tensor::<B>(&[3, 77], 2, dtype, device), &[1])
}

/// Short rows are a warp's, eight of them a workgroup's; longer ones a workgroup's.
#[test]
fn rows_are_as_on_the_cpu_whoever_has_them() {
    let cpu = <NdArray as Backend>::Device::default();
    let cases =
        [([1, 1], 1), ([7, 3], 1), ([8, 32], 1), ([19, 70], 3), ([9, 256], 2), ([9, 257], 9), ([3, 1000], 3)];
    for (shape, blocks) in cases {
        for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F64, 1e-6), (DType::F16, 1e-3)] {
            let own = || softmax::<Cuda>(shape, dtype, &DEVICE);
            let _asking = ASKING.lock();
            faults(&DEVICE, |faults| faults.asked = Some(Vec::new()));
            let found = floats::<Cuda>(own());
            let asked = faults(&DEVICE, |faults| faults.asked.take()).expect("what was asked for");
            mend(&DEVICE);
            let launch = format!("launch [{blocks}, 1, 1] × [256, 1]");
            assert!(asked.contains(&launch), "{shape:?}, {dtype}: {asked:?}");
            let expected = floats::<NdArray>(softmax::<NdArray>(shape, dtype, &cpu));
            let differs = |(x, y): (&f32, &f32)| (x - y).abs() > tolerance;
            assert!(!found.iter().zip(&expected).any(differs), "{shape:?}, {dtype}: {found:?}");
            assert_eq!(floats::<Cuda>(own()), found, "{shape:?}, {dtype}: again");
        }
    }
}

/// Numbers of two words and of one, and those that are no numbers.
#[test]
fn warps_join_numbers_of_every_size() {
    let cpu = <NdArray as Backend>::Device::default();
    for dtype in [DType::F32, DType::F64, DType::I64, DType::I32, DType::BF16, DType::U8] {
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
            let found = reduced::<Cuda>(op, dtype, &DEVICE);
            let expected = reduced::<NdArray>(op, dtype, &cpu);
            assert_eq!(floats::<Cuda>(found), floats::<NdArray>(expected), "{op:?}, {dtype}");
        }
    }
    // Short lanes are a warp's each, eight of them a workgroup's: so many that some warps of the last one have none.
    for (lanes, length, blocks) in [(1, 16, 1), (13, 33, 2), (300, 64, 38), (3, 256, 1)] {
        let numbers = |n: usize| (n * 31 % 1009 % 9) as f32 - 4.0;
        let data = || TensorData::new((0..lanes * length).map(numbers).collect::<Vec<_>>(), [lanes, length]);
        let x = Cuda::<f32, i64>::from_data(data(), &DEVICE);
        let _asking = ASKING.lock();
        faults(&DEVICE, |faults| faults.asked = Some(Vec::new()));
        let found = floats::<Cuda>(Cuda::<f32, i64>::reduce(ReduceOp::Sum, x, &[1]));
        let asked = faults(&DEVICE, |faults| faults.asked.take()).expect("what was asked for");
        mend(&DEVICE);
        let launch = format!("launch [{blocks}, 1, 1] × [256, 1]");
        assert!(asked.contains(&launch), "{lanes} lanes of {length}: {asked:?}");
        let expected = <NdArray>::reduce(ReduceOp::Sum, <NdArray>::from_data(data(), &cpu), &[1]);
        assert_eq!(found, floats::<NdArray>(expected), "{lanes} lanes of {length}");
    }
    // Wherever it is among the lanes.
    for place in [0, 31, 32, 299] {
        let mut values = vec![1.0_f32; 300];
        values[place] = f32::NAN;
        let x = Cuda::<f32, i64>::from_data(TensorData::new(values, [1, 300]), &DEVICE);
        for op in [ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum] {
            assert!(
                floats::<Cuda>(Cuda::<f32, i64>::reduce(op, x.clone(), &[1]))[0].is_nan(),
                "{op:?}, {place}"
            );
        }
    }
}
