//! Work that a backend puts off until its result is read: it is told as what it is, at the place that it is of.

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_profile::{Profiled, ProfiledOperation, Recorder, scope};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{Activation, ConvOptions, DType, UnaryOp};

type B = Profiled<NdArray>;

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
