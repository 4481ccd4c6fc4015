//! A report on how close two tensors are.

use super::base::Tensor;
use crate::backend::Backend;
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

/// Relative and absolute differences that the report counts.
const EPSILONS: [f64; 8] = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8];

/// Share of close elements from which a difference is a warning only.
const MOST: f64 = 90.0;

/// For each of a range of tolerances, how many elements are within it. With `colored`, the verdicts are coloured for a
/// terminal.
pub fn closeness_report<B: Backend, const D: usize>(
    output: &Tensor<B, D>,
    expected: &Tensor<B, D>,
    colored: bool,
) -> String {
    let paint = |code: u8, text: &str| {
        if colored { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { String::from(text) }
    };
    let mut report = paint(1, "Tensor Closeness Check Results:");
    report.push_str("\n===============================\n");
    for epsilon in EPSILONS {
        let close = output.clone().is_close(expected.clone(), Some(epsilon), Some(epsilon)).into_data();
        let (count, all) = (close.iter::<bool>().filter(|&close| close).count(), close.num_elements());
        let share = if all == 0 { 100.0 } else { count as f64 / all as f64 * 100.0 };
        let (verdict, meaning) = if count == all {
            (paint(32, "[PASS]"), "All elements are within tolerance")
        } else if share >= MOST {
            (paint(33, "[WARN]"), "Most elements are within tolerance")
        } else {
            (paint(31, "[FAIL]"), "Significant differences detected")
        };
        let label = paint(1, "Epsilon:");
        // Writing to a string does not fail.
        let _ = writeln!(report, "{label} {epsilon:e}\n  Close elements: {count}/{all} ({share:.2}%)");
        let _ = writeln!(report, "  {verdict} {meaning}\n");
    }
    report.push_str("Closeness check complete.");
    report
}

/// Prints [`closeness_report`], in colours when on a terminal.
#[cfg(feature = "std")]
pub fn check_closeness<B: Backend, const D: usize>(output: &Tensor<B, D>, expected: &Tensor<B, D>) {
    use std::io::IsTerminal;
    std::println!("{}", closeness_report(output, expected, std::io::stdout().is_terminal()));
}
