//! [`Backend`] for [`Autodiff`].

use crate::checkpoint::{CheckpointStrategy, NoCheckpointing};
use crate::gradients::Gradients;
use crate::rules;
use crate::tape;
use crate::tensor::AutodiffTensor;
use alloc::string::String;
use alloc::vec::Vec;
use core::future::Future;
use core::marker::PhantomData;
use kiln_tensor::backend::{AutodiffBackend, Backend, ExecutionError, Primitive, SliceRange};
use kiln_tensor::compose::{
    self, BatchNormTrained, CrossEntropyOptions, Quantized, RnnOperands, RnnOutput, Trees,
};
use kiln_tensor::{
    Activation, ArgReduceOp, AttentionOptions, BinaryOp, CompareOp, ConvOptions, ConvTransposeOptions,
    CumulativeOp, DType, Distribution, Expression, InlineVec, InterpolateOptions, PadMode, PoolOp,
    PoolOptions, ReduceOp, RnnOptions, Scalar, ScatterOp, Shape, TensorData, UnaryOp,
};

/// A backend with gradients: computes on `B`, and records what tracked tensors are used for.
///
/// `C` says what is kept for the way back: everything that it needs, or, with
/// [`BalancedCheckpointing`](crate::checkpoint::BalancedCheckpointing), only what is not cheap to compute again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Autodiff<B, C = NoCheckpointing>(PhantomData<(B, C)>);

type T<B> = AutodiffTensor<B>;

