//! Recurrent layers of f32 tensors: the kernels' operands laid out, and their results.

pub(crate) mod gradient;

use crate::ops::cast;
use crate::ops::matmul::{matrix, packed_rhs};
use crate::storage::Buffer;
use crate::tensor::NdArrayTensor;
use alloc::sync::Arc;
use kiln_kernels::gemm::{PackedRhs, Rhs};
use kiln_kernels::rnn::{self, Kept, Layer, Part};
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{DType, RnnKind, RnnOptions};
use smallvec::SmallVec;

/// The operands; see [`kiln_tensor::compose::RnnOperands`].
pub(crate) struct Operands {
    pub(crate) input: NdArrayTensor,
    pub(crate) weight: NdArrayTensor,
    pub(crate) recurrent: NdArrayTensor,
    pub(crate) bias: Option<NdArrayTensor>,
    pub(crate) sequence_lengths: Option<NdArrayTensor>,
    pub(crate) initial_hidden: Option<NdArrayTensor>,
    pub(crate) initial_cell: Option<NdArrayTensor>,
    pub(crate) peepholes: Option<NdArrayTensor>,
}

/// All outputs, the last hidden state, the last cell state (LSTM).
pub(crate) type Outputs = (NdArrayTensor, NdArrayTensor, Option<NdArrayTensor>);

/// What a layer keeps for its gradient; see [`kiln_tensor::compose::RnnStates`].
pub(crate) struct States {
    pub(crate) hidden: NdArrayTensor,
    pub(crate) cell: Option<NdArrayTensor>,
    /// What [`rnn`] calls `gates`.
    pub(crate) gates: NdArrayTensor,
}

/// Whether this file runs the layer; the rest is composed.
pub(crate) fn supports(dtype: DType, options: &RnnOptions) -> bool {
    dtype == DType::F32 && options.hidden_size > 0
}

/// Whether this file trains the layer.
pub(crate) fn trains(operands: &Operands, options: &RnnOptions) -> bool {
    supports(operands.input.dtype(), options) && !operands.input.is_empty()
}

/// See [`kiln_tensor::backend::Backend::rnn`].
pub(crate) fn rnn(operands: &Operands, options: &RnnOptions) -> Outputs {
    run(operands, options, false).0
}

/// [`rnn`], and what [`gradient`] needs.
///
/// # Panics
/// When the layer is not one that [`trains`].
pub(crate) fn rnn_train(operands: &Operands, options: &RnnOptions) -> (Outputs, States) {
    match run(operands, options, true) {
        (outputs, Some(states)) => (outputs, states),
        (_, None) => unreachable!("training keeps states"),
    }
}

fn permuted(x: NdArrayTensor, axes: &[usize]) -> NdArrayTensor {
    let layout = x.layout().permute(axes);
    x.with_layout(layout)
}

/// The `n`-th part along the first dim, without it.
fn nth(x: &NdArrayTensor, n: usize) -> NdArrayTensor {
    let mut layout = x.layout().clone();
    layout.shape.dims.remove(0);
    layout.offset = (layout.offset as isize + layout.strides.remove(0) * n as isize) as usize;
    x.clone().with_layout(layout)
}

/// Some rows of a matrix.
fn rows(x: NdArrayTensor, first: usize, count: usize) -> NdArrayTensor {
    let mut layout = x.layout().clone();
    layout.offset = (layout.offset as isize + layout.strides[0] * first as isize) as usize;
    layout.shape.dims[0] = count;
    x.with_layout(layout)
}

/// With the first two dims exchanged if the batch comes first: as the kernels have them, or back.
fn turned(x: NdArrayTensor, options: &RnnOptions) -> NdArrayTensor {
    if options.batch_first { permuted(x, &[1, 0, 2]) } else { x }
}

/// What the kernels read beside the products.
struct Given {
    /// `[steps, batch, input]`.
    input: NdArrayTensor,
    lengths: Option<NdArrayTensor>,
    peepholes: Option<NdArrayTensor>,
}

impl Given {
    fn new(operands: &Operands, options: &RnnOptions) -> Self {
        let lengths = operands.sequence_lengths.clone();
        Self {
            input: turned(operands.input.clone(), options).into_contiguous(),
            lengths: lengths.map(|lengths| cast::cast(lengths, DType::I64).into_contiguous()),
            peepholes: operands.peepholes.clone().map(NdArrayTensor::into_contiguous),
        }
    }

    fn layer<'a>(&'a self, options: &'a RnnOptions, training: bool) -> Layer<'a> {
        let [steps, batch, _] = self.input.shape().dims();
        Layer {
            options,
            steps,
            batch,
            lengths: self.lengths.as_ref().map(NdArrayTensor::slice),
            peepholes: self.peepholes.as_ref().map(NdArrayTensor::slice),
            training,
        }
    }
}

/// A right operand of products.
enum Weight {
    /// Packed for this run and others.
    Shared(Arc<(Layout, PackedRhs)>),
    /// Packed for this run.
    Packed(PackedRhs),
    /// As it lies.
    Plain(NdArrayTensor),
}

impl Weight {
    /// Of a matrix that is used once in a run.
    fn once(weight: NdArrayTensor) -> Self {
        match packed_rhs(&weight) {
            Some(packed) => Self::Shared(packed.clone()),
            None => Self::Plain(weight),
        }
    }

