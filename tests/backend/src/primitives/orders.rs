//! Images whose channels stand last in memory: every operation does what it does to row-major ones.

use super::products::values;
use super::{assert_close, read, tensor};
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::{
    Activation, BinaryOp, CompareOp, ConvOptions, ConvTransposeOptions, CoordinateTransform, DType,
    Expression, InterpolateMode, InterpolateOptions, PoolOp, PoolOptions, ReduceOp, Scalar, Step, UnaryOp,
};

/// The same image row-major, and with its channels last in memory.
fn both<B: Backend>(dims: &[usize]) -> [B::Primitive; 2] {
    let first = tensor::<B, f32>(&values(dims.iter().product(), 1), dims);
    [first.clone(), moved::<B>(first)]
}

/// The same tensor with its channels last in memory.
pub fn moved<B: Backend>(x: B::Primitive) -> B::Primitive {
    let rank = x.shape().rank();
    let to_last: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let to_first: Vec<usize> = (0..rank).map(|i| if i < 2 { i * (rank - 1) } else { i - 1 }).collect();
    let last = B::permute(x, &to_last);
    // Reading it and handing the data back makes that order its memory's.
    let data = B::into_data(last).expect("a backend in these tests reads back");
    B::permute(B::from_data(data, &B::Device::default()), &to_first)
}

/// Images of one dim, as convolutions of text and sound have them, and those of few channels, as a network's first has.
pub fn first_layers<B: Backend>() {
    // Channels, results' channels, groups, and the window with its stride, dilation and padding.
    type Case = (usize, usize, usize, [usize; 3], (usize, usize));
    let cases: [Case; 7] = [
        (5, 10, 1, [1, 1, 1], (0, 0)),
        (3, 16, 1, [3, 1, 1], (1, 1)),
        (3, 16, 1, [3, 2, 1], (1, 1)),
        (3, 8, 1, [4, 4, 1], (0, 0)),
        (3, 6, 3, [3, 1, 2], (2, 1)),
        (8, 8, 8, [3, 1, 1], (1, 1)),
        (12, 9, 1, [2, 1, 1], (0, 1)),
    ];
    for (channels, results, groups, [kernel, stride, dilation], padding) in cases {
        for rank in [1, 2] {
            let options = ConvOptions {
                stride: vec![stride; rank].into(),
                padding: vec![padding; rank].into(),
                dilation: vec![dilation; rank].into(),
                groups,
            };
            let window = vec![kernel; rank];
            let of_weight = [&[results, channels / groups], window.as_slice()].concat();
            let weight = tensor::<B, f32>(&values(of_weight.iter().product(), 3), &of_weight);
            let bias = tensor::<B, f32>(&values(results, 4), &[results]);
            let image = [&[2, channels, 9][..], &[8][..rank - 1]].concat();
            let run = |x, weight: B::Primitive, bias: B::Primitive| {
                B::conv_activated(x, weight, Some(bias), Activation::HardSwish, &options)
            };
            same::<B>(&image, |x| B::conv(x, weight.clone(), None, &options));
            same::<B>(&image, |x| run(x, weight.clone(), bias.clone()));
            let half = |x| B::cast(x, DType::F16);
            // Whatever order sums are in, they are rounded to 11 bits at last.
            let [first, last] = both::<B>(&image).map(|x| {
                read::<B, f32>(B::cast(run(half(x), half(weight.clone()), half(bias.clone())), DType::F32))
            });
            assert_close(&last, &first, 1e-2);
            for residual in
                both::<B>(&B::conv(both::<B>(&image)[0].clone(), weight.clone(), None, &options).shape().dims)
            {
                let added = |x| {
                    let (weight, bias) = (weight.clone(), Some(bias.clone()));
                    B::conv_added(x, weight, bias, residual.clone(), Some(Activation::Relu), &options)
                };
                same::<B>(&image, added);
            }
        }
    }
    let pooling = PoolOptions {
        kernel: [3].into(),
        stride: [2].into(),
        padding: [(1, 1)].into(),
        dilation: [1].into(),
        ceil_mode: false,
    };
    for channels in [5, 8] {
        same::<B>(&[2, channels, 9], |x| B::pool(PoolOp::Max, x, &pooling));
        same::<B>(&[2, channels, 9], |x| B::max_pool_with_indices(x, &pooling).1);
    }
    let back = ConvTransposeOptions {
        stride: [2].into(),
        padding: [(1, 0)].into(),
        output_padding: [1].into(),
        dilation: [1].into(),
        groups: 1,
    };
    let weight = tensor::<B, f32>(&values(5 * 12 * 3, 5), &[5, 12, 3]);
    same::<B>(&[2, 5, 9], |x| B::conv_transpose(x, weight.clone(), None, &back));
}

