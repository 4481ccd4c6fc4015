//! What each operation is called, and what it computes and moves: by its definition, from the shapes of its operands.

use crate::recorder::{settle, settle_for_conv, take_waiting};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::compose::{Quantized, Rescale, RnnOperands};
use kiln_tensor::{
    Activation, AttentionOptions, ConvOptions, ConvTransposeOptions, Expression, InlineVec, InterpolateMode,
    InterpolateOptions, PoolOp, PoolOptions, ReduceOp, RnnDirection, RnnKind, RnnOptions, Step,
};
use kiln_types::ProfiledOperation;

/// What is known of a call before it runs.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    name: String,
    flops: Option<Flops>,
    bytes: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Flops {
    /// For each element of the first result.
    each: usize,
    /// Beside that.
    fixed: usize,
}

#[derive(Clone, Copy, Debug)]
enum Bytes {
    /// Those of the operands, here, and those of the results.
    WithResults(usize),
    Exactly(usize),
    Unknown,
}

/// What a call yielded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    /// The dims of the first.
    shape: Vec<usize>,
    /// The bytes of all.
    bytes: usize,
    /// The work that computes the first when it is read.
    pub(crate) waiting: Option<usize>,
}

/// What has tensors in it.
pub(crate) trait Tensors<P> {
    /// The tensors, in order.
    fn tensors(&self) -> Vec<&P>;
}

impl<P: Primitive> Tensors<P> for P {
    fn tensors(&self) -> Vec<&P> {
        vec![self]
    }
}

impl<P: Primitive> Tensors<P> for (P, P) {
    fn tensors(&self) -> Vec<&P> {
        vec![&self.0, &self.1]
    }
}

impl<P: Primitive> Tensors<P> for InlineVec<P> {
    fn tensors(&self) -> Vec<&P> {
        self.iter().collect()
    }
}

impl<P: Primitive> Tensors<P> for Option<P> {
    fn tensors(&self) -> Vec<&P> {
        self.iter().collect()
    }
}

impl<P: Primitive, E> Tensors<P> for Result<P, E> {
    fn tensors(&self) -> Vec<&P> {
        self.iter().collect()
    }
}

impl Results {
    pub(crate) fn of<P: Primitive>(tensors: &[&P]) -> Self {
        let shape = tensors.first().map(|first| first.dims().to_vec()).unwrap_or_default();
        let waiting = tensors.first().and_then(|first| first.waiting());
        Self { shape, bytes: bytes(tensors), waiting }
    }
}

fn elements(tensor: &impl Primitive) -> usize {
    tensor.dims().iter().product()
}

fn bytes<P: Primitive>(tensors: &[&P]) -> usize {
    tensors.iter().map(|tensor| elements(*tensor) * tensor.dtype().size()).sum()
}

impl Cost {
    /// The operation as rows of a table have it.
    pub(crate) fn operation(self, path: &str, results: Results) -> ProfiledOperation {
        let elements: usize = results.shape.iter().product();
        let flops = self.flops.map(|flops| (flops.fixed + flops.each * elements) as u64);
        let bytes = match self.bytes {
            Bytes::WithResults(operands) => Some((operands + results.bytes) as u64),
            Bytes::Exactly(bytes) => Some(bytes as u64),
            Bytes::Unknown => None,
        };
        ProfiledOperation { path: path.to_owned(), name: self.name, shape: results.shape, flops, bytes }
    }

    /// What a call costs whose work waits for whoever reads the result.
    pub(crate) fn put_off(&self) -> Self {
        Self { name: format!("{}, put off", self.name), ..Self::makes("") }.with_bytes(Bytes::Exactly(0))
    }

    /// This work together with the one before, whose result nobody else reads, so that it is never whole.
    fn after(self, before: Self, results: &Results) -> Self {
        let elements: usize = results.shape.iter().product();
        let flops = self.flops.zip(before.flops).map(|(own, before)| Flops {
            each: own.each,
            fixed: own.fixed + before.fixed + before.each * elements,
        });
        let bytes = match (self.bytes, before.bytes) {
            (Bytes::WithResults(own), Bytes::WithResults(before)) => Bytes::WithResults(own + before),
            _ => Bytes::Unknown,
        };
        Self { name: format!("{}, then {}", before.name, self.name), flops, bytes }
    }

    fn with_bytes(self, bytes: Bytes) -> Self {
        Self { bytes, ..self }
    }

