//! [`AccuracyMetric`].

use super::{MetricName, NumericMetricState, count, percent, state_metric};
use kiln_core::Tensor;
use kiln_core::tensor::Int;
use kiln_core::tensor::backend::Backend;
use std::marker::PhantomData;

/// What accuracy is computed from.
#[derive(Clone, Debug)]
pub struct AccuracyInput<B: Backend> {
    outputs: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
}

impl<B: Backend> AccuracyInput<B> {
    /// Scores `[batch, classes]` and classes `[batch]`.
    pub fn new(outputs: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Self {
        Self { outputs, targets }
    }
}

/// The part of the items whose highest score is that of their class, in percent.
#[derive(Clone, Debug)]
pub struct AccuracyMetric<B: Backend> {
    name: MetricName,
    state: NumericMetricState,
    pad_token: Option<usize>,
    backend: PhantomData<B>,
}

impl<B: Backend> Default for AccuracyMetric<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> AccuracyMetric<B> {
    /// Over all items.
    pub fn new() -> Self {
        let name = MetricName::new("Accuracy".to_owned());
        Self { name, state: NumericMetricState::new(), pad_token: None, backend: PhantomData }
    }

    /// Items of this class do not count.
    #[must_use]
    pub fn with_pad_token(mut self, index: usize) -> Self {
        self.pad_token = Some(index);
        self
    }

    fn measure(&self, input: &AccuracyInput<B>) -> (f64, usize) {
        let [batch, _] = input.outputs.dims();
        let answers = input.outputs.clone().argmax(1).reshape([batch]).cast(input.targets.dtype());
        let right = answers.equal(input.targets.clone());
        let Some(pad) = self.pad_token else { return (percent(count(right), batch), batch) };
        let kept = input.targets.clone().not_equal_elem(pad as i64);
        let all = count(kept.clone());
        (percent(count(right.bool_and(kept)), all), all)
    }
}

state_metric!(AccuracyMetric, AccuracyInput<B>, unit: Some("%"), higher_is_better: true, |metric, input, _metadata| {
    metric.measure(input)
});
