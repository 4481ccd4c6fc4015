//! From the first step to the last.

use super::{Layer, input_parts, recurrent_parts};
use crate::gemm::{self, Bias, Epilogue, Lhs, Matrix, PackedRhs, PanelOrder, Rhs};
use crate::scratch::with_scratch;
use crate::threads::{SharedMut, parallel_for};
use core::ops::Range;
use kiln_types::RnnKind;

/// What cells carry from step to step, `[directions, batch, hidden]` each.
#[derive(Debug)]
pub struct States<'a> {
    /// The hidden states.
    pub hidden: &'a mut [f32],
    /// The cell states of an LSTM; else nothing.
    pub cell: &'a mut [f32],
}

/// The states that each step started from, in the order of the sequence: `[directions, steps, batch, hidden]` each.
#[derive(Debug)]
pub struct Kept<'a> {
    /// The hidden states.
    pub hidden: &'a mut [f32],
    /// The cell states of an LSTM; else nothing.
    pub cell: &'a mut [f32],
}

/// What all threads write, each its rows.
struct Shared<'a> {
    gates: SharedMut<'a, f32>,
    hidden: SharedMut<'a, f32>,
    cell: SharedMut<'a, f32>,
    output: SharedMut<'a, f32>,
    kept: Option<(SharedMut<'a, f32>, SharedMut<'a, f32>)>,
}

