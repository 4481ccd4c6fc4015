use super::{Numbers, NumbersMut, PackedConvBf16, conv_bf16};
use crate::conv::{ConvShape, ConvWeight, conv};
use crate::gemm::{noise, with_all_instructions};
use kiln_types::{Activation, ConvOptions, bf16};

fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|&x| bf16::from_f32(x).to_f32()).collect()
}

/// `[batch, channels, pixels]` with the channels last.
fn channels_last(x: &[f32], batch: usize, channels: usize) -> Vec<f32> {
    let pixels = x.len() / batch / channels;
    let at =
        |i: usize| x[(i / (pixels * channels) * channels + i % channels) * pixels + i / channels % pixels];
    (0..x.len()).map(at).collect()
}

#[test]
fn it_is_the_convolution_of_rounded_operands() {
    let options = |stride: usize, padding: (usize, usize), dilation: usize, groups: usize| ConvOptions {
        stride: [stride; 2].into(),
        padding: [padding; 2].into(),
        dilation: [dilation; 2].into(),
        groups,
    };
    let cases = [
        ([2, 3, 12, 13], [33, 3, 5, 5], options(2, (2, 1), 1, 1)),
        ([1, 3, 15, 14], [32, 3, 7, 7], options(2, (3, 2), 1, 1)),
        ([2, 4, 9, 9], [33, 4, 2, 2], options(2, (0, 1), 1, 1)),
        ([1, 10, 9, 9], [33, 10, 3, 3], options(2, (1, 0), 1, 1)),
        ([1, 40, 9, 9], [37, 40, 1, 1], options(1, (0, 0), 1, 1)),
        ([2, 40, 9, 8], [34, 40, 1, 1], options(2, (0, 0), 1, 1)),
        ([1, 160, 9, 8], [160, 80, 1, 1], options(3, (0, 0), 1, 2)),
        ([1, 40, 7, 8], [34, 40, 1, 1], options(2, (1, 0), 1, 1)),
        ([1, 33, 10, 11], [35, 33, 3, 3], options(1, (1, 1), 1, 1)),
        ([1, 64, 7, 7], [64, 64, 3, 3], options(1, (2, 2), 2, 1)),
        ([1, 160, 6, 6], [160, 80, 3, 3], options(1, (1, 1), 1, 2)),
        // Lines of whole halves of tiles.
        ([2, 32, 5, 14], [40, 32, 3, 3], options(1, (1, 1), 1, 1)),
        ([1, 64, 9, 30], [33, 64, 3, 5], options(2, (1, 0), 1, 1)),
        ([1, 64, 6, 22], [35, 64, 3, 3], options(1, (2, 0), 2, 1)),
        ([1, 192, 3, 20], [160, 96, 3, 3], options(1, (1, 1), 1, 2)),
        // Runs that are filled up to blocks: lines of the kernel, channels of a pixel; of windows that are read where they lie, and that are put together.
        ([1, 3, 33, 32], [34, 3, 7, 7], options(2, (3, 3), 1, 1)),
        ([2, 8, 5, 20], [33, 8, 3, 3], options(1, (1, 1), 1, 1)),
        ([1, 24, 6, 12], [33, 24, 3, 3], options(1, (2, 2), 2, 1)),
        ([1, 24, 6, 17], [33, 24, 3, 3], options(1, (0, 1), 2, 1)),
        ([1, 160, 5, 12], [96, 80, 3, 3], options(1, (1, 1), 1, 2)),
    ];
    for (x_dims, w_dims, options) in cases {
        let shape = ConvShape::new(&x_dims, &w_dims, &options);
        assert!(shape.is_product());
        let x = rounded(&noise(x_dims.iter().product(), 1));
        let (weight, bias) = (noise(w_dims.iter().product(), 2), noise(w_dims[0], 3));
        let last = channels_last(&x, x_dims[0], x_dims[1]);
        let mut want = vec![0.0; shape.output_dims().iter().product()];
        let mut got = want.clone();
        let activation = Some(Activation::Relu);
        let given = if shape.takes_channels_first() { &x } else { &last };
        let exact = rounded(&weight);
        conv(&shape, given, ConvWeight::Plain(&exact), Some(&bias), activation, false, &mut want);
        // It rounds what is not rounded.
        let off: Vec<f32> = last.iter().map(|x| x * (1.0 + 1e-4)).collect();
        let packed = PackedConvBf16::once(&shape, &weight);
        let off = Numbers::Single(&off);
        conv_bf16(&shape, off, &packed, Some(&bias), activation, false, NumbersMut::Single(&mut got));
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let near = (got - want).abs() <= 2e-4 * (1.0 + want.abs());
            assert!(near, "{x_dims:?} {w_dims:?}: element {i} is {got}, not {want}");
        }
        // What was positive is added before the activation.
        let once = got.clone();
        conv_bf16(&shape, off, &packed, Some(&bias), None, true, NumbersMut::Single(&mut got));
        conv_bf16(&shape, off, &packed, Some(&bias), None, false, NumbersMut::Single(&mut want));
        for (i, ((sum, once), plain)) in got.iter().zip(&once).zip(&want).enumerate() {
            let expected = once + plain;
            assert!((sum - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{x_dims:?}: {i}: {sum}");
        }
    }
}

/// Whether numbers were rounded before makes no difference, and results are those that would be rounded afterwards.
#[test]
fn rounded_numbers_are_taken_and_yielded() {
    let options = |stride: usize, padding: usize, groups: usize| ConvOptions {
        stride: [stride; 2].into(),
        padding: [(padding, padding); 2].into(),
        dilation: [1; 2].into(),
        groups,
    };
    let cases = [
        // Rows that are read where they lie, with some at the end that are copied; rows that share places of a cache; rows that are copied as they have no whole blocks.
        ([1, 64, 9, 9], [40, 64, 1, 1], options(1, 0, 1)),
        ([1, 64, 7, 7], [33, 64, 1, 1], options(1, 0, 1)),
        ([2, 1024, 4, 5], [64, 1024, 1, 1], options(1, 0, 1)),
        ([1, 40, 25, 26], [37, 40, 1, 1], options(1, 0, 1)),
        ([1, 160, 9, 8], [160, 80, 1, 1], options(1, 0, 2)),
        ([1, 256, 9, 8], [192, 128, 1, 1], options(1, 0, 2)),
        ([2, 40, 9, 8], [34, 40, 1, 1], options(2, 0, 1)),
        ([1, 33, 10, 11], [35, 33, 3, 3], options(1, 1, 1)),
        ([1, 64, 15, 14], [70, 64, 3, 3], options(2, 1, 1)),
        // Lines of whole halves of tiles: windows that are read where they lie, an odd number of halves, sums in several parts, groups.
        ([1, 32, 5, 14], [40, 32, 3, 3], options(1, 1, 1)),
        ([2, 64, 28, 28], [33, 64, 3, 3], options(2, 1, 1)),
        ([1, 128, 4, 28], [70, 128, 3, 3], options(1, 1, 1)),
        ([1, 192, 3, 20], [160, 96, 3, 3], options(1, 1, 2)),
        // Runs that are filled up.
        ([1, 3, 33, 32], [34, 3, 7, 7], options(2, 3, 1)),
        ([1, 3, 30, 30], [34, 3, 7, 7], options(2, 3, 1)),
        // Planes, of more pixels in a line than are rounded at a time.
        ([2, 3, 4, 150], [8, 3, 3, 3], options(2, 1, 1)),
        ([2, 2, 4, 5], [8, 2, 1, 1], options(1, 1, 1)),
        ([1, 4, 5, 5], [8, 4, 2, 2], options(1, 0, 1)),
        ([2, 24, 6, 12], [33, 24, 3, 3], options(1, 1, 1)),
    ];
    with_all_instructions(|level, instructions| {
        for (x_dims, w_dims, options) in &cases {
            let shape = ConvShape::new(x_dims, w_dims, options);
            let x: Vec<bf16> = noise(x_dims.iter().product(), 1).into_iter().map(bf16::from_f32).collect();
            let (weight, bias) = (noise(w_dims.iter().product(), 2), noise(w_dims[0], 3));
            let packed = PackedConvBf16::once(&shape, &weight);
            let wide: Vec<f32> = x.iter().map(|x| x.to_f32()).collect();
            for activation in [None, Some(Activation::Relu), Some(Activation::Silu)] {
                let first: Vec<bf16> =
                    noise(shape.output_dims().iter().product(), 4).into_iter().map(bf16::from_f32).collect();
                for adds in [false, true] {
                    let mut want: Vec<f32> = first.iter().map(|x| x.to_f32()).collect();
                    let mut single = want.clone();
                    let mut both = first.clone();
                    let run = |x: Numbers<'_>, out: NumbersMut<'_>| {
                        conv_bf16(&shape, x, &packed, Some(&bias), activation, adds, out);
                    };
                    run(Numbers::Single(&wide), NumbersMut::Single(&mut want));
                    run(Numbers::Rounded(&x), NumbersMut::Single(&mut single));
                    let what =
                        format!("{level:?} {instructions:?} {x_dims:?} {w_dims:?} {activation:?} {adds}");
                    assert!(single == want, "{what}");
                    if shape.takes_planes() {
                        single.iter_mut().zip(&first).for_each(|(y, x)| *y = x.to_f32());
                        let (pixels, channels) = (x_dims[2] * x_dims[3], x_dims[1]);
                        let at = |i: usize| {
                            i / (pixels * channels) * pixels * channels
                                + i % pixels * channels
                                + i / pixels % channels
                        };
                        let planes: Vec<f32> = (0..wide.len()).map(|i| wide[at(i)]).collect();
                        run(Numbers::Planes(&planes), NumbersMut::Single(&mut single));
                        assert!(single == want, "{what}: of planes");
                    }
                    run(Numbers::Rounded(&x), NumbersMut::Rounded(&mut both));
                    for (i, (got, want)) in both.iter().zip(&want).enumerate() {
                        // A sum of another order may round to the neighbour.
                        let (got, near) = (got.to_f32(), bf16::from_f32(*want).to_f32());
                        let off = (got - near).abs() <= near.abs() / 128.0;
                        assert!(
                            got == near || (adds || activation.is_some()) && off,
                            "{what}: {i}: {got}, not {want}"
                        );
                    }
                }
            }
        }
    });
}

/// A filled run at an image's end reads what lies behind it, which was another image's before.
#[test]
fn what_lies_behind_an_image_is_a_number() {
    let options = ConvOptions {
        stride: [2; 2].into(),
        padding: [(3, 2); 2].into(),
        dilation: [1; 2].into(),
        groups: 1,
    };
    with_all_instructions(|level, instructions| {
        let of_height = |height| ConvShape::new(&[1, 3, height, 31], &[16, 3, 7, 7], &options);
        let (shape, taller) = (of_height(31), of_height(33));
        let packed = PackedConvBf16::new(&shape, &noise(shape.weight_len(), 1));
        let run = |shape: &ConvShape, x: &[f32]| {
            let mut out = vec![0.0; shape.output_dims().iter().product()];
            let (x, to) = (Numbers::Single(x), NumbersMut::Single(&mut out));
            conv_bf16(shape, x, &packed, None, None, false, to);
            out
        };
        assert!(run(&taller, &[f32::NAN; 3 * 33 * 31]).iter().all(|x| x.is_nan()));
        let out = run(&shape, &noise(3 * 31 * 31, 2));
        assert!(out.iter().all(|x| x.is_finite()), "{level:?} {instructions:?}");
    });
}

#[test]
fn images_of_three_dims_and_dilated_lines_are_read_where_they_lie() {
    with_all_instructions(|level, instructions| {
        let options = ConvOptions {
            stride: [1, 2, 2].into(),
            padding: [(1, 1), (0, 2), (2, 1)].into_iter().collect(),
            dilation: [1, 2, 1].into(),
            groups: 1,
        };
        let (x_dims, w_dims) = ([2, 5, 4, 9, 10], [33, 5, 2, 3, 3]);
        let shape = ConvShape::new(&x_dims, &w_dims, &options);
        // Numbers that bf16 holds, and sums that f32 holds.
        let whole = |len, seed| noise(len, seed).iter().map(|x| (x * 8.0).round()).collect::<Vec<f32>>();
        let (x, weight) = (whole(x_dims.iter().product(), 1), whole(w_dims.iter().product(), 2));
        let mut want = vec![0.0; shape.output_dims().iter().product()];
        let mut got = want.clone();
        conv(&shape, &x, ConvWeight::Plain(&weight), None, None, false, &mut want);
        let (packed, x) = (PackedConvBf16::new(&shape, &weight), Numbers::Single(&x));
        conv_bf16(&shape, x, &packed, None, None, false, NumbersMut::Single(&mut got));
        assert!(got == want, "{level:?} {instructions:?}");
    });
}

#[test]
fn padding_without_bounds_is_not_copied() {
    for size in [1 << 20, 1 << (usize::BITS / 2 + 8), 1 << (usize::BITS - 2)] {
        // Windows of the padding's size apart: few see anything.
        let options = ConvOptions {
            stride: [size; 2].into(),
            padding: [(size, size / 2); 2].into(),
            dilation: [1; 2].into(),
            groups: 1,
        };
        let (x, weight) = (noise(2 * 40, 1), noise(3 * 40 * 9, 2));
        let shape = ConvShape::new(&[1, 40, 2, 1], &[3, 40, 3, 3], &options);
        assert!(!shape.is_product() && !shape.is_faster_rounded());
        let mut out = vec![7.0; shape.output_dims().iter().product()];
        conv(&shape, &x, ConvWeight::Plain(&weight), None, None, false, &mut out);
        // The second window of each dim begins at the image's first pixel.
        assert!(out.iter().any(|&x| x != 0.0) && out.iter().all(|&x| x != 7.0), "{out:?}");
        let shape = ConvShape::new(&[1, 3, 2, 1], &[3, 3, 3, 3], &options);
        assert!(!shape.takes_channels_first());
    }
}
