//! The picture of a dashboard.

use super::dashboard::{Dashboard, Part, Shown};
use crate::metric::format_float;
use crate::metric::store::Split;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, LegendPosition, Paragraph, Wrap};
use std::time::Duration;

const TRAIN: Color = Color::LightBlue;
const VALID: Color = Color::LightRed;

/// Draws a dashboard.
pub(super) fn draw(frame: &mut Frame<'_>, dashboard: &Dashboard) {
    let [main, progress] = Layout::vertical([Constraint::Min(6), Constraint::Length(3)]).areas(frame.area());
    let [metrics, plot] =
        Layout::horizontal([Constraint::Percentage(42), Constraint::Percentage(58)]).areas(main);
    draw_metrics(frame, metrics, dashboard);
    draw_plot(frame, plot, dashboard.selected());
    draw_progress(frame, progress, dashboard);
}

fn draw_metrics(frame: &mut Frame<'_>, area: Rect, dashboard: &Dashboard) {
    let selected = dashboard.selected().map(|metric| &metric.name);
    let mut lines = Vec::new();
    for metric in &dashboard.metrics {
        let style = match selected == Some(&metric.name) {
            true => Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED),
            false => Style::new().add_modifier(Modifier::BOLD),
        };
        lines.push(Line::styled(metric.name.to_string(), style));
        for (label, part, colour) in [("train ", &metric.train, TRAIN), ("valid ", &metric.valid, VALID)] {
            if let Some(Part { text, .. }) = part {
                let label = Span::styled(label, Style::new().fg(colour));
                lines.push(Line::from(vec![label, Span::raw(text.clone())]));
            }
        }
    }
    let block = Block::bordered().title("Metrics").title_bottom("←/→ plot, q stop");
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

/// The range that points lie in, a bit wider if they are all in one place.
fn bounds(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let [low, high] = values
        .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| [low.min(value), high.max(value)]);
    match low < high {
        true => [low, high],
        false if low == high => [low - 0.5, high + 0.5],
        false => [0.0, 1.0],
    }
}

fn axis(title: &str, range: [f64; 2], precision: usize) -> Axis<'_> {
    let labels = [range[0], f64::midpoint(range[0], range[1]), range[1]];
    let labels = labels.map(|value| format_float(value, precision));
    Axis::default().title(title).bounds(range).labels(labels).style(Style::new().fg(Color::Gray))
}

fn draw_plot(frame: &mut Frame<'_>, area: Rect, metric: Option<&Shown>) {
    let Some(metric) = metric else {
        frame.render_widget(Block::bordered().title("Plot"), area);
        return;
    };
    let parts = [("train", &metric.train, TRAIN), ("valid", &metric.valid, VALID)];
    let points = || parts.iter().filter_map(|(_, part, _)| part.as_ref()).flat_map(|part| &part.curve.points);
    let x = bounds(points().map(|(epoch, _)| *epoch));
    let y = bounds(points().map(|(_, value)| *value));
    let datasets = parts.iter().filter_map(|(label, part, colour)| {
        let points = &part.as_ref()?.curve.points;
        let set = Dataset::default().name(*label).data(points).style(Style::new().fg(*colour));
        Some(set.graph_type(GraphType::Line).marker(Marker::Braille))
    });
    let chart = Chart::new(datasets.collect())
        .block(Block::bordered().title(metric.name.to_string()))
        .legend_position(Some(LegendPosition::TopRight))
        .x_axis(axis("epoch", x, 2))
        .y_axis(axis("", y, 3));
    frame.render_widget(chart, area);
}

