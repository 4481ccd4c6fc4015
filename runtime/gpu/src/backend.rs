//! [`Backend`] over any kind of GPU: each method hands over to the family of kernels it belongs to.

use crate::kernels::reduce::{self, arg_reduce, reduce};
use crate::kernels::rows::{self, RowOp};
use crate::kernels::scan::{self, Flags};
use crate::kernels::window::{self, Flow, Pooling};
use crate::kernels::{
    attention, cross_entropy, dropout, elementwise, embedding, grouped, index, matmul, norm_gradient,
    program, quantized, random, recurrent, sort,
};
use crate::language::Storage;
use crate::runtime::{Numbers, Runtime};
use crate::tensor::{GpuTensor, element_bytes, held_as, require, supports};
use core::future::Future;
use core::marker::PhantomData;
use core::ops::Range;
use half::{bf16, f16};
use kiln_tensor::backend::{Backend, ExecutionError, Layout, Primitive, SliceRange};
use kiln_tensor::compose::{
    self, AttentionGradients, AttentionTrained, CrossEntropyOptions, CrossEntropyTrained, ElementwiseProgram,
    NormGradients, Quantized, RnnOperands, RnnOutput,
};
use kiln_tensor::{
    Activation, ArgReduceOp, AttentionOptions, BinaryOp, CompareOp, ConvOptions, ConvTransposeOptions,
    CumulativeOp, DType, Distribution, Element, Expression, InlineVec, PoolOp, PoolOptions, ReduceOp,
    RnnOptions, Scalar, ScatterOp, Shape, Step, TensorData, UnaryOp,
};

/// The backend on a kind of GPU; `F` and `I` are the dtypes that float and int tensors get by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gpu<R, F = f32, I = i32> {
    elements: PhantomData<(R, F, I)>,
}

type T<R> = GpuTensor<R>;

/// The elements of a row-major tensor, as they stand in memory, as data.
fn to_data(bytes: &[u8], shape: Shape, dtype: DType) -> TensorData {
    /// A copy that is aligned.
    fn of<E: Element + bytemuck::Pod>(bytes: &[u8], shape: Shape) -> TensorData {
        TensorData::new(bytemuck::pod_collect_to_vec::<u8, E>(bytes), shape)
    }
    match held_as(dtype) {
        Storage::F64 => of::<f64>(bytes, shape),
        Storage::F32 => of::<f32>(bytes, shape),
        Storage::F16 => of::<f16>(bytes, shape),
        Storage::BF16 => of::<bf16>(bytes, shape),
        Storage::I64 => of::<i64>(bytes, shape),
        Storage::I32 => of::<i32>(bytes, shape),
        Storage::I16 => of::<i16>(bytes, shape),
        Storage::I8 => of::<i8>(bytes, shape),
        Storage::U64 => of::<u64>(bytes, shape),
        Storage::U32 => of::<u32>(bytes, shape),
        Storage::U16 => of::<u16>(bytes, shape),
        Storage::U8 => of::<u8>(bytes, shape),
        Storage::Bool => {
            let truths =
                bytes.chunks_exact(Storage::Bool.bytes()).map(|word| word.iter().any(|&byte| byte != 0));
            TensorData::new(truths.collect::<Vec<_>>(), shape)
        }
    }
}

/// Which bytes of its memory a row-major tensor has.
fn byte_range<R: Runtime>(tensor: &T<R>) -> (R::Memory, Range<usize>) {
    let size = element_bytes(tensor.dtype);
    let start = tensor.layout.offset * size;
    (tensor.memory.clone(), start..start + tensor.len() * size)
}

/// What reads several tensors needs: them row-major, and the device of the first.
struct Reading<R: Runtime> {
    tensors: Vec<T<R>>,
    device: Option<R::Device>,
}

impl<R: Runtime> Reading<R> {
    fn new(tensors: Vec<T<R>>) -> Self {
        let tensors: Vec<T<R>> = tensors.into_iter().map(elementwise::contiguous).collect();
        let device = tensors.first().map(|tensor| tensor.device.clone());
        Self { tensors, device }
    }

    fn parts(&self) -> Vec<(R::Memory, Range<usize>)> {
        self.tensors.iter().map(byte_range).collect()
    }

