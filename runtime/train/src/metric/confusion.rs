//! [`ConfusionStats`]: right and wrong decisions, counted.

use super::{ClassReduction, ClassificationMetricConfig, DecisionRule};
use kiln_core::Tensor;
use kiln_core::tensor::Bool;
use kiln_core::tensor::backend::Backend;

/// What precision and its relatives are computed from.
#[derive(Clone, Debug)]
pub struct ConfusionStatsInput<B: Backend> {
    /// Scores, `[batch, classes]`.
    pub predictions: Tensor<B, 2>,
    /// Whether an item is of a class, `[batch, classes]`.
    pub targets: Tensor<B, 2, Bool>,
}

impl<B: Backend> ConfusionStatsInput<B> {
    /// Scores and targets, both `[batch, classes]`.
    ///
    /// # Panics
    /// When the dims of both differ.
    pub fn new(predictions: Tensor<B, 2>, targets: Tensor<B, 2, Bool>) -> Self {
        let (scores, there) = (predictions.dims(), targets.dims());
        assert_eq!(scores, there, "ConfusionStatsInput: predictions are {scores:?}, targets {there:?}");
        Self { predictions, targets }
    }
}

/// How many decisions were right and wrong, by class.
///
/// In a mean over classes, those do not count of which a measure is not defined: of which no item is, or was said to be.
/// Where there is no other, it is 0.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfusionStats {
    reduction: ClassReduction,
    classes: Vec<Counts>,
}

/// Decisions on one class, or on all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    true_positive: usize,
    false_positive: usize,
    true_negative: usize,
    false_negative: usize,
}

impl ConfusionStats {
    /// Decides and counts.
    pub fn new<B: Backend>(input: &ConfusionStatsInput<B>, config: &ClassificationMetricConfig) -> Self {
        let [_, classes] = input.predictions.dims();
        let said = decide(&input.predictions, config.decision_rule).into_data();
        let targets = input.targets.to_data();
        let mut counts = vec![Counts::default(); classes];
        for (place, (said, is)) in said.iter::<bool>().zip(targets.iter::<bool>()).enumerate() {
            let Some(class) = counts.get_mut(place % classes.max(1)) else { continue };
            match (said, is) {
                (true, true) => class.true_positive += 1,
                (true, false) => class.false_positive += 1,
                (false, true) => class.false_negative += 1,
                (false, false) => class.true_negative += 1,
            }
        }
        Self { reduction: config.class_reduction, classes: counts }
    }

    /// What part of those said to be of a class are.
    pub fn precision(&self) -> f64 {
        self.reduce(|class| ratio(class.true_positive, class.true_positive + class.false_positive))
    }

    /// What part of those of a class were said to be.
    pub fn recall(&self) -> f64 {
        self.reduce(|class| ratio(class.true_positive, class.true_positive + class.false_negative))
    }

    /// `(1 + β²) · precision · recall / (β² · precision + recall)`: recall weighs `β` times as much as precision.
    pub fn f_beta(&self, beta: f64) -> f64 {
        let square = beta * beta;
        self.reduce(|class| {
            let right = (1.0 + square) * class.true_positive as f64;
            let wrong = square * class.false_negative as f64 + class.false_positive as f64;
            (right + wrong > 0.0).then(|| right / (right + wrong))
        })
    }

    /// The part of all decisions that are right.
    pub fn accuracy(&self) -> f64 {
        self.reduce(|class| {
            let right = class.true_positive + class.true_negative;
            ratio(right, right + class.false_positive + class.false_negative)
        })
    }

    /// A measure over all classes.
    fn reduce(&self, measure: impl Fn(&Counts) -> Option<f64>) -> f64 {
        match self.reduction {
            ClassReduction::Micro => {
                let all = self.classes.iter().fold(Counts::default(), |sum, class| Counts {
                    true_positive: sum.true_positive + class.true_positive,
                    false_positive: sum.false_positive + class.false_positive,
                    true_negative: sum.true_negative + class.true_negative,
                    false_negative: sum.false_negative + class.false_negative,
                });
                measure(&all).unwrap_or(0.0)
            }
            ClassReduction::Macro => {
                let measured: Vec<f64> = self.classes.iter().filter_map(measure).collect();
                measured.iter().sum::<f64>() / measured.len().max(1) as f64
            }
        }
    }
}

fn ratio(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Whether each item is said to be of each class.
fn decide<B: Backend>(scores: &Tensor<B, 2>, rule: DecisionRule) -> Tensor<B, 2, Bool> {
    match rule {
        DecisionRule::Threshold(threshold) => scores.clone().greater_elem(threshold),
        DecisionRule::TopK(k) => {
            let [batch, classes] = scores.dims();
            let (_, best) = scores.clone().topk_with_indices(k.get().min(classes), 1);
            let chosen = best.dims()[1];
            let all = Tensor::arange(0..classes as i64, &scores.device()).cast(best.dtype());
            let all = all.reshape([1, 1, classes]);
            best.reshape([batch, chosen, 1]).equal(all).any_dim(1).reshape([batch, classes])
        }
    }
}
