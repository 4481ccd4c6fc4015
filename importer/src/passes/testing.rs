//! Small graphs for the tests of passes: built, optimized, and run before and after.

use super::{Options, optimize};
use crate::interpreter;
use crate::ir::{Builder, Dim, Graph, Node, Provenance, TensorType, ValueId, is_anonymous};
use kiln_types::{DType, TensorData};
use std::sync::Arc;

/// A type from text: `f32[batch, 3]`.
pub(crate) fn ty(text: &str) -> TensorType {
    let (dtype, dims) = text.trim_end_matches(']').split_once('[').unwrap();
    let dtype = DType::ALL.into_iter().find(|d| d.name() == dtype).unwrap();
    let dims = dims.split(',').map(str::trim).filter(|d| !d.is_empty());
    TensorType::new(dtype, dims.map(|d| d.parse::<i64>().map_or_else(|_| Dim::symbol(d), Dim::constant)))
}

/// A graph with inputs of the given types; `body` yields its outputs.
pub(crate) fn graph(
    inputs: &[&str],
    body: impl FnOnce(&mut Builder<'_>, &[ValueId]) -> Vec<ValueId>,
) -> Graph {
    let mut graph = Graph::default();
    let mut b = Builder::new(&mut graph);
    let inputs: Vec<ValueId> =
        inputs.iter().enumerate().map(|(i, text)| b.input(&format!("x{i}"), ty(text))).collect();
    let outputs = body(&mut b, &inputs);
    let nodes = b.nodes;
    graph.output_names = (0..outputs.len()).map(|i| format!("y{i}")).collect();
    graph.root.nodes = nodes;
    graph.root.outputs = outputs;
    graph.verify().unwrap();
    graph
}

/// A constant of f32; one with a name is a parameter of the original network, or made of some
/// by the exporter.
pub(crate) fn constant(b: &mut Builder<'_>, name: Option<&str>, shape: &[usize], values: &[f32]) -> ValueId {
    let data = TensorData::new(values.to_vec(), shape);
    let key = |name: &str| {
        let name = name.to_owned();
        Arc::new(match is_anonymous(&name) {
            true => Provenance::Exporter { name, keys: Vec::new() },
            false => Provenance::Key { key: name, shape: shape.to_vec() },
        })
    };
    b.graph.add_derived(name.map(str::to_owned), data, name.map(key))
}

/// The graph after all passes.
pub(crate) fn optimized(mut graph: Graph) -> Graph {
    optimize(&mut graph, &Options::default());
    graph.verify().unwrap();
    graph
}

/// The graph after all passes; it computes what it computed before, for inputs of the given sizes.
pub(crate) fn checked(graph: Graph, sizes: &[(&str, usize)]) -> Graph {
    let inputs: Vec<TensorData> =
        graph.inputs.iter().enumerate().map(|(i, &id)| sample(graph.ty(id), sizes, i as u64)).collect();
    let before = interpreter::run(&graph, &inputs).unwrap();
    let after = optimized(graph);
    let text = after.to_string();
    assert_close(
        &before,
        &interpreter::run(&after, &inputs).unwrap_or_else(|e| panic!("{e}\n{text}")),
        &text,
    );
    after
}

/// Numbers between -2 and 2 that look random.
pub(crate) fn sample(ty: &TensorType, sizes: &[(&str, usize)], seed: u64) -> TensorData {
    let size = |dim: &Dim| {
        let known = |symbol: &crate::ir::Symbol| {
            sizes.iter().find(|(name, _)| **name == **symbol).map(|&(_, size)| Dim::from(size))
        };
        dim.substitute(&known).as_size().unwrap()
    };
    let shape: Vec<usize> = ty.dims.iter().map(size).collect();
    let count: usize = shape.iter().product();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    };
    match ty.dtype {
        DType::I64 => TensorData::new((0..count).map(|_| (next() * 2.0) as i64).collect(), shape),
        DType::U8 | DType::I8 => {
            let numbers: Vec<i64> = (0..count).map(|_| (next() * 127.0) as i64).collect();
            TensorData::new(numbers, shape).convert_dtype(ty.dtype)
        }
        DType::Bool => TensorData {
            bytes: kiln_types::Bytes::from_vec((0..count).map(|_| u8::from(next() > 0.5)).collect()),
            shape,
            dtype: DType::Bool,
        },
        _ => TensorData::new((0..count).map(|_| (next() * 4.0 - 2.0) as f32).collect(), shape),
    }
}

/// Asserts that outputs are equal within rounding.
pub(crate) fn assert_close(a: &[TensorData], b: &[TensorData], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(b) {
        assert_eq!((&a.shape, a.dtype), (&b.shape, b.dtype), "{what}");
        let (x, y) = (crate::data::Elements::load(a).floats(), crate::data::Elements::load(b).floats());
        for (x, y) in x.into_iter().zip(y) {
            let equal = x == y || (x.is_nan() && y.is_nan());
            assert!(equal || (x - y).abs() <= 1e-5 + 1e-4 * y.abs(), "{x} and {y}\n{what}");
        }
    }
}

/// The only node.
pub(crate) fn single(graph: &Graph) -> &Node {
    assert_eq!(graph.root.nodes.len(), 1, "{graph}");
    graph.node(graph.root.nodes[0])
}

/// The kinds of the root's nodes.
pub(crate) fn kinds(graph: &Graph) -> Vec<String> {
    graph.root.nodes.iter().map(|&id| graph.node(id).op.kind()).collect()
}
