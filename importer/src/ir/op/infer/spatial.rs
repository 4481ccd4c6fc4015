//! Convolution, pooling, resizing: `[batch, channels, spatial…]`.

use super::{attribute, dims_error, need, need_equal, need_float, of_rank, same_dtype};
use crate::ir::{Dim, Infer, RuleError, RuleResult, TensorType};
use kiln_types::{Activation, ConvOptions, ConvTransposeOptions, PoolOptions};

/// A window along one spatial axis.
struct Window {
    kernel: Dim,
    stride: usize,
    padding: (usize, usize),
    dilation: usize,
}

impl Window {
    /// Elements between the first and the last that the window touches, both included.
    fn extent(&self) -> Dim {
        &(&(&self.kernel - &Dim::constant(1)) * &Dim::from(self.dilation)) + &Dim::constant(1)
    }

    /// Number of places of the window on an axis; rounded up in ceil mode, where the last may hang over but not start
    /// in the end padding.
    fn places(&self, size: &Dim, ceil_mode: bool) -> Dim {
        let one = Dim::constant(1);
        let stride = Dim::from(self.stride);
        let before = size + &Dim::from(self.padding.0);
        let free = &(&before + &Dim::from(self.padding.1)) - &self.extent();
        if !ceil_mode {
            return &free.floor_div(&stride) + &one;
        }
        let starts_inside = &(&before - &one).floor_div(&stride) + &one;
        (&free.ceil_div(&stride) + &one).minimum(&starts_inside)
    }
}

/// The spatial rank of `x`, 1 to 3.
fn spatial_rank(x: &TensorType) -> RuleResult<usize> {
    match x.rank() {
        rank @ 3..=5 => Ok(rank - 2),
        actual => Err(RuleError::Rank { input: "x".into(), actual, expected: "expected 3 to 5".into() }),
    }
}

/// Checks that options have one entry per spatial axis and no zero steps.
fn check_options(rank: usize, lengths: &[usize], steps: &[&[usize]]) -> RuleResult<()> {
    if lengths.iter().any(|&n| n != rank) {
        return Err(attribute(
            "strides",
            format!("(or pads, dilations, kernel_shape) do not have {rank} entries, one per spatial axis"),
        ));
    }
    if steps.iter().any(|steps| steps.contains(&0)) {
        return Err(attribute("strides", "(or dilations) are 0"));
    }
    Ok(())
}

/// Checks a bias of one number a channel.
fn check_bias(cx: &Infer<'_>, x: &TensorType, channels: &Dim) -> RuleResult<()> {
    if let Some(bias) = cx.optional(2) {
        of_rank(cx, 2, "bias", 1)?;
        same_dtype("x", x, "bias", bias)?;
        need_equal("bias", &bias.dims[0], bias, channels, &x.with_dims(vec![channels.clone()]))?;
    }
    Ok(())
}

/// An error when a window does not fit anywhere.
fn need_places(x: &TensorType, dims: Vec<Dim>) -> RuleResult<TensorType> {
    if dims[2..].iter().any(|dim| dim.as_constant().is_some_and(|size| size < 0)) {
        return Err(attribute("kernel_shape", format!("is larger than the padded input {x}")));
    }
    Ok(x.with_dims(dims))
}

