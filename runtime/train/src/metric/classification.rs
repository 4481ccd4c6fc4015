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

/// Declares a metric of [`ConfusionStats`](super::ConfusionStats), in percent, with a parameter of its own if it has one.
macro_rules! classification_metric {
    ($(#[$doc:meta])* $metric:ident { $($parameter:ident = $default:literal)? }, $name:expr, |$stats:ident, $this:ident| $value:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $metric<B: kiln_core::tensor::backend::Backend> {
            name: super::MetricName,
            state: super::NumericMetricState,
            config: super::ClassificationMetricConfig,
            $($parameter: f64,)?
            backend: std::marker::PhantomData<B>,
        }

        impl<B: kiln_core::tensor::backend::Backend> Default for $metric<B> {
            fn default() -> Self {
                Self::new($($default,)? super::ClassificationMetricConfig::default())
            }
        }

        impl<B: kiln_core::tensor::backend::Backend> $metric<B> {
            fn new($($parameter: f64,)? config: super::ClassificationMetricConfig) -> Self {
                let (name, state) = (config.name(&$name), super::NumericMetricState::new());
                Self { name, state, config, $($parameter,)? backend: std::marker::PhantomData }
            }

            /// Of one class: an item whose score is above the threshold is said to be of it.
            pub fn binary($($parameter: f64,)? threshold: f64) -> Self {
                Self::new($($parameter,)? super::ClassificationMetricConfig::binary(threshold))
            }

            /// Where an item is of one of several classes: it is said to be of those with the `top_k` highest scores.
            ///
            /// # Panics
            /// For a `top_k` of 0.
            pub fn multiclass($($parameter: f64,)? top_k: usize, class_reduction: super::ClassReduction) -> Self {
                Self::new($($parameter,)? super::ClassificationMetricConfig::multiclass(top_k, class_reduction))
            }

            /// Where an item can be of several classes: it is said to be of those whose score is above the threshold.
            pub fn multilabel($($parameter: f64,)? threshold: f64, class_reduction: super::ClassReduction) -> Self {
                Self::new($($parameter,)? super::ClassificationMetricConfig::multilabel(threshold, class_reduction))
            }
        }

        super::state_metric!($metric, super::ConfusionStatsInput<B>, unit: Some("%"), higher_is_better: true, |$this, input, _metadata| {
            let [batch, _] = input.targets.dims();
            let $stats = super::ConfusionStats::new(input, &$this.config);
            (100.0 * $value, batch)
        });
    };
}
pub(super) use classification_metric;
