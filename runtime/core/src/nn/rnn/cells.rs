//! Recurrent layers whose gates lie apart, as one operation of the backend.

use super::GateController;
use crate::module::{Param, Parameter};
use crate::nn::Activation;
use crate::tensor::module::{self, RnnInputs};
use crate::tensor::{InlineVec, RnnDirection, RnnKind, RnnOptions, Tensor, backend::Backend};
use alloc::vec::Vec;

/// The cells of one layer, in one direction or both.
pub(super) struct Cells<'a, B: Backend> {
    /// Which cell.
    pub kind: RnnKind,
    /// In which order the sequence is read.
    pub direction: RnnDirection,
    /// The gates of each direction, in the order of the joined weights: input, output, forget, cell; update, reset, new.
    pub gates: Vec<&'a GateController<B>>,
    /// One direction's activations: of the gates, of the candidate, of the cell on its way to the hidden state.
    pub activations: Vec<&'a Activation<B>>,
    /// Bound of what the cell carries.
    pub state_clip: Option<f64>,
    /// Whether the input is `[batch, seq, d_input]`; else `[seq, batch, d_input]`.
    pub batch_first: bool,
}

/// A state for each direction: `[directions, batch, d_hidden]`.
type States<B> = Tensor<B, 3>;

/// All gates' parameters, joined.
#[derive(Clone)]
struct Weights<B: Backend> {
    /// `[directions, gates · d_hidden, d_input]`.
    input: Tensor<B, 3>,
    /// `[directions, gates · d_hidden, d_hidden]`.
    hidden: Tensor<B, 3>,
    /// `[directions, 2 · gates · d_hidden]`.
    bias: Option<Tensor<B, 2>>,
}

impl<B: Backend> Weights<B> {
    /// Tells the backend that these are used again and again.
    fn prepare(self) -> Self {
        Self {
            input: Parameter::prepare(self.input),
            hidden: Parameter::prepare(self.hidden),
            bias: self.bias.map(Parameter::prepare),
        }
    }
}

impl<B: Backend> Cells<'_, B> {
    /// Every step's hidden state, both directions beside each other: `[batch, seq, directions · d_hidden]`, or with the first two
    /// dims swapped as the input has them; the last hidden states and, of an LSTM, the last cell states.
    pub fn run(
        &self,
        input: Tensor<B, 3>,
        hidden: Option<States<B>>,
        cell: Option<States<B>>,
    ) -> (Tensor<B, 3>, States<B>, Option<States<B>>) {
        let weights = self.weights();
        let [outer, inner, _] = input.dims();
        let [_, _, d_hidden] = weights.hidden.dims();
        // The backend has states as it has the input.
        let turned = |state: States<B>| if self.batch_first { state.swap_dims(0, 1) } else { state };
        let inputs = RnnInputs {
            input,
            weight: weights.input,
            recurrent: weights.hidden,
            bias: weights.bias,
            sequence_lengths: None,
            initial_hidden: hidden.map(turned),
            initial_cell: cell.map(turned),
            peepholes: None,
        };
        let (output, hidden, cell) = self.apply(inputs, d_hidden);
        // `[batch, seq, directions, d_hidden]`, or `[seq, directions, batch, d_hidden]`.
        let output = if self.batch_first { output } else { output.swap_dims(1, 2) };
        let output = output.reshape([outer, inner, self.direction.count() * d_hidden]);
        (output, turned(hidden), cell.map(turned))
    }

    fn apply(
        &self,
        inputs: RnnInputs<B>,
        hidden_size: usize,
    ) -> (Tensor<B, 4>, Tensor<B, 3>, Option<Tensor<B, 3>>) {
        let directions = self.direction.count();
        let functions: Option<InlineVec<_>> = self.activations.iter().map(|layer| layer.function()).collect();
        let options = RnnOptions {
            kind: self.kind,
            direction: self.direction,
            hidden_size,
            activations: InlineVec::repeated(
                functions.as_deref().unwrap_or(self.kind.activations()),
                directions,
            ),
            clip: None,
            state_clip: self.state_clip,
            batch_first: self.batch_first,
        };
        if functions.is_none() {
            // Some layer has parameters of its own.
            let count = self.activations.len();
            return module::rnn_with(inputs, options, |n, x| self.activations[n % count].forward(x));
        }
        match self.kind {
            RnnKind::Lstm { .. } => {
                let (output, hidden, cell) = module::lstm(inputs, options);
                (output, hidden, Some(cell))
            }
            RnnKind::Gru { .. } | RnnKind::Rnn => {
                let (output, hidden) = module::rnn(inputs, options);
                (output, hidden, None)
            }
        }
    }

    /// The joined parameters. They are kept, unless gradients flow back to the gates.
    fn weights(&self) -> Weights<B> {
        let transforms =
            || self.gates.iter().flat_map(|gate| [&gate.input_transform, &gate.hidden_transform]);
        let tracked = transforms()
            .any(|linear| linear.weight.is_tracked() || linear.bias.as_ref().is_some_and(|b| b.is_tracked()));
        if tracked {
            return self.join();
        }
        let versions: Vec<_> = transforms()
            .flat_map(|linear| [Some(linear.weight.version()), linear.bias.as_ref().map(Param::version)])
            .flatten()
            .collect();
        self.gates[0].input_transform.weight.derive(&versions, || self.join().prepare())
    }

    fn join(&self) -> Weights<B> {
        let directions = || self.gates.chunks(self.kind.gates());
        let weights = |of: fn(&GateController<B>) -> Tensor<B, 2>| {
            let each = directions().map(|gates| {
                // A layer's weight is `[d_input, d_hidden]`.
                Tensor::cat(gates.iter().map(|gate| of(gate)).collect(), 1).transpose()
            });
            Tensor::stack(each.collect(), 0)
        };
        let has_bias = self
            .gates
            .iter()
            .any(|gate| gate.input_transform.bias.is_some() || gate.hidden_transform.bias.is_some());
        let bias = || {
            let each = directions().map(|gates| {
                let input = gates.iter().map(|gate| &gate.input_transform);
                let hidden = gates.iter().map(|gate| &gate.hidden_transform);
                let biases = input.chain(hidden).map(|linear| match &linear.bias {
                    Some(bias) => bias.val(),
                    None => {
                        let [_, features] = linear.weight.dims();
                        Tensor::zeros([features], &linear.weight.device()).cast(linear.weight.val().dtype())
                    }
                });
                Tensor::cat(biases.collect(), 0)
            });
            Tensor::stack(each.collect(), 0)
        };
        Weights {
            input: weights(|gate| gate.input_transform.weight.val()),
            hidden: weights(|gate| gate.hidden_transform.weight.val()),
            bias: has_bias.then(bias),
        }
    }
}

/// The last state of the only direction.
pub(super) fn only<B: Backend>(states: States<B>) -> Tensor<B, 2> {
    let [_, batch, d_hidden] = states.dims();
    states.reshape([batch, d_hidden])
}

/// A state of the only direction.
pub(super) fn single<B: Backend>(state: Tensor<B, 2>) -> States<B> {
    state.unsqueeze_dim(0)
}

/// The direction of a layer that has one.
pub(super) fn direction(reverse: bool) -> RnnDirection {
    if reverse { RnnDirection::Reverse } else { RnnDirection::Forward }
}

/// The gates of two layers, one a direction.
pub(super) fn both<'a, B: Backend, const GATES: usize>(
    forward: [&'a GateController<B>; GATES],
    reverse: [&'a GateController<B>; GATES],
) -> Vec<&'a GateController<B>> {
    [forward, reverse].concat()
}
