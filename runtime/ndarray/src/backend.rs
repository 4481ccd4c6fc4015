//! [`Backend`] for [`NdArray`]: each method hands over to the family it belongs to.

use crate::ops;
use crate::ops::conv::End;
use crate::ops::program::Prepared;
use crate::order::into_one_order;
use crate::tensor::NdArrayTensor;
use alloc::string::String;
use core::fmt::Debug;
use core::marker::PhantomData;
use kiln_kernels::attention::gradient_serves;
use kiln_kernels::softmax::SoftmaxKind;
use kiln_tensor::backend::{Backend, DeviceId, DeviceOps, ExecutionError, Layout, Primitive, SliceRange};
use kiln_tensor::compose::{
    self, AttentionGradients, AttentionTrained, BatchNormTrained, CrossEntropyOptions, CrossEntropyTrained,
    NormGradients, Quantized, Rescale, RnnGradients, RnnOperands, RnnOutput, RnnStates, RnnTrained, Trees,
};
use kiln_tensor::{
    Activation, ArgReduceOp, AttentionOptions, BinaryOp, CompareOp, ConvOptions, ConvTransposeOptions,
    CoordinateTransform, CumulativeOp, DType, Distribution, Element, Expression, InlineVec,
    InterpolateOptions, PoolOp, PoolOptions, ReduceOp, RnnOptions, Scalar, ScatterOp, Shape, Step,
    TensorData, UnaryOp,
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

impl DeviceOps for NdArrayDevice {
    fn to_id(&self) -> DeviceId {
        DeviceId::new(0, 0)
    }

    fn from_id(id: DeviceId) -> Self {
        assert_eq!(id, DeviceId::new(0, 0), "no device of the CPU backend");
        Self::Cpu
    }
}

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

    fn seed_thread(_device: &NdArrayDevice, seed: Option<u64>) {
        ops::random::seed_thread(seed);
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
        tensor.into_weight()
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

    fn cat(tensors: &[NdArrayTensor], dim: usize) -> NdArrayTensor {
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

    fn tree_leaves(samples: NdArrayTensor, trees: Trees<NdArrayTensor>, depth: usize) -> NdArrayTensor {
        match ops::tree::leaves(&samples, &trees, depth) {
            Some(leaves) => positions::<I>(leaves),
            None => compose::tree_leaves::<Self>(samples, trees, depth),
        }
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

    fn matmul_integer(lhs: Quantized<NdArrayTensor>, rhs: Quantized<NdArrayTensor>) -> NdArrayTensor {
        ops::quantized::matmul(&lhs, &rhs, None).unwrap_or_else(|| compose::matmul_integer::<Self>(lhs, rhs))
    }

    fn matmul_integer_rescaled(
        lhs: Quantized<NdArrayTensor>,
        rhs: Quantized<NdArrayTensor>,
        rescale: Rescale<NdArrayTensor>,
    ) -> NdArrayTensor {
        ops::quantized::matmul(&lhs, &rhs, Some(&rescale))
            .unwrap_or_else(|| compose::rescale::<Self>(Self::matmul_integer(lhs, rhs), rescale))
    }

    fn squared_distances(x: NdArrayTensor, y: NdArrayTensor) -> NdArrayTensor {
        ops::distance::squared(&x, &y).unwrap_or_else(|| compose::squared_distances::<Self>(x, y))
    }

    fn grouped_matmul(x: NdArrayTensor, weight: NdArrayTensor, ends: NdArrayTensor) -> NdArrayTensor {
        ops::grouped::matmul(&x, &weight, ends)
    }

    fn grouped_matmul_weight_gradient(
        gradient: NdArrayTensor,
        x: NdArrayTensor,
        ends: NdArrayTensor,
    ) -> NdArrayTensor {
        ops::grouped::weight_gradient(&gradient, &x, ends)
    }

    fn conv_integer(
        x: Quantized<NdArrayTensor>,
        weight: Quantized<NdArrayTensor>,
        options: &ConvOptions,
    ) -> NdArrayTensor {
        ops::quantized::conv(&x, &weight, None, options)
            .unwrap_or_else(|| compose::conv_integer::<Self>(x, weight, options))
    }

    fn conv_integer_rescaled(
        x: Quantized<NdArrayTensor>,
        weight: Quantized<NdArrayTensor>,
        rescale: Rescale<NdArrayTensor>,
        options: &ConvOptions,
    ) -> NdArrayTensor {
        ops::quantized::conv(&x, &weight, Some(&rescale), options)
            .unwrap_or_else(|| compose::rescale::<Self>(Self::conv_integer(x, weight, options), rescale))
    }

    fn conv(
        x: NdArrayTensor,
        weight: NdArrayTensor,
        bias: Option<NdArrayTensor>,
        options: &ConvOptions,
    ) -> NdArrayTensor {
        ops::conv::conv(x, weight, bias, End::default(), options)
    }

    fn conv_activated(
        x: NdArrayTensor,
        weight: NdArrayTensor,
        bias: Option<NdArrayTensor>,
        activation: Activation,
        options: &ConvOptions,
    ) -> NdArrayTensor {
        if single_or_half(x.dtype()) {
            let end = End { activation: Some(activation), ..End::default() };
            return ops::conv::conv(x, weight, bias, end, options);
        }
        Self::activation(activation, Self::conv(x, weight, bias, options))
    }

    fn conv_added(
        x: NdArrayTensor,
        weight: NdArrayTensor,
        bias: Option<NdArrayTensor>,
        residual: NdArrayTensor,
        activation: Option<Activation>,
        options: &ConvOptions,
    ) -> NdArrayTensor {
        if single_or_half(x.dtype()) && ops::conv::adds(&x, &weight, options) {
            let end = End { residual: Some(residual), activation };
            return ops::conv::conv(x, weight, bias, end, options);
        }
        compose::conv_added::<Self>(x, weight, bias, residual, activation, options)
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
        mut operands: InlineVec<NdArrayTensor>,
        parameters: &[Scalar],
    ) -> InlineVec<NdArrayTensor> {
        // Positions are counted along the dims as they are.
        let counts = expression.steps.iter().any(|step| matches!(step, Step::Iota(..)));
        let moved = !counts && into_one_order(&mut operands);
        let mut results = match Prepared::of(expression, &operands, parameters) {
            Some(program) => program.run(operands),
            None => compose::elementwise::<Self>(expression, operands, parameters),
        };
        if moved {
            results.iter_mut().for_each(|result| result.change_layout(Layout::into_channels_first));
        }
        results
    }

    fn linear(
        x: NdArrayTensor,
        weight: &NdArrayTensor,
        bias: Option<&NdArrayTensor>,
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

    fn cross_entropy(
        logits: NdArrayTensor,
        targets: NdArrayTensor,
        weights: Option<NdArrayTensor>,
        options: &CrossEntropyOptions,
    ) -> NdArrayTensor {
        Self::cross_entropy_train(logits, targets, weights, options).losses
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

    fn conv_input_gradient(
        gradient: NdArrayTensor,
        weight: NdArrayTensor,
        input: &Shape,
        options: &ConvOptions,
    ) -> NdArrayTensor {
        let dtype = gradient.dtype();
        if !single_or_half(dtype) || gradient.is_empty() || input.dims.contains(&0) {
            return compose::conv_input_gradient::<Self>(gradient, weight, input, options);
        }
        let found = ops::gradient::conv_input(single(gradient), single(weight), input, options);
        ops::cast::cast(found, dtype)
    }

    fn conv_weight_gradient(
        x: NdArrayTensor,
        gradient: NdArrayTensor,
        weight: &Shape,
        options: &ConvOptions,
    ) -> NdArrayTensor {
        let dtype = x.dtype();
        if !single_or_half(dtype) || x.is_empty() || gradient.is_empty() || weight.dims.contains(&0) {
            return compose::conv_weight_gradient::<Self>(x, gradient, weight, options);
        }
        let found = ops::gradient::conv_weight(single(x), single(gradient), weight, options);
        ops::cast::cast(found, dtype)
    }

    fn conv_transpose_input_gradient(
        gradient: NdArrayTensor,
        weight: NdArrayTensor,
        input: &Shape,
        options: &ConvTransposeOptions,
    ) -> NdArrayTensor {
        let dtype = gradient.dtype();
        if !single_or_half(dtype) || gradient.is_empty() || input.dims.contains(&0) {
            return compose::conv_transpose_input_gradient::<Self>(gradient, weight, input, options);
        }
        let found = ops::gradient::conv_transpose_input(single(gradient), single(weight), input, options);
        ops::cast::cast(found, dtype)
    }

    fn conv_transpose_weight_gradient(
        x: NdArrayTensor,
        gradient: NdArrayTensor,
        weight: &Shape,
        options: &ConvTransposeOptions,
    ) -> NdArrayTensor {
        let dtype = x.dtype();
        if !single_or_half(dtype) || x.is_empty() || gradient.is_empty() || weight.dims.contains(&0) {
            return compose::conv_transpose_weight_gradient::<Self>(x, gradient, weight, options);
        }
        let found = ops::gradient::conv_transpose_weight(single(x), single(gradient), weight, options);
        ops::cast::cast(found, dtype)
    }

    fn adaptive_avg_pool_gradient(gradient: NdArrayTensor, input: &Shape) -> NdArrayTensor {
        // One window over all of an image spreads one number: a broadcast does that.
        let spreads = gradient.dims().iter().skip(2).all(|&size| size == 1);
        if spreads || !single_or_half(gradient.dtype()) || gradient.is_empty() {
            return compose::adaptive_avg_pool_gradient::<Self>(gradient, input);
        }
        in_f32(gradient, |gradient| ops::gradient::adaptive_average_pool(gradient, input))
    }

    fn interpolate_gradient(
        gradient: NdArrayTensor,
        input: &Shape,
        options: &InterpolateOptions,
    ) -> NdArrayTensor {
        let cropped = options.coordinates == CoordinateTransform::TfCropAndResize;
        if cropped || !single_or_half(gradient.dtype()) || gradient.is_empty() {
            return compose::interpolate_gradient::<Self>(gradient, input, options);
        }
        in_f32(gradient, |gradient| ops::gradient::interpolate(gradient, input, options))
    }

    fn group_norm_gradient(
        gradient: NdArrayTensor,
        x: NdArrayTensor,
        weight: Option<NdArrayTensor>,
        groups: usize,
        epsilon: f64,
    ) -> NormGradients<NdArrayTensor> {
        let dtype = x.dtype();
        if !single_or_half(dtype) || x.is_empty() {
            return compose::group_norm_gradient::<Self>(gradient, x, weight, groups, epsilon);
        }
        let weight = weight.map(single);
        let found = ops::gradient::group_norm(single(gradient), single(x), weight, groups, epsilon);
        found.map(|gradient| ops::cast::cast(gradient, dtype))
    }

    fn pool_gradient(
        op: PoolOp,
        gradient: NdArrayTensor,
        x: NdArrayTensor,
        output: NdArrayTensor,
        options: &PoolOptions,
    ) -> NdArrayTensor {
        let dtype = x.dtype();
        let served = single_or_half(dtype) && !x.is_empty() && !gradient.is_empty();
        let found = match op {
            PoolOp::Max if served => {
                ops::gradient::max_pool(single(gradient), single(x), single(output), options)
            }
            PoolOp::Average { include_pad } if served => {
                ops::gradient::average_pool(single(gradient), &x.shape(), include_pad, options)
            }
            PoolOp::Lp { p } if served => {
                ops::gradient::norm_pool(p, single(gradient), single(x), single(output), options)
            }
            PoolOp::Max | PoolOp::Average { .. } | PoolOp::Lp { .. } => {
                return compose::pool_gradient::<Self>(op, gradient, x, output, options);
            }
        };
        ops::cast::cast(found, dtype)
    }

    fn softmax_gradient(gradient: NdArrayTensor, output: NdArrayTensor, dim: usize) -> NdArrayTensor {
        let dtype = output.dtype();
        if !single_or_half(dtype) {
            return compose::softmax_gradient::<Self>(gradient, output, dim);
        }
        let found = ops::gradient::softmax(SoftmaxKind::Softmax, single(gradient), single(output), dim);
        ops::cast::cast(found, dtype)
    }

    fn log_softmax_gradient(gradient: NdArrayTensor, output: NdArrayTensor, dim: usize) -> NdArrayTensor {
        let dtype = output.dtype();
        if !single_or_half(dtype) {
            return compose::log_softmax_gradient::<Self>(gradient, output, dim);
        }
        let found = ops::gradient::softmax(SoftmaxKind::LogSoftmax, single(gradient), single(output), dim);
        ops::cast::cast(found, dtype)
    }

    fn cross_entropy_train(
        logits: NdArrayTensor,
        targets: NdArrayTensor,
        weights: Option<NdArrayTensor>,
        options: &CrossEntropyOptions,
    ) -> CrossEntropyTrained<NdArrayTensor> {
        let dtype = logits.dtype();
        if !single_or_half(dtype) {
            return compose::cross_entropy_train::<Self>(logits, targets, weights, options);
        }
        let trained = ops::loss::cross_entropy(single(logits), targets, weights.map(single), options);
        CrossEntropyTrained { losses: ops::cast::cast(trained.losses, dtype), ..trained }
    }

    fn cross_entropy_gradient(
        gradient: NdArrayTensor,
        logits: NdArrayTensor,
        targets: NdArrayTensor,
        weights: Option<NdArrayTensor>,
        (largest, log_sum): (NdArrayTensor, NdArrayTensor),
        options: &CrossEntropyOptions,
    ) -> NdArrayTensor {
        let dtype = logits.dtype();
        if !single_or_half(dtype) {
            let kept = (largest, log_sum);
            return compose::cross_entropy_gradient::<Self>(
                gradient, logits, targets, weights, kept, options,
            );
        }
        let (gradient, kept) = (single(gradient), [largest, log_sum]);
        in_f32(logits, |logits| {
            ops::loss::cross_entropy_gradient(gradient, logits, targets, weights.map(single), kept, options)
        })
    }

    fn layer_norm_gradient(
        gradient: NdArrayTensor,
        x: NdArrayTensor,
        weight: NdArrayTensor,
        epsilon: f64,
    ) -> NormGradients<NdArrayTensor> {
        let dtype = x.dtype();
        if !single_or_half(dtype) {
            return compose::layer_norm_gradient::<Self>(gradient, x, weight, epsilon);
        }
        let found = ops::gradient::rows_norm(single(gradient), single(x), single(weight), true, epsilon);
        found.map(|gradient| ops::cast::cast(gradient, dtype))
    }

    fn rms_norm_gradient(
        gradient: NdArrayTensor,
        x: NdArrayTensor,
        weight: NdArrayTensor,
        epsilon: f64,
    ) -> (NdArrayTensor, NdArrayTensor) {
        let dtype = x.dtype();
        if !single_or_half(dtype) {
            return compose::rms_norm_gradient::<Self>(gradient, x, weight, epsilon);
        }
        let found = ops::gradient::rows_norm(single(gradient), single(x), single(weight), false, epsilon);
        (ops::cast::cast(found.input, dtype), ops::cast::cast(found.weight, dtype))
    }

    fn attention_train(
        q: NdArrayTensor,
        k: NdArrayTensor,
        v: NdArrayTensor,
        mask: Option<NdArrayTensor>,
        options: &AttentionOptions,
    ) -> AttentionTrained<NdArrayTensor> {
        let dtype = q.dtype();
        if !single_or_half(dtype) || !gradient_serves(options) {
            return compose::attention_train::<Self>(q, k, v, mask, options);
        }
        let operands = [&q, &k, &v].map(|operand| single(operand.clone()));
        let (output, log_sum) = ops::attention::attention_train(operands, mask.clone(), options);
        let output = ops::cast::cast(output, dtype);
        AttentionTrained { q, k, v, mask, output, log_sum }
    }

    fn attention_gradient(
        gradient: NdArrayTensor,
        trained: AttentionTrained<NdArrayTensor>,
        options: &AttentionOptions,
        of_mask: bool,
    ) -> AttentionGradients<NdArrayTensor> {
        let of_mask = of_mask && trained.mask.as_ref().is_some_and(|mask| mask.dtype().is_float());
        let dtype = trained.q.dtype();
        if of_mask || !single_or_half(dtype) || !gradient_serves(options) {
            return compose::attention_gradient::<Self>(gradient, trained, options, of_mask);
        }
        let AttentionTrained { q, k, v, mask, output, log_sum } = trained;
        let [gradient, q, k, v, output, log_sum] = [gradient, q, k, v, output, log_sum].map(single);
        let found = ops::attention::attention_gradient(gradient, [q, k, v], mask, [output, log_sum], options);
        let [q, k, v] = found.map(|gradient| ops::cast::cast(gradient, dtype));
        AttentionGradients { q, k, v, mask: None }
    }

    fn batch_norm_train(
        x: NdArrayTensor,
        weight: NdArrayTensor,
        bias: NdArrayTensor,
        epsilon: f64,
    ) -> BatchNormTrained<NdArrayTensor> {
        let dtype = x.dtype();
        if !single_or_half(dtype) || x.is_empty() {
            return compose::batch_norm_train::<Self>(x, weight, bias, epsilon);
        }
        let trained = ops::gradient::batch_norm_train(single(x), single(weight), single(bias), epsilon);
        let BatchNormTrained { output, mean, variance } = trained;
        // Statistics keep 32 bits, which the gradient and running means are computed from.
        BatchNormTrained { output: ops::cast::cast(output, dtype), mean, variance }
    }

    fn batch_norm_gradient(
        gradient: NdArrayTensor,
        x: NdArrayTensor,
        weight: NdArrayTensor,
        mean: NdArrayTensor,
        variance: NdArrayTensor,
        epsilon: f64,
    ) -> NormGradients<NdArrayTensor> {
        let dtype = x.dtype();
        if !single_or_half(dtype) || x.is_empty() {
            return compose::batch_norm_gradient::<Self>(gradient, x, weight, mean, variance, epsilon);
        }
        let parameters = [weight, mean, variance].map(single);
        let found = ops::gradient::batch_norm(single(gradient), single(x), parameters, epsilon);
        found.map(|gradient| ops::cast::cast(gradient, dtype))
    }

    fn embedding_gradient(gradient: NdArrayTensor, indices: NdArrayTensor, rows: usize) -> NdArrayTensor {
        if !single_or_half(gradient.dtype()) {
            return compose::embedding_gradient::<Self>(gradient, indices, rows);
        }
        ops::scatter::embedding_gradient(gradient, indices, rows)
    }

    fn random_key(_device: &NdArrayDevice) -> u64 {
        ops::random::key()
    }

    fn dropout(x: NdArrayTensor, probability: f64, key: u64) -> NdArrayTensor {
        if probability <= 0.0 || !x.dtype().is_float() {
            return compose::dropout::<Self>(x, probability, key);
        }
        ops::random::dropout(x, probability, key)
    }

    fn rnn(operands: RnnOperands<Self>, options: &RnnOptions) -> RnnOutput<Self> {
        if !ops::rnn::supports(operands.input.dtype(), options) {
            return compose::rnn::<Self>(operands, options);
        }
        let (output, hidden, cell) = ops::rnn::rnn(&recurrent_operands(&operands), options);
        RnnOutput { output, hidden, cell }
    }

    fn rnn_train(operands: RnnOperands<Self>, options: &RnnOptions) -> RnnTrained<Self> {
        let own = recurrent_operands(&operands);
        if !ops::rnn::trains(&own, options) {
            return compose::rnn_train::<Self>(operands, options);
        }
        let ((output, hidden, cell), states) = ops::rnn::rnn_train(&own, options);
        let ops::rnn::States { hidden: hidden_states, cell: cell_states, gates } = states;
        let states = RnnStates { hidden: hidden_states, cell: cell_states, gates: Some(gates) };
        RnnTrained { output: RnnOutput { output, hidden, cell }, states }
    }

    fn rnn_gradient(
        gradient: RnnOutput<Self>,
        operands: RnnOperands<Self>,
        states: RnnStates<Self>,
        options: &RnnOptions,
    ) -> RnnGradients<Self> {
        let RnnStates { hidden, cell, gates: Some(gates) } = states else {
            return compose::rnn_gradient::<Self>(gradient, operands, states, options);
        };
        let RnnOutput { output, hidden: of_hidden, cell: of_cell } = gradient;
        let of = ops::rnn::gradient::OfOutputs { output, hidden: of_hidden, cell: of_cell };
        let kept = ops::rnn::States { hidden, cell, gates };
        let found = ops::rnn::gradient::rnn(of, &recurrent_operands(&operands), kept, options);
        RnnGradients {
            input: found.input,
            weight: found.weight,
            recurrent: found.recurrent,
            bias: found.bias,
            initial_hidden: found.initial_hidden,
            initial_cell: found.initial_cell,
            peepholes: found.peepholes,
        }
    }
}

/// The operands of a recurrent layer, without the backend in their type.
fn recurrent_operands<E: Element, I: Element>(operands: &RnnOperands<NdArray<E, I>>) -> ops::rnn::Operands {
    ops::rnn::Operands {
        input: operands.input.clone(),
        weight: operands.weight.clone(),
        recurrent: operands.recurrent.clone(),
        bias: operands.bias.clone(),
        sequence_lengths: operands.sequence_lengths.clone(),
        initial_hidden: operands.initial_hidden.clone(),
        initial_cell: operands.initial_cell.clone(),
        peepholes: operands.peepholes.clone(),
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
