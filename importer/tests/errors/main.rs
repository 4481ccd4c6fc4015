//! What people read when a model is wrong.

mod classical;
mod newer;
mod quantized;
mod subgraphs;

use kiln_importer::onnx::proto::*;
use kiln_importer::onnx::{LoadOptions, load, load_bytes};
use kiln_importer::passes::{Options, optimize};
use kiln_importer::{ImportErrorKind, ir};
use prost::Message;
use std::collections::BTreeMap;

fn value(name: &str, dims: &[DimensionValue]) -> ValueInfoProto {
    let dim = dims.iter().map(|dim| DimensionProto { value: Some(dim.clone()) }).collect();
    let tensor = TensorTypeProto { elem_type: 1, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() }),
        ..ValueInfoProto::default()
    }
}

fn size(size: i64) -> DimensionValue {
    DimensionValue::Value(size)
}

fn node(name: &str, operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        name: name.into(),
        op_type: operator.into(),
        input: inputs.iter().map(|&input| input.into()).collect(),
        output: outputs.iter().map(|&output| output.into()).collect(),
        ..NodeProto::default()
    }
}

fn opset(version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: String::new(), version }
}

fn model(inputs: Vec<ValueInfoProto>, nodes: Vec<NodeProto>, outputs: &[&str]) -> ModelProto {
    let graph = GraphProto {
        node: nodes,
        input: inputs,
        output: outputs
            .iter()
            .map(|&name| ValueInfoProto { name: name.into(), ..ValueInfoProto::default() })
            .collect(),
        ..GraphProto::default()
    };
    ModelProto { ir_version: 8, graph: Some(graph), opset_import: vec![opset(18)], ..ModelProto::default() }
}

fn import(model: &ModelProto) -> Result<ir::Graph, String> {
    load_bytes(model.encode_to_vec(), &LoadOptions::default()).map_err(|error| error.to_string())
}

fn error(model: &ModelProto) -> String {
    import(model).expect_err("an error")
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: attribute_type::INT, i, ..AttributeProto::default() }
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    let ints = ints.to_vec();
    AttributeProto { name: name.into(), r#type: attribute_type::INTS, ints, ..AttributeProto::default() }
}