    fn data(self, parts: Vec<Vec<u8>>) -> Vec<TensorData> {
        let pairs = self.tensors.into_iter().zip(parts);
        pairs.map(|(tensor, bytes)| to_data(&bytes, tensor.shape(), tensor.dtype)).collect()
    }
}

/// What one read yielded of one part.
fn only<X>(read: Vec<X>, device: String) -> Result<X, ExecutionError> {
    let reason = String::from("a read yielded nothing");
    read.into_iter().next().ok_or(ExecutionError { device, reason })
}

/// The number that a running sum ended with.
fn counted(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |&word| usize::try_from(i32::from_ne_bytes(word)).unwrap_or(0))
}

/// An elementwise program of one step over operands and, where one is given, a number behind them.
fn step<R: Runtime, const N: usize>(step: Step, operands: [T<R>; N], parameters: &[Scalar]) -> T<R> {
    let mut steps: Vec<Step> = Vec::with_capacity(N + 2);
    steps.extend((0..N).map(|n| Step::Input(n as u16)));
    if let Some(operand) = operands.first().filter(|_| !parameters.is_empty()) {
        steps.push(Step::Parameter(0, operand.dtype));
    }
    steps.push(step);
    elementwise::only(elementwise::consume(&Expression::new(steps), operands.into(), parameters))
}

impl<R: Runtime, F: Element, I: Element> Backend for Gpu<R, F, I> {
    type Device = R::Device;
    type Primitive = T<R>;
    type FloatElem = F;
    type IntElem = I;
    type BoolElem = bool;

    fn name(device: &R::Device) -> String {
        R::name(device)
    }

    fn seed(device: &R::Device, seed: u64) {
        R::seed(device, seed);
    }

    fn seed_thread(device: &R::Device, seed: Option<u64>) {
        R::seed_thread(device, seed);
    }

    fn sync(device: &R::Device) -> Result<(), ExecutionError> {
        R::sync(device)
    }

    fn supports(device: &R::Device, dtype: DType) -> bool {
        supports::<R>(device, dtype)
    }

    fn from_data(data: TensorData, device: &R::Device) -> T<R> {
        let (shape, dtype) = (Shape::from(data.shape.clone()), data.dtype);
        let bytes = &*data.bytes;
        require::<R>(device, dtype);
        let memory = match held_as(dtype) {
            Storage::Bool => {
                let words: Vec<u32> = bytes.iter().map(|&byte| u32::from(byte != 0)).collect();
                R::upload(device, bytemuck::cast_slice(&words))
            }
            Storage::F64
            | Storage::F32
            | Storage::F16
            | Storage::BF16
            | Storage::I64
            | Storage::I32
            | Storage::I16
            | Storage::I8
            | Storage::U64
            | Storage::U32
            | Storage::U16
            | Storage::U8 => R::upload(device, bytes),
        };
        T { memory, layout: Layout::contiguous(shape).into(), dtype, device: device.clone() }
    }

    fn into_data(tensor: T<R>) -> Result<TensorData, ExecutionError> {
        let device = R::name(&tensor.device);
        only(Self::into_data_all(vec![tensor])?, device)
    }

    async fn into_data_async(tensor: T<R>) -> Result<TensorData, ExecutionError> {
        let device = R::name(&tensor.device);
        only(Self::into_data_all_async(vec![tensor]).await?, device)
    }

    fn into_data_all(tensors: Vec<T<R>>) -> Result<Vec<TensorData>, ExecutionError> {
        let reading = Reading::new(tensors);
        let Some(device) = &reading.device else { return Ok(Vec::new()) };
        let parts = R::download_now(device, reading.parts())?;
        Ok(reading.data(parts))
    }

    fn into_data_all_async(
        tensors: Vec<T<R>>,
    ) -> impl Future<Output = Result<Vec<TensorData>, ExecutionError>> + Send {
        let reading = Reading::new(tensors);
        async move {
            let Some(device) = reading.device.clone() else { return Ok(Vec::new()) };
            let parts = R::download(&device, reading.parts()).await?;
            Ok(reading.data(parts))
        }
    }

    fn device(tensor: &T<R>) -> R::Device {
        tensor.device.clone()
    }

