//! The pointwise parts of recurrent cells: what remains of a step after its matrix products.

use crate::elementwise::{activation_of, binary_of};
use kiln_types::{Activation, BinaryOp};

/// One LSTM step of `[batch, hidden]`, after `gates = x Wᵀ + h Rᵀ + b` (`[batch, 4 · hidden]`, in ONNX's order `i o f c`).
///
/// `c` is updated in place, `h` gets the new hidden state. `peepholes` is ONNX's `P` (`[3 · hidden]`, `i o f`);
/// `input_forget` couples `f = 1 - i`; `clip` bounds the pre-activations.
///
/// # Panics
/// When sizes do not fit.
#[allow(clippy::too_many_arguments, reason = "ONNX's cell has these")]
pub fn lstm_step(
    hidden: usize,
    gates: &[f32],
    peepholes: Option<&[f32]>,
    activations: [Activation; 3],
    clip: Option<f32>,
    input_forget: bool,
    c: &mut [f32],
    h: &mut [f32],
) {
    assert!(hidden > 0 && c.len() == h.len() && gates.len() == 4 * h.len(), "sizes of the LSTM step");
    assert!(h.len().is_multiple_of(hidden), "whole rows of the LSTM step");
    assert!(peepholes.is_none_or(|p| p.len() == 3 * hidden), "size of the LSTM's peepholes");
    let [f, g, out] = activations;
    let clipped = |x: f32| clip.map_or(x, |clip| x.clamp(-clip, clip));
    for (row, gates) in gates.chunks(4 * hidden).enumerate() {
        for j in 0..hidden {
            let at = row * hidden + j;
            let peep = |gate: usize, c: f32| peepholes.map_or(0.0, |p| p[gate * hidden + j] * c);
            let input = activation_of(f, clipped(gates[j] + peep(0, c[at])));
            let forget = if input_forget {
                1.0 - input
            } else {
                activation_of(f, clipped(gates[2 * hidden + j] + peep(2, c[at])))
            };
            let cell = forget * c[at] + input * activation_of(g, clipped(gates[3 * hidden + j]));
            let output = activation_of(f, clipped(gates[hidden + j] + peep(1, cell)));
            c[at] = cell;
            h[at] = output * activation_of(out, cell);
        }
    }
}

/// One GRU step of `[batch, hidden]` with `linear_before_reset`: `x_gates = x Wᵀ + Wb` and `h_gates = h Rᵀ + Rb` are
/// `[batch, 3 · hidden]`, in ONNX's order `z r h`; `h` is updated in place.
///
/// # Panics
/// When sizes do not fit.
pub fn gru_step(
    hidden: usize,
    x_gates: &[f32],
    h_gates: &[f32],
    activations: [Activation; 2],
    clip: Option<f32>,
    h: &mut [f32],
) {
    assert!(
        hidden > 0 && x_gates.len() == 3 * h.len() && h_gates.len() == x_gates.len(),
        "sizes of the GRU step"
    );
    let [f, g] = activations;
    let clipped = |x: f32| clip.map_or(x, |clip| x.clamp(-clip, clip));
    for (i, h) in h.iter_mut().enumerate() {
        let at = |gate: usize| i / hidden * 3 * hidden + gate * hidden + i % hidden;
        let update = activation_of(f, clipped(x_gates[at(0)] + h_gates[at(0)]));
        let reset = activation_of(f, clipped(x_gates[at(1)] + h_gates[at(1)]));
        let new = activation_of(g, clipped(x_gates[at(2)] + reset * h_gates[at(2)]));
        *h = (1.0 - update) * new + update * *h;
    }
}

/// The two gates of a GRU without `linear_before_reset`: `gates` (`[batch, 2 · hidden]`, `z r`, both products and biases
/// added) is activated in place, `reset_h` gets `r · h`, ready for the recurrent product of the third gate.
///
/// # Panics
/// When sizes do not fit.
pub fn gru_gates(
    hidden: usize,
    gates: &mut [f32],
    h: &[f32],
    activation: Activation,
    clip: Option<f32>,
    reset_h: &mut [f32],
) {
    assert!(hidden > 0 && gates.len() == 2 * h.len() && reset_h.len() == h.len(), "sizes of the GRU gates");
    for x in gates.iter_mut() {
        let bounded = clip.map_or(*x, |clip| x.clamp(-clip, clip));
        *x = activation_of(activation, bounded);
    }
    for (i, y) in reset_h.iter_mut().enumerate() {
        *y = binary_of(BinaryOp::Mul, gates[i / hidden * 2 * hidden + hidden + i % hidden], h[i]);
    }
}
