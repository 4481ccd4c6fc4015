//! Up, and further down.

use super::{LrScheduler, LrSchedulerError, check_rate, check_steps};
use crate::LearningRate;
use kiln_core::config::Config;
use kiln_core::tensor::backend::Backend;

/// Config of [`OneCycleLrScheduler`].
#[derive(Config, Debug)]
pub struct OneCycleLrSchedulerConfig {
    /// The highest rate.
    max_lr: LearningRate,
    /// Steps of the whole cycle; the last rate then stays.
    num_iters: usize,
    /// The part of the cycle in which the rate rises.
    #[config(default = 0.3)]
    warmup: f64,
    /// The first rate is the highest over this.
    #[config(default = 25.0)]
    div_factor: f64,
    /// The last rate is the first over this.
    #[config(default = 1e4)]
    final_div_factor: f64,
}

impl OneCycleLrSchedulerConfig {
    /// The scheduler.
    ///
    /// # Errors
    /// When the rate, the part or a factor is out of range, or the cycle has no steps.
    pub fn init(&self) -> Result<OneCycleLrScheduler, LrSchedulerError> {
        const NAME: &str = "OneCycleLrScheduler";
        check_rate(NAME, "max_lr", self.max_lr)?;
        check_rate(NAME, "warmup", self.warmup)?;
        check_steps(NAME, "num_iters", self.num_iters)?;
        for (field, value) in [("div_factor", self.div_factor), ("final_div_factor", self.final_div_factor)] {
            if value.is_nan() || value < 1.0 {
                return Err(LrSchedulerError { scheduler: NAME, field, value, rule: "at least 1" });
            }
        }
        let initial = self.max_lr / self.div_factor;
        Ok(OneCycleLrScheduler {
            rates: [initial, self.max_lr, initial / self.final_div_factor],
            peak: self.warmup * self.num_iters as f64 - 1.0,
            last: self.num_iters as f64 - 1.0,
            next: 0,
        })
    }
}

/// Half a cosine up to the highest rate and half a cosine down (Smith & Topin, "Super-Convergence", 2018), as in
/// `torch.optim.lr_scheduler.OneCycleLR`.
#[derive(Clone, Copy, Debug)]
pub struct OneCycleLrScheduler {
    /// The first, the highest and the last rate.
    rates: [LearningRate; 3],
    /// The step of the highest rate; a fraction between two steps.
    peak: f64,
    /// The step of the last rate.
    last: f64,
    /// The step that comes next.
    next: usize,
}

impl LrScheduler for OneCycleLrScheduler {
    type Record<B: Backend> = usize;

    fn step(&mut self) -> LearningRate {
        let step = (self.next as f64).min(self.last);
        self.next = self.next.saturating_add(1);
        let [first, highest, last] = self.rates;
        let between = |from: f64, to: f64, part: f64| {
            to + 0.5 * (from - to) * (1.0 + (part.clamp(0.0, 1.0) * std::f64::consts::PI).cos())
        };
        if step <= self.peak && self.peak > 0.0 {
            between(first, highest, step / self.peak)
        } else {
            let length = self.last - self.peak;
            between(highest, last, if length > 0.0 { (step - self.peak) / length } else { 1.0 })
        }
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

    /// `OneCycleLR(SGD([p], lr=1), max_lr=0.5, total_steps=6, pct_start=0.5, div_factor=5, final_div_factor=10)`, 2.15.
    #[test]
    fn it_is_pytorchs() {
        let config = OneCycleLrSchedulerConfig::new(0.5, 6)
            .with_warmup(0.5)
            .with_div_factor(5.0)
            .with_final_div_factor(10.0);
        let found = rates(config.init().expect("a schedule"), 8);
        assert_close(&found, &[0.1, 0.3, 0.5, 0.3775, 0.1325, 0.01, 0.01, 0.01]);
    }
}