    /// What moves its operands, and computes nothing.
    pub(crate) fn moves<P: Primitive>(name: impl Into<String>, operands: &[&P]) -> Self {
        Self::each(name, 0, operands)
    }

    /// What makes a tensor of nothing.
    pub(crate) fn makes(name: &str) -> Self {
        Self { name: name.to_owned(), flops: Some(Flops { each: 0, fixed: 0 }), bytes: Bytes::WithResults(0) }
    }

    /// What only looks at its operand in another way. (A backend that copies it all the same takes time for it, and has no reason to.)
    pub(crate) fn views<P: Primitive>(name: &str, tensor: &P) -> Self {
        settle(tensor);
        Self { name: name.to_owned(), flops: Some(Flops { each: 0, fixed: 0 }), bytes: Bytes::Exactly(0) }
    }

    /// Some steps for each element of the result.
    pub(crate) fn each<P: Primitive>(name: impl Into<String>, steps: usize, operands: &[&P]) -> Self {
        operands.iter().for_each(|operand| settle(*operand));
        let flops = Some(Flops { each: steps, fixed: 0 });
        Self { name: name.into(), flops, bytes: Bytes::WithResults(bytes(operands)) }
    }

    /// Some steps for each element of the first operand.
    pub(crate) fn each_operand<P: Primitive>(name: impl Into<String>, steps: usize, operands: &[&P]) -> Self {
        let fixed = steps * operands.first().map_or(0, |first| elements(*first));
        Self::each(name, 0, operands).with(Flops { each: 0, fixed })
    }

    /// What has bytes, but steps that depend on the data.
    pub(crate) fn uncounted<P: Primitive>(name: impl Into<String>, operands: &[&P]) -> Self {
        Self { flops: None, ..Self::each(name, 0, operands) }
    }

    /// Of which nothing is counted.
    pub(crate) fn unknown(name: &str) -> Self {
        Self { name: name.to_owned(), flops: None, bytes: Bytes::Unknown }
    }

    fn with(self, flops: Flops) -> Self {
        Self { flops: Some(flops), ..self }
    }

    /// Elements that an index names, or whole rows of a dim: as much is read as is yielded, and the index.
    pub(crate) fn picks<P: Primitive>(tensor: &P, rows_of: Option<usize>, indices: &P) -> Self {
        settle(tensor);
        let (name, each) = match rows_of {
            None => ("gather", 1),
            Some(dim) => ("select", elements(tensor) / tensor.dims().get(dim).copied().unwrap_or(1).max(1)),
        };
        let read = elements(indices) * each * tensor.dtype().size() + bytes(&[indices]);
        Self { bytes: Bytes::WithResults(read), ..Self::makes(name) }
    }

    /// A value that is put into a tensor in its place: it is read, and as much is written.
    pub(crate) fn puts<P: Primitive>(name: &str, tensor: &P, value: &P, indices: Option<&P>) -> Self {
        settle(tensor);
        settle(value);
        let moved = 2 * bytes(&[value]) + indices.map_or(0, |indices| bytes(&[indices]));
        Self { bytes: Bytes::Exactly(moved), ..Self::makes(name) }
    }
}

/// `3×3`
fn sizes(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join("×")
}

/// `, stride 2`; nothing where it is 1.
fn step(name: &str, sizes_of: &[usize]) -> String {
    match sizes_of {
        [] => String::new(),
        [1, rest @ ..] if rest.iter().all(|size| *size == 1) => String::new(),
        [first, rest @ ..] if rest.iter().all(|size| size == first) => format!(", {name} {first}"),
        all => format!(", {name} {}", sizes(all)),
    }
}

