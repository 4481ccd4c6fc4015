//! A recurrent layer with whole weight matrices, as ONNX has it; generated models use it.

use crate::config::Config;
use crate::module::{Ignored, Module, Param};
use crate::nn::{Initializer, display::layer_display};
use crate::tensor::module::{self, RnnInputs};
use crate::tensor::{InlineVec, Int, RnnDirection, RnnKind, RnnOptions, Tensor, backend::Backend};

/// Configuration of [`Recurrent`].
#[derive(Config, Debug)]
pub struct RecurrentConfig {
    /// Size of one step of the input.
    pub d_input: usize,
    /// Size of the hidden state.
    pub d_hidden: usize,
    /// Which cell.
    pub kind: RnnKind,
    /// In which order the sequence is read; both orders have weights of their own.
    #[config(default = "RnnDirection::Forward")]
    pub direction: RnnDirection,
    /// Whether biases are added.
    #[config(default = true)]
    pub bias: bool,
    /// Whether the batch is the first dim, and not the sequence.
    #[config(default = false)]
    pub batch_first: bool,
}

/// A layer of LSTM (Hochreiter & Schmidhuber 1997), GRU (Cho et al. 2014) or plain recurrent cells, with the activations that
/// those have: ONNX's operators `LSTM`, `GRU` and `RNN`, whose gate orders the weights have (`iofc` and `zrh`).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Recurrent<B: Backend> {
    /// Input weights, `[directions, gates · d_hidden, d_input]`.
    pub weight: Param<Tensor<B, 3>>,
    /// Recurrent weights, `[directions, gates · d_hidden, d_hidden]`.
    pub recurrent: Param<Tensor<B, 3>>,
    /// The input's biases, then the recurrent ones: `[directions, 2 · gates · d_hidden]`.
    pub bias: Option<Param<Tensor<B, 2>>>,
    /// Which cell.
    pub kind: Ignored<RnnKind>,
    /// In which order the sequence is read.
    pub direction: Ignored<RnnDirection>,
    batch_first: bool,
}

impl RecurrentConfig {
    /// Long short-term memory.
    pub fn lstm(d_input: usize, d_hidden: usize) -> Self {
        Self::new(d_input, d_hidden, RnnKind::Lstm { input_forget: false })
    }

    /// Gated recurrent units as PyTorch has them: the reset gate comes after the recurrent matrix.
    pub fn gru(d_input: usize, d_hidden: usize) -> Self {
        Self::new(d_input, d_hidden, RnnKind::Gru { linear_before_reset: true })
    }

    /// Plain cells, `tanh(W x + R h + b)`.
    pub fn rnn(d_input: usize, d_hidden: usize) -> Self {
        Self::new(d_input, d_hidden, RnnKind::Rnn)
    }

    /// A layer with weights and biases uniform in `±1 / sqrt(d_hidden)`, PyTorch's.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Recurrent<B> {
        let directions = self.direction.count();
        let rows = self.d_hidden * self.kind.gates();
        let bound = 1.0 / num_traits::Float::sqrt(self.d_hidden as f64);
        let uniform = Initializer::Uniform { min: -bound, max: bound };
        Recurrent {
            weight: uniform.init([directions, rows, self.d_input], device),
            recurrent: uniform.init([directions, rows, self.d_hidden], device),
            bias: self.bias.then(|| uniform.init([directions, 2 * rows], device)),
            kind: Ignored(self.kind),
            direction: Ignored(self.direction),
            batch_first: self.batch_first,
        }
    }
}

impl<B: Backend> Recurrent<B> {
    /// All outputs `[seq, directions, batch, d_hidden]` of `[seq, batch, d_input]` and the last hidden state
    /// `[directions, batch, d_hidden]`, from a first state of zeros. With the batch first: `[batch, seq, directions, d_hidden]`
    /// of `[batch, seq, d_input]`, and `[batch, directions, d_hidden]`.
    ///
    /// # Panics
    /// When the input's last dim is not `d_input`.
    pub fn forward(&self, input: Tensor<B, 3>) -> (Tensor<B, 4>, Tensor<B, 3>) {
        self.forward_from(input, None, None)
    }

    /// Like [`Recurrent::forward`], from a first hidden state and with the number of steps of each row, `[batch]`.
    ///
    /// # Panics
    /// When an operand's shape does not fit.
    pub fn forward_from(
        &self,
        input: Tensor<B, 3>,
        hidden: Option<Tensor<B, 3>>,
        lengths: Option<Tensor<B, 1, Int>>,
    ) -> (Tensor<B, 4>, Tensor<B, 3>) {
        module::rnn(self.inputs(input, hidden, None, lengths), self.options())
    }

