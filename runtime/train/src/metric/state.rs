//! [`NumericMetricState`]: what most numeric metrics remember.

use super::{MetricEntry, MetricName, NumericEntry};

/// How a metric's numbers are shown.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    name: MetricName,
    unit: Option<String>,
    precision: Option<usize>,
}

impl FormatOptions {
    /// Of a metric; without a unit, with as many digits as a number needs.
    pub fn new(name: impl Into<MetricName>) -> Self {
        Self { name: name.into(), unit: None, precision: None }
    }

    /// With a unit.
    #[must_use]
    pub fn unit(mut self, unit: &str) -> Self {
        self.unit = Some(unit.to_owned());
        self
    }

    /// With a number of digits after the point.
    #[must_use]
    pub fn precision(mut self, precision: usize) -> Self {
        self.precision = Some(precision);
        self
    }

    /// A number with its unit.
    pub fn format(&self, value: f64) -> String {
        let number = match self.precision {
            Some(precision) => format_float(value, precision),
            None => format!("{value}"),
        };
        match &self.unit {
            Some(unit) => format!("{number} {unit}"),
            None => number,
        }
    }
}

/// A number with so many digits after the point; in scientific notation if it is too small to be seen so.
pub fn format_float(value: f64, precision: usize) -> String {
    let smallest = 0.1_f64.powi(i32::try_from(precision).unwrap_or(i32::MAX));
    if value != 0.0 && value.abs() < smallest {
        format!("{value:.precision$e}")
    } else {
        format!("{value:.precision$}")
    }
}

/// The value of the last step and the mean over the epoch.
#[derive(Clone, Debug, Default)]
pub struct NumericMetricState {
    sum: f64,
    count: usize,
    current: f64,
    current_count: usize,
}

impl NumericMetricState {
    /// Without a value.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Takes in the value of a step, a mean over `count` items; the result is a [`MetricEntry`] or a
    /// [`SerializedEntry`](super::SerializedEntry), whatever the metric yields.
    pub fn update<E: From<MetricEntry>>(&mut self, value: f64, count: usize, format: FormatOptions) -> E {
        (self.current, self.current_count) = (value, count);
        self.sum += self.current_value().sum();
        self.count += count;
        let formatted = format!("epoch {} - batch {}", format.format(self.mean()), format.format(value));
        MetricEntry::new(format.name, formatted, self.current_value().serialize()).into()
    }

    fn mean(&self) -> f64 {
        if self.count == 0 { f64::NAN } else { self.sum / self.count as f64 }
    }

    /// The value of the last step.
    pub fn value(&self) -> f64 {
        self.current
    }

    /// The value of the last step, and how many items it is of.
    pub fn current_value(&self) -> NumericEntry {
        NumericEntry::Aggregated { aggregated_value: self.current, count: self.current_count }
    }

    /// The mean over the epoch so far.
    pub fn running_value(&self) -> NumericEntry {
        NumericEntry::Aggregated { aggregated_value: self.mean(), count: self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_weigh_by_their_items() {
        let mut state = NumericMetricState::new();
        let options = || FormatOptions::new("Part".to_owned()).unit("%").precision(2);
        let _: MetricEntry = state.update(50.0, 3, options());
        let entry: MetricEntry = state.update(100.0, 1, options());
        assert_eq!(entry.formatted, "epoch 62.50 % - batch 100.00 %");
        assert_eq!((entry.name.as_str(), entry.serialize.as_str()), ("Part", "100,1"));
        assert_eq!(state.running_value(), NumericEntry::Aggregated { aggregated_value: 62.5, count: 4 });
        let entry: MetricEntry = state.update(f64::NAN, 0, options());
        assert_eq!(entry.formatted, "epoch 62.50 % - batch NaN %");
        assert_eq!(state.running_value(), NumericEntry::Aggregated { aggregated_value: 62.5, count: 4 });
        state.reset();
        assert_eq!(state.running_value().count(), 0);
    }

    #[test]
    fn small_numbers_are_seen() {
        let cases = [(0.0, "0.00"), (0.001, "1.00e-3"), (-12.346, "-12.35"), (f64::NAN, "NaN")];
        for (value, expected) in cases {
            assert_eq!(format_float(value, 2), expected);
        }
    }
}
