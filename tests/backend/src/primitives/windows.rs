//! Convolution and pooling; expected values from PyTorch 2 where not evident.

use super::products::values;
use super::{assert_close, counting, has, read, tensor};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{ConvOptions, ConvTransposeOptions, DType, PoolOp, PoolOptions};

/// Sizes of a convolution over three spatial dims.
struct Case {
    batch: usize,
    channels: usize,
    out_channels: usize,
    groups: usize,
    input: Vec<usize>,
    kernel: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<(usize, usize)>,
    dilation: Vec<usize>,
}

impl Case {
    fn output(&self) -> Vec<usize> {
        (0..self.input.len())
            .map(|i| {
                let padded = self.input[i] + self.padding[i].0 + self.padding[i].1;
                (padded - self.dilation[i] * (self.kernel[i] - 1) - 1) / self.stride[i] + 1
            })
            .collect()
    }

    /// Calls `f(output, weight, input)` with the flat positions of every product.
    fn products(&self, mut f: impl FnMut(usize, usize, usize)) {
        let (output, spatial) = (self.output(), self.input.len());
        let unflatten = |mut i: usize, dims: &[usize]| {
            let mut at = vec![0; dims.len()];
            for (at, dim) in at.iter_mut().zip(dims).rev() {
                *at = i % dim;
                i /= dim;
            }
            at
        };
        let (out_len, kernel_len) = (output.iter().product::<usize>(), self.kernel.iter().product::<usize>());
        let in_len = self.input.iter().product::<usize>();
        let (group_in, group_out) = (self.channels / self.groups, self.out_channels / self.groups);
        for n in 0..self.batch {
            for oc in 0..self.out_channels {
                for o in 0..out_len {
                    for ic in 0..group_in {
                        for k in 0..kernel_len {
                            let (at, offset) = (unflatten(o, &output), unflatten(k, &self.kernel));
                            let x: Option<Vec<usize>> = (0..spatial)
                                .map(|i| {
                                    let x = at[i] * self.stride[i] + offset[i] * self.dilation[i];
                                    x.checked_sub(self.padding[i].0).filter(|&x| x < self.input[i])
                                })
                                .collect();
                            let Some(x) = x else { continue };
                            let x = x.iter().zip(&self.input).fold(0, |flat, (x, dim)| flat * dim + x);
                            let channel = n * self.channels + oc / group_out * group_in + ic;
                            f(
                                (n * self.out_channels + oc) * out_len + o,
                                (oc * group_in + ic) * kernel_len + k,
                                channel * in_len + x,
                            );
                        }
                    }
                }
            }
        }
    }

    fn shapes(&self) -> [Vec<usize>; 3] {
        let shape = |lead: [usize; 2], rest: &[usize]| [&lead[..], rest].concat();
        [
            shape([self.batch, self.channels], &self.input),
            shape([self.out_channels, self.channels / self.groups], &self.kernel),
            shape([self.batch, self.out_channels], &self.output()),
        ]
    }

    fn check<B: Backend>(&self) {
        let [x_shape, weight_shape, out_shape] = self.shapes();
        let (x, weight) = (values(x_shape.iter().product(), 1), values(weight_shape.iter().product(), 2));
        let bias = values(self.out_channels, 3);
        let per_channel = out_shape[2..].iter().product::<usize>();
        let mut expected: Vec<f32> = (0..out_shape.iter().product())
            .map(|i: usize| bias[i / per_channel % self.out_channels])
            .collect();
        self.products(|o, w, i| expected[o] += weight[w] * x[i]);
        let options = ConvOptions {
            stride: self.stride.clone().into(),
            padding: self.padding.clone().into(),
            dilation: self.dilation.clone().into(),
            groups: self.groups,
        };
        let out = B::conv(
            tensor::<B, f32>(&x, &x_shape),
            tensor::<B, f32>(&weight, &weight_shape),
            Some(tensor::<B, f32>(&bias, &[self.out_channels])),
            &options,
        );
        assert_eq!(out.shape().dims, out_shape);
        assert_close(&read::<B, f32>(out), &expected, 1e-4);
        self.check_transposed::<B>(&weight);
    }

