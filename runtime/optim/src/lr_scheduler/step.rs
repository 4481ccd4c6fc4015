//! A rate that falls every so many steps.

use super::{LrScheduler, LrSchedulerError, check_steps};
use crate::LearningRate;
use kiln_core::config::Config;
use kiln_core::tensor::backend::Backend;

/// Config of [`StepLrScheduler`].
#[derive(Config, Debug)]
pub struct StepLrSchedulerConfig {
    /// The first rate.
    initial_lr: LearningRate,
    /// How many steps have one rate.
    step_size: usize,
    /// What the rate is multiplied by then.
    #[config(default = 0.1)]
    gamma: f64,
}

impl StepLrSchedulerConfig {
    /// The scheduler.
    ///
    /// # Errors
    /// When a stair has no steps. Any rate and any factor are taken: a rate that rises may be what is looked for.
    pub fn init(&self) -> Result<StepLrScheduler, LrSchedulerError> {
        const NAME: &str = "StepLrScheduler";
        check_steps(NAME, "step_size", self.step_size)?;
        let &Self { initial_lr, step_size, gamma } = self;
        Ok(StepLrScheduler { initial_lr, step_size, gamma, last: -1 })
    }
}

/// `initial · gamma^⌊t / size⌋`
#[derive(Clone, Copy, Debug)]
pub struct StepLrScheduler {
    initial_lr: LearningRate,
    step_size: usize,
    gamma: f64,
    /// The step that was taken last; -1 before the first.
    last: i32,
}

impl LrScheduler for StepLrScheduler {
    type Record<B: Backend> = i32;

    fn step(&mut self) -> LearningRate {
        self.last = self.last.saturating_add(1);
        // A record with a step before all others is taken for the first one.
        let stairs = usize::try_from(self.last).unwrap_or(0) / self.step_size;
        self.initial_lr * self.gamma.powi(i32::try_from(stairs).unwrap_or(i32::MAX))
    }

    fn to_record<B: Backend>(&self) -> i32 {
        self.last
    }

    fn load_record<B: Backend>(mut self, record: i32) -> Self {
        self.last = record;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, rates};
    use super::*;

    #[test]
    fn it_falls_in_stairs() {
        let scheduler = StepLrSchedulerConfig::new(0.8, 2).with_gamma(0.5).init().expect("a schedule");
        assert_close(&rates(scheduler, 5), &[0.8, 0.8, 0.4, 0.4, 0.2]);
        let rising = StepLrSchedulerConfig::new(3.1, 1).with_gamma(2.0).init().expect("a schedule");
        assert_close(&rates(rising, 3), &[3.1, 6.2, 12.4]);
        assert!(StepLrSchedulerConfig::new(0.8, 0).init().is_err());
    }
}
