//! The report as a picture: when each operation ran, and how near it came to what the machine can do.

use super::{Report, Row};
use crate::command::svg::escaped;
use std::collections::HashMap;
use std::fmt::{Result, Write};

const STYLE: &str = "text{font:11px ui-monospace,monospace;fill:#222}.head{font-size:13px}.note{fill:#777}\
.module{fill:#4a6fa5;fill-opacity:.12;stroke:#4a6fa5;stroke-opacity:.5}.call{fill-opacity:.75;stroke:#fff;stroke-width:.3}\
.grid{stroke:#ddd}.roof{fill:none;stroke:#222;stroke-width:1.5}.cache{stroke-dasharray:5 3}.point{fill-opacity:.55;stroke:#222;stroke-width:.5}";

/// Colours of the operations that take the most time, and of all others.
const COLOURS: [&str; 10] = [
    "#4a6fa5", "#c8553d", "#588157", "#e9a23b", "#7b5ea7", "#2a9d8f", "#b5838d", "#8d6b3f", "#d1495b",
    "#6c757d",
];
const OTHERS: &str = "#b8bec4";

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 60.0;
/// The height of a lane of the timeline.
const LANE: f64 = 18.0;
/// The height of the roofline plot.
const PLOT: f64 = 480.0;
/// The width of a character of the font.
const CHARACTER: f64 = 6.7;
/// More modules within each other have no lane of their own.
const LANES: usize = 40;

/// One self-contained SVG document: a timeline of the pass whose time is the median, and a roofline plot.
pub(in crate::command) fn print(report: &Report, case: &str) -> String {
    let colours = colours(report);
    let mut body = String::new();
    // Writing to a `String` cannot fail.
    let end = 30.0;
    let end = legend(report, &colours, end, &mut body).unwrap_or(end);
    let end = timeline(report, &colours, end + 24.0, &mut body).unwrap_or(end);
    let end = roofline(report, &colours, end + 40.0, &mut body).unwrap_or(end);
    let height = end + 20.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" \
         height=\"{height:.0}\"><style>{STYLE}</style>\n<text class=\"head\" x=\"10\" y=\"20\">{}: {:.3} ms, {} of \
         this machine</text>\n{body}</svg>\n",
        escaped(case),
        report.plain_ms,
        if report.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", report.threads) },
    )
}

/// The colour of each kind of operation.
fn colours(report: &Report) -> HashMap<&str, &'static str> {
    report.by_name().into_iter().map(|(name, ..)| name).zip(COLOURS).collect()
}

fn legend(
    report: &Report,
    colours: &HashMap<&str, &'static str>,
    top: f64,
    text: &mut String,
) -> std::result::Result<f64, std::fmt::Error> {
    let sums = report.by_name();
    let mut y = top;
    for (name, calls, cost) in sums.iter().take(COLOURS.len()) {
        y += 15.0;
        let colour = colours.get(name).copied().unwrap_or(OTHERS);
        writeln!(
            text,
            "<rect x=\"10\" y=\"{:.1}\" width=\"11\" height=\"11\" style=\"fill:{colour}\"/><text x=\"27\" \
             y=\"{y:.1}\">{:6.2} ms {:5.1} %  {} ({calls})</text>",
            y - 10.0,
            cost.ms,
            report.percent(cost.ms),
            escaped(name)
        )?;
    }
    if let Some(others) = sums.get(COLOURS.len()..).filter(|others| !others.is_empty()) {
        y += 15.0;
        let ms: f64 = others.iter().map(|(.., cost)| cost.ms).sum();
        writeln!(
            text,
            "<rect x=\"10\" y=\"{:.1}\" width=\"11\" height=\"11\" style=\"fill:{OTHERS}\"/><text x=\"27\" \
             y=\"{y:.1}\">{ms:6.2} ms {:5.1} %  {} other kinds</text>",
            y - 10.0,
            report.percent(ms),
            others.len()
        )?;
    }
    Ok(y)
}

