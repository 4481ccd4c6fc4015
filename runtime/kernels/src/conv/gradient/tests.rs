//! Gradients of convolutions against their definition, at every level.

use super::{conv_input_gradient, conv_weight_gradient, coordinates};
use crate::conv::ConvShape;
use crate::gemm::noise;
use crate::simd::forced::at_each_level;
use kiln_types::ConvOptions;

/// Both gradients in f64, all with channels last but the weights.
fn expected(s: &ConvShape, x: &[f32], g: &[f32], weight: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let w = &s.windows;
    let (ic, oc) = (s.in_channels / s.groups, s.out_channels / s.groups);
    let (mut of_x, mut of_weight) = (vec![0.0; x.len()], vec![0.0; weight.len()]);
    for (at, &g) in g.iter().enumerate() {
        let (window, o) = (at / s.out_channels, at % s.out_channels);
        let (image, place) = (window / w.output_len(), coordinates(window % w.output_len(), w.output));
        for tap in 0..w.kernel_len() {
            let k = coordinates(tap, w.kernel);
            let p: [Option<usize>; 3] = core::array::from_fn(|axis| w.position(axis, place[axis], k[axis]));
            let [Some(z), Some(y), Some(px)] = p else { continue };
            let pixel = ((image * w.input[0] + z) * w.input[1] + y) * w.input[2] + px;
            for i in 0..ic {
                let (from, k) =
                    (pixel * s.in_channels + o / oc * ic + i, (o * ic + i) * w.kernel_len() + tap);
                of_x[from] += f64::from(g) * f64::from(weight[k]);
                of_weight[k] += f64::from(g) * f64::from(x[from]);
            }
        }
    }
    (of_x, of_weight)
}

type Case = (
    &'static [usize],
    &'static [usize],
    &'static [usize],
    &'static [(usize, usize)],
    &'static [usize],
    usize,
);

/// Dims of images and weights, step, padding, dilation, groups.
const CASES: [Case; 25] = [
    // One step, kernels of one to three dims, among them what Winograd's algorithm takes.
    (&[2, 5, 9], &[4, 5, 3], &[1], &[(1, 1)], &[1], 1),
    (&[1, 20, 14, 15], &[18, 20, 3, 3], &[1, 1], &[(1, 1); 2], &[1, 1], 1),
    (&[2, 3, 8, 7], &[20, 3, 3, 5], &[1, 1], &[(1, 0), (2, 1)], &[1, 1], 1),
    (&[1, 20, 8, 7], &[3, 20, 3, 3], &[1, 1], &[(1, 1); 2], &[1, 1], 1),
    (&[2, 33, 5, 6], &[17, 33, 1, 1], &[1, 1], &[(0, 0); 2], &[1, 1], 1),
    (&[1, 6, 4, 5, 6], &[7, 6, 2, 3, 2], &[1, 1, 1], &[(1, 0), (1, 1), (0, 1)], &[1, 1, 1], 1),
    // Padding beyond the kernel.
    (&[1, 6, 5, 4], &[5, 6, 2, 2], &[1, 1], &[(3, 2), (2, 4)], &[1, 1], 1),
    // Dilation.
    (&[2, 8, 9, 10], &[6, 8, 3, 2], &[1, 1], &[(2, 2), (1, 3)], &[2, 3], 1),
    // Longer steps, which leave pixels out, or leave kernel elements without a pixel.
    (&[2, 3, 23, 21], &[20, 3, 7, 7], &[2, 2], &[(3, 3); 2], &[1, 1], 1),
    (&[1, 18, 14, 11], &[35, 18, 3, 3], &[2, 2], &[(1, 1); 2], &[1, 1], 1),
    (&[2, 20, 8, 9], &[22, 20, 1, 1], &[2, 2], &[(0, 0); 2], &[1, 1], 1),
    (&[1, 5, 11, 13], &[6, 5, 2, 3], &[3, 4], &[(0, 1), (2, 0)], &[1, 1], 1),
    (&[1, 5, 13, 16], &[6, 5, 3, 2], &[2, 3], &[(2, 1), (1, 2)], &[2, 3], 1),
    (&[1, 4, 15, 12], &[6, 4, 3, 3], &[4, 2], &[(1, 2), (0, 2)], &[3, 1], 1),
    (&[1, 3, 1, 2], &[2, 3, 1, 1], &[5, 3], &[(2, 2); 2], &[1, 1], 1),
    // Groups.
    (&[2, 8, 6, 7], &[12, 4, 3, 3], &[1, 1], &[(1, 1); 2], &[1, 1], 2),
    (&[1, 12, 9, 8], &[9, 4, 3, 2], &[2, 3], &[(1, 1), (0, 1)], &[1, 1], 3),
    (&[2, 6, 7, 5], &[18, 1, 3, 3], &[2, 1], &[(1, 1); 2], &[1, 1], 6),
    // Depthwise.
    (&[2, 19, 10, 9], &[19, 1, 3, 3], &[1, 1], &[(1, 1); 2], &[1, 1], 19),
    (&[2, 35, 11, 12], &[35, 1, 5, 3], &[2, 2], &[(2, 2), (1, 0)], &[1, 1], 35),
    (&[1, 4, 9, 8], &[4, 1, 3, 2], &[3, 2], &[(4, 1), (1, 1)], &[2, 1], 4),
    // Rows of one to seven elements, some of which no window has in the image at once.
    (&[1, 17, 6, 9], &[17, 1, 2, 7], &[1, 1], &[(1, 0), (3, 3)], &[1, 1], 17),
    (&[1, 9, 5, 3], &[9, 1, 1, 4], &[1, 1], &[(0, 0), (5, 4)], &[1, 1], 9),
    (&[2, 5, 7, 12], &[15, 1, 3, 5], &[2, 3], &[(1, 1), (2, 3)], &[1, 2], 5),
    (&[1, 21, 6, 5], &[42, 1, 3, 6], &[1, 2], &[(1, 1), (8, 2)], &[1, 1], 21),
];

