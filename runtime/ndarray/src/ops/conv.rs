//! Convolution.

mod pointwise;
mod rounded;

use pointwise::Layer;
pub(crate) use pointwise::Pointwise;
pub(crate) use rounded::RoundedConv;
use rounded::rounded;

use crate::compute::{Compute, wide_dtype};
use crate::ops::cast;
use crate::ops::matmul::product;
use crate::ops::window::{columns_of, for_each_row};
use crate::tensor::NdArrayTensor;
use alloc::vec;
use kiln_kernels::Windows;
use kiln_kernels::conv::{self as kernel, ConvShape, ConvWay, ConvWeight, PackedConv};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{Activation, ConvOptions, DType, Precision};

/// Whether [`conv`] takes a residual for this convolution.
pub(crate) fn adds(x: &NdArrayTensor, weight: &NdArrayTensor, options: &ConvOptions) -> bool {
    ConvShape::new(x.dims(), weight.dims(), options).adds()
}

/// What happens to a convolution's result on its way out.
#[derive(Default)]
pub(crate) struct End {
    /// Added first; only where the convolution [`adds`].
    pub residual: Option<NdArrayTensor>,
    /// Applied last.
    pub activation: Option<Activation>,
}

/// Convolution; an end is for f32, f16 and bf16 alone.
pub(crate) fn conv(
    x: NdArrayTensor,
    weight: NdArrayTensor,
    bias: Option<NdArrayTensor>,
    end: End,
    options: &ConvOptions,
) -> NdArrayTensor {
    let dtype = x.dtype();
    let wide = wide_dtype(dtype);
    let y = by_wide!(
        wide,
        F32 => {
            let end = End { residual: end.residual.map(|residual| cast::cast(residual, wide)), ..end };
            single(cast::cast(x, wide), weight, bias, end, options)
        },
        T => {
            debug_assert!(
                end.residual.is_none() && end.activation.is_none(),
                "the caller does what follows in {dtype}"
            );
            let prepare = |tensor| cast::cast(tensor, wide).into_contiguous();
            let (x, weight, bias) = (prepare(x), prepare(weight), bias.map(prepare));
            typed::<T>(&x, &weight, bias.as_ref(), options)
        }
    );
    cast::cast(y, dtype)
}

/// f32 by the kernels; weights of any float dtype are packed once where possible.
fn single(
    x: NdArrayTensor,
    weight: NdArrayTensor,
    bias: Option<NdArrayTensor>,
    End { residual, activation }: End,
    options: &ConvOptions,
) -> NdArrayTensor {
    let shape = ConvShape::new(x.dims(), weight.dims(), options);
    let bias = bias.map(|bias| cast::cast(bias, DType::F32).into_contiguous());
    let rounds = Precision::current() == Precision::Bf16;
    if rounds && shape.is_faster_rounded() {
        return rounded(&shape, x, &weight, bias.as_ref(), End { residual, activation });
    }
    let as_f32 = || cast::cast(weight.clone(), DType::F32).into_contiguous();
    // Packed weights serve every number and size of images that go the same way.
    let windows = Windows { input: [0; 3], output: [0; 3], ..shape.windows.clone() };
    let any_image = ConvShape { batch: 0, windows, ..shape.clone() };
    let way = shape.way();
    let is_key = |key: &pointwise::Key| key.0 == *weight.layout() && (&key.1, key.2) == (&any_image, way);
    let make = || {
        let weight_f32 = as_f32();
        let packed = PackedConv::consuming(&shape, weight_f32.slice(), &|read| weight_f32.release(read));
        ((weight.layout().clone(), any_image.clone(), way), packed)
    };
    let packed = weight.prepared(is_key, make);
    if rounds && packed.is_none() && shape.is_product() {
        // What is faster in f32 is so with prepared weights alone.
        return rounded(&shape, x, &weight, bias.as_ref(), End { residual, activation });
    }
    let mut x = x;
    let may_wait = residual.is_none() && (way == ConvWay::Depthwise || shape.suits_bands());
    if let Some(weight) = packed.cloned().filter(|_| may_wait) {
        let layer = Layer { shape: shape.clone(), weight, bias: bias.clone(), activation };
        x = match pointwise::with_layer(x, layer) {
            Ok(result) => return result,
            Err(x) => x,
        };
    }
    let x = if shape.takes_channels_first() { x } else { x.channels_last() }.into_contiguous();
    let plain = if packed.is_some() { None } else { Some(as_f32()) };
    let run = |adds, out: &mut [f32]| {
        let weight = match (packed, &plain) {
            (Some(packed), _) => ConvWeight::Packed(&packed.1),
            (None, Some(plain)) => ConvWeight::Plain(plain.slice()),
            (None, None) => return,
        };
        let bias = bias.as_ref().map(NdArrayTensor::slice);
        kernel::conv(&shape, x.slice(), weight, bias, activation, adds, out);
    };
    channels_last_output(&shape, residual, run)
}

