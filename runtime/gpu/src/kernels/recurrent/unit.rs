//! What one unit of a layer does in a step.

use super::Recurrent;
use crate::kernels::elementwise::activation;
use crate::language::{Builder, Type, Value};
use kiln_tensor::RnnKind;

/// A unit, and where it finds what goes into its gates.
pub(super) struct Unit<'u, 'k> {
    pub layer: &'u Recurrent,
    pub k: &'k Builder,
    /// In which the layer is computed.
    pub ty: Type,
    /// What the input contributes to a gate.
    pub of_input: &'u dyn Fn(u32) -> Value<'k>,
    /// What the hidden state contributes to a gate.
    pub of_state: &'u dyn Fn(u32) -> Value<'k>,
    /// What a gate (order `iof`) multiplies the cell state with, where the layer has that.
    pub peephole: &'u dyn Fn(u32) -> Option<Value<'k>>,
}

impl<'k> Unit<'_, 'k> {
    /// The new hidden state and for an LSTM the new cell state, of those before the step.
    pub fn next(&self, hidden: Value<'k>, cell: Option<Value<'k>>) -> (Value<'k>, Option<Value<'k>>) {
        match (self.layer.kind, cell) {
            (RnnKind::Lstm { input_forget }, Some(cell)) => {
                let (hidden, cell) = self.lstm(cell, input_forget);
                (hidden, Some(cell))
            }
            (RnnKind::Gru { linear_before_reset: true }, _) => {
                (self.gru(self.update(), hidden, self.reset() * (self.of_state)(2)), None)
            }
            (RnnKind::Gru { linear_before_reset: false }, _) => {
                (self.gru(self.update(), hidden, (self.of_state)(2)), None)
            }
            (RnnKind::Rnn | RnnKind::Lstm { .. }, _) => (self.bounded(self.activated(0, self.sum(0))), None),
        }
    }

    /// A GRU's update gate.
    pub fn update(&self) -> Value<'k> {
        self.activated(0, self.sum(0))
    }

    /// A GRU's reset gate.
    pub fn reset(&self) -> Value<'k> {
        self.activated(0, self.sum(1))
    }

    /// The new hidden state of a GRU, to whose candidate the old one contributes `from_state`.
    pub fn gru(&self, update: Value<'k>, hidden: Value<'k>, from_state: Value<'k>) -> Value<'k> {
        let candidate = self.activated(1, (self.of_input)(2) + from_state);
        let new = (self.k.whole(1, self.ty) - update) * candidate;
        self.bounded(new + update * hidden)
    }

    /// The new hidden state of an LSTM, and its new cell state.
    fn lstm(&self, cell: Value<'k>, input_forget: bool) -> (Value<'k>, Value<'k>) {
        let input = self.activated(0, self.peeping(0, cell));
        let kept = match input_forget {
            true => self.k.whole(1, self.ty) - input,
            false => self.activated(0, self.peeping(2, cell)),
        };
        let new = input * self.activated(1, self.sum(3));
        let cell = self.bounded(kept * cell + new);
        let output = self.activated(0, self.peeping(1, cell));
        (output * self.function(2, cell), cell)
    }

    fn bounded(&self, x: Value<'k>) -> Value<'k> {
        self.layer.state_clip.map_or(x, |clip| activation(clip, x))
    }

    /// The `n`-th activation of a sum that is bounded.
    fn activated(&self, n: usize, sum: Value<'k>) -> Value<'k> {
        let sum = self.layer.clip.map_or(sum, |clip| activation(clip, sum));
        self.function(n, sum)
    }

    fn function(&self, n: usize, x: Value<'k>) -> Value<'k> {
        self.layer.activations.get(n).map_or(x, |&function| activation(function, x))
    }

    fn sum(&self, gate: u32) -> Value<'k> {
        (self.of_input)(gate) + (self.of_state)(gate)
    }

    /// A sum and what its peephole sees of the cell state.
    fn peeping(&self, gate: u32, cell: Value<'k>) -> Value<'k> {
        let sum = self.sum(gate);
        (self.peephole)(gate).map_or(sum, |weight| sum + weight * cell)
    }
}