fn shape_of((x, weight, stride, padding, dilation, groups): Case) -> ConvShape {
    let options =
        ConvOptions { stride: stride.into(), padding: padding.into(), dilation: dilation.into(), groups };
    ConvShape::new(x, weight, &options)
}

fn agree(case: Case, got: &[f32], want: &[f64], terms: usize) {
    let bound = 3e-6 * (terms as f64).sqrt() + 1e-5;
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*got) - want).abs() <= bound * 4.0, "{case:?} at {at}: {got} and not {want}");
    }
}

/// An infinite weight is no product where no window reaches a pixel.
#[test]
fn what_no_window_reaches_is_no_product() {
    let class = |x: f64| if x.is_finite() { 0.0 } else { x };
    at_each_level(|_| {
        for case in CASES {
            let s = shape_of(case);
            let (gradient, mut weight) =
                (vec![1.0; s.batch * s.out_channels * s.windows.output_len()], vec![1.0; s.weight_len()]);
            weight[0] = f32::INFINITY;
            if weight.len() > 1 {
                weight[s.weight_len() - 1] = f32::NEG_INFINITY;
            }
            let mut x = vec![0.0; s.batch * s.in_channels * s.windows.input_len()];
            let (of_x, _) = expected(&s, &x.clone(), &gradient, &weight);
            conv_input_gradient(&s, &gradient, &weight, &mut x);
            for (at, (&got, &want)) in x.iter().zip(&of_x).enumerate() {
                let [got, want] = [f64::from(got), want].map(class);
                assert!(got == want || got.is_nan() && want.is_nan(), "{case:?} at {at}: {got}, not {want}");
            }
        }
    });
}

#[test]
fn gradients_are_those_of_the_definition() {
    let run = || {
        for case in CASES {
            let s = shape_of(case);
            let x = noise(s.batch * s.in_channels * s.windows.input_len(), 1);
            let g = noise(s.batch * s.out_channels * s.windows.output_len(), 2);
            let weight = noise(s.weight_len(), 3);
            let (of_x, of_weight) = expected(&s, &x, &g, &weight);
            let mut got = vec![7.0; x.len()];
            conv_input_gradient(&s, &g, &weight, &mut got);
            agree(case, &got, &of_x, s.out_channels * s.windows.kernel_len());
            let mut got = vec![7.0; weight.len()];
            conv_weight_gradient(&s, &x, &g, &mut got);
            agree(case, &got, &of_weight, s.batch * s.windows.output_len());
        }
    };
    at_each_level(|_| run());
    // On threads.
    run();
}

/// More windows than are summed at a time.
#[test]
fn many_windows_are_summed_in_parts() {
    let case: Case = (&[2, 3, 41, 37], &[18, 3, 3, 3], &[1, 1], &[(1, 1); 2], &[1, 1], 1);
    let s = shape_of(case);
    let (x, g) = (noise(2 * 3 * 41 * 37, 1), noise(2 * 18 * 41 * 37, 2));
    let weight = noise(s.weight_len(), 3);
    let (_, want) = expected(&s, &x, &g, &weight);
    let mut got = vec![0.0; weight.len()];
    conv_weight_gradient(&s, &x, &g, &mut got);
    agree(case, &got, &want, 2 * 41 * 37);
}

#[test]
fn no_images_have_no_gradient() {
    let s = shape_of((&[0, 3, 5, 5], &[4, 3, 3, 3], &[1, 1], &[(1, 1); 2], &[1, 1], 1));
    let mut weight = vec![1.0; s.weight_len()];
    conv_weight_gradient(&s, &[], &[], &mut weight);
    assert!(weight.iter().all(|&x| x == 0.0));
    conv_input_gradient(&s, &[], &weight, &mut []);
}
