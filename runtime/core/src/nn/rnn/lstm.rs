//! Long short-term memory.

use super::GateController;
use super::cells::{Cells, both, direction, only, single};
use crate::config::Config;
use crate::module::Module;
use crate::nn::{Activation, ActivationConfig, Initializer, display::layer_display};
use crate::tensor::{RnnDirection, RnnKind, Tensor, backend::Backend};
use alloc::{vec, vec::Vec};

/// Cell and hidden state, `[batch, d_hidden]` (with a leading direction dim when bidirectional).
#[derive(Clone, Debug)]
pub struct LstmState<B: Backend, const D: usize> {
    /// The cell state.
    pub cell: Tensor<B, D>,
    /// The hidden state.
    pub hidden: Tensor<B, D>,
}

impl<B: Backend, const D: usize> LstmState<B, D> {
    /// A state from its parts.
    pub fn new(cell: Tensor<B, D>, hidden: Tensor<B, D>) -> Self {
        Self { cell, hidden }
    }
}

/// Configuration of [`Lstm`].
#[derive(Config, Debug)]
pub struct LstmConfig {
    /// Size of the input.
    pub d_input: usize,
    /// Size of the hidden state.
    pub d_hidden: usize,
    /// Whether the gates have biases.
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
    /// Bound of the cell state.
    pub clip: Option<f64>,
    /// Whether the forget gate is one minus the input gate.
    #[config(default = false)]
    pub input_forget: bool,
    /// Activation of the gates.
    #[config(default = "ActivationConfig::Sigmoid")]
    pub gate_activation: ActivationConfig,
    /// Activation of the cell's candidate.
    #[config(default = "ActivationConfig::Tanh")]
    pub cell_activation: ActivationConfig,
    /// Activation of the cell on its way to the hidden state.
    #[config(default = "ActivationConfig::Tanh")]
    pub hidden_activation: ActivationConfig,
}

/// Long short-term memory (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Lstm<B: Backend> {
    /// How much of the candidate enters the cell.
    pub input_gate: GateController<B>,
    /// How much of the cell stays.
    pub forget_gate: GateController<B>,
    /// How much of the cell is shown.
    pub output_gate: GateController<B>,
    /// The candidate.
    pub cell_gate: GateController<B>,
    /// Size of the hidden state.
    pub d_hidden: usize,
    /// Whether batch comes first.
    pub batch_first: bool,
    /// Whether the sequence is read from its end.
    pub reverse: bool,
    /// Bound of the cell state.
    pub clip: Option<f64>,
    /// Whether the forget gate is one minus the input gate.
    pub input_forget: bool,
    /// Activation of the gates.
    pub gate_activation: Activation<B>,
    /// Activation of the cell's candidate.
    pub cell_activation: Activation<B>,
    /// Activation of the cell on its way to the hidden state.
    pub hidden_activation: Activation<B>,
}

impl LstmConfig {
    /// A layer whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Lstm<B> {
        let gate =
            || GateController::new(self.d_input, self.d_hidden, self.bias, self.initializer.clone(), device);
        Lstm {
            input_gate: gate(),
            forget_gate: gate(),
            output_gate: gate(),
            cell_gate: gate(),
            d_hidden: self.d_hidden,
            batch_first: self.batch_first,
            reverse: self.reverse,
            clip: self.clip,
            input_forget: self.input_forget,
            gate_activation: self.gate_activation.init(device),
            cell_activation: self.cell_activation.init(device),
            hidden_activation: self.hidden_activation.init(device),
        }
    }
}

impl<B: Backend> Lstm<B> {
    /// `[batch, seq, d_input]` to every step's hidden state `[batch, seq, d_hidden]` (both with the first two dims
    /// swapped unless batch comes first), and the last state.
    pub fn forward(
        &self,
        batched_input: Tensor<B, 3>,
        state: Option<LstmState<B, 2>>,
    ) -> (Tensor<B, 3>, LstmState<B, 2>) {
        let gates = self.gates().to_vec();
        let state = state.map(|state| LstmState::new(single(state.cell), single(state.hidden)));
        let (output, last) = self.run(batched_input, state, direction(self.reverse), gates, self.batch_first);
        (output, LstmState::new(only(last.cell), only(last.hidden)))
    }

    /// In the order of the joined weights.
    fn gates(&self) -> [&GateController<B>; 4] {
        [&self.input_gate, &self.output_gate, &self.forget_gate, &self.cell_gate]
    }

