//! Convolutions against their definition, at every level.

use super::{ConvShape, ConvTransposeShape, ConvWay, ConvWeight, PackedConv, conv, conv_transpose};
use crate::consumed::KEPT;
use crate::elementwise::activation_of;
use crate::gemm::noise;
use crate::scratch::Aligned;
use crate::simd::forced::at_each_level;
use kiln_types::{Activation, ConvOptions, ConvTransposeOptions};

mod bands;
mod random;

/// Where output `o` and kernel element `k` look, if inside.
fn position(
    o: usize,
    k: usize,
    stride: usize,
    dilation: usize,
    padding: usize,
    size: usize,
) -> Option<usize> {
    (o * stride + k * dilation).checked_sub(padding).filter(|&p| p < size)
}

fn coordinates(i: usize, size: [usize; 3]) -> [usize; 3] {
    [i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]]
}

fn expected(s: &ConvShape, x: &[f32], w: &[f32]) -> Vec<f32> {
    let (input, output): (usize, usize) =
        (s.windows.input.iter().product(), s.windows.output.iter().product());
    let taps: usize = s.windows.kernel.iter().product();
    let (ic, oc) = (s.in_channels / s.groups, s.out_channels / s.groups);
    let mut out = vec![0.0; s.batch * s.out_channels * output];
    for (i, out) in out.iter_mut().enumerate() {
        let (o, c, n) = (
            coordinates(i % output, s.windows.output),
            i / output % s.out_channels,
            i / output / s.out_channels,
        );
        let mut sum = 0.0f64;
        for l in 0..ic * taps {
            let k = coordinates(l % taps, s.windows.kernel);
            let p: [Option<usize>; 3] = core::array::from_fn(|a| {
                position(
                    o[a],
                    k[a],
                    s.windows.stride[a],
                    s.windows.dilation[a],
                    s.windows.padding[a].0,
                    s.windows.input[a],
                )
            });
            if let [Some(z), Some(y), Some(px)] = p {
                let channel = n * s.in_channels + c / oc * ic + l / taps;
                let at = (z * s.windows.input[1] + y) * s.windows.input[2] + px;
                sum += f64::from(x[channel * input + at]) * f64::from(w[c * ic * taps + l]);
            }
        }
        *out = sum as f32;
    }
    out
}

/// `[batch, channels, size]` as `[batch, size, channels]`.
fn channels_last(x: &[f32], batch: usize, size: usize) -> Vec<f32> {
    let channels = x.len() / batch / size;
    (0..x.len())
        .map(|i| x[(i / channels / size * channels + i % channels) * size + i / channels % size])
        .collect()
}

struct Case {
    x: &'static [usize],
    w: &'static [usize],
    stride: &'static [usize],
    padding: &'static [(usize, usize)],
    dilation: &'static [usize],
    groups: usize,
}

