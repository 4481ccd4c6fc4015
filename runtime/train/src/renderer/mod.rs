//! What shows a training.

mod plain;
#[cfg(feature = "tui")]
pub mod tui;

pub use plain::CliMetricsRenderer;
#[cfg(feature = "tui")]
pub use tui::TuiMetricsRenderer;

use crate::metric::{MetricDefinition, MetricEntry, NumericEntry};
use crate::{LearnerSummary, TrainingInterrupter};
use kiln_data::dataloader::Progress;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A metric's result of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricState {
    /// Of a metric that is only shown.
    Generic(MetricEntry),
    /// Of a metric that is a number.
    Numeric(MetricEntry, NumericEntry),
}

/// How far a training is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainingProgress {
    /// How far the epoch's training or validation is.
    pub progress: Progress,
    /// The epoch, from 1 on.
    pub epoch: usize,
    /// Epochs of the whole training.
    pub epoch_total: usize,
    /// Steps of the epoch so far.
    pub iteration: usize,
}

/// How far an evaluation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvaluationProgress {
    /// Items so far.
    pub progress: Progress,
    /// Batches so far.
    pub iteration: usize,
}

/// What an evaluation is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationName {
    name: Arc<String>,
}

impl EvaluationName {
    /// By what something prints.
    pub fn new<S: fmt::Display>(name: S) -> Self {
        Self { name: Arc::new(name.to_string()) }
    }
}

impl fmt::Display for EvaluationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Shows a training. It is told of each step from a thread of its own: first each metric's result, then how far it is.
///
/// A method that is not written does nothing, so that both spellings compile: Burn's book has the first four here, Burn 0.20
/// has them in [`MetricsRendererTraining`], and here only the last two.
pub trait MetricsRenderer: Send + Sync {
    /// A metric's result of a step of training.
    fn update_train(&mut self, _state: MetricState) {}

    /// A metric's result of a step of validation.
    fn update_valid(&mut self, _state: MetricState) {}

    /// All results of a step of training are there.
    fn render_train(&mut self, _item: TrainingProgress) {}

    /// All results of a step of validation are there.
    fn render_valid(&mut self, _item: TrainingProgress) {}

    /// The training is over. The summary is there if it was asked for; it is printed, unless this is overridden.
    ///
    /// # Errors
    /// When something could not be shown; the training is over all the same.
    fn on_train_end(&mut self, summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        print_summary(summary)
    }

    /// A metric's result of a batch of an evaluation.
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}

    /// All results of a batch of an evaluation are there.
    fn render_test(&mut self, _item: EvaluationProgress) {}

    /// An evaluation is over.
    ///
    /// # Errors
    /// When something could not be shown.
    fn on_test_end(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    /// Nothing more is to be shown.
    fn manual_close(&mut self) {}

    /// Tells of a metric, before there are results of it.
    fn register_metric(&mut self, _definition: MetricDefinition) {}
}

/// The part of a renderer that shows trainings, as Burn 0.20 has it; see [`MetricsRenderer`].
pub trait MetricsRendererTraining: Send + Sync {
    /// A metric's result of a step of training.
    fn update_train(&mut self, state: MetricState);

    /// A metric's result of a step of validation.
    fn update_valid(&mut self, state: MetricState);

    /// All results of a step of training are there.
    fn render_train(&mut self, item: TrainingProgress);

    /// All results of a step of validation are there.
    fn render_valid(&mut self, item: TrainingProgress);

    /// [`MetricsRenderer::on_train_end`].
    ///
    /// # Errors
    /// As there.
    fn on_train_end(&mut self, summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        print_summary(summary)
    }
}

/// The part of a renderer that shows evaluations, as Burn 0.20 has it; see [`MetricsRenderer`].
pub trait MetricsRendererEvaluation: Send + Sync {
    /// A metric's result of a batch.
    fn update_test(&mut self, name: EvaluationName, state: MetricState);

    /// All results of a batch are there.
    fn render_test(&mut self, item: EvaluationProgress);

    /// The evaluation is over.
    ///
    /// # Errors
    /// When something could not be shown.
    fn on_test_end(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(())
    }
}

fn print_summary(summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
    if let Some(summary) = summary {
        println!("{summary}");
    }
    Ok(())
}

/// A renderer with all methods in [`MetricsRenderer`] has its parts too.
macro_rules! with_parts {
    ($renderer:ty) => {
        impl MetricsRendererTraining for $renderer {
            fn update_train(&mut self, state: MetricState) {
                MetricsRenderer::update_train(self, state);
            }

            fn update_valid(&mut self, state: MetricState) {
                MetricsRenderer::update_valid(self, state);
            }

            fn render_train(&mut self, item: TrainingProgress) {
                MetricsRenderer::render_train(self, item);
            }

            fn render_valid(&mut self, item: TrainingProgress) {
                MetricsRenderer::render_valid(self, item);
            }

            fn on_train_end(&mut self, summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
                MetricsRenderer::on_train_end(self, summary)
            }
        }

        impl MetricsRendererEvaluation for $renderer {
            fn update_test(&mut self, name: EvaluationName, state: MetricState) {
                MetricsRenderer::update_test(self, name, state);
            }

            fn render_test(&mut self, item: EvaluationProgress) {
                MetricsRenderer::render_test(self, item);
            }

            fn on_test_end(&mut self) -> Result<(), Box<dyn Error>> {
                MetricsRenderer::on_test_end(self)
            }
        }
    };
}

with_parts!(CliMetricsRenderer);
#[cfg(feature = "tui")]
with_parts!(TuiMetricsRenderer);

/// A dashboard on a terminal, plain lines elsewhere.
#[cfg_attr(not(feature = "tui"), allow(unused_variables))]
pub(crate) fn default_renderer(interrupter: &TrainingInterrupter) -> Box<dyn MetricsRenderer> {
    #[cfg(feature = "tui")]
    if std::io::IsTerminal::is_terminal(&std::io::stdout())
        && let Ok(renderer) = TuiMetricsRenderer::new(interrupter.clone())
    {
        return Box::new(renderer);
    }
    Box::new(CliMetricsRenderer::new())
}