    /// Of a matrix that every step uses.
    fn often(weight: NdArrayTensor) -> Self {
        match Self::once(weight) {
            Self::Plain(weight) => {
                let [depth, columns] = weight.shape().dims();
                Self::Packed(PackedRhs::new(matrix(&weight), depth, columns))
            }
            packed => packed,
        }
    }

    fn rhs(&self) -> Rhs<'_> {
        match self {
            Self::Shared(packed) => Rhs::Packed(&packed.1),
            Self::Packed(packed) => Rhs::Packed(packed),
            Self::Plain(weight) => Rhs::Plain(matrix(weight)),
        }
    }
}

/// One of each part of each direction: two directions of two parts are the most there are.
type Parts<T> = SmallVec<[T; 4]>;

/// The packed ones.
fn packed(weights: &[Weight]) -> Parts<&PackedRhs> {
    let packed = |weight| match Weight::rhs(weight) {
        Rhs::Packed(packed) => Some(packed),
        Rhs::Plain(_) => None,
    };
    weights.iter().filter_map(packed).collect()
}

/// Each part of each direction of `[directions, gates · hidden, columns]`.
fn parts(
    weight: &NdArrayTensor,
    parts: &[Part],
    options: &RnnOptions,
    of: impl Fn(NdArrayTensor) -> Weight,
) -> Parts<Weight> {
    // Strides that a matrix cannot have would be copied for every part.
    let backwards = weight.layout().strides.iter().any(|&stride| stride < 0);
    let weight = if backwards { weight.clone().into_contiguous() } else { weight.clone() };
    let size = options.hidden_size;
    (0..options.direction.count())
        .flat_map(|direction| parts.iter().map(move |part| (direction, part)))
        .map(|(direction, part)| of(rows(nth(&weight, direction), part.gate * size, part.count * size)))
        .collect()
}

/// New memory for f32, with arbitrary contents.
fn fresh(dims: &[usize]) -> Buffer {
    Buffer::new::<f32>(dims.iter().product())
}

/// A new tensor over memory that was filled.
fn tensor(buffer: Buffer, dims: &[usize]) -> NdArrayTensor {
    NdArrayTensor::from_buffer(buffer, dims.into(), DType::F32)
}

/// A copy of `[directions, batch, hidden]` as the kernels have it; zeros when absent.
fn state(given: Option<&NdArrayTensor>, options: &RnnOptions, dims: &[usize]) -> Buffer {
    let mut buffer = fresh(dims);
    let elements: &mut [f32] = buffer.as_mut();
    match given {
        Some(given) => elements.copy_from_slice(turned(given.clone(), options).into_contiguous().slice()),
        None => elements.fill(0.0),
    }
    buffer
}

fn run(operands: &Operands, options: &RnnOptions, training: bool) -> (Outputs, Option<States>) {
    let given = Given::new(operands, options);
    let layer = given.layer(options, training);
    let [steps, batch, size] = given.input.shape().dims();
    let (directions, hidden, kind) = (options.direction.count(), options.hidden_size, options.kind);
    let transposed = |weight: NdArrayTensor| permuted(weight, &[1, 0]);
    let weight =
        parts(&operands.weight, rnn::input_parts(kind), options, |weight| Weight::once(transposed(weight)));
    let recurrent = parts(&operands.recurrent, rnn::recurrent_parts(kind), options, |weight| {
        Weight::often(transposed(weight))
    });
    let bias = operands.bias.clone().map(NdArrayTensor::into_contiguous);

    let last = [directions, batch, hidden];
    let each = [directions, steps, batch, hidden];
    let no_cell = [0];
    let is_lstm = matches!(kind, RnnKind::Lstm { .. });
    let [last_cell, each_cell]: [&[usize]; 2] = if is_lstm { [&last, &each] } else { [&no_cell, &no_cell] };
    let all_gates = [directions, steps, batch, layer.width()];
    let all_outputs = [steps, directions, batch, hidden];
    let mut gates = fresh(&all_gates);
    let mut output = fresh(&all_outputs);
    let mut h = state(operands.initial_hidden.as_ref(), options, &last);
    let mut c = state(operands.initial_cell.as_ref().filter(|_| is_lstm), options, last_cell);
    let mut kept = training.then(|| (fresh(&each), fresh(each_cell)));

    let rhs: Parts<Rhs<'_>> = weight.iter().map(Weight::rhs).collect();
    layer.project(given.input.slice(), size, &rhs, bias.as_ref().map(NdArrayTensor::slice), gates.as_mut());
    layer.forward(
        &packed(&recurrent),
        gates.as_mut(),
        rnn::States { hidden: h.as_mut(), cell: c.as_mut() },
        output.as_mut(),
        kept.as_mut().map(|(hidden, cell)| Kept { hidden: hidden.as_mut(), cell: cell.as_mut() }),
    );
    let output = tensor(output, &all_outputs);
    let output = if options.batch_first { permuted(output, &[2, 0, 1, 3]) } else { output };
    let last_of = |state: Buffer| turned(tensor(state, &last), options);
    let states = kept.map(|(h, c)| States {
        hidden: tensor(h, &each),
        cell: is_lstm.then(|| tensor(c, &each)),
        gates: tensor(gates, &all_gates),
    });
    ((output, last_of(h), is_lstm.then(|| last_of(c))), states)
}