    fn to_device(tensor: T<R>, device: &R::Device) -> T<R> {
        if tensor.device == *device {
            return tensor;
        }
        let tensor = elementwise::contiguous(tensor);
        if let Some(memory) = R::copy_between(&tensor.device, &byte_range(&tensor), device) {
            let layout = Layout::contiguous(tensor.shape()).into();
            return T { memory, layout, dtype: tensor.dtype, device: device.clone() };
        }
        match Self::into_data(tensor) {
            Ok(data) => Self::from_data(data, device),
            Err(error) => panic!("to_device: {error}"),
        }
    }

    fn all_reduce(sets: Vec<Vec<T<R>>>) -> Vec<Vec<T<R>>> {
        if sets.len() < 2 {
            return sets;
        }
        let mut sets = sets;
        let mut devices: Vec<R::Device> = Vec::with_capacity(sets.len());
        for set in &sets {
            match set.first() {
                Some(tensor) if !devices.contains(&tensor.device) => devices.push(tensor.device.clone()),
                _ => return compose::all_reduce::<Self>(sets),
            }
        }
        // The library writes the sums where the numbers are.
        for tensor in sets.iter_mut().flatten() {
            if !tensor.is_writable() {
                *tensor = elementwise::copy(tensor);
            }
        }
        let numbers = |tensor: &T<R>| {
            let (memory, bytes) = byte_range(tensor);
            Numbers { memory, bytes, dtype: tensor.dtype }
        };
        let numbers: Vec<Vec<_>> = sets.iter().map(|set| set.iter().map(numbers).collect()).collect();
        match R::all_reduce(&devices, &numbers) {
            true => sets,
            false => compose::all_reduce::<Self>(sets),
        }
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &R::Device) -> T<R> {
        elementwise::full(shape, value, dtype, device)
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, device: &R::Device) -> T<R> {
        let key = R::random_key(device);
        random::random(key, &shape, distribution, dtype, device)
            .unwrap_or_else(|| Self::from_data(compose::random_data(key, shape, distribution, dtype), device))
    }

    fn arange(start: i64, end: i64, step: i64, dtype: DType, device: &R::Device) -> T<R> {
        elementwise::arange(start, end, step, dtype, device)
    }

    fn cast(tensor: T<R>, dtype: DType) -> T<R> {
        elementwise::cast(&tensor, dtype)
    }

    fn unary(op: UnaryOp, tensor: T<R>) -> T<R> {
        step(Step::Unary(op, 0), [tensor], &[])
    }

    fn binary(op: BinaryOp, lhs: T<R>, rhs: T<R>) -> T<R> {
        step(Step::Binary(op, 0, 1), [lhs, rhs], &[])
    }

    fn binary_scalar(op: BinaryOp, lhs: T<R>, rhs: Scalar) -> T<R> {
        if op == BinaryOp::Pow && program::is_power_of_products(rhs.to_f64()) {
            // Such powers need no logarithm: each is a kernel.
            let dtype = lhs.dtype;
            let steps = vec![Step::Input(0), Step::Constant(rhs, dtype), Step::Binary(op, 0, 1)];
            return elementwise::only(elementwise::consume(&Expression::new(steps), [lhs].into(), &[]));
        }
        step(Step::Binary(op, 0, 1), [lhs], &[rhs])
    }

    fn compare(op: CompareOp, lhs: T<R>, rhs: T<R>) -> T<R> {
        step(Step::Compare(op, 0, 1), [lhs, rhs], &[])
    }

    fn compare_scalar(op: CompareOp, lhs: T<R>, rhs: Scalar) -> T<R> {
        step(Step::Compare(op, 0, 1), [lhs], &[rhs])
    }

    fn select_where(mask: T<R>, on_true: T<R>, on_false: T<R>) -> T<R> {
        step(Step::Where(0, 1, 2), [mask, on_true, on_false], &[])
    }

    fn activation(activation: Activation, tensor: T<R>) -> T<R> {
        step(Step::Activation(activation, 0), [tensor], &[])
    }

    fn elementwise(
        expression: &Expression,
        operands: InlineVec<T<R>>,
        parameters: &[Scalar],
    ) -> InlineVec<T<R>> {
        let buffers = operands.len() + expression.outputs.len().max(1);
        if operands.first().is_some_and(|first| buffers > R::limits(&first.device).bindings) {
            return compose::elementwise::<Self>(expression, operands, parameters);
        }
        elementwise::consume(expression, operands, parameters)
    }

