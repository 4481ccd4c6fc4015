//! The [`Backend`] trait.

use super::{DeviceOps, ExecutionError, Primitive, SliceRange};
use crate::compose::{
    self, AttentionGradients, AttentionTrained, BatchNormTrained, CrossEntropyOptions, CrossEntropyTrained,
    ElementwiseProgram, NormGradients, NormalizedBatch, Quantized, Rescale, RnnGradients, RnnOperands,
    RnnOutput, RnnStates, RnnTrained, Trees,
};
use crate::ops::{ActivationOps, FloatTensorOps};
use crate::{
    Activation, ArgReduceOp, AttentionOptions, BinaryOp, CompareOp, ConvOptions, ConvTransposeOptions,
    CumulativeOp, DType, Distribution, Element, Expression, InlineVec, InterpolateOptions, PadMode, PoolOp,
    PoolOptions, ReduceOp, RnnOptions, Scalar, ScatterOp, Shape, TensorData, UnaryOp,
};
use alloc::{string::String, vec::Vec};
use core::fmt::Debug;
use core::future::Future;

/// Shorthand for a backend's tensor.
type T<B> = <B as Backend>::Primitive;

/// The operations of a device, on rank-erased tensors of any dtype.
///
/// Rules that hold for every method:
/// - Operands are taken by value, so that an implementation may write into the last reference.
/// - Shapes, dtypes, axes and ranges were checked by the caller (`Tensor` and `compose` do); a backend may panic on
///   what breaks them.
/// - Operands of one operation have one dtype, unless the method says otherwise. Integer and bool tensors are
///   ordinary tensors.
/// - Binary operations broadcast operands of *equal rank*.
/// - Positions that an operation yields (of extremes, of sorted or non-zero elements, within pooling windows) have the
///   dtype [`Backend::IntElem`], and so have those that `compose` makes. A backend whose `IntElem` is i32 holds no tensor
///   with more than 2^31 elements. Index tensors that an operation *takes* have any integer dtype.
/// - Every operation that has a derivative can be differentiated with other methods of this trait, so that `Autodiff`
///   needs nothing more.
///
/// Every backend has [`FloatTensorOps`] and [`ActivationOps`]: the same operations under the names that Burn's backends have.
pub trait Backend:
    FloatTensorOps<Self> + ActivationOps<Self> + Clone + Default + Debug + Send + Sync + 'static
{
    /// Names a device.
    type Device: DeviceOps;
    /// The tensor of this backend.
    type Primitive: Primitive;
    /// Dtype that float tensors get when nothing else is said.
    type FloatElem: Element;
    /// Dtype that int tensors get when nothing else is said: that of positions.
    type IntElem: Element;
    /// How a bool reads back.
    type BoolElem: Element;

    // ---- the device ----

    /// The backend's name with its device, as printed beside a tensor.
    fn name(device: &Self::Device) -> String;

    /// Seeds the device's random numbers.
    fn seed(device: &Self::Device, seed: u64);

    /// From here on, what this thread draws on the device comes from a sequence of its own, which the seed begins; without a
    /// seed, from the device's again. So threads that prepare data neither disturb the device's sequence nor depend on each
    /// other. A backend that does not know of this draws from the device's sequence on every thread.
    fn seed_thread(_device: &Self::Device, _seed: Option<u64>) {}

    /// Waits until everything submitted has run.
    fn sync(_device: &Self::Device) -> Result<(), ExecutionError> {
        Ok(())
    }

    /// Whether the device holds tensors of a dtype and computes with them.
    ///
    /// `Tensor` and `compose` hand a backend no other dtype: what is asked for in one that is not supported is held in
    /// [`held`](super::held)'s. `f64` becomes `f32` then (and is less exact), `f16` and `bf16` become `f32` (and are more
    /// exact), integers become those of [`Backend::IntElem`], except that those of four bits become `i8` and `u8` where there are such. Data whose numbers do not fit is refused with a message;
    /// integers that are computed wrap at the width of the dtype that holds them. The default float and integer dtypes and
    /// `bool` are supported everywhere. Unless a backend says otherwise, it supports all dtypes but integers of four bits.
    fn supports(_device: &Self::Device, dtype: DType) -> bool {
        !dtype.is_packed()
    }

    /// Whether gradients are recorded.
    fn ad_enabled() -> bool {
        false
    }

    /// The tensor as a leaf whose gradient is wanted, or as a constant, without what led to it here; what a backend below knows of it
    /// stays. The same tensor where gradients are not recorded.
    fn set_require_grad(tensor: T<Self>, _require_grad: bool) -> T<Self> {
        tensor
    }

    /// Whether it is a leaf whose gradient is wanted.
    fn is_require_grad(_tensor: &T<Self>) -> bool {
        false
    }

    /// Whether gradients flow through it: it is a leaf whose gradient is wanted, or was computed from one.
    fn is_tracked(_tensor: &T<Self>) -> bool {
        false
    }

    /// The tensor without what led to it.
    fn detach(tensor: T<Self>) -> T<Self> {
        tensor
    }

    // ---- making, reading, moving ----

    /// A tensor from data. A CPU backend shares the data's bytes when alignment allows.
    fn from_data(data: TensorData, device: &Self::Device) -> T<Self>;

    /// Reads a tensor back.
    fn into_data(tensor: T<Self>) -> Result<TensorData, ExecutionError>;

    /// Reads a tensor back without blocking the thread (browsers).
    fn into_data_async(tensor: T<Self>) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        async move { Self::into_data(tensor) }
    }

    /// Reads several tensors back, waiting once.
    fn into_data_all(tensors: Vec<T<Self>>) -> Result<Vec<TensorData>, ExecutionError> {
        tensors.into_iter().map(Self::into_data).collect()
    }

    /// [`Backend::into_data_all`] without blocking the thread.
    fn into_data_all_async(
        tensors: Vec<T<Self>>,
    ) -> impl Future<Output = Result<Vec<TensorData>, ExecutionError>> + Send {
        async move {
            let mut all = Vec::with_capacity(tensors.len());
            for tensor in tensors {
                all.push(Self::into_data_async(tensor).await?);
            }
            Ok(all)
        }
    }

    /// The device that holds the tensor.
    fn device(tensor: &T<Self>) -> Self::Device;

    /// Copies to another device of this backend.
    fn to_device(tensor: T<Self>, device: &Self::Device) -> T<Self>;

    /// Sums over devices: each set has the tensors of a device, those at the same place of all sets have one shape and one dtype, and their
    /// sum comes in the place of each. All devices have the same bits of it.
    fn all_reduce(sets: Vec<Vec<T<Self>>>) -> Vec<Vec<T<Self>>> {
        compose::all_reduce::<Self>(sets)
    }

    /// Says that a tensor is a weight: it stays as it is, and is used again and again. A backend may keep it in another form,
    /// as its kernels like it best; where gradients are recorded, a leaf stays what it is.
    fn prepare(tensor: T<Self>) -> T<Self> {
        tensor
    }

    /// A tensor filled with one value.
    fn full(shape: Shape, value: Scalar, dtype: DType, device: &Self::Device) -> T<Self>;

    /// Random values.
    fn random(shape: Shape, distribution: Distribution, dtype: DType, device: &Self::Device) -> T<Self>;

    /// `start, start + step, …` below (or above, for a negative step) `end`; rank 1, an integer dtype.
    fn arange(start: i64, end: i64, step: i64, dtype: DType, device: &Self::Device) -> T<Self>;

    /// Converts the elements: floats to integers truncate and saturate (NaN is 0), non-zero is `true`.
    fn cast(tensor: T<Self>, dtype: DType) -> T<Self>;

    // ---- elementwise ----

    /// See [`UnaryOp`]; `IsNan` and `IsInf` yield bool.
    fn unary(op: UnaryOp, tensor: T<Self>) -> T<Self>;

    /// See [`BinaryOp`]; broadcasts.
    fn binary(op: BinaryOp, lhs: T<Self>, rhs: T<Self>) -> T<Self>;

    /// [`BinaryOp`] with a scalar on the right, converted to the tensor's dtype.
    fn binary_scalar(op: BinaryOp, lhs: T<Self>, rhs: Scalar) -> T<Self>;

    /// See [`CompareOp`]; broadcasts; yields bool.
    fn compare(op: CompareOp, lhs: T<Self>, rhs: T<Self>) -> T<Self>;

    /// [`CompareOp`] with a scalar on the right.
    fn compare_scalar(op: CompareOp, lhs: T<Self>, rhs: Scalar) -> T<Self>;

    /// `mask ? on_true : on_false`, all three broadcast; `mask` is bool, the others have one dtype.
    fn select_where(mask: T<Self>, on_true: T<Self>, on_false: T<Self>) -> T<Self>;

    /// `mask ? value : tensor`; `mask` broadcasts to `tensor`.
    fn mask_fill(tensor: T<Self>, mask: T<Self>, value: Scalar) -> T<Self> {
        compose::mask_fill::<Self>(tensor, mask, value)
    }

    /// `clamp(x, min, max)`; NaN stays.
    fn clamp(tensor: T<Self>, min: Option<Scalar>, max: Option<Scalar>) -> T<Self> {
        compose::clamp::<Self>(tensor, min, max)
    }

    /// See [`Activation`].
    fn activation(activation: Activation, tensor: T<Self>) -> T<Self> {
        compose::activation::<Self>(activation, tensor)
    }

    /// A chain of elementwise operations over operands of equal rank (at least one), which broadcast; see [`Expression`].
    /// `parameters` are the numbers of its [`Step::Parameter`](crate::Step::Parameter)s. Every result has the shape of all
    /// operands together.
    fn elementwise(
        expression: &Expression,
        operands: InlineVec<T<Self>>,
        parameters: &[Scalar],
    ) -> InlineVec<T<Self>> {
        compose::elementwise::<Self>(expression, operands, parameters)
    }

    /// The sums along `axes`, which stay with size 1, of each result of an elementwise program; see [`Backend::elementwise`]. Where there is a program to be
    /// run `then`, whose first operands the sums are, its results.
    fn elementwise_sums(
        of: ElementwiseProgram<'_, T<Self>>,
        axes: &[usize],
        then: Option<ElementwiseProgram<'_, T<Self>>>,
    ) -> InlineVec<T<Self>> {
        compose::elementwise_sums::<Self>(of, axes, then)
    }

    /// The results of an elementwise program whose first operands are the mean and the variance of floats along `axes`, which stay with size 1: the variance
    /// is that of a whole population, and those of floats of 16 bits are in f32.
    fn elementwise_moments(
        x: T<Self>,
        axes: &[usize],
        then: ElementwiseProgram<'_, T<Self>>,
    ) -> InlineVec<T<Self>> {
        compose::elementwise_moments::<Self>(x, axes, then)
    }

    // ---- shape ----

    /// Same elements in row-major order, another shape.
    fn reshape(tensor: T<Self>, shape: Shape) -> T<Self>;

    /// Reorders dims: output dim `i` is input dim `axes[i]`.
    fn permute(tensor: T<Self>, axes: &[usize]) -> T<Self>;

    /// Broadcasts to a shape of the same or a higher rank.
    fn expand(tensor: T<Self>, shape: Shape) -> T<Self>;

    /// One range per dim.
    fn slice(tensor: T<Self>, ranges: &[SliceRange]) -> T<Self>;

    /// `tensor` with the ranges replaced by `value` (whose shape is the ranges').
    fn slice_assign(tensor: T<Self>, ranges: &[SliceRange], value: T<Self>) -> T<Self>;

    /// Joins along an existing dim; at least one operand.
    fn cat(tensors: &[T<Self>], dim: usize) -> T<Self>;

    /// Pads each dim before and after; `value` is for [`PadMode::Constant`].
    fn pad(tensor: T<Self>, padding: &[(usize, usize)], mode: PadMode, value: Scalar) -> T<Self> {
        compose::pad::<Self>(tensor, padding, mode, value)
    }

    /// Repeats each dim `times` over.
    fn repeat(tensor: T<Self>, times: &[usize]) -> T<Self> {
        compose::repeat::<Self>(tensor, times)
    }

    // ---- indexing; index tensors have any integer dtype and are non-negative and in range. What is not is the user's data: no backend may read or write
    // other memory for it. Those that cannot stop read NaN, of integers 0, and write nothing ----

    /// Rows of `dim` named by a rank-1 index.
    fn select(tensor: T<Self>, dim: usize, indices: T<Self>) -> T<Self>;

    /// `tensor` with `value`'s rows combined into the rows of `dim` named by a rank-1 index. Duplicates accumulate, in
    /// their order; with [`ScatterOp::Assign`], the last of them stays.
    fn select_assign(tensor: T<Self>, dim: usize, indices: T<Self>, value: T<Self>, op: ScatterOp)
    -> T<Self>;

    /// `out[i][j] = tensor[indices[i][j]][j]` (for `dim` 0); `indices` has the rank of `tensor`.
    fn gather(tensor: T<Self>, dim: usize, indices: T<Self>) -> T<Self>;

    /// The inverse of [`Backend::gather`]: combines `value` into `tensor`; duplicates as in [`Backend::select_assign`].
    fn scatter(tensor: T<Self>, dim: usize, indices: T<Self>, value: T<Self>, op: ScatterOp) -> T<Self>;

    /// Indices of the non-zero elements in row-major order, `[n, rank]`. The size depends on the data: this waits for
    /// the device.
    fn nonzero(tensor: T<Self>) -> Result<T<Self>, ExecutionError>;

    /// [`Backend::nonzero`] without blocking the thread.
    fn nonzero_async(tensor: T<Self>) -> impl Future<Output = Result<T<Self>, ExecutionError>> + Send {
        async move { Self::nonzero(tensor) }
    }

    /// Sorted values and their positions along `dim`; stable; NaN sorts as the largest.
    fn sort(tensor: T<Self>, dim: usize, descending: bool) -> (T<Self>, T<Self>);

    /// The `k` first of [`Backend::sort`].
    fn topk(tensor: T<Self>, k: usize, dim: usize, largest: bool) -> (T<Self>, T<Self>) {
        compose::topk::<Self>(tensor, k, dim, largest)
    }

    /// The leaf of each tree at which each sample arrives, `[samples, trees]`, after at most `depth` steps; see
    /// [`tree::leaves`](crate::tree::leaves), which checks that the tables fit each other.
    fn tree_leaves(samples: T<Self>, trees: Trees<T<Self>>, depth: usize) -> T<Self> {
        compose::tree_leaves::<Self>(samples, trees, depth)
    }

    // ---- reductions ----

    /// Reduces the dims in `axes` (sorted, distinct; never empty); they stay with size 1. See [`ReduceOp`].
    fn reduce(op: ReduceOp, tensor: T<Self>, axes: &[usize]) -> T<Self>;

    /// See [`ArgReduceOp`]; among equals the first, or the last.
    fn arg_reduce(op: ArgReduceOp, tensor: T<Self>, dim: usize, select_last: bool) -> T<Self>;

    /// See [`CumulativeOp`]. `exclusive` leaves out the element itself, `reverse` runs from the end.
    fn cumulative(op: CumulativeOp, tensor: T<Self>, dim: usize, exclusive: bool, reverse: bool) -> T<Self>;

    // ---- linear algebra ----

    /// Matrix product over the last two dims, the leading dims broadcast; equal rank of at least 2.
    fn matmul(lhs: T<Self>, rhs: T<Self>) -> T<Self>;

    /// [`Backend::matmul`] of integers less their zero points, which may be of different dtypes. The sums have 32 bits (in the dtype that
    /// holds those) and wrap.
    fn matmul_integer(lhs: Quantized<T<Self>>, rhs: Quantized<T<Self>>) -> T<Self> {
        compose::matmul_integer::<Self>(lhs, rhs)
    }

    /// [`Backend::matmul_integer`], whose sums become numbers, or integers again, on the way out.
    fn matmul_integer_rescaled(
        lhs: Quantized<T<Self>>,
        rhs: Quantized<T<Self>>,
        rescale: Rescale<T<Self>>,
    ) -> T<Self> {
        compose::rescale::<Self>(Self::matmul_integer(lhs, rhs), rescale)
    }

    /// Rows times the matrix of their group, in one dtype: `x` is `[rows, in]`, `weight` `[groups, in, out]`. The groups' rows are one behind another; where
    /// they end say the integers `ends`, `[groups]`, which ascend: of others the result is any. Rows behind the last group become 0.
    fn grouped_matmul(x: T<Self>, weight: T<Self>, ends: T<Self>) -> T<Self> {
        compose::grouped_matmul::<Self>(x, weight, ends)
    }

    /// The sums `Σ (x - y)²` of floats of one dtype for each row of `x`, `[…, m, k]`, and each of `y`, `[…, n, k]`, whose other dims are the same: `[…, m, n]`.
    /// Differences are squared as they are: the distance of equal rows is 0.
    fn squared_distances(x: T<Self>, y: T<Self>) -> T<Self> {
        compose::squared_distances::<Self>(x, y)
    }

    /// `activation(x · weight + bias)`: `x` is `[…, in]`, `weight` `[in, out]`, `bias` `[out]`. A layer keeps its weight and bias, and to hand over
    /// copies of their handles would take as long as a small product does.
    fn linear(
        x: T<Self>,
        weight: &T<Self>,
        bias: Option<&T<Self>>,
        activation: Option<Activation>,
    ) -> T<Self> {
        compose::linear::<Self>(x, weight, bias, activation)
    }

    /// `x · weight + added`, of [`Backend::linear`]: what is added has the result's shape.
    fn linear_added(x: T<Self>, weight: &T<Self>, added: T<Self>) -> T<Self> {
        Self::binary(BinaryOp::Add, Self::linear(x, weight, None, None), added)
    }

    /// The gradients of the weight and of the bias of [`Backend::linear`], without its activation: of the gradient of the result, `[…, out]`, and `x`,
    /// `[…, in]`.
    fn linear_parameter_gradients(gradient: T<Self>, x: T<Self>) -> (T<Self>, T<Self>) {
        compose::linear_parameter_gradients::<Self>(gradient, x)
    }

    /// Scaled-dot-product attention: `softmax(scale · q kᵀ + mask) v` over `[batch, heads, seq, size]`.
    ///
    /// `mask` broadcasts to `[batch, heads, q_seq, k_seq]`; a bool mask keeps where true, a float mask is added.
    /// `k` and `v` may have fewer heads (grouped queries): their number divides that of `q`. A query whom a bool
    /// mask (or `is_causal`) leaves no key gets zeros; a float mask of nothing but -∞ gives NaN, as softmax does.
    fn attention(
        q: T<Self>,
        k: T<Self>,
        v: T<Self>,
        mask: Option<T<Self>>,
        options: &AttentionOptions,
    ) -> T<Self> {
        compose::attention::<Self>(q, k, v, mask, options)
    }

    // ---- convolution and pooling: `[batch, channels, spatial…]` with 1 to 3 spatial dims ----

    /// Convolution: `weight` is `[out, in / groups, kernel…]`, `bias` `[out]`.
    fn conv(x: T<Self>, weight: T<Self>, bias: Option<T<Self>>, options: &ConvOptions) -> T<Self>;

    /// [`Backend::conv`] with an activation applied on the way out.
    fn conv_activated(
        x: T<Self>,
        weight: T<Self>,
        bias: Option<T<Self>>,
        activation: Activation,
        options: &ConvOptions,
    ) -> T<Self> {
        Self::activation(activation, Self::conv(x, weight, bias, options))
    }

    /// `activation(conv(x) + residual)`: the residual has the result's shape.
    fn conv_added(
        x: T<Self>,
        weight: T<Self>,
        bias: Option<T<Self>>,
        residual: T<Self>,
        activation: Option<Activation>,
        options: &ConvOptions,
    ) -> T<Self> {
        compose::conv_added::<Self>(x, weight, bias, residual, activation, options)
    }

    /// [`Backend::conv`] of integers less their zero points, likewise [`Backend::matmul_integer`]; the border is zero points.
    fn conv_integer(x: Quantized<T<Self>>, weight: Quantized<T<Self>>, options: &ConvOptions) -> T<Self> {
        compose::conv_integer::<Self>(x, weight, options)
    }

    /// [`Backend::conv_integer`], whose sums become numbers, or integers again, on the way out.
    fn conv_integer_rescaled(
        x: Quantized<T<Self>>,
        weight: Quantized<T<Self>>,
        rescale: Rescale<T<Self>>,
        options: &ConvOptions,
    ) -> T<Self> {
        compose::rescale::<Self>(Self::conv_integer(x, weight, options), rescale)
    }

    /// Transposed convolution: `weight` is `[in, out / groups, kernel…]`, `bias` `[out]`.
    fn conv_transpose(
        x: T<Self>,
        weight: T<Self>,
        bias: Option<T<Self>>,
        options: &ConvTransposeOptions,
    ) -> T<Self>;

    /// See [`PoolOp`].
    fn pool(op: PoolOp, x: T<Self>, options: &PoolOptions) -> T<Self>;

    /// Max pooling with the position of each maximum in the flattened spatial dims of its channel.
    fn max_pool_with_indices(x: T<Self>, options: &PoolOptions) -> (T<Self>, T<Self>);

    /// Average pooling to a given spatial size, windows as in PyTorch's `adaptive_avg_pool`.
    fn adaptive_avg_pool(x: T<Self>, output_size: &[usize]) -> T<Self> {
        compose::adaptive_avg_pool::<Self>(x, output_size)
    }

    /// Resizes; see [`InterpolateOptions`].
    fn interpolate(x: T<Self>, options: &InterpolateOptions) -> T<Self> {
        compose::interpolate::<Self>(x, options)
    }

    // ---- normalization and activation over dims ----

    /// Softmax along `dim`.
    fn softmax(tensor: T<Self>, dim: usize) -> T<Self> {
        compose::softmax::<Self>(tensor, dim)
    }

    /// Logarithm of the softmax along `dim`.
    fn log_softmax(tensor: T<Self>, dim: usize) -> T<Self> {
        compose::log_softmax::<Self>(tensor, dim)
    }

    /// The cross-entropy of each row, `[rows]`: `-w_t ln softmax(logits)[t]`, where `logits` are `[rows, classes]`, `targets`
    /// `[rows]` of any integer dtype, `weights` `[classes]` (of any float dtype; 1 where there are none). Part of it may be
    /// spread over all classes; see [`CrossEntropyOptions`].
    fn cross_entropy(
        logits: T<Self>,
        targets: T<Self>,
        weights: Option<T<Self>>,
        options: &CrossEntropyOptions,
    ) -> T<Self> {
        compose::cross_entropy::<Self>(logits, targets, weights, options)
    }

    /// Normalizes over the last `weight.rank()` dims to mean 0 and variance 1, then scales and shifts.
    fn layer_norm(x: T<Self>, weight: T<Self>, bias: Option<T<Self>>, epsilon: f64) -> T<Self> {
        compose::layer_norm::<Self>(x, weight, bias, epsilon)
    }

    /// Divides by the root of the mean square over the last `weight.rank()` dims, then scales.
    fn rms_norm(x: T<Self>, weight: T<Self>, epsilon: f64) -> T<Self> {
        compose::rms_norm::<Self>(x, weight, epsilon)
    }

    /// Group normalization of `[batch, channels, …]`; `weight` and `bias` are `[channels]`. Instance normalization is
    /// `groups = channels`.
    fn group_norm(
        x: T<Self>,
        weight: Option<T<Self>>,
        bias: Option<T<Self>>,
        groups: usize,
        epsilon: f64,
    ) -> T<Self> {
        compose::group_norm::<Self>(x, weight, bias, groups, epsilon)
    }

    /// Batch normalization of `[batch, channels, …]` with given statistics, all `[channels]`. Those may be wider than the batch.
    fn batch_norm(
        x: T<Self>,
        weight: T<Self>,
        bias: T<Self>,
        mean: T<Self>,
        variance: T<Self>,
        epsilon: f64,
    ) -> T<Self> {
        compose::batch_norm::<Self>(x, weight, bias, mean, variance, epsilon)
    }

    /// A whole recurrent layer; see [`RnnOperands`] for the operands, whose layouts are ONNX's.
    ///
    /// Yields all outputs `[seq, directions, batch, hidden]` (or `[batch, seq, directions, hidden]`), the last hidden
    /// state, and for an LSTM the last cell state (else `None`).
    fn rnn(operands: RnnOperands<Self>, options: &RnnOptions) -> RnnOutput<Self> {
        compose::rnn::<Self>(operands, options)
    }

    // ---- training: gradients of what is fused or windows over its input, forward passes that keep what theirs needs ----
    //
    // `gradient` is that of the result; what is yielded has the shape and the dtype of what it is the gradient of.

    /// The gradient of [`Backend::activation`]'s input `x`; at corners as PyTorch has it.
    fn activation_gradient(activation: Activation, gradient: T<Self>, x: T<Self>) -> T<Self> {
        compose::activation_gradient::<Self>(activation, gradient, x)
    }

    /// The gradient of the input of [`Backend::conv`], which has the shape `input`.
    fn conv_input_gradient(
        gradient: T<Self>,
        weight: T<Self>,
        input: &Shape,
        options: &ConvOptions,
    ) -> T<Self> {
        compose::conv_input_gradient::<Self>(gradient, weight, input, options)
    }

    /// The gradient of the weight of [`Backend::conv`], which has the shape `weight`. (That of the bias is a sum.)
    fn conv_weight_gradient(x: T<Self>, gradient: T<Self>, weight: &Shape, options: &ConvOptions) -> T<Self> {
        compose::conv_weight_gradient::<Self>(x, gradient, weight, options)
    }

    /// The gradient of the input of [`Backend::conv_transpose`], which has the shape `input`.
    fn conv_transpose_input_gradient(
        gradient: T<Self>,
        weight: T<Self>,
        input: &Shape,
        options: &ConvTransposeOptions,
    ) -> T<Self> {
        compose::conv_transpose_input_gradient::<Self>(gradient, weight, input, options)
    }

    /// The gradient of the weight of [`Backend::conv_transpose`], which has the shape `weight`.
    fn conv_transpose_weight_gradient(
        x: T<Self>,
        gradient: T<Self>,
        weight: &Shape,
        options: &ConvTransposeOptions,
    ) -> T<Self> {
        compose::conv_transpose_weight_gradient::<Self>(x, gradient, weight, options)
    }

    /// The gradient of [`Backend::pool`]'s input `x`, given its `output`.
    fn pool_gradient(
        op: PoolOp,
        gradient: T<Self>,
        x: T<Self>,
        output: T<Self>,
        options: &PoolOptions,
    ) -> T<Self> {
        compose::pool_gradient::<Self>(op, gradient, x, output, options)
    }

    /// The gradient of the input of [`Backend::max_pool_with_indices`], which has the shape `input`.
    /// Only positions within their windows, as the forward pass yields them, get a gradient.
    fn max_pool_gradient(
        gradient: T<Self>,
        positions: T<Self>,
        input: &Shape,
        options: &PoolOptions,
    ) -> T<Self> {
        let _ = options;
        compose::max_pool_gradient::<Self>(gradient, positions, input)
    }

    /// The gradient of the input of [`Backend::adaptive_avg_pool`], which has the shape `input`.
    fn adaptive_avg_pool_gradient(gradient: T<Self>, input: &Shape) -> T<Self> {
        compose::adaptive_avg_pool_gradient::<Self>(gradient, input)
    }

    /// The gradient of the input of [`Backend::interpolate`], which has the shape `input`.
    fn interpolate_gradient(gradient: T<Self>, input: &Shape, options: &InterpolateOptions) -> T<Self> {
        compose::interpolate_gradient::<Self>(gradient, input, options)
    }

    /// The gradient of the input of [`Backend::softmax`], given its `output`.
    fn softmax_gradient(gradient: T<Self>, output: T<Self>, dim: usize) -> T<Self> {
        compose::softmax_gradient::<Self>(gradient, output, dim)
    }

    /// The gradient of the input of [`Backend::log_softmax`], given its `output`.
    fn log_softmax_gradient(gradient: T<Self>, output: T<Self>, dim: usize) -> T<Self> {
        compose::log_softmax_gradient::<Self>(gradient, output, dim)
    }

    /// [`Backend::cross_entropy`], keeping what its gradient needs beside the operands.
    fn cross_entropy_train(
        logits: T<Self>,
        targets: T<Self>,
        weights: Option<T<Self>>,
        options: &CrossEntropyOptions,
    ) -> CrossEntropyTrained<T<Self>> {
        compose::cross_entropy_train::<Self>(logits, targets, weights, options)
    }

    /// The gradient of the logits of [`Backend::cross_entropy_train`], given what it kept: `largest` and `log_sum`.
    fn cross_entropy_gradient(
        gradient: T<Self>,
        logits: T<Self>,
        targets: T<Self>,
        weights: Option<T<Self>>,
        kept: (T<Self>, T<Self>),
        options: &CrossEntropyOptions,
    ) -> T<Self> {
        compose::cross_entropy_gradient::<Self>(gradient, logits, targets, weights, kept, options)
    }

    /// The gradients of [`Backend::layer_norm`].
    fn layer_norm_gradient(
        gradient: T<Self>,
        x: T<Self>,
        weight: T<Self>,
        epsilon: f64,
    ) -> NormGradients<T<Self>> {
        compose::layer_norm_gradient::<Self>(gradient, x, weight, epsilon)
    }

    /// The gradients of the input and of the weight of [`Backend::rms_norm`].
    fn rms_norm_gradient(gradient: T<Self>, x: T<Self>, weight: T<Self>, epsilon: f64) -> (T<Self>, T<Self>) {
        compose::rms_norm_gradient::<Self>(gradient, x, weight, epsilon)
    }

    /// The gradients of [`Backend::group_norm`]; those of weight and bias also where there are none.
    fn group_norm_gradient(
        gradient: T<Self>,
        x: T<Self>,
        weight: Option<T<Self>>,
        groups: usize,
        epsilon: f64,
    ) -> NormGradients<T<Self>> {
        compose::group_norm_gradient::<Self>(gradient, x, weight, groups, epsilon)
    }

    /// [`Backend::batch_norm`] with the statistics of the batch, which are yielded too.
    fn batch_norm_train(
        x: T<Self>,
        weight: T<Self>,
        bias: T<Self>,
        epsilon: f64,
    ) -> BatchNormTrained<T<Self>> {
        compose::batch_norm_train::<Self>(x, weight, bias, epsilon)
    }

    /// The gradients of [`Backend::batch_norm_train`], given the statistics that it yielded.
    fn batch_norm_gradient(
        gradient: T<Self>,
        x: T<Self>,
        weight: T<Self>,
        mean: T<Self>,
        variance: T<Self>,
        epsilon: f64,
    ) -> NormGradients<T<Self>> {
        compose::batch_norm_gradient::<Self>(gradient, x, weight, mean, variance, epsilon)
    }

    /// The gradients of the operands of `activation(batch_norm_train(x, weight, bias))`, given those and what [`Backend::batch_norm_train`] yielded
    /// of them; `gradient` is that of the activation's result. What was normalized is computed again from the batch.
    fn batch_norm_activation_gradient(
        activation: Activation,
        gradient: T<Self>,
        normalized: NormalizedBatch<T<Self>>,
        epsilon: f64,
    ) -> NormGradients<T<Self>> {
        compose::batch_norm_activation_gradient::<Self>(activation, gradient, normalized, epsilon)
    }

    /// Whether [`Backend::batch_norm_activation_gradient`] takes less than the gradients of the activation and of the normalization one after the
    /// other, for which what was normalized, or the activation's result, is kept.
    fn fuses_batch_norm_activations(_device: &Self::Device) -> bool {
        false
    }

    /// [`Backend::attention`], keeping what its gradient needs.
    fn attention_train(
        q: T<Self>,
        k: T<Self>,
        v: T<Self>,
        mask: Option<T<Self>>,
        options: &AttentionOptions,
    ) -> AttentionTrained<T<Self>> {
        compose::attention_train::<Self>(q, k, v, mask, options)
    }

    /// The gradients of [`Backend::attention_train`]; that of an added mask if `of_mask` asks for it.
    fn attention_gradient(
        gradient: T<Self>,
        trained: AttentionTrained<T<Self>>,
        options: &AttentionOptions,
        of_mask: bool,
    ) -> AttentionGradients<T<Self>> {
        compose::attention_gradient::<Self>(gradient, trained, options, of_mask)
    }

    /// [`Backend::rnn`], keeping the state that each step started from.
    fn rnn_train(operands: RnnOperands<Self>, options: &RnnOptions) -> RnnTrained<Self> {
        compose::rnn_train::<Self>(operands, options)
    }

    /// The gradients of [`Backend::rnn_train`], from those of its results and the states that it kept.
    fn rnn_gradient(
        gradient: RnnOutput<Self>,
        operands: RnnOperands<Self>,
        states: RnnStates<Self>,
        options: &RnnOptions,
    ) -> RnnGradients<Self> {
        compose::rnn_gradient::<Self>(gradient, operands, states, options)
    }

    /// The gradient of [`Backend::grouped_matmul`]'s weight from that of its result: for each group, its rows of `x` transposed times its rows of
    /// `gradient`.
    fn grouped_matmul_weight_gradient(gradient: T<Self>, x: T<Self>, ends: T<Self>) -> T<Self> {
        compose::grouped_matmul_weight_gradient::<Self>(gradient, x, ends)
    }

    /// The gradient of a table of which [`Backend::select`] read the rows `indices` (of any shape): `[rows, width]` from
    /// `[indices…, width]`.
    fn embedding_gradient(gradient: T<Self>, indices: T<Self>, rows: usize) -> T<Self> {
        compose::embedding_gradient::<Self>(gradient, indices, rows)
    }

    /// A key for [`Backend::dropout`], from the device's random numbers.
    fn random_key(device: &Self::Device) -> u64 {
        compose::random_key::<Self>(device)
    }

    /// Drops elements with the given probability and divides the others by that of staying. Which ones depends on the key
    /// and on their row-major position alone ([`Philox`](compose::Philox)), so that this is its own gradient, and no mask
    /// needs to be kept.
    fn dropout(x: T<Self>, probability: f64, key: u64) -> T<Self> {
        compose::dropout::<Self>(x, probability, key)
    }
}
