//! Several schedules in one.

use super::cosine::{CosineAnnealingLrScheduler, CosineAnnealingLrSchedulerConfig};
use super::exponential::{ExponentialLrScheduler, ExponentialLrSchedulerConfig};
use super::linear::{LinearLrScheduler, LinearLrSchedulerConfig};
use super::noam::{NoamLrScheduler, NoamLrSchedulerConfig};
use super::one_cycle::{OneCycleLrScheduler, OneCycleLrSchedulerConfig};
use super::step::{StepLrScheduler, StepLrSchedulerConfig};
use super::{LrScheduler, LrSchedulerError};
use crate::LearningRate;
use kiln_core::config::Config;
use kiln_core::record::{Record, RecorderError};
use kiln_core::tensor::backend::Backend;

/// How the rates of several schedules become one.
#[derive(Config, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerReduction {
    /// Their mean.
    Avg,
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
}

/// Declares the schedules that can be parts, with the method that adds each.
macro_rules! parts {
    ($($variant:ident $method:ident $config:ident $scheduler:ident $record:ty,)*) => {
        /// The config of a part.
        #[derive(Config, Debug)]
        enum PartConfig {
            $($variant($config),)*
        }

        /// A part.
        #[derive(Clone, Debug)]
        enum Part {
            $($variant($scheduler),)*
        }

        /// Where a part is. The variants stand in Burn's order, by which formats without names know them.
        #[derive(Record, Clone, Debug)]
        pub enum PartRecord {
            $(
                #[doc = concat!("Of a [`", stringify!($scheduler), "`].")]
                $variant($record),
            )*
        }

        impl ComposedLrSchedulerConfig {
            $(
                #[doc = concat!("Adds a [`", stringify!($scheduler), "`].")]
                #[must_use]
                pub fn $method(mut self, config: $config) -> Self {
                    self.schedulers.push(PartConfig::$variant(config));
                    self
                }
            )*
        }

        impl PartConfig {
            fn init(&self) -> Result<Part, LrSchedulerError> {
                Ok(match self {
                    $(Self::$variant(config) => Part::$variant(config.init()?),)*
                })
            }
        }

        impl Part {
            fn step(&mut self) -> LearningRate {
                match self {
                    $(Self::$variant(part) => part.step(),)*
                }
            }

            fn to_record<B: Backend>(&self) -> PartRecord {
                match self {
                    $(Self::$variant(part) => PartRecord::$variant(part.to_record::<B>()),)*
                }
            }

            /// Whether a record is that of such a schedule.
            fn fits(&self, record: &PartRecord) -> bool {
                match (self, record) {
                    $((Self::$variant(_), PartRecord::$variant(_)))|* | (Self::Cosine(_), PartRecord::Linear(_)) => true,
                    _ => false,
                }
            }

            /// # Panics
            /// When the record is that of another schedule.
            fn load_record<B: Backend>(self, record: PartRecord) -> Self {
                match (self, record) {
                    $((Self::$variant(part), PartRecord::$variant(record)) => {
                        Self::$variant(part.load_record::<B>(record))
                    })*
                    // Burn writes that of a cosine so; both are numbers of steps.
                    (Self::Cosine(part), PartRecord::Linear(record)) => Self::Cosine(part.load_record::<B>(record)),
                    (part, record) => {
                        panic!("the record of a composed schedule has {record:?} where the schedule has {part:?}")
                    }
                }
            }
        }
    };
}

parts! {
    Linear linear LinearLrSchedulerConfig LinearLrScheduler usize,
    Cosine cosine CosineAnnealingLrSchedulerConfig CosineAnnealingLrScheduler usize,
    Exponential exponential ExponentialLrSchedulerConfig ExponentialLrScheduler f64,
    Noam noam NoamLrSchedulerConfig NoamLrScheduler usize,
    OneCycle one_cycle OneCycleLrSchedulerConfig OneCycleLrScheduler usize,
    Step step StepLrSchedulerConfig StepLrScheduler i32,
}

