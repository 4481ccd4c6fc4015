//! From the last step to the first.

use super::cell_gradient::{Before, OfState, SPACE};
use super::{Layer, States, recurrent_parts};
use crate::gemm::{self, PackedRhs, PanelOrder};
use crate::scratch::with_scratch;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec;
use core::ops::Range;

/// Gradients of what a layer yields.
#[derive(Debug)]
pub struct OfResults<'a> {
    /// Of every step's hidden state, `[steps, directions, batch, hidden]`.
    pub output: &'a [f32],
    /// Of the last states; they become those of the first states.
    pub states: States<'a>,
}

/// What the threads read and write.
struct Shared<'a> {
    gates: SharedMut<'a, f32>,
    output: &'a [f32],
    hidden: SharedMut<'a, f32>,
    cell: SharedMut<'a, f32>,
    /// `[directions, batch, 3 · hidden]`, or nothing.
    peepholes: SharedMut<'a, f32>,
    /// The states that each step started from.
    before: Before<'a>,
}

impl Layer<'_> {
    /// All steps back. `gates` holds what [`Layer::forward`] left in training, and gets the gradients of the sums; `before` are the states
    /// that it kept, hidden and cell. `recurrent` holds `[gates · hidden, hidden]` for each part of each direction ([`recurrent_parts`]);
    /// `of_peepholes` (`[directions, 3 · hidden]`) gets gradients, if there are peepholes.
    ///
    /// # Panics
    /// When sizes do not fit, or the layer is not in training.
    pub fn backward(
        &self,
        recurrent: &[&PackedRhs],
        gates: &mut [f32],
        before: [&[f32]; 2],
        of: OfResults<'_>,
        of_peepholes: Option<&mut [f32]>,
    ) {
        self.check(gates);
        assert!(self.training, "the way back needs what training keeps");
        let hidden = self.options.hidden_size;
        let parts = recurrent_parts(self.options.kind).len();
        let state = self.directions() * self.batch * hidden;
        let cell = if self.is_lstm() { state } else { 0 };
        let peepholes = if self.peepholes.is_some() { 3 * state } else { 0 };
        assert_eq!(recurrent.len(), self.directions() * parts, "recurrent weights");
        assert!(
            of.states.hidden.len() == state && of.states.cell.len() == cell,
            "size of the states' gradients"
        );
        assert_eq!(of.output.len(), self.steps * state, "size of the output's gradient");
        assert!(
            before.map(<[f32]>::len) == [self.steps * state, self.steps * cell],
            "size of the kept states"
        );
        let mut of_rows = vec![0.0; peepholes];
        let shared = Shared {
            gates: SharedMut::new(gates),
            output: of.output,
            hidden: SharedMut::new(of.states.hidden),
            cell: SharedMut::new(of.states.cell),
            peepholes: SharedMut::new(&mut of_rows),
            before: Before { hidden: before[0], cell: before[1] },
        };
        self.share(|direction, rows| {
            let recurrent = &recurrent[direction * parts..][..parts];
            (0..self.steps)
                .rev()
                .for_each(|n| self.backward_step(direction, rows.clone(), n, recurrent, &shared));
        });
        if let Some(of_peepholes) = of_peepholes.filter(|_| self.peepholes.is_some()) {
            let size = 3 * hidden;
            assert_eq!(of_peepholes.len(), self.directions() * size, "size of the peepholes' gradient");
            of_peepholes.fill(0.0);
            for (n, row) in of_rows.chunks_exact(size).enumerate() {
                let sums = &mut of_peepholes[n / self.batch * size..][..size];
                sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
        }
    }

    /// The `n`-th step of a direction, for some rows.
    fn backward_step(
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
        let before = |row: usize| Before {
            hidden: &shared.before.hidden[state(at + row, 1)],
            cell: &shared.before.cell[cell_state(at + row, 1)],
        };
        // SAFETY: rows of one direction are one job's own, and so are all their steps; within it each is one piece's.
        let row_gates =
            |row: usize| unsafe { shared.gates.slice((at + row) * width..(at + row + 1) * width) };
        // SAFETY: as above.
        let of_hidden = |row: usize| unsafe { shared.hidden.slice(state(first + row, 1)) };
        parallel_for(count, self.cell_work(), |some| {
            with_scratch(SPACE * hidden, |space| {
                for row in some {
                    let gates = row_gates(row);
                    if !self.counts(rows.start + row, step) {
                        // The states passed by, and nothing else happened.
                        gates.fill(0.0);
                        continue;
                    }
                    let out = (step * self.directions() + direction) * self.batch + rows.start + row;
                    let of_output = &shared.output[state(out, 1)];
                    let of_hidden = of_hidden(row);
                    of_hidden.iter_mut().zip(of_output).for_each(|(sum, x)| *sum += x);
                    let row = first + row;
                    let peepholes = self.peepholes.map(|_| 3 * row * hidden..3 * (row + 1) * hidden);
                    // SAFETY: as above.
                    let mut of = unsafe {
                        OfState {
                            hidden: of_hidden,
                            cell: shared.cell.slice(cell_state(row, 1)),
                            peepholes: peepholes.map(|range| shared.peepholes.slice(range)),
                        }
                    };
                    cell.step_gradient(gates, before(row - first), &mut of, space);
                }
            });
        });
        let parts = recurrent_parts(self.options.kind);
        // SAFETY: the pieces are done.
        let gates = || unsafe { shared.gates.slice(at * width..(at + count) * width) };
        let order = PanelOrder::of_turn(n);
        let product = |place: usize, weight: &PackedRhs, to: &mut [f32], adds: bool| {
            gemm::rows_product(count, &gates()[place * hidden..], width, weight, to, hidden, adds, order);
        };
        if let [_, candidate] = parts {
            with_scratch(count * hidden, |of_reset| {
                product(candidate.place, recurrent[1], of_reset, false);
                let of_reset = SharedMut::new(of_reset);
                parallel_for(count, self.cell_work(), |some| {
                    for row in some.filter(|row| self.counts(rows.start + row, step)) {
                        // SAFETY: as above.
                        let of_reset = unsafe { of_reset.slice(state(row, 1)) };
                        cell.reset_gradient(row_gates(row), before(row).hidden, of_reset, of_hidden(row));
                    }
                });
            });
        }
        // SAFETY: the pieces are done.
        let to = unsafe { shared.hidden.slice(state(first, count)) };
        product(parts[0].place, recurrent[0], to, true);
    }
}
