//! [`FBetaScoreMetric`].

use super::{
    ClassReduction, ClassificationMetricConfig, ConfusionStats, ConfusionStatsInput, MetricName,
    NumericMetricState, state_metric,
};
use kiln_core::tensor::backend::Backend;
use std::marker::PhantomData;

/// The weighted harmonic mean of precision and recall, in percent; recall weighs `beta` times as much.
#[derive(Clone, Debug)]
pub struct FBetaScoreMetric<B: Backend> {
    name: MetricName,
    state: NumericMetricState,
    config: ClassificationMetricConfig,
    beta: f64,
    backend: PhantomData<B>,
}

impl<B: Backend> Default for FBetaScoreMetric<B> {
    fn default() -> Self {
        Self::new(1.0, ClassificationMetricConfig::default())
    }
}

impl<B: Backend> FBetaScoreMetric<B> {
    fn new(beta: f64, config: ClassificationMetricConfig) -> Self {
        let name = config.name(&format!("FBetaScore ({beta})"));
        Self { name, state: NumericMetricState::new(), config, beta, backend: PhantomData }
    }

    /// Of one class: an item whose score is above the threshold is said to be of it.
    pub fn binary(beta: f64, threshold: f64) -> Self {
        Self::new(beta, ClassificationMetricConfig::binary(threshold))
    }

    /// Where an item is of one of several classes: it is said to be of those with the `top_k` highest scores.
    ///
    /// # Panics
    /// For a `top_k` of 0.
    pub fn multiclass(beta: f64, top_k: usize, class_reduction: ClassReduction) -> Self {
        Self::new(beta, ClassificationMetricConfig::multiclass(top_k, class_reduction))
    }

    /// Where an item can be of several classes: it is said to be of those whose score is above the threshold.
    pub fn multilabel(beta: f64, threshold: f64, class_reduction: ClassReduction) -> Self {
        Self::new(beta, ClassificationMetricConfig::multilabel(threshold, class_reduction))
    }
}

state_metric!(FBetaScoreMetric, ConfusionStatsInput<B>, unit: Some("%"), higher_is_better: true, |metric, input, _metadata| {
    let [batch, _] = input.targets.dims();
    (100.0 * ConfusionStats::new(input, &metric.config).f_beta(metric.beta), batch)
});