fn string(name: &str, s: &str) -> AttributeProto {
    let s = s.as_bytes().to_vec().into();
    AttributeProto { name: name.into(), r#type: attribute_type::STRING, s, ..AttributeProto::default() }
}

#[test]
fn structure() {
    let x = || vec![value("x", &[size(2), size(3)])];
    struct Case {
        nodes: Vec<NodeProto>,
        text: &'static str,
    }
    let case = |nodes: Vec<NodeProto>, text| Case { nodes, text };
    let mut wrong_type = node("flat", "Flatten", &["x"], &["y"]);
    wrong_type.attribute = vec![AttributeProto {
        name: "axis".into(),
        r#type: attribute_type::FLOAT,
        ..AttributeProto::default()
    }];
    let mut unknown = node("r", "Relu", &["x"], &["y"]);
    unknown.attribute = vec![int("negative", 1)];
    let cases = [
        case(
            vec![node("a", "Relu", &["z"], &["y"]), node("b", "Relu", &["y"], &["z"])],
            "the nodes `a`, `b` form a cycle",
        ),
        case(vec![node("a", "Relu", &["y"], &["y"])], "the node `a` depends on its own output"),
        case(
            vec![node("a", "Add", &["x", "nothing"], &["y"])],
            "node `a` (Add, opset 18): the value `nothing` is used but nothing defines it",
        ),
        case(
            vec![node("a", "Relu", &["x"], &["y"]), node("b", "Relu", &["x"], &["y"])],
            "node `b` (Relu, opset 18): the value `y` is defined more than once",
        ),
        case(
            vec![node("a", "Relu", &["x"], &["x"]), node("b", "Relu", &["x"], &["y"])],
            "node `a` (Relu, opset 18): the value `x` is defined more than once",
        ),
        case(vec![wrong_type], "node `flat` (Flatten, opset 18): `axis` must be an integer"),
        case(
            vec![unknown],
            "node `r` (Relu, opset 18): not supported: the attribute `negative` of this operator",
        ),
        case(vec![node("m", "MatMul", &["x", "x"], &["y"])], "do not fit"),
        case(vec![node("m", "MatMul", &["x"], &["y"])], "input `B` is missing"),
        case(
            vec![node("", "Softmax", &["x"], &["y\n\u{1b}[31m"])],
            "the value `y` is used but nothing defines it",
        ),
    ];
    for Case { nodes, text } in cases {
        let message = error(&model(x(), nodes, &["y"]));
        assert!(message.contains(text), "{message}");
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }
}

#[test]
fn functions_are_defined_once() {
    for (name, text) in [
        ("f", "the function `f` is defined more than once"),
        ("", "a function without a name is defined more than once"),
    ] {
        let mut model = model(vec![value("x", &[size(2)])], vec![node("a", "Relu", &["x"], &["y"])], &["y"]);
        model.functions = vec![FunctionProto { name: name.into(), ..FunctionProto::default() }; 2];
        assert_eq!(error(&model), text);
    }
}

#[test]
fn all_unsupported_operators_are_listed() {
    let mut custom = node("c", "Spline", &["x"], &["a"]);
    custom.domain = "org.example".into();
    let nodes = vec![
        custom,
        node("u1", "Upsample", &["a"], &["b"]),
        node("s1", "Sparkle", &["b"], &["d"]),
        node("s2", "Sparkle", &["d"], &["y"]),
    ];
    let message = error(&model(vec![value("x", &[size(2)])], nodes, &["y"]));
    assert_eq!(
        message,
        "3 operators are not supported:\n  \
         Sparkle (opset 18), in `s1`, `s2`\n  \
         Upsample (opset 18; known: 1 to 6, 7 to 8, 9 to 9), in `u1`\n  \
         org.example.Spline (opset 0), in `c`"
    );
}

#[test]
fn inputs_say_how_to_repair_them() {
    let mut shapeless = value("x", &[]);
    if let Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), .. }) = &mut shapeless.r#type {
        tensor.shape = None;
    }
    let message = error(&model(vec![shapeless], vec![node("a", "Relu", &["x"], &["y"])], &["y"]));
    assert!(message.starts_with("input `x`: has no shape"), "{message}");
    assert!(message.contains("update_model_dims"), "{message}");
}

#[test]
fn dims_are_named_and_bound() {
    let named = |name: &str| DimensionValue::Param(name.into());
    let inputs = vec![value("x", &[named("batch"), size(-1), size(3)])];
    let model = model(inputs, vec![node("a", "Relu", &["x"], &["y"])], &["y"]);
    let graph = import(&model).expect("a graph");
    assert_eq!(graph.ty(graph.root.outputs[0]).to_string(), "f32[batch, x_dim_1, 3]");

    let bind = |name: &str| LoadOptions {
        bind_dims: BTreeMap::from([(name.to_owned(), 5)]),
        ..LoadOptions::default()
    };
    let graph = load_bytes(model.encode_to_vec(), &bind("x_dim_1")).expect("a graph");
    assert_eq!(graph.ty(graph.root.outputs[0]).to_string(), "f32[batch, 5, 3]");
    let error = load_bytes(model.encode_to_vec(), &bind("seq")).expect_err("no such dim");
    assert_eq!(error.to_string(), "there is no dim `seq` to bind; the inputs have `batch`, `x_dim_1`");
}

