//! What shows a training.

mod plain;
#[cfg(feature = "tui")]
mod tui;

pub use plain::CliMetricsRenderer;
#[cfg(feature = "tui")]
pub use tui::TuiMetricsRenderer;

use crate::metric::{MetricEntry, NumericEntry};
use crate::{LearnerSummary, TrainingInterrupter};
use kiln_data::dataloader::Progress;
use std::error::Error;

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

/// Shows a training. It is told of each step from a thread of its own: first each metric's result, then how far it is.
pub trait MetricsRenderer: Send + Sync {
    /// A metric's result of a step of training.
    fn update_train(&mut self, state: MetricState);

    /// A metric's result of a step of validation.
    fn update_valid(&mut self, state: MetricState);

    /// All results of a step of training are there.
    fn render_train(&mut self, item: TrainingProgress);

    /// All results of a step of validation are there.
    fn render_valid(&mut self, item: TrainingProgress);

    /// The training is over. The summary is there if it was asked for; it is printed, unless this is overridden.
    ///
    /// # Errors
    /// When something could not be shown; the training is over all the same.
    fn on_train_end(&mut self, summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        if let Some(summary) = summary {
            println!("{summary}");
        }
        Ok(())
    }
}

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
