//! A renderer of three parts as one.

use crate::LearnerSummary;
use crate::metric::MetricDefinition;
use crate::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, TrainingProgress,
};
use std::error::Error;

/// A renderer that has its methods in the traits of Burn 0.20, as one with all of them in [`MetricsRenderer`].
pub(super) struct Parts<R>(pub(super) R);

impl<R> MetricsRenderer for Parts<R>
where
    R: MetricsRenderer + MetricsRendererTraining + MetricsRendererEvaluation,
{
    fn update_train(&mut self, state: MetricState) {
        MetricsRendererTraining::update_train(&mut self.0, state);
    }

    fn update_valid(&mut self, state: MetricState) {
        MetricsRendererTraining::update_valid(&mut self.0, state);
    }

    fn update_test(&mut self, name: EvaluationName, state: MetricState) {
        MetricsRendererEvaluation::update_test(&mut self.0, name, state);
    }

    fn render_train(&mut self, item: TrainingProgress) {
        MetricsRendererTraining::render_train(&mut self.0, item);
    }

    fn render_valid(&mut self, item: TrainingProgress) {
        MetricsRendererTraining::render_valid(&mut self.0, item);
    }

    fn render_test(&mut self, item: EvaluationProgress) {
        MetricsRendererEvaluation::render_test(&mut self.0, item);
    }

    fn on_train_end(&mut self, summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        MetricsRendererTraining::on_train_end(&mut self.0, summary)
    }

    fn on_test_end(&mut self) -> Result<(), Box<dyn Error>> {
        MetricsRendererEvaluation::on_test_end(&mut self.0)
    }

    fn manual_close(&mut self) {
        self.0.manual_close();
    }

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.0.register_metric(definition);
    }
}
