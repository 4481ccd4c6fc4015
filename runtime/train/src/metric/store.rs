//! [`EventStoreClient`]: what the numeric metrics of each epoch were.

pub use crate::supervised::{EpochSummary, MetricsUpdate, NumericMetricUpdate};

use super::NumericEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the values of an epoch's steps become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aggregate {
    /// Their mean, weighted by the items that each is of.
    Mean,
}

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Lower ones.
    Lowest,
    /// Higher ones.
    Highest,
}

impl Direction {
    /// Whether `a` is better than `b`. `NaN` is better than nothing.
    pub(crate) fn is_better(self, a: f64, b: f64) -> bool {
        match self {
            Self::Lowest => a < b,
            Self::Highest => a > b,
        }
    }
}

/// Which part of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Split {
    /// Training.
    Train,
    /// Validation.
    Valid,
}

/// The values of an epoch's steps, summed in their order.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    weighted: f64,
    count: usize,
}

impl Sum {
    fn mean(self) -> f64 {
        self.weighted / self.count as f64
    }
}

/// The epochs of each metric.
type Epochs = BTreeMap<(Split, String), BTreeMap<usize, Sum>>;

/// What the numeric metrics of each epoch were: by this, a training is stopped early and checkpoints are chosen.
#[derive(Debug, Default)]
pub struct EventStoreClient {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    epochs: Epochs,
    /// Metrics of which there are no values of an epoch that an earlier run went through, and why.
    lost: BTreeMap<(Split, String), String>,
    /// Why an answer lacked something, since [`EventStoreClient::observed`] began to look.
    missed: Option<String>,
    /// Metrics that were asked for since then and that have no values at all: the learner may not have them.
    unknown: BTreeSet<(Split, String)>,
}

impl Known {
    /// Notes that an answer about a metric would need what is lost, if something is.
    fn miss(&mut self, metric: &(Split, String)) {
        if let Some(reason) = self.lost.get(metric) {
            self.missed = Some(reason.clone());
        } else if !self.epochs.contains_key(metric) {
            self.unknown.insert(metric.clone());
        }
    }
}

/// What somebody made of the store, and what was missing for it.
#[derive(Debug)]
pub(crate) struct Observed<T> {
    pub(crate) seen: T,
    /// Why something was missing that an earlier run knew.
    pub(crate) missed: Option<String>,
    /// Metrics that were asked for and that have no values at all.
    pub(crate) unknown: BTreeSet<(Split, String)>,
}

/// A metric's values by epoch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct History {
    pub(crate) split: Split,
    pub(crate) name: String,
    pub(crate) values: Vec<(usize, f64)>,
}

impl EventStoreClient {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the value of a step; nothing if it is of no items.
    pub(crate) fn add(&self, split: Split, name: &str, epoch: usize, entry: NumericEntry) {
        if entry.count() == 0 {
            return;
        }
        let mut known = self.known();
        let sum = known.epochs.entry((split, name.to_owned())).or_default().entry(epoch).or_default();
        sum.weighted += entry.sum();
        sum.count += entry.count();
    }

    /// Takes in that a metric's values of an epoch that is over are not known any more.
    pub(crate) fn lose(&self, split: Split, name: &str, reason: String) {
        self.known().lost.entry((split, name.to_owned())).or_insert(reason);
    }

    /// What somebody makes of the store.
    pub(crate) fn observed<T>(&self, look: impl FnOnce() -> T) -> Observed<T> {
        let forget = || {
            let mut known = self.known();
            (known.missed.take(), std::mem::take(&mut known.unknown))
        };
        forget();
        let seen = look();
        let (missed, unknown) = forget();
        Observed { seen, missed, unknown }
    }

    /// A metric's value over an epoch; nothing if it has none.
    pub fn find_metric(&self, name: &str, epoch: usize, aggregate: Aggregate, split: Split) -> Option<f64> {
        let Aggregate::Mean = aggregate;
        let metric = (split, name.to_owned());
        let mut known = self.known();
        let value = known.epochs.get(&metric).and_then(|epochs| epochs.get(&epoch)).map(|sum| sum.mean());
        if value.is_none() {
            known.miss(&metric);
        }
        value
    }

    /// The first epoch with a metric's best value.
    pub fn find_epoch(
        &self,
        name: &str,
        aggregate: Aggregate,
        direction: Direction,
        split: Split,
    ) -> Option<usize> {
        let Aggregate::Mean = aggregate;
        let metric = (split, name.to_owned());
        let mut known = self.known();
        known.miss(&metric);
        let values = known.epochs.get(&metric)?.iter().map(|(epoch, sum)| (*epoch, sum.mean()));
        best(values, direction).map(|(epoch, _)| epoch)
    }

    /// All metrics, by name within each part.
    pub(crate) fn histories(&self) -> Vec<History> {
        let of = |((split, name), sums): (&(Split, String), &BTreeMap<usize, Sum>)| History {
            split: *split,
            name: name.clone(),
            values: sums.iter().map(|(epoch, sum)| (*epoch, sum.mean())).collect(),
        };
        self.known().epochs.iter().map(of).collect()
    }
}

/// The first of the best values that are numbers.
pub(crate) fn best(values: impl Iterator<Item = (usize, f64)>, direction: Direction) -> Option<(usize, f64)> {
    let numbers = values.filter(|(_, value)| !value.is_nan());
    numbers.reduce(|best, next| if direction.is_better(next.1, best.1) { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_means_by_items() {
        let store = EventStoreClient::default();
        let add = |epoch, mean, count| {
            let entry = NumericEntry::Aggregated { aggregated_value: mean, count };
            store.add(Split::Valid, "Loss", epoch, entry);
        };
        for (epoch, mean, count) in [(1, 1.0, 3), (1, 5.0, 1), (2, 1.0, 1), (3, 1.0, 1), (4, f64::NAN, 1)] {
            add(epoch, mean, count);
        }
        let mean = |epoch| store.find_metric("Loss", epoch, Aggregate::Mean, Split::Valid);
        assert_eq!([mean(1), mean(2), mean(5)], [Some(2.0), Some(1.0), None]);
        let at = |direction| store.find_epoch("Loss", Aggregate::Mean, direction, Split::Valid);
        assert_eq!([at(Direction::Lowest), at(Direction::Highest)], [Some(2), Some(1)]);
        assert_eq!(store.find_epoch("Loss", Aggregate::Mean, Direction::Lowest, Split::Train), None);
        // A batch of padding alone has no loss.
        for (epoch, mean, count) in [(6, f64::NAN, 0), (6, 0.25, 2), (6, f64::NAN, 0), (7, f64::NAN, 0)] {
            add(epoch, mean, count);
        }
        let mean = |epoch| store.find_metric("Loss", epoch, Aggregate::Mean, Split::Valid);
        assert_eq!([mean(6), mean(7)], [Some(0.25), None]);
        assert_eq!(at(Direction::Lowest), Some(6));
    }
}