    /// Like [`Recurrent::forward`]; yields an LSTM's last cell state too.
    ///
    /// # Panics
    /// When the layer is no LSTM, or the input's last dim is not `d_input`.
    pub fn forward_lstm(&self, input: Tensor<B, 3>) -> (Tensor<B, 4>, Tensor<B, 3>, Tensor<B, 3>) {
        self.forward_lstm_from(input, None, None, None)
    }

    /// Like [`Recurrent::forward_lstm`], from a first hidden and cell state and with the number of steps of each row, `[batch]`.
    ///
    /// # Panics
    /// When the layer is no LSTM, or an operand's shape does not fit.
    pub fn forward_lstm_from(
        &self,
        input: Tensor<B, 3>,
        hidden: Option<Tensor<B, 3>>,
        cell: Option<Tensor<B, 3>>,
        lengths: Option<Tensor<B, 1, Int>>,
    ) -> (Tensor<B, 4>, Tensor<B, 3>, Tensor<B, 3>) {
        module::lstm(self.inputs(input, hidden, cell, lengths), self.options())
    }

    fn inputs(
        &self,
        input: Tensor<B, 3>,
        initial_hidden: Option<Tensor<B, 3>>,
        initial_cell: Option<Tensor<B, 3>>,
        sequence_lengths: Option<Tensor<B, 1, Int>>,
    ) -> RnnInputs<B> {
        RnnInputs {
            input,
            weight: self.weight.val(),
            recurrent: self.recurrent.val(),
            bias: self.bias.as_ref().map(Param::val),
            sequence_lengths,
            initial_hidden,
            initial_cell,
            peepholes: None,
        }
    }

    fn options(&self) -> RnnOptions {
        RnnOptions {
            kind: *self.kind,
            direction: *self.direction,
            hidden_size: self.recurrent.lazy_shape()[2],
            activations: InlineVec::repeated(self.kind.activations(), self.direction.count()),
            clip: None,
            state_clip: None,
            batch_first: self.batch_first,
        }
    }
}

layer_display!(Recurrent<B>, |layer| {
    "d_input" => layer.weight.lazy_shape()[2],
    "d_hidden" => layer.recurrent.lazy_shape()[2],
    "bias" => layer.bias.is_some(),
});

#[cfg(test)]
mod tests {
    use super::*;
    use kiln::backend::NdArray;

    type B = NdArray;

    #[test]
    fn a_plain_cell_computes_its_formula() {
        let device = Default::default();
        let mut layer = RecurrentConfig::rnn(1, 1).init::<B>(&device);
        layer.weight = Param::from_data([[[2.0]]], &device);
        layer.recurrent = Param::from_data([[[0.5]]], &device);
        layer.bias = Some(Param::from_data([[0.25, -0.5]], &device));
        let (outputs, last) = layer.forward(Tensor::from_data([[[0.3]], [[-0.7]]], &device));
        let first = (2.0f32 * 0.3 - 0.25).tanh();
        let second = (2.0f32 * -0.7 + 0.5 * first - 0.25).tanh();
        outputs.into_data().assert_approx_eq::<f32>(&[[[[first]]], [[[second]]]].into(), Default::default());
        last.into_data().assert_approx_eq::<f32>(&[[[second]]].into(), Default::default());
    }

    #[test]
    fn every_kind_has_the_shapes_it_says() {
        let device = Default::default();
        let x = Tensor::<B, 3>::ones([5, 2, 3], &device);
        let both = RecurrentConfig::gru(3, 4).with_direction(RnnDirection::Bidirectional).init::<B>(&device);
        let (outputs, hidden) = both.forward(x.clone());
        assert_eq!((outputs.dims(), hidden.dims()), ([5, 2, 2, 4], [2, 2, 4]));
        let lstm = RecurrentConfig::lstm(3, 4).with_bias(false).init::<B>(&device);
        let (outputs, hidden, cell) = lstm.forward_lstm(x.clone());
        assert_eq!((outputs.dims(), hidden.dims(), cell.dims()), ([5, 1, 2, 4], [1, 2, 4], [1, 2, 4]));
        // From the state in which a sequence ended, it goes on.
        let (whole, ..) = lstm.forward_lstm(Tensor::cat(vec![x.clone(), x.clone()], 0));
        let (rest, ..) = lstm.forward_lstm_from(x, Some(hidden), Some(cell), None);
        rest.into_data().assert_approx_eq::<f32>(&whole.slice_dim(0, 5..10).into_data(), Default::default());
    }
}
