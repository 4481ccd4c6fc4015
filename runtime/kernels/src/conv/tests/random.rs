//! Convolutions of random shapes against their definition.

use super::{ConvShape, check_shape};
use crate::simd::forced::at_each_level;
use kiln_types::ConvOptions;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Size, kernel, stride, padding and dilation along one dim.
type Dim = (usize, usize, usize, (usize, usize), usize);

/// Dims in which the kernel fits.
fn dim() -> impl Strategy<Value = Dim> {
    let parts = (1usize..16, 1usize..5, 1usize..4, (0usize..4, 0usize..4), 1usize..3);
    parts.prop_map(|(size, kernel, stride, padding, dilation)| {
        let extent = (kernel - 1) * dilation + 1;
        (size.max(extent.saturating_sub(padding.0 + padding.1)), kernel, stride, padding, dilation)
    })
}

/// Batch, groups, channels in and out of a group, with depthwise ones among them.
fn channels() -> impl Strategy<Value = (usize, usize, usize, usize)> {
    let general = (1usize..3, 1usize..4, 1usize..40, 1usize..40);
    let depthwise = (1usize..3, 2usize..80, Just(1), 1usize..3);
    prop_oneof![general, depthwise]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn convolutions_of_random_shapes_equal_their_definition(
        (batch, groups, ic, oc) in channels(),
        dims in prop::collection::vec(dim(), 1..3),
    ) {
        let sizes = |f: fn(&Dim) -> usize| dims.iter().map(f).collect::<Vec<_>>();
        let options = ConvOptions {
            stride: sizes(|d| d.2).into(),
            padding: dims.iter().map(|d| d.3).collect(),
            dilation: sizes(|d| d.4).into(),
            groups,
        };
        let x = [&[batch, groups * ic], &sizes(|d| d.0)[..]].concat();
        let w = [&[groups * oc, ic], &sizes(|d| d.1)[..]].concat();
        let shape = ConvShape::new(&x, &w, &options);
        at_each_level(|level| check_shape(&shape, &level));
    }

    #[test]
    fn squares_of_random_images_equal_their_definition(
        (batch, ic, oc) in (1usize..3, 16usize..40, 16usize..40),
        (height, width) in (9usize..20, 9usize..20),
        padding in (0usize..3, 0usize..3, 0usize..3, 0usize..3),
    ) {
        let options = ConvOptions {
            stride: [1; 2].into(),
            padding: [(padding.0, padding.1), (padding.2, padding.3)].into(),
            dilation: [1; 2].into(),
            groups: 1,
        };
        let shape = ConvShape::new(&[batch, ic, height, width], &[oc, ic, 3, 3], &options);
        at_each_level(|level| check_shape(&shape, &level));
    }
}
