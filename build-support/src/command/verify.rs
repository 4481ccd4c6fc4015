//! `kiln verify`: the import proves itself (design, law 12).

use super::convert::Bindings;
use super::scratch::{Case, Scratch};
use super::{Outcome, Target, json, plain, show};
use clap::Args;
use kiln_types::golden::Tolerance;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Arguments of `kiln verify`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Folders with `model.onnx` (or `model.pt2`) and `test_data_set_*`
    #[arg(required = true, value_name = "CASE_DIR")]
    cases: Vec<PathBuf>,
    #[command(flatten)]
    target: Target,
    /// Relative tolerance: an element passes when |a - b| <= atol + rtol * |b| + of-largest * max |b|
    #[arg(long, default_value_t = Tolerance::default().relative)]
    rtol: f64,
    /// Absolute tolerance
    #[arg(long, default_value_t = Tolerance::default().absolute)]
    atol: f64,
    /// Tolerance in proportion to an output's largest element; 0, with products of bf16 0.04
    #[arg(long)]
    of_largest: Option<f64>,
    #[command(flatten)]
    bindings: Bindings,
    /// Print one JSON object a case
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    arguments.target.check()?;
    let mut scratch = Scratch::new(arguments.target, &arguments.bindings)?;
    let cases: Vec<Case> = arguments.cases.iter().map(|dir| scratch.add(dir)).collect();
    scratch.build()?;
    let usual = Tolerance::products_of(arguments.target.precision.into());
    let of_largest = arguments.of_largest.unwrap_or(usual.of_largest);
    let tolerances = [arguments.atol, arguments.rtol, of_largest].map(|x| x.to_string());
    let tolerances = tolerances.each_ref().map(String::as_str);
    if arguments.target.no_run {
        return Ok(scratch.show_commands(&cases, "verify", &tolerances));
    }
    let mut all_well = true;
    for case in &cases {
        let outcome = scratch.run(case, "verify", &tolerances, None);
        let object = match outcome {
            Ok(values) => object_of(case, &values),
            Err(error) => json::failure(&case.name, &error),
        };
        all_well &= object.get("ok") == Some(&Value::Bool(true));
        if arguments.json {
            show(&json::line(&Value::Object(object)));
        } else {
            print_line(&object);
        }
    }
    Ok(all_well)
}

/// From the runner's `max_abs`, `max_rel`, `mismatches`.
fn object_of(case: &Case, values: &std::collections::BTreeMap<String, f64>) -> Map<String, Value> {
    let get = |key: &str| values.get(key).copied().unwrap_or(f64::NAN);
    let mismatches = get("mismatches");
    let mut object = Map::new();
    object.insert("case".into(), json!(case.name));
    object.insert("ok".into(), json!(mismatches == 0.0));
    object.insert("max_abs".into(), json::number(get("max_abs")));
    object.insert("max_rel".into(), json::number(get("max_rel")));
    object.insert("of_largest".into(), json::number(get("of_largest")));
    if mismatches != 0.0 {
        object.insert(
            "error".into(),
            json!(format!("{mismatches} of {} elements differ by more than the tolerance", get("elements"))),
        );
    }
    object
}

fn print_line(object: &Map<String, Value>) {
    let text = |key: &str| object.get(key).map(|v| v.as_str().map_or(v.to_string(), str::to_owned));
    let case = text("case").unwrap_or_default();
    let verdict = if object.get("ok") == Some(&Value::Bool(true)) { "ok" } else { "FAILED" };
    let mut line = format!("{}: {verdict}", plain(&case));
    if let (Some(abs), Some(rel), Some(of_largest)) = (text("max_abs"), text("max_rel"), text("of_largest")) {
        line.push_str(&format!(
            ", largest difference {abs} absolute, {rel} relative, {of_largest} of the largest element"
        ));
    }
    if let Some(error) = text("error") {
        line.push_str(&format!("\n  {}", error.replace('\n', "\n  ")));
    }
    show(&format!("{line}\n"));
}
