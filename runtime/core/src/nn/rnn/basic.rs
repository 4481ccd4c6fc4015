//! Plain recurrent layer.

use super::GateController;
use super::cells::{Cells, both, direction, only, single};
use crate::config::Config;
use crate::module::Module;
use crate::nn::{Activation, ActivationConfig, Initializer, display::layer_display};
use crate::tensor::{RnnDirection, RnnKind, Tensor, backend::Backend};
use alloc::{vec, vec::Vec};

/// Hidden state, `[batch, d_hidden]` (with a leading direction dim when bidirectional).
#[derive(Clone, Debug)]
pub struct RnnState<B: Backend, const D: usize> {
    /// The hidden state.
    pub hidden: Tensor<B, D>,
}

impl<B: Backend, const D: usize> RnnState<B, D> {
    /// A state from its part.
    pub fn new(hidden: Tensor<B, D>) -> Self {
        Self { hidden }
    }
}

/// Configuration of [`Rnn`].
#[derive(Config, Debug)]
pub struct RnnConfig {
    /// Size of the input.
    pub d_input: usize,
    /// Size of the hidden state.
    pub d_hidden: usize,
    /// Whether there are biases.
    pub bias: bool,
    /// How the parameters start.
    #[config(default = "Initializer::XavierNormal { gain: 1.0 }")]
    pub initializer: Initializer,
    /// Whether the input is `[batch, seq, d_input]`; else `[seq, batch, d_input]`.
    #[config(default = true)]
    pub batch_first: bool,
    /// Whether the sequence is read from its end.
    #[config(default = false)]
    pub reverse: bool,
    /// Bound of the hidden state.
    pub clip: Option<f64>,
    /// Activation of the hidden state; PyTorch also has `Relu`.
    #[config(default = "ActivationConfig::Tanh")]
    pub hidden_activation: ActivationConfig,
}

/// Plain recurrent network (Elman 1990): `h' = tanh(W x + b + R h + c)`.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Rnn<B: Backend> {
    /// The two linear layers.
    pub gate: GateController<B>,
    /// Size of the hidden state.
    pub d_hidden: usize,
    /// Whether batch comes first.
    pub batch_first: bool,
    /// Whether the sequence is read from its end.
    pub reverse: bool,
    /// Bound of the hidden state.
    pub clip: Option<f64>,
    /// Activation of the hidden state.
    pub hidden_activation: Activation<B>,
}

impl RnnConfig {
    /// A layer whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Rnn<B> {
        let initializer = self.initializer.clone();
        Rnn {
            gate: GateController::new(self.d_input, self.d_hidden, self.bias, initializer, device),
            d_hidden: self.d_hidden,
            batch_first: self.batch_first,
            reverse: self.reverse,
            clip: self.clip,
            hidden_activation: self.hidden_activation.init(device),
        }
    }
}

impl<B: Backend> Rnn<B> {
    /// `[batch, seq, d_input]` to every step's state `[batch, seq, d_hidden]` (both with the first two dims swapped unless
    /// batch comes first), and the last state.
    pub fn forward(
        &self,
        batched_input: Tensor<B, 3>,
        state: Option<RnnState<B, 2>>,
    ) -> (Tensor<B, 3>, RnnState<B, 2>) {
        let cells = self.cells(direction(self.reverse), vec![&self.gate], self.batch_first);
        let (output, last, _) = cells.run(batched_input, state.map(|state| single(state.hidden)), None);
        (output, RnnState::new(only(last)))
    }

    /// Cells of this kind with these gates.
    fn cells<'a>(
        &'a self,
        direction: RnnDirection,
        gates: Vec<&'a GateController<B>>,
        batch_first: bool,
    ) -> Cells<'a, B> {
        Cells {
            kind: RnnKind::Rnn,
            direction,
            gates,
            activations: vec![&self.hidden_activation],
            state_clip: self.clip,
            batch_first,
        }
    }
}

layer_display!(Rnn<B>, |layer| {
    "d_input" => layer.gate.input_transform.weight.lazy_shape()[0],
    "d_hidden" => layer.d_hidden,
    "bias" => layer.gate.input_transform.bias.is_some(),
});

/// Configuration of [`BiRnn`].
#[derive(Config, Debug)]
pub struct BiRnnConfig {
    /// Size of the input.
    pub d_input: usize,
    /// Size of the hidden state of one direction.
    pub d_hidden: usize,
    /// Whether there are biases.
    pub bias: bool,
    /// How the parameters start.
    #[config(default = "Initializer::XavierNormal { gain: 1.0 }")]
    pub initializer: Initializer,
    /// Whether the input is `[batch, seq, d_input]`; else `[seq, batch, d_input]`.
    #[config(default = true)]
    pub batch_first: bool,
    /// Bound of the hidden state.
    pub clip: Option<f64>,
    /// Activation of the hidden state; PyTorch also has `Relu`.
    #[config(default = "ActivationConfig::Tanh")]
    pub hidden_activation: ActivationConfig,
}

/// Two plain recurrent networks that read the sequence in both directions.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct BiRnn<B: Backend> {
    /// Reads from the start.
    pub forward: Rnn<B>,
    /// Reads from the end.
    pub reverse: Rnn<B>,
    /// Size of the hidden state of one direction.
    pub d_hidden: usize,
    /// Whether batch comes first.
    pub batch_first: bool,
}

impl BiRnnConfig {
    /// A layer whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BiRnn<B> {
        let direction = RnnConfig::new(self.d_input, self.d_hidden, self.bias)
            .with_initializer(self.initializer.clone())
            .with_clip(self.clip)
            .with_hidden_activation(self.hidden_activation.clone());
        BiRnn {
            forward: direction.init(device),
            reverse: direction.init(device),
            d_hidden: self.d_hidden,
            batch_first: self.batch_first,
        }
    }
}

impl<B: Backend> BiRnn<B> {
    /// `[batch, seq, d_input]` to `[batch, seq, 2 · d_hidden]` (both with the first two dims swapped unless batch comes
    /// first), and the last states `[2, batch, d_hidden]`.
    pub fn forward(
        &self,
        batched_input: Tensor<B, 3>,
        state: Option<RnnState<B, 3>>,
    ) -> (Tensor<B, 3>, RnnState<B, 3>) {
        let gates = both([&self.forward.gate], [&self.reverse.gate]);
        let cells = self.forward.cells(RnnDirection::Bidirectional, gates, self.batch_first);
        let (output, last, _) = cells.run(batched_input, state.map(|state| state.hidden), None);
        (output, RnnState::new(last))
    }
}

layer_display!(BiRnn<B>, |layer| {
    "d_input" => layer.forward.gate.input_transform.weight.lazy_shape()[0],
    "d_hidden" => layer.d_hidden,
    "bias" => layer.forward.gate.input_transform.bias.is_some(),
});
