//! The report as text for a terminal.

use super::tree::{Module, tree};
use super::{Cost, Report};
use crate::command::plain;
use std::fmt::Write;

/// Percent of a pass below which operations and modules are told together.
const SMALL: f64 = 0.5;

/// How deep the tree of modules is shown.
const DEPTH: usize = 8;

/// The heads of the columns of numbers.
const HEAD: &str = "       ms      %  calls  GFLOP/s     GB/s  of bound";

/// The report as lines: what it was measured with, the operations, the sums of each kind, and those of modules as a tree.
pub(in crate::command) fn print(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = head(report, &mut text);
    let _ = rows(report, &mut text);
    let _ = sums(report, &mut text);
    let _ = writeln!(text, "\n{HEAD}  module, with what is in it");
    let _ = module(report, &tree(report), 0, &mut text);
    text
}

fn head(report: &Report, text: &mut String) -> std::fmt::Result {
    let peaks = &report.peaks;
    let threads = if report.threads == 1 { "thread" } else { "threads" };
    writeln!(
        text,
        "  {} {threads} of this machine: {:.1} GFLOP/s; {:.1} GB/s of memory ({} MB streamed), {:.1} GB/s of caches \
         (what moves up to {} kB)",
        report.threads,
        peaks.gflops,
        peaks.memory_gbs,
        peaks.memory_bytes >> 20,
        peaks.cache_gbs,
        peaks.cache_bytes >> 10
    )?;
    writeln!(
        text,
        "  medians of {} passes each: {:.3} ms with nothing recorded, of which operations take {:.3} ms ({:.1} %) and other \
         work {:.3} ms; {:.3} ms recorded",
        report.passes,
        report.plain_ms,
        report.operations_ms(),
        report.percent(report.operations_ms()),
        report.other_ms(),
        report.recorded_ms
    )
}

fn rows(report: &Report, text: &mut String) -> std::fmt::Result {
    let (shown, small): (Vec<_>, Vec<_>) =
        report.rows.iter().partition(|row| report.percent(row.cost.ms) >= SMALL);
    let result = |shape: &[usize]| shape.iter().map(usize::to_string).collect::<Vec<_>>().join("×");
    let cells: Vec<[String; 3]> =
        shown.iter().map(|row| [plain(&row.name), result(&row.shape), plain(row.module())]).collect();
    let width = |column: usize, least: &str| {
        cells.iter().map(|cells| cells[column].chars().count()).fold(least.len(), usize::max)
    };
    let (names, results) = (width(0, "operation"), width(1, "result"));
    writeln!(text, "\n{HEAD}  {:names$}  {:results$}  module", "operation", "result")?;
    for (row, [name, result, path]) in shown.iter().zip(&cells) {
        numbers(report, Some(row.calls), row.cost, text)?;
        writeln!(text, "  {name:names$}  {result:results$}  {path}")?;
    }
    if !small.is_empty() {
        let calls = small.iter().map(|row| row.calls).sum();
        let cost = small.iter().fold(Cost::NONE, |sum, row| sum.and(row.cost));
        numbers(report, Some(calls), cost, text)?;
        writeln!(text, "  {} others, each less than {SMALL} %", small.len())?;
    }
    Ok(())
}

fn sums(report: &Report, text: &mut String) -> std::fmt::Result {
    writeln!(text, "\n{HEAD}  operation, in all modules")?;
    for (name, calls, cost) in report.by_name() {
        numbers(report, Some(calls), cost, text)?;
        writeln!(text, "  {}", plain(name))?;
    }
    Ok(())
}

fn module(report: &Report, of: &Module, depth: usize, text: &mut String) -> std::fmt::Result {
    numbers(report, None, of.cost, text)?;
    let name = if depth == 0 { "(model)".to_owned() } else { plain(&of.name) };
    writeln!(text, "  {}{name}", "  ".repeat(depth))?;
    if depth == DEPTH {
        return Ok(());
    }
    let mut shown = of.children.iter().filter(|child| report.percent(child.cost.ms) >= SMALL);
    shown.try_for_each(|child| module(report, child, depth + 1, text))
}

/// The columns of numbers, without an end of the line.
fn numbers(report: &Report, calls: Option<usize>, cost: Cost, text: &mut String) -> std::fmt::Result {
    let number = |number: Option<f64>| number.map_or("–".to_owned(), |number| format!("{number:.1}"));
    let of_bound = cost.of_bound().map_or("–".to_owned(), |part| format!("{:.0} %", 100.0 * part));
    write!(
        text,
        "{:>9.3} {:>6.1} {:>6} {:>8} {:>8} {of_bound:>9}",
        cost.ms,
        report.percent(cost.ms),
        calls.map(|calls| calls.to_string()).unwrap_or_default(),
        number(cost.gflops()),
        number(cost.gbs())
    )
}