pub(super) fn conv(
    cx: &mut Infer<'_>,
    options: &ConvOptions,
    activation: Option<Activation>,
) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    let rank = spatial_rank(x)?;
    let weight = of_rank(cx, 1, "weight", x.rank())?;
    let plain = cx.optional(2).is_none() && activation.is_none();
    need("x", x, x.dtype.is_float() || (x.dtype.is_int() && plain), "expected floats, or integers alone")?;
    same_dtype("x", x, "weight", weight)?;
    let lengths = [options.stride.len(), options.padding.len(), options.dilation.len()];
    check_options(rank, &lengths, &[&options.stride, &options.dilation])?;
    let groups = Dim::from(options.groups);
    let divides = weight.dims[0].as_size().is_none_or(|out| out.checked_rem(options.groups) == Some(0));
    if options.groups == 0 || !divides {
        return Err(attribute("group", format!("is {} for weights {weight}", options.groups)));
    }
    need_equal("channels of a convolution", &x.dims[1], x, &(&weight.dims[1] * &groups), weight)?;
    check_bias(cx, x, &weight.dims[0])?;
    let mut dims = vec![x.dims[0].clone(), weight.dims[0].clone()];
    for axis in 0..rank {
        let window = Window {
            kernel: weight.dims[axis + 2].clone(),
            stride: options.stride[axis],
            padding: options.padding[axis],
            dilation: options.dilation[axis],
        };
        dims.push(window.places(&x.dims[axis + 2], false));
    }
    need_places(x, dims)
}

pub(super) fn conv_transpose(cx: &mut Infer<'_>, options: &ConvTransposeOptions) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    let rank = spatial_rank(x)?;
    let weight = of_rank(cx, 1, "weight", x.rank())?;
    need_float("x", x)?;
    same_dtype("x", x, "weight", weight)?;
    let lengths =
        [options.stride.len(), options.padding.len(), options.dilation.len(), options.output_padding.len()];
    check_options(rank, &lengths, &[&options.stride, &options.dilation])?;
    let divides = weight.dims[0].as_size().is_none_or(|inputs| inputs.checked_rem(options.groups) == Some(0));
    if options.groups == 0 || !divides {
        return Err(attribute("group", format!("is {} for weights {weight}", options.groups)));
    }
    need_equal("channels of a transposed convolution", &x.dims[1], x, &weight.dims[0], weight)?;
    let channels = &weight.dims[1] * &Dim::from(options.groups);
    check_bias(cx, x, &channels)?;
    let mut dims = vec![x.dims[0].clone(), channels];
    for axis in 0..rank {
        let one = Dim::constant(1);
        let (before, after) = options.padding[axis];
        let steps = &(&x.dims[axis + 2] - &one) * &Dim::from(options.stride[axis]);
        let window = &(&(&weight.dims[axis + 2] - &one) * &Dim::from(options.dilation[axis])) + &one;
        let cut = &Dim::from(before) + &Dim::from(after);
        dims.push(&(&(&steps + &window) + &Dim::from(options.output_padding[axis])) - &cut);
    }
    need_places(x, dims)
}

pub(super) fn pool(cx: &mut Infer<'_>, options: &PoolOptions) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    let rank = spatial_rank(x)?;
    need("x", x, !x.dtype.is_bool(), "expected a number")?;
    let lengths = [options.kernel.len(), options.stride.len(), options.padding.len(), options.dilation.len()];
    check_options(rank, &lengths, &[&options.stride, &options.dilation, &options.kernel])?;
    let mut dims = x.dims[..2].to_vec();
    for axis in 0..rank {
        let window = Window {
            kernel: Dim::from(options.kernel[axis]),
            stride: options.stride[axis],
            padding: options.padding[axis],
            dilation: options.dilation[axis],
        };
        dims.push(window.places(&x.dims[axis + 2], options.ceil_mode));
    }
    need_places(x, dims)
}

pub(super) fn adaptive_pool(cx: &mut Infer<'_>, output_size: &[usize]) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    let rank = spatial_rank(x)?;
    need_float("x", x)?;
    check_options(rank, &[output_size.len()], &[])?;
    let spatial = output_size.iter().map(|&size| Dim::from(size));
    Ok(x.with_dims(x.dims[..2].iter().cloned().chain(spatial).collect()))
}

pub(super) fn interpolate(cx: &mut Infer<'_>, sizes: &[Dim]) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    need("x", x, !x.dtype.is_bool(), "expected a number")?;
    let wanted = x.with_dims(sizes.to_vec());
    if sizes.len() == x.rank() { Ok(wanted) } else { Err(dims_error("ranks of a resize", x, &wanted)) }
}
