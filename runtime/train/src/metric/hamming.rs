//! [`HammingScore`].

use super::{MetricName, NumericMetricState, count, percent, state_metric};
use kiln_core::Tensor;
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{Int, activation};
use std::marker::PhantomData;

/// What the Hamming score is computed from.
#[derive(Clone, Debug)]
pub struct HammingScoreInput<B: Backend> {
    outputs: Tensor<B, 2>,
    targets: Tensor<B, 2, Int>,
}

impl<B: Backend> HammingScoreInput<B> {
    /// Scores and targets of 0 and 1, both `[batch, classes]`.
    pub fn new(outputs: Tensor<B, 2>, targets: Tensor<B, 2, Int>) -> Self {
        Self { outputs, targets }
    }
}

/// The part of the labels that are right, where an item can be of several classes, in percent.
#[derive(Clone, Debug)]
pub struct HammingScore<B: Backend> {
    name: MetricName,
    state: NumericMetricState,
    threshold: f64,
    sigmoid: bool,
    backend: PhantomData<B>,
}

impl<B: Backend> Default for HammingScore<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> HammingScore<B> {
    /// An item is said to be of the classes whose score is above 0.5.
    pub fn new() -> Self {
        let state = NumericMetricState::new();
        Self { name: name(0.5), state, threshold: 0.5, sigmoid: false, backend: PhantomData }
    }

    /// With another threshold.
    #[must_use]
    pub fn with_threshold(mut self, threshold: f64) -> Self {
        self.threshold = threshold;
        self.name = name(threshold);
        self
    }

    /// Whether scores are logits, which a sigmoid makes probabilities of.
    #[must_use]
    pub fn with_sigmoid(mut self, sigmoid: bool) -> Self {
        self.sigmoid = sigmoid;
        self
    }
}

fn name(threshold: f64) -> MetricName {
    MetricName::new(format!("Hamming Score @ Threshold({threshold})"))
}

state_metric!(HammingScore, HammingScoreInput<B>, unit: Some("%"), higher_is_better: true, |metric, input, _metadata| {
    let [batch, classes] = input.outputs.dims();
    let scores = input.outputs.clone();
    let scores = if metric.sigmoid { activation::sigmoid(scores) } else { scores };
    let right = scores.greater_elem(metric.threshold).equal(input.targets.clone().bool());
    (percent(count(right), batch * classes), batch)
});