/// Asserts that an operation yields the same for both.
#[track_caller]
fn same<B: Backend>(dims: &[usize], operation: impl Fn(B::Primitive) -> B::Primitive) {
    let [first, last] = both::<B>(dims).map(|x| B::cast(operation(x), DType::F32));
    assert_eq!(first.shape(), last.shape());
    assert_close(&read::<B, f32>(last), &read::<B, f32>(first), 1e-5);
}

const IMAGES: [&[usize]; 5] = [&[2, 5, 9], &[2, 5, 6, 7], &[1, 3, 4, 5, 6], &[3, 1, 4, 4], &[2, 6, 1, 1]];

pub fn elementwise<B: Backend>() {
    for dims in IMAGES {
        same::<B>(dims, |x| B::unary(UnaryOp::Neg, x));
        same::<B>(dims, |x| B::activation(Activation::Silu, x));
        same::<B>(dims, |x| B::cast(x, DType::F16));
        same::<B>(dims, |x| B::binary(BinaryOp::Mul, x.clone(), x));
        let places = |x: B::Primitive| {
            B::nonzero(B::compare_scalar(CompareOp::Greater, x, Scalar::Float(0.0)))
                .expect("a backend that reads back")
        };
        same::<B>(dims, places);
        for op in [BinaryOp::Sub, BinaryOp::Div] {
            // Operands that broadcast along some dims, from both sides, in both orders.
            for mask in 0..1 << dims.len() {
                let part: Vec<usize> =
                    (0..dims.len()).map(|i| if mask >> i & 1 == 1 { dims[i] } else { 1 }).collect();
                let [first, last] = both::<B>(&part);
                for other in [first, last] {
                    same::<B>(dims, |x| B::binary(op, x, other.clone()));
                    same::<B>(dims, |x| B::binary(op, other.clone(), x));
                    same::<B>(dims, |x| B::compare(CompareOp::Lower, x, other.clone()));
                }
            }
        }
    }
}

/// An operand of fewer dims broadcasts to images in either order, and so does an image to more dims.
pub fn operands_of_other_ranks<B: Backend>() {
    for dims in IMAGES {
        let last = dims[dims.len() - 1];
        let row = tensor::<B, f32>(&values(last, 2), &[last]);
        let more = tensor::<B, f32>(&values(2, 3), &[&[2][..], &vec![1; dims.len()]].concat());
        for other in [row, more] {
            same::<B>(dims, |x| B::binary(BinaryOp::Sub, x, other.clone()));
            same::<B>(dims, |x| B::binary(BinaryOp::Sub, other.clone(), x));
            same::<B>(dims, |x| B::compare(CompareOp::Lower, x, other.clone()));
        }
    }
}

pub fn programs<B: Backend>() {
    let steps = vec![
        Step::Input(0),
        Step::Input(1),
        Step::Binary(BinaryOp::Add, 0, 1),
        Step::Activation(Activation::Relu, 2),
    ];
    let sum = Expression::new(steps);
    let run = |operands| B::elementwise(&sum, operands, &[]).remove(0);
    for dims in IMAGES {
        let per_channel: Vec<usize> = (0..dims.len()).map(|i| if i == 1 { dims[1] } else { 1 }).collect();
        for part in [dims, &per_channel] {
            for other in both::<B>(part) {
                same::<B>(dims, |x| run([x, other.clone()].into()));
                same::<B>(dims, |x| run([other.clone(), x].into()));
            }
        }
    }
}

