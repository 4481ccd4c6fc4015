//! [`PerplexityMetric`].

use super::{
    FormatOptions, Metric, MetricAttributes, MetricEntry, MetricMetadata, MetricName, Numeric,
    NumericAttributes, NumericEntry,
};
use kiln_core::Tensor;
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{ElementConversion, Int, activation};
use std::marker::PhantomData;

/// What perplexity is computed from.
#[derive(Clone, Debug)]
pub struct PerplexityInput<B: Backend> {
    outputs: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
}

impl<B: Backend> PerplexityInput<B> {
    /// Logits `[tokens, vocabulary]` and tokens `[tokens]`.
    pub fn new(outputs: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Self {
        Self { outputs, targets }
    }
}

/// `exp` of the mean of the tokens' negative log-likelihoods. Over an epoch, that mean is over all its tokens; an epoch's
/// summary is made of the steps' values, as that of every metric, and so a little higher.
#[derive(Clone, Debug)]
pub struct PerplexityMetric<B: Backend> {
    name: MetricName,
    pad_token: Option<usize>,
    /// Of all tokens of the epoch.
    sum: f64,
    count: usize,
    /// Of the last step.
    current: f64,
    current_count: usize,
    backend: PhantomData<B>,
}

impl<B: Backend> Default for PerplexityMetric<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> PerplexityMetric<B> {
    /// Over all tokens.
    pub fn new() -> Self {
        let name = MetricName::new("Perplexity".to_owned());
        let (sum, count, current, current_count) = (0.0, 0, f64::NAN, 0);
        Self { name, pad_token: None, sum, count, current, current_count, backend: PhantomData }
    }

    /// This token does not count.
    #[must_use]
    pub fn with_pad_token(mut self, index: usize) -> Self {
        self.pad_token = Some(index);
        self
    }
}

/// `exp` of a mean.
fn perplexity(sum: f64, count: usize) -> f64 {
    if count == 0 { f64::NAN } else { (sum / count as f64).exp() }
}

impl<B: Backend> Metric for PerplexityMetric<B> {
    type Input = PerplexityInput<B>;

    fn name(&self) -> impl Into<MetricName> {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: None, higher_is_better: false }.into()
    }

    fn update(&mut self, input: &Self::Input, _metadata: &MetricMetadata) -> impl Into<MetricEntry> {
        let [tokens, _] = input.outputs.dims();
        let targets = input.targets.clone();
        let likelihoods = activation::log_softmax(input.outputs.clone(), 1);
        let of = |targets: Tensor<B, 1, Int>| {
            likelihoods.gather(1, targets.reshape([tokens, 1])).reshape([tokens])
        };
        let (likelihoods, count) = match self.pad_token {
            None => (of(targets), tokens),
            Some(pad) => {
                let padding = targets.clone().equal_elem(pad as i64);
                let count = tokens - super::count(padding.clone());
                // A token of padding need not be in the vocabulary.
                (of(targets.mask_fill(padding.clone(), 0)).mask_fill(padding, 0.0), count)
            }
        };
        let sum = -likelihoods.sum().into_scalar().elem::<f64>();
        self.sum += sum;
        self.count += count;
        (self.current, self.current_count) = (perplexity(sum, count), count);
        let format = FormatOptions::new(self.name.clone()).precision(3);
        let epoch = format.format(perplexity(self.sum, self.count));
        let formatted = format!("epoch {epoch} - batch {}", format.format(self.current));
        let value: NumericEntry = self.value().into();
        MetricEntry::new(self.name.clone(), formatted, value.serialize())
    }

    fn clear(&mut self) {
        (self.sum, self.count, self.current, self.current_count) = (0.0, 0, f64::NAN, 0);
    }
}

impl<B: Backend> Numeric for PerplexityMetric<B> {
    fn value(&self) -> impl Into<NumericEntry> {
        NumericEntry::Aggregated { aggregated_value: self.current, count: self.current_count }
    }

    fn running_value(&self) -> impl Into<NumericEntry> {
        NumericEntry::Aggregated { aggregated_value: perplexity(self.sum, self.count), count: self.count }
    }
}
