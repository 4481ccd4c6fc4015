//! Recurrent layers through time, and back.
//!
//! One product projects all inputs ([`Layer::project`]); then each step adds the recurrent product and computes the cell in place
//! ([`Layer::forward`]). The way back ([`Layer::backward`]) computes each step's cell and one product, in place again; the weights'
//! gradients are products over all steps ([`Layer::of_weights`]). Rows of a batch do not depend on each other: threads have rows of their own.
//!
//! All steps of all rows lie in one array, `gates`: `[directions, steps, batch, width]` in the order of the sequence. What a step of a row
//! has there are places of `hidden` elements, which hold sums, then values, then the sums' gradients:
//!
//! | cell | places |
//! | --- | --- |
//! | plain | `f` |
//! | LSTM | `i o f c` |
//! | GRU that resets after the product | `z r`, the candidate's recurrent product, the candidate |
//! | GRU that resets before the product | `z r`, the candidate, and in training the reset hidden state |
//!
//! Behind them are, in training, the bounded sums of all gates, if the slope of some activation does not follow from its value. Rows that
//! would lie in the same places of caches have some more elements, which nothing reads.

mod backward;
mod cell;
mod cell_gradient;
mod forward;
#[cfg(test)]
mod tests;
mod weights;

pub use backward::OfResults;
pub use forward::{Kept, States};

use crate::math::slope_of_result;
use crate::size::elements;
use crate::threads::{parallel_for, sharing};
use cell::Cell;
use core::ops::Range;
use kiln_types::{RnnDirection, RnnKind, RnnOptions};

/// A recurrent layer and the sequences that it reads.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// What it computes. Batches that come first are the caller's business.
    pub options: &'a RnnOptions,
    /// Steps of the sequences.
    pub steps: usize,
    /// Number of sequences.
    pub batch: usize,
    /// How many steps of each sequence count, if not all do.
    pub lengths: Option<&'a [i64]>,
    /// `[directions, 3 · hidden]` in the order `iof`, of an LSTM.
    pub peepholes: Option<&'a [f32]>,
    /// Whether what the way back needs is kept.
    pub training: bool,
}

/// Some gates whose product is computed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first gate, in the order of the weights' rows.
    pub gate: usize,
    /// How many gates there are.
    pub count: usize,
    /// The place of the first one.
    place: usize,
}

const fn part(gate: usize, count: usize, place: usize) -> Part {
    Part { gate, count, place }
}

/// The parts of the input's product.
pub fn input_parts(kind: RnnKind) -> &'static [Part] {
    match kind {
        RnnKind::Rnn => const { &[part(0, 1, 0)] },
        RnnKind::Gru { linear_before_reset: true } => const { &[part(0, 2, 0), part(2, 1, 3)] },
        RnnKind::Gru { linear_before_reset: false } => const { &[part(0, 3, 0)] },
        RnnKind::Lstm { .. } => const { &[part(0, 4, 0)] },
    }
}

/// The parts of the recurrent product. A second one is the candidate's, of the reset hidden state.
pub fn recurrent_parts(kind: RnnKind) -> &'static [Part] {
    match kind {
        RnnKind::Rnn => const { &[part(0, 1, 0)] },
        RnnKind::Gru { linear_before_reset: true } => const { &[part(0, 3, 0)] },
        RnnKind::Gru { linear_before_reset: false } => const { &[part(0, 2, 0), part(2, 1, 2)] },
        RnnKind::Lstm { .. } => const { &[part(0, 4, 0)] },
    }
}

/// Where a GRU that resets before the product keeps the reset hidden state.
const RESET_PLACE: usize = 3;

/// Rows this many elements apart (2 KiB) share few places of a cache.
const CLASH: usize = 512;
/// Elements of a cache line.
const LINE: usize = 16;

/// Multiply-adds of a step from which its product is shared by threads, rather than the rows.
const SHARED_STEP: usize = 1 << 21;
/// Rows that a thread has at least: with fewer, reading the weights takes as long as computing.
const LEAST_ROWS: usize = 8;

impl<'a> Layer<'a> {
    /// Elements of a step of a row in `gates`.
    pub fn width(&self) -> usize {
        let hidden = self.options.hidden_size;
        let sums = if self.keeps_sums() { self.options.kind.gates() } else { 0 };
        let width = (self.places() + sums) * hidden;
        if width.is_multiple_of(CLASH) { width + LINE } else { width }
    }

