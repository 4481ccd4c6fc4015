//! The pointwise parts of recurrent cells: what remains of a step after its matrix products.

use crate::math::{Map, map_slice, tanh};
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use kiln_types::Activation;

/// Applies an activation in place, after a bound.
fn activate(activation: Activation, clip: Option<f32>, x: &mut [f32]) {
    bound(clip, x);
    let (data, n) = (x.as_mut_ptr(), x.len());
    // SAFETY: the slice is valid for its length.
    unsafe { map_slice(Map::Activation(activation), data, data, n) };
}

/// `x = clamp(x, -clip, clip)`.
pub fn bound(clip: Option<f32>, x: &mut [f32]) {
    let Some(clip) = clip.map(f64::from) else { return };
    let (data, n) = (x.as_mut_ptr(), x.len());
    // SAFETY: the slice is valid for its length.
    unsafe { map_slice(Map::Activation(Activation::Clamp { min: -clip, max: clip }), data, data, n) };
}

/// One LSTM step of `[batch, hidden]`, after `gates = x Wᵀ + h Rᵀ + b` (`[batch, 4 · hidden]`, in ONNX's order `i o f c`).
///
/// `c` is updated in place, `h` gets the new hidden state. `peepholes` is ONNX's `P` (`[3 · hidden]`, `i o f`);
/// `input_forget` couples `f = 1 - i`; `clip` bounds the pre-activations, `state_clip` the new cell state. `kept` gets the
/// gates after their activations, in the order of `gates`: what [`lstm_step_gradient`] wants.
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
    state_clip: Option<f32>,
    input_forget: bool,
    c: &mut [f32],
    h: &mut [f32],
    mut kept: Option<&mut [f32]>,
) {
    assert!(hidden > 0 && c.len() == h.len() && gates.len() == 4 * h.len(), "sizes of the LSTM step");
    assert!(kept.as_ref().is_none_or(|kept| kept.len() == gates.len()), "size of the LSTM's kept gates");
    assert!(h.len().is_multiple_of(hidden), "whole rows of the LSTM step");
    assert!(peepholes.is_none_or(|p| p.len() == 3 * hidden), "size of the LSTM's peepholes");
    let [f, g, last] = activations;
    with_scratch(4 * hidden, |space| {
        let rows = gates.chunks(4 * hidden).zip(c.chunks_mut(hidden)).zip(h.chunks_mut(hidden));
        for (row, ((gates, c), h)) in rows.enumerate() {
            space.copy_from_slice(gates);
            let (input, rest) = space.split_at_mut(hidden);
            let (output, rest) = rest.split_at_mut(hidden);
            let (forget, new) = rest.split_at_mut(hidden);
            if let Some(peepholes) = peepholes {
                add_product(&peepholes[..hidden], c, input);
                add_product(&peepholes[2 * hidden..], c, forget);
            }
            activate(f, clip, input);
            if input_forget {
                forget.iter_mut().zip(&*input).for_each(|(f, i)| *f = 1.0 - i);
            } else {
                activate(f, clip, forget);
            }
            activate(g, clip, new);
            // SAFETY: all slices have `hidden` elements.
            unsafe { mix(c, forget, input, new) };
            bound(state_clip, c);
            if let Some(peepholes) = peepholes {
                add_product(&peepholes[hidden..2 * hidden], c, output);
            }
            activate(f, clip, output);
            h.copy_from_slice(c);
            activate(last, None, h);
            h.iter_mut().zip(&*output).for_each(|(h, o)| *h *= o);
            if let Some(kept) = &mut kept {
                kept[row * 4 * hidden..][..4 * hidden].copy_from_slice(space);
            }
        }
    });
}

/// The gradients of one LSTM step of `[batch, hidden]` whose gates are sigmoids and whose other activations are tanh, without
/// bounds, peepholes or coupled gates.
///
/// `gates` (`[batch, 4 · hidden]`, `i o f c`) are those that [`lstm_step`] kept, and become the gradient of what went into them;
/// `c` is the cell state before the step. `of_h` and `of_c` are gradients of the states after the step; `of_c` becomes that of the
/// cell state before it.
///
/// # Panics
/// When sizes do not fit.
pub fn lstm_step_gradient(hidden: usize, gates: &mut [f32], c: &[f32], of_h: &[f32], of_c: &mut [f32]) {
    assert!(hidden > 0 && c.len().is_multiple_of(hidden), "whole rows of the LSTM step");
    assert!(
        c.len() == of_h.len() && c.len() == of_c.len() && gates.len() == 4 * c.len(),
        "sizes of the LSTM step"
    );
    let rows = gates.chunks_exact_mut(4 * hidden).zip(c.chunks_exact(hidden));
    let gradients = of_h.chunks_exact(hidden).zip(of_c.chunks_exact_mut(hidden));
    for ((gates, c), (of_h, of_c)) in rows.zip(gradients) {
        // SAFETY: the rows have `hidden` elements, the gates four times as many.
        unsafe {
            lstm_row_gradient(gates.as_mut_ptr(), c.as_ptr(), of_h.as_ptr(), of_c.as_mut_ptr(), hidden)
        };
    }
}