/// Hours, minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn draw_progress(frame: &mut Frame<'_>, area: Rect, dashboard: &Dashboard) {
    let state = match &dashboard.progress {
        None => "waiting for the first step".to_owned(),
        Some((split, item)) => {
            let part = match split {
                Split::Train => "training",
                Split::Valid => "validating",
            };
            let (done, all) = (item.progress.items_processed, item.progress.items_total);
            let (epoch, epochs, step) = (item.epoch, item.epoch_total, item.iteration);
            format!("{part}, epoch {epoch}/{epochs}, step {step}, {done}/{all} items")
        }
    };
    let state = if dashboard.stopping { format!("stopping | {state}") } else { state };
    let remaining = dashboard.remaining().map_or_else(|| "?".to_owned(), clock);
    let times = format!("{} elapsed, {remaining} left", clock(dashboard.elapsed()));
    let block = Block::bordered().title(state).title_bottom(times);
    let gauge =
        Gauge::default().block(block).gauge_style(Style::new().fg(Color::Green)).ratio(dashboard.done());
    frame.render_widget(gauge, area);
}

#[cfg(test)]
mod tests {
    use super::super::dashboard::Request;
    use super::*;
    use crate::metric::{MetricEntry, NumericEntry};
    use crate::renderer::{MetricState, TrainingProgress};
    use kiln_data::dataloader::Progress;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// The picture as text, a line a row.
    fn picture(dashboard: &Dashboard) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(90, 20)).expect("a terminal");
        terminal.draw(|frame| draw(frame, dashboard)).expect("a picture");
        let buffer = terminal.backend().buffer();
        let row = |y| (0..90).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..20).map(row).collect()
    }

    fn numeric(name: &str, value: f64) -> MetricState {
        let entry = MetricEntry::new(name.to_owned(), format!("epoch {value:.2}"), String::new());
        MetricState::Numeric(entry, NumericEntry::Value(value))
    }

    fn shows(picture: &[String], text: &str) -> bool {
        picture.iter().any(|row| row.contains(text))
    }

    #[test]
    fn a_training_is_seen() {
        let mut dashboard = Dashboard::new();
        let empty = picture(&dashboard);
        assert!(shows(&empty, "waiting for the first step") && shows(&empty, "Metrics"), "{empty:#?}");
        let at = |epoch, iteration, items| TrainingProgress {
            progress: Progress::new(items, 100),
            epoch,
            epoch_total: 4,
            iteration,
        };
        for step in 1..=10 {
            dashboard.update(Split::Train, numeric("Loss", 2.0 / f64::from(step)));
            dashboard.update(Split::Train, numeric("Accuracy", f64::from(step)));
            let entry = MetricEntry::new("Speed".to_owned(), "7 it/s".to_owned(), String::new());
            dashboard.update(Split::Train, MetricState::Generic(entry));
            dashboard.advance(Split::Train, at(1, step as usize, step as usize * 10));
        }
        dashboard.update(Split::Valid, numeric("Loss", 0.75));
        dashboard.advance(Split::Valid, at(1, 1, 50));
        let found = picture(&dashboard);
        for text in [
            "Loss",
            "train epoch 0.20",
            "valid epoch 0.75",
            "Accuracy",
            "train 7 it/s",
            "validating, epoch 1/4, step 1, 50/100 items",
            "25%",
            "elapsed",
            "2.000",
            "0.200",
        ] {
            assert!(shows(&found, text), "{text} is not in {found:#?}");
        }
        let dots = |picture: &[String]| {
            picture
                .iter()
                .flat_map(|row| row.chars())
                .filter(|c| ('\u{2801}'..='\u{28ff}').contains(c))
                .count()
        };
        assert!(dots(&found) > 20, "a curve is drawn: {found:#?}");
        dashboard.answer(Request::Next);
        dashboard.answer(Request::Stop);
        let found = picture(&dashboard);
        assert!(shows(&found, "10.000") && shows(&found, "stopping"), "{found:#?}");
    }

    #[test]
    fn any_size_will_do() {
        let mut dashboard = Dashboard::new();
        dashboard.update(Split::Train, numeric("Loss", 1.0));
        dashboard.advance(Split::Train, TrainingProgress::default());
        for (width, height) in [(1, 1), (5, 3), (20, 6), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
            terminal.draw(|frame| draw(frame, &dashboard)).expect("a picture");
        }
    }

    #[test]
    fn clocks() {
        assert_eq!(clock(Duration::from_secs(3 * 3600 + 62)), "3:01:02");
    }
}
