//! [`TopKAccuracyMetric`].

use super::{MetricName, NumericMetricState, count, percent, state_metric};
use kiln_core::Tensor;
use kiln_core::tensor::Int;
use kiln_core::tensor::backend::Backend;
use std::marker::PhantomData;

/// What top-k accuracy is computed from.
#[derive(Clone, Debug)]
pub struct TopKAccuracyInput<B: Backend> {
    outputs: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
}

impl<B: Backend> TopKAccuracyInput<B> {
    /// Scores `[batch, classes]` and classes `[batch]`.
    pub fn new(outputs: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Self {
        Self { outputs, targets }
    }
}

/// The part of the items whose class is among those with the `k` highest scores, in percent.
#[derive(Clone, Debug)]
pub struct TopKAccuracyMetric<B: Backend> {
    name: MetricName,
    state: NumericMetricState,
    k: usize,
    pad_token: Option<usize>,
    backend: PhantomData<B>,
}

impl<B: Backend> TopKAccuracyMetric<B> {
    /// Over all items.
    pub fn new(k: usize) -> Self {
        let name = MetricName::new(format!("Top-K Accuracy @ TopK({k})"));
        Self { name, state: NumericMetricState::new(), k, pad_token: None, backend: PhantomData }
    }

    /// Items of this class do not count.
    #[must_use]
    pub fn with_pad_token(mut self, index: usize) -> Self {
        self.pad_token = Some(index);
        self
    }

    fn measure(&self, input: &TopKAccuracyInput<B>) -> (f64, usize) {
        let [batch, classes] = input.outputs.dims();
        let (_, best) = input.outputs.clone().topk_with_indices(self.k.min(classes), 1);
        let targets = input.targets.clone();
        let among = best.cast(targets.dtype()).equal(targets.clone().reshape([batch, 1])).any_dim(1);
        let right = among.reshape([batch]);
        let Some(pad) = self.pad_token else { return (percent(count(right), batch), batch) };
        let kept = targets.not_equal_elem(pad as i64);
        let all = count(kept.clone());
        (percent(count(right.bool_and(kept)), all), all)
    }
}

state_metric!(TopKAccuracyMetric, TopKAccuracyInput<B>, unit: Some("%"), higher_is_better: true, |metric, input, _metadata| {
    metric.measure(input)
});
