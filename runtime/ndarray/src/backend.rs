//! [`Backend`] for [`NdArray`]: each method hands over to the family it belongs to.

use crate::ops;
use crate::order::one_order;
use crate::tensor::NdArrayTensor;
use alloc::{string::String, vec::Vec};
use core::fmt::Debug;
use core::marker::PhantomData;
use kiln_kernels::softmax::SoftmaxKind;
use kiln_tensor::backend::{Backend, DeviceOps, ExecutionError, Primitive, SliceRange};
use kiln_tensor::compose::{self, RnnOperands, RnnOutput};
use kiln_tensor::{
    Activation, ArgReduceOp, AttentionOptions, BinaryOp, CompareOp, ConvOptions, ConvTransposeOptions,
    CoordinateTransform, CumulativeOp, DType, Distribution, Element, Expression, InterpolateOptions, PoolOp,
    PoolOptions, ReduceOp, RnnOptions, Scalar, ScatterOp, Shape, Step, TensorData, UnaryOp,
};

/// The CPU backend; `E` and `I` are the dtypes that float and int tensors get by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NdArray<E = f32, I = i64> {
    elements: PhantomData<(E, I)>,
}

/// The CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NdArrayDevice {
    /// The CPU.
    #[default]
    Cpu,
}

impl DeviceOps for NdArrayDevice {}

impl<E: Element, I: Element> Backend for NdArray<E, I> {
    type Device = NdArrayDevice;
    type Primitive = NdArrayTensor;
    type FloatElem = E;
    type IntElem = I;
    type BoolElem = bool;

    fn name(_device: &NdArrayDevice) -> String {
        String::from("ndarray")
    }

    fn seed(_device: &NdArrayDevice, seed: u64) {
        ops::random::seed(seed);
    }

    fn from_data(data: TensorData, _device: &NdArrayDevice) -> NdArrayTensor {
        NdArrayTensor::from_data(data)
    }

    fn into_data(tensor: NdArrayTensor) -> Result<TensorData, ExecutionError> {
        Ok(tensor.into_data())
    }

    fn device(_tensor: &NdArrayTensor) -> NdArrayDevice {
        NdArrayDevice::Cpu
    }

    fn to_device(tensor: NdArrayTensor, _device: &NdArrayDevice) -> NdArrayTensor {
        tensor
    }

    fn prepare(tensor: NdArrayTensor) -> NdArrayTensor {
        tensor.keep_prepared();
        tensor
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, _device: &NdArrayDevice) -> NdArrayTensor {
        ops::create::full(shape, value, dtype)
    }

    fn random(
        shape: Shape,
        distribution: Distribution,
        dtype: DType,
        _device: &NdArrayDevice,
    ) -> NdArrayTensor {
        ops::random::random(shape, distribution, dtype)
    }

    fn arange(start: i64, end: i64, step: i64, dtype: DType, _device: &NdArrayDevice) -> NdArrayTensor {
        ops::create::arange(start, end, step, dtype)
    }

    fn cast(tensor: NdArrayTensor, dtype: DType) -> NdArrayTensor {
        ops::cast::cast(tensor, dtype)
    }

    fn unary(op: UnaryOp, tensor: NdArrayTensor) -> NdArrayTensor {
        ops::unary::unary(op, tensor)
    }

    fn binary(op: BinaryOp, lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
        ops::binary::binary(op, lhs, rhs)
    }

    fn binary_scalar(op: BinaryOp, lhs: NdArrayTensor, rhs: Scalar) -> NdArrayTensor {
        ops::binary::binary_scalar(op, lhs, rhs)
    }

    fn compare(op: CompareOp, lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
        ops::compare::compare(op, lhs, rhs)
    }

    fn compare_scalar(op: CompareOp, lhs: NdArrayTensor, rhs: Scalar) -> NdArrayTensor {
        ops::compare::compare_scalar(op, lhs, rhs)
    }

    fn select_where(mask: NdArrayTensor, on_true: NdArrayTensor, on_false: NdArrayTensor) -> NdArrayTensor {
        ops::select_where::select_where(mask, on_true, on_false)
    }