    fn elementwise_sums(
        of: ElementwiseProgram<'_, T<R>>,
        axes: &[usize],
        then: Option<ElementwiseProgram<'_, T<R>>>,
    ) -> InlineVec<T<R>> {
        reduce::sums(of, axes, then)
            .unwrap_or_else(|(of, then)| compose::elementwise_sums::<Self>(of, axes, then))
    }

    fn elementwise_moments(x: T<R>, axes: &[usize], then: ElementwiseProgram<'_, T<R>>) -> InlineVec<T<R>> {
        reduce::moments(&x, axes, then)
            .unwrap_or_else(|then| compose::elementwise_moments::<Self>(x, axes, then))
    }

    fn reshape(tensor: T<R>, shape: Shape) -> T<R> {
        match tensor.layout.reshape(&shape) {
            Some(layout) => tensor.with_layout(layout),
            None => elementwise::copy(&tensor).with_layout(Layout::contiguous(shape)),
        }
    }

    fn permute(tensor: T<R>, axes: &[usize]) -> T<R> {
        let layout = tensor.layout.permute(axes);
        tensor.with_layout(layout)
    }

    fn expand(tensor: T<R>, shape: Shape) -> T<R> {
        let layout = tensor.layout.expand(&shape);
        tensor.with_layout(layout)
    }

    fn slice(tensor: T<R>, ranges: &[SliceRange]) -> T<R> {
        let layout = tensor.layout.slice(ranges);
        tensor.with_layout(layout).narrowed()
    }

    fn slice_assign(mut tensor: T<R>, ranges: &[SliceRange], value: T<R>) -> T<R> {
        if !tensor.is_writable() {
            tensor = elementwise::copy(&tensor);
        }
        let view = tensor.layout.slice(ranges);
        elementwise::copy_into(&value, &tensor.clone().with_layout(view));
        tensor
    }

    fn cat(tensors: &[T<R>], dim: usize) -> T<R> {
        match tensors {
            [tensor] => tensor.clone(),
            tensors => elementwise::join(tensors, dim),
        }
    }

    fn select(tensor: T<R>, dim: usize, indices: T<R>) -> T<R> {
        index::select(&tensor, dim, indices)
    }

    fn select_assign(tensor: T<R>, dim: usize, indices: T<R>, value: T<R>, op: ScatterOp) -> T<R> {
        index::select_assign(tensor, dim, indices, &value, op)
    }

    fn gather(tensor: T<R>, dim: usize, indices: T<R>) -> T<R> {
        index::gather(&tensor, dim, &indices)
    }

    fn scatter(tensor: T<R>, dim: usize, indices: T<R>, value: T<R>, op: ScatterOp) -> T<R> {
        index::scatter(tensor, dim, &indices, &value, op)
    }

    fn nonzero(tensor: T<R>) -> Result<T<R>, ExecutionError> {
        let flags = Flags::new(&tensor);
        let count = match flags.count_at() {
            Some(part) => {
                counted(&only(R::download_now(&tensor.device, vec![part])?, R::name(&tensor.device))?)
            }
            None => 0,
        };
        Ok(flags.coordinates(count, I::DTYPE))
    }

    async fn nonzero_async(tensor: T<R>) -> Result<T<R>, ExecutionError> {
        let flags = Flags::new(&tensor);
        let count = match flags.count_at() {
            Some(part) => {
                let read = R::download(&tensor.device, vec![part]).await?;
                counted(&only(read, R::name(&tensor.device))?)
            }
            None => 0,
        };
        Ok(flags.coordinates(count, I::DTYPE))
    }

    fn sort(tensor: T<R>, dim: usize, descending: bool) -> (T<R>, T<R>) {
        let keep = tensor.dims()[dim];
        sort::sorted(tensor, dim, descending, keep, I::DTYPE)
    }

    fn topk(tensor: T<R>, k: usize, dim: usize, largest: bool) -> (T<R>, T<R>) {
        sort::sorted(tensor, dim, largest, k, I::DTYPE)
    }

    fn reduce(op: ReduceOp, tensor: T<R>, axes: &[usize]) -> T<R> {
        reduce(op, tensor, axes)
    }

