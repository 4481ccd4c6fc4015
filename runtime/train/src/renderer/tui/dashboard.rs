//! What the dashboard shows.

use crate::metric::store::Split;
use crate::metric::{MetricEntry, MetricName, NumericEntry};
use crate::renderer::{MetricState, TrainingProgress};
use std::time::{Duration, Instant};

/// A curve has fewer points than this, an even number; then neighbours become one.
const POINTS: usize = 512;

/// A metric's values over the epochs.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    /// Epochs, the current one in part, and the means of the steps that a point stands for.
    pub(super) points: Vec<(f64, f64)>,
    /// The steps that each point stands for.
    steps: usize,
    /// Steps that do not make a point yet: the sum of their values, and how many.
    open: (f64, usize),
}

impl Curve {
    fn push(&mut self, epoch: f64, value: f64) {
        if !value.is_finite() {
            return;
        }
        let (sum, count) = (self.open.0 + value, self.open.1 + 1);
        if count < self.steps.max(1) {
            self.open = (sum, count);
            return;
        }
        self.open = (0.0, 0);
        self.points.push((epoch, sum / count as f64));
        if self.points.len() == POINTS {
            let mean = |pair: &[(f64, f64)]| {
                let value = pair.iter().map(|(_, value)| value).sum::<f64>() / pair.len() as f64;
                (pair[pair.len() - 1].0, value)
            };
            self.points = self.points.chunks(2).map(mean).collect();
            self.steps = self.steps.max(1) * 2;
        }
    }
}

/// What is known of a metric in training, or in validation.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// What people read.
    pub(super) text: String,
    /// A value whose place is not known yet.
    pending: Option<f64>,
    pub(super) curve: Curve,
}

/// A metric.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) name: MetricName,
    pub(super) train: Option<Part>,
    pub(super) valid: Option<Part>,
    /// Whether it can be plotted.
    pub(super) numeric: bool,
}

impl Shown {
    fn part(&mut self, split: Split) -> &mut Option<Part> {
        match split {
            Split::Train => &mut self.train,
            Split::Valid => &mut self.valid,
        }
    }
}

/// What somebody at the keyboard wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Next,
    Previous,
    Stop,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Another picture.
    Redraw,
    /// The training ends after its step.
    Interrupt,
    /// The program ends now.
    Quit,
}

/// What the dashboard shows.
#[derive(Clone, Debug)]
pub(super) struct Dashboard {
    pub(super) metrics: Vec<Shown>,
    /// The metric that is plotted, among those that can be.
    selected: usize,
    pub(super) progress: Option<(Split, TrainingProgress)>,
    pub(super) stopping: bool,
    start: Instant,
    /// When the first step was over, and how much of the training was over then.
    first: Option<(Instant, f64)>,
}

impl Dashboard {
    pub(super) fn new() -> Self {
        let start = Instant::now();
        Self { metrics: Vec::new(), selected: 0, progress: None, stopping: false, start, first: None }
    }

    /// Takes in a metric's result.
    pub(super) fn update(&mut self, split: Split, state: MetricState) {
        let (entry, number): (MetricEntry, Option<NumericEntry>) = match state {
            MetricState::Generic(entry) => (entry, None),
            MetricState::Numeric(entry, number) => (entry, Some(number)),
        };
        let place = self.metrics.iter().position(|metric| metric.name == entry.name).unwrap_or_else(|| {
            let name = entry.name.clone();
            self.metrics.push(Shown { name, train: None, valid: None, numeric: number.is_some() });
            self.metrics.len() - 1
        });
        let part = self.metrics[place].part(split).get_or_insert_default();
        part.text = entry.formatted;
        part.pending = number.map(|number| number.current());
    }

    /// Takes in how far the training is: what came before belongs there.
    pub(super) fn advance(&mut self, split: Split, item: TrainingProgress) {
        let epoch = item.epoch.saturating_sub(1) as f64 + part_of(&item);
        for metric in &mut self.metrics {
            if let Some(part) = metric.part(split)
                && let Some(value) = part.pending.take()
            {
                part.curve.push(epoch, value);
            }
        }
        self.progress = Some((split, item));
        self.first.get_or_insert((Instant::now(), self.done()));
    }

    /// What somebody at the keyboard wants.
    pub(super) fn answer(&mut self, request: Request) -> Answer {
        let count = self.plotted().count().max(1);
        match request {
            Request::Next => self.selected = (self.selected + 1) % count,
            Request::Previous => self.selected = (self.selected + count - 1) % count,
            Request::Stop if self.stopping => return Answer::Quit,
            Request::Stop => {
                self.stopping = true;
                return Answer::Interrupt;
            }
        }
        Answer::Redraw
    }

    fn plotted(&self) -> impl Iterator<Item = &Shown> {
        self.metrics.iter().filter(|metric| metric.numeric)
    }

    /// The metric that is plotted.
    pub(super) fn selected(&self) -> Option<&Shown> {
        self.plotted().nth(self.selected)
    }

    /// How much of the whole training is over, from 0 to 1; validation counts nothing.
    pub(super) fn done(&self) -> f64 {
        let Some((split, item)) = &self.progress else { return 0.0 };
        let epochs = match split {
            Split::Train => item.epoch.saturating_sub(1) as f64 + part_of(item),
            Split::Valid => item.epoch as f64,
        };
        (epochs / item.epoch_total.max(1) as f64).clamp(0.0, 1.0)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The time that is left if it goes on as before.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let (since, done_then) = self.first?;
        let done = self.done();
        let left = since.elapsed().as_secs_f64() * (1.0 - done) / (done - done_then);
        Duration::try_from_secs_f64(left).ok()
    }
}

fn part_of(item: &TrainingProgress) -> f64 {
    item.progress.items_processed as f64 / item.progress.items_total.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_curves_stay_short_and_keep_their_means() {
        let mut curve = Curve::default();
        let all = 10_000;
        for step in 0..all {
            curve.push(step as f64, f64::from(step % 2));
        }
        curve.push(0.0, f64::NAN);
        assert!(curve.points.len() < POINTS && curve.points.len() > POINTS / 4, "{}", curve.points.len());
        assert!(curve.points.iter().all(|(_, value)| *value == 0.5));
        assert!(curve.points.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn the_keyboard() {
        let mut dashboard = Dashboard::new();
        assert_eq!(dashboard.answer(Request::Next), Answer::Redraw);
        for name in ["Loss", "Accuracy"] {
            let entry = MetricEntry::new(name.to_owned(), String::new(), String::new());
            dashboard.update(Split::Train, MetricState::Numeric(entry, 1.0.into()));
        }
        let entry = MetricEntry::new("Text".to_owned(), String::new(), String::new());
        dashboard.update(Split::Train, MetricState::Generic(entry));
        let selected = |dashboard: &Dashboard| dashboard.selected().map(|metric| metric.name.to_string());
        let mut seen = Vec::new();
        for request in [Request::Next, Request::Next, Request::Previous] {
            dashboard.answer(request);
            seen.push(selected(&dashboard).expect("a metric"));
        }
        assert_eq!(seen, ["Accuracy", "Loss", "Accuracy"]);
        assert_eq!(dashboard.answer(Request::Stop), Answer::Interrupt);
        assert_eq!(dashboard.answer(Request::Stop), Answer::Quit);
    }
}
