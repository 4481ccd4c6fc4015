//! Every ONNX case under `fixtures/`: the graph as read and the graph after all passes compute the golden outputs.
//!
//! The interpreter knows no runtime calls, so cases with such operators are only optimized and verified; how many are
//! computed is asserted, so that none is lost silently.

use kiln_importer::fold::{RunError, run};
use kiln_importer::ir::Graph;
use kiln_importer::onnx::{LoadOptions, load, read_data};
use kiln_importer::passes::{Options, optimize};
use kiln_types::{DType, TensorData, bf16, f16};
use std::path::{Path, PathBuf};

/// The cases under `fixtures/`, or under the folder that `KILN_CASES` names.
fn cases() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let folders = match std::env::var_os("KILN_CASES") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => vec![fixtures.join("cases"), fixtures],
    };
    let mut cases: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("model.onnx").is_file())
        .collect();
    cases.sort();
    cases
}

/// `input_0.pb, input_1.pb, …` of a data set.
fn tensors(folder: &Path, prefix: &str) -> Vec<TensorData> {
    let read = |i: usize| std::fs::read(folder.join(format!("{prefix}_{i}.pb"))).ok();
    (0..).map_while(read).map(|bytes| read_data(&bytes).unwrap()).collect()
}

fn numbers(data: &TensorData) -> Vec<f64> {
    let bytes: &[u8] = &data.bytes;
    macro_rules! each {
        ($ty:ty, $to:expr) => {
            bytes
                .chunks_exact(size_of::<$ty>())
                .map(|c| ($to)(<$ty>::from_le_bytes(c.try_into().unwrap())))
                .collect()
        };
    }
    match data.dtype {
        DType::F64 => each!(f64, |x| x),
        DType::F32 => each!(f32, f64::from),
        DType::F16 => each!(f16, f16::to_f64),
        DType::BF16 => each!(bf16, bf16::to_f64),
        DType::I64 => each!(i64, |x| x as f64),
        DType::I32 => each!(i32, f64::from),
        DType::I16 => each!(i16, f64::from),
        DType::I8 => each!(i8, f64::from),
        DType::U64 => each!(u64, |x| x as f64),
        DType::U32 => each!(u32, f64::from),
        DType::U16 => each!(u16, f64::from),
        DType::U8 | DType::Bool => each!(u8, f64::from),
    }
}

/// What differs between outputs and goldens, beyond rounding.
fn difference(actual: &[TensorData], expected: &[TensorData]) -> Option<String> {
    if actual.len() != expected.len() {
        return Some(format!("{} outputs, {} expected", actual.len(), expected.len()));
    }
    for (n, (a, e)) in actual.iter().zip(expected).enumerate() {
        if a.shape != e.shape || a.dtype != e.dtype {
            return Some(format!("output {n}: {}{:?}, expected {}{:?}", a.dtype, a.shape, e.dtype, e.shape));
        }
        let slack = match e.dtype {
            DType::BF16 => 2e-2,
            DType::F16 => 2e-3,
            _ => 1e-4,
        };
        for (i, (x, y)) in numbers(a).into_iter().zip(numbers(e)).enumerate() {
            let equal = x == y || (x.is_nan() && y.is_nan());
            if !equal && ((x - y).abs() > slack + 10.0 * slack * y.abs() || x.is_nan() || y.is_nan()) {
                return Some(format!("output {n}, element {i}: {x}, expected {y}"));
            }
        }
    }
    None
}

/// Runs a graph on every data set of a case. `Ok(false)` when the interpreter does not know an operation.
fn compute(graph: &Graph, case: &Path) -> Result<bool, String> {
    for set in 0.. {
        let folder = case.join(format!("test_data_set_{set}"));
        if !folder.is_dir() {
            break;
        }
        match run(graph, &tensors(&folder, "input")) {
            Ok(outputs) => {
                if let Some(difference) = difference(&outputs, &tensors(&folder, "output")) {
                    return Err(difference);
                }
            }
            Err(RunError::Operation { kind, .. }) if UNKNOWN.contains(&kind.as_str()) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(true)
}

/// Cases whose shapes are read at run time in a way that only the runtime understands (-1 among the sizes).
const RUNTIME_SHAPES: [&str; 1] = ["op_reshape"];

/// What the interpreter leaves to the runtime.
const UNKNOWN: [&str; 3] = ["Call", "Interpolate", "MaxPoolWithIndices"];

#[test]
fn passes_keep_what_cases_compute() {
    let mut failures = Vec::new();
    let (mut computed, mut loaded) = (0, 0);
    for case in cases() {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let wanted = std::env::var("KILN_CASE").ok();
        if wanted.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let mut graph = match load(&case.join("model.onnx"), &LoadOptions::default()) {
            Ok(graph) => graph,
            Err(error) => {
                println!("{name}: not loaded: {error}");
                continue;
            }
        };
        loaded += 1;
        let mut fail = |when: &str, what: String| failures.push(format!("{name}, {when}: {what}"));
        if let Err(violations) = graph.verify() {
            fail("as read", format!("{violations:?}"));
            continue;
        }
        let before = match RUNTIME_SHAPES.contains(&name.as_str()) {
            true => Err(String::new()),
            false => compute(&graph, &case),
        };
        if let Err(what) = &before
            && !what.is_empty()
        {
            fail("as read", what.clone());
        }
        let reports = optimize(&mut graph, &Options::default());
        if wanted.is_some() {
            reports.iter().for_each(|report| println!("{report}"));
            println!("{graph}");
        }
        if let Err(violations) = graph.verify() {
            fail("optimized", format!("{violations:?}"));
        }
        match compute(&graph, &case) {
            Ok(known) => computed += usize::from(known),
            Err(what) if before.is_ok() => fail("optimized", what),
            Err(_) => {}
        }
    }
    println!("{loaded} loaded, {computed} computed");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