    fn arg_reduce(op: ArgReduceOp, tensor: T<R>, dim: usize, select_last: bool) -> T<R> {
        arg_reduce(op, tensor, dim, select_last, I::DTYPE)
    }

    fn cumulative(op: CumulativeOp, tensor: T<R>, dim: usize, exclusive: bool, reverse: bool) -> T<R> {
        scan::cumulative(op, &tensor, dim, exclusive, reverse)
    }

    fn matmul(lhs: T<R>, rhs: T<R>) -> T<R> {
        matmul::matmul(&lhs, &rhs, None, None)
    }

    fn matmul_integer(lhs: Quantized<T<R>>, rhs: Quantized<T<R>>) -> T<R> {
        quantized::matmul(&lhs, &rhs).unwrap_or_else(|| compose::matmul_integer::<Self>(lhs, rhs))
    }

    fn grouped_matmul(x: T<R>, weight: T<R>, ends: T<R>) -> T<R> {
        grouped::matmul(&x, &weight, &ends)
            .unwrap_or_else(|| compose::grouped_matmul::<Self>(x, weight, ends))
    }

    fn conv_integer(x: Quantized<T<R>>, weight: Quantized<T<R>>, options: &ConvOptions) -> T<R> {
        window::conv_integer(&x, &weight, options)
            .unwrap_or_else(|| compose::conv_integer::<Self>(x, weight, options))
    }

    fn linear(x: T<R>, weight: &T<R>, bias: Option<&T<R>>, activation: Option<Activation>) -> T<R> {
        let (mut shape, columns) = (x.shape(), weight.dims()[1]);
        let depth = shape.dims.pop().unwrap_or(1);
        let rows = shape.num_elements();
        shape.dims.push(columns);
        let x = Self::reshape(x, Shape::from([rows, depth]));
        let y = matmul::matmul(&x, weight, bias, activation);
        Self::reshape(y, shape)
    }

    fn linear_added(x: T<R>, weight: &T<R>, added: T<R>) -> T<R> {
        let (shape, columns) = (added.shape(), weight.dims()[1]);
        let rows: usize = shape.iter().rev().skip(1).product();
        let depth = weight.dims()[0];
        let x = Self::reshape(x, Shape::from([rows, depth]));
        let added = Self::reshape(added, Shape::from([rows, columns]));
        let y = match matmul::added(&x, weight, &added) {
            Some(y) => y,
            None => Self::binary(BinaryOp::Add, Self::linear(x, weight, None, None), added),
        };
        Self::reshape(y, shape)
    }

    fn linear_parameter_gradients(gradient: T<R>, x: T<R>) -> (T<R>, T<R>) {
        let [gradient, x] = [gradient, x].map(compose::rows::<Self>);
        let turned = Self::permute(x.clone(), &[1, 0]);
        match matmul::with_sums(&turned, &gradient) {
            Some(found) => found,
            None => compose::linear_parameter_gradients::<Self>(gradient, x),
        }
    }

    fn attention(q: T<R>, k: T<R>, v: T<R>, mask: Option<T<R>>, options: &AttentionOptions) -> T<R> {
        attention::attention(&q, &k, &v, mask.as_ref(), options)
            .unwrap_or_else(|| compose::attention::<Self>(q, k, v, mask, options))
    }

    fn attention_train(
        q: T<R>,
        k: T<R>,
        v: T<R>,
        mask: Option<T<R>>,
        options: &AttentionOptions,
    ) -> AttentionTrained<T<R>> {
        match attention::attention_train(&q, &k, &v, mask.as_ref(), options) {
            Some([output, log_sum]) => AttentionTrained { q, k, v, mask, output, log_sum },
            None => compose::attention_train::<Self>(q, k, v, mask, options),
        }
    }

    fn attention_gradient(
        gradient: T<R>,
        trained: AttentionTrained<T<R>>,
        options: &AttentionOptions,
        of_mask: bool,
    ) -> AttentionGradients<T<R>> {
        let of_mask = of_mask && trained.mask.as_ref().is_some_and(|mask| mask.dtype.is_float());
        let by_tiles = (!of_mask).then(|| attention::attention_gradient(&gradient, &trained, options));
        by_tiles
            .flatten()
            .unwrap_or_else(|| compose::attention_gradient::<Self>(gradient, trained, options, of_mask))
    }