const CASES: &[Case] = &[
    // Depthwise: tiles of seven, three and one windows, some beyond the edges; whole vectors and a part of one.
    Case {
        x: &[1, 84, 6, 23],
        w: &[84, 1, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 84,
    },
    Case {
        x: &[1, 84, 6, 24],
        w: &[84, 1, 3, 3],
        stride: &[2, 2],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 84,
    },
    Case {
        x: &[1, 84, 6, 26],
        w: &[84, 1, 5, 5],
        stride: &[1, 1],
        padding: &[(2, 2); 2],
        dilation: &[1, 1],
        groups: 84,
    },
    Case {
        x: &[1, 84, 6, 31],
        w: &[84, 1, 5, 5],
        stride: &[2, 2],
        padding: &[(2, 2); 2],
        dilation: &[1, 1],
        groups: 84,
    },
    Case {
        x: &[1, 3, 9, 11],
        w: &[5, 3, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[2, 3, 40, 37],
        w: &[20, 3, 7, 7],
        stride: &[2, 2],
        padding: &[(3, 3); 2],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[1, 70, 7, 7],
        w: &[33, 70, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[2, 6, 5, 9],
        w: &[17, 6, 1, 1],
        stride: &[1, 1],
        padding: &[(0, 0); 2],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[1, 6, 8, 9],
        w: &[4, 6, 1, 1],
        stride: &[2, 2],
        padding: &[(0, 0); 2],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[1, 8, 12, 13],
        w: &[6, 4, 3, 2],
        stride: &[3, 3],
        padding: &[(0, 2), (1, 0)],
        dilation: &[2, 3],
        groups: 2,
    },
    Case { x: &[2, 4, 30], w: &[6, 4, 3], stride: &[1], padding: &[(1, 1)], dilation: &[1], groups: 1 },
    Case { x: &[1, 4, 31], w: &[6, 4, 5], stride: &[2], padding: &[(2, 1)], dilation: &[1], groups: 1 },
    Case {
        x: &[1, 2, 5, 6, 7],
        w: &[3, 2, 2, 3, 3],
        stride: &[1, 2, 1],
        padding: &[(1, 0), (1, 1), (0, 1)],
        dilation: &[1, 1, 2],
        groups: 1,
    },
    Case {
        x: &[2, 6, 20, 21],
        w: &[6, 1, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 6,
    },
    Case {
        x: &[1, 5, 20, 41],
        w: &[10, 1, 5, 5],
        stride: &[2, 2],
        padding: &[(2, 2); 2],
        dilation: &[1, 1],
        groups: 5,
    },
    Case {
        x: &[1, 3, 7, 7],
        w: &[3, 1, 3, 3],
        stride: &[1, 1],
        padding: &[(2, 2); 2],
        dilation: &[2, 2],
        groups: 3,
    },
    Case {
        x: &[1, 3, 9, 9],
        w: &[3, 1, 3, 3],
        stride: &[3, 3],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 3,
    },
    // Winograd's squares: whole, cut off, over several images, over slices, with channels that fill no vectors.
    // So many filters of Winograd's algorithm that they are transformed when they are used: parts of panels, and of their depth.
    Case {
        x: &[1, 110, 14, 13],
        w: &[135, 110, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[1, 70, 14, 14],
        w: &[33, 70, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[2, 16, 13, 18],
        w: &[20, 16, 3, 3],
        stride: &[1, 1],
        padding: &[(0, 2), (1, 0)],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[12, 19, 3, 2],
        w: &[16, 19, 3, 3],
        stride: &[1, 1],
        padding: &[(3, 1), (2, 2)],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[1, 16, 3, 30, 9],
        w: &[32, 16, 1, 3, 3],
        stride: &[1, 1, 1],
        padding: &[(0, 0), (1, 1), (1, 1)],
        dilation: &[1, 1, 1],
        groups: 1,
    },
    // Groups of few channels: several strips of them, vectors that they fill and do not, windows beside the image.
    Case {
        x: &[2, 120, 9, 17],
        w: &[72, 5, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 24,
    },
    Case {
        x: &[1, 192, 6, 8],
        w: &[150, 64, 3, 2],
        stride: &[2, 1],
        padding: &[(4, 2), (0, 3)],
        dilation: &[1, 2],
        groups: 3,
    },
    // Several groups in a vector: all of them, some of them, with less channels to see than to make.
    Case {
        x: &[2, 88, 9, 17],
        w: &[88, 8, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 11,
    },
    Case {
        x: &[1, 92, 5, 10],
        w: &[92, 4, 3, 3],
        stride: &[1, 2],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 23,
    },
    Case {
        x: &[1, 38, 5, 11],
        w: &[38, 2, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 19,
    },
    Case {
        x: &[1, 57, 4, 9],
        w: &[76, 3, 2, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 19,
    },
    Case {
        x: &[1, 26, 1, 9],
        w: &[26, 2, 1, 1],
        stride: &[1, 1],
        padding: &[(0, 0); 2],
        dilation: &[1, 1],
        groups: 13,
    },
    // Several results a channel.
    Case {
        x: &[2, 5, 9, 8],
        w: &[15, 1, 3, 3],
        stride: &[1, 2],
        padding: &[(1, 1), (0, 1)],
        dilation: &[1, 1],
        groups: 5,
    },
    // Several results a channel: two, in more than one piece of the image; four; and as many as nothing is made for.
    Case {
        x: &[1, 20, 19, 16],
        w: &[40, 1, 7, 7],
        stride: &[2, 2],
        padding: &[(3, 3); 2],
        dilation: &[1, 1],
        groups: 20,
    },
    Case {
        x: &[2, 6, 5, 4],
        w: &[24, 1, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 6,
    },
    Case {
        x: &[1, 3, 4, 5],
        w: &[15, 1, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 3,
    },
    // Windows beside the image.
    Case {
        x: &[1, 37, 2, 3],
        w: &[37, 1, 3, 5],
        stride: &[1, 1],
        padding: &[(3, 3), (6, 5)],
        dilation: &[1, 1],
        groups: 37,
    },
    Case {
        x: &[1, 150, 6, 19],
        w: &[150, 1, 5, 3],
        stride: &[1, 1],
        padding: &[(2, 2), (1, 1)],
        dilation: &[1, 1],
        groups: 150,
    },
    // Lines of seven.
    Case {
        x: &[1, 150, 9, 26],
        w: &[150, 1, 7, 7],
        stride: &[1, 1],
        padding: &[(3, 3), (3, 3)],
        dilation: &[1, 1],
        groups: 150,
    },
    Case {
        x: &[2, 70, 9, 27],
        w: &[70, 1, 3, 7],
        stride: &[1, 2],
        padding: &[(1, 1), (3, 2)],
        dilation: &[1, 1],
        groups: 70,
    },
    // Rows that are gathered because of their distance, and deep ones.
    Case {
        x: &[1, 512, 5, 7],
        w: &[40, 512, 1, 1],
        stride: &[1, 1],
        padding: &[(0, 0); 2],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[1, 40, 6, 5],
        w: &[60, 20, 5, 5],
        stride: &[2, 1],
        padding: &[(2, 2), (1, 3)],
        dilation: &[1, 1],
        groups: 2,
    },
    Case { x: &[1, 4, 25], w: &[4, 1, 4], stride: &[1], padding: &[(3, 0)], dilation: &[1], groups: 4 },
    Case {
        x: &[40, 2, 6, 6],
        w: &[3, 2, 3, 3],
        stride: &[1, 1],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        groups: 1,
    },
    Case {
        x: &[1, 3, 3, 3],
        w: &[2, 3, 5, 5],
        stride: &[1, 1],
        padding: &[(4, 4); 2],
        dilation: &[1, 1],
        groups: 1,
    },
];

fn check(level: &dyn core::fmt::Debug) {
    for case in CASES {
        let options = ConvOptions {
            stride: case.stride.into(),
            padding: case.padding.into(),
            dilation: case.dilation.into(),
            groups: case.groups,
        };
        check_shape(&ConvShape::new(case.x, case.w, &options), level);
    }
}

/// A convolution of this shape with and without packed weights, bias and activations.
fn check_shape(shape: &ConvShape, level: &dyn core::fmt::Debug) {
    let elements = shape.batch * shape.in_channels * shape.windows.input_len();
    let (x, w) = (noise(elements, 1), noise(shape.weight_len(), 2));
    let plain = expected(shape, &x, &w);
    let bias = noise(shape.out_channels, 3);
    // Winograd's sums round in proportion to all products of a square (Barabasz et al. 2020), however small their sum is.
    let rounding = match shape.way() {
        ConvWay::Winograd => {
            let sizes = |of: &[f32]| of.iter().map(|x| x.abs()).collect::<Vec<_>>();
            4e-6 * expected(shape, &sizes(&x), &sizes(&w)).into_iter().fold(0.0, f32::max)
        }
        _ => 0.0,
    };
    let pixels: usize = shape.windows.output.iter().product();
    let packed = PackedConv::new(shape, &w);
    let last = |x: &[f32], size: usize| channels_last(x, shape.batch, size);
    let input = match shape.takes_channels_first() {
        true => x.clone(),
        false => last(&x, shape.windows.input.iter().product()),
    };
    let plain = last(&plain, pixels);
    for weight in [ConvWeight::Plain(&w), ConvWeight::Packed(&packed)] {
        for (bias, activation, adds) in [
            (None, None, false),
            (Some(&bias), Some(Activation::Relu), false),
            (Some(&bias), Some(Activation::Silu), false),
            (None, None, true),
            (Some(&bias), Some(Activation::Relu), true),
            (Some(&bias), Some(Activation::Silu), true),
        ] {
            if adds && !shape.adds() {
                continue;
            }
            let before = noise(plain.len(), 4);
            let mut out = before.clone();
            conv(shape, &input, weight, bias.map(|b| &b[..]), activation, adds, &mut out);
            for (i, (&got, &sum)) in out.iter().zip(&plain).enumerate() {
                let channel = i % shape.out_channels;
                let want = sum + bias.map_or(0.0, |b| b[channel]) + if adds { before[i] } else { 0.0 };
                let want = activation.map_or(want, |a| activation_of(a, want));
                let close = (got - want).abs() <= 1e-4 * (1.0 + want.abs()) + rounding;
                assert!(close, "{level:?} {shape:?} {activation:?}: element {i} is {got}, not {want}");
            }
        }
    }
}

/// As many weights in the same way lie elsewhere in memory where channels are others.
#[test]
#[should_panic(expected = "packed for another convolution")]
fn weights_of_another_convolution_are_refused() {
    let options = ConvOptions {
        stride: [1; 2].into(),
        padding: [(1, 1); 2].into(),
        dilation: [1; 2].into(),
        groups: 2,
    };
    let [of, other] = [(34, 32), (32, 34)]
        .map(|(channels, out)| ConvShape::new(&[1, channels, 8, 8], &[out, channels / 2, 3, 3], &options));
    assert_eq!((of.way(), of.weight_len()), (other.way(), other.weight_len()));
    let packed = PackedConv::new(&of, &noise(of.weight_len(), 1));
    let mut out = vec![0.0; 34 * 64];
    conv(&other, &noise(32 * 64, 2), ConvWeight::Packed(&packed), None, None, false, &mut out);
}

#[test]
fn weights_that_serve_once_round_as_the_direct_sum_does() {
    let options = ConvOptions {
        stride: [1; 2].into(),
        padding: [(1, 1); 2].into(),
        dilation: [1; 2].into(),
        groups: 1,
    };
    let shape = ConvShape::new(&[4, 64, 16, 16], &[32, 64, 3, 3], &options);
    // As after a ReLU: sums grow, and with them what is rounded away.
    let x: Vec<f32> = noise(4 * 64 * 256, 1).iter().map(|x| x.max(0.0)).collect();
    let w = noise(shape.weight_len(), 2);
    let want = channels_last(&expected(&shape, &x, &w), 4, 256);
    let x = channels_last(&x, 4, 256);
    let rounding = |run: &dyn Fn(&mut [f32])| -> f64 {
        let mut out = vec![0.0; want.len()];
        run(&mut out);
        out.iter().zip(&want).map(|(got, want)| f64::from(got - want).powi(2)).sum::<f64>().sqrt()
    };
    let of = |weight: ConvWeight<'_>| rounding(&|out| conv(&shape, &x, weight, None, None, false, out));
    assert_eq!(shape.way(), ConvWay::Winograd);
    at_each_level(|level| {
        let rows = PackedConv::of_way(&shape, ConvWay::Rows, &w, Aligned::new, KEPT);
        let end = super::End { bias: None, activation: None, adds: false };
        let direct = rounding(&|out| super::run(&shape, &x, &rows, &end, out));
        let (once, squares) =
            (of(ConvWeight::Plain(&w)), of(ConvWeight::Packed(&PackedConv::new(&shape, &w))));
        assert_eq!(once, direct, "{level:?}");
        assert!(squares < 5.0 * direct, "{level:?}: {squares}, and {direct} directly");
    });
}

#[test]
fn convolutions_equal_their_definition() {
    at_each_level(|level| check(&level));
    check(&"threads");
}

#[test]
fn steps_and_padding_of_any_size_are_only_positions() {
    at_each_level(|level| {
        for (size, channels, out, groups, kernel) in
            [1 << 20, 1 << (usize::BITS / 2 + 8), 1 << (usize::BITS - 4)].into_iter().flat_map(|size| {
                [
                    (40, 40, 40, 3),
                    (40, 40, 40, 2),
                    (32, 32, 4, 3),
                    (3, 5, 1, 3),
                    (40, 3, 1, 3),
                    (16, 16, 1, 2),
                ]
                .map(|(channels, out, groups, kernel)| (size, channels, out, groups, kernel))
            })
        {
            let reach = (kernel - 1) * size;
            for (stride, padding, dilation) in [
                // The second window of each dim begins at the image's first pixel.
                (size, (size, size / 2), 1),
                // The second elements of windows see the image, those after it the padding.
                (1, (size - 1, reach - size + 3), size),
                (2, (0, reach + 2), size),
                (2, (reach + 1, 1), size),
                // There is one window alone.
                (size, (1, 1), 1),
            ] {
                let options = ConvOptions {
                    stride: [stride; 2].into(),
                    padding: [padding; 2].into(),
                    dilation: [dilation; 2].into(),
                    groups,
                };
                let weight = [out, channels / groups, kernel, kernel];
                check_shape(&ConvShape::new(&[1, channels, 3, 2], &weight, &options), &level);
            }
        }
    });
}

#[test]
fn transposed_convolutions_add_up_their_windows() {
    #[allow(clippy::type_complexity, reason = "a table")]
    let cases: &[(&[usize], &[usize], usize, usize, usize, usize, usize)] = &[
        // x, weight, stride, padding, output padding, dilation, groups
        (&[2, 3, 5, 6], &[3, 4, 3, 3], 2, 1, 1, 1, 1),
        (&[1, 4, 7, 7], &[4, 3, 2, 2], 2, 0, 0, 1, 2),
        (&[1, 2, 9], &[2, 3, 4], 3, 2, 1, 2, 1),
        (&[1, 2, 3, 4, 3], &[2, 1, 2, 3, 2], 1, 1, 0, 1, 2),
    ];
    for &(x, w, stride, padding, extra, dilation, groups) in cases {
        let rank = x.len() - 2;
        let options = ConvTransposeOptions {
            stride: vec![stride; rank].into(),
            padding: vec![(padding, padding); rank].into(),
            output_padding: vec![extra; rank].into(),
            dilation: vec![dilation; rank].into(),
            groups,
        };
        let s = ConvTransposeShape::new(x, w, &options);
        let (x, w, bias) =
            (noise(x.iter().product(), 1), noise(w.iter().product(), 2), noise(s.out_channels, 3));
        let (input, output): (usize, usize) = (s.input.iter().product(), s.output.iter().product());
        let taps: usize = s.kernel.iter().product();
        let (ic, oc) = (s.in_channels / s.groups, s.out_channels / s.groups);
        let mut want = vec![0.0f64; s.batch * s.out_channels * output];
        for (i, want) in want.iter_mut().enumerate() {
            *want = f64::from(bias[i / output % s.out_channels]);
        }
        for (i, value) in x.iter().enumerate() {
            let (p, c, n) =
                (coordinates(i % input, s.input), i / input % s.in_channels, i / input / s.in_channels);
            for l in 0..oc * taps {
                let k = coordinates(l % taps, s.kernel);
                let at: [Option<usize>; 3] = core::array::from_fn(|a| {
                    position(p[a], k[a], s.stride[a], s.dilation[a], s.padding[a].0, s.output[a])
                });
                if let [Some(z), Some(y), Some(px)] = at {
                    let channel = n * s.out_channels + c / ic * oc + l / taps;
                    let to = channel * output + (z * s.output[1] + y) * s.output[2] + px;
                    want[to] += f64::from(*value) * f64::from(w[c * oc * taps + l]);
                }
            }
        }
        let mut out = vec![0.0; want.len()];
        conv_transpose(&s, &x, &w, Some(&bias), &mut out);
        for (got, want) in out.iter().zip(want) {
            assert!((f64::from(*got) - want).abs() < 1e-4, "{s:?}: {got}, not {want}");
        }
    }
}

/// Windows that an image does not have, whose numbers of elements fit.
#[test]
#[should_panic(expected = "windows reach beyond a padded image")]
fn windows_beyond_the_image_are_refused() {
    let windows = kiln_types::Windows {
        rank: 1,
        input: [1, 1, 1],
        kernel: [1; 3],
        stride: [1, 1, 2],
        dilation: [1; 3],
        padding: [(0, 0); 3],
        output: [1, 1, 1000],
    };
    let shape = ConvShape { batch: 1, in_channels: 2, out_channels: 3, groups: 1, windows };
    shape.check(&[0.0; 2], None, &[0.0; 3000]);
}
