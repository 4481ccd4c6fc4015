//! Training: what a model does in a step, what is measured of it, and the loop around both.
//!
//! - [`TrainStep`], [`ValidStep`]: what a model does with a batch; [`ClassificationOutput`] and its neighbours: what comes
//!   of it.
//! - [`metric`]: what is measured of these outputs; [`logger`]: where that is logged; [`renderer`]: how it is shown.
//! - [`LearnerBuilder`], [`Learner`]: the training loop, with [`checkpoint`]s from which a run that was stopped goes on with
//!   the same numbers as if it had not been.
//!
//! - [`supervised`]: the same training as Burn 0.20 spells it, [`SupervisedTraining`].
//!
//! Names are those of Burn's `burn-train`, as its book uses them.
#![forbid(unsafe_code)]

pub mod checkpoint;
mod curves;
mod error;
mod learner;
pub mod logger;
pub mod metric;
mod output;
mod precision;
mod random;
pub mod renderer;
mod step;
pub mod supervised;

pub use error::TrainError;
pub use learner::{
    EarlyStoppingStrategy, Interrupter, Learner, LearnerBuilder, LearnerSummary, LearningStrategy,
    MetricEarlyStoppingStrategy, MetricRegistration, MetricSummary, StoppingCondition,
    TextMetricRegistration, TrainingInterrupter, TrainingResult,
};
pub use logger::{ApplicationLoggerInstaller, FileApplicationLoggerInstaller};
pub use metric::ItemLazy;
pub use output::{ClassificationOutput, MultiLabelClassificationOutput, RegressionOutput};
pub use precision::{MixedPrecision, MixedTrainStep, StepPrecision};
pub use step::{TrainOutput, TrainStep, ValidStep};
pub use supervised::{
    EvalMetricRegistration, EvalTextMetricRegistration, Evaluator, EvaluatorBuilder, InferenceStep,
    LearningResult, MultiDeviceOptim, SupervisedTraining, TrainingStrategy,
};

/// A metric's name as that of a file: what no file system minds.
fn file_name(name: &str) -> String {
    // Points alone are no name, but a folder: this one, or the one above.
    let is_folder = name.chars().all(|c| c == '.');
    let is_plain = |c: char| c.is_alphanumeric() || "-_()@[]".contains(c) || (c == '.' && !is_folder);
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if plain.is_empty() { "_".to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn names_of_files_stay_in_their_folder() {
        for (name, expected) in
            [("Top-5 @ 1.0", "Top-5_@_1.0"), ("..", "__"), (".", "_"), ("", "_"), ("../a", ".._a")]
        {
            assert_eq!(file_name(name), expected);
        }
    }
}
