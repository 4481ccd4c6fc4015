//! Products of quantized integers by the kernels for bytes.

use crate::ops::{cast, copy};
use crate::tensor::NdArrayTensor;
use alloc::{sync::Arc, vec, vec::Vec};
use kiln_kernels::conv::{self, ConvShape, ConvWay, ConvWeight, PackedConv};
use kiln_kernels::quantized::{
    self as kernel, Bytes, Epilogue, Output, PackedBytes, PackedQuantizedConv, PackedQuantizedDepthwise,
    Zeros,
};
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::compose::{Quantized, Rescale, ZeroPoint};
use kiln_tensor::{Activation, ConvOptions, DType, Dims, Shape};

/// A product of bytes, or what becomes of its sums; nothing for other operands, or what the kernels do not make of sums.
pub(crate) fn matmul(
    lhs: &Quantized<NdArrayTensor>,
    rhs: &Quantized<NdArrayTensor>,
    rescale: Option<&Rescale<NdArrayTensor>>,
) -> Option<NdArrayTensor> {
    let lead = lhs.values.dims().len() - 2;
    if !(are_bytes(&lhs.values) && are_bytes(&rhs.values)) {
        return None;
    }
    if rhs.values.dims()[..lead].iter().any(|&n| n != 1) {
        return if rescale.is_none() { of_many(lhs, rhs) } else { None };
    }
    // All left matrices under each other against one right matrix.
    let (k, n) = (rhs.values.dims()[lead], rhs.values.dims()[lead + 1]);
    let mut shape = lhs.values.shape();
    shape.dims[lead + 1] = n;
    let end = match rescale {
        Some(rescale) => Some(End::new(rescale, &shape, lead + 1)?),
        None => None,
    };
    let rows = shape.dims[..=lead].iter().product();
    let mut of_rows = lhs.values.shape();
    of_rows.dims[lead + 1] = 1;
    let (left_zeros, right_zeros) = (zeros(&lhs.zero, &of_rows), zeros(&rhs.zero, &[1, n].into()));
    let packed = packed(&rhs.values, k, n);
    let x = lhs.values.clone().into_contiguous();
    Some(result(shape, end.as_ref(), |out| {
        let right = &packed.1;
        kernel::quantized_gemm(rows, bytes(&x), k, left_zeros.view(), right, right_zeros.view(), out);
    }))
}

/// What becomes of sums, as the kernels take it.
struct End {
    scale: Vec<f32>,
    integer_bias: Option<Vec<i32>>,
    bias: Option<Vec<f32>>,
    /// In the order of the result's elements.
    residual: Option<NdArrayTensor>,
    activation: Option<Activation>,
    /// The zero point of the integers that the numbers become, and whether these have a sign.
    bytes: Option<(i32, bool)>,
}

impl End {
    /// For results of a shape, whose outputs lie along an axis; nothing where the kernels cannot.
    fn new(rescale: &Rescale<NdArrayTensor>, shape: &Shape, axis: usize) -> Option<Self> {
        let outputs = shape.dims[axis];
        let Rescale { scale, input_scale, integer_bias, bias, residual, activation, integers } = rescale;
        let bytes = match integers {
            // What is computed in f64, and numbers of 16 bits, are no kernel's.
            _ if scale.dtype() == DType::F64 => return None,
            None if scale.dtype() != DType::F32 => return None,
            None => None,
            Some((zero, dtype)) => {
                let (is_signed, range) = match dtype {
                    DType::U8 => (false, 0..=255),
                    DType::I8 => (true, -128..=127),
                    _ => return None,
                };
                let zero = cast::cast(zero.clone(), DType::I32).into_contiguous();
                let &[zero] = zero.slice::<i32>() else { return None };
                Some((range.contains(&zero).then_some(zero)?, is_signed))
            }
        };
        let along = |tensor: &Option<NdArrayTensor>| match tensor {
            Some(tensor) => Some(Some(along::<f32>(tensor, DType::F32, axis, outputs)?)),
            None => Some(None),
        };
        let mut scale = along(&Some(scale.clone()))??;
        if let Some(factor) = input_scale {
            let factor = cast::cast(factor.clone(), DType::F32).into_contiguous();
            let &[factor] = factor.slice::<f32>() else { return None };
            scale.iter_mut().for_each(|scale| *scale *= factor);
        }
        let bias = along(bias)?;
        let integer_bias = match integer_bias {
            Some(bias) => Some(self::along::<i32>(bias, DType::I32, axis, outputs)?),
            None => None,
        };
        let residual = match residual {
            Some(residual) if residual.dims() == &shape.dims[..] => {
                let residual = cast::cast(residual.clone(), DType::F32);
                Some(if axis == 1 && shape.dims.len() > 2 { residual.channels_last() } else { residual })
            }
            Some(_) => return None,
            None => None,
        };
        let residual = residual.map(NdArrayTensor::into_contiguous);
        Some(Self { scale, integer_bias, bias, residual, activation: *activation, bytes })
    }

