//! The decorator: every method of the trait, timed.

use crate::cost::{self, Cost, Results, SOFTMAX, Tensors};
use crate::recorder::{add, is_recording};
use core::marker::PhantomData;
use kiln_tensor::backend::{Backend, ExecutionError, SliceRange};
use kiln_tensor::compose::{
    AttentionGradients, AttentionTrained, BatchNormTrained, CrossEntropyOptions, CrossEntropyTrained,
    ElementwiseProgram, NormGradients, NormalizedBatch, Quantized, Rescale, RnnGradients, RnnOperands,
    RnnOutput, RnnStates, RnnTrained, Trees,
};
use kiln_tensor::{
    Activation, ArgReduceOp, AttentionOptions, BinaryOp, CompareOp, ConvOptions, ConvTransposeOptions,
    CumulativeOp, DType, Distribution, Expression, InlineVec, InterpolateOptions, PadMode, PoolOp,
    PoolOptions, ReduceOp, RnnOptions, Scalar, ScatterOp, Shape, TensorData, UnaryOp,
};
use std::time::Instant;

/// The backend `B`, whose operations are noted while a [`Recorder`](crate::Recorder) records. A tensor is `B`'s own.
///
/// What `B` does within an operation (a composed one, say) belongs to that operation. Work that `B` puts off until somebody reads its result is done before it is read, and
/// belongs to the operation that it is of; but a depthwise convolution is timed together with a convolution that waits for it.
#[derive(Clone, Debug, Default)]
pub struct Profiled<B>(PhantomData<B>);

type T<B> = <B as Backend>::Primitive;

/// Runs an operation; times it when there is a cost, which is when something is recorded.
#[inline]
fn timed<R>(cost: Option<Cost>, run: impl FnOnce() -> R, results: impl FnOnce(&R) -> Results) -> R {
    let Some(cost) = cost else { return run() };
    let started = Instant::now();
    let result = run();
    let ended = Instant::now();
    add(cost, results(&result), started, ended);
    result
}

/// Methods that are not timed: they ask, or move to where operations begin.
macro_rules! passed_on {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $output:ty)?;)*) => {
        $(fn $name($($arg: $ty),*) $(-> $output)? {
            B::$name($($arg),*)
        })*
    };
}

/// Methods that are timed, each with its cost.
macro_rules! profiled {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $output:ty { $cost:expr })*) => {
        $(fn $name($($arg: $ty),*) -> $output {
            let cost = is_recording().then(|| $cost);
            timed(cost, || B::$name($($arg),*), |result| {
                Results::of(&Tensors::<T<B>>::tensors(result))
            })
        })*
    };
}

/// Methods that are timed, and of which nothing is counted: only training has them.
macro_rules! uncounted {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $output:ty;)*) => {
        $(fn $name($($arg: $ty),*) -> $output {
            let cost = is_recording().then(|| Cost::unknown(stringify!($name)));
            timed(cost, || B::$name($($arg),*), |_| Results::default())
        })*
    };
}

