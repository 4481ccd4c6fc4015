//! `kiln bench`.

use super::convert::Bindings;
use super::profile::{self, Report};
use super::scratch::{Case, Scratch, numbers};
use super::{Backend, CommandError, Outcome, Target, json, plain, show};
use crate::compile::replace_text;
use clap::Args;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Arguments of `kiln bench`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Folders with `model.onnx` (or `model.pt2`) and `test_data_set_*`
    #[arg(required = true, value_name = "CASE_DIR")]
    cases: Vec<PathBuf>,
    #[command(flatten)]
    target: Target,
    /// Number of threads, at most 1024; all cores unless given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// How long to measure each case, but for five runs at least
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    seconds: f64,
    #[command(flatten)]
    bindings: Bindings,
    /// Print one JSON object a case
    #[arg(long)]
    json: bool,
    /// Show what each operation takes, by module, beside what the machine can do (`--backend ndarray`)
    #[arg(long)]
    profile: bool,
    /// Draw the profile of one case: a timeline and a roofline plot
    #[arg(long, value_name = "FILE", requires = "profile")]
    svg: Option<PathBuf>,
}

impl Arguments {
    fn check(&self) -> Result<(), CommandError> {
        self.target.check()?;
        let wrong = match (self.profile, self.target.backend) {
            (true, _) if self.target.standalone => {
                "`--profile` is for source that calls the runtime, not for `--standalone`"
            }
            (true, Backend::Wgpu | Backend::Cuda) => {
                "`--profile` is for `--backend ndarray`: others compute after a call has returned"
            }
            (true, Backend::Ndarray) if self.svg.is_some() && self.cases.len() > 1 => {
                "`--svg` draws one case: name one alone"
            }
            _ => {
                return match &self.svg {
                    // Whatever else it names is no picture, and may be the model.
                    Some(file) if file.extension().is_none_or(|ending| ending != "svg") => Err(
                        CommandError::Usage(format!("{}: the picture must be a .svg file", file.display())),
                    ),
                    _ => Ok(()),
                };
            }
        };
        Err(CommandError::Usage(wrong.to_owned()))
    }
}

/// How long something is measured.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    match (0.0..=86_400.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("not between 0 and 86400, a day".to_owned()),
    }
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    arguments.check()?;
    let mut scratch = Scratch::new(arguments.target, &arguments.bindings)?.profiled(arguments.profile);
    let cases: Vec<Case> = arguments.cases.iter().map(|dir| scratch.add(dir)).collect();
    scratch.build()?;
    let seconds = arguments.seconds.to_string();
    if arguments.target.no_run {
        return Ok(scratch.show_commands(&cases, "bench", &[&seconds]));
    }
    let threads = arguments
        .threads
        .map(usize::from)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let mut all_well = true;
    for case in &cases {
        let output = scratch.output(case, "bench", &[&seconds], Some(threads));
        let report = match (&output, arguments.profile) {
            (Ok(output), true) => Some(Report::parse(output)).transpose(),
            (Ok(_), false) | (Err(_), _) => Ok(None),
        };
        let (object, report) = match output.and_then(|output| Ok((output, report?))) {
            Ok((output, report)) => {
                let mut object = object_of(case, arguments.target.backend, threads, &numbers(&output));
                if let Some(report) = &report {
                    object.insert("profile".into(), report.json());
                }
                (object, report)
            }
            Err(error) => (failure(case, arguments.target.backend, threads, &error), None),
        };
        all_well &= !object.contains_key("error");
        if arguments.json {
            show(&json::line(&Value::Object(object)));
        } else {
            print_line(&object);
            if let Some(report) = &report {
                show(&profile::table(report));
            }
        }
        if let (Some(report), Some(file)) = (&report, &arguments.svg) {
            replace_text(file, &profile::picture(report, &case.name))?;
        }
    }
    Ok(all_well)
}

fn head(case: &Case, backend: Backend, threads: usize) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("case".into(), json!(case.name));
    object.insert("backend".into(), json!(backend.feature()));
    object.insert("threads".into(), json!(threads));
    object
}

fn object_of(
    case: &Case,
    backend: Backend,
    threads: usize,
    values: &BTreeMap<String, f64>,
) -> Map<String, Value> {
    let mut object = head(case, backend, threads);
    for key in ["load_ms", "first_ms", "median_ms", "min_ms", "runs", "peak_rss_mb"] {
        let value = values.get(key).copied().unwrap_or(f64::NAN);
        let value = if key == "runs" { json!(value as u64) } else { json::number(value) };
        object.insert(key.into(), value);
    }
    for &key in device_keys(backend) {
        object.insert(key.into(), json::number(values.get(key).copied().unwrap_or(f64::NAN)));
    }
    object
}

/// What is told of a forward pass on a device beside its times.
fn device_keys(backend: Backend) -> &'static [&'static str] {
    match backend {
        Backend::Wgpu => &[
            "dispatches",
            "submissions",
            "moved_mb",
            "requested_mb",
            "waits",
            "new_buffers",
            "new_pipelines",
            "new_bind_groups",
            "encode_ms",
        ],
        Backend::Cuda => &[
            "dispatches",
            "library_calls",
            "replays",
            "moved_mb",
            "requested_mb",
            "waits",
            "new_buffers",
            "new_pipelines",
            "encode_ms",
        ],
        Backend::Ndarray => &[],
    }
}

fn failure(case: &Case, backend: Backend, threads: usize, error: &str) -> Map<String, Value> {
    let mut object = head(case, backend, threads);
    let device = device_keys(backend).iter().copied();
    for key in ["load_ms", "first_ms", "median_ms", "min_ms", "runs", "peak_rss_mb"].into_iter().chain(device)
    {
        object.insert(key.into(), Value::Null);
    }
    object.insert("error".into(), json!(error));
    object
}

fn print_line(object: &Map<String, Value>) {
    let case = plain(object.get("case").and_then(Value::as_str).unwrap_or_default());
    if let Some(error) = object.get("error").and_then(Value::as_str) {
        show(&format!("{case}: FAILED\n  {}\n", error.replace('\n', "\n  ")));
        return;
    }
    let get = |key: &str| object.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
    show(&format!(
        "{case}: {:.3} ms median, {:.3} ms least of {} runs; loaded in {:.2} ms, \
         first run {:.2} ms; {:.0} MB at most\n",
        get("median_ms"),
        get("min_ms"),
        get("runs"),
        get("load_ms"),
        get("first_ms"),
        get("peak_rss_mb")
    ));
    if object.contains_key("dispatches") {
        // Not every device has these.
        let of = |key: &str, words: [&str; 2]| match object.get(key).and_then(Value::as_f64) {
            Some(number) => format!("{}{number}{}", words[0], words[1]),
            None => String::new(),
        };
        show(&format!(
            "  {} kernels{}{}{} that move {:.1} MB, {:.1} MB of memory asked for, {} waits; recorded in {:.3} ms; \
             made anew: {} buffers, {} kernels{}\n",
            get("dispatches"),
            of("library_calls", [" (", " by NVIDIA's libraries)"]),
            of("submissions", [" in ", " submissions"]),
            of("replays", [" beside ", " graphs"]),
            get("moved_mb"),
            get("requested_mb"),
            get("waits"),
            get("encode_ms"),
            get("new_buffers"),
            get("new_pipelines"),
            of("new_bind_groups", [", ", " bind groups"])
        ));
    }
}
