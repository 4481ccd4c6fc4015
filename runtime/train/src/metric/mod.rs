//! Metrics: what is measured of the outputs of steps.
//!
//! A step's output ([`ItemLazy`]) goes to another thread, which reads its tensors and computes the metrics there, so that no
//! step waits for the device.

mod accuracy;
mod auroc;
mod base;
mod classification;
mod confusion;
mod entry;
mod error_rate;
mod fbeta;
mod hamming;
mod iteration;
mod learning_rate;
mod loss;
#[cfg(feature = "metrics")]
mod machine;
mod perplexity;
mod precision;
mod recall;
pub mod state;
pub mod store;
mod top_k;
pub mod vision;

pub use accuracy::{AccuracyInput, AccuracyMetric};
pub use auroc::{AurocInput, AurocMetric};
pub use base::{
    Adaptor, ItemLazy, Metric, MetricAttributes, MetricDefinition, MetricId, MetricMetadata, Numeric,
    NumericAttributes,
};
pub use classification::{ClassReduction, ClassificationMetricConfig, DecisionRule};
pub use confusion::{ConfusionStats, ConfusionStatsInput};
pub use entry::{MetricEntry, MetricName, NumericEntry, SerializedEntry};
pub use error_rate::{CerInput, CharErrorRate, WerInput, WordErrorRate};
pub use fbeta::FBetaScoreMetric;
pub use hamming::{HammingScore, HammingScoreInput};
pub use iteration::IterationSpeedMetric;
pub use learning_rate::LearningRateMetric;
pub use loss::{LossInput, LossMetric};
#[cfg(feature = "metrics")]
pub use machine::{CpuMemory, CpuTemperature, CpuUse, CudaMetric, GpuTemperature};
pub use perplexity::{PerplexityInput, PerplexityMetric};
pub use precision::PrecisionMetric;
pub use recall::RecallMetric;
pub use state::{FormatOptions, NumericMetricState, format_float};
pub use top_k::{TopKAccuracyInput, TopKAccuracyMetric};

/// [`ItemLazy`], where Burn keeps it.
pub mod processor {
    pub use super::ItemLazy;
}

/// Implements what all metrics with a [`NumericMetricState`] in `state` and their name in `name` have.
macro_rules! state_metric {
    ($metric:ident, $input:ty, unit: $unit:expr, higher_is_better: $better:expr, |$this:ident, $item:ident, $metadata:ident| $value:expr) => {
        impl<B: kiln_core::tensor::backend::Backend> crate::metric::Metric for $metric<B> {
            type Input = $input;

            fn name(&self) -> impl Into<crate::metric::MetricName> {
                self.name.clone()
            }

            fn attributes(&self) -> crate::metric::MetricAttributes {
                let unit: Option<&str> = $unit;
                let unit = unit.map(str::to_owned);
                crate::metric::NumericAttributes { unit, higher_is_better: $better }.into()
            }

            fn update(
                &mut self,
                $item: &Self::Input,
                $metadata: &crate::metric::MetricMetadata,
            ) -> impl Into<crate::metric::MetricEntry> {
                let $this = &*self;
                let (value, count): (f64, usize) = $value;
                let unit: Option<&str> = $unit;
                let format = crate::metric::FormatOptions::new(self.name.clone());
                let format = match unit {
                    Some(unit) => format.unit(unit).precision(2),
                    None => format.precision(3),
                };
                self.state.update::<crate::metric::MetricEntry>(value, count, format)
            }

            fn clear(&mut self) {
                self.state.reset();
            }
        }

        impl<B: kiln_core::tensor::backend::Backend> crate::metric::Numeric for $metric<B> {
            fn value(&self) -> impl Into<crate::metric::NumericEntry> {
                self.state.current_value()
            }

            fn running_value(&self) -> impl Into<crate::metric::NumericEntry> {
                self.state.running_value()
            }
        }
    };
}
use state_metric;

use kiln_core::Tensor;
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{Bool, ElementConversion};

/// How many elements are true.
fn count<B: Backend, const D: usize>(tensor: Tensor<B, D, Bool>) -> usize {
    tensor.int().sum().into_scalar().elem::<i64>().try_into().unwrap_or(0)
}

/// `part` of `whole`, in percent; 0 where there is nothing.
fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}
