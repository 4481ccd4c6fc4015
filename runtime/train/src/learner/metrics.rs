//! The metrics of a learner, for outputs of one type.

use crate::metric::store::{EventStoreClient, Split};
use crate::metric::{
    Adaptor, Metric, MetricDefinition, MetricEntry, MetricMetadata, MetricName, Numeric, NumericEntry,
};
use crate::renderer::MetricState;
use std::collections::HashMap;

/// A metric, without its type.
trait Updater<T>: Send {
    fn name(&self) -> MetricName;
    fn definition(&self) -> MetricDefinition;
    fn update(&mut self, item: &T, metadata: &MetricMetadata) -> MetricState;
    fn clear(&mut self);
}

/// A metric that is only shown and logged.
struct Plain<M>(M);

/// A metric that is a number.
struct Number<M>(M);

/// The entry, with the name that its metric has.
fn named_entry<M: Metric>(metric: &mut M, item: &M::Input, metadata: &MetricMetadata) -> MetricEntry {
    let entry: MetricEntry = metric.update(item, metadata).into();
    MetricEntry { name: metric.name().into(), ..entry }
}

impl<T: Adaptor<M::Input>, M: Metric> Updater<T> for Plain<M> {
    fn name(&self) -> MetricName {
        self.0.name().into()
    }

    fn definition(&self) -> MetricDefinition {
        MetricDefinition::of(&self.0)
    }

    fn update(&mut self, item: &T, metadata: &MetricMetadata) -> MetricState {
        MetricState::Generic(named_entry(&mut self.0, &item.adapt(), metadata))
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T: Adaptor<M::Input>, M: Metric + Numeric> Updater<T> for Number<M> {
    fn name(&self) -> MetricName {
        self.0.name().into()
    }

    fn definition(&self) -> MetricDefinition {
        MetricDefinition::of(&self.0)
    }

    /// What is logged says more than the metric's value if it is a number too: how many items it is of.
    fn update(&mut self, item: &T, metadata: &MetricMetadata) -> MetricState {
        let entry = named_entry(&mut self.0, &item.adapt(), metadata);
        let numeric = NumericEntry::deserialize(&entry.serialize).unwrap_or_else(|_| self.0.value().into());
        MetricState::Numeric(entry, numeric)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// The metrics of training, of validation or of an evaluation.
pub struct Metrics<T> {
    all: Vec<Box<dyn Updater<T>>>,
    /// The names of those that are numbers.
    numeric: Vec<MetricName>,
}

impl<T> Metrics<T> {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new(), numeric: Vec::new() }
    }

    pub(crate) fn add<M: Metric + 'static>(&mut self, metric: M)
    where
        T: Adaptor<M::Input>,
    {
        self.all.push(Box::new(Plain(metric)));
    }

    pub(crate) fn add_numeric<M: Metric + Numeric + 'static>(&mut self, metric: M)
    where
        T: Adaptor<M::Input>,
    {
        self.numeric.push(metric.name().into());
        self.all.push(Box::new(Number(metric)));
    }

    pub(super) fn numeric(&self) -> &[MetricName] {
        &self.numeric
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = MetricName> {
        self.all.iter().map(|metric| metric.name())
    }

    /// What there is to know of each metric.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = MetricDefinition> {
        self.all.iter().map(|metric| metric.definition())
    }

    /// What the metrics make of an output.
    pub(crate) fn states(&mut self, item: &T, metadata: &MetricMetadata) -> Vec<MetricState> {
        self.all.iter_mut().map(|metric| metric.update(item, metadata)).collect()
    }

    /// [`Metrics::states`], of which numbers go to the store.
    pub(super) fn update(
        &mut self,
        item: &T,
        metadata: &MetricMetadata,
        split: Split,
        store: &EventStoreClient,
    ) -> Vec<MetricState> {
        let states = self.states(item, metadata);
        for state in &states {
            if let MetricState::Numeric(entry, numeric) = state {
                store.add(split, &entry.name, metadata.epoch, *numeric);
            }
        }
        states
    }

    pub(super) fn clear(&mut self) {
        self.all.iter_mut().for_each(|metric| metric.clear());
    }
}

/// Refuses names that meet in one log.
///
/// # Panics
/// When two metrics of a part (`training`, …) have one name, or names that are one as that of a file; `builder` says so.
pub(crate) fn check_names(builder: &str, part: &str, names: impl Iterator<Item = MetricName>) {
    let mut seen: HashMap<String, MetricName> = HashMap::new();
    for name in names {
        if let Some(other) = seen.get(&crate::file_name(&name)) {
            assert!(*other != name, "{builder}: two metrics of {part} are called {name:?}");
            panic!("{builder}: the metrics {other:?} and {name:?} of {part} have one name of a file");
        }
        seen.insert(crate::file_name(&name), name);
    }
}
