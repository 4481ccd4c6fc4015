//! Gated recurrent unit.

use super::GateController;
use super::cells::{Cells, both, single};
use crate::config::Config;
use crate::module::Module;
use crate::nn::{Activation, Initializer, Sigmoid, Tanh, display::layer_display};
use crate::tensor::{RnnDirection, RnnKind, Tensor, backend::Backend};
use alloc::{vec, vec::Vec};

/// Configuration of [`Gru`].
#[derive(Config, Debug)]
pub struct GruConfig {
    /// Size of the input.
    pub d_input: usize,
    /// Size of the hidden state.
    pub d_hidden: usize,
    /// Whether the gates have biases.
    pub bias: bool,
    /// Whether the reset gate works after the hidden state's matrix (PyTorch), or before it (Cho et al. 2014).
    #[config(default = "true")]
    pub reset_after: bool,
    /// How the parameters start.
    #[config(default = "Initializer::XavierNormal { gain: 1.0 }")]
    pub initializer: Initializer,
}

/// Gated recurrent unit (Cho et al. 2014).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Gru<B: Backend> {
    /// How much of the old state stays.
    pub update_gate: GateController<B>,
    /// How much of the old state enters the candidate.
    pub reset_gate: GateController<B>,
    /// The candidate.
    pub new_gate: GateController<B>,
    /// Size of the hidden state.
    pub d_hidden: usize,
    /// Whether the reset gate works after the hidden state's matrix.
    pub reset_after: bool,
}

impl GruConfig {
    /// A layer whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Gru<B> {
        let gate =
            || GateController::new(self.d_input, self.d_hidden, self.bias, self.initializer.clone(), device);
        Gru {
            update_gate: gate(),
            reset_gate: gate(),
            new_gate: gate(),
            d_hidden: self.d_hidden,
            reset_after: self.reset_after,
        }
    }
}

impl<B: Backend> Gru<B> {
    /// `[batch, seq, d_input]` to every step's state `[batch, seq, d_hidden]`, from a first state `[batch, d_hidden]`.
    pub fn forward(&self, batched_input: Tensor<B, 3>, state: Option<Tensor<B, 2>>) -> Tensor<B, 3> {
        let gates = self.gates().to_vec();
        self.run(batched_input, state.map(single), RnnDirection::Forward, gates, true).0
    }

    /// In the order of the joined weights.
    fn gates(&self) -> [&GateController<B>; 3] {
        [&self.update_gate, &self.reset_gate, &self.new_gate]
    }

    /// Runs cells of this kind with these gates: every step's state, and the last `[directions, batch, d_hidden]`.
    fn run(
        &self,
        input: Tensor<B, 3>,
        state: Option<Tensor<B, 3>>,
        direction: RnnDirection,
        gates: Vec<&GateController<B>>,
        batch_first: bool,
    ) -> (Tensor<B, 3>, Tensor<B, 3>) {
        let (gate, new) = (Activation::Sigmoid(Sigmoid), Activation::Tanh(Tanh));
        let cells = Cells {
            kind: RnnKind::Gru { linear_before_reset: self.reset_after },
            direction,
            gates,
            activations: vec![&gate, &new],
            state_clip: None,
            batch_first,
        };
        let (output, last, _) = cells.run(input, state, None);
        (output, last)
    }
}

layer_display!(Gru<B>, |layer| {
    "d_input" => layer.update_gate.input_transform.weight.lazy_shape()[0],
    "d_hidden" => layer.d_hidden,
    "bias" => layer.update_gate.input_transform.bias.is_some(),
    "reset_after" => layer.reset_after,
});

/// Configuration of [`BiGru`].
#[derive(Config, Debug)]
pub struct BiGruConfig {
    /// Size of the input.
    pub d_input: usize,
    /// Size of the hidden state of one direction.
    pub d_hidden: usize,
    /// Whether the gates have biases.
    pub bias: bool,
    /// Whether the reset gate works after the hidden state's matrix (PyTorch), or before it (Cho et al. 2014).
    #[config(default = "true")]
    pub reset_after: bool,
    /// How the parameters start.
    #[config(default = "Initializer::XavierNormal { gain: 1.0 }")]
    pub initializer: Initializer,
    /// Whether the input is `[batch, seq, d_input]`; else `[seq, batch, d_input]`.
    #[config(default = true)]
    pub batch_first: bool,
}

/// Two GRUs that read the sequence in both directions.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct BiGru<B: Backend> {
    /// Reads from the start.
    pub forward: Gru<B>,
    /// Reads from the end.
    pub reverse: Gru<B>,
    /// Size of the hidden state of one direction.
    pub d_hidden: usize,
    /// Whether batch comes first.
    pub batch_first: bool,
}

impl BiGruConfig {
    /// A layer whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BiGru<B> {
        let direction = GruConfig::new(self.d_input, self.d_hidden, self.bias)
            .with_reset_after(self.reset_after)
            .with_initializer(self.initializer.clone());
        BiGru {
            forward: direction.init(device),
            reverse: direction.init(device),
            d_hidden: self.d_hidden,
            batch_first: self.batch_first,
        }
    }
}

impl<B: Backend> BiGru<B> {
    /// `[batch, seq, d_input]` to `[batch, seq, 2 · d_hidden]` (both with the first two dims swapped unless batch comes
    /// first), and the last states `[2, batch, d_hidden]`, from first states of that shape.
    pub fn forward(
        &self,
        batched_input: Tensor<B, 3>,
        state: Option<Tensor<B, 3>>,
    ) -> (Tensor<B, 3>, Tensor<B, 3>) {
        let gates = both(self.forward.gates(), self.reverse.gates());
        self.forward.run(batched_input, state, RnnDirection::Bidirectional, gates, self.batch_first)
    }
}

layer_display!(BiGru<B>, |layer| {
    "d_input" => layer.forward.update_gate.input_transform.weight.lazy_shape()[0],
    "d_hidden" => layer.d_hidden,
    "bias" => layer.forward.update_gate.input_transform.bias.is_some(),
    "reset_after" => layer.forward.reset_after,
});