pub fn joins<B: Backend>() {
    for dims in IMAGES {
        for dim in 0..dims.len() {
            let mut other = dims.to_vec();
            for size in [1, 9] {
                other[dim] = size;
                for other in both::<B>(&other) {
                    same::<B>(dims, |x| B::cat(&[x, other.clone()], dim));
                    same::<B>(dims, |x| B::cat(&[other.clone(), x.clone(), x], dim));
                }
            }
        }
    }
}

/// So many elements that they are copied by fours, where places allow it: not behind seven channels.
pub fn large_joins<B: Backend>() {
    let other = |channels: usize| {
        moved::<B>(tensor::<B, f32>(&values(channels * 128 * 256, 2), &[1, channels, 128, 256]))
    };
    for channels in [4, 7, 8] {
        let (small, large) = (other(channels), other(16));
        for tensors in [[small.clone(), large.clone()], [large, small]] {
            let y = B::cat(&tensors, 1);
            let [first, last] = tensors.clone().map(|x| x.shape().dims[1]);
            for (x, [start, end]) in tensors.into_iter().zip([[0, first], [first, first + last]]) {
                let ranges = [[0, 1], [start, end], [0, 128], [0, 256]];
                let ranges = ranges.map(|[start, end]| SliceRange { start, end, step: 1 });
                assert_eq!(read::<B, f32>(B::slice(y.clone(), &ranges)), read::<B, f32>(x), "{channels}");
            }
        }
    }
}

/// So many rows of so few numbers that no tile of a product computes them.
pub fn narrow_rows<B: Backend>() {
    let options = ConvOptions {
        stride: [1; 2].into(),
        padding: [(0, 0); 2].into(),
        dilation: [1; 2].into(),
        groups: 1,
    };
    for (channels, results) in [(8, 2), (12, 3)] {
        let weight = tensor::<B, f32>(&values(results * channels, 3), &[results, channels, 1, 1]);
        let bias = tensor::<B, f32>(&values(results, 4), &[results]);
        let dims = [2, channels, 130, 255];
        same::<B>(&dims, |x| {
            B::conv_activated(x, weight.clone(), Some(bias.clone()), Activation::Silu, &options)
        });
        same::<B>(&dims, |x| B::unary(UnaryOp::Neg, B::conv(x, weight.clone(), None, &options)));
    }
}

pub fn reductions<B: Backend>() {
    for dims in IMAGES {
        for mask in 0..1 << dims.len() {
            let axes: Vec<usize> = (0..dims.len()).filter(|i| mask >> i & 1 == 1).collect();
            same::<B>(dims, |x| B::reduce(ReduceOp::Mean, x, &axes));
            same::<B>(dims, |x| B::reduce(ReduceOp::Max, x, &axes));
        }
        same::<B>(dims, |x| B::softmax(x, 1));
        let parameters = || tensor::<B, f32>(&values(dims[1], 2), &[dims[1]]);
        same::<B>(dims, |x| B::group_norm(x, Some(parameters()), Some(parameters()), 1, 1e-5));
        let positive = || B::unary(UnaryOp::Exp, parameters());
        same::<B>(dims, |x| B::batch_norm(x, parameters(), parameters(), parameters(), positive(), 1e-5));
    }
}