#[test]
fn inputs_are_bound() {
    let mut axes = value("axes", &[DimensionValue::Param("n".into())]);
    if let Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), .. }) = &mut axes.r#type {
        tensor.elem_type = 7;
    }
    let inputs = vec![value("x", &[size(2), size(3)]), axes];
    let model = model(inputs, vec![node("a", "ReduceSum", &["x", "axes"], &["y"])], &["y"]);
    let message = error(&model);
    assert!(message.contains("`axes` must be a constant"), "{message}");
    assert!(message.contains("it is the model's input `axes`: bind that to what it will be"), "{message}");

    let bind = |name: &str, numbers: &[i64]| {
        let bind_inputs = BTreeMap::from([(name.to_owned(), numbers.iter().map(|&n| n.into()).collect())]);
        let options = LoadOptions { bind_inputs, ..LoadOptions::default() };
        load_bytes(model.encode_to_vec(), &options)
    };
    let graph = bind("axes", &[1]).expect("a graph");
    assert_eq!(graph.ty(graph.root.outputs[0]).to_string(), "f32[2, 1]");
    assert_eq!(graph.inputs.len(), 1);
    let [bound] = graph.bound_inputs.as_slice() else { panic!("{:?}", graph.bound_inputs) };
    assert_eq!(
        (bound.position, bound.name.as_str(), &bound.data),
        (1, "axes", &kiln_types::TensorData::new(vec![1i64], [1]))
    );
    let error = bind("axis", &[1]).expect_err("no such input").to_string();
    assert!(error.contains("there is no input `axis` to bind; there are `x`, `axes`"), "{error}");
    let error = bind("x", &[1]).expect_err("six numbers").to_string();
    assert!(error.contains("input `x`: is f32[2, 3], and is bound to 1 numbers"), "{error}");
}

