//! What a metric yields.

use std::fmt;
use std::sync::Arc;

/// The name of a metric.
pub type MetricName = Arc<String>;

/// A metric's result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricEntry {
    /// The metric.
    pub name: MetricName,
    /// For people.
    pub formatted: String,
    /// For the log.
    pub serialize: String,
}

impl MetricEntry {
    /// The metric's name, what people read, and what is logged.
    pub fn new(name: impl Into<MetricName>, formatted: String, serialize: String) -> Self {
        Self { name: name.into(), formatted, serialize }
    }
}

/// A metric's result of a step, without the metric's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerializedEntry {
    /// For people.
    pub formatted: String,
    /// For the log.
    pub serialized: String,
}

impl SerializedEntry {
    /// What people read, and what is logged.
    pub fn new(formatted: String, serialized: String) -> Self {
        Self { formatted, serialized }
    }
}

/// The name is left empty: who asked the metric knows it.
impl From<SerializedEntry> for MetricEntry {
    fn from(entry: SerializedEntry) -> Self {
        Self { name: MetricName::default(), formatted: entry.formatted, serialize: entry.serialized }
    }
}

impl From<MetricEntry> for SerializedEntry {
    fn from(entry: MetricEntry) -> Self {
        Self { formatted: entry.formatted, serialized: entry.serialize }
    }
}

/// A number that a metric yields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumericEntry {
    /// The number.
    Value(f64),
    /// A mean, and the number of values that it is of.
    Aggregated {
        /// The mean.
        aggregated_value: f64,
        /// The number of values.
        count: usize,
    },
}

impl From<f64> for NumericEntry {
    fn from(value: f64) -> Self {
        Self::Value(value)
    }
}

impl NumericEntry {
    /// The number.
    pub fn current(&self) -> f64 {
        match *self {
            Self::Value(value) | Self::Aggregated { aggregated_value: value, .. } => value,
        }
    }

    /// The number of values that it stands for.
    pub fn count(&self) -> usize {
        match *self {
            Self::Value(_) => 1,
            Self::Aggregated { count, .. } => count,
        }
    }

    /// The sum of the values that it stands for; that of none is 0, though their mean is no number.
    pub(crate) fn sum(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.current() * count as f64,
        }
    }

    /// As it is logged: `value` or `value,count`, from which [`NumericEntry::deserialize`] makes the same number again.
    pub fn serialize(&self) -> String {
        self.to_string()
    }

    /// From what was logged.
    ///
    /// # Errors
    /// When the text is of another form, which the error says.
    pub fn deserialize(text: &str) -> Result<Self, String> {
        let fail = || format!("`{text}` is no number, nor `mean,count`");
        let Some((value, count)) = text.split_once(',') else {
            return text.trim().parse().map(Self::Value).map_err(|_| fail());
        };
        match (value.trim().parse(), count.trim().parse()) {
            (Ok(aggregated_value), Ok(count)) => Ok(Self::Aggregated { aggregated_value, count }),
            _ => Err(fail()),
        }
    }
}

impl fmt::Display for NumericEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{value}"),
            Self::Aggregated { aggregated_value, count } => write!(f, "{aggregated_value},{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_logged_exactly() {
        let third = 1.0 / 3.0;
        for entry in [
            NumericEntry::Value(third),
            NumericEntry::Value(-1e-300),
            NumericEntry::Aggregated { aggregated_value: third * 1e17, count: 7 },
        ] {
            assert_eq!(NumericEntry::deserialize(&entry.serialize()), Ok(entry));
        }
        assert!(NumericEntry::deserialize("NaN").is_ok_and(|entry| entry.current().is_nan()));
        for text in ["", "a", "1,", "1,b", "1,-2"] {
            assert!(NumericEntry::deserialize(text).is_err_and(|error| error.contains(text)), "{text}");
        }
    }
}
