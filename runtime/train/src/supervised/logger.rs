//! Loggers as Burn 0.20 has them: one for all parts of an epoch, told of every metric.

use crate::metric::store::Split;
use crate::metric::{MetricDefinition, MetricEntry, MetricId, MetricName, NumericEntry, SerializedEntry};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keeps the values of the metrics of a training. Epochs count from 1 on.
pub trait MetricLogger: Send {
    /// Takes in values of a step. `tag` tells parts of one split apart; a training has none.
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: Split, tag: Option<Arc<String>>);

    /// A metric's values of an epoch, in order.
    ///
    /// # Errors
    /// When they cannot be read, or are no numbers.
    fn read_numeric(&mut self, name: &str, epoch: usize, split: Split) -> Result<Vec<NumericEntry>, String>;

    /// Is told of a metric before its first value.
    fn log_metric_definition(&mut self, definition: MetricDefinition);

    /// A part of an epoch is over.
    fn log_epoch_summary(&mut self, summary: EpochSummary);
}

/// A metric's result of a step, which its id tells apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEntry {
    /// The metric.
    pub metric_id: MetricId,
    /// Its result.
    pub serialized_entry: SerializedEntry,
}

/// A numeric metric's result of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct NumericMetricUpdate {
    /// What people read, and what is logged.
    pub entry: LoggedEntry,
    /// The number.
    pub numeric_entry: NumericEntry,
    /// The mean over the epoch so far, weighted by the values that each number stands for.
    pub running_entry: NumericEntry,
}

/// Metrics' results of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsUpdate {
    /// Those that are no numbers.
    pub entries: Vec<LoggedEntry>,
    /// Those that are.
    pub entries_numeric: Vec<NumericMetricUpdate>,
}

/// A part of an epoch that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochSummary {
    /// The epoch.
    pub epoch_number: usize,
    /// The part.
    pub split: Split,
}

/// One part of the epochs of a logger, as the book's learner has a logger for each.
pub(super) struct Part<L> {
    logger: Arc<Mutex<L>>,
    split: Split,
    epoch: usize,
    /// The sums of the epoch's numbers so far, and how many values they stand for.
    sums: HashMap<MetricName, (f64, usize)>,
}

impl<L> Part<L> {
    /// Both parts of a logger: training and validation.
    pub(super) fn both(logger: L) -> [Self; 2] {
        let logger = Arc::new(Mutex::new(logger));
        [Split::Train, Split::Valid].map(|split| Self {
            logger: Arc::clone(&logger),
            split,
            epoch: 1,
            sums: HashMap::new(),
        })
    }

    /// Of a logger that panicked, the state is what it left.
    fn logger(&self) -> MutexGuard<'_, L> {
        self.logger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn logged(item: &MetricEntry) -> LoggedEntry {
    LoggedEntry {
        metric_id: MetricId::new(item.name.clone()),
        serialized_entry: SerializedEntry::new(item.formatted.clone(), item.serialize.clone()),
    }
}

impl<L: MetricLogger> crate::logger::MetricLogger for Part<L> {
    fn register_metric(&mut self, definition: &MetricDefinition) {
        self.logger().log_metric_definition(definition.clone());
    }

    fn log(&mut self, item: &MetricEntry) {
        let update = MetricsUpdate { entries: vec![logged(item)], ..MetricsUpdate::default() };
        self.logger().log(update, self.epoch, self.split, None);
    }

    fn log_numeric(&mut self, item: &MetricEntry, number: NumericEntry) {
        let (sum, count) = self.sums.entry(item.name.clone()).or_default();
        *sum += number.sum();
        *count += number.count();
        let running_entry =
            NumericEntry::Aggregated { aggregated_value: *sum / *count as f64, count: *count };
        let numeric = NumericMetricUpdate { entry: logged(item), numeric_entry: number, running_entry };
        let update = MetricsUpdate { entries_numeric: vec![numeric], ..MetricsUpdate::default() };
        self.logger().log(update, self.epoch, self.split, None);
    }

    fn end_epoch(&mut self, epoch: usize) {
        self.logger().log_epoch_summary(EpochSummary { epoch_number: epoch, split: self.split });
        self.epoch = epoch + 1;
        self.sums.clear();
    }

    fn read_numeric(&mut self, name: &str, epoch: usize) -> Result<Vec<NumericEntry>, String> {
        self.logger().read_numeric(name, epoch, self.split)
    }

    fn resume_at(&mut self, epoch: usize, _entries: usize) {
        self.epoch = epoch;
        self.sums.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logger::MetricLogger as _;

    /// The running values that it was told.
    #[derive(Default)]
    struct Running(Vec<NumericEntry>);

    impl MetricLogger for Running {
        fn log(&mut self, update: MetricsUpdate, _epoch: usize, _split: Split, _tag: Option<Arc<String>>) {
            self.0.extend(update.entries_numeric.iter().map(|update| update.running_entry));
        }

        fn read_numeric(&mut self, _: &str, _: usize, _: Split) -> Result<Vec<NumericEntry>, String> {
            Ok(Vec::new())
        }

        fn log_metric_definition(&mut self, _definition: MetricDefinition) {}

        fn log_epoch_summary(&mut self, _summary: EpochSummary) {}
    }

    #[test]
    fn a_batch_without_items_leaves_the_mean_as_it_is() {
        let [mut train, _] = Part::both(Running::default());
        let item = MetricEntry::new("Perplexity".to_owned(), String::new(), String::new());
        for (aggregated_value, count) in [(2.0, 3), (f64::NAN, 0), (4.0, 1)] {
            train.log_numeric(&item, NumericEntry::Aggregated { aggregated_value, count });
        }
        let means: Vec<_> = train.logger().0.iter().map(NumericEntry::current).collect();
        assert_eq!(means, [2.0, 2.0, 2.5]);
    }
}