    fn mask_fill(tensor: NdArrayTensor, mask: NdArrayTensor, value: Scalar) -> NdArrayTensor {
        ops::select_where::mask_fill(tensor, mask, value)
    }

    fn reshape(tensor: NdArrayTensor, shape: Shape) -> NdArrayTensor {
        ops::copy::reshape(tensor, shape)
    }

    fn permute(tensor: NdArrayTensor, axes: &[usize]) -> NdArrayTensor {
        let layout = tensor.layout().permute(axes);
        tensor.with_layout(layout)
    }

    fn expand(tensor: NdArrayTensor, shape: Shape) -> NdArrayTensor {
        let layout = tensor.layout().expand(&shape);
        tensor.with_layout(layout)
    }

    fn slice(tensor: NdArrayTensor, ranges: &[SliceRange]) -> NdArrayTensor {
        let layout = tensor.layout().slice(ranges);
        tensor.with_layout(layout)
    }

    fn slice_assign(tensor: NdArrayTensor, ranges: &[SliceRange], value: NdArrayTensor) -> NdArrayTensor {
        ops::copy::slice_assign(tensor, ranges, value)
    }

    fn cat(tensors: Vec<NdArrayTensor>, dim: usize) -> NdArrayTensor {
        ops::copy::cat(tensors, dim)
    }

    fn select(tensor: NdArrayTensor, dim: usize, indices: NdArrayTensor) -> NdArrayTensor {
        ops::index::select(tensor, dim, indices)
    }

    fn select_assign(
        tensor: NdArrayTensor,
        dim: usize,
        indices: NdArrayTensor,
        value: NdArrayTensor,
        op: ScatterOp,
    ) -> NdArrayTensor {
        ops::scatter::select_assign(tensor, dim, indices, value, op)
    }

    fn gather(tensor: NdArrayTensor, dim: usize, indices: NdArrayTensor) -> NdArrayTensor {
        ops::index::gather(tensor, dim, indices)
    }

    fn scatter(
        tensor: NdArrayTensor,
        dim: usize,
        indices: NdArrayTensor,
        value: NdArrayTensor,
        op: ScatterOp,
    ) -> NdArrayTensor {
        ops::scatter::scatter(tensor, dim, indices, value, op)
    }

    fn nonzero(tensor: NdArrayTensor) -> Result<NdArrayTensor, ExecutionError> {
        Ok(positions::<I>(ops::index::nonzero(tensor)))
    }

    fn sort(tensor: NdArrayTensor, dim: usize, descending: bool) -> (NdArrayTensor, NdArrayTensor) {
        let keep = tensor.shape().dims[dim];
        let (values, order) = ops::sort::sorted(tensor, dim, descending, keep);
        (values, positions::<I>(order))
    }

    fn topk(tensor: NdArrayTensor, k: usize, dim: usize, largest: bool) -> (NdArrayTensor, NdArrayTensor) {
        let (values, order) = ops::sort::sorted(tensor, dim, largest, k);
        (values, positions::<I>(order))
    }

    fn reduce(op: ReduceOp, tensor: NdArrayTensor, axes: &[usize]) -> NdArrayTensor {
        ops::reduce::reduce(op, tensor, axes)
    }

    fn arg_reduce(op: ArgReduceOp, tensor: NdArrayTensor, dim: usize, select_last: bool) -> NdArrayTensor {
        positions::<I>(ops::reduce::arg_reduce(op, tensor, dim, select_last))
    }

    fn cumulative(
        op: CumulativeOp,
        tensor: NdArrayTensor,
        dim: usize,
        exclusive: bool,
        reverse: bool,
    ) -> NdArrayTensor {
        ops::cumulative::cumulative(op, tensor, dim, exclusive, reverse)
    }

    fn matmul(lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
        ops::matmul::matmul(lhs, rhs)
    }

    fn conv(
        x: NdArrayTensor,
        weight: NdArrayTensor,
        bias: Option<NdArrayTensor>,
        options: &ConvOptions,
    ) -> NdArrayTensor {
        ops::conv::conv(x, weight, bias, None, options)
    }

