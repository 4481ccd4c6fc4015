//! Stopping before the last epoch.

use crate::metric::store::{Aggregate, Direction, EventStoreClient, Split};
use crate::metric::{Metric, MetricName};

/// Says when a training ends early. When one is resumed, it is asked about the epochs that are over again, in order.
pub trait EarlyStoppingStrategy: Send {
    /// Whether the training ends after an epoch.
    fn should_stop(&mut self, epoch: usize, store: &EventStoreClient) -> bool;
}

/// When a metric ends a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppingCondition {
    /// When so many epochs were no better than an earlier one.
    NoImprovementSince {
        /// The epochs.
        n_epochs: usize,
    },
}

/// Ends a training by a metric.
#[derive(Clone, Debug)]
pub struct MetricEarlyStoppingStrategy {
    name: MetricName,
    aggregate: Aggregate,
    direction: Direction,
    split: Split,
    condition: StoppingCondition,
    warmup_epochs: usize,
}

impl MetricEarlyStoppingStrategy {
    /// By a metric that the learner has as a numeric one.
    pub fn new<M: Metric>(
        metric: &M,
        aggregate: Aggregate,
        direction: Direction,
        split: Split,
        condition: StoppingCondition,
    ) -> Self {
        Self { name: metric.name().into(), aggregate, direction, split, condition, warmup_epochs: 0 }
    }

    /// The first epochs do not end it.
    #[must_use]
    pub fn with_warmup_epochs(mut self, epochs: usize) -> Self {
        self.warmup_epochs = epochs;
        self
    }
}

impl EarlyStoppingStrategy for MetricEarlyStoppingStrategy {
    fn should_stop(&mut self, epoch: usize, store: &EventStoreClient) -> bool {
        let StoppingCondition::NoImprovementSince { n_epochs } = self.condition;
        // An epoch without a value says nothing; one whose value is no number is no improvement.
        let best = store.find_epoch(&self.name, self.aggregate, self.direction, self.split);
        let known = store.find_metric(&self.name, epoch, self.aggregate, self.split).is_some();
        known && epoch > self.warmup_epochs && epoch - best.unwrap_or(0) >= n_epochs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{AccuracyMetric, NumericEntry};
    use kiln_ndarray::NdArray;

    /// The epoch that was the last one.
    fn last_epoch(values: &[f64], n_epochs: usize, warmup: usize) -> Option<usize> {
        let mut strategy = MetricEarlyStoppingStrategy::new(
            &AccuracyMetric::<NdArray>::new(),
            Aggregate::Mean,
            Direction::Highest,
            Split::Valid,
            StoppingCondition::NoImprovementSince { n_epochs },
        )
        .with_warmup_epochs(warmup);
        let store = EventStoreClient::default();
        (1..).zip(values).find_map(|(epoch, value)| {
            store.add(Split::Valid, "Accuracy", epoch, NumericEntry::Value(*value));
            strategy.should_stop(epoch, &store).then_some(epoch)
        })
    }

    #[test]
    fn it_ends_when_nothing_improves() {
        let cases: [(&[f64], usize, usize, Option<usize>); 6] = [
            (&[1.0, 2.0, 3.0, 4.0], 1, 0, None),
            (&[1.0, 2.0, 2.0, 4.0], 1, 0, Some(3)),
            (&[1.0, 2.0, 2.0, 4.0], 2, 0, None),
            (&[4.0, 3.0, 2.0, 1.0], 2, 0, Some(3)),
            (&[4.0, 3.0, 2.0, 1.0], 2, 3, Some(4)),
            (&[f64::NAN, f64::NAN, f64::NAN], 2, 0, Some(2)),
        ];
        for (values, n_epochs, warmup, expected) in cases {
            assert_eq!(last_epoch(values, n_epochs, warmup), expected, "{values:?}");
        }
    }

    #[test]
    fn a_metric_that_is_not_there_ends_nothing() {
        let metric = AccuracyMetric::<NdArray>::new();
        let condition = StoppingCondition::NoImprovementSince { n_epochs: 1 };
        let (aggregate, direction) = (Aggregate::Mean, Direction::Highest);
        let mut strategy =
            MetricEarlyStoppingStrategy::new(&metric, aggregate, direction, Split::Train, condition);
        assert!((1..9).all(|epoch| !strategy.should_stop(epoch, &EventStoreClient::default())));
    }
}
