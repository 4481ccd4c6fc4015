//! Which epochs' checkpoints are kept.

use crate::metric::store::{Aggregate, Direction, EventStoreClient, Split};
use crate::metric::{Metric, MetricName};
use std::collections::BTreeSet;

/// What is to be done about checkpoints after an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointingAction {
    /// That of an epoch is removed.
    Delete(usize),
    /// That of the epoch that ended is kept.
    Save,
}

/// Says which checkpoints are kept. When a training is resumed, it is asked about the epochs that are over again, in order.
pub trait CheckpointingStrategy: Send {
    /// What is to be done after an epoch.
    fn checkpointing(&mut self, epoch: usize, collector: &EventStoreClient) -> Vec<CheckpointingAction>;
}

/// Keeps the last epochs.
#[derive(Clone, Copy, Debug)]
pub struct KeepLastNCheckpoints {
    num_keep: usize,
}

impl KeepLastNCheckpoints {
    /// Keeps so many.
    pub fn new(num_keep: usize) -> Self {
        Self { num_keep }
    }
}

impl CheckpointingStrategy for KeepLastNCheckpoints {
    fn checkpointing(&mut self, epoch: usize, _collector: &EventStoreClient) -> Vec<CheckpointingAction> {
        let old = epoch.checked_sub(self.num_keep).filter(|old| *old > 0);
        let save = (self.num_keep > 0).then_some(CheckpointingAction::Save);
        save.into_iter().chain(old.map(CheckpointingAction::Delete)).collect()
    }
}

/// Keeps the epoch in which a metric is best.
#[derive(Clone, Debug)]
pub struct MetricCheckpointingStrategy {
    name: MetricName,
    aggregate: Aggregate,
    direction: Direction,
    split: Split,
    kept: Option<usize>,
}

impl MetricCheckpointingStrategy {
    /// By a metric that the learner has as a numeric one.
    pub fn new<M: Metric>(metric: &M, aggregate: Aggregate, direction: Direction, split: Split) -> Self {
        Self { name: metric.name().into(), aggregate, direction, split, kept: None }
    }
}

impl CheckpointingStrategy for MetricCheckpointingStrategy {
    fn checkpointing(&mut self, epoch: usize, collector: &EventStoreClient) -> Vec<CheckpointingAction> {
        if collector.find_epoch(&self.name, self.aggregate, self.direction, self.split) != Some(epoch) {
            return Vec::new();
        }
        let old = self.kept.replace(epoch).map(CheckpointingAction::Delete);
        [CheckpointingAction::Save].into_iter().chain(old).collect()
    }
}

/// Keeps what any of several strategies keeps.
#[derive(Default)]
pub struct ComposedCheckpointingStrategy {
    /// Each with the epochs that it keeps.
    strategies: Vec<(Box<dyn CheckpointingStrategy>, BTreeSet<usize>)>,
}

impl ComposedCheckpointingStrategy {
    /// Of none yet.
    pub fn builder() -> ComposedCheckpointingStrategyBuilder {
        ComposedCheckpointingStrategyBuilder::default()
    }
}

/// Builds a [`ComposedCheckpointingStrategy`].
#[derive(Default)]
pub struct ComposedCheckpointingStrategyBuilder {
    strategies: Vec<Box<dyn CheckpointingStrategy>>,
}

impl ComposedCheckpointingStrategyBuilder {
    /// With another strategy.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub fn add<S: CheckpointingStrategy + 'static>(mut self, strategy: S) -> Self {
        self.strategies.push(Box::new(strategy));
        self
    }

    /// The strategy.
    pub fn build(self) -> ComposedCheckpointingStrategy {
        let strategies = self.strategies.into_iter().map(|strategy| (strategy, BTreeSet::new())).collect();
        ComposedCheckpointingStrategy { strategies }
    }
}

impl CheckpointingStrategy for ComposedCheckpointingStrategy {
    fn checkpointing(&mut self, epoch: usize, collector: &EventStoreClient) -> Vec<CheckpointingAction> {
        let kept = |strategies: &[(_, BTreeSet<usize>)]| {
            strategies.iter().flat_map(|(_, kept)| kept.iter().copied()).collect::<BTreeSet<usize>>()
        };
        let before = kept(&self.strategies);
        for (strategy, kept) in &mut self.strategies {
            for action in strategy.checkpointing(epoch, collector) {
                match action {
                    CheckpointingAction::Save => kept.insert(epoch),
                    CheckpointingAction::Delete(old) => kept.remove(&old),
                };
            }
        }
        let after = kept(&self.strategies);
        let save = after.contains(&epoch).then_some(CheckpointingAction::Save);
        let gone = before.difference(&after).map(|old| CheckpointingAction::Delete(*old));
        save.into_iter().chain(gone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{LossMetric, NumericEntry};
    use kiln_ndarray::NdArray;

    #[test]
    fn the_last_and_the_best_are_kept() {
        let losses = [5.0, 3.0, 4.0, 3.5, 2.0, 6.0, 7.0];
        let expected: [&[usize]; 7] = [&[1], &[1, 2], &[2, 3], &[2, 3, 4], &[4, 5], &[5, 6], &[5, 6, 7]];
        let store = EventStoreClient::default();
        let metric = LossMetric::<NdArray>::new();
        let mut strategy = ComposedCheckpointingStrategy::builder()
            .add(KeepLastNCheckpoints::new(2))
            .add(MetricCheckpointingStrategy::new(&metric, Aggregate::Mean, Direction::Lowest, Split::Valid))
            .build();
        let mut kept = BTreeSet::new();
        for (epoch, (loss, expected)) in (1..).zip(losses.into_iter().zip(expected)) {
            store.add(Split::Valid, "Loss", epoch, NumericEntry::Value(loss));
            for action in strategy.checkpointing(epoch, &store) {
                assert!(match action {
                    CheckpointingAction::Save => kept.insert(epoch),
                    CheckpointingAction::Delete(old) => kept.remove(&old),
                });
            }
            assert_eq!(kept.iter().copied().collect::<Vec<_>>(), expected, "after epoch {epoch}");
        }
    }
}