    fn conv(x: T<R>, weight: T<R>, bias: Option<T<R>>, options: &ConvOptions) -> T<R> {
        window::conv(x, weight, bias, None, options)
    }

    fn conv_activated(
        x: T<R>,
        weight: T<R>,
        bias: Option<T<R>>,
        activation: Activation,
        options: &ConvOptions,
    ) -> T<R> {
        window::conv(x, weight, bias, Some(activation), options)
    }

    fn conv_added(
        x: T<R>,
        weight: T<R>,
        bias: Option<T<R>>,
        residual: T<R>,
        activation: Option<Activation>,
        options: &ConvOptions,
    ) -> T<R> {
        match window::conv_added(x, weight, bias, &residual, activation, options) {
            Ok(y) => y,
            Err(y) => compose::added::<Self>(y, residual, activation),
        }
    }

    fn conv_transpose(x: T<R>, weight: T<R>, bias: Option<T<R>>, options: &ConvTransposeOptions) -> T<R> {
        window::conv_transpose(x, weight, bias, options)
    }

    fn conv_input_gradient(gradient: T<R>, weight: T<R>, input: &Shape, options: &ConvOptions) -> T<R> {
        window::conv_input_gradient(gradient, weight, input, options)
    }

    fn conv_weight_gradient(x: T<R>, gradient: T<R>, weight: &Shape, options: &ConvOptions) -> T<R> {
        window::conv_weight_gradient(x, gradient, weight, options)
    }

    fn conv_transpose_input_gradient(
        gradient: T<R>,
        weight: T<R>,
        input: &Shape,
        options: &ConvTransposeOptions,
    ) -> T<R> {
        window::conv_transpose_input_gradient(gradient, weight, input, options)
    }

    fn conv_transpose_weight_gradient(
        x: T<R>,
        gradient: T<R>,
        weight: &Shape,
        options: &ConvTransposeOptions,
    ) -> T<R> {
        window::conv_transpose_weight_gradient(x, gradient, weight, options)
    }

    fn pool(op: PoolOp, x: T<R>, options: &PoolOptions) -> T<R> {
        window::pool(Pooling::Of(op), x, options).0
    }

    fn pool_gradient(op: PoolOp, gradient: T<R>, x: T<R>, output: T<R>, options: &PoolOptions) -> T<R> {
        let input = x.shape();
        match op {
            PoolOp::Average { include_pad } => {
                window::pool_gradient(Flow::Average { include_pad }, gradient, Vec::new(), &input, options)
            }
            PoolOp::Lp { p } if p > 0 && x.dtype.is_float() => {
                window::pool_gradient(Flow::Norm { p }, gradient, vec![x, output], &input, options)
            }
            PoolOp::Max if R::limits(&x.device).shared_memory => {
                // Positions in images, which have fewer elements than kernels count, are not told to anybody else.
                let (_, positions) = window::pool(Pooling::Max(Some(DType::I32)), x, options);
                let (flow, positions) = (Flow::ToPosition(DType::I32), positions.into_iter().collect());
                window::pool_gradient(flow, gradient, positions, &input, options)
            }
            PoolOp::Max | PoolOp::Lp { .. } => {
                compose::pool_gradient::<Self>(op, gradient, x, output, options)
            }
        }
    }

    fn max_pool_gradient(gradient: T<R>, positions: T<R>, input: &Shape, options: &PoolOptions) -> T<R> {
        if R::limits(&gradient.device).shared_memory {
            let flow = Flow::ToPosition(positions.dtype);
            return window::pool_gradient(flow, gradient, vec![positions], input, options);
        }
        // On a CPU few reads and writes are faster than many reads side by side.
        compose::max_pool_gradient::<Self>(gradient, positions, input)
    }

    fn adaptive_avg_pool_gradient(gradient: T<R>, input: &Shape) -> T<R> {
        window::adaptive_average_gradient(&gradient, input)
            .unwrap_or_else(|| compose::adaptive_avg_pool_gradient::<Self>(gradient, input))
    }

    fn random_key(device: &R::Device) -> u64 {
        R::random_key(device)
    }

    fn dropout(x: T<R>, probability: f64, key: u64) -> T<R> {
        dropout::dropout(x, probability, key)
    }

