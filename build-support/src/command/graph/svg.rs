//! The placed graph as SVG.

use super::layout::{Box, place};
use super::{Module, Source, source, sources};
use crate::command::svg::escaped;
use kiln_importer::ir::Graph;
use std::collections::BTreeMap;
use std::fmt::Write;

const STYLE: &str = "text{font:11px ui-monospace,monospace;fill:#222}.module{fill:#4a6fa5;fill-opacity:.07;stroke:#4a6fa5}\
.node{fill:#fff;stroke:#555}.port{fill:#fdf3d8;stroke:#a57f2c}.type{fill:#777}path{fill:none;stroke:#888}";

/// Height of the bands for inputs and outputs.
const BAND: f64 = 70.0;

/// Prints the graph as one self-contained SVG document.
pub(super) fn print(graph: &Graph, tree: &Module) -> String {
    let body = place(graph, tree);
    let (width, height) = (body.width.max(200.0), body.height + 2.0 * BAND);
    let mut boxes = BTreeMap::new();
    body.walk(&mut |placed| {
        if let Some(node) = placed.node {
            boxes.insert(Source::Node(node), placed.clone());
        }
    });
    let inputs = ports(graph.inputs.iter().map(|&v| (graph.value(v).name.as_str(), v)), graph, width, -BAND);
    for (n, port) in inputs.iter().enumerate() {
        boxes.insert(Source::Input(n as u32), port.clone());
    }
    let names = graph.output_names.iter().map(String::as_str);
    let outputs = ports(names.zip(graph.root.outputs.iter().copied()), graph, width, body.height + 16.0);

    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 {:.0} {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\"><style>{STYLE}</style>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" style=\"fill:#888\"/></marker></defs>\n",
        -BAND
    );
    // Arrows run over modules and under nodes.
    body.walk(&mut |placed| {
        if placed.node.is_none() {
            draw(placed, "module", &mut text);
        }
    });
    // Among so many boxes and arrows nobody follows one, and each box would be looked at for each arrow.
    const MOST_PAIRS: usize = 1 << 22;
    let arrows: usize = graph.root.nodes.iter().map(|&id| sources(graph, graph.node(id)).len()).sum();
    let arrows = arrows + outputs.len();
    let obstacles: Vec<&Box> = match boxes.len().saturating_mul(arrows) {
        ..=MOST_PAIRS => boxes.values().collect(),
        _ => Vec::new(),
    };
    for &id in &graph.root.nodes {
        for from in sources(graph, graph.node(id)) {
            arrow(boxes.get(&from), boxes.get(&Source::Node(id)), &obstacles, &mut text);
        }
    }
    for (port, &value) in outputs.iter().zip(&graph.root.outputs) {
        let from = source(graph, value).and_then(|from| boxes.get(&from));
        arrow(from, Some(port), &obstacles, &mut text);
    }
    body.walk(&mut |placed| {
        if placed.node.is_some() {
            draw(placed, "node", &mut text);
        }
    });
    for port in inputs.iter().chain(&outputs) {
        draw(port, "port", &mut text);
    }
    text.push_str("</svg>\n");
    text
}

/// Boxes for inputs or outputs, spread over the width.
fn ports<'a>(
    values: impl Iterator<Item = (&'a str, kiln_importer::ir::ValueId)>,
    graph: &Graph,
    width: f64,
    y: f64,
) -> Vec<Box> {
    let labels: Vec<[String; 2]> =
        values.map(|(name, value)| [name.to_owned(), graph.ty(value).to_string()]).collect();
    let share = width / labels.len().max(1) as f64;
    let place = |(i, labels): (usize, [String; 2])| {
        let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or_default();
        let own = longest as f64 * 6.3 + 16.0;
        let x = share * (i as f64 + 0.5) - own / 2.0;
        Box { x, y: y + 8.0, width: own, height: 38.0, labels: labels.to_vec(), ..Box::default() }
    };
    labels.into_iter().enumerate().map(place).collect()
}

fn draw(placed: &Box, class: &str, text: &mut String) {
    let Box { x, y, width, height, .. } = placed;
    let title = placed.labels.first().is_some_and(|label| !label.is_empty());
    if class == "module" && !title {
        return;
    }
    let _ = write!(
        text,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\"/>"
    );
    for (i, label) in placed.labels.iter().enumerate() {
        let line = y + 15.0 + 14.0 * i as f64;
        let style = if i > 0 { " class=\"type\"" } else { "" };
        let _ = write!(text, "<text{style} x=\"{:.1}\" y=\"{line:.1}\">{}</text>", x + 8.0, escaped(label));
    }
    text.push('\n');
}

/// A curve from the bottom of one box to the top of another; past the boxes between them, if there are any.
fn arrow(from: Option<&Box>, to: Option<&Box>, obstacles: &[&Box], text: &mut String) {
    /// Distance from the boxes that an arrow passes.
    const CLEARANCE: f64 = 7.0;
    /// Boxes next to each other that an arrow goes around at most; past more it goes under the others.
    const MOST_PASSED: usize = 64;
    let (Some(from), Some(to)) = (from, to) else { return };
    let (x1, y1) = (from.x + from.width / 2.0, from.y + from.height);
    let (x2, y2) = (to.x + to.width / 2.0, to.y);
    let bend = ((y2 - y1) / 2.0).clamp(8.0, 60.0);
    let mut side = x2;
    // Each step moves right, past one box more.
    for _ in 0..MOST_PASSED {
        let passed = obstacles.iter().find(|placed| {
            let between = placed.y > y1 && placed.y + placed.height < y2;
            between && placed.x - CLEARANCE < side && side < placed.x + placed.width + CLEARANCE
        });
        let Some(passed) = passed else { break };
        side = passed.x + passed.width + CLEARANCE;
    }
    if side > x2 {
        let (top, bottom) = (y1 + 34.0, y2 - 34.0);
        let _ = writeln!(
            text,
            "<path marker-end=\"url(#tip)\" d=\"M{x1:.1} {y1:.1}C{x1:.1} {:.1} {side:.1} {y1:.1} {side:.1} \
             {top:.1}L{side:.1} {bottom:.1}C{side:.1} {y2:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}\"/>",
            y1 + 20.0,
            y2 - 20.0
        );
        return;
    }
    let _ = writeln!(
        text,
        "<path marker-end=\"url(#tip)\" d=\"M{x1:.1} {y1:.1}C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}\"/>",
        y1 + bend,
        y2 - bend
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_limits_tests::bounded;

    /// Arrows from above to below a row of boxes without a gap.
    #[test]
    fn many_arrows_past_many_boxes() {
        bounded(|| {
            let placed = |x: f64, y: f64| Box { x, y, width: 20.0, height: 20.0, ..Box::default() };
            let row: Vec<Box> = (0..2_000).map(|n| placed(f64::from(n) * 25.0, 100.0)).collect();
            let obstacles: Vec<&Box> = row.iter().collect();
            let mut text = String::new();
            for _ in 0..2_000 {
                arrow(Some(&placed(0.0, 0.0)), Some(&placed(0.0, 200.0)), &obstacles, &mut text);
            }
            assert_eq!(text.lines().count(), 2_000);
        });
    }
}