    fn epilogue(&self) -> Epilogue<'_> {
        Epilogue {
            scale: &self.scale,
            integer_bias: self.integer_bias.as_deref(),
            bias: self.bias.as_deref(),
            residual: self.residual.as_ref().map(NdArrayTensor::slice),
            activation: self.activation,
        }
    }
}

/// As many numbers as there are outputs along an axis, of a tensor that has one for all or each; nothing for others.
fn along<T: bytemuck::Pod>(
    tensor: &NdArrayTensor,
    dtype: DType,
    axis: usize,
    outputs: usize,
) -> Option<Vec<T>> {
    let tensor = cast::cast(tensor.clone(), dtype).into_contiguous();
    match tensor.slice::<T>() {
        &[number] => Some(vec![number; outputs]),
        each if each.len() == outputs && tensor.dims()[axis] == outputs => Some(each.to_vec()),
        _ => None,
    }
}

/// A tensor of sums, or of what becomes of them.
fn result(shape: Shape, end: Option<&End>, compute: impl FnOnce(Output<'_>)) -> NdArrayTensor {
    let Some(end) = end else {
        return NdArrayTensor::build(shape, DType::I32, |out| compute(Output::Sums(out)));
    };
    let epilogue = end.epilogue();
    match end.bytes {
        None => NdArrayTensor::build(shape, DType::F32, |out| compute(Output::Numbers(out, epilogue))),
        Some((zero, false)) => {
            NdArrayTensor::build(shape, DType::U8, |out| compute(Output::U8(out, epilogue, zero)))
        }
        Some((zero, true)) => {
            NdArrayTensor::build(shape, DType::I8, |out| compute(Output::I8(out, epilogue, zero)))
        }
    }
}

/// Each left matrix against the right one of its place, as attention has them, with a zero point each side; nothing for others.
fn of_many(lhs: &Quantized<NdArrayTensor>, rhs: &Quantized<NdArrayTensor>) -> Option<NdArrayTensor> {
    let (a, b) = (lhs.values.dims(), rhs.values.dims());
    let lead = a.len() - 2;
    let (m, k, n) = (a[lead], a[lead + 1], b[lead + 1]);
    let (left_zero, right_zero) = (zeros(&lhs.zero, &[1].into()), zeros(&rhs.zero, &[1].into()));
    let (HostZeros::One(left_zero), HostZeros::One(right_zero)) = (left_zero, right_zero) else {
        return None;
    };
    let batch = Shape::from(&a[..lead]).broadcast(&Shape::from(&b[..lead]))?;
    let spread = |tensor: &NdArrayTensor| {
        let dims: Vec<usize> = batch.dims.iter().chain(&tensor.dims()[lead..]).copied().collect();
        tensor.layout().expand(&dims.as_slice().into())
    };
    let x = lhs.values.clone().with_layout(spread(&lhs.values)).into_contiguous();
    let right = spread(&rhs.values);
    let strides = right.strides.iter().map(|&stride| usize::try_from(stride).ok());
    let strides: Vec<usize> = strides.collect::<Option<_>>()?;
    let mut shape = batch.clone();
    shape.dims.extend([m, n]);
    if shape.num_elements() == 0 || k == 0 {
        return None;
    }
    Some(NdArrayTensor::build(shape, DType::I32, |out: &mut [i32]| {
        for (place, out) in out.chunks_exact_mut(m * n).enumerate() {
            let mut rest = place;
            let mut offset = right.offset;
            for (&size, &stride) in batch.dims.iter().zip(&strides).rev() {
                offset += rest % size * stride;
                rest /= size;
            }
            let (data, steps) = (bytes_from(&rhs.values, offset), [strides[lead], strides[lead + 1]]);
            let packed = PackedBytes::new(data, steps, k, n);
            let left = bytes_from(&x, x.layout().offset + place * m * k);
            let (left_zero, right_zero) = (Zeros::One(left_zero), Zeros::One(right_zero));
            kernel::quantized_gemm(m, left, k, left_zero, &packed, right_zero, Output::Sums(out));
        }
    }))
}

/// A convolution of bytes, or what becomes of its sums; nothing for other operands, a zero point that is no byte of the images, or what the
/// kernels do not make of sums.
pub(crate) fn conv(
    x: &Quantized<NdArrayTensor>,
    weight: &Quantized<NdArrayTensor>,
    rescale: Option<&Rescale<NdArrayTensor>>,
    options: &ConvOptions,
) -> Option<NdArrayTensor> {
    if !(are_bytes(&x.values) && are_bytes(&weight.values)) {
        return None;
    }
    let HostZeros::One(zero) = zeros(&x.zero, &[1].into()) else { return None };
    let range = if x.values.dtype() == DType::U8 { 0..=255 } else { -128..=127 };
    if !range.contains(&zero) {
        return None;
    }
    let shape = ConvShape::new(x.values.dims(), weight.values.dims(), options);
    let dims = shape.output_dims();
    let end = match rescale {
        Some(rescale) => Some(End::new(rescale, &dims.as_slice().into(), 1)?),
        None => None,
    };
    let mut of_outputs = weight.values.shape();
    of_outputs.dims[1..].fill(1);
    let weight_zeros = zeros(&weight.zero, &of_outputs);
    let depth = shape.weight_len() / shape.out_channels.max(1);
    if matches!(shape.way(), ConvWay::Depthwise | ConvWay::Grouped) && weight_zeros.keep_sums_exact(depth) {
        if shape.is_depthwise_by_lines() {
            return Some(depthwise(&shape, &x.values, zero, &weight.values, weight_zeros, end.as_ref()));
        }
        return match end {
            None => Some(conv_of_few_channels(&shape, &x.values, zero, &weight.values, weight_zeros)),
            Some(_) => None,
        };
    }
    // Packed weights depend on their own dims and the groups alone.
    let layout = weight.values.layout();
    let is_key = |key: &(Layout, usize)| key.0 == *layout && key.1 == shape.groups;
    let make = || {
        let weight = weight.values.clone().into_contiguous();
        ((layout.clone(), shape.groups), PackedQuantizedConv::new(&shape, bytes(&weight)))
    };
    let packed = weight.values.prepared(is_key, make).cloned().unwrap_or_else(|| Arc::new(make()));
    let x = x.values.clone().channels_last().into_contiguous();
    let y = result(channels_last(dims), end.as_ref(), |out| {
        kernel::quantized_conv(&shape, bytes(&x), zero, &packed.1, weight_zeros.view(), out);
    });
    Some(y.channels_first())
}

/// The shape with its channels last.
fn channels_last(mut dims: Dims) -> Shape {
    dims[1..].rotate_left(1);
    dims.into()
}

/// A convolution of each channel for itself. All sums are integers that f32 holds.
fn depthwise(
    shape: &ConvShape,
    x: &NdArrayTensor,
    zero: i32,
    weight: &NdArrayTensor,
    weight_zeros: HostZeros,
    end: Option<&End>,
) -> NdArrayTensor {
    let layout = weight.layout();
    let is_key = |key: &(Layout, HostZeros)| key.0 == *layout && key.1 == weight_zeros;
    let make = || {
        let weight = weight.clone().into_contiguous();
        let packed = PackedQuantizedDepthwise::new(shape, bytes(&weight), weight_zeros.view());
        ((layout.clone(), weight_zeros.clone()), packed)
    };
    let packed = weight.prepared(is_key, make).cloned().unwrap_or_else(|| Arc::new(make()));
    let x = x.clone().channels_last().into_contiguous();
    let y = result(channels_last(shape.output_dims()), end, |out| {
        kernel::quantized_depthwise(shape, bytes(&x), zero, &packed.1, out);
    });
    y.channels_first()
}

/// A convolution of groups of so few channels that products of matrices are slow: by the kernels of floats, whose sums are whole numbers too.
fn conv_of_few_channels(
    shape: &ConvShape,
    x: &NdArrayTensor,
    zero: i32,
    weight: &NdArrayTensor,
    weight_zeros: HostZeros,
) -> NdArrayTensor {
    let layout = weight.layout();
    let way = (shape.groups, shape.way());
    let is_key = |key: &(Layout, HostZeros, (usize, ConvWay))| {
        key.0 == *layout && key.1 == weight_zeros && key.2 == way
    };
    let make = || {
        let of_output = (shape.weight_len() / shape.out_channels.max(1)).max(1);
        let mut numbers = vec![0.0; shape.weight_len()];
        numbers_of(&weight.clone().into_contiguous(), &mut numbers, |n| match &weight_zeros {
            HostZeros::One(zero) => *zero,
            HostZeros::Each(zeros) => zeros[n / of_output],
        });
        let packed = PackedConv::new(shape, &numbers);
        ((layout.clone(), weight_zeros.clone(), way), packed)
    };
    let packed = weight.prepared(is_key, make).cloned().unwrap_or_else(|| Arc::new(make()));
    let x = x.clone().channels_last().into_contiguous();
    let dims = channels_last(shape.output_dims());
    let numbers = NdArrayTensor::build(x.shape(), DType::F32, |out| numbers_of(&x, out, |_| zero));
    let y = NdArrayTensor::build(dims, DType::F32, |out| {
        conv::conv(shape, numbers.slice(), ConvWeight::Packed(&packed.1), None, None, false, out);
    });
    cast::cast(y, DType::I32).channels_first()
}

/// The elements of a contiguous tensor of bytes less their zero points, by their places.
fn numbers_of(tensor: &NdArrayTensor, out: &mut [f32], zero: impl Fn(usize) -> i32) {
    let out = out.iter_mut().enumerate();
    match bytes(tensor) {
        Bytes::U8(bytes) => out.zip(bytes).for_each(|((n, out), &x)| *out = (i32::from(x) - zero(n)) as f32),
        Bytes::I8(bytes) => out.zip(bytes).for_each(|((n, out), &x)| *out = (i32::from(x) - zero(n)) as f32),
    }
}

fn are_bytes(tensor: &NdArrayTensor) -> bool {
    matches!(tensor.dtype(), DType::U8 | DType::I8)
}

/// The elements of a contiguous tensor of bytes.
fn bytes(tensor: &NdArrayTensor) -> Bytes<'_> {
    match tensor.dtype() {
        DType::U8 => Bytes::U8(tensor.slice()),
        DType::I8 => Bytes::I8(tensor.slice()),
        dtype => panic!("{dtype} are no bytes"),
    }
}

