//! Every ONNX case under `fixtures/`: the graph as read and the graph after all passes compute the golden outputs.
//!
//! The interpreter knows no runtime calls, so cases with such operators are only optimized and verified; how many are
//! computed is asserted, so that none is lost silently.

mod recurrent;

use kiln_importer::interpreter::{RunError, run_with};
use kiln_importer::ir::{Graph, Op};
use kiln_importer::onnx::{LoadOptions, load, read_output, read_tensor};
use kiln_importer::passes::{Options, optimize};
use kiln_types::{DType, FloatDType, TensorData, bf16, f16};
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
fn tensors(folder: &Path, prefix: &str, graph: &Graph) -> Vec<TensorData> {
    let mut tensors: Vec<TensorData> = Vec::new();
    for bytes in (0..).map_while(|i: usize| std::fs::read(folder.join(format!("{prefix}_{i}.pb"))).ok()) {
        let read = match prefix {
            "output" => read_output(&bytes, tensors.len(), &graph.strings, &graph.output_sequences),
            _ => read_tensor(&bytes, &graph.strings).map(|tensor| vec![tensor]),
        };
        tensors.extend(read.unwrap().into_iter().map(|tensor| tensor.data));
    }
    tensors
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
        DType::I8 | DType::I4 => each!(i8, f64::from),
        DType::U64 => each!(u64, |x| x as f64),
        DType::U32 => each!(u32, f64::from),
        DType::U16 => each!(u16, f64::from),
        DType::U8 | DType::U4 | DType::Bool => each!(u8, f64::from),
    }
}

/// What differs between outputs and goldens, beyond rounding.
fn difference(actual: &[TensorData], expected: &[TensorData], least: f64) -> Option<String> {
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
        let slack = f64::max(slack, least);
        for (i, (x, y)) in numbers(a).into_iter().zip(numbers(e)).enumerate() {
            let equal = x == y || (x.is_nan() && y.is_nan());
            if !equal && ((x - y).abs() > slack + 10.0 * slack * y.abs() || x.is_nan() || y.is_nan()) {
                return Some(format!("output {n}, element {i}: {x}, expected {y}"));
            }
        }
    }
    None
}

/// Runs a graph on every data set of a case. `Ok(false)` when the interpreter does not know an operation. Its numbers may differ by at
/// least so much.
fn compute(graph: &Graph, case: &Path, least: f64) -> Result<bool, String> {
    for set in 0.. {
        let folder = case.join(format!("test_data_set_{set}"));
        if !folder.is_dir() {
            break;
        }
        match run_with(graph, &tensors(&folder, "input", graph), &recurrent::evaluate) {
            Ok(outputs) => {
                if let Some(difference) = difference(&outputs, &tensors(&folder, "output", graph), least) {
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
            false => compute(&graph, &case, 0.0),
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
        match compute(&graph, &case, 0.0) {
            Ok(known) => computed += usize::from(known),
            Err(what) if before.is_ok() => fail("optimized", what),
            Err(_) => {}
        }
    }
    println!("{loaded} loaded, {computed} computed");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Whether what a graph computes in f32 depends on a float input or on a weight, where that should be in another dtype.
fn in_single_precision(graph: &Graph) -> Vec<String> {
    let heavy = |op: &Op| {
        matches!(
            op,
            Op::Linear(_) | Op::MatMul | Op::Attention(_) | Op::Conv(_) | Op::Rnn(_) | Op::LayerNorm(_)
        )
    };
    let single = |id| graph.ty(id).dtype == DType::F32;
    let nodes = graph.root.nodes.iter().map(|&id| graph.node(id));
    let heavy = nodes.filter(|node| heavy(&node.op) && node.outputs.iter().any(|&id| single(id)));
    heavy.map(|node| format!("{} ({})", node.origin.name, node.op.kind())).collect()
}

/// Cases of numbers that only f32 holds (1e9, bounds at `f32::MAX`, scores that -1e9 or -1e4 hides by rounding), and of numbers that are near to
/// another integer (or float of few bits), to another score that is larger or, where their logarithms matter, to 1.
const LIMITS: [&str; 24] = [
    "op_attention_masks",
    "op_clip_bounds",
    "op_clip_opset_10",
    "op_ml_probit",
    "op_ml_tree_classifier",
    "op_group_query_integers",
    "op_multi_head_attention",
    "dtype_eight_bit_floats",
    "dtype_four_bits",
    "dtype_microscaling",
    "opset_1",
    "op_quantize",
    "op_quantized_floats",
    "op_softmax",
    "quantized_attention",
    "quantized_blocks",
    "quantized_blocks_around",
    "quantized_cnn",
    "op_ranges_of_the_run",
    "quantized_cnn_around",
    "quantized_copies",
    "quantized_encoder",
    "quantized_encoder_around",
    "quantized_repeated",
];

/// Networks in other float dtypes compute about what they did, and inputs and outputs keep their dtypes.
#[test]
fn networks_compute_in_other_dtypes() {
    let (mut failures, mut computed) = (Vec::new(), 0);
    let wanted = std::env::var_os("KILN_CASE").is_some() || std::env::var_os("KILN_CASES").is_some();
    for case in cases() {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        if std::env::var("KILN_CASE").is_ok_and(|wanted| wanted != name) {
            continue;
        }
        let Ok(graph) = load(&case.join("model.onnx"), &LoadOptions::default()) else { continue };
        for (dtype, slack) in [(FloatDType::F16, 5e-3), (FloatDType::BF16, 4e-2), (FloatDType::F64, 0.0)] {
            let mut graph = graph.clone();
            optimize(&mut graph, &Options { float_dtype: Some(dtype), ..Options::default() });
            if std::env::var_os("KILN_CASE").is_some() {
                println!("{graph}");
            }
            let mut fail = |what: String| failures.push(format!("{name} in {dtype:?}: {what}"));
            if let Err(violations) = graph.verify() {
                fail(format!("{violations:?}"));
            }
            if name.starts_with("net_") {
                in_single_precision(&graph).into_iter().for_each(|node| fail(format!("{node} is in f32")));
            }
            if LIMITS.contains(&name.as_str()) {
                continue;
            }
            match compute(&graph, &case, slack) {
                Ok(known) => computed += usize::from(known),
                Err(what) => fail(what),
            }
        }
    }
    println!("{computed} computed");
    // A narrow dtype must not make of most cases what the interpreter does not know.
    assert!(wanted || computed > 300, "{computed} computed");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
