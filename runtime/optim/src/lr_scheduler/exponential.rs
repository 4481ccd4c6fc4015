//! A rate that is multiplied at each step.

use super::{LrScheduler, LrSchedulerError, check_rate};
use crate::LearningRate;
use kiln_core::config::Config;
use kiln_core::tensor::backend::Backend;

/// Config of [`ExponentialLrScheduler`].
#[derive(Config, Debug)]
pub struct ExponentialLrSchedulerConfig {
    /// The first rate.
    initial_lr: LearningRate,
    /// What each rate is multiplied by to yield the next.
    gamma: f64,
}

impl ExponentialLrSchedulerConfig {
    /// The scheduler.
    ///
    /// # Errors
    /// When the rate or the factor is out of range.
    pub fn init(&self) -> Result<ExponentialLrScheduler, LrSchedulerError> {
        const NAME: &str = "ExponentialLrScheduler";
        check_rate(NAME, "initial_lr", self.initial_lr)?;
        check_rate(NAME, "gamma", self.gamma)?;
        // As if there had been a step before the first.
        Ok(ExponentialLrScheduler { last: self.initial_lr / self.gamma, gamma: self.gamma })
    }
}

/// `initial · gamma^t`
#[derive(Clone, Copy, Debug)]
pub struct ExponentialLrScheduler {
    /// The rate of the step that was taken last.
    last: LearningRate,
    gamma: f64,
}

impl LrScheduler for ExponentialLrScheduler {
    type Record<B: Backend> = LearningRate;

    fn step(&mut self) -> LearningRate {
        self.last *= self.gamma;
        self.last
    }

    fn to_record<B: Backend>(&self) -> LearningRate {
        self.last
    }

    fn load_record<B: Backend>(mut self, record: LearningRate) -> Self {
        self.last = record;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, rates};
    use super::*;

    #[test]
    fn it_falls_by_a_factor() {
        let scheduler = ExponentialLrSchedulerConfig::new(0.8, 0.5).init().expect("a schedule");
        assert_close(&rates(scheduler, 4), &[0.8, 0.4, 0.2, 0.1]);
        assert!(ExponentialLrSchedulerConfig::new(0.8, 1.5).init().is_err());
    }
}
