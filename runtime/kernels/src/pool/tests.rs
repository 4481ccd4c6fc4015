use super::*;
use crate::gemm::noise;
use crate::simd::forced::at_each_level;
use kiln_types::{PoolOptions, bf16};

struct Case {
    x: &'static [usize],
    kernel: &'static [usize],
    stride: &'static [usize],
    padding: &'static [(usize, usize)],
    dilation: &'static [usize],
    ceil_mode: bool,
    output: &'static [usize],
}

const CASES: &[Case] = &[
    Case {
        x: &[1, 3, 112, 57],
        kernel: &[3, 3],
        stride: &[2, 2],
        padding: &[(1, 1); 2],
        dilation: &[1, 1],
        ceil_mode: false,
        output: &[56, 29],
    },
    Case {
        x: &[2, 2, 9, 9],
        kernel: &[2, 2],
        stride: &[2, 2],
        padding: &[(0, 0); 2],
        dilation: &[1, 1],
        ceil_mode: true,
        output: &[5, 5],
    },
    Case {
        x: &[1, 2, 7, 40],
        kernel: &[3, 5],
        stride: &[1, 1],
        padding: &[(1, 1), (2, 2)],
        dilation: &[1, 1],
        ceil_mode: false,
        output: &[7, 40],
    },
    Case {
        x: &[1, 2, 10, 11],
        kernel: &[3, 2],
        stride: &[3, 3],
        padding: &[(0, 1), (1, 0)],
        dilation: &[2, 3],
        ceil_mode: true,
        output: &[3, 4],
    },
    Case {
        x: &[2, 3, 30],
        kernel: &[4],
        stride: &[4],
        padding: &[(1, 2)],
        dilation: &[1],
        ceil_mode: true,
        output: &[8],
    },
    Case {
        x: &[1, 2, 4, 5, 6],
        kernel: &[2, 3, 2],
        stride: &[2, 1, 2],
        padding: &[(0, 0), (1, 1), (0, 0)],
        dilation: &[1; 3],
        ceil_mode: false,
        output: &[2, 5, 3],
    },
    // Windows that lie in the padding alone, before and behind the image.
    Case {
        x: &[1, 2, 5, 7],
        kernel: &[2, 3],
        stride: &[2, 4],
        padding: &[(3, 5), (9, 30)],
        dilation: &[1, 2],
        ceil_mode: false,
        output: &[6, 11],
    },
    Case {
        x: &[1, 2, 3, 40],
        kernel: &[1, 1],
        stride: &[1, 7],
        padding: &[(0, 0), (3, 100)],
        dilation: &[1, 1],
        ceil_mode: false,
        output: &[3, 21],
    },
    Case {
        x: &[2, 5, 7, 7],
        kernel: &[7, 7],
        stride: &[1, 1],
        padding: &[(0, 0); 2],
        dilation: &[1, 1],
        ceil_mode: false,
        output: &[1, 1],
    },
];

/// Elements of a window, with their positions, and the number of places within the padded image.
fn window(s: &PoolShape, x: &[f32], o: usize) -> (Vec<(f64, usize)>, usize) {
    let at = [
        o / (s.windows.output[1] * s.windows.output[2]),
        o / s.windows.output[2] % s.windows.output[1],
        o % s.windows.output[2],
    ];
    let [kd, kh, kw] = s.windows.kernel;
    let (mut found, mut padded) = (Vec::new(), 0);
    for k in 0..kd * kh * kw {
        let k = [k / (kh * kw), k / kw % kh, k % kw];
        let p: [usize; 3] =
            core::array::from_fn(|a| at[a] * s.windows.stride[a] + k[a] * s.windows.dilation[a]);
        padded += usize::from(
            (0..3).all(|a| p[a] < s.windows.input[a] + s.windows.padding[a].0 + s.windows.padding[a].1),
        );
        if (0..3)
            .all(|a| p[a] >= s.windows.padding[a].0 && p[a] - s.windows.padding[a].0 < s.windows.input[a])
        {
            let q: [usize; 3] = core::array::from_fn(|a| p[a] - s.windows.padding[a].0);
            let i = (q[0] * s.windows.input[1] + q[1]) * s.windows.input[2] + q[2];
            found.push((f64::from(x[i]), i));
        }
    }
    (found, padded)
}

/// `[batch, rows, …]` as `[batch, …, rows]`.
fn exchanged(x: &[f32], batch: usize, rows: usize) -> Vec<f32> {
    let cols = x.len() / batch / rows;
    (0..x.len()).map(|i| x[(i / rows / cols * rows + i % rows) * cols + i / rows % cols]).collect()
}

