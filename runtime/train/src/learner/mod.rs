//! The learner: a training loop with metrics, checkpoints and a display.

mod base;
mod builder;
mod early_stopping;
mod epoch;
mod interrupter;
mod keeper;
mod metrics;
mod registration;
mod result;
mod summary;
mod worker;

pub use base::{Learner, LearningStrategy};
pub use builder::LearnerBuilder;
pub use early_stopping::{EarlyStoppingStrategy, MetricEarlyStoppingStrategy, StoppingCondition};
pub use interrupter::{Interrupter, TrainingInterrupter};
pub(crate) use metrics::{Metrics, check_names};
pub use registration::{MetricRegistration, TextMetricRegistration};
pub use result::TrainingResult;
pub use summary::{LearnerSummary, MetricSummary};
