//! Small models, built from messages.

use kiln_importer::onnx::proto::*;

pub fn size(size: i64) -> DimensionValue {
    DimensionValue::Value(size)
}

pub fn param(name: &str) -> DimensionValue {
    DimensionValue::Param(name.into())
}

/// A float input.
pub fn input(name: &str, dims: &[DimensionValue]) -> ValueInfoProto {
    let dim = dims.iter().map(|dim| DimensionProto { value: Some(dim.clone()) }).collect();
    let tensor = TensorTypeProto { elem_type: 1, shape: Some(TensorShapeProto { dim }) };
    let r#type = Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() });
    ValueInfoProto { name: name.into(), r#type, ..ValueInfoProto::default() }
}

pub fn named(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.into(), ..ValueInfoProto::default() }
}

pub fn node(operator: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
    NodeProto {
        op_type: operator.into(),
        input: names(inputs),
        output: names(outputs),
        attribute,
        ..NodeProto::default()
    }
}

/// A call of a function of the domain `f`.
pub fn call(function: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto { domain: "f".into(), ..node(function, inputs, outputs, Vec::new()) }
}

pub fn function(name: &str, inputs: &[&str], outputs: &[&str], node: Vec<NodeProto>) -> FunctionProto {
    let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
    FunctionProto {
        name: name.into(),
        domain: "f".into(),
        input: names(inputs),
        output: names(outputs),
        node,
        opset_import: opsets(),
        ..FunctionProto::default()
    }
}

fn opsets() -> Vec<OperatorSetIdProto> {
    let of = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    vec![of("", 20), of("ai.onnx.ml", 3), of("f", 1)]
}

pub fn attribute(name: &str, r#type: i32) -> AttributeProto {
    AttributeProto { name: name.into(), r#type, ..AttributeProto::default() }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i, ..attribute(name, attribute_type::INT) }
}

pub fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, attribute_type::INTS) }
}

pub fn string(name: &str, s: &str) -> AttributeProto {
    AttributeProto { s: s.to_owned().into(), ..attribute(name, attribute_type::STRING) }
}

pub fn graph_attribute(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(Box::new(graph)), ..attribute(name, attribute_type::GRAPH) }
}

/// A tensor of i64.
pub fn integers(name: &str, dims: &[i64], data: &[i64]) -> TensorProto {
    let (dims, int64_data) = (dims.to_vec(), data.to_vec());
    TensorProto { name: name.into(), data_type: 7, dims, int64_data, ..TensorProto::default() }
}

/// A tensor of f32.
pub fn floats(name: &str, dims: &[i64], data: &[f32]) -> TensorProto {
    let (dims, float_data) = (dims.to_vec(), data.to_vec());
    TensorProto { name: name.into(), data_type: 1, dims, float_data, ..TensorProto::default() }
}

/// A bool of rank 0.
pub fn truth(name: &str, value: bool) -> TensorProto {
    let int32_data = vec![i32::from(value)];
    TensorProto { name: name.into(), data_type: 9, int32_data, ..TensorProto::default() }
}

pub fn graph(node: Vec<NodeProto>, initializer: Vec<TensorProto>, outputs: &[&str]) -> GraphProto {
    let output = outputs.iter().map(|&name| named(name)).collect();
    GraphProto { node, initializer, output, ..GraphProto::default() }
}

/// A model with the input `x`, of dims `[n, 3]`.
pub fn model(graph: GraphProto) -> ModelProto {
    with_inputs(vec![input("x", &[param("n"), size(3)])], graph)
}

pub fn with_inputs(input: Vec<ValueInfoProto>, graph: GraphProto) -> ModelProto {
    let graph = Some(GraphProto { input, ..graph });
    ModelProto { ir_version: 8, graph, opset_import: opsets(), ..ModelProto::default() }
}

/// A chain of nodes from `x` on: `make` gets the number, the name that comes in and the one that goes out.
pub fn chain(count: usize, make: impl Fn(usize, &str, &str) -> NodeProto) -> Vec<NodeProto> {
    let name = |n: usize| if n == 0 { "x".to_owned() } else { format!("v{n}") };
    (0..count).map(|n| make(n, &name(n), &name(n + 1))).collect()
}
