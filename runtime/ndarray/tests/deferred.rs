//! 1x1 convolutions to large images, which may wait for the depthwise convolution that reads their result: whoever reads it sees the same.

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_tensor::backend::Backend;
use kiln_tensor::{Activation, BinaryOp, ConvOptions, TensorData};

type B = NdArray;

const CHANNELS: usize = 40;
const SIZE: [usize; 2] = [130, 115];

fn noise(dims: &[usize], seed: usize) -> NdArrayTensor {
    let count: usize = dims.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i + seed) * 7919 % 1009) as f32 / 1009.0 - 0.5).collect();
    B::from_data(TensorData::new(values, dims.to_vec()), &NdArrayDevice::Cpu)
}

fn values(x: NdArrayTensor) -> Vec<f32> {
    B::into_data(x).expect("the data").iter::<f32>().collect()
}

/// A 1x1 convolution, and a depthwise one of what it yields, with weights that are kept or not: those that are not never wait.
struct Layers {
    points: (NdArrayTensor, NdArrayTensor),
    depthwise: (NdArrayTensor, NdArrayTensor),
}

impl Layers {
    fn new(kept: bool) -> Self {
        let weight =
            |dims: &[usize], seed| if kept { B::prepare(noise(dims, seed)) } else { noise(dims, seed) };
        Self {
            points: (weight(&[CHANNELS, 8, 1, 1], 1), noise(&[CHANNELS], 2)),
            depthwise: (weight(&[CHANNELS, 1, 3, 3], 3), noise(&[CHANNELS], 4)),
        }
    }

    fn points(&self, x: &NdArrayTensor) -> NdArrayTensor {
        let ((weight, bias), options) = (self.points.clone(), ConvOptions::new([1; 2], [0; 2], [1; 2], 1));
        B::conv_activated(x.clone(), weight, Some(bias), Activation::Silu, &options)
    }

    fn depthwise(&self, x: NdArrayTensor) -> NdArrayTensor {
        let ((weight, bias), options) =
            (self.depthwise.clone(), ConvOptions::new([2; 2], [1; 2], [1; 2], CHANNELS));
        B::conv_activated(x, weight, Some(bias), Activation::Relu, &options)
    }
}

/// Holds what layers that may wait yield against what layers that cannot do.
#[track_caller]
fn check(compute: impl Fn(&Layers, &NdArrayTensor) -> Vec<NdArrayTensor>) {
    let x = noise(&[1, 8, SIZE[0], SIZE[1]], 5);
    let [got, want] = [true, false].map(|kept| compute(&Layers::new(kept), &x));
    assert_eq!(got.len(), want.len());
    for (got, want) in got.into_iter().zip(want) {
        assert!(values(got) == values(want));
    }
}

#[test]
fn a_depthwise_convolution_alone_reads_it() {
    check(|layers, x| vec![layers.depthwise(layers.points(x))]);
}

#[test]
fn others_read_it_too() {
    check(|layers, x| {
        let y = layers.points(x);
        vec![layers.depthwise(y.clone()), B::activation(Activation::Tanh, y.clone()), y]
    });
}

#[test]
fn it_is_changed_in_place_or_read_as_a_view() {
    check(|layers, x| {
        let turned = |x| B::permute(x, &[0, 1, 3, 2]);
        vec![
            B::activation(Activation::Tanh, layers.points(x)),
            B::binary(BinaryOp::Add, layers.points(x), layers.points(x)),
            layers.depthwise(turned(layers.points(x))),
            layers.points(x),
        ]
    });
}

#[test]
fn one_of_another_or_of_a_changed_image() {
    check(|layers, x| {
        // What a convolution waits with is not what is written to meanwhile.
        let x = B::activation(Activation::Affine { alpha: 2.0, beta: 0.0 }, x.clone());
        let y = layers.points(&x);
        let x = B::activation(Activation::Affine { alpha: 0.5, beta: 1.0 }, x);
        let weight = noise(&[CHANNELS, CHANNELS, 1, 1], 6);
        let z = B::conv(
            layers.points(&x),
            B::prepare(weight),
            None,
            &ConvOptions::new([1; 2], [0; 2], [1; 2], 1),
        );
        vec![layers.depthwise(y), layers.depthwise(z)]
    });
}