    fn softmax(tensor: T<R>, dim: usize) -> T<R> {
        rows::softmax(RowOp::Softmax, tensor, dim)
    }

    fn log_softmax(tensor: T<R>, dim: usize) -> T<R> {
        rows::softmax(RowOp::LogSoftmax, tensor, dim)
    }

    fn cross_entropy(
        logits: T<R>,
        targets: T<R>,
        weights: Option<T<R>>,
        options: &CrossEntropyOptions,
    ) -> T<R> {
        Self::cross_entropy_train(logits, targets, weights, options).losses
    }

    fn cross_entropy_train(
        logits: T<R>,
        targets: T<R>,
        weights: Option<T<R>>,
        options: &CrossEntropyOptions,
    ) -> CrossEntropyTrained<T<R>> {
        let visible = [&logits, &targets].into_iter().chain(&weights).all(GpuTensor::is_visible);
        match visible {
            true => cross_entropy::cross_entropy(logits, targets, weights, options),
            false => compose::cross_entropy_train::<Self>(logits, targets, weights, options),
        }
    }

    fn layer_norm(x: T<R>, weight: T<R>, bias: Option<T<R>>, epsilon: f64) -> T<R> {
        // A kernel has one dtype.
        let is_one = weight.dtype == x.dtype && bias.as_ref().is_none_or(|bias| bias.dtype == x.dtype);
        match is_one {
            true => rows::norm(RowOp::LayerNorm { bias: bias.is_some() }, x, weight, bias, epsilon),
            false => compose::layer_norm::<Self>(x, weight, bias, epsilon),
        }
    }

    fn rms_norm(x: T<R>, weight: T<R>, epsilon: f64) -> T<R> {
        match weight.dtype == x.dtype {
            true => rows::norm(RowOp::RmsNorm, x, weight, None, epsilon),
            false => compose::rms_norm::<Self>(x, weight, epsilon),
        }
    }

    fn layer_norm_gradient(gradient: T<R>, x: T<R>, weight: T<R>, epsilon: f64) -> NormGradients<T<R>> {
        match norm_gradient::norm_gradient(true, &gradient, &x, &weight, epsilon) {
            Some((input, rows)) => {
                let [weight, bias] =
                    compose::norm_weight_and_bias_gradients::<Self>(gradient, x, &weight, rows);
                NormGradients { input, weight, bias }
            }
            None => compose::layer_norm_gradient::<Self>(gradient, x, weight, epsilon),
        }
    }

    fn fuses_batch_norm_activations(device: &R::Device) -> bool {
        // As many tensors as a kernel has that computes the input's gradient.
        R::limits(device).bindings >= 8
    }

    fn rms_norm_gradient(gradient: T<R>, x: T<R>, weight: T<R>, epsilon: f64) -> (T<R>, T<R>) {
        match norm_gradient::norm_gradient(false, &gradient, &x, &weight, epsilon) {
            Some((input, rows)) => (input, compose::norm_weight_gradient::<Self>(gradient, x, &weight, rows)),
            None => compose::rms_norm_gradient::<Self>(gradient, x, weight, epsilon),
        }
    }

    fn rnn(operands: RnnOperands<Self>, options: &RnnOptions) -> RnnOutput<Self> {
        match recurrent::recurrent(&operands, options) {
            Some((output, hidden, cell)) => RnnOutput { output, hidden, cell },
            None => compose::rnn::<Self>(operands, options),
        }
    }

    fn grouped_matmul_weight_gradient(gradient: T<R>, x: T<R>, ends: T<R>) -> T<R> {
        grouped::weight_gradient(&gradient, &x, &ends)
            .unwrap_or_else(|| compose::grouped_matmul_weight_gradient::<Self>(gradient, x, ends))
    }

    fn embedding_gradient(gradient: T<R>, indices: T<R>, rows: usize) -> T<R> {
        embedding::gradient(&gradient, &indices, rows)
            .unwrap_or_else(|| compose::embedding_gradient::<Self>(gradient, indices, rows))
    }

    fn max_pool_with_indices(x: T<R>, options: &PoolOptions) -> (T<R>, T<R>) {
        match window::pool(Pooling::Max(Some(I::DTYPE)), x, options) {
            (values, Some(positions)) => (values, positions),
            (_, None) => unreachable!("positions were asked for"),
        }
    }
}
