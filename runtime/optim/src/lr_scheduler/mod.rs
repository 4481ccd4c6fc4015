//! Learning-rate schedulers: the learning rate of each step.
//!
//! A number is a scheduler too: the rate that never changes.
//!
//! Records are Burn's: they hold where the step was that was taken last, also where none was taken yet, and Burn goes on from there.

pub mod composed;
pub mod constant;
pub mod cosine;
pub mod exponential;
pub mod linear;
pub mod noam;
pub mod one_cycle;
pub mod step;

use crate::LearningRate;
use kiln_core::record::{Record, RecorderError};
use kiln_core::tensor::backend::Backend;

/// The learning rate of each step of a training.
pub trait LrScheduler: Clone + Send + Sync {
    /// Where in its schedule it is, to store beside a checkpoint.
    type Record<B: Backend>: Record<B>;

    /// The learning rate of the next step.
    fn step(&mut self) -> LearningRate;

    /// Where in its schedule it is.
    fn to_record<B: Backend>(&self) -> Self::Record<B>;

    /// Whether a record can be that of this scheduler.
    ///
    /// # Errors
    /// When it is of another one, with what is different.
    fn check_record<B: Backend>(&self, _record: &Self::Record<B>) -> Result<(), RecorderError> {
        Ok(())
    }

    /// The scheduler as it was when the record was made.
    #[must_use]
    fn load_record<B: Backend>(self, record: Self::Record<B>) -> Self;
}

/// A config that describes no schedule.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{scheduler}: {field} is {value}, and must be {rule}")]
pub struct LrSchedulerError {
    /// The scheduler.
    pub scheduler: &'static str,
    /// The config's field.
    pub field: &'static str,
    /// Its value.
    pub value: f64,
    /// What it has to be.
    pub rule: &'static str,
}

/// Refuses a learning rate that is not between 0 and 1.
fn check_rate(scheduler: &'static str, field: &'static str, value: f64) -> Result<(), LrSchedulerError> {
    if value > 0.0 && value <= 1.0 {
        return Ok(());
    }
    Err(LrSchedulerError { scheduler, field, value, rule: "above 0 and at most 1" })
}

/// Refuses a number of steps that is 0.
fn check_steps(scheduler: &'static str, field: &'static str, value: usize) -> Result<(), LrSchedulerError> {
    if value > 0 {
        return Ok(());
    }
    Err(LrSchedulerError { scheduler, field, value: 0.0, rule: "at least 1" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ndarray::NdArray;

    /// The rates of the first steps, which are the same after a record was made and loaded on the way.
    pub(super) fn rates<S: LrScheduler>(scheduler: S, count: usize) -> Vec<f64> {
        let mut plain = scheduler.clone();
        let rates: Vec<f64> = (0..count).map(|_| plain.step()).collect();
        for before in 0..count {
            let mut first = scheduler.clone();
            for _ in 0..before {
                first.step();
            }
            let record = first.to_record::<NdArray>();
            let mut resumed = scheduler.clone().load_record::<NdArray>(record);
            let rest: Vec<f64> = (before..count).map(|_| resumed.step()).collect();
            assert_eq!(rest, rates[before..], "resumed after {before} steps");
        }
        rates
    }

    pub(super) fn assert_close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() <= 1e-12, "{found:?} instead of {expected:?}");
        }
    }
}
