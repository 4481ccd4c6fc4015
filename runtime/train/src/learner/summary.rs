//! [`LearnerSummary`]: what came of a training.

use crate::metric::format_float;
use crate::metric::store::{Direction, History, Split, best};
use std::fmt;

/// A metric's best and worst epochs.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSummary {
    /// The metric.
    pub name: String,
    /// Training or validation.
    pub split: Split,
    /// Its value in each epoch that has one.
    pub epochs: Vec<(usize, f64)>,
}

impl MetricSummary {
    /// The first epoch with the lowest value, and the value.
    pub fn min(&self) -> Option<(usize, f64)> {
        best(self.epochs.iter().copied(), Direction::Lowest)
    }

    /// The first epoch with the highest value, and the value.
    pub fn max(&self) -> Option<(usize, f64)> {
        best(self.epochs.iter().copied(), Direction::Highest)
    }
}

/// What came of a training: the metrics of its epochs. It is printed as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnerSummary {
    /// The model, as it prints itself.
    pub model: String,
    /// Epochs that were trained.
    pub epochs: usize,
    /// The numeric metrics, those of training first.
    pub metrics: Vec<MetricSummary>,
}

impl LearnerSummary {
    pub(super) fn new(model: String, epochs: usize, histories: Vec<History>) -> Self {
        let summary = |History { split, name, values }| MetricSummary { name, split, epochs: values };
        Self { model, epochs, metrics: histories.into_iter().map(summary).collect() }
    }
}

/// The cells of an extreme.
fn cells(extreme: Option<(usize, f64)>) -> [String; 2] {
    match extreme {
        Some((epoch, value)) => [format_float(value, 3), epoch.to_string()],
        None => ["-".to_owned(), "-".to_owned()],
    }
}

impl fmt::Display for LearnerSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["Split", "Metric", "Min.", "Epoch", "Max.", "Epoch"].map(str::to_owned);
        let rows = self.metrics.iter().map(|metric| {
            let split = match metric.split {
                Split::Train => "Train",
                Split::Valid => "Valid",
            };
            let ([min, min_epoch], [max, max_epoch]) = (cells(metric.min()), cells(metric.max()));
            [split.to_owned(), metric.name.clone(), min, min_epoch, max, max_epoch]
        });
        let rows: Vec<_> = std::iter::once(heads).chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3, 4, 5].map(width);
        writeln!(f, "{:=^1$}", " Learner Summary ", widths.iter().sum::<usize>() + 3 * 5)?;
        writeln!(f, "Model:\n{}", self.model.trim_end())?;
        writeln!(f, "Epochs: {}\n", self.epochs)?;
        for (place, row) in rows.iter().enumerate() {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join(" | ").trim_end())?;
            if place == 0 {
                let rules = widths.map(|width| "-".repeat(width));
                writeln!(f, "{}", rules.join("-+-"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table() {
        let history = |split, name: &str, values| History { split, name: name.to_owned(), values };
        let summary = LearnerSummary::new(
            "Tiny { params: 3 }".to_owned(),
            2,
            vec![
                history(Split::Train, "Loss", vec![(1, 1.5), (2, 0.25)]),
                history(Split::Valid, "Accuracy", vec![(1, f64::NAN), (2, f64::NAN)]),
            ],
        );
        let expected = "\
=============== Learner Summary ================
Model:
Tiny { params: 3 }
Epochs: 2

Split | Metric   | Min.  | Epoch | Max.  | Epoch
------+----------+-------+-------+-------+------
Train | Loss     | 0.250 | 2     | 1.500 | 1
Valid | Accuracy | -     | -     | -     | -
";
        assert_eq!(summary.to_string(), expected);
    }
}
