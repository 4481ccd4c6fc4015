//! Logs: the values of metrics, and what a program says.

mod application;
mod metric;

pub use application::{ApplicationLoggerInstaller, FileApplicationLoggerInstaller};
pub use metric::{FileMetricLogger, InMemoryMetricLogger, MetricLogger};
