//! A straight line from one rate to another.

use super::{LrScheduler, LrSchedulerError, check_rate, check_steps};
use crate::LearningRate;
use kiln_core::config::Config;
use kiln_core::record::RecorderError;
use kiln_core::tensor::backend::Backend;

/// Config of [`LinearLrScheduler`].
#[derive(Config, Debug)]
pub struct LinearLrSchedulerConfig {
    /// The first rate.
    initial_lr: LearningRate,
    /// The rate at the end, which then stays.
    final_lr: LearningRate,
    /// Steps from the first rate to the last.
    num_iters: usize,
}

impl LinearLrSchedulerConfig {
    /// The scheduler.
    ///
    /// # Errors
    /// When a rate is out of range, or the line has no steps.
    pub fn init(&self) -> Result<LinearLrScheduler, LrSchedulerError> {
        const NAME: &str = "LinearLrScheduler";
        check_rate(NAME, "initial_lr", self.initial_lr)?;
        if !(0.0..=1.0).contains(&self.final_lr) {
            let rule = "at least 0 and at most 1";
            return Err(LrSchedulerError { scheduler: NAME, field: "final_lr", value: self.final_lr, rule });
        }
        check_steps(NAME, "num_iters", self.num_iters)?;
        Ok(LinearLrScheduler {
            final_lr: self.final_lr,
            slope: (self.initial_lr - self.final_lr) / self.num_iters as f64,
            length: self.num_iters.saturating_add(1),
            remaining: self.num_iters.saturating_add(1),
        })
    }
}

/// From one rate to another in equal steps: a warm-up, or a decay.
#[derive(Clone, Copy, Debug)]
pub struct LinearLrScheduler {
    final_lr: LearningRate,
    /// What a step takes away.
    slope: f64,
    /// All steps to the last rate.
    length: usize,
    /// Steps from the one that was taken last to the last rate.
    remaining: usize,
}

impl LrScheduler for LinearLrScheduler {
    type Record<B: Backend> = usize;

    fn step(&mut self) -> LearningRate {
        self.remaining = self.remaining.saturating_sub(1);
        self.final_lr + self.slope * self.remaining as f64
    }

    fn to_record<B: Backend>(&self) -> usize {
        self.remaining
    }

    fn check_record<B: Backend>(&self, record: &usize) -> Result<(), RecorderError> {
        if *record > self.length {
            return Err(RecorderError::Unknown(format!(
                "the record of a linear schedule has {} iterations to go, and this one has {}: give it as many as it had",
                record - 1,
                self.length - 1
            )));
        }
        Ok(())
    }

    fn load_record<B: Backend>(mut self, record: usize) -> Self {
        // Beyond its first rate it would go on in a line.
        self.remaining = record.min(self.length);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, rates};
    use super::*;

    #[test]
    fn it_rises_or_falls_and_stays() {
        let down = LinearLrSchedulerConfig::new(0.9, 0.5, 4).init().expect("a schedule");
        assert_close(&rates(down, 7), &[0.9, 0.8, 0.7, 0.6, 0.5, 0.5, 0.5]);
        let up = LinearLrSchedulerConfig::new(0.1, 0.5, 2).init().expect("a schedule");
        assert_close(&rates(up, 4), &[0.1, 0.3, 0.5, 0.5]);
    }
}