dispatched! {
    /// One row of [`lstm_step_gradient`].
    ///
    /// # Safety
    /// `gates` holds `4 · n` elements, the others `n`.
    unsafe fn lstm_row_gradient<S>(s, gates: *mut f32, c: *const f32, of_h: *const f32, of_c: *mut f32, n: usize) {
        let one = s.splat(1.0);
        for at in (0..n).step_by(S::LANES) {
            let count = S::LANES.min(n - at);
            let mut gate = [one; 4];
            for k in 0..4 {
                gate[k] = s.load_up_to(gates.add(k * n + at), count);
            }
            let [input, output, forget, new] = gate;
            let (c, of_h) = (s.load_up_to(c.add(at), count), s.load_up_to(of_h.add(at), count));
            let shown = tanh(s, s.mul_add(forget, c, s.mul(input, new)));
            // h' = o · tanh(c'), c' = f · c + i · g
            let through = s.mul(s.mul(of_h, output), s.sub_product(one, shown, shown));
            let of_new = s.add(s.load_up_to(of_c.add(at), count), through);
            // σ' = σ (1 - σ), tanh' = 1 - tanh²
            let slopes = [
                s.mul(s.mul(of_new, new), s.mul(input, s.sub(one, input))),
                s.mul(s.mul(of_h, shown), s.mul(output, s.sub(one, output))),
                s.mul(s.mul(of_new, c), s.mul(forget, s.sub(one, forget))),
                s.mul(s.mul(of_new, input), s.sub_product(one, new, new)),
            ];
            for k in 0..4 {
                s.store_up_to(gates.add(k * n + at), count, slopes[k]);
            }
            s.store_up_to(of_c.add(at), count, s.mul(of_new, forget));
        }
    }
}

/// `y += a · b`.
fn add_product(a: &[f32], b: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y += a * b);
}