    fn places(&self) -> usize {
        match self.options.kind {
            RnnKind::Rnn => 1,
            RnnKind::Gru { linear_before_reset: false } if !self.training => 3,
            RnnKind::Gru { .. } | RnnKind::Lstm { .. } => 4,
        }
    }

    fn keeps_sums(&self) -> bool {
        let gates = match self.options.kind {
            RnnKind::Rnn => 1,
            // The last one shows the cell, which is computed again.
            RnnKind::Gru { .. } | RnnKind::Lstm { .. } => 2,
        };
        let cells = self.options.kind.activations().len();
        let known = |cell: &[_]| cell.iter().take(gates).all(|&activation| slope_of_result(activation));
        self.training && (self.options.clip.is_some() || !self.options.activations.chunks(cells).all(known))
    }

    fn is_lstm(&self) -> bool {
        matches!(self.options.kind, RnnKind::Lstm { .. })
    }

    fn directions(&self) -> usize {
        self.options.direction.count()
    }

    /// Checks the sizes of what is given for the whole layer.
    fn check(&self, gates: &[f32]) {
        let (cells, hidden) = (self.options.kind.activations().len(), self.options.hidden_size);
        assert!(hidden > 0, "a recurrent layer's state has elements");
        assert_eq!(self.options.activations.len(), self.directions() * cells, "activations of the layer");
        assert_eq!(
            gates.len(),
            elements(&[self.steps, self.batch, self.directions(), self.width()]),
            "size of the gates"
        );
        assert!(self.lengths.is_none_or(|lengths| lengths.len() == self.batch), "lengths of the sequences");
        let peepholes = self.directions() * 3 * hidden;
        assert!(self.peepholes.is_none_or(|p| p.len() == peepholes), "size of the peepholes");
    }

    /// Rows of a direction's products: steps of sequences.
    fn rows(&self) -> usize {
        self.steps * self.batch
    }

    /// One direction's cell.
    fn cell(&self, direction: usize) -> Cell<'a> {
        let cells = self.options.kind.activations().len();
        let hidden = self.options.hidden_size;
        Cell {
            kind: self.options.kind,
            hidden,
            places: self.places(),
            activations: &self.options.activations[direction * cells..][..cells],
            clip: self.options.clip.map(|clip| clip as f32),
            state_clip: self.options.state_clip.map(|clip| clip as f32),
            peepholes: self.peepholes.map(|all| &all[direction * 3 * hidden..][..3 * hidden]),
            training: self.training,
            keeps_sums: self.keeps_sums(),
        }
    }

    /// Where in the sequence the `n`-th step of a direction is.
    fn place_of(&self, direction: usize, n: usize) -> usize {
        let reverse = self.options.direction == RnnDirection::Reverse || direction == 1;
        if reverse { self.steps - 1 - n } else { n }
    }

    /// Whether a step of a row counts.
    fn counts(&self, row: usize, step: usize) -> bool {
        self.lengths.is_none_or(|lengths| lengths[row] > step as i64)
    }

    /// Runs `job` for each direction's rows, on several threads where that pays. No row's results depend on how they are shared out.
    fn share(&self, job: impl Fn(usize, Range<usize>) + Sync) {
        let (directions, hidden) = (self.directions(), self.options.hidden_size);
        let products = self.options.kind.gates() * hidden * hidden;
        let wanted = sharing().div_ceil(directions);
        let parts = crate::gemm::row_parts(self.batch, wanted.min(self.batch / LEAST_ROWS).max(1));
        if parts.len() < wanted && self.batch * products >= SHARED_STEP {
            // There are too few rows for all threads.
            let parts = crate::gemm::row_parts(self.batch, 1);
            return (0..directions).for_each(|direction| parts.clone().for_each(|rows| job(direction, rows)));
        }
        // A nanosecond is some thirty products, by one thread.
        let work = self.rows() / parts.len() * products / 32;
        parallel_for(directions * parts.len(), work, |range| {
            let jobs = (0..directions).flat_map(|direction| parts.clone().map(move |rows| (direction, rows)));
            jobs.skip(range.start).take(range.len()).for_each(|(direction, rows)| job(direction, rows));
        });
    }

    /// What the cells of one row cost, in the units of [`parallel_for`].
    fn cell_work(&self) -> usize {
        self.places() * self.options.hidden_size / 3
    }
}