/// Config of [`ComposedLrScheduler`].
#[derive(Config, Debug)]
pub struct ComposedLrSchedulerConfig {
    #[config(default = "Vec::new()")]
    schedulers: Vec<PartConfig>,
    #[config(default = "SchedulerReduction::Prod")]
    reduction: SchedulerReduction,
}

impl ComposedLrSchedulerConfig {
    /// The scheduler.
    ///
    /// # Errors
    /// When a part's config describes no schedule.
    pub fn init(&self) -> Result<ComposedLrScheduler, LrSchedulerError> {
        let parts = self.schedulers.iter().map(PartConfig::init).collect::<Result<_, _>>()?;
        Ok(ComposedLrScheduler { parts, reduction: self.reduction })
    }
}

/// Several schedules that go on side by side.
#[derive(Clone, Debug)]
pub struct ComposedLrScheduler {
    parts: Vec<Part>,
    reduction: SchedulerReduction,
}

/// Where a [`ComposedLrScheduler`] is.
#[derive(Record, Clone, Debug)]
pub struct ComposedLrSchedulerRecord {
    /// Of each part.
    pub schedulers: Vec<PartRecord>,
}

impl LrScheduler for ComposedLrScheduler {
    type Record<B: Backend> = ComposedLrSchedulerRecord;

    fn step(&mut self) -> LearningRate {
        let count = self.parts.len();
        let rates = self.parts.iter_mut().map(Part::step);
        match self.reduction {
            SchedulerReduction::Avg => rates.sum::<f64>() / count.max(1) as f64,
            SchedulerReduction::Sum => rates.sum(),
            SchedulerReduction::Prod => rates.product(),
        }
    }

    fn to_record<B: Backend>(&self) -> ComposedLrSchedulerRecord {
        ComposedLrSchedulerRecord { schedulers: self.parts.iter().map(Part::to_record::<B>).collect() }
    }

    fn check_record<B: Backend>(&self, record: &ComposedLrSchedulerRecord) -> Result<(), RecorderError> {
        let (own, stored) = (self.parts.len(), record.schedulers.len());
        if own != stored {
            return Err(RecorderError::Unknown(format!(
                "the record is of a composed schedule of {stored} parts, and this one has {own}"
            )));
        }
        let mut parts = self.parts.iter().zip(&record.schedulers).enumerate();
        match parts.find(|(_, (part, record))| !part.fits(record)) {
            Some((n, (part, record))) => Err(RecorderError::Unknown(format!(
                "the record of a composed schedule has {record:?} as part {n}, where the schedule has {part:?}"
            ))),
            None => Ok(()),
        }
    }

    fn load_record<B: Backend>(mut self, record: ComposedLrSchedulerRecord) -> Self {
        let ComposedLrSchedulerRecord { schedulers } = record;
        assert_eq!(self.parts.len(), schedulers.len(), "the record is of a schedule with other parts");
        let parts = self.parts.into_iter().zip(schedulers);
        self.parts = parts.map(|(part, record)| part.load_record::<B>(record)).collect();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, rates};
    use super::*;

    #[test]
    fn parts_are_multiplied_summed_or_averaged() {
        let config = ComposedLrSchedulerConfig::new()
            .linear(LinearLrSchedulerConfig::new(0.5, 1.0, 2))
            .exponential(ExponentialLrSchedulerConfig::new(0.8, 0.5));
        let of = |reduction| rates(config.clone().with_reduction(reduction).init().expect("a schedule"), 3);
        assert_close(&of(SchedulerReduction::Prod), &[0.4, 0.3, 0.2]);
        assert_close(&of(SchedulerReduction::Sum), &[1.3, 1.15, 1.2]);
        assert_close(&of(SchedulerReduction::Avg), &[0.65, 0.575, 0.6]);
    }
}
