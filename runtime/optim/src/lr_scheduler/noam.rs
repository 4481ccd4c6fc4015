//! The Transformer's schedule.

use super::{LrScheduler, LrSchedulerError, check_steps};
use crate::LearningRate;
use kiln_core::config::Config;
use kiln_core::tensor::backend::Backend;

/// Config of [`NoamLrScheduler`].
#[derive(Config, Debug)]
pub struct NoamLrSchedulerConfig {
    /// A factor on all rates.
    factor: LearningRate,
    /// Steps in which the rate rises.
    #[config(default = 4000)]
    warmup_steps: usize,
    /// The model's width.
    #[config(default = 512)]
    model_size: usize,
}

impl NoamLrSchedulerConfig {
    /// The scheduler.
    ///
    /// # Errors
    /// When the warm-up or the model has no size.
    pub fn init(&self) -> Result<NoamLrScheduler, LrSchedulerError> {
        const NAME: &str = "NoamLrScheduler";
        check_steps(NAME, "warmup_steps", self.warmup_steps)?;
        check_steps(NAME, "model_size", self.model_size)?;
        let (warmup, size) = (self.warmup_steps as f64, self.model_size as f64);
        Ok(NoamLrScheduler { scale: self.factor / size.sqrt(), warmup, step: 0 })
    }
}

/// `factor · size^-½ · min(t^-½, t · warmup^-1½)` (Vaswani et al., "Attention Is All You Need", 2017, equation 3).
#[derive(Clone, Copy, Debug)]
pub struct NoamLrScheduler {
    scale: f64,
    warmup: f64,
    /// Steps so far.
    step: usize,
}

impl LrScheduler for NoamLrScheduler {
    type Record<B: Backend> = usize;

    fn step(&mut self) -> LearningRate {
        self.step = self.step.saturating_add(1);
        let step = self.step as f64;
        self.scale * step.powf(-0.5).min(step * self.warmup.powf(-1.5))
    }

    fn to_record<B: Backend>(&self) -> usize {
        self.step
    }

    fn load_record<B: Backend>(mut self, record: usize) -> Self {
        self.step = record;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, rates};
    use super::*;

    #[test]
    fn it_rises_in_a_line_and_falls_with_the_root() {
        let config = NoamLrSchedulerConfig::new(0.5).with_warmup_steps(4).with_model_size(16);
        let found = rates(config.init().expect("a schedule"), 16);
        assert_close(&found[..4], &[0.015_625, 0.031_25, 0.046_875, 0.0625]);
        assert_close(&found[15..], &[0.031_25]);
    }
}