/// The output of a convolution that writes it with its channels last, or adds to a residual.
fn channels_last_output(
    shape: &ConvShape,
    residual: Option<NdArrayTensor>,
    run: impl FnOnce(bool, &mut [f32]),
) -> NdArrayTensor {
    check_residual(shape, residual.as_ref());
    let mut dims = shape.output_dims();
    dims[1..].rotate_left(1);
    let y = match residual {
        None => NdArrayTensor::build(dims.into(), DType::F32, |out| run(false, out)),
        // What is added becomes the result: where it lies, if nobody else needs it.
        Some(residual) => residual.channels_last().into_contiguous().edit(|out| run(true, out)),
    };
    y.channels_first()
}

fn check_residual(shape: &ConvShape, residual: Option<&NdArrayTensor>) {
    let dims = shape.output_dims();
    if let Some(residual) = residual {
        assert!(residual.dims() == dims, "conv: a residual {} is added to {dims:?}", residual.shape());
    }
}

/// Windows columns by matrix product, one image and group at a time.
fn typed<T: Compute>(
    x: &NdArrayTensor,
    weight: &NdArrayTensor,
    bias: Option<&NdArrayTensor>,
    options: &ConvOptions,
) -> NdArrayTensor {
    let (&[batch, channels, ref spatial @ ..], &[out_channels, group_channels, ref kernel @ ..]) =
        (x.dims(), weight.dims())
    else {
        panic!("conv: x is {} and weight is {}", x.shape(), weight.shape())
    };
    let groups = options.groups;
    assert!(
        groups > 0 && channels == group_channels * groups && out_channels.is_multiple_of(groups),
        "conv: {} channels and weight {} do not fit {groups} groups",
        channels,
        weight.shape()
    );
    let windows = Windows::new(spatial, kernel, &options.stride, &options.padding, &options.dilation, false);
    let (size, out_size) = (windows.input_len(), windows.output_len());
    let (per_group, depth) = (out_channels / groups, group_channels * windows.kernel_len());
    let mut shape = vec![batch, out_channels];
    shape.extend(windows.output_dims());
    let mut columns = vec![T::ZERO; depth * out_size];
    let (source, weight) = (x.slice::<T>(), weight.slice::<T>());
    NdArrayTensor::build(shape.into(), x.dtype(), |out: &mut [T]| {
        for image in 0..batch {
            for group in 0..groups {
                let first = image * channels + group * group_channels;
                unfold(&mut columns, &source[first * size..][..group_channels * size], &windows);
                let out_first = image * out_channels + group * per_group;
                let out = &mut out[out_first * out_size..][..per_group * out_size];
                let weight = &weight[group * per_group * depth..][..per_group * depth];
                product(out, weight, &columns, [per_group, depth, out_size]);
            }
        }
        if let Some(bias) = bias {
            add_per_channel(out, bias.slice(), out_size);
        }
    })
}

/// Adds one number per channel to `[batch, channels, size]`.
pub(crate) fn add_per_channel<T: Compute>(out: &mut [T], bias: &[T], size: usize) {
    for (i, channel) in out.chunks_exact_mut(size.max(1)).enumerate() {
        let bias = bias[i % bias.len()];
        channel.iter_mut().for_each(|x| *x = x.add(bias));
    }
}

/// Windows of `[channels, input…]` as columns: `[channels · kernel, outputs]`, zero in the padding.
pub(crate) fn unfold<T: Compute>(columns: &mut [T], x: &[T], windows: &Windows) {
    let width = windows.output[2];
    let out_size = windows.output_len();
    if out_size == 0 {
        return;
    }
    let kernel = windows.kernel_len();
    for (channel, columns) in
        x.chunks_exact(windows.input_len().max(1)).zip(columns.chunks_exact_mut(kernel * out_size))
    {
        for_each_row(windows, |[d, h, w], row, input_row| {
            let element = (d * windows.kernel[1] + h) * windows.kernel[2] + w;
            let out = &mut columns[element * out_size + row * width..][..width];
            let Some(input_row) = input_row else { return out.fill(T::ZERO) };
            let inside = columns_of(windows, w);
            out[..inside.start].fill(T::ZERO);
            out[inside.end..].fill(T::ZERO);
            let first = input_row * windows.input[2];
            for (o, out) in out[inside.clone()].iter_mut().enumerate() {
                let at =
                    (inside.start + o) * windows.stride[2] + w * windows.dilation[2] - windows.padding[2].0;
                *out = channel[first + at];
            }
        });
    }
}