    /// The transposed convolution is the adjoint: its input is our output, and the other way round.
    fn check_transposed<B: Backend>(&self, weight: &[f32]) {
        let [x_shape, weight_shape, out_shape] = self.shapes();
        let y = values(out_shape.iter().product(), 4);
        let mut expected = vec![0.0; x_shape.iter().product()];
        self.products(|o, w, i| expected[i] += weight[w] * y[o]);
        let output_padding = (0..self.input.len())
            .map(|i| {
                let padded = self.input[i] + self.padding[i].0 + self.padding[i].1;
                (padded - self.dilation[i] * (self.kernel[i] - 1) - 1) % self.stride[i]
            })
            .collect();
        let options = ConvTransposeOptions {
            stride: self.stride.clone().into(),
            padding: self.padding.clone().into(),
            output_padding,
            dilation: self.dilation.clone().into(),
            groups: self.groups,
        };
        let out = B::conv_transpose(
            tensor::<B, f32>(&y, &out_shape),
            tensor::<B, f32>(weight, &weight_shape),
            None,
            &options,
        );
        assert_eq!(out.shape().dims, x_shape);
        assert_close(&read::<B, f32>(out), &expected, 1e-4);
    }
}

pub fn convolution_1d<B: Backend>() {
    Case {
        batch: 2,
        channels: 3,
        out_channels: 5,
        groups: 1,
        input: vec![17],
        kernel: vec![3],
        stride: vec![2],
        padding: vec![(1, 2)],
        dilation: vec![2],
    }
    .check::<B>();
}

pub fn convolution_groups<B: Backend>() {
    for (channels, out_channels, groups) in [(4, 8, 2), (6, 6, 6), (5, 3, 1), (16, 32, 1), (4, 8, 4)] {
        for (kernel, stride, padding) in [(1, 1, 0), (3, 1, 1), (3, 2, 1), (5, 2, 2)] {
            Case {
                batch: 2,
                channels,
                out_channels,
                groups,
                input: vec![9, 11],
                kernel: vec![kernel, kernel],
                stride: vec![stride, stride],
                padding: vec![(padding, padding); 2],
                dilation: vec![1, 1],
            }
            .check::<B>();
        }
    }
}

pub fn convolution_3d<B: Backend>() {
    Case {
        batch: 1,
        channels: 2,
        out_channels: 4,
        groups: 2,
        input: vec![4, 5, 6],
        kernel: vec![2, 3, 1],
        stride: vec![1, 2, 2],
        padding: vec![(0, 1), (1, 1), (2, 0)],
        dilation: vec![2, 1, 1],
    }
    .check::<B>();
}

pub fn transposed<B: Backend>() {
    let options = ConvTransposeOptions {
        stride: [2].into(),
        padding: [(0, 0)].into(),
        output_padding: [1].into(),
        dilation: [1].into(),
        groups: 1,
    };
    let x = tensor::<B, f32>(&[1., 2.], &[1, 1, 2]);
    let weight = tensor::<B, f32>(&[1., 10., 100.], &[1, 1, 3]);
    let bias = tensor::<B, f32>(&[0.5], &[1]);
    let out = B::conv_transpose(x, weight, Some(bias), &options);
    assert_eq!(read::<B, f32>(out), [1.5, 10.5, 102.5, 20.5, 200.5, 0.5]);
}

fn options(kernel: usize, stride: usize, padding: (usize, usize), ceil_mode: bool) -> PoolOptions {
    PoolOptions {
        kernel: [kernel; 2].into(),
        stride: [stride; 2].into(),
        padding: [padding; 2].into(),
        dilation: [1; 2].into(),
        ceil_mode,
    }
}