dispatched! {
    /// `x = a · x + b · y`.
    ///
    /// # Safety
    /// All slices have the length of `x`.
    unsafe fn mix<S>(s, x: &mut [f32], a: &[f32], b: &[f32], y: &[f32]) {
        let mut i = 0;
        while i < x.len() {
            let count = S::LANES.min(x.len() - i);
            let at = |slice: &[f32]| s.load_up_to(slice.as_ptr().add(i), count);
            let sum = s.mul_add(at(a), at(x), s.mul(at(b), at(y)));
            s.store_up_to(x.as_mut_ptr().add(i), count, sum);
            i += S::LANES;
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
    assert!(hidden > 0 && h.len().is_multiple_of(hidden), "whole rows of the GRU step");
    assert!(x_gates.len() == 3 * h.len() && h_gates.len() == x_gates.len(), "sizes of the GRU step");
    let [f, g] = activations;
    with_scratch(3 * hidden, |space| {
        let gates = x_gates.chunks(3 * hidden).zip(h_gates.chunks(3 * hidden));
        for ((x_gates, h_gates), h) in gates.zip(h.chunks_mut(hidden)) {
            space.copy_from_slice(x_gates);
            let (both, new) = space.split_at_mut(2 * hidden);
            both.iter_mut().zip(h_gates).for_each(|(x, h)| *x += h);
            activate(f, clip, both);
            let (update, reset) = both.split_at(hidden);
            add_product(reset, &h_gates[2 * hidden..], new);
            activate(g, clip, new);
            blend(update, new, h);
        }
    });
}

/// `h = (1 - update) · new + update · h`.
fn blend(update: &[f32], new: &[f32], h: &mut [f32]) {
    h.iter_mut().zip(update).zip(new).for_each(|((h, z), n)| *h = (1.0 - z) * n + z * *h);
}

/// The two gates of a GRU without `linear_before_reset`. `x_gates` (`[batch, 3 · hidden]`, `z r h`) is the input's product
/// with all biases; `gates` (`[batch, 2 · hidden]`, `z r`), the recurrent one, becomes the gates; `reset_h` gets `r · h`,
/// ready for the recurrent product of the third gate.
///
/// # Panics
/// When sizes do not fit.
pub fn gru_gates(
    hidden: usize,
    x_gates: &[f32],
    gates: &mut [f32],
    h: &[f32],
    activation: Activation,
    clip: Option<f32>,
    reset_h: &mut [f32],
) {
    assert!(hidden > 0 && gates.len() == 2 * h.len() && reset_h.len() == h.len(), "sizes of the GRU gates");
    assert!(x_gates.len() == 3 * h.len(), "sizes of the GRU gates");
    for (gates, x_gates) in gates.chunks_mut(2 * hidden).zip(x_gates.chunks(3 * hidden)) {
        gates.iter_mut().zip(x_gates).for_each(|(gate, x)| *gate += x);
    }
    activate(activation, clip, gates);
    let rows = gates.chunks(2 * hidden).zip(h.chunks(hidden));
    for ((gates, h), reset_h) in rows.zip(reset_h.chunks_mut(hidden)) {
        reset_h.iter_mut().zip(&gates[hidden..]).zip(h).for_each(|((y, r), h)| *y = r * h);
    }
}

/// The end of a step after [`gru_gates`]: `new` (`[batch, hidden]`) is the product of `r · h` and is used up; `h` is updated.
///
/// # Panics
/// When sizes do not fit.
pub fn gru_end(
    hidden: usize,
    x_gates: &[f32],
    gates: &[f32],
    new: &mut [f32],
    activation: Activation,
    clip: Option<f32>,
    h: &mut [f32],
) {
    assert!(hidden > 0 && gates.len() == 2 * h.len() && new.len() == h.len(), "sizes of the GRU step");
    assert!(x_gates.len() == 3 * h.len(), "sizes of the GRU step");
    for (new, x_gates) in new.chunks_mut(hidden).zip(x_gates.chunks(3 * hidden)) {
        new.iter_mut().zip(&x_gates[2 * hidden..]).for_each(|(new, x)| *new += x);
    }
    activate(activation, clip, new);
    let rows = gates.chunks(2 * hidden).zip(new.chunks(hidden)).zip(h.chunks_mut(hidden));
    rows.for_each(|((gates, new), h)| blend(&gates[..hidden], new, h));
}

/// The end of a step of a plain cell: `h` becomes the bounded and activated `sums`, which have its size.
///
/// # Panics
/// When sizes do not fit.
pub fn rnn_end(sums: &[f32], activation: Activation, clip: Option<f32>, h: &mut [f32]) {
    h.copy_from_slice(sums);
    activate(activation, clip, h);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::activation_of;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    const CELL: [Activation; 3] = [Activation::Sigmoid, Activation::Tanh, Activation::Tanh];

    #[test]
    fn lstm_steps_equal_onnx_equations() {
        let (batch, hidden) = (3, 21);
        let gates = noise(batch * 4 * hidden, 1);
        let (start, p) = (noise(batch * hidden, 2), noise(3 * hidden, 3));
        at_each_level(|_| {
            for (peepholes, clip, state_clip, input_forget) in [
                (None, None, None, false),
                (Some(&p[..]), None, None, false),
                (Some(&p[..]), Some(0.3), None, false),
                (Some(&p[..]), None, Some(0.1), false),
                (None, None, None, true),
            ] {
                let (mut c, mut h) = (start.clone(), vec![0.0; batch * hidden]);
                lstm_step(
                    hidden,
                    &gates,
                    peepholes,
                    CELL,
                    clip,
                    state_clip,
                    input_forget,
                    &mut c,
                    &mut h,
                    None,
                );
                for at in 0..batch * hidden {
                    let (row, j) = (at / hidden, at % hidden);
                    let gate = |k: usize, c: f32| {
                        let p = if k < 3 { peepholes.map_or(0.0, |p| p[k * hidden + j]) } else { 0.0 };
                        let x = gates[row * 4 * hidden + k * hidden + j] + p * c;
                        let x = clip.map_or(x, |clip| x.clamp(-clip, clip));
                        activation_of(if k == 3 { Activation::Tanh } else { Activation::Sigmoid }, x)
                    };
                    let input = gate(0, start[at]);
                    let forget = if input_forget { 1.0 - input } else { gate(2, start[at]) };
                    let cell = forget * start[at] + input * gate(3, 0.0);
                    let cell = state_clip.map_or(cell, |clip| cell.clamp(-clip, clip));
                    assert!((c[at] - cell).abs() < 1e-6);
                    assert!((h[at] - gate(1, cell) * cell.tanh()).abs() < 1e-6);
                }
            }
        });
    }

    #[test]
    fn lstm_gradients_are_those_of_the_step() {
        let (batch, hidden) = (3, 21);
        let sums: Vec<f64> = noise(batch * 4 * hidden, 1).into_iter().map(f64::from).collect();
        let old: Vec<f64> = noise(batch * hidden, 2).into_iter().map(f64::from).collect();
        let (of_h, of_c) = (noise(batch * hidden, 3), noise(batch * hidden, 4));
        // Σ of_h · h' + of_c · c', as a function of a row's sums and its old cell state.
        let value = |at: usize, sums: [f64; 4], old: f64| {
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let cell = sigmoid(sums[2]) * old + sigmoid(sums[0]) * sums[3].tanh();
            f64::from(of_h[at]) * sigmoid(sums[1]) * cell.tanh() + f64::from(of_c[at]) * cell
        };
        at_each_level(|_| {
            let narrow = |x: &[f64]| -> Vec<f32> { x.iter().map(|x| *x as f32).collect() };
            let (mut c, mut h, mut kept) = (narrow(&old), vec![0.0; old.len()], vec![0.0; sums.len()]);
            lstm_step(hidden, &narrow(&sums), None, CELL, None, None, false, &mut c, &mut h, Some(&mut kept));
            let mut of_old = of_c.clone();
            lstm_step_gradient(hidden, &mut kept, &narrow(&old), &of_h, &mut of_old);
            for at in 0..batch * hidden {
                let place = |k: usize| at / hidden * 4 * hidden + k * hidden + at % hidden;
                let here = [0, 1, 2, 3].map(|k| sums[place(k)]);
                let slope = |f: &dyn Fn(f64) -> f64| (f(1e-5) - f(-1e-5)) / 2e-5;
                for k in 0..4 {
                    let moved = |by: f64| {
                        let mut sums = here;
                        sums[k] += by;
                        value(at, sums, old[at])
                    };
                    let want = slope(&moved);
                    assert!(
                        (f64::from(kept[place(k)]) - want).abs() < 2e-6,
                        "{k}: {} {want}",
                        kept[place(k)]
                    );
                }
                let want = slope(&|by| value(at, here, old[at] + by));
                assert!((f64::from(of_old[at]) - want).abs() < 2e-6);
            }
        });
    }

    #[test]
    fn gru_steps_equal_onnx_equations() {
        let (batch, hidden) = (2, 19);
        let (x, y, start) =
            (noise(batch * 3 * hidden, 1), noise(batch * 3 * hidden, 2), noise(batch * hidden, 3));
        at_each_level(|_| {
            let mut h = start.clone();
            gru_step(hidden, &x, &y, [Activation::Sigmoid, Activation::Tanh], None, &mut h);
            let before: Vec<f32> = noise(batch * 2 * hidden, 4);
            let (mut gates, mut reset_h) = (before.clone(), vec![0.0; batch * hidden]);
            gru_gates(hidden, &x, &mut gates, &start, Activation::Sigmoid, None, &mut reset_h);
            let last = noise(batch * hidden, 5);
            let (mut new, mut end) = (last.clone(), start.clone());
            gru_end(hidden, &x, &gates, &mut new, Activation::Tanh, Some(0.5), &mut end);
            for at in 0..batch * hidden {
                let of = |gate: usize| at / hidden * 3 * hidden + gate * hidden + at % hidden;
                let sigmoid = |x: f32| activation_of(Activation::Sigmoid, x);
                let (z, r) = (sigmoid(x[of(0)] + y[of(0)]), sigmoid(x[of(1)] + y[of(1)]));
                let new = (x[of(2)] + r * y[of(2)]).tanh();
                assert!((h[at] - ((1.0 - z) * new + z * start[at])).abs() < 1e-6);
                let first = |gate: usize| at / hidden * 2 * hidden + gate * hidden + at % hidden;
                let (z, r) = (sigmoid(before[first(0)] + x[of(0)]), sigmoid(before[first(1)] + x[of(1)]));
                assert!((reset_h[at] - r * start[at]).abs() < 1e-6);
                let new = (last[at] + x[of(2)]).clamp(-0.5, 0.5).tanh();
                assert!((end[at] - ((1.0 - z) * new + z * start[at])).abs() < 1e-6);
            }
        });
    }
}