/// `hard_swish`
fn activation_name(activation: Activation) -> String {
    let text = format!("{activation:?}");
    let mut name = String::new();
    for c in text.chars().take_while(|c| c.is_ascii_alphanumeric()) {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// ` + relu`
fn then(activation: Option<Activation>) -> String {
    activation.map(|activation| format!(" + {}", activation_name(activation))).unwrap_or_default()
}

pub(crate) fn activation<P: Primitive>(activation: Activation, tensor: &P) -> Cost {
    Cost::each(activation_name(activation), 1, &[tensor])
}

pub(crate) fn clamp<P: Primitive>(tensor: &P, bounds: usize) -> Cost {
    Cost::each("clamp", bounds, &[tensor])
}

pub(crate) fn elementwise<P: Primitive>(expression: &Expression, operands: &[P]) -> Cost {
    let (steps, names) = steps(expression);
    let operands: Vec<&P> = operands.iter().collect();
    Cost::each(format!("elementwise {}", names.join(", ")), steps, &operands)
}

pub(crate) fn elementwise_sums<P: Primitive>(expression: &Expression, operands: &[P]) -> Cost {
    let (steps, names) = steps(expression);
    let operands: Vec<&P> = operands.iter().collect();
    // Each element of what the operands broadcast to is computed, and added up for each result.
    let rank = operands.iter().map(|operand| operand.dims().len()).max().unwrap_or(0);
    let along = |axis: usize| operands.iter().filter_map(|operand| operand.dims().get(axis)).max();
    let elements: usize = (0..rank).filter_map(along).product();
    let fixed = elements * (steps + expression.results().len());
    Cost::each(format!("sum of {}", names.join(", ")), 0, &operands).with(Flops { each: 0, fixed })
}

/// How many steps of a program compute something, and what they are called.
fn steps(expression: &Expression) -> (usize, Vec<String>) {
    let mut names: Vec<String> = Vec::new();
    let mut steps = 0;
    for step in &expression.steps {
        let name = match *step {
            Step::Unary(op, _) => op.name().to_owned(),
            Step::Binary(op, ..) => op.name().to_owned(),
            Step::Compare(op, ..) => op.name().to_owned(),
            Step::Activation(op, _) => activation_name(op),
            Step::Where(..) => "mask_where".to_owned(),
            Step::Input(_) | Step::Constant(..) | Step::Parameter(..) | Step::Iota(..) | Step::Cast(..) => {
                continue;
            }
        };
        steps += 1;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    (steps, names)
}

pub(crate) fn reduce<P: Primitive>(op: ReduceOp, tensor: &P) -> Cost {
    // A mean is divided at last.
    let each = usize::from(op == ReduceOp::Mean);
    Cost::each(op.name(), 0, &[tensor]).with(Flops { each, fixed: elements(tensor) })
}

pub(crate) fn matmul<P: Primitive>(lhs: &P, rhs: &P) -> Cost {
    let inner = lhs.dims().last().copied().unwrap_or(1);
    Cost::each("matmul", 2 * inner, &[lhs, rhs])
}

/// A subtraction, a multiplication and an addition for each number of a row.
pub(crate) fn squared_distances<P: Primitive>(x: &P, y: &P) -> Cost {
    let inner = x.dims().last().copied().unwrap_or(1);
    Cost::each("squared_distances", 3 * inner, &[x, y])
}

/// How many groups have rows is not known here: as many matrices are counted as read as there are rows, or all.
pub(crate) fn grouped_matmul<P: Primitive>(x: &P, weight: &P, ends: &P) -> Cost {
    let (rows, inner) = (x.dims().first().copied().unwrap_or(1), x.dims().last().copied().unwrap_or(1));
    let groups = weight.dims().first().copied().unwrap_or(1);
    let matrices = bytes(&[weight]) / groups.max(1) * groups.min(rows);
    let cost = Cost::each("grouped_matmul", 2 * inner, &[x, weight, ends]);
    Cost { bytes: Bytes::WithResults(bytes(&[x, ends]) + matrices), ..cost }
}

pub(crate) fn matmul_integer<P: Primitive>(lhs: &Quantized<P>, rhs: &Quantized<P>) -> Cost {
    let inner = lhs.values.dims().last().copied().unwrap_or(1);
    let operands: Vec<&P> = lhs.tensors().chain(rhs.tensors()).collect();
    Cost::each("matmul_integer", 2 * inner, &operands)
}

pub(crate) fn conv_integer<P: Primitive>(
    x: &Quantized<P>,
    weight: &Quantized<P>,
    options: &ConvOptions,
) -> Cost {
    let window: usize = weight.values.dims().iter().skip(1).product();
    let operands: Vec<&P> = x.tensors().chain(weight.tensors()).collect();
    Cost::each(format!("quantized_{}", conv_name(weight.values.dims(), options)), 2 * window, &operands)
}

/// A product of integers together with what becomes of its sums.
pub(crate) fn rescaled<P: Primitive>(product: Cost, rescale: &Rescale<P>) -> Cost {
    let Rescale { scale, input_scale, integer_bias, bias, residual, activation, integers } = rescale;
    let added = if residual.is_some() { " + add" } else { "" };
    let to = integers.as_ref().map_or_else(String::new, |(_, dtype)| format!(" to {dtype}"));
    let optional = [input_scale, integer_bias, bias, residual].map(Option::as_ref);
    let zero = integers.as_ref().map(|(zero, _)| zero);
    let operands: Vec<&P> = [Some(scale), zero].into_iter().chain(optional).flatten().collect();
    // The scale, and what is added; an integer is rounded, moved and bounded.
    let each = 1
        + optional[1..].iter().flatten().count()
        + usize::from(activation.is_some())
        + 3 * usize::from(integers.is_some());
    let name = format!("{}{added}{}{to}", product.name, then(*activation));
    let flops = product.flops.map(|flops| Flops { each: flops.each + each, ..flops });
    let bytes = match product.bytes {
        Bytes::WithResults(own) => Bytes::WithResults(own + bytes(&operands)),
        other => other,
    };
    Cost { name, flops, bytes }
}

pub(crate) fn linear<P: Primitive>(
    x: &P,
    weight: &P,
    bias: Option<&P>,
    activation: Option<Activation>,
) -> Cost {
    let inner = x.dims().last().copied().unwrap_or(1);
    let mut operands = vec![x, weight];
    operands.extend(bias);
    let each = 2 * inner + usize::from(bias.is_some()) + usize::from(activation.is_some());
    Cost::each(format!("linear{}", then(activation)), each, &operands)
}

/// Two products, and softmax between them, of the pairs of a query and a key that it may see.
pub(crate) fn attention<P: Primitive>(
    [q, k, v]: [&P; 3],
    mask: &Option<P>,
    options: &AttentionOptions,
) -> Cost {
    let (&[batch, heads, queries, size], &[.., keys, _], &[.., value_size]) = (q.dims(), k.dims(), v.dims())
    else {
        return Cost::unknown("attention");
    };
    let pairs: usize = if options.is_causal {
        // The last query sees every key, the one before it one less.
        (0..queries).map(|query| (keys + query + 1).saturating_sub(queries)).sum()
    } else {
        queries * keys
    };
    let steps = SOFTMAX + 1 + usize::from(mask.is_some()) + 3 * usize::from(options.softcap.is_some());
    let fixed = batch * heads * pairs * (2 * size + 2 * value_size + steps);
    let mut operands = vec![q, k, v];
    operands.extend(mask);
    let name = if options.is_causal { "attention, causal" } else { "attention" };
    Cost::each(name, 0, &operands).with(Flops { each: 0, fixed })
}

/// The name of a convolution with a weight `[out, in / groups, kernel…]`.
fn conv_name(weight: &[usize], options: &ConvOptions) -> String {
    let kernel = weight.get(2..).unwrap_or(&[]);
    let groups = match (options.groups, weight.get(1)) {
        (1, _) => String::new(),
        (_, Some(1)) => ", depthwise".to_owned(),
        (groups, _) => format!(", groups {groups}"),
    };
    let (stride, dilation) = (step("stride", &options.stride), step("dilation", &options.dilation));
    format!("conv{}d {}{groups}{stride}{dilation}", kernel.len(), sizes(kernel))
}

pub(crate) fn conv<P: Primitive>(
    x: &P,
    weight: &P,
    bias: &Option<P>,
    residual: Option<&P>,
    activation: Option<Activation>,
    options: &ConvOptions,
) -> Cost {
    let window = weight.dims().get(1..).unwrap_or(&[]);
    let added = if residual.is_some() { " + add" } else { "" };
    let name = format!("{}{added}{}", conv_name(weight.dims(), options), then(activation));
    let after =
        usize::from(bias.is_some()) + usize::from(residual.is_some()) + usize::from(activation.is_some());
    let each = 2 * window.iter().product::<usize>() + after;
    let mut operands = vec![weight];
    operands.extend(bias);
    operands.extend(residual);
    // A depthwise convolution may be what the work waits for.
    let before =
        x.waiting().filter(|_| window.first() == Some(&1) && options.groups > 1).and_then(take_waiting);
    if let Some((before, results)) = before {
        return Cost::each(name, each, &operands).after(before, &results);
    }
    operands.push(x);
    residual.into_iter().chain([x]).for_each(settle_for_conv);
    Cost::each(name, each, &operands)
}

/// Every element of the input meets a whole window of the weight, `[in, out / groups, kernel…]`.
pub(crate) fn conv_transpose<P: Primitive>(
    x: &P,
    weight: &P,
    bias: &Option<P>,
    options: &ConvTransposeOptions,
) -> Cost {
    let (window, kernel) = (weight.dims().get(1..).unwrap_or(&[]), weight.dims().get(2..).unwrap_or(&[]));
    let name =
        format!("conv_transpose{}d {}{}", kernel.len(), sizes(kernel), step("stride", &options.stride));
    let mut operands = vec![x, weight];
    operands.extend(bias);
    let fixed = 2 * elements(x) * window.iter().product::<usize>();
    Cost::each(name, 0, &operands).with(Flops { each: usize::from(bias.is_some()), fixed })
}

pub(crate) fn pool<P: Primitive>(op: PoolOp, x: &P, options: &PoolOptions) -> Cost {
    let (kind, steps) = match op {
        PoolOp::Max => ("max_pool", 1),
        PoolOp::Average { .. } => ("avg_pool", 1),
        // A power and a sum.
        PoolOp::Lp { .. } => ("lp_pool", 2),
    };
    let (kernel, stride) = (sizes(&options.kernel), step("stride", &options.stride));
    let name = format!("{kind}{}d {kernel}{stride}", options.kernel.len());
    Cost::each(name, steps * options.kernel.iter().product::<usize>(), &[x])
}

/// Multiply-adds of the samples around each element of the result, in all resized dims at once.
pub(crate) fn interpolate<P: Primitive>(x: &P, options: &InterpolateOptions) -> Cost {
    let resized = x.dims().iter().zip(&options.output_size).filter(|(from, to)| from != to).count() as u32;
    let (name, each) = match options.mode {
        InterpolateMode::Nearest(_) => ("interpolate, nearest", 0),
        InterpolateMode::Linear => ("interpolate, linear", 2 * 2usize.pow(resized)),
        InterpolateMode::Cubic { .. } => ("interpolate, cubic", 2 * 4usize.pow(resized)),
    };
    // A filter takes as many samples as the scale says.
    if options.antialias { Cost::uncounted(name, &[x]) } else { Cost::each(name, each, &[x]) }
}

/// The largest, a difference, an exponential, a sum, a quotient.
pub(crate) const SOFTMAX: usize = 5;

/// Two sums, a difference, a square and a quotient.
const NORMALIZED: usize = 5;

/// A norm over what it computes the statistics of, with the weight and the bias that there are.
pub(crate) fn norm<P: Primitive>(name: &str, x: &P, scaled: [Option<&P>; 2]) -> Cost {
    let mut operands = vec![x];
    operands.extend(scaled.into_iter().flatten());
    Cost::each(name, NORMALIZED + operands.len() - 1, &operands)
}

pub(crate) fn rms_norm<P: Primitive>(x: &P, weight: &P) -> Cost {
    // A square, a sum, a quotient and the weight.
    Cost::each("rms_norm", 4, &[x, weight])
}

pub(crate) fn batch_norm<P: Primitive>(operands: [&P; 5]) -> Cost {
    // A difference, a quotient, the weight and the bias.
    Cost::each("batch_norm", 4, &operands)
}

/// Two products a step, of the input and of the state, then what the cell does with the gates.
pub(crate) fn rnn<B: Backend>(operands: &RnnOperands<B>, options: &RnnOptions) -> Cost {
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
    let name = match options.kind {
        RnnKind::Rnn => "rnn",
        RnnKind::Gru { .. } => "gru",
        RnnKind::Lstm { .. } => "lstm",
    };
    let name = match options.direction {
        RnnDirection::Forward => name.to_owned(),
        RnnDirection::Reverse => format!("{name}, reverse"),
        RnnDirection::Bidirectional => format!("{name}, bidirectional"),
    };
    let mut all = vec![input, weight, recurrent];
    for operand in [bias, sequence_lengths, initial_hidden, initial_cell, peepholes] {
        all.extend(operand);
    }
    let &[a, b, size] = input.dims() else { return Cost::unknown(&name) };
    let (gates, hidden) = (options.kind.gates(), options.hidden_size);
    // Of each gate: both sums, with their bias, and the activation. Then the new state of the gates.
    let state = match options.kind {
        RnnKind::Rnn => 0,
        RnnKind::Gru { .. } | RnnKind::Lstm { .. } => 5,
    };
    let of_gate = 2 * size + 2 * hidden + 2 + usize::from(bias.is_some());
    let fixed = options.direction.count() * a * b * hidden * (gates * of_gate + state);
    Cost::each(name, 0, &all).with(Flops { each: 0, fixed })
}