/// The storage of a tensor of bytes from a position.
fn bytes_from(tensor: &NdArrayTensor, offset: usize) -> Bytes<'_> {
    match tensor.dtype() {
        DType::U8 => Bytes::U8(&tensor.storage()[offset..]),
        DType::I8 => Bytes::I8(&tensor.storage()[offset..]),
        dtype => panic!("{dtype} are no bytes"),
    }
}

/// A `[.., k, n]` right side packed, once for all uses where it is a weight.
fn packed(rhs: &NdArrayTensor, k: usize, n: usize) -> Arc<(Layout, PackedBytes)> {
    let pack = || {
        // Turned weights are packed as they lie.
        let rank = rhs.dims().len();
        let strides = [rank - 2, rank - 1].map(|axis| usize::try_from(rhs.layout().strides[axis]).ok());
        if let [Some(row), Some(col)] = strides
            && !rhs.is_empty()
        {
            return PackedBytes::new(bytes_from(rhs, rhs.layout().offset), [row, col], k, n);
        }
        PackedBytes::new(bytes(&rhs.clone().into_contiguous()), [n, 1], k, n)
    };
    let make = || (rhs.layout().clone(), pack());
    rhs.prepared(|layout| layout == rhs.layout(), make).cloned().unwrap_or_else(|| Arc::new(make()))
}