#[test]
fn outputs_that_are_sequences_are_as_many() {
    let x = || vec![value("x", &[size(2), size(3)])];
    let construct = |operands: &[&str]| node("s", "SequenceConstruct", operands, &["parts"]);
    let graph = import(&model(x(), vec![construct(&["x", "x"])], &["parts"])).expect("a graph");
    assert_eq!(graph.output_names, ["parts_0", "parts_1"]);
    assert_eq!(graph.output_sequences, vec![0..2; 1]);

    let message = error(&model(x(), vec![node("e", "SequenceEmpty", &[], &["parts"])], &["parts"]));
    assert_eq!(message, "output `parts`: holds nothing: it is a sequence");

    // Each name of one sequence would be as many outputs.
    let same: Vec<String> = (0..2_000).map(|n| format!("same_{n}")).collect();
    let mut nodes = vec![construct(&vec!["x"; 2_000])];
    nodes.extend(same.iter().map(|name| node(name, "Identity", &["parts"], &[name])));
    let message = error(&model(x(), nodes, &same.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(message.contains("sequences"), "{message}");
}

/// A function is read as often as it is called, its strings too.
#[test]
fn strings_of_functions_take_steps() {
    let texts: Vec<_> = (0..20_000).map(|n| format!("{n}").into_bytes().into()).collect();
    let mut inner = node("o", "Constant", &[], &["texts"]);
    inner.attribute = vec![AttributeProto {
        name: "value_strings".into(),
        r#type: attribute_type::STRINGS,
        strings: texts,
        ..AttributeProto::default()
    }];
    let call =
        |name: &str, from: &str, to: &str| NodeProto { domain: "f".into(), ..node(to, name, &[from], &[to]) };
    let function = |name: &str, nodes: Vec<NodeProto>| FunctionProto {
        name: name.into(),
        domain: "f".into(),
        input: vec!["x".into()],
        output: vec!["y".into()],
        opset_import: vec![
            OperatorSetIdProto { domain: String::new(), version: 18 },
            OperatorSetIdProto { domain: "f".into(), version: 1 },
        ],
        node: nodes,
        ..FunctionProto::default()
    };
    let often = |name: &str| {
        let values: Vec<String> = (0..100).map(|n| format!("v{n}")).collect();
        let mut nodes: Vec<NodeProto> = values.iter().map(|value| call(name, "x", value)).collect();
        nodes.push(node("out", "Identity", &["v0"], &["y"]));
        nodes
    };
    let mut model = model(vec![value("x", &[size(2)])], vec![call("c", "x", "y")], &["y"]);
    model.opset_import.push(OperatorSetIdProto { domain: "f".into(), version: 1 });
    model.functions = vec![
        function("a", vec![inner, node("out", "Relu", &["x"], &["y"])]),
        function("b", often("a")),
        function("c", often("b")),
    ];
    let message = error(&model);
    assert!(message.contains("written out, are out of proportion"), "{message}");
}

#[test]
fn functions_that_call_themselves_are_refused() {
    let call = |name: &str| NodeProto { domain: "f".into(), ..node("call", name, &["x"], &["y"]) };
    let function = |name: &str, calls: &str| FunctionProto {
        name: name.into(),
        domain: "f".into(),
        input: vec!["x".into()],
        output: vec!["y".into()],
        node: vec![call(calls)],
        opset_import: vec![opset(18), OperatorSetIdProto { domain: "f".into(), version: 1 }],
        ..FunctionProto::default()
    };
    let mut model = model(vec![value("x", &[size(2)])], vec![call("Even")], &["y"]);
    model.functions = vec![function("Even", "Odd"), function("Odd", "Even")];
    let message = error(&model);
    assert!(message.contains("the function `Even` calls itself"), "{message}");
    assert!(message.contains("in function `Odd`"), "{message}");

    // Functions that double each other's calls: 2^40 nodes.
    let relu = node("r", "Relu", &["x"], &["y"]);
    let double = |name: &str, calls: &str| FunctionProto {
        node: vec![
            NodeProto { domain: "f".into(), ..node("a", calls, &["x"], &["z"]) },
            NodeProto { domain: "f".into(), ..node("b", calls, &["z"], &["y"]) },
        ],
        ..function(name, calls)
    };
    model.functions = (0..40).map(|n| double(&format!("F{n}"), &format!("F{}", n + 1))).collect();
    model.functions.push(FunctionProto { node: vec![relu], ..function("F40", "") });
    model.graph.as_mut().expect("a graph").node = vec![call("F0")];
    let message = error(&model);
    assert!(message.contains("are out of proportion to the size of the file"), "{message}");
}

#[test]
fn huge_sizes_cost_nothing() {
    let mut initializer = TensorProto { name: "w".into(), data_type: 1, ..TensorProto::default() };
    initializer.dims = vec![1 << 30, 1 << 30];
    let mut model = model(vec![], vec![node("a", "Relu", &["w"], &["y"])], &["y"]);
    model.graph.as_mut().expect("a graph").initializer = vec![initializer];
    assert!(error(&model).contains("tensor `w`"));

    let shape = TensorProto {
        name: "s".into(),
        data_type: 7,
        dims: vec![3],
        int64_data: vec![1 << 40, 1 << 40, 2],
        ..TensorProto::default()
    };
    let nodes = vec![node("fill", "ConstantOfShape", &["s"], &["y"])];
    model.graph.as_mut().expect("a graph").initializer = vec![shape];
    model.graph.as_mut().expect("a graph").node = nodes;
    assert!(error(&model).contains("is too large"), "{}", error(&model));
}

#[test]
fn squaring_symbols_stays_bounded() {
    let mut nodes = vec![node("shape", "Size", &["x"], &["s0"])];
    for n in 0..60 {
        let (from, to) = (format!("s{n}"), format!("s{}", n + 1));
        nodes.push(node("square", "Mul", &[&from, &from], &[&to]));
    }
    nodes.push(node("fill", "ConstantOfShape", &["s60"], &["y"]));
    let x = value("x", &[DimensionValue::Param("n".into()), DimensionValue::Param("m".into())]);
    let graph = import(&model(vec![x], nodes, &["s60"])).expect("a graph");
    let text = graph.to_text();
    assert!(text.len() < 1 << 14, "{}: {}", text.len(), text.chars().take(2000).collect::<String>());
}

#[test]
fn external_data_stays_in_the_folder() {
    let root = std::env::temp_dir().join(format!("kiln-external-{}", std::process::id()));
    let inside = root.join("model");
    std::fs::create_dir_all(&inside).expect("a folder");
    std::fs::write(root.join("secret"), [0u8; 8]).expect("a file");
    std::fs::write(inside.join("weights"), [0u8; 8]).expect("a file");
    #[cfg(unix)]
    std::os::unix::fs::symlink(root.join("secret"), inside.join("link")).expect("a link");
    let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
    let import = |location: &str, offset: &str, length: &str| {
        let tensor = TensorProto {
            name: "w".into(),
            data_type: 1,
            dims: vec![2],
            data_location: EXTERNAL,
            external_data: vec![
                entry("location", location),
                entry("offset", offset),
                entry("length", length),
            ],
            ..TensorProto::default()
        };
        let mut model = model(vec![], vec![node("a", "Relu", &["w"], &["y"])], &["y"]);
        model.graph.as_mut().expect("a graph").initializer = vec![tensor];
        let path = inside.join("model.onnx");
        std::fs::write(&path, model.encode_to_vec()).expect("a file");
        load(&path, &LoadOptions::default())
    };
    assert!(import("weights", "0", "8").is_ok());
    assert!(import("./weights", "0", "8").is_ok());
    let absolute = root.join("secret");
    for location in ["../secret", "a/../../secret", &absolute.to_string_lossy(), "", "..\\secret", "link"] {
        let error = import(location, "0", "8").expect_err("outside");
        assert!(matches!(*error.kind, ImportErrorKind::ExternalData { .. }), "{location}: {error}");
    }
    for (offset, length) in [("4", "8"), ("18446744073709551615", "8"), ("0", "9"), ("x", "8"), ("0", "4")] {
        assert!(import("weights", offset, length).is_err(), "{offset} {length}");
    }
    std::fs::remove_dir_all(&root).expect("removed");
}

#[test]
fn all_problems_are_in_one_report() {
    let inputs = vec![value("x", &[size(2), size(3)]), value("w", &[size(4), size(5)])];
    let mut axis = node("flat", "Flatten", &["x"], &["f"]);
    axis.attribute = vec![int("axis", 7)];
    let mut custom = node("custom", "Sparkle", &["x"], &["s"]);
    custom.domain = "org.example".into();
    let nodes = vec![
        node("product", "MatMul", &["x", "w"], &["p"]),
        // Follows from the product, and is not blamed for it.
        node("after", "Relu", &["p"], &["q"]),
        axis,
        custom,
        node("upsample", "Upsample", &["s"], &["u"]),
        node("lonely", "Add", &["x", "nothing"], &["l"]),
        node("fine", "Relu", &["x"], &["y"]),
    ];
    let mut broken = TensorProto { name: "weight".into(), data_type: 1, ..TensorProto::default() };
    broken.dims = vec![3];
    let mut model = model(inputs, nodes, &["y", "q", "never"]);
    model.graph.as_mut().expect("a graph").initializer = vec![broken];
    assert_eq!(
        error(&model),
        "6 problems:\n  \
         2 operators are not supported:\n    \
         Upsample (opset 18; known: 1 to 6, 7 to 8, 9 to 9), in `upsample`\n    \
         org.example.Sparkle (opset 0), in `custom`\n  \
         tensor `weight`: needs 3 elements and has 0\n  \
         node `lonely` (Add, opset 18): the value `nothing` is used but nothing defines it\n  \
         node `product` (MatMul, opset 18): inner dims of a product: f32[2, 3] and f32[4, 5] do not fit\n  \
         node `flat` (Flatten, opset 18): axis 7 is outside a tensor of rank 2\n  \
         the value `never` is used but nothing defines it"
    );
}

#[test]
fn doubled_constants_stay_bounded() {
    let initializer = TensorProto {
        name: "c0".into(),
        data_type: 1,
        dims: vec![1024],
        float_data: (0u16..1024).map(f32::from).collect(),
        ..TensorProto::default()
    };
    // Four terabytes in thirty nodes.
    let nodes = (0..30).map(|n| {
        let from = format!("c{n}");
        let mut join = node("join", "Concat", &[&from, &from], &[&format!("c{}", n + 1)]);
        join.attribute = vec![int("axis", 0)];
        join
    });
    let mut model = model(vec![], nodes.collect(), &["c30"]);
    model.graph.as_mut().expect("a graph").initializer = vec![initializer];
    let mut graph = import(&model).expect("a graph");
    optimize(&mut graph, &Options::default());
    let bytes: usize = graph.constants.iter().map(|constant| constant.data.bytes.len()).sum();
    assert!(bytes < 1 << 30, "{bytes}");
}

#[test]
fn outputs_that_nobody_reads_are_not_computed() {
    let nodes = |outputs: &[&str]| {
        let norm = node("norm", "LayerNormalization", &["x", "scale"], outputs);
        let inputs = vec![value("x", &[size(2), size(3)]), value("scale", &[size(3)])];
        import(&model(inputs, vec![norm], &outputs[..1])).expect("a model").nodes.len()
    };
    assert_eq!(nodes(&["y"]), nodes(&["y", "mean", "deviation"]));
}
