//! The learner as Burn 0.20 spells it, where its book (0.18) has [`LearnerBuilder`](crate::LearnerBuilder): the loaders come
//! first, and what a step takes and yields are associated types.
//!
//! ```ignore
//! let training = SupervisedTraining::new(folder, dataloader_train, dataloader_valid)
//!     .metrics((AccuracyMetric::new(), LossMetric::new()))
//!     .num_epochs(10)
//!     .summary();
//! let result = training.launch(Learner::new(model, AdamConfig::new().init(), 1e-3));
//! ```
//!
//! Both spellings are one training: a model with the [`TrainStep`] of this module has that of the book too, and
//! [`SupervisedTraining`] takes models with either. Three names mean another thing in each, so that only one of both can stand in
//! `kiln::train`: `TrainStep`, `Learner` and `logger::MetricLogger`. Those are the book's, unless the feature `burn-0-20` of the crate `kiln` says
//! otherwise; here are always those of 0.20.

mod evaluator;
mod logger;
mod renderer;
mod step;
mod training;

pub use crate::LearnerSummary;
pub use evaluator::{EvalMetricRegistration, EvalTextMetricRegistration, Evaluator, EvaluatorBuilder};
pub use logger::{EpochSummary, LoggedEntry, MetricLogger, MetricsUpdate, NumericMetricUpdate};
pub use step::{InferenceStep, TrainStep};
pub use training::{Learner, LearningResult, MultiDeviceOptim, SupervisedTraining, TrainingStrategy};
