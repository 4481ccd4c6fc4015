//! The course of training, as text and as a picture.

use std::fmt::Write;

/// How an epoch ended; the first one is the state before training.
pub struct Epoch {
    /// Mean loss of its batches.
    pub loss: f32,
    /// Part of the test's images that were right after it.
    pub accuracy: f32,
}

/// Rows of a curve in characters, from 0 to 1.
const ROWS: usize = 10;

/// The accuracies, a column each.
pub fn text(epochs: &[Epoch]) -> String {
    let mut text = String::from("accuracy by epoch\n");
    for row in (0..ROWS).rev() {
        let bottom = row as f32 / ROWS as f32;
        let dots: String =
            epochs.iter().map(|epoch| if epoch.accuracy > bottom { '█' } else { ' ' }).collect();
        // Writing to a text does not fail.
        let _ = writeln!(text, "{:>4.1} |{}", bottom + 1.0 / ROWS as f32, dots.trim_end());
    }
    text
}

const WIDTH: f32 = 640.0;
const HEIGHT: f32 = 320.0;
const MARGIN: f32 = 40.0;

/// Loss and accuracy as lines over the epochs.
pub fn svg(epochs: &[Epoch]) -> String {
    let most = epochs.iter().map(|epoch| epoch.loss).fold(f32::MIN_POSITIVE, f32::max);
    let last = (epochs.len().max(2) - 1) as f32;
    let line = |value: fn(&Epoch) -> f32, top: f32, color: &str| {
        let points: Vec<String> = epochs
            .iter()
            .enumerate()
            .map(|(n, epoch)| {
                let x = MARGIN + n as f32 / last * (WIDTH - 2.0 * MARGIN);
                let y = HEIGHT - MARGIN - value(epoch) / top * (HEIGHT - 2.0 * MARGIN);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let points = points.join(" ");
        format!("<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>")
    };
    let (right, bottom) = (WIDTH - MARGIN, HEIGHT - MARGIN);
    let label = |x: f32, y: f32, anchor: &str, text: &str| {
        format!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" font-size=\"12\">{text}</text>"
        )
    };
    [
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">"),
        format!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>"),
        format!("<path d=\"M{MARGIN},{MARGIN} V{bottom} H{right}\" fill=\"none\" stroke=\"gray\"/>"),
        line(|epoch| epoch.accuracy, 1.0, "seagreen"),
        line(|epoch| epoch.loss, most, "firebrick"),
        label(MARGIN, MARGIN - 8.0, "start", "accuracy (green) from 0 to 1"),
        label(right, MARGIN - 8.0, "end", &format!("loss (red) from 0 to {most:.2}")),
        label(right, bottom + 20.0, "end", &format!("{} epochs", epochs.len().saturating_sub(1))),
        label(MARGIN, bottom + 20.0, "start", "0"),
        "</svg>\n".to_owned(),
    ]
    .join("\n")
}