impl Layer<'_> {
    /// Fills `gates` with the products of all inputs (`[steps, batch, size]`) and the biases (`[directions, 2 · gates · hidden]`, the
    /// input's before the recurrent ones). `weight` holds `[size, gates · hidden]` for each part of each direction
    /// ([`input_parts`]).
    ///
    /// # Panics
    /// When sizes do not fit.
    pub fn project(
        &self,
        input: &[f32],
        size: usize,
        weight: &[Rhs<'_>],
        bias: Option<&[f32]>,
        gates: &mut [f32],
    ) {
        self.check(gates);
        let (hidden, rows, width) = (self.options.hidden_size, self.rows(), self.width());
        let all = self.options.kind.gates() * hidden;
        let parts = input_parts(self.options.kind);
        assert_eq!(input.len(), rows * size, "size of the input");
        assert_eq!(weight.len(), self.directions() * parts.len(), "weights of the input");
        assert!(bias.is_none_or(|bias| bias.len() == self.directions() * 2 * all), "size of the biases");
        if rows == 0 {
            return;
        }
        let reset_after = self.options.kind == RnnKind::Gru { linear_before_reset: true };
        let directions = gates.chunks_exact_mut(rows * width).zip(weight.chunks_exact(parts.len()));
        for (direction, (gates, weight)) in directions.enumerate() {
            let bias = bias.map(|bias| bias[direction * 2 * all..][..2 * all].split_at(all));
            // The bias of what the reset gate is multiplied with stays apart.
            let joined = if reset_after { 2 * hidden } else { all };
            with_scratch(all, |sums| {
                if let Some((w, r)) = bias {
                    for (at, sum) in sums.iter_mut().enumerate() {
                        *sum = if at < joined { w[at] + r[at] } else { w[at] };
                    }
                }
                for (part, weight) in parts.iter().zip(weight) {
                    let columns = part.gate * hidden..(part.gate + part.count) * hidden;
                    let bias = bias.map_or(Bias::None, |_| Bias::PerColumn(&sums[columns.clone()]));
                    let epilogue = Epilogue { bias, ..Epilogue::default() };
                    let x = Lhs::Plain(Matrix::row_major(input, size));
                    let to = &mut gates[part.place * hidden..];
                    gemm::gemm(rows, columns.len(), size, x, *weight, to, width, &epilogue);
                }
            });
            if reset_after {
                let bias = bias.map(|(_, r)| &r[2 * hidden..]);
                for row in gates.chunks_exact_mut(width) {
                    let place = &mut row[2 * hidden..3 * hidden];
                    match bias {
                        Some(bias) => place.copy_from_slice(bias),
                        None => place.fill(0.0),
                    }
                }
            }
        }
    }

    /// All steps of all sequences, from what [`Layer::project`] wrote. `states` are the first ones and become the last, `output` gets
    /// every step's hidden state, `[steps, directions, batch, hidden]`, and `kept` the states before it. `recurrent` holds
    /// `[hidden, gates · hidden]` for each part of each direction ([`recurrent_parts`]).
    ///
    /// # Panics
    /// When sizes do not fit.
    pub fn forward(
        &self,
        recurrent: &[&PackedRhs],
        gates: &mut [f32],
        states: States<'_>,
        output: &mut [f32],
        kept: Option<Kept<'_>>,
    ) {
        self.check(gates);
        let parts = recurrent_parts(self.options.kind).len();
        let state = self.directions() * self.batch * self.options.hidden_size;
        let cell = if self.is_lstm() { state } else { 0 };
        assert_eq!(recurrent.len(), self.directions() * parts, "recurrent weights");
        assert!(states.hidden.len() == state && states.cell.len() == cell, "size of the states");
        assert_eq!(output.len(), self.steps * state, "size of the output");
        assert!(
            kept.as_ref().is_none_or(
                |kept| kept.hidden.len() == self.steps * state && kept.cell.len() == self.steps * cell
            ),
            "size of the kept states"
        );
        if self.batch == 0 {
            return;
        }
        let shared = Shared {
            gates: SharedMut::new(gates),
            hidden: SharedMut::new(states.hidden),
            cell: SharedMut::new(states.cell),
            output: SharedMut::new(output),
            kept: kept.map(|kept| (SharedMut::new(kept.hidden), SharedMut::new(kept.cell))),
        };
        self.share(|direction, rows| {
            let recurrent = &recurrent[direction * parts..][..parts];
            (0..self.steps).for_each(|n| self.forward_step(direction, rows.clone(), n, recurrent, &shared));
        });
    }

    /// The `n`-th step of a direction, for some rows.
    fn forward_step(
        &self,
        direction: usize,
        rows: Range<usize>,
        n: usize,
        recurrent: &[&PackedRhs],
        shared: &Shared<'_>,
    ) {
        let (hidden, width, count) = (self.options.hidden_size, self.width(), rows.len());
        let cell = self.cell(direction);
        let step = self.place_of(direction, n);
        let first = direction * self.batch + rows.start;
        let at = (direction * self.steps + step) * self.batch + rows.start;
        let state = |first: usize, count: usize| first * hidden..(first + count) * hidden;
        let cell_state = |first: usize, count: usize| if self.is_lstm() { state(first, count) } else { 0..0 };
        // SAFETY: rows of one direction are one job's own, and so are all their steps.
        let gates = unsafe { shared.gates.slice(at * width..(at + count) * width) };
        // SAFETY: as above.
        let h = unsafe { shared.hidden.slice(state(first, count)) };
        // SAFETY: as above; a layer without cell states has none to share.
        let c = unsafe { shared.cell.slice(cell_state(first, count)) };
        if let Some((kept_hidden, kept_cell)) = &shared.kept {
            // SAFETY: as above.
            unsafe { kept_hidden.slice(state(at, count)) }.copy_from_slice(h);
            // SAFETY: as above.
            unsafe { kept_cell.slice(cell_state(at, count)) }.copy_from_slice(c);
        }
        let parts = recurrent_parts(self.options.kind);
        let order = PanelOrder::of_turn(n);
        self.add_product(h, recurrent[0], order, &mut gates[parts[0].place * hidden..]);
        let gates = SharedMut::new(gates);
        if let [_, candidate] = parts {
            with_scratch(count * hidden, |reset| {
                // Of rows that do not count the product is not read, but it is computed.
                reset.fill(0.0);
                let shared_reset = SharedMut::new(reset);
                parallel_for(count, self.cell_work(), |some| {
                    for row in some.filter(|row| self.counts(rows.start + row, step)) {
                        // SAFETY: each row is written by one piece.
                        let (gates, reset) = unsafe {
                            (gates.slice(row * width..(row + 1) * width), shared_reset.slice(state(row, 1)))
                        };
                        cell.reset(gates, &h[state(row, 1)], reset);
                    }
                });
                // SAFETY: the pieces are done.
                let gates = unsafe { gates.slice(candidate.place * hidden..gates.len()) };
                self.add_product(reset, recurrent[1], order, gates);
            });
        }
        let (h, c) = (SharedMut::new(h), SharedMut::new(c));
        parallel_for(count, self.cell_work(), |some| {
            for row in some {
                let out = (step * self.directions() + direction) * self.batch + rows.start + row;
                // SAFETY: each row is written by one piece.
                unsafe {
                    let out = shared.output.slice(state(out, 1));
                    if !self.counts(rows.start + row, step) {
                        // The sequence is over or, backwards, has not begun.
                        out.fill(0.0);
                        continue;
                    }
                    let h = h.slice(state(row, 1));
                    cell.step(gates.slice(row * width..(row + 1) * width), h, c.slice(cell_state(row, 1)));
                    out.copy_from_slice(h);
                }
            }
        });
    }

    /// Adds the product of some rows of hidden states and a weight to some places of `gates`.
    fn add_product(&self, states: &[f32], weight: &PackedRhs, order: PanelOrder, gates: &mut [f32]) {
        let hidden = self.options.hidden_size;
        gemm::rows_product(states.len() / hidden, states, hidden, weight, gates, self.width(), true, order);
    }
}
