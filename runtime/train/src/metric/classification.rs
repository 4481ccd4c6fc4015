//! How metrics of classification decide and average.

use std::num::NonZeroUsize;

/// How metrics of several classes become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassReduction {
    /// Decisions are counted over all classes, as if they were one.
    Micro,
    /// The mean over classes, whatever their sizes.
    #[default]
    Macro,
}

/// Which classes an item is said to be of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecisionRule {
    /// Those whose score is above this.
    Threshold(f64),
    /// Those with this many highest scores.
    TopK(NonZeroUsize),
}

/// How a metric of classification decides and averages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassificationMetricConfig {
    /// Which classes an item is said to be of.
    pub decision_rule: DecisionRule,
    /// How classes become one.
    pub class_reduction: ClassReduction,
}

impl Default for ClassificationMetricConfig {
    fn default() -> Self {
        Self { decision_rule: DecisionRule::Threshold(0.5), class_reduction: ClassReduction::default() }
    }
}

impl ClassificationMetricConfig {
    /// One class or none.
    pub(super) fn binary(threshold: f64) -> Self {
        Self { decision_rule: DecisionRule::Threshold(threshold), ..Self::default() }
    }

    /// # Panics
    /// For 0.
    #[track_caller]
    pub(super) fn multiclass(top_k: usize, class_reduction: ClassReduction) -> Self {
        let Some(top_k) = NonZeroUsize::new(top_k) else {
            panic!("a metric of the 0 highest scores: top_k must be at least 1")
        };
        Self { decision_rule: DecisionRule::TopK(top_k), class_reduction }
    }

    pub(super) fn multilabel(threshold: f64, class_reduction: ClassReduction) -> Self {
        Self { decision_rule: DecisionRule::Threshold(threshold), class_reduction }
    }

    /// The name of a metric that is configured so.
    pub(super) fn name(&self, metric: &str) -> super::MetricName {
        super::MetricName::new(format!("{metric} @ {:?} [{:?}]", self.decision_rule, self.class_reduction))
    }
}
