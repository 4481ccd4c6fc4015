//! Transposed convolution: the adjoint of a convolution whose output is this one's input.

use crate::compute::{Compute, wide_dtype};
use crate::ops::cast;
use crate::ops::conv::add_per_channel;
use crate::ops::matmul::product;
use crate::ops::window::{columns_of, for_each_row};
use crate::tensor::NdArrayTensor;
use alloc::{vec, vec::Vec};
use kiln_kernels::Windows;
use kiln_kernels::conv::{self as kernel, ConvTransposeShape};
use kiln_tensor::ConvTransposeOptions;
use kiln_tensor::backend::Primitive;

/// See [`kiln_tensor::backend::Backend::conv_transpose`].
pub(crate) fn conv_transpose(
    x: NdArrayTensor,
    weight: NdArrayTensor,
    bias: Option<NdArrayTensor>,
    options: &ConvTransposeOptions,
) -> NdArrayTensor {
    let dtype = x.dtype();
    let wide = wide_dtype(dtype);
    let prepare = |tensor| cast::cast(tensor, wide).into_contiguous();
    let (x, bias) = (prepare(x), bias.map(prepare));
    let y = by_wide!(
        wide,
        F32 => {
            let weight = prepare(weight);
            let shape = ConvTransposeShape::new(x.dims(), weight.dims(), options);
            NdArrayTensor::build(shape.output_dims().into(), wide, |out| {
                let bias = bias.as_ref().map(NdArrayTensor::slice);
                kernel::conv_transpose(&shape, x.slice(), weight.slice(), bias, out);
            })
        },
        T => {
            let weight = by_groups(cast::cast(weight, wide), options.groups);
            typed::<T>(&x, &weight, bias.as_ref(), options)
        }
    );
    cast::cast(y, dtype)
}

/// `[in, out / groups, kernel…]` as `[groups, out / groups, kernel…, in / groups]`: left operands of the products.
fn by_groups(weight: NdArrayTensor, groups: usize) -> NdArrayTensor {
    let dims = weight.dims();
    assert!(
        groups > 0 && dims[0].is_multiple_of(groups),
        "conv_transpose: weight {} does not fit {groups} groups",
        weight.shape()
    );
    let mut split = vec![groups, dims[0] / groups];
    split.extend(&dims[1..]);
    let rank = split.len();
    let weight = crate::ops::copy::reshape(weight, split.into());
    let mut axes: Vec<usize> = (0..rank).collect();
    axes[1..].rotate_left(1);
    let layout = weight.layout().permute(&axes);
    weight.with_layout(layout).into_contiguous()
}

fn typed<T: Compute>(
    x: &NdArrayTensor,
    weight: &NdArrayTensor,
    bias: Option<&NdArrayTensor>,
    options: &ConvTransposeOptions,
) -> NdArrayTensor {
    let (&[batch, channels, ref spatial @ ..], &[groups, per_group, ref rest @ ..]) =
        (x.dims(), weight.dims())
    else {
        panic!("conv_transpose: x is {} and weight is {}", x.shape(), weight.shape())
    };
    let kernel = &rest[..rest.len() - 1];
    let group_channels = channels / groups;
    assert_eq!(
        rest.last(),
        Some(&group_channels),
        "conv_transpose: {channels} channels do not fit the weight"
    );
    let output: Vec<usize> = (0..spatial.len())
        .map(|i| {
            let full = (spatial[i].max(1) - 1) * options.stride[i]
                + options.dilation[i] * (kernel[i].max(1) - 1)
                + 1;
            let (before, after) = options.padding[i];
            (full + options.output_padding[i]).saturating_sub(before + after)
        })
        .collect();
    // The convolution from our output to our input.
    let mut windows =
        Windows::new(&output, kernel, &options.stride, &options.padding, &options.dilation, false);
    windows.output[3 - spatial.len()..].copy_from_slice(spatial);
    let (size, out_size) = (windows.output_len(), windows.input_len());
    let depth = per_group * windows.kernel_len();
    let mut shape = vec![batch, per_group * groups];
    shape.extend(&output);
    let mut columns = vec![T::ZERO; depth * size];
    let (source, weight) = (x.slice::<T>(), weight.slice::<T>());
    NdArrayTensor::build(shape.into(), x.dtype(), |out: &mut [T]| {
        out.fill(T::ZERO);
        for image in 0..batch {
            for group in 0..groups {
                let first = image * channels + group * group_channels;
                let source = &source[first * size..][..group_channels * size];
                let weight = &weight[group * depth * group_channels..][..depth * group_channels];
                product(&mut columns, weight, source, [depth, group_channels, size]);
                let out_first = (image * groups + group) * per_group;
                fold(&mut out[out_first * out_size..][..per_group * out_size], &columns, &windows);
            }
        }
        if let Some(bias) = bias {
            add_per_channel(out, bias.slice(), out_size);
        }
    })
}

/// Adds columns `[channels · kernel, outputs]` back into `[channels, input…]`, the adjoint of unfolding.
fn fold<T: Compute>(x: &mut [T], columns: &[T], windows: &Windows) {
    let (width, size, kernel) = (windows.output[2], windows.output_len(), windows.kernel_len());
    if size == 0 || x.is_empty() {
        return;
    }
    let channels = x.chunks_exact_mut(windows.input_len()).zip(columns.chunks_exact(kernel * size));
    for (channel, columns) in channels {
        for_each_row(windows, |[d, h, w], row, input_row| {
            let Some(input_row) = input_row else { return };
            let element = (d * windows.kernel[1] + h) * windows.kernel[2] + w;
            let inside = columns_of(windows, w);
            let source = &columns[element * size + row * width..][inside.clone()];
            let first = input_row * windows.input[2];
            for (o, &value) in source.iter().enumerate() {
                let at =
                    (inside.start + o) * windows.stride[2] + w * windows.dilation[2] - windows.padding[2].0;
                let x = &mut channel[first + at];
                *x = x.add(value);
            }
        });
    }
}
