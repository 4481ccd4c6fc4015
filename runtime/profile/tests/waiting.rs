//! Work that a backend puts off until its result is read: it is told as what it is, at the place that it is of.

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_profile::{Profiled, ProfiledOperation, Recorder, scope};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{Activation, ConvOptions, DType, PoolOp, PoolOptions, Precision, TensorData, UnaryOp};

/// What does the work.
type Inner = NdArray;
type B = Profiled<Inner>;

fn ones(dims: &[usize]) -> NdArrayTensor {
    B::full(dims.into(), 1.0.into(), DType::F32, &NdArrayDevice::Cpu)
}

/// A 1x1 convolution to an image so large that NdArray lets it wait, and what `then` does with the result. `then` is told whether that waits.
fn recorded(then: impl Fn(NdArrayTensor)) -> Vec<ProfiledOperation> {
    let (x, weight) = (ones(&[1, 8, 130, 115]), B::prepare(ones(&[40, 8, 1, 1])));
    let options = ConvOptions::new([1; 2], [0; 2], [1; 2], 1);
    let mut recorder = Recorder::default();
    recorder.pass(|| {
        let y = scope("points", None, (x,), |(x,)| {
            B::conv_activated(x, weight, None, Activation::Silu, &options)
        });
        assert!(y.waiting().is_some());
        scope("reader", None, (y,), |(y,)| then(y));
    });
    let (operations, passes) = recorder.finish();
    // Each operation once, in order.
    assert!(passes[0].calls.iter().map(|call| call.operation).eq(0..operations.len()), "{operations:#?}");
    operations
}

fn names(operations: &[ProfiledOperation]) -> Vec<(&str, &str)> {
    operations.iter().map(|operation| (operation.path.as_str(), operation.name.as_str())).collect()
}

const POINTS: u64 = 40 * 130 * 115;

#[test]
fn together_with_the_depthwise_convolution_that_it_waits_for() {
    let weight = B::prepare(ones(&[40, 1, 3, 3]));
    let options = ConvOptions::new([2; 2], [1; 2], [1; 2], 40);
    let operations = recorded(|y| drop(B::conv(y, weight.clone(), None, &options)));
    let both = "conv2d 1×1 + silu, then conv2d 3×3, depthwise, stride 2";
    assert_eq!(names(&operations), [("points", "conv2d 1×1 + silu, put off"), ("reader", both)]);
    let results = 40 * 65 * 58;
    assert_eq!((operations[0].flops, operations[0].bytes), (Some(0), Some(0)));
    assert_eq!(operations[1].flops, Some(POINTS * (2 * 8 + 1) + results * 2 * 9));
    // What is between them is never whole.
    assert_eq!(operations[1].bytes, Some(4 * (8 * 130 * 115 + 40 * 8 + 40 * 9 + results)));
}

fn ramp(dims: &[usize], seed: usize) -> NdArrayTensor {
    let count: usize = dims.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i + seed) * 7919 % 1009) as f32 / 1009.0 - 0.5).collect();
    Inner::from_data(TensorData::new(values, dims.to_vec()), &NdArrayDevice::Cpu)
}

fn values(x: NdArrayTensor) -> Vec<f32> {
    Inner::into_data(x).expect("the data").iter::<f32>().collect()
}

/// What is recorded computes what it does otherwise: a convolution that rounds its operands gets rounded results.
#[test]
fn for_a_convolution_that_rounds_it() {
    fn block<B: Backend<Primitive = NdArrayTensor>>() -> Vec<f32> {
        let weight = |seed| Inner::prepare(ramp(&[40, 40, 1, 1], seed));
        let options = ConvOptions::new([1; 2], [0; 2], [1; 2], 1);
        let x = B::conv(ramp(&[1, 40, 5, 6], 1), weight(2), None, &options);
        assert!(x.waiting().is_some());
        let y = B::conv(x.clone(), weight(3), None, &options);
        let y = B::conv_added(y, weight(4), None, x, Some(Activation::Relu), &options);
        values(y)
    }
    let mut recorder = Recorder::default();
    let mut recorded = Vec::new();
    recorder.pass(|| recorded = Precision::Bf16.run(block::<B>));
    assert_eq!(recorded, Precision::Bf16.run(block::<Inner>));
}

/// Maxima of rounded results are rounded for such a convolution alone: others, and who wants positions too, get f32 here as otherwise.
#[test]
fn for_maxima_and_who_reads_them() {
    fn maxima<B: Backend<Primitive = NdArrayTensor>>() -> Vec<Vec<f32>> {
        let weight = |seed| Inner::prepare(ramp(&[40, 40, 1, 1], seed));
        let options = ConvOptions::new([1; 2], [0; 2], [1; 2], 1);
        let windows = PoolOptions {
            kernel: [2; 2].into(),
            stride: [2; 2].into(),
            padding: [(0, 0); 2].into(),
            dilation: [1; 2].into(),
            ceil_mode: false,
        };
        let conv = |x, seed| B::conv(x, weight(seed), None, &options);
        let x = || conv(ramp(&[1, 40, 5, 6], 1), 2);
        let pooled = || B::pool(PoolOp::Max, x(), &windows);
        let with_positions = B::max_pool_with_indices(x(), &windows).0;
        [conv(pooled(), 3), B::unary(UnaryOp::Neg, pooled()), with_positions].map(values).into()
    }
    let mut recorder = Recorder::default();
    let mut recorded = Vec::new();
    recorder.pass(|| recorded = Precision::Bf16.run(maxima::<B>));
    assert_eq!(recorded, Precision::Bf16.run(maxima::<Inner>));
}

#[test]
fn before_any_other_reader() {
    for read in [
        (|y| drop(B::unary(UnaryOp::Exp, y))) as fn(NdArrayTensor),
        |y| drop(B::permute(y, &[0, 2, 3, 1])),
        |y| drop(B::binary(kiln_tensor::BinaryOp::Add, y.clone(), y)),
    ] {
        let operations = recorded(read);
        assert_eq!(
            names(&operations)[..2],
            [("points", "conv2d 1×1 + silu, put off"), ("points", "conv2d 1×1 + silu")]
        );
        assert_eq!(operations[1].flops, Some(POINTS * (2 * 8 + 1)));
        assert_eq!(operations[1].bytes, Some(4 * (8 * 130 * 115 + 40 * 8 + POINTS)));
        assert_eq!((operations.len(), operations[2].path.as_str()), (3, "reader"));
    }
}
