//! [`LearningRateMetric`].

use super::{
    FormatOptions, Metric, MetricEntry, MetricMetadata, MetricName, Numeric, NumericEntry, NumericMetricState,
};

/// The learning rate of each step.
#[derive(Clone, Debug)]
pub struct LearningRateMetric {
    name: MetricName,
    state: NumericMetricState,
}

impl Default for LearningRateMetric {
    fn default() -> Self {
        Self::new()
    }
}

impl LearningRateMetric {
    /// The metric.
    pub fn new() -> Self {
        Self { name: MetricName::new("Learning Rate".to_owned()), state: NumericMetricState::new() }
    }
}

impl Metric for LearningRateMetric {
    type Input = ();

    fn name(&self) -> impl Into<MetricName> {
        self.name.clone()
    }

    fn update(&mut self, (): &(), metadata: &MetricMetadata) -> impl Into<MetricEntry> {
        let lr = metadata.lr.unwrap_or(0.0);
        let format = FormatOptions::new(self.name.clone()).precision(6);
        let formatted = format.format(lr);
        let entry: MetricEntry = self.state.update(lr, 1, format);
        MetricEntry { formatted, ..entry }
    }

    fn clear(&mut self) {
        self.state.reset();
    }
}

impl Numeric for LearningRateMetric {
    fn value(&self) -> impl Into<NumericEntry> {
        self.state.current_value()
    }

    fn running_value(&self) -> impl Into<NumericEntry> {
        self.state.running_value()
    }
}
