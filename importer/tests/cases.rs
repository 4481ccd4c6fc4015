//! Every case under `fixtures/cases`: imported, verified, and run by the importer's own evaluator against the golden
//! outputs. Further folders come from `KILN_CASES` (separated by `:`).

mod recurrent;

use kiln_importer::interpreter::{RunError, run_each};
use kiln_importer::ir::{Graph, Op};
use kiln_importer::onnx::{LoadOptions, Support, load, read_output, read_tensor, summarize, supported};
use kiln_types::{DType, TensorData, bf16, f16};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn folders() -> Vec<PathBuf> {
    let mut roots = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases")];
    roots.extend(std::env::var("KILN_CASES").iter().flat_map(|more| more.split(':')).map(PathBuf::from));
    let mut found: Vec<PathBuf> = roots
        .iter()
        .flat_map(|root| std::fs::read_dir(root).expect("a folder of cases"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("model.onnx").is_file())
        .collect();
    found.sort();
    found
}

fn tensors(folder: &Path, what: &str, graph: &Graph) -> Result<Vec<TensorData>, String> {
    let paths = (0..).map(|n| folder.join(format!("{what}_{n}.pb")));
    let mut tensors = Vec::new();
    for path in paths.take_while(|path| path.is_file()) {
        let bytes = std::fs::read(&path).expect("a readable file");
        let read = match what {
            "output" => read_output(&bytes, tensors.len(), &graph.strings, &graph.output_sequences),
            _ => read_tensor(&bytes, &graph.strings).map(|tensor| vec![tensor]),
        };
        let read = read.map_err(|error| format!("{}: {error}", path.display()))?;
        tensors.extend(read.into_iter().map(|tensor| tensor.data));
    }
    Ok(tensors)
}

fn numbers(data: &TensorData) -> Vec<f64> {
    macro_rules! read {
        ($ty:ty, $as:expr) => {
            data.bytes
                .chunks_exact(size_of::<$ty>())
                .map(|chunk| $as(<$ty>::from_le_bytes(chunk.try_into().unwrap())))
                .collect()
        };
    }
    match data.dtype {
        DType::F64 => read!(f64, |x| x),
        DType::F32 => read!(f32, f64::from),
        DType::F16 => read!(f16, f16::to_f64),
        DType::BF16 => read!(bf16, bf16::to_f64),
        DType::I64 => read!(i64, |x| x as f64),
        DType::I32 => read!(i32, f64::from),
        DType::I16 => read!(i16, f64::from),
        DType::I8 | DType::I4 => read!(i8, f64::from),
        DType::U64 => read!(u64, |x| x as f64),
        DType::U32 => read!(u32, f64::from),
        DType::U16 => read!(u16, f64::from),
        DType::U8 | DType::U4 | DType::Bool => read!(u8, f64::from),
    }
}

/// What differs, if anything does.
fn difference(actual: &TensorData, expected: &TensorData) -> Option<String> {
    if actual.dtype != expected.dtype || actual.shape != expected.shape {
        return Some(format!(
            "{}{:?} instead of {}{:?}",
            actual.dtype, actual.shape, expected.dtype, expected.shape
        ));
    }
    let (rtol, atol) = match actual.dtype {
        DType::F16 => (5e-3, 5e-3),
        DType::BF16 => (3e-2, 3e-2),
        _ => (1e-3, 1e-4),
    };
    let close =
        |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= atol + rtol * b.abs();
    let (a, b) = (numbers(actual), numbers(expected));
    let at = (0..a.len()).find(|&i| !close(a[i], b[i]))?;
    let count = (0..a.len()).filter(|&i| !close(a[i], b[i])).count();
    Some(format!("{} instead of {} at {at}, {count} of {} differ", a[at], b[at], a.len()))
}

#[test]
fn imports_compute_what_the_model_means() {
    let only = std::env::var("KILN_CASE").ok();
    let (mut failures, mut skipped, mut compared) = (Vec::new(), Vec::new(), 0);
    for folder in folders() {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let graph = match load(&folder.join("model.onnx"), &LoadOptions::default()) {
            Ok(graph) => graph,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        if let Err(violations) = graph.verify() {
            failures.push(format!("{name}: {:?}", violations.first()));
            continue;
        }
        let only_runtime =
            |op: &Op| matches!(op, Op::Call(_) | Op::Interpolate(_) | Op::MaxPoolWithIndices(_));
        let calls = graph.nodes.iter().any(|node| only_runtime(&node.op));
        let sets = (0..).map(|n| folder.join(format!("test_data_set_{n}"))).take_while(|set| set.is_dir());
        for set in sets {
            let data = tensors(&set, "input", &graph)
                .and_then(|inputs| Ok((inputs, tensors(&set, "output", &graph)?)));
            let run = data.and_then(|(inputs, expected)| {
                let outputs =
                    run_each(&graph, &inputs, &recurrent::evaluate).map_err(|error| error.to_string())?;
                Ok((outputs, expected))
            });
            let (outputs, expected) = match run {
                Ok(run) => run,
                Err(error) => {
                    failures.push(format!("{name}: {error}"));
                    continue;
                }
            };
            assert_eq!(outputs.len(), expected.len(), "{name}");
            for (n, (actual, expected)) in outputs.iter().zip(&expected).enumerate() {
                match actual {
                    Ok(actual) => {
                        compared += 1;
                        if let Some(difference) = difference(actual, expected) {
                            failures.push(format!("{name} output {n}: {difference}"));
                        }
                    }
                    // What only the runtime does, or what takes its size from that.
                    Err(RunError::Operation { kind, .. }) if calls => {
                        skipped.push(format!("{name} output {n}: {kind}"));
                    }
                    Err(error) => failures.push(format!("{name} output {n}: {error}")),
                }
            }
        }
    }
    println!("{compared} outputs compared, {} left to the runtime", skipped.len());
    assert!(failures.is_empty(), "{} of {compared} outputs:\n{}", failures.len(), failures.join("\n"));
}

/// The operators of Kiln's own domain that programs of PyTorch are translated to.
#[cfg(feature = "pt2")]
fn operators_of_programs() -> BTreeSet<String> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let programs = std::fs::read_dir(fixtures.join("programs")).expect("the programs");
    // Where gradients stop is of no account but in training.
    let programs = programs
        .map(|entry| (entry.expect("an entry").path(), false))
        .chain([(fixtures.join("training/program"), true)]);
    let graphs = programs.map(|(path, trainable)| {
        let options = LoadOptions { trainable, ..LoadOptions::default() };
        load(&path.join("model.pt2"), &options).expect("a program")
    });
    let operators = graphs.flat_map(|graph| {
        graph.nodes.iter().map(|node| node.origin.operator.to_string()).collect::<Vec<_>>()
    });
    operators.filter(|operator| operator.starts_with("kiln.")).collect()
}

#[cfg(not(feature = "pt2"))]
fn operators_of_programs() -> BTreeSet<String> {
    let own = supported().into_iter().filter(|support| support.domain == "kiln");
    own.map(|support| format!("kiln.{}", support.operator)).collect()
}

/// A fixture shows what an operator computes; for random numbers, what they have in common.
#[test]
fn every_supported_operator_occurs_in_every_version() {
    let mut seen: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    for folder in folders() {
        let summary = summarize(&folder.join("model.onnx")).expect("a case is an ONNX model");
        for operator in summary.operators.into_keys() {
            let domain = operator.rsplit_once('.').map_or("ai.onnx", |(domain, _)| domain);
            let version = summary.opsets.get(domain).copied();
            seen.entry(operator).or_default().extend(version);
        }
    }
    seen.extend(operators_of_programs().into_iter().map(|operator| (operator, BTreeSet::from([1]))));
    let is_missing = |support: &Support| {
        let name = match support.domain {
            "" => support.operator.to_owned(),
            domain => format!("{domain}.{}", support.operator),
        };
        let versions = support.since..=support.until.unwrap_or(i64::MAX);
        !seen.get(&name).is_some_and(|seen| seen.iter().any(|version| versions.contains(version)))
    };
    let missing: Vec<Support> = supported().into_iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no case under fixtures/cases has {missing:#?}");
}

/// Forty rounds that all do the same are not written out, in either scan.
#[test]
fn scans_of_many_rounds_are_loops() {
    let model =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/scan_of_many_rounds/model.onnx");
    let graph = load(&model, &LoadOptions::default()).expect("a model");
    let loops = graph.root.nodes.iter().filter(|&&id| matches!(graph.node(id).op, Op::Loop(_)));
    assert_eq!(loops.count(), 2);
}