/// A fused operation: the inner backend's own where nothing is tracked, else composed of smaller ones.
macro_rules! fused {
    ([$($operand:ident),*] $(optional [$($maybe:ident),*])?, $inner:expr, $composed:expr) => {{
        let tracked = false $(|| $operand.is_tracked())*
            $($(|| $maybe.as_ref().is_some_and(AutodiffTensor::is_tracked))*)?;
        if tracked {
            $composed
        } else {
            $(let $operand = $operand.primitive;)*
            $($(let $maybe = $maybe.map(|operand| operand.primitive);)*)?
            AutodiffTensor::constant($inner)
        }
    }};
}

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    type Device = B::Device;
    type Primitive = AutodiffTensor<B>;
    type FloatElem = B::FloatElem;
    type IntElem = B::IntElem;
    type BoolElem = B::BoolElem;

    fn name(device: &Self::Device) -> String {
        alloc::format!("autodiff<{}>", B::name(device))
    }

    fn seed(device: &Self::Device, seed: u64) {
        B::seed(device, seed);
    }

    fn seed_thread(device: &Self::Device, seed: Option<u64>) {
        B::seed_thread(device, seed);
    }

    fn sync(device: &Self::Device) -> Result<(), ExecutionError> {
        B::sync(device)
    }

    fn supports(device: &Self::Device, dtype: DType) -> bool {
        B::supports(device, dtype)
    }

    fn ad_enabled() -> bool {
        true
    }

    fn set_require_grad(tensor: T<B>, require_grad: bool) -> T<B> {
        if require_grad && tensor.primitive.dtype().is_float() {
            AutodiffTensor::leaf(tensor.primitive)
        } else {
            AutodiffTensor::constant(tensor.primitive)
        }
    }

    fn is_require_grad(tensor: &T<B>) -> bool {
        tensor.node.as_ref().is_some_and(|node| node.is_leaf())
    }

    fn is_tracked(tensor: &T<B>) -> bool {
        tensor.is_tracked()
    }

    fn detach(tensor: T<B>) -> T<B> {
        AutodiffTensor::constant(B::detach(tensor.primitive))
    }

    fn from_data(data: TensorData, device: &Self::Device) -> T<B> {
        AutodiffTensor::constant(B::from_data(data, device))
    }

    fn into_data(tensor: T<B>) -> Result<TensorData, ExecutionError> {
        B::into_data(tensor.primitive)
    }

    fn into_data_async(tensor: T<B>) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        B::into_data_async(tensor.primitive)
    }

    fn into_data_all(tensors: Vec<T<B>>) -> Result<Vec<TensorData>, ExecutionError> {
        B::into_data_all(tensors.into_iter().map(|tensor| tensor.primitive).collect())
    }

    fn into_data_all_async(
        tensors: Vec<T<B>>,
    ) -> impl Future<Output = Result<Vec<TensorData>, ExecutionError>> + Send {
        B::into_data_all_async(tensors.into_iter().map(|tensor| tensor.primitive).collect())
    }

    fn device(tensor: &T<B>) -> Self::Device {
        B::device(&tensor.primitive)
    }

    fn to_device(tensor: T<B>, device: &Self::Device) -> T<B> {
        rules::shape::to_device::<B, C>(tensor, device)
    }

    /// A weight that is trained is another after each step: another form would not last.
    fn prepare(tensor: T<B>) -> T<B> {
        match tensor.is_tracked() {
            true => tensor,
            false => AutodiffTensor::constant(B::prepare(tensor.primitive)),
        }
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &Self::Device) -> T<B> {
        AutodiffTensor::constant(B::full(shape, value, dtype, device))
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, device: &Self::Device) -> T<B> {
        AutodiffTensor::constant(B::random(shape, distribution, dtype, device))
    }

    fn arange(start: i64, end: i64, step: i64, dtype: DType, device: &Self::Device) -> T<B> {
        AutodiffTensor::constant(B::arange(start, end, step, dtype, device))
    }

    fn cast(tensor: T<B>, dtype: DType) -> T<B> {
        rules::elementwise::cast::<B, C>(tensor, dtype)
    }

    fn unary(op: UnaryOp, tensor: T<B>) -> T<B> {
        rules::elementwise::unary::<B, C>(op, tensor)
    }

    fn binary(op: BinaryOp, lhs: T<B>, rhs: T<B>) -> T<B> {
        rules::elementwise::binary::<B, C>(op, lhs, rhs)
    }

    fn binary_scalar(op: BinaryOp, lhs: T<B>, rhs: Scalar) -> T<B> {
        rules::elementwise::binary_scalar::<B, C>(op, lhs, rhs)
    }

    fn compare(op: CompareOp, lhs: T<B>, rhs: T<B>) -> T<B> {
        AutodiffTensor::constant(B::compare(op, lhs.primitive, rhs.primitive))
    }

    fn compare_scalar(op: CompareOp, lhs: T<B>, rhs: Scalar) -> T<B> {
        AutodiffTensor::constant(B::compare_scalar(op, lhs.primitive, rhs))
    }

    fn select_where(mask: T<B>, on_true: T<B>, on_false: T<B>) -> T<B> {
        rules::elementwise::select_where::<B, C>(mask, on_true, on_false)
    }

    fn mask_fill(tensor: T<B>, mask: T<B>, value: Scalar) -> T<B> {
        rules::elementwise::mask_fill::<B, C>(tensor, mask, value)
    }

    fn clamp(tensor: T<B>, min: Option<Scalar>, max: Option<Scalar>) -> T<B> {
        rules::elementwise::clamp::<B, C>(tensor, min, max)
    }

    fn activation(activation: Activation, tensor: T<B>) -> T<B> {
        rules::elementwise::activation::<B, C>(activation, tensor)
    }

    fn elementwise(
        expression: &Expression,
        operands: InlineVec<T<B>>,
        parameters: &[Scalar],
    ) -> InlineVec<T<B>> {
        rules::elementwise::elementwise::<B, C>(expression, operands, parameters)
    }

    fn reshape(tensor: T<B>, shape: Shape) -> T<B> {
        rules::shape::reshape::<B, C>(tensor, shape)
    }

    fn permute(tensor: T<B>, axes: &[usize]) -> T<B> {
        rules::shape::permute::<B, C>(tensor, axes)
    }

    fn expand(tensor: T<B>, shape: Shape) -> T<B> {
        rules::shape::expand::<B, C>(tensor, shape)
    }

    fn slice(tensor: T<B>, ranges: &[SliceRange]) -> T<B> {
        rules::shape::slice::<B, C>(tensor, ranges)
    }

    fn slice_assign(tensor: T<B>, ranges: &[SliceRange], value: T<B>) -> T<B> {
        rules::shape::slice_assign::<B, C>(tensor, ranges, value)
    }

    fn cat(tensors: &[T<B>], dim: usize) -> T<B> {
        rules::shape::cat::<B, C>(tensors.to_vec(), dim)
    }

    fn pad(tensor: T<B>, padding: &[(usize, usize)], mode: PadMode, value: Scalar) -> T<B> {
        fused!(
            [tensor],
            B::pad(tensor, padding, mode, value),
            compose::pad::<Self>(tensor, padding, mode, value)
        )
    }

    fn repeat(tensor: T<B>, times: &[usize]) -> T<B> {
        fused!([tensor], B::repeat(tensor, times), compose::repeat::<Self>(tensor, times))
    }

    fn select(tensor: T<B>, dim: usize, indices: T<B>) -> T<B> {
        rules::indexing::select::<B, C>(tensor, dim, indices.primitive)
    }

    fn select_assign(tensor: T<B>, dim: usize, indices: T<B>, value: T<B>, op: ScatterOp) -> T<B> {
        rules::indexing::select_assign::<B, C>(tensor, dim, indices.primitive, value, op)
    }

    fn gather(tensor: T<B>, dim: usize, indices: T<B>) -> T<B> {
        rules::indexing::gather::<B, C>(tensor, dim, indices.primitive)
    }

    fn scatter(tensor: T<B>, dim: usize, indices: T<B>, value: T<B>, op: ScatterOp) -> T<B> {
        rules::indexing::scatter::<B, C>(tensor, dim, indices.primitive, value, op)
    }

    fn nonzero(tensor: T<B>) -> Result<T<B>, ExecutionError> {
        B::nonzero(tensor.primitive).map(AutodiffTensor::constant)
    }

    fn nonzero_async(tensor: T<B>) -> impl Future<Output = Result<T<B>, ExecutionError>> + Send {
        let places = B::nonzero_async(tensor.primitive);
        async move { places.await.map(AutodiffTensor::constant) }
    }

    fn sort(tensor: T<B>, dim: usize, descending: bool) -> (T<B>, T<B>) {
        rules::indexing::sort::<B, C>(tensor, dim, descending)
    }

    fn topk(tensor: T<B>, k: usize, dim: usize, largest: bool) -> (T<B>, T<B>) {
        if tensor.is_tracked() {
            return compose::topk::<Self>(tensor, k, dim, largest);
        }
        let (values, positions) = B::topk(tensor.primitive, k, dim, largest);
        (AutodiffTensor::constant(values), AutodiffTensor::constant(positions))
    }

    fn tree_leaves(samples: T<B>, trees: Trees<T<B>>, depth: usize) -> T<B> {
        let trees = trees.map(|table| table.primitive);
        AutodiffTensor::constant(B::tree_leaves(samples.primitive, trees, depth))
    }

    fn reduce(op: ReduceOp, tensor: T<B>, axes: &[usize]) -> T<B> {
        rules::reduce::reduce::<B, C>(op, tensor, axes)
    }

    fn arg_reduce(op: ArgReduceOp, tensor: T<B>, dim: usize, select_last: bool) -> T<B> {
        AutodiffTensor::constant(B::arg_reduce(op, tensor.primitive, dim, select_last))
    }

    fn cumulative(op: CumulativeOp, tensor: T<B>, dim: usize, exclusive: bool, reverse: bool) -> T<B> {
        rules::reduce::cumulative::<B, C>(op, tensor, dim, exclusive, reverse)
    }

    fn matmul(lhs: T<B>, rhs: T<B>) -> T<B> {
        rules::linear::matmul::<B, C>(lhs, rhs)
    }

    fn squared_distances(x: T<B>, y: T<B>) -> T<B> {
        rules::linear::squared_distances::<B, C>(x, y)
    }

    fn grouped_matmul(x: T<B>, weight: T<B>, ends: T<B>) -> T<B> {
        rules::linear::grouped_matmul::<B, C>(x, weight, ends.primitive)
    }

    fn matmul_integer(lhs: Quantized<T<B>>, rhs: Quantized<T<B>>) -> T<B> {
        let [lhs, rhs] = [lhs, rhs].map(|side| side.map(|tensor| tensor.primitive));
        AutodiffTensor::constant(B::matmul_integer(lhs, rhs))
    }

    fn conv_integer(x: Quantized<T<B>>, weight: Quantized<T<B>>, options: &ConvOptions) -> T<B> {
        let [x, weight] = [x, weight].map(|side| side.map(|tensor| tensor.primitive));
        AutodiffTensor::constant(B::conv_integer(x, weight, options))
    }

    fn linear(x: T<B>, weight: &T<B>, bias: Option<&T<B>>, activation: Option<Activation>) -> T<B> {
        if ![Some(&x), Some(weight), bias].into_iter().flatten().any(AutodiffTensor::is_tracked) {
            let bias = bias.map(|bias| &bias.primitive);
            return AutodiffTensor::constant(B::linear(x.primitive, &weight.primitive, bias, activation));
        }
        let product = rules::linear::linear::<B, C>(x, weight.clone(), bias.cloned());
        match activation {
            Some(activation) => Self::activation(activation, product),
            None => product,
        }
    }

    fn attention(q: T<B>, k: T<B>, v: T<B>, mask: Option<T<B>>, options: &AttentionOptions) -> T<B> {
        fused!(
            [q, k, v] optional [mask],
            B::attention(q, k, v, mask, options),
            rules::sequence::attention::<B, C>(q, k, v, mask, options)
        )
    }

    fn conv(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: &ConvOptions) -> T<B> {
        rules::spatial::conv::<B, C>(x, weight, bias, options)
    }

    fn conv_activated(
        x: T<B>,
        weight: T<B>,
        bias: Option<T<B>>,
        activation: Activation,
        options: &ConvOptions,
    ) -> T<B> {
        fused!(
            [x, weight] optional [bias],
            B::conv_activated(x, weight, bias, activation, options),
            Self::activation(activation, Self::conv(x, weight, bias, options))
        )
    }

    fn conv_added(
        x: T<B>,
        weight: T<B>,
        bias: Option<T<B>>,
        residual: T<B>,
        activation: Option<Activation>,
        options: &ConvOptions,
    ) -> T<B> {
        fused!(
            [x, weight, residual] optional [bias],
            B::conv_added(x, weight, bias, residual, activation, options),
            compose::conv_added::<Self>(x, weight, bias, residual, activation, options)
        )
    }

    fn conv_transpose(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: &ConvTransposeOptions) -> T<B> {
        rules::spatial::conv_transpose::<B, C>(x, weight, bias, options)
    }

    fn pool(op: PoolOp, x: T<B>, options: &PoolOptions) -> T<B> {
        rules::spatial::pool::<B, C>(op, x, options)
    }

    fn max_pool_with_indices(x: T<B>, options: &PoolOptions) -> (T<B>, T<B>) {
        rules::spatial::max_pool_with_indices::<B, C>(x, options)
    }

    fn adaptive_avg_pool(x: T<B>, output_size: &[usize]) -> T<B> {
        rules::spatial::adaptive_avg_pool::<B, C>(x, output_size)
    }

    fn interpolate(x: T<B>, options: &InterpolateOptions) -> T<B> {
        rules::spatial::interpolate::<B, C>(x, options)
    }

    fn softmax(tensor: T<B>, dim: usize) -> T<B> {
        rules::norm::softmax::<B, C>(tensor, dim)
    }

    fn log_softmax(tensor: T<B>, dim: usize) -> T<B> {
        rules::norm::log_softmax::<B, C>(tensor, dim)
    }

    /// Class weights are constants to the rule; where they are trained, the loss is composed.
    fn cross_entropy(
        logits: T<B>,
        targets: T<B>,
        weights: Option<T<B>>,
        options: &CrossEntropyOptions,
    ) -> T<B> {
        if weights.as_ref().is_some_and(AutodiffTensor::is_tracked) {
            return compose::cross_entropy::<Self>(logits, targets, weights, options);
        }
        let weights = weights.map(|weights| weights.primitive);
        rules::loss::cross_entropy::<B, C>(logits, targets.primitive, weights, options)
    }

    fn layer_norm(x: T<B>, weight: T<B>, bias: Option<T<B>>, epsilon: f64) -> T<B> {
        rules::norm::layer_norm::<B, C>(x, weight, bias, epsilon)
    }

    fn rms_norm(x: T<B>, weight: T<B>, epsilon: f64) -> T<B> {
        rules::norm::rms_norm::<B, C>(x, weight, epsilon)
    }

    fn group_norm(x: T<B>, weight: Option<T<B>>, bias: Option<T<B>>, groups: usize, epsilon: f64) -> T<B> {
        rules::norm::group_norm::<B, C>(x, weight, bias, groups, epsilon)
    }

    fn batch_norm(x: T<B>, weight: T<B>, bias: T<B>, mean: T<B>, variance: T<B>, epsilon: f64) -> T<B> {
        fused!(
            [x, weight, bias, mean, variance],
            B::batch_norm(x, weight, bias, mean, variance, epsilon),
            compose::batch_norm::<Self>(x, weight, bias, mean, variance, epsilon)
        )
    }

    fn rnn(operands: RnnOperands<Self>, options: &RnnOptions) -> RnnOutput<Self> {
        let RnnOperands {
            input,
            weight,
            recurrent,
            bias,
            sequence_lengths,
            initial_hidden,
            initial_cell,
            peepholes,
        } = &operands;
        let given = [input, weight, recurrent].into_iter();
        let optional = [bias, initial_hidden, initial_cell, peepholes].into_iter().flatten();
        if given.chain(optional).any(AutodiffTensor::is_tracked) {
            return rules::sequence::rnn::<B, C>(operands, options);
        }
        let primitive = |tensor: &T<B>| tensor.primitive.clone();
        let inner = RnnOperands::<B> {
            input: primitive(input),
            weight: primitive(weight),
            recurrent: primitive(recurrent),
            bias: bias.as_ref().map(primitive),
            sequence_lengths: sequence_lengths.as_ref().map(primitive),
            initial_hidden: initial_hidden.as_ref().map(primitive),
            initial_cell: initial_cell.as_ref().map(primitive),
            peepholes: peepholes.as_ref().map(primitive),
        };
        let RnnOutput { output, hidden, cell } = B::rnn(inner, options);
        RnnOutput {
            output: AutodiffTensor::constant(output),
            hidden: AutodiffTensor::constant(hidden),
            cell: cell.map(AutodiffTensor::constant),
        }
    }

    fn batch_norm_train(x: T<B>, weight: T<B>, bias: T<B>, epsilon: f64) -> BatchNormTrained<T<B>> {
        rules::norm::batch_norm_train::<B, C>(x, weight, bias, epsilon)
    }

    fn random_key(device: &Self::Device) -> u64 {
        B::random_key(device)
    }

    fn dropout(x: T<B>, probability: f64, key: u64) -> T<B> {
        rules::norm::dropout::<B, C>(x, probability, key)
    }
}

