use super::*;
use crate::ir::{Builder, Dim, If, SymbolOrigin, TensorType};
use crate::onnx::{LoadOptions, load};
use crate::passes::{Options, optimize, optimize_observed};
use kiln_types::{BinaryOp, DType, TensorData};
use std::path::Path;

#[test]
fn operations_read_back() {
    let texts = [
        "Where",
        "Unary(Exp)",
        "Activation(Relu)",
        "Activation(LeakyRelu { slope: 0.1 })",
        "Clamp { }",
        "Clamp { min: Float(-inf), max: Int(6) }",
        "Cast { to: F16 }",
        "Reshape { dims: [3 * batch, (h - 1) / 2 + 1] }",
        "Slice { ranges: [{ start: 0, end: n, step: 1 }, { start: max(n - 3, 0), end: 7, step: -2 }] }",
        "Pad { padding: [(0, 0), (1, n)], mode: Reflect, value: Float(0.0) }",
        "HostRead { symbols: [\"n\", \"m\"] }",
        "Conv { options: { stride: [1, 1], padding: [(0, 1), (1, 0)], dilation: [1, 1], groups: 4 }, activation: Relu }",
        "Pool { op: Average { include_pad: true }, options: { kernel: [2], stride: [2], padding: [(0, 0)], dilation: [1], ceil_mode: false } }",
        "Elementwise { steps: [Input(0), Constant(Float(0.5), F32), Binary(Mul, 0, 1), Activation(Gelu, 2)] }",
        "If { condition: greater(n, 0) }",
        "Rnn { kind: Gru { linear_before_reset: true }, direction: Reverse, hidden_size: 4, \
         activations: [Sigmoid, Tanh], batch_first: false }",
        "Call { call: { function: \"tensor::f\", args: [Operand(0), Struct(\"S\", [(\"a\", Size(n + 1))]), \
         Call { function: \"g\", args: [Rank(2), Scalar(Int(-1), I64), Chain { operands: 1, values: [], result: Link(0) }, None] }] }, \
         outputs: [f32[n, 3], bool[]], effect: ReadsDevice }",
    ];
    for text in texts {
        let op: Op = text.parse().unwrap_or_else(|error| panic!("{text}\n{error}"));
        assert_eq!(op.to_string(), text);
    }
}

#[test]
fn errors_have_a_place() {
    let in_graph = |body: &str| format!("graph \"g\" {{\n  %0: f32[2] = input \"x\"\n  {body}\n}}\n");
    let cases = [
        ("return %1 \"y\"", "line 3, column 10: the value %1 is not defined before"),
        ("%1: f32[2] = Uary(Exp) %0", "line 3, column 16: unknown variant `Uary`"),
        ("%1: f32[2] = Unary(Exq) %0", "line 3, column 22: unknown variant `Exq`"),
        ("%1: f32[2] = Concat { axs: 1 } %0", "line 3, column 30: no such field"),
        ("%1: f32[2] = Concat { } %0", "line 3, column 16: missing field `axis`"),
        ("%1: f32[2] = Concat { axis: -1 } %0", "line 3, column 16: invalid value: integer `-1`"),
        ("%1: g32[2] = Where %0", "line 3, column 7: no dtype is called `g32`"),
        ("%0: f32[2] = Where %0", "line 3, column 3: %0 is defined twice"),
        ("%1: f32[2] = constant [1.0]", "line 3, column 25: 4 bytes are given, the type needs 8"),
        ("%1: i8[1] = constant [200]", "line 3, column 25: 200 is no i8"),
        ("%1: f32[n] = constant splat 1", "line 3, column 3: the dims of a constant are numbers"),
        (
            "%1: f32[4611686018427387904, 4] = constant splat 1",
            "line 3, column 46: a constant of this type is too large",
        ),
        ("symbol n = dim 1 of %0\n  return %0", "line 3, column 10: %0 has no axis 1"),
        ("%1: f32[1] = constant hex \"0g\"", "line 3, column 25: these are no bytes in hexadecimal"),
        ("return %0 \"y\" }", "line 4, column 1: expected the end, found `}`"),
        ("%1: f32[2] = Where c0(\"w\")", "line 3, column 22: unknown variant `c0`"),
    ];
    for (body, expected) in cases {
        let error = Graph::parse(&in_graph(body)).err().unwrap_or_else(|| panic!("{body}")).to_string();
        assert!(error.starts_with(expected), "{body}\n{error}");
    }
}

