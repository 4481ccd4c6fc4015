//! Recurrent layers with one pair of linear layers a gate, as Burn has them.

pub mod basic;
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
use alloc::{vec, vec::Vec};

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

/// The `t`-th step of `[batch, seq, size]`.
fn step<B: Backend>(x: &Tensor<B, 3>, t: usize) -> Tensor<B, 2> {
    let [batch, _, size] = x.dims();
    x.clone().slice([0..batch, t..t + 1, 0..size]).reshape([batch, size])
}

/// Reads the steps of `[batch, seq, …]` in one direction, each making a state `[batch, d_hidden]` of the one before: all
/// states in the order of the input, `[batch, seq, d_hidden]`, and the last.
fn scan<B: Backend>(
    input: &Tensor<B, 3>,
    d_hidden: usize,
    state: Option<Tensor<B, 2>>,
    reverse: bool,
    advance: impl Fn(usize, Tensor<B, 2>) -> Tensor<B, 2>,
) -> (Tensor<B, 3>, Tensor<B, 2>) {
    let [batch, seq, _] = input.dims();
    let device = input.device();
    let mut hidden = state.unwrap_or_else(|| Tensor::zeros([batch, d_hidden], &device));
    let mut outputs: Vec<Tensor<B, 3>> = Vec::with_capacity(seq);
    for i in 0..seq {
        hidden = advance(if reverse { seq - 1 - i } else { i }, hidden);
        outputs.push(hidden.clone().unsqueeze_dim(1));
    }
    if reverse {
        outputs.reverse();
    }
    let output = match outputs.is_empty() {
        true => Tensor::zeros([batch, 0, d_hidden], &device),
        false => Tensor::cat(outputs, 1),
    };
    (output, hidden)
}

/// Reads in both directions, of which `read` does one: the outputs beside each other, and both last states
/// `[2, batch, d_hidden]`.
fn both_directions<B: Backend>(
    input: Tensor<B, 3>,
    state: Option<Tensor<B, 3>>,
    batch_first: bool,
    read: impl Fn(Tensor<B, 3>, Option<Tensor<B, 2>>, bool) -> (Tensor<B, 3>, Tensor<B, 2>),
) -> (Tensor<B, 3>, Tensor<B, 3>) {
    let input = if batch_first { input } else { input.swap_dims(0, 1) };
    let first = |direction: usize| {
        state.clone().map(|state| {
            let [_, batch, hidden] = state.dims();
            state.slice([direction..direction + 1, 0..batch, 0..hidden]).reshape([batch, hidden])
        })
    };
    let (there, last_there) = read(input.clone(), first(0), false);
    let (back, last_back) = read(input, first(1), true);
    let output = Tensor::cat(vec![there, back], 2);
    (if batch_first { output } else { output.swap_dims(0, 1) }, Tensor::stack(vec![last_there, last_back], 0))
}
