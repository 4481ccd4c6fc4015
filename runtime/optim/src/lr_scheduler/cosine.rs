//! Half a cosine from one rate to another, again and again.

use super::{LrScheduler, LrSchedulerError, check_rate, check_steps};
use crate::LearningRate;
use kiln_core::config::Config;
use kiln_core::tensor::backend::Backend;

/// Config of [`CosineAnnealingLrScheduler`].
#[derive(Config, Debug)]
pub struct CosineAnnealingLrSchedulerConfig {
    /// The first rate.
    initial_lr: LearningRate,
    /// The last rate of a cycle.
    #[config(default = 0.0)]
    min_lr: LearningRate,
    /// Steps from the first rate to the last; the next step begins a new cycle.
    num_iters: usize,
}

impl CosineAnnealingLrSchedulerConfig {
    /// The scheduler.
    ///
    /// # Errors
    /// When a rate is out of range, the last rate above the first, or the cycle empty.
    pub fn init(&self) -> Result<CosineAnnealingLrScheduler, LrSchedulerError> {
        const NAME: &str = "CosineAnnealingLrScheduler";
        check_rate(NAME, "initial_lr", self.initial_lr)?;
        check_steps(NAME, "num_iters", self.num_iters)?;
        if !(0.0..=self.initial_lr).contains(&self.min_lr) {
            let rule = "at least 0 and at most `initial_lr`";
            return Err(LrSchedulerError { scheduler: NAME, field: "min_lr", value: self.min_lr, rule });
        }
        Ok(CosineAnnealingLrScheduler {
            initial_lr: self.initial_lr,
            min_lr: self.min_lr,
            num_iters: self.num_iters,
            last: usize::MAX,
        })
    }
}

/// `min + (initial - min) (1 + cos(π t / n)) / 2` (Loshchilov & Hutter, "SGDR", 2017, equation 5).
#[derive(Clone, Copy, Debug)]
pub struct CosineAnnealingLrScheduler {
    initial_lr: LearningRate,
    min_lr: LearningRate,
    num_iters: usize,
    /// The step that was taken last, within its cycle; the largest number before the first.
    last: usize,
}

impl LrScheduler for CosineAnnealingLrScheduler {
    type Record<B: Backend> = usize;

    fn step(&mut self) -> LearningRate {
        // Behind the end of the cycle, and from the largest number, the first step follows.
        self.last = self.last.checked_add(1).filter(|step| *step <= self.num_iters).unwrap_or(0);
        let part = self.last as f64 / self.num_iters as f64;
        let above = 0.5 * (self.initial_lr - self.min_lr) * (1.0 + (part * std::f64::consts::PI).cos());
        self.min_lr + above
    }

    fn to_record<B: Backend>(&self) -> usize {
        self.last
    }

    fn load_record<B: Backend>(mut self, record: usize) -> Self {
        self.last = record;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, rates};
    use super::*;

    #[test]
    fn it_falls_and_begins_anew() {
        let config = CosineAnnealingLrSchedulerConfig::new(0.5, 2).with_min_lr(0.1);
        let found = rates(config.init().expect("a schedule"), 5);
        assert_close(&found, &[0.5, 0.3, 0.1, 0.5, 0.3]);
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for config in [
            CosineAnnealingLrSchedulerConfig::new(0.0, 2),
            CosineAnnealingLrSchedulerConfig::new(1.5, 2),
            CosineAnnealingLrSchedulerConfig::new(f64::NAN, 2),
            CosineAnnealingLrSchedulerConfig::new(0.5, 0),
            CosineAnnealingLrSchedulerConfig::new(0.5, 2).with_min_lr(0.6),
            CosineAnnealingLrSchedulerConfig::new(0.5, 2).with_min_lr(-0.1),
        ] {
            assert!(config.init().is_err(), "{config}");
        }
    }
}
