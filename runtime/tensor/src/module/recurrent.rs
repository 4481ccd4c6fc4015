//! Recurrent layers.

use crate::backend::Backend;
use crate::check::{self, ensure};
use crate::compose::{self, RnnOperands};
use crate::{DType, Int, RnnOptions, Shape, Tensor};

/// Operands of [`rnn`] and [`lstm`], laid out as ONNX's recurrent operators do.
#[derive(Clone, Debug)]
pub struct RnnInputs<B: Backend> {
    /// `[seq, batch, input]`, or `[batch, seq, input]` when batch comes first.
    pub input: Tensor<B, 3>,
    /// Input weights: `[directions, gates · hidden, input]`.
    pub weight: Tensor<B, 3>,
    /// Recurrent weights: `[directions, gates · hidden, hidden]`.
    pub recurrent: Tensor<B, 3>,
    /// Biases `[directions, 2 · gates · hidden]`: the input's, then the recurrent ones.
    pub bias: Option<Tensor<B, 2>>,
    /// `[batch]`: how many steps of each row count.
    pub sequence_lengths: Option<Tensor<B, 1, Int>>,
    /// First hidden state: `[directions, batch, hidden]`, or `[batch, directions, hidden]`.
    pub initial_hidden: Option<Tensor<B, 3>>,
    /// First cell state of an LSTM, likewise.
    pub initial_cell: Option<Tensor<B, 3>>,
    /// Peephole weights of an LSTM: `[directions, 3 · hidden]`, in the order input, output, forget.
    pub peepholes: Option<Tensor<B, 2>>,
}

impl<B: Backend> RnnInputs<B> {
    #[track_caller]
    fn check(&self, options: &RnnOptions) {
        let hidden = options.hidden_size;
        let directions = options.direction.count();
        let (gates, functions) = (options.kind.gates() * hidden, options.kind.activations().len());
        let [outer, inner, size] = self.input.dims();
        let batch = if options.batch_first { outer } else { inner };
        let state =
            if options.batch_first { [batch, directions, hidden] } else { [directions, batch, hidden] };
        let expect = |name: &str, shape: Option<Shape>, dims: &[usize]| {
            if let Some(shape) = shape {
                ensure!(shape[..] == *dims, "rnn", "{name} is {shape}, it should be {dims:?}");
            }
        };
        let [.., taken] = self.weight.dims();
        ensure!(
            taken == size,
            "rnn",
            "the last dim of the input {} does not fit a weight {}, which takes {taken}",
            self.input.shape(),
            self.weight.shape()
        );
        expect("the weight", Some(self.weight.shape()), &[directions, gates, size]);
        expect("the recurrent weight", Some(self.recurrent.shape()), &[directions, gates, hidden]);
        expect("the bias", self.bias.as_ref().map(Tensor::shape), &[directions, 2 * gates]);
        expect("the sequence lengths", self.sequence_lengths.as_ref().map(Tensor::shape), &[batch]);
        expect("the first hidden state", self.initial_hidden.as_ref().map(Tensor::shape), &state);
        expect("the first cell state", self.initial_cell.as_ref().map(Tensor::shape), &state);
        expect("the peephole weight", self.peepholes.as_ref().map(Tensor::shape), &[directions, 3 * hidden]);
        let dtypes = |tensors: [Option<DType>; 6]| tensors.into_iter().flatten();
        let all = dtypes([
            Some(self.weight.dtype()),
            Some(self.recurrent.dtype()),
            self.bias.as_ref().map(Tensor::dtype),
            self.initial_hidden.as_ref().map(Tensor::dtype),
            self.initial_cell.as_ref().map(Tensor::dtype),
            self.peepholes.as_ref().map(Tensor::dtype),
        ]);
        all.for_each(|dtype| check::same_dtype("rnn", self.input.dtype(), dtype));
        ensure!(
            options.activations.len() == directions * functions,
            "rnn",
            "{} activations were given, there should be {}",
            options.activations.len(),
            directions * functions
        );
    }

    fn into_operands(self) -> RnnOperands<B> {
        RnnOperands {
            input: self.input.into_backend(),
            weight: self.weight.into_backend(),
            recurrent: self.recurrent.into_backend(),
            bias: self.bias.map(Tensor::into_backend),
            sequence_lengths: self.sequence_lengths.map(Tensor::into_backend),
            initial_hidden: self.initial_hidden.map(Tensor::into_backend),
            initial_cell: self.initial_cell.map(Tensor::into_backend),
            peepholes: self.peepholes.map(Tensor::into_backend),
        }
    }
}

/// A recurrent layer without a cell state (RNN, GRU): all outputs `[seq, directions, batch, hidden]` (or
/// `[batch, seq, directions, hidden]`) and the last hidden state.
///
/// # Panics
/// When an operand's shape does not fit.
pub fn rnn<B: Backend>(inputs: RnnInputs<B>, options: RnnOptions) -> (Tensor<B, 4>, Tensor<B, 3>) {
    inputs.check(&options);
    let result = B::rnn(inputs.into_operands(), &options);
    (Tensor::wrap(result.output), Tensor::wrap(result.hidden))
}

/// [`rnn`] or [`lstm`] whose cell has other functions than [`Activation`](crate::Activation) names: `activate` takes the
/// place of `options.activations`, each under its position there. The last cell state is an LSTM's.
///
/// # Panics
/// When an operand's shape does not fit.
pub fn rnn_with<B: Backend>(
    inputs: RnnInputs<B>,
    options: RnnOptions,
    activate: impl Fn(usize, Tensor<B, 2>) -> Tensor<B, 2>,
) -> (Tensor<B, 4>, Tensor<B, 3>, Option<Tensor<B, 3>>) {
    inputs.check(&options);
    let activate = |n, x| activate(n, Tensor::wrap(x)).into_backend();
    let result = compose::rnn_with::<B>(inputs.into_operands(), &options, &activate);
    (Tensor::wrap(result.output), Tensor::wrap(result.hidden), result.cell.map(Tensor::wrap))
}

/// A recurrent layer with a cell state: all outputs, the last hidden state and the last cell state; see [`rnn`].
///
/// # Panics
/// When an operand's shape does not fit, or the kind is not an LSTM.
pub fn lstm<B: Backend>(
    inputs: RnnInputs<B>,
    options: RnnOptions,
) -> (Tensor<B, 4>, Tensor<B, 3>, Tensor<B, 3>) {
    inputs.check(&options);
    let result = B::rnn(inputs.into_operands(), &options);
    let Some(cell) = result.cell else {
        check::fail("lstm", format_args!("{:?} has no cell state", options.kind))
    };
    (Tensor::wrap(result.output), Tensor::wrap(result.hidden), Tensor::wrap(cell))
}