    fn conv_activated(
        x: NdArrayTensor,
        weight: NdArrayTensor,
        bias: Option<NdArrayTensor>,
        activation: Activation,
        options: &ConvOptions,
    ) -> NdArrayTensor {
        if single_or_half(x.dtype()) {
            return ops::conv::conv(x, weight, bias, Some(activation), options);
        }
        Self::activation(activation, Self::conv(x, weight, bias, options))
    }

    fn conv_transpose(
        x: NdArrayTensor,
        weight: NdArrayTensor,
        bias: Option<NdArrayTensor>,
        options: &ConvTransposeOptions,
    ) -> NdArrayTensor {
        ops::conv_transpose::conv_transpose(x, weight, bias, options)
    }

    fn pool(op: PoolOp, x: NdArrayTensor, options: &PoolOptions) -> NdArrayTensor {
        ops::pool::pool(op, x, options)
    }

    fn max_pool_with_indices(x: NdArrayTensor, options: &PoolOptions) -> (NdArrayTensor, NdArrayTensor) {
        let (values, at) = ops::pool::max_pool_with_indices(x, options);
        (values, positions::<I>(at))
    }

    fn clamp(tensor: NdArrayTensor, min: Option<Scalar>, max: Option<Scalar>) -> NdArrayTensor {
        if tensor.dtype() != DType::F32 {
            return compose::clamp::<Self>(tensor, min, max);
        }
        let bound = |bound: Option<Scalar>, none: f64| bound.map_or(none, Scalar::to_f64);
        let (min, max) = (bound(min, f64::NEG_INFINITY), bound(max, f64::INFINITY));
        Self::activation(Activation::Clamp { min, max }, tensor)
    }

    fn activation(activation: Activation, tensor: NdArrayTensor) -> NdArrayTensor {
        match tensor.dtype() {
            DType::F32 => {
                tensor.transform_each(|data| kiln_kernels::elementwise::activation(activation, data))
            }
            DType::F16 | DType::BF16 => in_f32(tensor, |tensor| Self::activation(activation, tensor)),
            _ => compose::activation::<Self>(activation, tensor),
        }
    }

    fn elementwise(
        expression: &Expression,
        operands: Vec<NdArrayTensor>,
        parameters: &[Scalar],
    ) -> Vec<NdArrayTensor> {
        // Positions are counted along the dims as they are.
        let counts = expression.steps.iter().any(|step| matches!(step, Step::Iota(..)));
        let (operands, moved) = if counts { (operands, false) } else { one_order(operands) };
        let results = match ops::program::elementwise(expression, operands, parameters) {
            Ok(results) => results,
            Err(operands) => compose::elementwise::<Self>(expression, operands, parameters),
        };
        if !moved {
            return results;
        }
        results.into_iter().map(NdArrayTensor::channels_first).collect()
    }

    fn linear(
        x: NdArrayTensor,
        weight: NdArrayTensor,
        bias: Option<NdArrayTensor>,
        activation: Option<Activation>,
    ) -> NdArrayTensor {
        if single_or_half(x.dtype()) {
            return ops::matmul::linear(x, weight, bias, activation);
        }
        compose::linear::<Self>(x, weight, bias, activation)
    }

    fn attention(
        q: NdArrayTensor,
        k: NdArrayTensor,
        v: NdArrayTensor,
        mask: Option<NdArrayTensor>,
        options: &AttentionOptions,
    ) -> NdArrayTensor {
        let dtype = q.dtype();
        if !single_or_half(dtype) {
            return compose::attention::<Self>(q, k, v, mask, options);
        }
        let [q, k, v] = [q, k, v].map(|x| ops::cast::cast(x, DType::F32));
        ops::cast::cast(ops::attention::attention(q, k, v, mask, options), dtype)
    }

    fn interpolate(x: NdArrayTensor, options: &InterpolateOptions) -> NdArrayTensor {
        let cropped = options.coordinates == CoordinateTransform::TfCropAndResize;
        if cropped || !single_or_half(x.dtype()) {
            return compose::interpolate::<Self>(x, options);
        }
        in_f32(x, |x| ops::resize::interpolate(x, options))
    }

