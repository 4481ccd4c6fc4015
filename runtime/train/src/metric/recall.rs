//! [`RecallMetric`].

use super::{
    ClassReduction, ClassificationMetricConfig, ConfusionStats, ConfusionStatsInput, MetricName,
    NumericMetricState, state_metric,
};
use kiln_core::tensor::backend::Backend;
use std::marker::PhantomData;

/// What part of the items of a class are said to be, in percent.
#[derive(Clone, Debug)]
pub struct RecallMetric<B: Backend> {
    name: MetricName,
    state: NumericMetricState,
    config: ClassificationMetricConfig,
    backend: PhantomData<B>,
}

impl<B: Backend> Default for RecallMetric<B> {
    fn default() -> Self {
        Self::new(ClassificationMetricConfig::default())
    }
}

impl<B: Backend> RecallMetric<B> {
    fn new(config: ClassificationMetricConfig) -> Self {
        let name = config.name("Recall");
        Self { name, state: NumericMetricState::new(), config, backend: PhantomData }
    }

    /// Of one class: an item whose score is above the threshold is said to be of it.
    pub fn binary(threshold: f64) -> Self {
        Self::new(ClassificationMetricConfig::binary(threshold))
    }

    /// Where an item is of one of several classes: it is said to be of those with the `top_k` highest scores.
    ///
    /// # Panics
    /// For a `top_k` of 0.
    pub fn multiclass(top_k: usize, class_reduction: ClassReduction) -> Self {
        Self::new(ClassificationMetricConfig::multiclass(top_k, class_reduction))
    }

    /// Where an item can be of several classes: it is said to be of those whose score is above the threshold.
    pub fn multilabel(threshold: f64, class_reduction: ClassReduction) -> Self {
        Self::new(ClassificationMetricConfig::multilabel(threshold, class_reduction))
    }
}

state_metric!(RecallMetric, ConfusionStatsInput<B>, unit: Some("%"), higher_is_better: true, |metric, input, _metadata| {
    let [batch, _] = input.targets.dims();
    (100.0 * ConfusionStats::new(input, &metric.config).recall(), batch)
});
