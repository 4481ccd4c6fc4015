//! [`AurocMetric`].

use super::{MetricName, NumericMetricState, state_metric};
use kiln_core::Tensor;
use kiln_core::tensor::Int;
use kiln_core::tensor::backend::Backend;
use std::marker::PhantomData;

/// What the area under the ROC curve is computed from.
#[derive(Clone, Debug)]
pub struct AurocInput<B: Backend> {
    outputs: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
}

impl<B: Backend> AurocInput<B> {
    /// Scores `[batch, classes]` and classes `[batch]`.
    ///
    /// # Panics
    /// When there are not as many of both.
    pub fn new(outputs: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Self {
        let (scores, there) = (outputs.dims(), targets.dims());
        assert_eq!(scores[0], there[0], "AurocInput: outputs are {scores:?}, targets {there:?}");
        Self { outputs, targets }
    }
}

/// The area under the receiver operating characteristic, in percent: how likely an item of a class has a higher score for it
/// than one of another class (ties count half). With two classes, that of the second; with more, the mean over those that
/// occur. It is that of each batch: the mean of those is an estimate of an epoch's.
#[derive(Clone, Debug)]
pub struct AurocMetric<B: Backend> {
    name: MetricName,
    state: NumericMetricState,
    backend: PhantomData<B>,
}

impl<B: Backend> Default for AurocMetric<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> AurocMetric<B> {
    /// The metric.
    pub fn new() -> Self {
        let name = MetricName::new("AUROC".to_owned());
        Self { name, state: NumericMetricState::new(), backend: PhantomData }
    }
}

/// The Mann-Whitney statistic over the number of pairs; `None` where all or none are of the class.
fn area(mut scored: Vec<(f64, bool)>) -> Option<f64> {
    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
    let positives = scored.iter().filter(|(_, is)| *is).count();
    let negatives = scored.len() - positives;
    if positives == 0 || negatives == 0 {
        return None;
    }
    let (mut below, mut pairs) = (0_usize, 0.0);
    for tied in scored.chunk_by(|a, b| a.0 == b.0) {
        let is = tied.iter().filter(|(_, is)| *is).count();
        let is_not = tied.len() - is;
        pairs += is as f64 * (below as f64 + is_not as f64 / 2.0);
        below += is_not;
    }
    Some(pairs / (positives as f64 * negatives as f64))
}

/// The area of a batch, from 0 to 1. One without pairs to compare says nothing: a half.
fn measure<B: Backend>(input: &AurocInput<B>) -> f64 {
    let [_, classes] = input.outputs.dims();
    let scores: Vec<f64> = input.outputs.to_data().iter::<f64>().collect();
    let targets: Vec<i64> = input.targets.to_data().iter::<i64>().collect();
    let of = |class: usize| {
        let column = scores.iter().skip(class).step_by(classes.max(1)).copied();
        let is = |target: &i64| match classes {
            1 => *target > 0,
            _ => usize::try_from(*target) == Ok(class),
        };
        area(column.zip(targets.iter().map(is)).collect())
    };
    let areas: Vec<f64> = match classes {
        2 => of(1).into_iter().collect(),
        _ => (0..classes).filter_map(of).collect(),
    };
    if areas.is_empty() { 0.5 } else { areas.iter().sum::<f64>() / areas.len() as f64 }
}

state_metric!(AurocMetric, AurocInput<B>, unit: Some("%"), higher_is_better: true, |_metric, input, _metadata| {
    let [batch, _] = input.outputs.dims();
    (100.0 * measure(input), batch)
});
