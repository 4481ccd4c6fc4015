//! [`PrecisionMetric`].

use super::classification::classification_metric;

classification_metric!(
    /// What part of the items that are said to be of a class are, in percent.
    PrecisionMetric {}, "Precision", |stats, _metric| stats.precision()
);
