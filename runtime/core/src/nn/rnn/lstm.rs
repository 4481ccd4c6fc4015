//! Long short-term memory.

use super::{GateController, step};
use crate::config::Config;
use crate::module::Module;
use crate::nn::{Activation, ActivationConfig, Initializer, display::layer_display};
use crate::tensor::{Tensor, backend::Backend};
use alloc::vec::Vec;

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
        let input = if self.batch_first { batched_input } else { batched_input.swap_dims(0, 1) };
        let (output, state) = self.scan(input, state, self.reverse);
        (if self.batch_first { output } else { output.swap_dims(0, 1) }, state)
    }

    /// Reads `[batch, seq, d_input]` in one direction.
    fn scan(
        &self,
        input: Tensor<B, 3>,
        state: Option<LstmState<B, 2>>,
        reverse: bool,
    ) -> (Tensor<B, 3>, LstmState<B, 2>) {
        let [batch, seq, _] = input.dims();
        let device = input.device();
        let zeros = || Tensor::zeros([batch, self.d_hidden], &device);
        let mut state = state.unwrap_or_else(|| LstmState::new(zeros(), zeros()));
        // The input's part of every step in one product a gate.
        let gates = [&self.input_gate, &self.forget_gate, &self.cell_gate, &self.output_gate];
        let projected = gates.map(|gate| gate.input_transform.forward(input.clone()));
        let mut outputs: Vec<Tensor<B, 3>> = Vec::with_capacity(seq);
        for i in 0..seq {
            let t = if reverse { seq - 1 - i } else { i };
            let sums = core::array::from_fn::<_, 4, _>(|g| {
                step(&projected[g], t) + gates[g].hidden_transform.forward(state.hidden.clone())
            });
            state = self.advance(sums, state);
            outputs.push(state.hidden.clone().unsqueeze_dim(1));
        }
        if reverse {
            outputs.reverse();
        }
        let output = if outputs.is_empty() {
            Tensor::zeros([batch, 0, self.d_hidden], &device)
        } else {
            Tensor::cat(outputs, 1)
        };
        (output, state)
    }

    /// One step from the gates' sums, in the order input, forget, cell, output.
    fn advance(&self, sums: [Tensor<B, 2>; 4], state: LstmState<B, 2>) -> LstmState<B, 2> {
        let [input, forget, candidate, output] = sums;
        let input = self.gate_activation.forward(input);
        let forget =
            if self.input_forget { input.clone().neg() + 1.0 } else { self.gate_activation.forward(forget) };
        let mut cell = forget * state.cell + input * self.cell_activation.forward(candidate);
        if let Some(clip) = self.clip {
            cell = cell.clamp(-clip, clip);
        }
        let hidden = self.gate_activation.forward(output) * self.hidden_activation.forward(cell.clone());
        LstmState::new(cell, hidden)
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
        let input = if self.batch_first { batched_input } else { batched_input.swap_dims(0, 1) };
        let direction = |d: usize| {
            state.as_ref().map(|state| {
                let pick = |x: &Tensor<B, 3>| {
                    let [_, batch, hidden] = x.dims();
                    x.clone().slice([d..d + 1, 0..batch, 0..hidden]).reshape([batch, hidden])
                };
                LstmState::new(pick(&state.cell), pick(&state.hidden))
            })
        };
        let (there, last_there) = self.forward.scan(input.clone(), direction(0), false);
        let (back, last_back) = self.reverse.scan(input, direction(1), true);
        let output = Tensor::cat(alloc::vec![there, back], 2);
        let both = |a: Tensor<B, 2>, b: Tensor<B, 2>| Tensor::stack(alloc::vec![a, b], 0);
        let last =
            LstmState::new(both(last_there.cell, last_back.cell), both(last_there.hidden, last_back.hidden));
        (if self.batch_first { output } else { output.swap_dims(0, 1) }, last)
    }
}

layer_display!(BiLstm<B>, |layer| {
    "d_input" => layer.forward.input_gate.input_transform.weight.lazy_shape()[0],
    "d_hidden" => layer.d_hidden,
    "bias" => layer.forward.input_gate.input_transform.bias.is_some(),
});