/// Zero points as numbers.
#[derive(Clone, PartialEq)]
enum HostZeros {
    One(i32),
    Each(Vec<i32>),
}

impl HostZeros {
    /// Whether f32 holds all sums of so many products of a byte less a byte, and a byte less one of these.
    fn keep_sums_exact(&self, depth: usize) -> bool {
        let largest = match self {
            HostZeros::One(zero) => zero.unsigned_abs(),
            HostZeros::Each(zeros) => zeros.iter().map(|zero| zero.unsigned_abs()).max().unwrap_or(0),
        };
        depth.saturating_mul(255 * (255 + largest as usize)) <= 1 << f32::MANTISSA_DIGITS
    }

    fn view(&self) -> Zeros<'_> {
        match self {
            HostZeros::One(zero) => Zeros::One(*zero),
            HostZeros::Each(zeros) => Zeros::Each(zeros),
        }
    }
}

/// One zero point, or as many as a shape has elements, to which they are broadcast.
fn zeros(zero: &ZeroPoint<NdArrayTensor>, shape: &Shape) -> HostZeros {
    let tensor = match zero {
        ZeroPoint::Number(zero) => return HostZeros::One(*zero),
        ZeroPoint::Tensor(tensor) => cast::cast(tensor.clone(), DType::I32),
    };
    let each: Vec<i32> = if tensor.len() == 1 || tensor.len() == shape.num_elements() {
        tensor.into_contiguous().slice().to_vec()
    } else {
        let layout = tensor.layout().expand(shape);
        copy::contiguous(&tensor.with_layout(layout)).slice().to_vec()
    };
    match each[..] {
        [zero] => HostZeros::One(zero),
        _ => HostZeros::Each(each),
    }
}
