//! [`LossMetric`].

use super::{MetricName, NumericMetricState, state_metric};
use kiln_core::Tensor;
use kiln_core::tensor::ElementConversion;
use kiln_core::tensor::backend::Backend;
use std::marker::PhantomData;

/// What the loss is read from.
#[derive(Clone, Debug)]
pub struct LossInput<B: Backend> {
    tensor: Tensor<B, 1>,
}

impl<B: Backend> LossInput<B> {
    /// The loss of a batch `[1]`, or of each of its items `[batch]`. A loss of a batch is one number of an epoch's mean, however many items it is of:
    /// give those of items where the last batch is smaller and must weigh less.
    pub fn new(tensor: Tensor<B, 1>) -> Self {
        Self { tensor }
    }
}

/// The loss that the gradients are of.
#[derive(Clone, Debug)]
pub struct LossMetric<B: Backend> {
    name: MetricName,
    state: NumericMetricState,
    backend: PhantomData<B>,
}

impl<B: Backend> Default for LossMetric<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> LossMetric<B> {
    /// The loss.
    pub fn new() -> Self {
        let name = MetricName::new("Loss".to_owned());
        Self { name, state: NumericMetricState::new(), backend: PhantomData }
    }
}

state_metric!(LossMetric, LossInput<B>, unit: None, higher_is_better: false, |_metric, input, _metadata| {
    let [losses] = input.tensor.dims();
    (input.tensor.clone().mean().into_scalar().elem::<f64>(), losses)
});