pub fn pooling<B: Backend>() {
    let x = || counting::<B>(&[1, 1, 4, 4]);
    let plain = options(2, 2, (0, 0), false);
    let average = PoolOp::Average { include_pad: false };
    assert_eq!(read::<B, f32>(B::pool(PoolOp::Max, x(), &plain)), [5., 7., 13., 15.]);
    assert_eq!(read::<B, f32>(B::pool(average, x(), &plain)), [2.5, 4.5, 10.5, 12.5]);
    let padded = options(2, 2, (1, 1), false);
    assert_eq!(read::<B, f32>(B::pool(average, x(), &padded)), [0., 1.5, 3., 6., 7.5, 9., 12., 13.5, 15.]);
    let include = B::pool(PoolOp::Average { include_pad: true }, x(), &padded);
    assert_eq!(read::<B, f32>(include), [0., 0.75, 0.75, 3., 7.5, 4.5, 3., 6.75, 3.75]);
    let norm = B::pool(PoolOp::Lp { p: 2 }, tensor::<B, f32>(&[3., -4., 0., 0.], &[1, 1, 2, 2]), &plain);
    assert_close(&read::<B, f32>(norm), &[5.], 1e-6);
    let dilated = PoolOptions { dilation: [2; 2].into(), ..options(2, 1, (0, 0), false) };
    assert_eq!(read::<B, f32>(B::pool(PoolOp::Max, x(), &dilated)), [10., 11., 14., 15.]);
    let negative =
        B::pool(PoolOp::Max, tensor::<B, f32>(&[-5.], &[1, 1, 1, 1]), &options(3, 1, (1, 1), false));
    assert_eq!(read::<B, f32>(negative), [-5.]);
    let bytes = B::pool(PoolOp::Max, tensor::<B, i8>(&[-5, -7, -128, -9], &[1, 1, 2, 2]), &plain);
    assert_eq!(read::<B, i8>(bytes), [-5]);
}

pub fn ceil_mode<B: Backend>() {
    let x = || counting::<B>(&[1, 1, 5, 5]);
    let ceil = options(2, 2, (0, 0), true);
    assert_eq!(read::<B, f32>(B::pool(PoolOp::Max, x(), &ceil)), [6., 8., 9., 16., 18., 19., 21., 23., 24.]);
    let average = B::pool(PoolOp::Average { include_pad: true }, x(), &ceil);
    assert_eq!(read::<B, f32>(average), [3., 5., 6.5, 13., 15., 16.5, 20.5, 22.5, 24.]);
    let end_padding = B::pool(PoolOp::Max, x(), &options(2, 2, (0, 2), true));
    assert_eq!(end_padding.shape().dims, [1, 1, 3, 3]);
    // A window that is larger than the image, by less than a step.
    let hanging = options(3, 2, (0, 0), true);
    for dtype in [DType::F32, DType::F64, DType::I32].into_iter().filter(|&dtype| has::<B>(dtype)) {
        let pooled = B::pool(PoolOp::Max, B::cast(counting::<B>(&[1, 1, 2, 2]), dtype), &hanging);
        assert_eq!(read::<B, f32>(B::cast(pooled, DType::F32)), [3.], "{dtype}");
    }
    let average = B::pool(PoolOp::Average { include_pad: true }, counting::<B>(&[1, 1, 2, 2]), &hanging);
    assert_eq!(read::<B, f32>(average), [1.5]);
}

pub fn pool_positions<B: Backend>() {
    let x = tensor::<B, f32>(&[1., 9., 2., 9., 3., 4., 5., 6., 7.], &[1, 1, 3, 3]);
    let (values, positions) = B::max_pool_with_indices(x, &options(2, 1, (0, 0), false));
    assert_eq!(read::<B, f32>(values), [9., 9., 9., 7.]);
    assert_eq!(super::positions::<B>(positions), [1, 1, 3, 8]);
}
