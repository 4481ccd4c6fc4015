//! Gradients of a layer's input and weights: products over all steps.

use super::{Layer, RESET_PLACE, input_parts};
use crate::gemm::{self, Matrix, PackedRhs, PanelOrder};
use crate::reduce::reduce;
use crate::scratch::with_scratch;
use alloc::vec;
use kiln_types::{ReduceOp, RnnKind};

/// What the gradients of some gates' sums are multiplied with.
struct Factors {
    gate: usize,
    count: usize,
    place: usize,
    /// They are sums of the input's product.
    of_input: bool,
    /// They are sums of the recurrent product.
    of_recurrent: Option<State>,
}

/// What the recurrent product was taken of.
#[derive(Clone, Copy)]
enum State {
    /// The hidden state.
    Whole,
    /// The hidden state that a GRU has reset.
    Reset,
}

const fn factors(
    gate: usize,
    count: usize,
    place: usize,
    of_input: bool,
    of_recurrent: Option<State>,
) -> Factors {
    Factors { gate, count, place, of_input, of_recurrent }
}

fn all_factors(kind: RnnKind) -> &'static [Factors] {
    const WHOLE: Option<State> = Some(State::Whole);
    match kind {
        RnnKind::Rnn => const { &[factors(0, 1, 0, true, WHOLE)] },
        RnnKind::Gru { linear_before_reset: true } => {
            const { &[factors(0, 2, 0, true, WHOLE), factors(2, 1, 2, false, WHOLE), factors(2, 1, 3, true, None)] }
        }
        RnnKind::Gru { linear_before_reset: false } => {
            const { &[factors(0, 2, 0, true, WHOLE), factors(2, 1, 2, true, Some(State::Reset))] }
        }
        RnnKind::Lstm { .. } => const { &[factors(0, 4, 0, true, WHOLE)] },
    }
}

impl Layer<'_> {
    /// The gradient of the input (`[steps, batch, size]`), from the gradients in `gates` that [`Layer::backward`] left and the input's
    /// weights (`[directions, gates · hidden, size]`).
    ///
    /// # Panics
    /// When sizes do not fit.
    pub fn of_input(&self, gates: &[f32], size: usize, weight: &[f32], of_input: &mut [f32]) {
        self.check(gates);
        let (hidden, rows, width) = (self.options.hidden_size, self.rows(), self.width());
        let all = self.options.kind.gates() * hidden * size;
        assert_eq!(weight.len(), self.directions() * all, "size of the input's weights");
        assert_eq!(of_input.len(), rows * size, "size of the input's gradient");
        let mut adds = false;
        for direction in 0..self.directions() {
            for part in input_parts(self.options.kind) {
                let depth = part.count * hidden;
                let a = &gates[direction * rows * width + part.place * hidden..];
                let b = &weight[direction * all + part.gate * hidden * size..][..depth * size];
                let b = PackedRhs::once(Matrix::row_major(b, size), depth, size);
                gemm::rows_product(rows, a, width, &b, of_input, size, adds, PanelOrder::Forwards);
                b.recycle();
                adds = true;
            }
        }
    }

    /// The gradients of the input's weights (`[directions, gates · hidden, size]`) and of the recurrent ones
    /// (`[directions, gates · hidden, hidden]`), from the gradients in `gates` that [`Layer::backward`] left, the inputs
    /// (`[steps, batch, size]`) and the hidden states that each step started from.
    ///
    /// # Panics
    /// When sizes do not fit, or there are no steps.
    pub fn of_weights(
        &self,
        gates: &[f32],
        input: &[f32],
        size: usize,
        before: &[f32],
        of_weight: &mut [f32],
        of_recurrent: &mut [f32],
    ) {
        self.check(gates);
        let (hidden, rows, width) = (self.options.hidden_size, self.rows(), self.width());
        let all = self.options.kind.gates() * hidden;
        assert!(rows > 0, "the weights' gradients are sums over the steps");
        assert_eq!(input.len(), rows * size, "size of the input");
        assert_eq!(before.len(), self.directions() * rows * hidden, "size of the kept states");
        assert_eq!(of_weight.len(), self.directions() * all * size, "size of the input weights' gradient");
        assert_eq!(
            of_recurrent.len(),
            self.directions() * all * hidden,
            "size of the recurrent weights' gradient"
        );
        for direction in 0..self.directions() {
            let gates = &gates[direction * rows * width..][..rows * width];
            let before = &before[direction * rows * hidden..][..rows * hidden];
            for factors in all_factors(self.options.kind) {
                let (first, count) = (direction * all + factors.gate * hidden, factors.count * hidden);
                let a = Matrix { data: &gates[factors.place * hidden..], row_stride: 1, col_stride: width };
                with_scratch(count * rows, |packed| {
                    gemm::pack_lhs_into(a, count, rows, packed);
                    let product = |b: Matrix<'_>, columns: usize, to: &mut [f32]| {
                        let to = &mut to[first * columns..(first + count) * columns];
                        gemm::packed_product(count, columns, rows, packed, b, to, columns);
                    };
                    if factors.of_input {
                        product(Matrix::row_major(input, size), size, of_weight);
                    }
                    let state = match factors.of_recurrent {
                        None => return,
                        Some(State::Whole) => Matrix::row_major(before, hidden),
                        Some(State::Reset) => {
                            Matrix { data: &gates[RESET_PLACE * hidden..], row_stride: width, col_stride: 1 }
                        }
                    };
                    product(state, hidden, of_recurrent);
                });
            }
        }
    }

    /// The gradients of the biases (`[directions, 2 · gates · hidden]`, the input's before the recurrent ones), from the gradients in
    /// `gates` that [`Layer::backward`] left.
    ///
    /// # Panics
    /// When sizes do not fit.
    pub fn of_biases(&self, gates: &[f32], of_biases: &mut [f32]) {
        self.check(gates);
        let (hidden, width, directions) = (self.options.hidden_size, self.width(), self.directions());
        let all = self.options.kind.gates() * hidden;
        assert_eq!(of_biases.len(), directions * 2 * all, "size of the biases' gradient");
        let mut sums = vec![0.0; directions * width];
        reduce(ReduceOp::Sum, directions, self.rows(), width, gates, &mut sums);
        for (sums, of_biases) in sums.chunks_exact(width).zip(of_biases.chunks_exact_mut(2 * all)) {
            let (of_input, of_recurrent) = of_biases.split_at_mut(all);
            for factors in all_factors(self.options.kind) {
                let from = &sums[factors.place * hidden..][..factors.count * hidden];
                let to = factors.gate * hidden..(factors.gate + factors.count) * hidden;
                if factors.of_input {
                    of_input[to.clone()].copy_from_slice(from);
                }
                if factors.of_recurrent.is_some() {
                    of_recurrent[to].copy_from_slice(from);
                }
            }
        }
    }
}