/// Modules within each other from the top, an operation below the module that called it.
fn timeline(
    report: &Report,
    colours: &HashMap<&str, &'static str>,
    top: f64,
    text: &mut String,
) -> std::result::Result<f64, std::fmt::Error> {
    let pass = &report.pass;
    let scale = (WIDTH - 20.0) / pass.time.max(1) as f64;
    let place = |start: u64, end: u64| {
        (10.0 + start as f64 * scale, (end.saturating_sub(start) as f64 * scale).max(0.1))
    };
    let lane = |depth: usize| top + 8.0 + depth.min(LANES) as f64 * LANE;
    writeln!(
        text,
        "<text x=\"10\" y=\"{top:.1}\">one pass: modules, and below them their operations</text>"
    )?;
    let mut deepest = 0;
    // The paths of the modules around the one in hand: each bar has what it adds.
    let mut around: Vec<&str> = Vec::new();
    for module in &pass.modules {
        let (x, width) = place(module.start, module.end);
        around.truncate(module.depth);
        let within = around.last().and_then(|path| module.path.strip_prefix(path)).unwrap_or(&module.path);
        let name = within.trim_start_matches('.');
        around.push(&module.path);
        let title =
            format!("{}: {:.3} ms", module.path, (module.end.saturating_sub(module.start)) as f64 / 1e6);
        bar("module", "", [x, lane(module.depth), width], name, &title, text)?;
        deepest = deepest.max(module.depth);
    }
    // Modules begin in order, so those that a call is within are on a stack.
    let (mut within, mut next) = (Vec::new(), pass.modules.iter().peekable());
    for call in &pass.calls {
        while let Some(module) = next.next_if(|module| module.start <= call.start) {
            within.push(module);
        }
        while within.last().is_some_and(|module| module.end < call.end) {
            within.pop();
        }
        let depth = within.last().map_or(0, |module| module.depth + 1);
        deepest = deepest.max(depth);
        let Some(row) = report.row_of.get(call.operation).copied().flatten() else { continue };
        let Some(row) = report.rows.get(row) else { continue };
        let (x, width) = place(call.start, call.end);
        let colour = colours.get(row.name.as_str()).copied().unwrap_or(OTHERS);
        let ms = call.end.saturating_sub(call.start) as f64 / 1e6;
        let title = format!("{} {:?} in {}: {ms:.3} ms", row.name, row.shape, row.module());
        bar("call", colour, [x, lane(depth), width], &row.name, &title, text)?;
    }
    Ok(lane(deepest) + LANE)
}

/// A bar with as much of its name as fits, and a title that a pointer shows.
fn bar(
    class: &str,
    colour: &str,
    [x, y, width]: [f64; 3],
    name: &str,
    title: &str,
    text: &mut String,
) -> Result {
    let style = if colour.is_empty() { String::new() } else { format!(" style=\"fill:{colour}\"") };
    write!(
        text,
        "<g><title>{}</title><rect class=\"{class}\"{style} x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" \
         height=\"{:.1}\"/>",
        escaped(title),
        LANE - 2.0
    )?;
    let fits = ((width - 4.0) / CHARACTER) as usize;
    if fits >= 4 {
        let shown: String = name.chars().take(fits).collect();
        write!(text, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 2.0, y + 12.0, escaped(&shown))?;
    }
    writeln!(text, "</g>")
}

/// A logarithmic axis.
struct Axis {
    /// Exponents of ten at its ends.
    from: i32,
    to: i32,
    /// Places of its ends.
    start: f64,
    end: f64,
}

impl Axis {
    /// One that holds all values, which are positive.
    fn around(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Self {
        let logs = values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10);
        let (least, most) =
            logs.fold((0.0, 1.0), |(least, most): (f64, f64), log| (least.min(log), most.max(log)));
        Self { from: least.floor() as i32, to: most.ceil() as i32, start, end }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - f64::from(self.from)) / f64::from(self.to - self.from);
        self.start + part * (self.end - self.start)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        (self.from..=self.to).map(|exponent| 10f64.powi(exponent))
    }
}

