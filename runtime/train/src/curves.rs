//! Learning curves: a metric's values over the epochs, drawn as SVG.

use crate::TrainError;
use crate::metric::format_float;
use crate::metric::store::{History, Split};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// Around the plot: left, right, top, bottom.
const MARGINS: [f64; 4] = [72.0, 20.0, 40.0, 48.0];
/// Lines across the plot.
const GRID: usize = 5;

/// Draws each metric to a file of its own. A metric without a number has none.
pub(crate) fn write(folder: &Path, histories: &[History]) -> Result<(), TrainError> {
    let mut by_name: BTreeMap<&str, Vec<&History>> = BTreeMap::new();
    for history in histories {
        by_name.entry(&history.name).or_default().push(history);
    }
    for (name, histories) in by_name {
        let Some(drawing) = draw(name, &histories) else { continue };
        let path = folder.join(format!("{}.svg", crate::file_name(name)));
        fs::create_dir_all(folder).map_err(|source| TrainError::file(folder, source))?;
        fs::write(&path, drawing).map_err(|source| TrainError::file(&path, source))?;
    }
    Ok(())
}

/// From a range of values to a range of places.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// A range of one value becomes one around it.
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let range = values.fold(None, |range: Option<(f64, f64)>, value| {
            let (low, high) = range.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        });
        let (low, high) = range?;
        let around = if low == high { low.abs().max(1.0) / 2.0 } else { 0.0 };
        Some(Self { low: low - around, high: high + around, from, to })
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn marks(&self, count: usize) -> impl Iterator<Item = f64> {
        (0..count).map(move |mark| self.low + (self.high - self.low) * mark as f64 / (count - 1) as f64)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The drawing; nothing if there is no value to draw.
fn draw(name: &str, histories: &[&History]) -> Option<String> {
    let [left, right, top, bottom] = MARGINS;
    let points = || {
        let all = histories.iter().flat_map(|history| &history.values);
        all.filter(|(_, value)| value.is_finite()).map(|(epoch, value)| (*epoch as f64, *value))
    };
    let x = Axis::new(points().map(|(epoch, _)| epoch), left, WIDTH - right)?;
    let y = Axis::new(points().map(|(_, value)| value), HEIGHT - bottom, top)?;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    let middle = (left + WIDTH - right) / 2.0;
    line(format!(
        "<text x=\"{middle}\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{}</text>",
        escape(name)
    ));
    line(format!("<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">epoch</text>", HEIGHT - 10.0));
    for value in y.marks(GRID) {
        let (at, end) = (y.place(value), WIDTH - right);
        line(format!("<line x1=\"{left}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>"));
        let (at_x, at_y, text) = (left - 6.0, at + 4.0, format_float(value, 3));
        line(format!("<text x=\"{at_x}\" y=\"{at_y:.1}\" text-anchor=\"end\">{text}</text>"));
    }
    let mut epochs: Vec<f64> = points().map(|(epoch, _)| epoch).collect();
    epochs.sort_by(f64::total_cmp);
    epochs.dedup();
    for epoch in epochs.iter().step_by(epochs.len().div_ceil(10)) {
        let (at, at_y) = (x.place(*epoch), HEIGHT - bottom + 18.0);
        line(format!("<text x=\"{at:.1}\" y=\"{at_y}\" text-anchor=\"middle\">{epoch}</text>"));
    }
    for history in histories {
        let (label, colour, place) = match history.split {
            Split::Train => ("train", "#1f77b4", 0.0),
            Split::Valid => ("valid", "#d62728", 60.0),
        };
        line(curve(history, &x, &y, colour));
        let at = WIDTH - right - 110.0 + place;
        line(format!("<text x=\"{at}\" y=\"24\" fill=\"{colour}\">{label}</text>"));
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// A line through the values, and a dot for each.
fn curve(history: &History, x: &Axis, y: &Axis, colour: &str) -> String {
    let finite = history.values.iter().filter(|(_, value)| value.is_finite());
    let places: Vec<_> = finite.map(|(epoch, value)| (x.place(*epoch as f64), y.place(*value))).collect();
    let joined: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut text = format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        joined.join(" ")
    );
    for (x, y) in places {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_lie_within_the_plot() {
        let history = |split, values: &[(usize, f64)]| History {
            split,
            name: "Loss <a&b>".to_owned(),
            values: values.to_vec(),
        };
        let train = history(Split::Train, &[(1, 3.0), (2, 1.0), (3, f64::NAN), (4, 2.0)]);
        let valid = history(Split::Valid, &[(1, 2.0)]);
        let drawing = draw("Loss <a&b>", &[&train, &valid]).expect("a drawing");
        assert!(drawing.contains("Loss &lt;a&amp;b&gt;"));
        // The first epoch is left, the highest value on top.
        assert!(drawing.contains("points=\"72.0,40.0 254.7,352.0 620.0,196.0\""), "{drawing}");
        assert_eq!(drawing.matches("<circle").count(), 4);
        assert_eq!(draw("Loss", &[&history(Split::Train, &[(1, f64::NAN)])]), None);
        assert!(draw("Loss", &[&history(Split::Train, &[(1, 0.0)])]).is_some_and(|svg| !svg.contains("NaN")));
    }
}
