//! What a metric is.

use super::{MetricEntry, MetricName, NumericEntry};
use kiln_data::dataloader::Progress;
use kiln_optim::LearningRate;

/// Where in a training a metric is updated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricMetadata {
    /// How far the epoch is.
    pub progress: Progress,
    /// The epoch, from 1 on.
    pub epoch: usize,
    /// Epochs of the whole training.
    pub epoch_total: usize,
    /// Steps of the epoch so far, this one counted.
    pub iteration: usize,
    /// The learning rate of the step; none in validation.
    pub lr: Option<LearningRate>,
}

/// What is measured of the outputs of steps.
///
/// A metric has an input type of its own, which outputs are adapted to by [`Adaptor`], so that one output serves many
/// metrics. [`NumericMetricState`](super::NumericMetricState) does what most metrics need:
///
/// ```
/// use kiln_train::metric::{FormatOptions, Metric, MetricEntry, MetricMetadata, Numeric, NumericMetricState};
///
/// /// The longest text of a batch.
/// #[derive(Default)]
/// struct LongestText {
///     state: NumericMetricState,
/// }
///
/// struct Texts(Vec<String>);
///
/// # #[allow(refining_impl_trait)]
/// impl Metric for LongestText {
///     type Input = Texts;
///
///     fn name(&self) -> String {
///         "Longest text".to_string()
///     }
///
///     fn update(&mut self, texts: &Texts, _metadata: &MetricMetadata) -> MetricEntry {
///         let longest = texts.0.iter().map(String::len).max().unwrap_or(0);
///         self.state.update(longest as f64, texts.0.len(), FormatOptions::new(self.name()).precision(0))
///     }
///
///     fn clear(&mut self) {
///         self.state.reset();
///     }
/// }
///
/// # #[allow(refining_impl_trait)]
/// impl Numeric for LongestText {
///     fn value(&self) -> f64 {
///         self.state.value()
///     }
/// }
/// ```
///
/// The results of methods are whatever converts, so that a name can be a `String` or a [`MetricName`], an entry a
/// [`MetricEntry`] or a [`SerializedEntry`](super::SerializedEntry), a value an `f64` or a [`NumericEntry`]: Burn's book and
/// Burn 0.20 differ in these. Who does not want the compiler's note on `refining_impl_trait` writes the trait's own result
/// types, such as `impl Into<MetricName>`.
pub trait Metric: Send + Sync {
    /// What it is computed from.
    type Input;

    /// Its name, with its parameters if it has any; names of files are made of it. No two metrics of a learner have the same
    /// one.
    fn name(&self) -> impl Into<MetricName>;

    /// What it measures, in a sentence.
    fn description(&self) -> Option<String> {
        None
    }

    /// Its unit, and which values are good.
    fn attributes(&self) -> MetricAttributes {
        MetricAttributes::None
    }

    /// Takes a step's output in; the result is what is logged and shown.
    fn update(&mut self, item: &Self::Input, metadata: &MetricMetadata) -> impl Into<MetricEntry>;

    /// Begins anew, at the begin of an epoch.
    fn clear(&mut self);
}

/// A metric that is a number, which can be plotted, and by which a training can be stopped or a checkpoint kept.
pub trait Numeric {
    /// The value of the last step.
    fn value(&self) -> impl Into<NumericEntry>;

    /// The value over the epoch so far.
    fn running_value(&self) -> impl Into<NumericEntry> {
        self.value()
    }
}

/// Tells metrics apart: their names do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MetricId {
    name: MetricName,
}

impl MetricId {
    /// Of a metric's name.
    pub fn new(name: MetricName) -> Self {
        Self { name }
    }
}

/// What there is to know of a metric, for renderers.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricDefinition {
    /// Which metric it is.
    pub metric_id: MetricId,
    /// Its name.
    pub name: String,
    /// What it measures.
    pub description: Option<String>,
    /// Its unit, and which values are good.
    pub attributes: MetricAttributes,
}

impl MetricDefinition {
    /// Of a metric.
    pub fn new<Me: Metric>(metric_id: MetricId, metric: &Me) -> Self {
        let name: MetricName = metric.name().into();
        let (description, attributes) = (metric.description(), metric.attributes());
        Self { metric_id, name: name.to_string(), description, attributes }
    }

    /// Of a metric, which its name tells apart.
    pub(crate) fn of<Me: Metric>(metric: &Me) -> Self {
        Self::new(MetricId::new(metric.name().into()), metric)
    }
}

/// What a metric's values are like.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum MetricAttributes {
    /// Numbers.
    Numeric(NumericAttributes),
    /// Nothing is known.
    #[default]
    None,
}

/// What a numeric metric's values are like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumericAttributes {
    /// Their unit.
    pub unit: Option<String>,
    /// Whether a model is better that has a higher one.
    pub higher_is_better: bool,
}

impl From<NumericAttributes> for MetricAttributes {
    fn from(attributes: NumericAttributes) -> Self {
        Self::Numeric(attributes)
    }
}

/// Makes a metric's input of an output.
pub trait Adaptor<T> {
    /// The input.
    fn adapt(&self) -> T;
}

impl<T> Adaptor<()> for T {
    fn adapt(&self) {}
}

/// An output whose tensors may still be computed: a step yields it without waiting for the device, and the thread that
/// computes metrics reads it.
pub trait ItemLazy: Send {
    /// The output once it was read.
    type ItemSync: Send;

    /// Waits for the device and reads.
    fn sync(self) -> Self::ItemSync;
}

impl ItemLazy for () {
    type ItemSync = ();

    fn sync(self) {}
}