#[test]
fn contents_are_exact() {
    let bits = |bits: u32| f32::from_bits(bits);
    let data = [
        TensorData::new(vec![0.1f32, -0.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY], [5]),
        TensorData::new(vec![f32::NAN, bits(0x7fc0_0001), bits(1)], [3]),
        TensorData::new(vec![0.5f32; 100], [10, 10]),
        TensorData::new((0..100).map(|i| i as f32 / 7.0).collect::<Vec<_>>(), [100]),
        TensorData::new(vec![i64::MIN, i64::MAX], [2]),
        TensorData::new(vec![u64::MAX, 0], [2]),
        TensorData::new(vec![true, false], [2]),
        TensorData::new(Vec::<f32>::new(), [0, 4]),
        TensorData::new(vec![7i8], [] as [usize; 0]),
        TensorData::new(vec![kiln_types::f16::from_f32(0.1), kiln_types::f16::from_f32(3.0)], [2]),
    ];
    for data in data {
        let text = data::text(&data);
        let read = data::parse(&mut Cursor::new(&text), data.dtype, data.shape.clone());
        let read = read.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(read.bytes[..], data.bytes[..], "{text}");
    }
}

/// Shows the first line that differs.
fn assert_same(a: &str, b: &str, what: &str) {
    for (n, (a, b)) in a.lines().zip(b.lines()).enumerate() {
        assert_eq!(a, b, "{what}, line {}", n + 1);
    }
    assert_eq!(a.len(), b.len(), "{what}");
}

/// Prints, reads, prints.
pub(crate) fn assert_reads_back(graph: &Graph, what: &str) -> Graph {
    let text = graph.to_text();
    let read = Graph::parse(&text).unwrap_or_else(|error| panic!("{what}: {error}\n{text}"));
    assert_same(&read.to_text(), &text, what);
    assert_eq!(read.verify(), Ok(()), "{what}");
    read
}

/// Every case: the graph as imported and after every pass reads back, and the passes do the same to a graph that was read as
/// to the one that was imported, so nothing that a pass looks at is missing in the text.
#[test]
fn cases_read_back() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases");
    let mut compared = 0;
    for entry in std::fs::read_dir(cases).unwrap() {
        let path = entry.unwrap().path().join("model.onnx");
        let what = path.display().to_string();
        // Many weights in hexadecimal say nothing new, and take their time in a debug build.
        if path.metadata().is_ok_and(|data| data.len() > 20_000) {
            continue;
        }
        let Ok(mut graph) = load(&path, &LoadOptions::default()) else {
            continue;
        };
        let mut read = assert_reads_back(&graph, &what);
        optimize_observed(&mut graph, &Options::default(), &mut |graph, report| {
            assert_reads_back(graph, &format!("{what} after {report}"));
        });
        optimize(&mut read, &Options::default());
        assert_same(&read.to_text(), &graph.to_text(), &what);
        compared += 1;
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn everything_in_a_graph_reads_back() {
    let mut graph = Graph { name: "a \"graph\"\n".into(), ..Graph::default() };
    let mut b = Builder::new(&mut graph);
    let batch = Dim::symbol("2*N + 1");
    let x = b.input("x\u{202e}", TensorType::new(DType::F32, [batch.clone(), Dim::constant(3)]));
    let flags = b.input("flags", TensorType::new(DType::Bool, [2]));
    let read = b.host(flags, "flag").unwrap();
    let outer = b.open_region();
    let twice = b.add(Op::Binary(BinaryOp::Add), &[x, x]).unwrap();
    let then_region = b.close_region(outer, vec![twice]);
    let outer = b.open_region();
    let same = b.add(Op::Binary(BinaryOp::Mul), &[x, x]).unwrap();
    let else_region = b.close_region(outer, vec![same]);
    let op = Op::If(If { condition: read[0].clone(), then_region, else_region });
    let chosen = b.add(op, &[]).unwrap();
    let nodes = b.nodes;
    graph.root.nodes = nodes;
    graph.root.outputs = vec![chosen, x];
    graph.output_names = vec!["y".into(), String::new()];
    assert_eq!(graph.verify(), Ok(()));
    let again = assert_reads_back(&graph, "all");
    assert!(matches!(again.symbols.get("flag"), Some(SymbolOrigin::Read { index: 0, .. })));
    assert_eq!(again.symbols.len(), 3);
}
