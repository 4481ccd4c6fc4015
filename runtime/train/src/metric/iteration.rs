//! [`IterationSpeedMetric`].

use super::{
    FormatOptions, Metric, MetricEntry, MetricMetadata, MetricName, Numeric, NumericEntry, NumericMetricState,
};
use std::time::Instant;

/// Steps a second, over the epoch so far.
#[derive(Clone, Debug)]
pub struct IterationSpeedMetric {
    name: MetricName,
    state: NumericMetricState,
    /// The first step of the epoch that was seen, and when that was.
    start: Option<(usize, Instant)>,
}

impl Default for IterationSpeedMetric {
    fn default() -> Self {
        Self::new()
    }
}

impl IterationSpeedMetric {
    /// The metric.
    pub fn new() -> Self {
        let name = MetricName::new("Iteration Speed".to_owned());
        Self { name, state: NumericMetricState::new(), start: None }
    }
}

impl Metric for IterationSpeedMetric {
    type Input = ();

    fn name(&self) -> impl Into<MetricName> {
        self.name.clone()
    }

    fn update(&mut self, (): &(), metadata: &MetricMetadata) -> impl Into<MetricEntry> {
        let (first, since) = *self.start.get_or_insert_with(|| (metadata.iteration, Instant::now()));
        let seconds = since.elapsed().as_secs_f64();
        let steps = metadata.iteration.saturating_sub(first);
        let speed = if seconds > 0.0 { steps as f64 / seconds } else { 0.0 };
        let format = FormatOptions::new(self.name.clone()).unit("iter/sec").precision(2);
        let formatted = format.format(speed);
        let entry: MetricEntry = self.state.update(speed, 1, format);
        MetricEntry { formatted, ..entry }
    }

    fn clear(&mut self) {
        self.state.reset();
        self.start = None;
    }
}

impl Numeric for IterationSpeedMetric {
    fn value(&self) -> impl Into<NumericEntry> {
        self.state.current_value()
    }
}
