//! Recurrent layers: with one pair of linear layers a gate, as Burn has them, and with whole matrices, as generated models do.

pub mod basic;
mod cells;
pub mod gru;
pub mod lstm;
pub mod recurrent;

pub use basic::{BiRnn, BiRnnConfig, Rnn, RnnConfig, RnnState};
pub use gru::{BiGru, BiGruConfig, Gru, GruConfig};
pub use lstm::{BiLstm, BiLstmConfig, Lstm, LstmConfig, LstmState};
pub use recurrent::{Recurrent, RecurrentConfig};

use super::{Initializer, Linear, LinearConfig};
use crate::module::Module;
use crate::tensor::{Tensor, backend::Backend};

/// The two linear layers of a gate.
#[derive(Module, Debug)]
pub struct GateController<B: Backend> {
    /// Of the input.
    pub input_transform: Linear<B>,
    /// Of the hidden state.
    pub hidden_transform: Linear<B>,
}

impl<B: Backend> GateController<B> {
    /// A gate from `d_input` inputs and `d_output` hidden values to `d_output`.
    pub fn new(
        d_input: usize,
        d_output: usize,
        bias: bool,
        initializer: Initializer,
        device: &B::Device,
    ) -> Self {
        let linear = |d_input| {
            LinearConfig::new(d_input, d_output)
                .with_bias(bias)
                .with_initializer(initializer.clone())
                .init(device)
        };
        Self { input_transform: linear(d_input), hidden_transform: linear(d_output) }
    }

    /// The gate's sum before its activation: `[batch, d_output]`.
    pub fn gate_product(&self, input: Tensor<B, 2>, hidden: Tensor<B, 2>) -> Tensor<B, 2> {
        self.input_transform.forward(input) + self.hidden_transform.forward(hidden)
    }
}
