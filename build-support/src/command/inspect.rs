//! `kiln inspect`.

use super::convert::Bindings;
use super::{Outcome, checkpoint, json, plain, show, warn, weights};
use crate::BuildError;
use crate::compile::{import, import_error};
use clap::Args;
use kiln_importer::ImportErrorKind;
use kiln_importer::onnx::{PortSummary, Summary, TrainingLosses, summarize, training_losses};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::path::PathBuf;

/// Arguments of `kiln inspect`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The model (.onnx, .pt2), or a checkpoint (.pt, .pth, .bin, .safetensors, a folder of shards or its index)
    pub(super) model: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// Where a checkpoint's weights are, if not at its root
    #[arg(long, value_name = "KEY")]
    pub(super) top_level_key: Option<String>,
    /// Print every tensor of a checkpoint, also of parts that are alike
    #[arg(long)]
    pub(super) all: bool,
    /// Say what each pass did
    #[arg(long, conflicts_with = "json")]
    passes: bool,
    /// Print the optimized graph
    #[arg(long, conflicts_with = "json")]
    graph: bool,
    #[command(flatten)]
    bindings: Bindings,
}

/// What only models have.
fn of_models(arguments: &Arguments) -> Option<&'static str> {
    let given = [("--passes", arguments.passes), ("--graph", arguments.graph)];
    let given = given.into_iter().find(|(_, given)| *given).map(|(option, _)| option);
    given.or_else(|| arguments.bindings.given())
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    if weights::is_checkpoint(&arguments.model) {
        return match of_models(arguments) {
            Some(option) => Err(weights::misplaced(option, &arguments.model, "a checkpoint, not a model")),
            None => checkpoint::inspect(arguments),
        };
    }
    let of_checkpoints = [("--top-level-key", arguments.top_level_key.is_some()), ("--all", arguments.all)];
    if let Some((option, _)) = of_checkpoints.into_iter().find(|(_, given)| *given) {
        return Err(weights::misplaced(option, &arguments.model, "a model, not a checkpoint"));
    }
    let summary = summarize(&arguments.model).map_err(import_error)?;
    let training = training_losses(&arguments.model).map_err(import_error)?;
    // A model that cannot be imported still has an outline to show.
    let (imported, problem) = match import(&arguments.model, &arguments.bindings.options()?) {
        Ok(imported) => (Some(imported), None),
        Err(error) => (None, Some(error)),
    };
    if arguments.json {
        show(&json::line(&object(arguments, &summary, &training, problem.as_ref())));
    } else {
        // Writing to a text does not fail.
        let mut text = String::new();
        let _ = print(arguments, &summary, &mut text);
        for line in training.warnings() {
            let _ = writeln!(text, "  to train    {}", plain(&line));
        }
        show(&text);
    }
    if let Some(imported) = imported.filter(|_| !arguments.json) {
        if arguments.passes {
            let none = if imported.reports.is_empty() { "      none changed anything" } else { "" };
            let reports = imported.reports.iter().map(|report| format!("  {report}\n"));
            show(&format!("passes{none}\n{}", reports.collect::<String>()));
        }
        if arguments.graph {
            show(&format!("{}\n", imported.graph));
        }
    }
    let supported = summary.unsupported.is_empty() && problem.is_none();
    if let Some(problem) = problem.filter(|problem| !arguments.json && !only_unsupported(problem)) {
        warn(&format!("error: {}", problem.report()));
    }
    Ok(supported)
}

/// Whether the outline says all that is wrong.
fn only_unsupported(problem: &BuildError) -> bool {
    matches!(problem, BuildError::Import(error) if matches!(*error.kind, ImportErrorKind::Unsupported(_)))
}

fn print(arguments: &Arguments, summary: &Summary, out: &mut String) -> fmt::Result {
    writeln!(out, "{}", plain(&arguments.model.display().to_string()))?;
    let opsets = summary.opsets.iter().map(|(domain, version)| format!("{} {version}", plain(domain)));
    let producer = plain(if summary.producer.is_empty() { "unknown" } else { &summary.producer });
    writeln!(out, "  written by  {producer} (format version {})", summary.ir_version)?;
    writeln!(out, "  opsets      {}", opsets.collect::<Vec<_>>().join(", "))?;
    for (title, ports) in [("inputs", &summary.inputs), ("outputs", &summary.outputs)] {
        for (i, port) in ports.iter().enumerate() {
            let title = if i == 0 { title } else { "" };
            writeln!(out, "  {title:<11} {}: {}", plain(&port.name), plain(&port.ty))?;
        }
    }
    writeln!(
        out,
        "  parameters  {} in {} tensors, {}",
        summary.parameters,
        summary.initializers,
        checkpoint::size(summary.bytes)
    )?;
    if !summary.functions.is_empty() {
        writeln!(out, "  functions   {}", list(&summary.functions))?;
    }
    writeln!(out, "  operators")?;
    let operators: Vec<_> =
        summary.operators.iter().map(|(name, count)| (plain(name), name, count)).collect();
    let widest = operators.iter().map(|(shown, ..)| shown.chars().count()).max().unwrap_or_default();
    let unsupported: BTreeSet<&str> =
        summary.unsupported.iter().map(|entry| entry.operator.as_str()).collect();
    for (operator, name, count) in operators {
        let known = !unsupported.contains(name.as_str());
        writeln!(out, "    {operator:<widest$} {count:>6}{}", if known { "" } else { "  not supported" })?;
    }
    for operator in &summary.unsupported {
        let known =
            operator.known.as_ref().map(|versions| format!(" (known in {versions})")).unwrap_or_default();
        writeln!(
            out,
            "  not supported: {} of opset {}{known}, in {}",
            plain(&operator.operator),
            operator.opset,
            list(&operator.nodes)
        )?;
    }
    Ok(())
}

/// Names, each so that all of it shows.
fn list(names: &[String]) -> String {
    names.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", ")
}

fn object(
    arguments: &Arguments,
    summary: &Summary,
    training: &TrainingLosses,
    problem: Option<&BuildError>,
) -> Value {
    let ports = |ports: &[PortSummary]| {
        ports.iter().map(|port| json!({ "name": port.name, "type": port.ty })).collect::<Vec<_>>()
    };
    let unsupported = summary.unsupported.iter().map(|operator| {
        json!({
            "operator": operator.operator,
            "opset": operator.opset,
            "known": operator.known,
            "nodes": operator.nodes,
        })
    });
    json!({
        "model": arguments.model.display().to_string(),
        "ir_version": summary.ir_version,
        "producer": summary.producer,
        "opsets": summary.opsets,
        "inputs": ports(&summary.inputs),
        "outputs": ports(&summary.outputs),
        "operators": summary.operators,
        "functions": summary.functions,
        "initializers": summary.initializers,
        "parameters": summary.parameters,
        "bytes": summary.bytes,
        "unsupported": unsupported.collect::<Vec<_>>(),
        "training": training.notes(),
        "error": problem.map(BuildError::report),
    })
}