// A method with a default body that is not here would be composed of others, and be something else than what is measured.
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for Profiled<B> {
    type Device = B::Device;
    type Primitive = T<B>;
    type FloatElem = B::FloatElem;
    type IntElem = B::IntElem;
    type BoolElem = B::BoolElem;

    passed_on! {
        fn name(device: &B::Device) -> String;
        fn seed(device: &B::Device, seed: u64);
        fn seed_thread(device: &B::Device, seed: Option<u64>);
        fn sync(device: &B::Device) -> Result<(), ExecutionError>;
        fn supports(device: &B::Device, dtype: DType) -> bool;
        fn fuses_batch_norm_activations(device: &B::Device) -> bool;
        fn ad_enabled() -> bool;
        fn set_require_grad(tensor: T<B>, require_grad: bool) -> T<B>;
        fn is_require_grad(tensor: &T<B>) -> bool;
        fn is_tracked(tensor: &T<B>) -> bool;
        fn detach(tensor: T<B>) -> T<B>;
        fn into_data(tensor: T<B>) -> Result<TensorData, ExecutionError>;
        fn into_data_async(tensor: T<B>) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send;
        fn into_data_all(tensors: Vec<T<B>>) -> Result<Vec<TensorData>, ExecutionError>;
        fn into_data_all_async(tensors: Vec<T<B>>) -> impl Future<Output = Result<Vec<TensorData>, ExecutionError>> + Send;
        fn device(tensor: &T<B>) -> B::Device;
        fn to_device(tensor: T<B>, device: &B::Device) -> T<B>;
        fn all_reduce(sets: Vec<Vec<T<B>>>) -> Vec<Vec<T<B>>>;
        fn prepare(tensor: T<B>) -> T<B>;
        fn nonzero_async(tensor: T<B>) -> impl Future<Output = Result<T<B>, ExecutionError>> + Send;
        fn random_key(device: &B::Device) -> u64;
    }

    profiled! {
        fn from_data(data: TensorData, device: &B::Device) -> T<B> { Cost::makes("from_data") }
        fn full(shape: Shape, value: Scalar, dtype: DType, device: &B::Device) -> T<B> { Cost::makes("full") }
        fn random(shape: Shape, distribution: Distribution, dtype: DType, device: &B::Device) -> T<B> {
            Cost::makes("random")
        }
        fn arange(start: i64, end: i64, step: i64, dtype: DType, device: &B::Device) -> T<B> {
            Cost::makes("arange")
        }
        fn cast(tensor: T<B>, dtype: DType) -> T<B> { Cost::moves(format!("cast to {dtype}"), &[&tensor]) }
        fn unary(op: UnaryOp, tensor: T<B>) -> T<B> { Cost::each(op.name(), 1, &[&tensor]) }
        fn binary(op: BinaryOp, lhs: T<B>, rhs: T<B>) -> T<B> { Cost::each(op.name(), 1, &[&lhs, &rhs]) }
        fn binary_scalar(op: BinaryOp, lhs: T<B>, rhs: Scalar) -> T<B> { Cost::each(op.name(), 1, &[&lhs]) }
        fn compare(op: CompareOp, lhs: T<B>, rhs: T<B>) -> T<B> { Cost::each(op.name(), 1, &[&lhs, &rhs]) }
        fn compare_scalar(op: CompareOp, lhs: T<B>, rhs: Scalar) -> T<B> { Cost::each(op.name(), 1, &[&lhs]) }
        fn select_where(mask: T<B>, on_true: T<B>, on_false: T<B>) -> T<B> {
            Cost::each("mask_where", 1, &[&mask, &on_true, &on_false])
        }
        fn mask_fill(tensor: T<B>, mask: T<B>, value: Scalar) -> T<B> {
            Cost::each("mask_fill", 1, &[&tensor, &mask])
        }
        fn clamp(tensor: T<B>, min: Option<Scalar>, max: Option<Scalar>) -> T<B> {
            cost::clamp(&tensor, min.iter().chain(&max).count())
        }
        fn activation(activation: Activation, tensor: T<B>) -> T<B> { cost::activation(activation, &tensor) }
        fn elementwise(expression: &Expression, operands: InlineVec<T<B>>, parameters: &[Scalar]) -> InlineVec<T<B>> {
            cost::elementwise(expression, &operands)
        }
        fn elementwise_sums(
            of: ElementwiseProgram<'_, T<B>>,
            axes: &[usize],
            then: Option<ElementwiseProgram<'_, T<B>>>,
        ) -> InlineVec<T<B>> {
            cost::elementwise_sums(of.expression, &of.operands)
        }
        fn reshape(tensor: T<B>, shape: Shape) -> T<B> { Cost::views("reshape", &tensor) }
        fn permute(tensor: T<B>, axes: &[usize]) -> T<B> { Cost::views("permute", &tensor) }
        fn expand(tensor: T<B>, shape: Shape) -> T<B> { Cost::views("expand", &tensor) }
        fn slice(tensor: T<B>, ranges: &[SliceRange]) -> T<B> { Cost::views("slice", &tensor) }
        fn slice_assign(tensor: T<B>, ranges: &[SliceRange], value: T<B>) -> T<B> {
            Cost::puts("slice_assign", &tensor, &value, None)
        }
        fn cat(tensors: &[T<B>], dim: usize) -> T<B> { Cost::moves("cat", &tensors.iter().collect::<Vec<_>>()) }
        fn pad(tensor: T<B>, padding: &[(usize, usize)], mode: PadMode, value: Scalar) -> T<B> {
            Cost::moves("pad", &[&tensor])
        }
        fn repeat(tensor: T<B>, times: &[usize]) -> T<B> { Cost::moves("repeat", &[&tensor]) }
        fn select(tensor: T<B>, dim: usize, indices: T<B>) -> T<B> { Cost::picks(&tensor, Some(dim), &indices) }
        fn select_assign(tensor: T<B>, dim: usize, indices: T<B>, value: T<B>, op: ScatterOp) -> T<B> {
            Cost::puts("select_assign", &tensor, &value, Some(&indices))
        }
        fn gather(tensor: T<B>, dim: usize, indices: T<B>) -> T<B> { Cost::picks(&tensor, None, &indices) }
        fn scatter(tensor: T<B>, dim: usize, indices: T<B>, value: T<B>, op: ScatterOp) -> T<B> {
            Cost::puts("scatter", &tensor, &value, Some(&indices))
        }
        fn nonzero(tensor: T<B>) -> Result<T<B>, ExecutionError> { Cost::moves("nonzero", &[&tensor]) }
        fn sort(tensor: T<B>, dim: usize, descending: bool) -> (T<B>, T<B>) { Cost::uncounted("sort", &[&tensor]) }
        fn topk(tensor: T<B>, k: usize, dim: usize, largest: bool) -> (T<B>, T<B>) {
            Cost::uncounted("topk", &[&tensor])
        }
        fn tree_leaves(samples: T<B>, trees: Trees<T<B>>, depth: usize) -> T<B> {
            Cost::uncounted("tree_leaves", &[&samples])
        }
        fn reduce(op: ReduceOp, tensor: T<B>, axes: &[usize]) -> T<B> { cost::reduce(op, &tensor) }
        fn arg_reduce(op: ArgReduceOp, tensor: T<B>, dim: usize, select_last: bool) -> T<B> {
            Cost::each_operand(op.name(), 1, &[&tensor])
        }
        fn cumulative(op: CumulativeOp, tensor: T<B>, dim: usize, exclusive: bool, reverse: bool) -> T<B> {
            Cost::each(op.name(), 1, &[&tensor])
        }
        fn matmul(lhs: T<B>, rhs: T<B>) -> T<B> { cost::matmul(&lhs, &rhs) }
        fn squared_distances(x: T<B>, y: T<B>) -> T<B> { cost::squared_distances(&x, &y) }
        fn grouped_matmul(x: T<B>, weight: T<B>, ends: T<B>) -> T<B> { cost::grouped_matmul(&x, &weight, &ends) }
        fn matmul_integer(lhs: Quantized<T<B>>, rhs: Quantized<T<B>>) -> T<B> {
            cost::matmul_integer(&lhs, &rhs)
        }
        fn matmul_integer_rescaled(
            lhs: Quantized<T<B>>,
            rhs: Quantized<T<B>>,
            rescale: Rescale<T<B>>,
        ) -> T<B> {
            cost::rescaled(cost::matmul_integer(&lhs, &rhs), &rescale)
        }
        fn conv_integer_rescaled(
            x: Quantized<T<B>>,
            weight: Quantized<T<B>>,
            rescale: Rescale<T<B>>,
            options: &ConvOptions,
        ) -> T<B> {
            cost::rescaled(cost::conv_integer(&x, &weight, options), &rescale)
        }
        fn conv_integer(x: Quantized<T<B>>, weight: Quantized<T<B>>, options: &ConvOptions) -> T<B> {
            cost::conv_integer(&x, &weight, options)
        }
        fn linear(x: T<B>, weight: &T<B>, bias: Option<&T<B>>, activation: Option<Activation>) -> T<B> {
            cost::linear(&x, weight, bias, activation)
        }
        fn linear_added(x: T<B>, weight: &T<B>, added: T<B>) -> T<B> { cost::linear(&x, weight, Some(&added), None) }
        fn attention(q: T<B>, k: T<B>, v: T<B>, mask: Option<T<B>>, options: &AttentionOptions) -> T<B> {
            cost::attention([&q, &k, &v], &mask, options)
        }
        fn conv(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: &ConvOptions) -> T<B> {
            cost::conv(&x, &weight, &bias, None, None, options)
        }
        fn conv_activated(
            x: T<B>,
            weight: T<B>,
            bias: Option<T<B>>,
            activation: Activation,
            options: &ConvOptions,
        ) -> T<B> {
            cost::conv(&x, &weight, &bias, None, Some(activation), options)
        }
        fn conv_added(
            x: T<B>,
            weight: T<B>,
            bias: Option<T<B>>,
            residual: T<B>,
            activation: Option<Activation>,
            options: &ConvOptions,
        ) -> T<B> {
            cost::conv(&x, &weight, &bias, Some(&residual), activation, options)
        }
        fn conv_transpose(
            x: T<B>,
            weight: T<B>,
            bias: Option<T<B>>,
            options: &ConvTransposeOptions,
        ) -> T<B> {
            cost::conv_transpose(&x, &weight, &bias, options)
        }
        fn pool(op: PoolOp, x: T<B>, options: &PoolOptions) -> T<B> { cost::pool(op, &x, options) }
        fn max_pool_with_indices(x: T<B>, options: &PoolOptions) -> (T<B>, T<B>) {
            cost::pool(PoolOp::Max, &x, options)
        }
        fn adaptive_avg_pool(x: T<B>, output_size: &[usize]) -> T<B> {
            Cost::each_operand("adaptive_avg_pool", 1, &[&x])
        }
        fn interpolate(x: T<B>, options: &InterpolateOptions) -> T<B> { cost::interpolate(&x, options) }
        fn softmax(tensor: T<B>, dim: usize) -> T<B> { Cost::each("softmax", SOFTMAX, &[&tensor]) }
        fn log_softmax(tensor: T<B>, dim: usize) -> T<B> { Cost::each("log_softmax", SOFTMAX, &[&tensor]) }
        fn cross_entropy(
            logits: T<B>,
            targets: T<B>,
            weights: Option<T<B>>,
            options: &CrossEntropyOptions,
        ) -> T<B> {
            Cost::each_operand("cross_entropy", SOFTMAX, &[&logits, &targets])
        }
        fn layer_norm(x: T<B>, weight: T<B>, bias: Option<T<B>>, epsilon: f64) -> T<B> {
            cost::norm("layer_norm", &x, [Some(&weight), bias.as_ref()])
        }
        fn rms_norm(x: T<B>, weight: T<B>, epsilon: f64) -> T<B> { cost::rms_norm(&x, &weight) }
        fn group_norm(
            x: T<B>,
            weight: Option<T<B>>,
            bias: Option<T<B>>,
            groups: usize,
            epsilon: f64,
        ) -> T<B> {
            cost::norm("group_norm", &x, [weight.as_ref(), bias.as_ref()])
        }
        fn batch_norm(x: T<B>, weight: T<B>, bias: T<B>, mean: T<B>, variance: T<B>, epsilon: f64) -> T<B> {
            cost::batch_norm([&x, &weight, &bias, &mean, &variance])
        }
        fn dropout(x: T<B>, probability: f64, key: u64) -> T<B> { Cost::each("dropout", 1, &[&x]) }
    }

    uncounted! {
        fn elementwise_moments(
            x: T<B>,
            axes: &[usize],
            then: ElementwiseProgram<'_, T<B>>,
        ) -> InlineVec<T<B>>;
        fn linear_parameter_gradients(gradient: T<B>, x: T<B>) -> (T<B>, T<B>);
        fn grouped_matmul_weight_gradient(gradient: T<B>, x: T<B>, ends: T<B>) -> T<B>;
        fn activation_gradient(activation: Activation, gradient: T<B>, x: T<B>) -> T<B>;
        fn conv_input_gradient(gradient: T<B>, weight: T<B>, input: &Shape, options: &ConvOptions) -> T<B>;
        fn conv_weight_gradient(x: T<B>, gradient: T<B>, weight: &Shape, options: &ConvOptions) -> T<B>;
        fn conv_transpose_input_gradient(
            gradient: T<B>,
            weight: T<B>,
            input: &Shape,
            options: &ConvTransposeOptions,
        ) -> T<B>;
        fn conv_transpose_weight_gradient(
            x: T<B>,
            gradient: T<B>,
            weight: &Shape,
            options: &ConvTransposeOptions,
        ) -> T<B>;
        fn pool_gradient(op: PoolOp, gradient: T<B>, x: T<B>, output: T<B>, options: &PoolOptions) -> T<B>;
        fn max_pool_gradient(gradient: T<B>, positions: T<B>, input: &Shape, options: &PoolOptions) -> T<B>;
        fn adaptive_avg_pool_gradient(gradient: T<B>, input: &Shape) -> T<B>;
        fn interpolate_gradient(gradient: T<B>, input: &Shape, options: &InterpolateOptions) -> T<B>;
        fn softmax_gradient(gradient: T<B>, output: T<B>, dim: usize) -> T<B>;
        fn log_softmax_gradient(gradient: T<B>, output: T<B>, dim: usize) -> T<B>;
        fn cross_entropy_train(
            logits: T<B>,
            targets: T<B>,
            weights: Option<T<B>>,
            options: &CrossEntropyOptions,
        ) -> CrossEntropyTrained<T<B>>;
        fn cross_entropy_gradient(
            gradient: T<B>,
            logits: T<B>,
            targets: T<B>,
            weights: Option<T<B>>,
            kept: (T<B>, T<B>),
            options: &CrossEntropyOptions,
        ) -> T<B>;
        fn layer_norm_gradient(gradient: T<B>, x: T<B>, weight: T<B>, epsilon: f64) -> NormGradients<T<B>>;
        fn rms_norm_gradient(gradient: T<B>, x: T<B>, weight: T<B>, epsilon: f64) -> (T<B>, T<B>);
        fn group_norm_gradient(
            gradient: T<B>,
            x: T<B>,
            weight: Option<T<B>>,
            groups: usize,
            epsilon: f64,
        ) -> NormGradients<T<B>>;
        fn batch_norm_train(x: T<B>, weight: T<B>, bias: T<B>, epsilon: f64) -> BatchNormTrained<T<B>>;
        fn batch_norm_gradient(
            gradient: T<B>,
            x: T<B>,
            weight: T<B>,
            mean: T<B>,
            variance: T<B>,
            epsilon: f64,
        ) -> NormGradients<T<B>>;
        fn batch_norm_activation_gradient(
            activation: Activation,
            gradient: T<B>,
            normalized: NormalizedBatch<T<B>>,
            epsilon: f64,
        ) -> NormGradients<T<B>>;
        fn attention_train(
            q: T<B>,
            k: T<B>,
            v: T<B>,
            mask: Option<T<B>>,
            options: &AttentionOptions,
        ) -> AttentionTrained<T<B>>;
        fn attention_gradient(
            gradient: T<B>,
            trained: AttentionTrained<T<B>>,
            options: &AttentionOptions,
            of_mask: bool,
        ) -> AttentionGradients<T<B>>;
        fn embedding_gradient(gradient: T<B>, indices: T<B>, rows: usize) -> T<B>;
    }

    // Operands and results of recurrent layers are generic over the backend.

    fn rnn(operands: RnnOperands<Self>, options: &RnnOptions) -> RnnOutput<Self> {
        let cost = is_recording().then(|| cost::rnn(&operands, options));
        let result = timed(
            cost,
            || B::rnn(inner_operands(operands), options),
            |result| {
                let mut tensors = vec![&result.output, &result.hidden];
                tensors.extend(&result.cell);
                Results::of(&tensors)
            },
        );
        outer_output(result)
    }

    fn rnn_train(operands: RnnOperands<Self>, options: &RnnOptions) -> RnnTrained<Self> {
        let cost = is_recording().then(|| Cost::unknown("rnn_train"));
        let trained = timed(cost, || B::rnn_train(inner_operands(operands), options), |_| Results::default());
        let RnnStates { hidden, cell, gates } = trained.states;
        RnnTrained { output: outer_output(trained.output), states: RnnStates { hidden, cell, gates } }
    }

    fn rnn_gradient(
        gradient: RnnOutput<Self>,
        operands: RnnOperands<Self>,
        states: RnnStates<Self>,
        options: &RnnOptions,
    ) -> RnnGradients<Self> {
        let RnnOutput { output, hidden, cell } = gradient;
        let gradient = RnnOutput { output, hidden, cell };
        let RnnStates { hidden, cell, gates } = states;
        let states = RnnStates { hidden, cell, gates };
        let cost = is_recording().then(|| Cost::unknown("rnn_gradient"));
        let run = || B::rnn_gradient(gradient, inner_operands(operands), states, options);
        let RnnGradients { input, weight, recurrent, bias, initial_hidden, initial_cell, peepholes } =
            timed(cost, run, |_| Results::default());
        RnnGradients { input, weight, recurrent, bias, initial_hidden, initial_cell, peepholes }
    }
}

fn inner_operands<B: Backend>(operands: RnnOperands<Profiled<B>>) -> RnnOperands<B> {
    let RnnOperands {
        input,
        weight,
        recurrent,
        bias,
        sequence_lengths,
        initial_hidden,
        initial_cell,
        peepholes,
    } = operands;
    RnnOperands { input, weight, recurrent, bias, sequence_lengths, initial_hidden, initial_cell, peepholes }
}

fn outer_output<B: Backend>(output: RnnOutput<B>) -> RnnOutput<Profiled<B>> {
    let RnnOutput { output, hidden, cell } = output;
    RnnOutput { output, hidden, cell }
}