    /// Runs cells of this kind with these gates: every step's hidden state, and the last states `[directions, batch, d_hidden]`.
    fn run(
        &self,
        input: Tensor<B, 3>,
        state: Option<LstmState<B, 3>>,
        direction: RnnDirection,
        gates: Vec<&GateController<B>>,
        batch_first: bool,
    ) -> (Tensor<B, 3>, LstmState<B, 3>) {
        let cells = Cells {
            kind: RnnKind::Lstm { input_forget: self.input_forget },
            direction,
            gates,
            activations: vec![&self.gate_activation, &self.cell_activation, &self.hidden_activation],
            state_clip: self.clip,
            batch_first,
        };
        let (hidden, cell) = state.map(|state| (state.hidden, state.cell)).unzip();
        let (output, hidden, cell) = cells.run(input, hidden, cell);
        let Some(cell) = cell else { unreachable!("an LSTM has a cell state") };
        (output, LstmState::new(cell, hidden))
    }
}

layer_display!(Lstm<B>, |layer| {
    "d_input" => layer.input_gate.input_transform.weight.lazy_shape()[0],
    "d_hidden" => layer.d_hidden,
    "bias" => layer.input_gate.input_transform.bias.is_some(),
});

/// Configuration of [`BiLstm`].
#[derive(Config, Debug)]
pub struct BiLstmConfig {
    /// Size of the input.
    pub d_input: usize,
    /// Size of the hidden state of one direction.
    pub d_hidden: usize,
    /// Whether the gates have biases.
    pub bias: bool,
    /// How the parameters start.
    #[config(default = "Initializer::XavierNormal { gain: 1.0 }")]
    pub initializer: Initializer,
    /// Whether the input is `[batch, seq, d_input]`; else `[seq, batch, d_input]`.
    #[config(default = true)]
    pub batch_first: bool,
    /// Bound of the cell state.
    pub clip: Option<f64>,
    /// Whether the forget gate is one minus the input gate.
    #[config(default = false)]
    pub input_forget: bool,
    /// Activation of the gates.
    #[config(default = "ActivationConfig::Sigmoid")]
    pub gate_activation: ActivationConfig,
    /// Activation of the cell's candidate.
    #[config(default = "ActivationConfig::Tanh")]
    pub cell_activation: ActivationConfig,
    /// Activation of the cell on its way to the hidden state.
    #[config(default = "ActivationConfig::Tanh")]
    pub hidden_activation: ActivationConfig,
}

/// Two LSTMs that read the sequence in both directions (Schuster & Paliwal 1997).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct BiLstm<B: Backend> {
    /// Reads from the start.
    pub forward: Lstm<B>,
    /// Reads from the end.
    pub reverse: Lstm<B>,
    /// Size of the hidden state of one direction.
    pub d_hidden: usize,
    /// Whether batch comes first.
    pub batch_first: bool,
}

impl BiLstmConfig {
    /// A layer whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BiLstm<B> {
        let direction = LstmConfig::new(self.d_input, self.d_hidden, self.bias)
            .with_initializer(self.initializer.clone())
            .with_batch_first(true)
            .with_clip(self.clip)
            .with_input_forget(self.input_forget)
            .with_gate_activation(self.gate_activation.clone())
            .with_cell_activation(self.cell_activation.clone())
            .with_hidden_activation(self.hidden_activation.clone());
        BiLstm {
            forward: direction.init(device),
            reverse: direction.init(device),
            d_hidden: self.d_hidden,
            batch_first: self.batch_first,
        }
    }
}

impl<B: Backend> BiLstm<B> {
    /// `[batch, seq, d_input]` to `[batch, seq, 2 · d_hidden]` (both with the first two dims swapped unless batch comes
    /// first), and the last states `[2, batch, d_hidden]`.
    pub fn forward(
        &self,
        batched_input: Tensor<B, 3>,
        state: Option<LstmState<B, 3>>,
    ) -> (Tensor<B, 3>, LstmState<B, 3>) {
        let gates = both(self.forward.gates(), self.reverse.gates());
        self.forward.run(batched_input, state, RnnDirection::Bidirectional, gates, self.batch_first)
    }
}

layer_display!(BiLstm<B>, |layer| {
    "d_input" => layer.forward.input_gate.input_transform.weight.lazy_shape()[0],
    "d_hidden" => layer.d_hidden,
    "bias" => layer.forward.input_gate.input_transform.bias.is_some(),
});
