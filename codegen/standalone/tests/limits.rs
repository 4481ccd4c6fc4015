//! Graphs that are long or large: in time that grows with their length, on a small stack, or an error.

use kiln_codegen::RecordPath;
use kiln_importer::ir::{Builder, Graph, Op, TensorType, ValueId};
use kiln_limits_tests::bounded;
use kiln_standalone::{Options, StandaloneError, generate};
use kiln_types::{Activation, BinaryOp, DType, TensorData, UnaryOp};

fn options() -> Options {
    Options {
        model_name: "Model".to_owned(),
        source_name: String::new(),
        weights: RecordPath::Given("model.weights".to_owned()),
    }
}

/// A graph of one input of these dims.
fn graph(dims: &[usize], make: impl FnOnce(&mut Builder<'_>, ValueId) -> Vec<ValueId>) -> Graph {
    let mut graph = Graph::default();
    let mut builder = Builder::new(&mut graph);
    let x = builder.input("x", TensorType::new(DType::F32, dims.iter().copied()));
    let outputs = make(&mut builder, x);
    let nodes = builder.nodes;
    graph.root.nodes = nodes;
    graph.output_names = (0..outputs.len()).map(|n| format!("y{n}")).collect();
    graph.root.outputs = outputs;
    graph
}

#[test]
fn long_chains_become_source() {
    bounded(|| {
        // What is summed up last is needed all the time.
        let graph = graph(&[4], |b, x| {
            let (mut kept, mut last) = (Vec::new(), x);
            for n in 0..3_000 {
                last = b.add(Op::Activation(Activation::Sigmoid), &[last]).expect("a value");
                if n % 3 == 0 {
                    kept.push(last);
                }
            }
            let add = |sum, value| b.add(Op::Binary(BinaryOp::Add), &[sum, value]).expect("a value");
            vec![kept.into_iter().fold(last, add)]
        });
        assert!(generate(&graph, &options()).expect("source").source.contains("sigmoid"));
    });
}

#[test]
fn what_is_not_small_is_refused() {
    bounded(|| {
        let long = graph(&[1], |b, x| {
            let next = |x, _| b.add(Op::Unary(UnaryOp::Exp), &[x]).expect("a value");
            vec![(0..20_000).fold(x, next)]
        });
        let error = generate(&long, &options()).expect_err("an error");
        assert!(matches!(error, StandaloneError::TooLarge { what: "nodes", .. }), "{error}");

        let large = graph(&[1 << 30], |b, x| vec![b.add(Op::Unary(UnaryOp::Exp), &[x]).expect("a value")]);
        let error = generate(&large, &options()).expect_err("an error").to_string();
        assert!(
            error.contains("input `x` is f32[1073741824]: source without a runtime is for small models"),
            "{error}"
        );

        // Each is small, and all are needed at once.
        let many = graph(&[1 << 24], |b, x| {
            (0..8).map(|_| b.add(Op::Unary(UnaryOp::Exp), &[x]).expect("a value")).collect()
        });
        let error = generate(&many, &options()).expect_err("an error");
        assert!(matches!(error, StandaloneError::TooLarge { what: "bytes of activations", .. }), "{error}");
    });
}

/// Flags are numbers of the file as weights are: as words of the source they would be most of it.
#[test]
fn a_large_mask_is_no_text() {
    bounded(|| {
        let masked = graph(&[1024, 1024], |b, x| {
            let flags = (0..1024 * 1024).map(|n| n % 1024 <= n / 1024).collect::<Vec<bool>>();
            let mask = b.graph.add_constant(Some("mask".into()), TensorData::new(flags, [1024, 1024]));
            let hidden = b.graph.add_constant(None, TensorData::new(vec![-1e9f32], [1usize; 0]));
            vec![b.add(Op::Where, &[mask, x, hidden]).expect("a value")]
        });
        let standalone = generate(&masked, &options()).expect("source");
        assert!(standalone.source.len() < 4_000, "{}", standalone.source);
        assert!(standalone.weights.len() >= 1024 * 1024 && standalone.weights.iter().all(|&byte| byte < 2));
    });
}