#[test]
fn pools_equal_their_definition() {
    let ops = [
        PoolOp::Max,
        PoolOp::Average { include_pad: false },
        PoolOp::Average { include_pad: true },
        PoolOp::Lp { p: 1 },
        PoolOp::Lp { p: 2 },
        PoolOp::Lp { p: 3 },
    ];
    let run = || {
        for case in CASES {
            let shape = PoolShape::new(
                case.x,
                &PoolOptions {
                    kernel: case.kernel.into(),
                    stride: case.stride.into(),
                    padding: case.padding.into(),
                    dilation: case.dilation.into(),
                    ceil_mode: case.ceil_mode,
                },
            );
            assert_eq!(shape.output_dims()[2..], *case.output, "{:?}", case.x);
            let x = noise(case.x.iter().product(), 1);
            let (input, output): (usize, usize) =
                (shape.windows.input.iter().product(), shape.windows.output.iter().product());
            let len = case.x[0] * case.x[1] * output;
            let (mut out, mut indices) = (vec![0.0; len], vec![0; len]);
            for op in ops {
                pool(op, &shape, &x, &mut out);
                let (mut last, mut moved) = (vec![0.0; len], vec![0.0; len]);
                pool_channels_last(op, &shape, &exchanged(&x, case.x[0], case.x[1]), &mut last);
                moved.copy_from_slice(&exchanged(&last, case.x[0], output));
                for (i, (got, moved)) in out.iter().zip(&moved).enumerate() {
                    let both = (got - moved).abs() <= 1e-5 * (1.0 + got.abs())
                        || got == moved
                        || got.is_nan() && moved.is_nan();
                    assert!(both, "{op:?} {shape:?}: element {i} is {moved} with channels last, not {got}");
                }
                for (i, got) in out.iter().enumerate() {
                    let (found, padded) = window(&shape, &x[i / output * input..][..input], i % output);
                    let values = found.iter().map(|v| v.0);
                    let want = match op {
                        PoolOp::Max => values.fold(f64::NEG_INFINITY, f64::max),
                        PoolOp::Average { include_pad } => {
                            values.sum::<f64>() / if include_pad { padded } else { found.len() } as f64
                        }
                        PoolOp::Lp { p } => {
                            values.map(|v| v.abs().powi(p as i32)).sum::<f64>().powf(1.0 / f64::from(p))
                        }
                    };
                    // There is no mean of nothing.
                    let close = (f64::from(*got) - want).abs() < 1e-4 * (1.0 + want.abs())
                        || f64::from(*got) == want
                        || found.is_empty() && got.is_nan() && want.is_nan();
                    assert!(close, "{op:?} {shape:?}: element {i} is {got}, not {want}");
                }
            }
            max_pool_with_indices(&shape, &x, &mut out, &mut indices);
            for (i, (got, index)) in out.iter().zip(&indices).enumerate() {
                let channel = &x[i / output * input..][..input];
                let (found, _) = window(&shape, channel, i % output);
                let max = found.iter().map(|v| v.0).fold(f64::NEG_INFINITY, f64::max);
                assert_eq!(f64::from(*got), max);
                assert!(found.is_empty() || channel[*index as usize] == *got);
            }
        }
    };
    at_each_level(|_| run());
    run();
}

#[test]
fn padding_takes_no_memory() {
    let far = i32::MAX as usize;
    let options = PoolOptions {
        kernel: [1, 1].into(),
        stride: [1, far].into(),
        padding: [(0, 0), (0, far)].into(),
        dilation: [1, 1].into(),
        ceil_mode: false,
    };
    let shape = PoolShape::new(&[1, 1, 3, 8], &options);
    let x: Vec<f32> = (0..24).map(|n| n as f32).collect();
    let mut out = [0.0; 6];
    for (op, nothing) in [(PoolOp::Max, f32::NEG_INFINITY), (PoolOp::Average { include_pad: true }, 0.0)] {
        pool(op, &shape, &x, &mut out);
        assert_eq!(out, [0.0, nothing, 8.0, nothing, 16.0, nothing]);
    }
}

#[test]
fn nan_wins_in_maxima() {
    let mut x = noise(64, 1);
    x[27] = f32::NAN;
    let options = PoolOptions {
        kernel: [2, 2].into(),
        stride: [2, 2].into(),
        padding: [(0, 0); 2].into(),
        dilation: [1, 1].into(),
        ceil_mode: false,
    };
    let shape = PoolShape::new(&[1, 1, 8, 8], &options);
    at_each_level(|_| {
        let (mut out, mut indices) = ([0.0; 16], [0; 16]);
        pool(PoolOp::Max, &shape, &x, &mut out);
        assert!(out.iter().enumerate().all(|(i, y)| y.is_nan() == (i == 5)));
        // One channel is first and last.
        pool_channels_last(PoolOp::Max, &shape, &x, &mut out);
        assert!(out.iter().enumerate().all(|(i, y)| y.is_nan() == (i == 5)));
        max_pool_with_indices(&shape, &x, &mut out, &mut indices);
        assert!(out[5].is_nan() && indices[5] == 27);
    });
}

#[test]
fn maxima_of_rounded_numbers_are_those_of_the_numbers() {
    for (channels, nans) in [(1, false), (63, true), (64, false), (150, true)] {
        let dims = [2, channels, 7, 9];
        let options = PoolOptions {
            kernel: [3, 2].into(),
            stride: [2, 1].into(),
            padding: [(1, 1), (0, 1)].into(),
            dilation: [1, 2].into(),
            ceil_mode: true,
        };
        let shape = PoolShape::new(&dims, &options);
        let x = noise(dims.iter().product(), 3);
        let mut x: Vec<bf16> = x.into_iter().map(bf16::from_f32).collect();
        if nans {
            for (i, nan) in [(5, bf16::NAN), (300, -bf16::NAN), (700, bf16::from_bits(0xff81))] {
                x[i % (63 * 7 * 9)] = nan;
            }
            x[90] = bf16::INFINITY;
            x[91] = bf16::NEG_INFINITY;
        }
        let wide: Vec<f32> = x.iter().map(|x| x.to_f32()).collect();
        let count = shape.output_dims().iter().product();
        at_each_level(|_| {
            let (mut got, mut want) = (vec![bf16::ZERO; count], vec![0.0; count]);
            max_pool_rounded(&shape, &x, &mut got);
            pool_channels_last(PoolOp::Max, &shape, &wide, &mut want);
            assert_eq!(want.iter().filter(|y| y.is_nan()).count() > 0, nans);
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let same = got.to_f32() == *want || (got.is_nan() && want.is_nan());
                assert!(same, "{channels} channels: element {i} is {got}, not {want}");
            }
        });
    }
}
