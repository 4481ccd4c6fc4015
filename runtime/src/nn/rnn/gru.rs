//! Gated recurrent unit.

use super::{GateController, step};
use crate::config::Config;
use crate::module::Module;
use crate::nn::{Initializer, display::layer_display};
use crate::tensor::{Tensor, activation, backend::Backend};
use alloc::vec::Vec;

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
        let [batch, seq, _] = batched_input.dims();
        let device = batched_input.device();
        let mut hidden = state.unwrap_or_else(|| Tensor::zeros([batch, self.d_hidden], &device));
        let gates = [&self.update_gate, &self.reset_gate, &self.new_gate];
        let projected = gates.map(|gate| gate.input_transform.forward(batched_input.clone()));
        let mut outputs: Vec<Tensor<B, 3>> = Vec::with_capacity(seq);
        for t in 0..seq {
            let gate = |g: usize| {
                let sum = step(&projected[g], t) + gates[g].hidden_transform.forward(hidden.clone());
                activation::sigmoid(sum)
            };
            let (update, reset) = (gate(0), gate(1));
            let recurrent = &self.new_gate.hidden_transform;
            let recalled = if self.reset_after {
                reset * recurrent.forward(hidden.clone())
            } else {
                recurrent.forward(reset * hidden.clone())
            };
            let candidate = (step(&projected[2], t) + recalled).tanh();
            hidden = candidate.clone() + update * (hidden - candidate);
            outputs.push(hidden.clone().unsqueeze_dim(1));
        }
        if outputs.is_empty() {
            return Tensor::zeros([batch, 0, self.d_hidden], &device);
        }
        Tensor::cat(outputs, 1)
    }
}

layer_display!(Gru<B>, |layer| {
    "d_input" => layer.update_gate.input_transform.weight.lazy_shape()[0],
    "d_hidden" => layer.d_hidden,
    "bias" => layer.update_gate.input_transform.bias.is_some(),
    "reset_after" => layer.reset_after,
});
