//! A rate that falls every so many steps.

use super::{LrScheduler, LrSchedulerError, check_rate, check_steps};
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
    /// When a rate or the factor is out of range, or a stair has no steps.
    pub fn init(&self) -> Result<StepLrScheduler, LrSchedulerError> {
        const NAME: &str = "StepLrScheduler";
        check_rate(NAME, "initial_lr", self.initial_lr)?;
        check_rate(NAME, "gamma", self.gamma)?;
        check_steps(NAME, "step_size", self.step_size)?;
        let &Self { initial_lr, step_size, gamma } = self;
        Ok(StepLrScheduler { initial_lr, step_size, gamma, next: 0 })
    }
}

/// `initial · gamma^⌊t / size⌋`
#[derive(Clone, Copy, Debug)]
pub struct StepLrScheduler {
    initial_lr: LearningRate,
    step_size: usize,
    gamma: f64,
    /// The step that comes next.
    next: usize,
}

impl LrScheduler for StepLrScheduler {
    type Record<B: Backend> = usize;

    fn step(&mut self) -> LearningRate {
        let stairs = (self.next / self.step_size) as f64;
        self.next += 1;
        self.initial_lr * self.gamma.powf(stairs)
    }

    fn to_record<B: Backend>(&self) -> usize {
        self.next
    }

    fn load_record<B: Backend>(mut self, record: usize) -> Self {
        self.next = record;
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
    }
}
