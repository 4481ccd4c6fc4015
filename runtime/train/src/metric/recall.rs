//! [`RecallMetric`].

use super::classification::classification_metric;

classification_metric!(
    /// What part of the items of a class are said to be, in percent.
    RecallMetric {}, "Recall", |stats, _metric| stats.recall()
);
