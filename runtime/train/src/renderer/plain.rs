//! [`CliMetricsRenderer`]: lines of text.

use super::{MetricState, MetricsRenderer, TrainingProgress};
use crate::metric::MetricEntry;
use std::io::Write;
use std::time::{Duration, Instant};

/// Lines come at most this often, except the last one of an epoch's part.
const PAUSE: Duration = Duration::from_secs(2);

/// Writes a line now and then, to standard error unless told otherwise.
pub struct CliMetricsRenderer {
    out: Box<dyn Write + Send + Sync>,
    train: Vec<MetricEntry>,
    valid: Vec<MetricEntry>,
    last: Option<Instant>,
}

impl Default for CliMetricsRenderer {
    fn default() -> Self {
        Self::new()
    }
}

impl CliMetricsRenderer {
    /// To standard error.
    pub fn new() -> Self {
        Self::to(std::io::stderr())
    }

    /// To something else.
    pub fn to(out: impl Write + Send + Sync + 'static) -> Self {
        Self { out: Box::new(out), train: Vec::new(), valid: Vec::new(), last: None }
    }
}

fn set(entries: &mut Vec<MetricEntry>, state: MetricState) {
    let (MetricState::Generic(entry) | MetricState::Numeric(entry, _)) = state;
    match entries.iter_mut().find(|known| known.name == entry.name) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    }
}

fn line(part: &str, item: &TrainingProgress, entries: &[MetricEntry]) -> String {
    let (done, all) = (item.progress.items_processed, item.progress.items_total);
    let mut line = format!("{part} epoch {}/{}, {done}/{all} items", item.epoch, item.epoch_total);
    for entry in entries {
        line.push_str(&format!(" | {}: {}", entry.name, entry.formatted));
    }
    line
}

impl CliMetricsRenderer {
    fn is_due(&mut self, item: &TrainingProgress) -> bool {
        let is_last = item.progress.items_processed >= item.progress.items_total;
        let due = is_last || self.last.is_none_or(|last| last.elapsed() >= PAUSE);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }

    fn write(&mut self, line: &str) {
        // Nobody may be there to read: no reason to stop.
        let _ = writeln!(self.out, "{line}");
    }
}

impl MetricsRenderer for CliMetricsRenderer {
    fn update_train(&mut self, state: MetricState) {
        set(&mut self.train, state);
    }

    fn update_valid(&mut self, state: MetricState) {
        set(&mut self.valid, state);
    }

    fn render_train(&mut self, item: TrainingProgress) {
        if self.is_due(&item) {
            let line = line("Train", &item, &self.train);
            self.write(&line);
        }
    }

    fn render_valid(&mut self, item: TrainingProgress) {
        if self.is_due(&item) {
            let line = line("Valid", &item, &self.valid);
            self.write(&line);
        }
    }
}
