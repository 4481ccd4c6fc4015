//! [`FBetaScoreMetric`].

use super::classification::classification_metric;

classification_metric!(
    /// The weighted harmonic mean of precision and recall, in percent; recall weighs `beta` times as much.
    FBetaScoreMetric { beta = 1.0 }, format!("FBetaScore ({beta})"), |stats, metric| stats.f_beta(metric.beta)
);
