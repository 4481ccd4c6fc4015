//! Metrics of images.

use super::{FormatOptions, Metric, MetricAttributes, MetricEntry, MetricMetadata, MetricName, Numeric};
use super::{NumericAttributes, NumericEntry, NumericMetricState};
use kiln_core::Tensor;
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{ElementConversion, Int, s};
use std::marker::PhantomData;

/// Masks of classes, `[batch, classes, …]` of 0 and 1.
#[derive(Clone, Debug)]
pub struct DiceInput<B: Backend, const D: usize = 4> {
    outputs: Tensor<B, D, Int>,
    targets: Tensor<B, D, Int>,
}

impl<B: Backend, const D: usize> DiceInput<B, D> {
    /// What was found and what is there.
    ///
    /// # Panics
    /// When there are fewer than 3 dims, or the dims of both differ.
    pub fn new(outputs: Tensor<B, D, Int>, targets: Tensor<B, D, Int>) -> Self {
        assert!(D >= 3, "DiceInput: masks have at least 3 dims, not {D}");
        let (found, there) = (outputs.dims(), targets.dims());
        assert_eq!(found, there, "DiceInput: outputs are {found:?}, targets {there:?}");
        Self { outputs, targets }
    }
}

/// Config of [`DiceMetric`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiceMetricConfig {
    /// Added to both parts of the fraction, so that there is one for empty masks.
    pub epsilon: f64,
    /// Whether the first of several classes counts.
    pub include_background: bool,
}

impl Default for DiceMetricConfig {
    fn default() -> Self {
        Self { epsilon: 1e-7, include_background: false }
    }
}

/// How far masks agree: twice what both have, over what each has (Dice 1945).
#[derive(Clone, Debug)]
pub struct DiceMetric<B: Backend, const D: usize = 4> {
    name: MetricName,
    state: NumericMetricState,
    config: DiceMetricConfig,
    backend: PhantomData<B>,
}

impl<B: Backend, const D: usize> Default for DiceMetric<B, D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend, const D: usize> DiceMetric<B, D> {
    /// Without the background.
    pub fn new() -> Self {
        Self::with_config(DiceMetricConfig::default())
    }

    /// By a config.
    pub fn with_config(config: DiceMetricConfig) -> Self {
        let name = MetricName::new(format!("{D}D Dice Metric"));
        Self { name, state: NumericMetricState::new(), config, backend: PhantomData }
    }
}

impl<B: Backend, const D: usize> Metric for DiceMetric<B, D> {
    type Input = DiceInput<B, D>;

    fn name(&self) -> impl Into<MetricName> {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: None, higher_is_better: true }.into()
    }

    fn update(&mut self, input: &Self::Input, _metadata: &MetricMetadata) -> impl Into<MetricEntry> {
        let DiceInput { outputs, targets } = input.clone();
        let dims = outputs.dims();
        let (batch, classes) = (dims[0], dims[1]);
        let counted = |masks: Tensor<B, D, Int>| match self.config.include_background || classes == 1 {
            true => masks,
            false => masks.slice(s![.., 1..]),
        };
        let (outputs, targets) = (counted(outputs), counted(targets));
        let number = |sum: Tensor<B, 1, Int>| sum.into_scalar().elem::<f64>();
        let both = number((outputs.clone() * targets.clone()).sum());
        let each = number(outputs.sum() + targets.sum());
        let dice = (2.0 * both + self.config.epsilon) / (each + self.config.epsilon);
        let format = FormatOptions::new(self.name.clone()).precision(4);
        self.state.update::<MetricEntry>(dice, batch, format)
    }

    fn clear(&mut self) {
        self.state.reset();
    }
}

impl<B: Backend, const D: usize> Numeric for DiceMetric<B, D> {
    fn value(&self) -> impl Into<NumericEntry> {
        self.state.current_value()
    }

    fn running_value(&self) -> impl Into<NumericEntry> {
        self.state.running_value()
    }
}
