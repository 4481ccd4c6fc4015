//! What one model may cost: a file of a few kilobytes must not ask for gigabytes or hours.
//!
//! Whoever makes constants, computes with them or repeats nodes takes it from the model's budget first: operators that
//! write tables, sparse tensors, functions and loops that are written out, folding. What a file may ask for grows with its
//! size; a little is free.

use std::sync::atomic::{AtomicU64, Ordering};

/// What may still be taken of something.
#[derive(Debug)]
pub struct Allowance(AtomicU64);

impl Allowance {
    fn of(amount: u64) -> Self {
        Self(AtomicU64::new(amount))
    }

    /// Takes an amount; nothing, and `false`, when less is left.
    #[must_use]
    pub fn take(&self, amount: u64) -> bool {
        let rest = |left: u64| left.checked_sub(amount);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }

    /// How much is left.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, amount: u64) {
        let more = |left: u64| Some(left.saturating_add(amount));
        // Something is always stored.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

impl Clone for Allowance {
    fn clone(&self) -> Self {
        Self::of(self.left())
    }
}

/// What a model may still cost.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Bytes of constants.
    pub bytes: Allowance,
    /// Elements that are looked at to compute constants.
    pub elements: Allowance,
    /// Steps of reading the file: nodes, operands, attributes, and those again that functions and loops repeat.
    pub steps: Allowance,
}

impl Budget {
    /// What a model may cost whose file has so many bytes.
    pub fn of_file(bytes: u64) -> Self {
        let free = [1 << 27, 1 << 22, 1 << 21].map(Allowance::of);
        let [constants, elements, steps] = free;
        let budget = Self { bytes: constants, elements, steps };
        budget.grow(bytes);
        budget
    }

    /// Allows what so many bytes more may ask for: those of a file that holds a model's data.
    pub fn grow(&self, bytes: u64) {
        /// Of constants and elements: one byte may stand for eight (a varint), and each weight may be widened and laid out
        /// anew.
        const DATA: u64 = 16;
        /// A node takes about one step a byte; some of its bytes may be read a few times.
        const STEPS: u64 = 4;
        self.bytes.add(bytes.saturating_mul(DATA));
        self.elements.add(bytes.saturating_mul(DATA));
        self.steps.add(bytes.saturating_mul(STEPS));
    }
}

impl Default for Budget {
    /// A graph that no file asked for costs what its maker wants.
    fn default() -> Self {
        let unlimited = || Allowance::of(u64::MAX);
        Self { bytes: unlimited(), elements: unlimited(), steps: unlimited() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_cannot_be_taken() {
        let budget = Budget::of_file(1);
        assert!(budget.bytes.take(1 << 27) && budget.bytes.take(16) && !budget.bytes.take(1));
        assert!(Budget::of_file(u64::MAX).elements.take(u64::MAX));
    }
}