/// FLOPs a byte against FLOPs a second; an operation's area is its time.
fn roofline(
    report: &Report,
    colours: &HashMap<&str, &'static str>,
    top: f64,
    text: &mut String,
) -> std::result::Result<f64, std::fmt::Error> {
    let peaks = &report.peaks;
    let point = |row: &Row| {
        let (flops, bytes) = (row.cost.flops.filter(|n| *n > 0)?, row.cost.bytes.filter(|n| *n > 0)?);
        Some((flops as f64 / bytes as f64, row.cost.gflops()?))
    };
    let points: Vec<_> = report.rows.iter().filter_map(|row| Some((row, point(row)?))).collect();
    let ridge = peaks.gflops / peaks.memory_gbs;
    let x = points.iter().map(|(_, (intensity, _))| *intensity).chain([ridge * 2.0]);
    let y = points.iter().map(|(_, (_, rate))| *rate).chain([peaks.gflops * 1.5]);
    let (bottom, right) = (top + PLOT, WIDTH - 20.0);
    let (x, y) = (Axis::around(x, MARGIN, right), Axis::around(y, bottom, top + 10.0));
    writeln!(
        text,
        "<text x=\"10\" y=\"{top:.1}\">GFLOP/s by FLOPs a byte; areas are times</text>\n<clipPath id=\"plot\"><rect \
         x=\"{MARGIN}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/></clipPath>",
        top + 10.0,
        right - MARGIN,
        PLOT - 10.0
    )?;
    for tick in x.ticks() {
        let at = x.at(tick);
        writeln!(
            text,
            "<path class=\"grid\" d=\"M{at:.1} {:.1}V{bottom:.1}\"/><text class=\"note\" text-anchor=\"middle\" x=\"{at:.1}\" \
             y=\"{:.1}\">{tick}</text>",
            top + 10.0,
            bottom + 14.0
        )?;
    }
    for tick in y.ticks() {
        let at = y.at(tick);
        writeln!(
            text,
            "<path class=\"grid\" d=\"M{MARGIN} {at:.1}H{right:.1}\"/><text class=\"note\" x=\"8\" \
             y=\"{:.1}\">{tick}</text>",
            at + 4.0
        )?;
    }
    let [left, end] = [x.from, x.to].map(|exponent| 10f64.powi(exponent));
    for (class, gbs, what) in
        [("roof", peaks.memory_gbs, "memory"), ("roof cache", peaks.cache_gbs, "caches")]
    {
        let ridge = peaks.gflops / gbs;
        writeln!(
            text,
            "<path clip-path=\"url(#plot)\" class=\"{class}\" d=\"M{:.1} {:.1}L{:.1} {:.1}H{:.1}\"><title>{what}: \
             {gbs:.1} GB/s; {:.1} GFLOP/s</title></path>",
            x.at(left),
            y.at(left * gbs),
            x.at(ridge),
            y.at(peaks.gflops),
            x.at(end),
            peaks.gflops
        )?;
        writeln!(
            text,
            "<text text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{what} {gbs:.1} GB/s</text>",
            x.at(ridge / 4.0) - 8.0,
            y.at(peaks.gflops / 4.0)
        )?;
    }
    writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\">{:.1} GFLOP/s</text>",
        right - 120.0,
        y.at(peaks.gflops) - 6.0,
        peaks.gflops
    )?;
    let longest = report.rows.first().map_or(1.0, |row| row.cost.ms);
    // Small ones on top.
    for (row, (intensity, rate)) in points {
        let radius = (24.0 * (row.cost.ms / longest).sqrt()).max(1.5);
        let colour = colours.get(row.name.as_str()).copied().unwrap_or(OTHERS);
        let title = format!(
            "{} {:?} in {}: {:.3} ms, {intensity:.2} FLOPs a byte, {rate:.1} GFLOP/s",
            row.name,
            row.shape,
            row.module(),
            row.cost.ms
        );
        writeln!(
            text,
            "<circle class=\"point\" style=\"fill:{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" \
             r=\"{radius:.1}\"><title>{}</title></circle>",
            x.at(intensity),
            y.at(rate),
            escaped(&title)
        )?;
    }
    Ok(bottom + 20.0)
}