    fn softmax(tensor: NdArrayTensor, dim: usize) -> NdArrayTensor {
        if !single_or_half(tensor.dtype()) {
            return compose::softmax::<Self>(tensor, dim);
        }
        in_f32(tensor, |tensor| ops::norm::softmax(SoftmaxKind::Softmax, tensor, dim))
    }

    fn log_softmax(tensor: NdArrayTensor, dim: usize) -> NdArrayTensor {
        if !single_or_half(tensor.dtype()) {
            return compose::log_softmax::<Self>(tensor, dim);
        }
        in_f32(tensor, |tensor| ops::norm::softmax(SoftmaxKind::LogSoftmax, tensor, dim))
    }

    fn layer_norm(
        x: NdArrayTensor,
        weight: NdArrayTensor,
        bias: Option<NdArrayTensor>,
        epsilon: f64,
    ) -> NdArrayTensor {
        if !single_or_half(x.dtype()) {
            return compose::layer_norm::<Self>(x, weight, bias, epsilon);
        }
        in_f32(x, |x| ops::norm::layer_norm(x, single(weight), bias.map(single), epsilon))
    }

    fn rms_norm(x: NdArrayTensor, weight: NdArrayTensor, epsilon: f64) -> NdArrayTensor {
        if !single_or_half(x.dtype()) {
            return compose::rms_norm::<Self>(x, weight, epsilon);
        }
        in_f32(x, |x| ops::norm::rms_norm(x, single(weight), epsilon))
    }

    fn group_norm(
        x: NdArrayTensor,
        weight: Option<NdArrayTensor>,
        bias: Option<NdArrayTensor>,
        groups: usize,
        epsilon: f64,
    ) -> NdArrayTensor {
        if !single_or_half(x.dtype()) {
            return compose::group_norm::<Self>(x, weight, bias, groups, epsilon);
        }
        in_f32(x, |x| ops::norm::group_norm(x, weight.map(single), bias.map(single), groups, epsilon))
    }

    fn batch_norm(
        x: NdArrayTensor,
        weight: NdArrayTensor,
        bias: NdArrayTensor,
        mean: NdArrayTensor,
        variance: NdArrayTensor,
        epsilon: f64,
    ) -> NdArrayTensor {
        if !single_or_half(x.dtype()) {
            return compose::batch_norm::<Self>(x, weight, bias, mean, variance, epsilon);
        }
        let parameters = [weight, bias, mean, variance].map(single);
        in_f32(x, |x| ops::norm::batch_norm(x, parameters, epsilon))
    }

    fn random_key(_device: &NdArrayDevice) -> u64 {
        ops::random::key()
    }

    fn dropout(x: NdArrayTensor, probability: f64, key: u64) -> NdArrayTensor {
        ops::random::dropout(x, probability, key)
    }

    fn rnn(operands: RnnOperands<Self>, options: &RnnOptions) -> RnnOutput<Self> {
        if !ops::rnn::supports(operands.input.dtype(), options) {
            return compose::rnn::<Self>(operands, options);
        }
        let operands = ops::rnn::Operands {
            input: operands.input,
            weight: operands.weight,
            recurrent: operands.recurrent,
            bias: operands.bias,
            sequence_lengths: operands.sequence_lengths,
            initial_hidden: operands.initial_hidden,
            initial_cell: operands.initial_cell,
            peepholes: operands.peepholes,
        };
        let (output, hidden, cell) = ops::rnn::rnn(operands, options);
        RnnOutput { output, hidden, cell }
    }
}

/// The dtypes that the f32 kernels serve, f16 and bf16 by conversion.
fn single_or_half(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Positions, which the operations count in i64, in the backend's integers.
fn positions<I: Element>(counted: NdArrayTensor) -> NdArrayTensor {
    ops::cast::cast(counted, I::DTYPE)
}

fn single(tensor: NdArrayTensor) -> NdArrayTensor {
    ops::cast::cast(tensor, DType::F32)
}

/// Runs `f` on the tensor as f32 and converts back.
fn in_f32(tensor: NdArrayTensor, f: impl FnOnce(NdArrayTensor) -> NdArrayTensor) -> NdArrayTensor {
    let dtype = tensor.dtype();
    ops::cast::cast(f(single(tensor)), dtype)
}