pub fn windows<B: Backend>() {
    let dims = [2, 5, 6, 7];
    let pooling = PoolOptions {
        kernel: [3, 2].into(),
        stride: [2, 1].into(),
        padding: [(1, 1), (0, 1)].into(),
        dilation: [1, 1].into(),
        ceil_mode: true,
    };
    for op in [PoolOp::Max, PoolOp::Average { include_pad: true }, PoolOp::Lp { p: 2 }] {
        same::<B>(&dims, |x| B::pool(op, x, &pooling));
        same::<B>(&dims, |x| B::pool(op, B::cast(x, DType::F16), &pooling));
    }
    same::<B>(&dims, |x| B::max_pool_with_indices(x.clone(), &pooling).0);
    same::<B>(&dims, |x| B::max_pool_with_indices(x, &pooling).1);
    let deep = PoolOptions {
        kernel: [2, 3, 1].into(),
        stride: [1, 2, 2].into(),
        padding: [(1, 0), (1, 1), (0, 0)].into(),
        dilation: [1; 3].into(),
        ceil_mode: false,
    };
    same::<B>(&[2, 5, 4, 5, 6], |x| B::pool(PoolOp::Max, x, &deep));
    // Channels by fours.
    for op in [PoolOp::Max, PoolOp::Average { include_pad: false }, PoolOp::Lp { p: 1 }] {
        same::<B>(&[3, 8, 6, 7], |x| B::pool(op, x, &pooling));
        same::<B>(&[1, 12, 5, 6], |x| B::pool(op, B::cast(x, DType::F16), &pooling));
    }
    same::<B>(&[3, 8, 6, 7], |x| B::max_pool_with_indices(x.clone(), &pooling).0);
    same::<B>(&[3, 8, 6, 7], |x| B::max_pool_with_indices(x, &pooling).1);
    same::<B>(&[2, 4, 4, 5, 6], |x| B::pool(PoolOp::Max, x, &deep));
    // Channels by fours, each with windows of its own.
    let depthwise = ConvOptions {
        stride: [2, 1].into(),
        padding: [(1, 1), (2, 0)].into(),
        dilation: [1, 2].into(),
        groups: 8,
    };
    let weight = tensor::<B, f32>(&values(8 * 6, 6), &[8, 1, 3, 2]);
    for bias in [None, Some(tensor::<B, f32>(&values(8, 7), &[8]))] {
        let run = |x| {
            let y = B::conv_activated(x, weight.clone(), bias.clone(), Activation::Silu, &depthwise);
            B::binary(BinaryOp::Mul, y, tensor::<B, f32>(&values(8, 8), &[1, 8, 1, 1]))
        };
        same::<B>(&[2, 8, 9, 7], run);
    }
    let options = InterpolateOptions {
        output_size: [2, 5, 9, 4].into(),
        scales: [1.0, 1.0, 1.5, 4.0 / 7.0].into(),
        mode: InterpolateMode::Linear,
        coordinates: CoordinateTransform::HalfPixel,
        antialias: false,
        exclude_outside: false,
        roi: None,
        extrapolation_value: 0.0,
    };
    same::<B>(&dims, |x| B::interpolate(x, &options));
    for (groups, kernel) in [(1, 1), (1, 3), (5, 3)] {
        let options = ConvOptions {
            stride: [1; 2].into(),
            padding: [(kernel / 2, kernel / 2); 2].into(),
            dilation: [1; 2].into(),
            groups,
        };
        let weight = tensor::<B, f32>(
            &values(10 * 5 / groups * kernel * kernel, 3),
            &[10, 5 / groups, kernel, kernel],
        );
        same::<B>(&dims, |x| B::conv(x, weight.clone(), None, &options));
        let bias = tensor::<B, f32>(&values(10, 4), &[10]);
        let activation = Activation::HardSwish;
        same::<B>(&dims, |x| B::conv_activated(x, weight.clone(), Some(bias.clone()), activation, &options));
        let residual = both::<B>(&[2, 10, 6, 7]);
        for residual in residual {
            let added =
                |x| B::conv_added(x, weight.clone(), Some(bias.clone()), residual.clone(), None, &options);
            same::<B>(&dims, added);
        }
        // Once more with what a convolution yields, and with a part of it.
        let part = |x: B::Primitive| {
            let y = B::conv(x, weight.clone(), None, &options);
            let ranges: Vec<SliceRange> =
                [2, 5, 6, 7].iter().map(|&end| SliceRange { start: 0, end, step: 1 }).collect();
            B::conv(B::slice(y, &ranges), weight.clone(), None, &options)
        };
        same::<B>(&dims, part);
    }
    for groups in [1, 5] {
        let options = ConvTransposeOptions {
            stride: [2, 1].into(),
            padding: [(1, 0), (1, 1)].into(),
            output_padding: [1, 0].into(),
            dilation: [1; 2].into(),
            groups,
        };
        let weight = tensor::<B, f32>(&values(5 * 3 * 9, 5), &[5, 3, 3, 3]);
        same::<B>(&dims, |x| B::conv_transpose(x, weight.clone(), None, &options));
    }
}
