//! [`CliMetricsRenderer`]: lines of text.

use super::{EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, TrainingProgress};
use crate::metric::MetricEntry;
use kiln_data::dataloader::Progress;
use std::io::Write;
use std::time::{Duration, Instant};

/// Lines come at most this often, except the last one of an epoch's part.
const PAUSE: Duration = Duration::from_secs(2);

/// Writes a line now and then, to standard error unless told otherwise.
pub struct CliMetricsRenderer {
    out: Box<dyn Write + Send + Sync>,
    train: Vec<MetricEntry>,
    valid: Vec<MetricEntry>,
    /// What is evaluated, and the results.
    test: Option<(EvaluationName, Vec<MetricEntry>)>,
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
        Self { out: Box::new(out), train: Vec::new(), valid: Vec::new(), test: None, last: None }
    }
}

fn set(entries: &mut Vec<MetricEntry>, state: MetricState) {
    let (MetricState::Generic(entry) | MetricState::Numeric(entry, _)) = state;
    match entries.iter_mut().find(|known| known.name == entry.name) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    }
}

fn line(part: &str, progress: Progress, entries: &[MetricEntry]) -> String {
    let (done, all) = (progress.items_processed, progress.items_total);
    let mut line = format!("{part}, {done}/{all} items");
    for entry in entries {
        line.push_str(&format!(" | {}: {}", entry.name, entry.formatted));
    }
    line
}

impl CliMetricsRenderer {
    fn is_due(&mut self, progress: Progress) -> bool {
        let is_last = progress.items_processed >= progress.items_total;
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
        if self.is_due(item.progress) {
            let part = format!("Train epoch {}/{}", item.epoch, item.epoch_total);
            let line = line(&part, item.progress, &self.train);
            self.write(&line);
        }
    }

    fn render_valid(&mut self, item: TrainingProgress) {
        if self.is_due(item.progress) {
            let part = format!("Valid epoch {}/{}", item.epoch, item.epoch_total);
            let line = line(&part, item.progress, &self.valid);
            self.write(&line);
        }
    }

    fn update_test(&mut self, name: EvaluationName, state: MetricState) {
        if self.test.as_ref().is_none_or(|(known, _)| *known != name) {
            self.test = Some((name, Vec::new()));
        }
        if let Some((_, entries)) = &mut self.test {
            set(entries, state);
        }
    }

    fn render_test(&mut self, item: EvaluationProgress) {
        if self.is_due(item.progress)
            && let Some((name, entries)) = &self.test
        {
            let line = line(&format!("Test {name}"), item.progress, entries);
            self.write(&line);
        }
    }
}
