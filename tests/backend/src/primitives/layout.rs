//! Views, copies, joins.

use super::{counting, read, tensor};
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::{BinaryOp, DType, PadMode, Scalar};

fn range(start: usize, end: usize, step: isize) -> SliceRange {
    SliceRange { start, end, step }
}

pub fn views<B: Backend>() {
    let x = counting::<B>(&[2, 3]);
    assert_eq!(read::<B, f32>(B::permute(x.clone(), &[1, 0])), [0., 3., 1., 4., 2., 5.]);
    let reversed = B::slice(x.clone(), &[range(0, 2, -1), range(0, 3, 2)]);
    assert_eq!(read::<B, f32>(reversed), [3., 5., 0., 2.]);
    let row = B::slice(x.clone(), &[range(1, 2, 1), range(0, 3, 1)]);
    assert_eq!(read::<B, f32>(B::expand(row, [2, 2, 3].into())), [3., 4., 5.].repeat(4));
    assert!(read::<B, f32>(B::slice(x, &[range(1, 1, 1), range(0, 3, 1)])).is_empty());
    // Parts of what has no elements begin beyond what memory it has.
    let none = counting::<B>(&[0, 4]);
    let column = B::select(none.clone(), 1, tensor::<B, i64>(&[3], &[1]));
    for part in [B::slice(none, &[range(0, 0, 1), range(2, 4, 1)]), column] {
        assert!(read::<B, f32>(part.clone()).is_empty());
        assert!(read::<B, i32>(B::cast(part.clone(), DType::I32)).is_empty());
        assert_eq!(B::sort(part, 0, true).0.shape()[0], 0);
    }
    let scalar = B::reshape(tensor::<B, f32>(&[7.], &[1]), Vec::new().into());
    assert_eq!(scalar.shape().rank(), 0);
    assert_eq!(read::<B, f32>(B::expand(scalar, [2].into())), [7., 7.]);
}

pub fn views_of_views<B: Backend>() {
    let x = B::permute(counting::<B>(&[2, 3, 4]), &[2, 0, 1]);
    let x = B::slice(x, &[range(1, 4, -2), range(0, 2, 1), range(0, 3, 1)]);
    let x = B::reshape(x, [2, 6].into());
    assert_eq!(read::<B, f32>(x.clone()), [3., 7., 11., 15., 19., 23., 1., 5., 9., 13., 17., 21.]);
    let x = B::reshape(B::permute(x, &[1, 0]), [3, 4].into());
    assert_eq!(read::<B, f32>(x), [3., 1., 7., 5., 11., 9., 15., 13., 19., 17., 23., 21.]);
}

pub fn copies<B: Backend>() {
    let x = counting::<B>(&[3]);
    let y = x.clone();
    let changed = B::slice_assign(x, &[range(0, 2, 1)], tensor::<B, f32>(&[8., 9.], &[2]));
    assert_eq!(read::<B, f32>(changed), [8., 9., 2.]);
    assert_eq!(read::<B, f32>(y), [0., 1., 2.]);
}

pub fn joins<B: Backend>() {
    let (x, y) = (counting::<B>(&[2, 2]), B::permute(counting::<B>(&[1, 2]), &[1, 0]));
    let joined = B::cat(&[x.clone(), y, tensor::<B, f32>(&[], &[2, 0])], 1);
    assert_eq!(read::<B, f32>(joined), [0., 1., 0., 2., 3., 1.]);
    assert_eq!(read::<B, f32>(B::cat(&[x.clone(), x], 0)), [0., 1., 2., 3., 0., 1., 2., 3.]);
}

pub fn assigns<B: Backend>() {
    let x = tensor::<B, i8>(&[0; 6], &[2, 3]);
    let value = tensor::<B, i8>(&[1, 2, 3, 4], &[2, 2]);
    let x = B::slice_assign(x, &[range(0, 2, -1), range(0, 3, 2)], value);
    assert_eq!(read::<B, i8>(x), [3, 0, 4, 1, 0, 2]);
}

pub fn pads_nothing<B: Backend>() {
    let empty = counting::<B>(&[0, 3]);
    assert!(read::<B, f32>(B::reshape(B::permute(empty, &[1, 0]), [3, 5, 0].into())).is_empty());
}

/// Sides of what is long, and of what is not, are picked; the inner part stays.
pub fn pads_long_dims<B: Backend>() {
    for (size, before, after) in [(2000_usize, 3, 2), (1500, 0, 4), (1100, 1200, 0), (5, 2, 3)] {
        let x = counting::<B>(&[2, size]);
        for mode in [PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
            let shown = |place: usize| {
                let (at, last) = (place as i64 - before as i64, size as i64 - 1);
                let at = match mode {
                    PadMode::Edge => at.clamp(0, last),
                    PadMode::Wrap => at.rem_euclid(last + 1),
                    PadMode::Reflect | PadMode::Constant => last - (at.rem_euclid(2 * last) - last).abs(),
                };
                at as usize
            };
            let places = |row: usize| (0..before + size + after).map(move |place| row * size + shown(place));
            let expected: Vec<f32> = places(0).chain(places(1)).map(|at| at as f32).collect();
            let padded = B::pad(x.clone(), &[(0, 0), (before, after)], mode, Scalar::Float(0.0));
            assert_eq!(read::<B, f32>(padded), expected, "{mode:?} {size} {before} {after}");
        }
    }
}

/// What is in one order of memory stays in it, and is what it was.
pub fn products_of_turned<B: Backend>() {
    let x = counting::<B>(&[2, 3, 4, 5]);
    for axes in [[3, 1, 0, 2], [0, 2, 1, 3], [2, 3, 1, 0]] {
        let turned = B::permute(x.clone(), &axes);
        let square = B::binary(BinaryOp::Mul, turned.clone(), turned.clone());
        let expected: Vec<f32> = read::<B, f32>(turned).into_iter().map(|x| x * x).collect();
        assert_eq!(read::<B, f32>(square), expected, "{axes:?}");
    }
}
