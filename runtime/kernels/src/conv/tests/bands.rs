//! 1x1 convolutions with the depthwise ones that follow them, beside both one after the other.

use crate::conv::{ConvLayer, ConvShape, ConvWeight, PackedConv, conv, pointwise_depthwise};
use crate::gemm::noise;
use crate::simd::forced::at_each_level;
use kiln_types::{Activation, ConvOptions};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Whether both ways yield the same, to the bit.
fn check(points: &ConvShape, depthwise: &ConvShape, level: &dyn core::fmt::Debug) {
    let [first, second] = [points, depthwise].map(|shape| noise(shape.weight_len(), 2));
    let [first, second] = [(points, &first), (depthwise, &second)].map(|(s, w)| PackedConv::new(s, w));
    let bias = noise(points.out_channels, 3);
    let layer = |shape, weight, activation| ConvLayer { shape, weight, bias: Some(&bias), activation };
    let first = layer(points, &first, Some(Activation::Silu));
    let second = layer(depthwise, &second, Some(Activation::HardSwish));
    let size = |shape: &ConvShape| shape.output_dims().iter().product::<usize>();
    let x = noise(points.batch * points.in_channels * points.windows.input_len(), 1);

    let (mut between, mut want) = (vec![0.0; size(points)], vec![0.0; size(depthwise)]);
    let run = |layer: &ConvLayer<'_>, x: &[f32], to: &mut [f32]| {
        conv(layer.shape, x, ConvWeight::Packed(layer.weight), layer.bias, layer.activation, false, to);
    };
    run(&first, &x, &mut between);
    run(&second, &between, &mut want);
    let mut got = vec![f32::NAN; want.len()];
    pointwise_depthwise(&first, &second, &x, &mut got);
    let differs = want.iter().zip(&got).position(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(differs, None, "{points:?}, {depthwise:?}, {level:?}");
}

fn points(batch: usize, ic: usize, oc: usize, image: [usize; 2]) -> ConvShape {
    ConvShape::new(
        &[batch, ic, image[0], image[1]],
        &[oc, ic, 1, 1],
        &ConvOptions::new([1, 1], [0, 0], [1, 1], 1),
    )
}

/// Images of several bands, and of one line a band.
#[test]
fn bands_equal_whole_images() {
    for (oc, image, kernel, stride) in
        [(40, [130, 113], 3, 2), (144, [57, 56], 5, 1), (1030, [9, 112], 3, 1), (64, [40, 200], 7, 3)]
    {
        let first = points(1, 16, oc, image);
        let options = ConvOptions::new([stride; 2], [kernel / 2; 2], [1, 1], oc);
        let second = ConvShape::new(&[1, oc, image[0], image[1]], &[oc, 1, kernel, kernel], &options);
        check(&first, &second, &"threads");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn bands_of_random_shapes_equal_whole_images(
        (batch, ic, oc) in (1usize..3, 1usize..40, 2usize..80),
        image in (1usize..16, 2usize..16),
        (kernel, stride, dilation) in ((1usize..6, 1usize..6), (1usize..4, 1usize..4), (1usize..3, 1usize..3)),
        padding in ((0usize..5, 0usize..5), (0usize..5, 0usize..5)),
    ) {
        let extents = [(kernel.0 - 1) * dilation.0 + 1, (kernel.1 - 1) * dilation.1 + 1];
        let height = image.0.max(extents[0].saturating_sub(padding.0.0 + padding.0.1));
        let width = image.1.max(extents[1].saturating_sub(padding.1.0 + padding.1.1));
        let first = points(batch, ic, oc, [height, width]);
        let options = ConvOptions {
            stride: [stride.0, stride.1].into(),
            padding: [padding.0, padding.1].into(),
            dilation: [dilation.0, dilation.1].into(),
            groups: oc,
        };
        let second = ConvShape::new(&[batch, oc, height, width], &[oc, 1, kernel.0, kernel.1], &options);
        at_each_level(|level| check(&first, &second, &level));
    }
}