impl<B: Backend, C: CheckpointStrategy> AutodiffBackend for Autodiff<B, C> {
    type InnerBackend = B;
    type Gradients = Gradients;

    fn backward(tensor: Self::Primitive) -> Gradients {
        let mut gradients = Gradients::default();
        if let Some(node) = tensor.node {
            let (shape, dtype) = (tensor.primitive.shape(), tensor.primitive.dtype());
            let seed = B::full(shape, Scalar::Float(1.0), dtype, &B::device(&tensor.primitive));
            gradients.register::<B>(node.id, seed);
            // The result itself is not needed on the way.
            drop(tensor.primitive);
            tape::walk(node, &mut gradients);
        }
        gradients
    }

    fn grad(tensor: &Self::Primitive, gradients: &Gradients) -> Option<B::Primitive> {
        gradients.get::<B>(tensor.node.as_ref()?.id)
    }

    fn grad_remove(tensor: &Self::Primitive, gradients: &mut Gradients) -> Option<B::Primitive> {
        gradients.remove::<B>(tensor.node.as_ref()?.id)
    }

    fn grad_replace(tensor: &Self::Primitive, gradients: &mut Gradients, gradient: B::Primitive) {
        if let Some(node) = &tensor.node {
            gradients.replace::<B>(node.id, gradient);
        }
    }

    fn inner(tensor: Self::Primitive) -> B::Primitive {
        tensor.primitive
    }

    fn from_inner(tensor: B::Primitive) -> Self::Primitive {
        AutodiffTensor::constant(tensor)
    }
}
