//! What people read when a model is wrong.

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
fn scales_and_zero_points_are_checked() {
    let typed = |name: &str, dtype: i32, dims: &[DimensionValue]| {
        let mut value = value(name, dims);
        if let Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), .. }) = &mut value.r#type {
            tensor.elem_type = dtype;
        }
        value
    };
    let (f32, u8, i8) = (1, 2, 3);
    let matrix = [size(3), size(3)];
    let inputs = || {
        vec![
            typed("q", u8, &matrix),
            typed("x", f32, &matrix),
            typed("scale", f32, &[]),
            typed("scales", f32, &[size(3)]),
            typed("zero", u8, &[]),
            typed("signed", i8, &[size(1)]),
        ]
    };
    let operand = ["q", "scale", "zero"];
    let cases: [(&str, &[&str], &str); 7] = [
        (
            "QLinearAdd",
            &["q", "scales", "zero", "q", "scale", "zero", "scale", "zero"],
            "node `n` (com.microsoft.QLinearAdd, opset 1): `A_scale` is f32[3], must be one number",
        ),
        (
            "QLinearMul",
            &["q", "scale", "zero", "q", "scale", "signed", "scale", "zero"],
            "`B_zero_point` has dtype i8, expected u8, that of what it shifts",
        ),
        ("QLinearSigmoid", &["x", "scale", "", "scale"], "not supported: f32 under a scale"),
        ("QLinearSoftmax", &["q", "scale", "zero", "scale", "zero"], "`opset` is missing"),
        ("QLinearGlobalAveragePool", &["q", "scale", "zero", "scale", "zero"], "`X` has rank 2"),
        ("QGemm", &[&operand[..], &operand, &["", "scale"]].concat(), "input `y_zero_point` is missing"),
        ("QGemm", &[&operand[..], &["q", "x", "zero"]].concat(), "`b_scale` has rank 2, expected at most 1"),
    ];
    let refused = |operator: &str, operands: &[&str], attributes: Vec<AttributeProto>| {
        let mut node = node("n", operator, operands, &["y"]);
        node.domain = "com.microsoft".into();
        node.attribute = attributes;
        let mut model = model(inputs(), vec![node], &["y"]);
        model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 });
        error(&model)
    };
    for (operator, operands, text) in cases {
        let message = refused(operator, operands, Vec::new());
        assert!(message.contains(text), "{operator}: {message}");
    }
    let message =
        refused("QLinearConcat", &["scale", "zero", "q", "scale", "zero", "q"], vec![int("axis", 1)]);
    assert!(message.contains("`inputs` are 4, must be a tensor, a scale and a zero point each"), "{message}");
}

/// A node of ONNX Runtime's domain, its inputs among those of a model.
fn contrib(
    inputs: Vec<ValueInfoProto>,
    constants: Vec<TensorProto>,
    operator: &str,
    operands: &[&str],
    attributes: Vec<AttributeProto>,
) -> ModelProto {
    let mut node = node("n", operator, operands, &["y"]);
    node.domain = "com.microsoft".into();
    node.attribute = attributes;
    let mut model = model(inputs, vec![node], &["y"]);
    model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 });
    model.graph.as_mut().expect("a graph").initializer = constants;
    model
}

fn typed(name: &str, dtype: i32, dims: &[i64]) -> ValueInfoProto {
    let mut value = value(name, &dims.iter().map(|&dim| size(dim)).collect::<Vec<_>>());
    if let Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), .. }) = &mut value.r#type {
        tensor.elem_type = dtype;
    }
    value
}

#[test]
fn packed_weights_are_checked() {
    let mut wrong = Vec::new();
    let (f32, u8, i32, i64) = (1, 2, 6, 7);
    let bytes = |name: &str, dims: &[i64]| TensorProto {
        name: name.into(),
        data_type: u8,
        dims: dims.to_vec(),
        raw_data: vec![0x21; dims.iter().product::<i64>() as usize].into(),
        ..TensorProto::default()
    };
    let inputs = || {
        vec![
            typed("a", f32, &[2, 32]),
            typed("scales", f32, &[3, 2]),
            typed("wide", 11, &[3, 2]),
            typed("order", i32, &[32]),
            typed("b", u8, &[3, 2, 8]),
            typed("at", i64, &[4]),
        ]
    };
    let refused = |operator: &str, operands: &[&str], attributes: Vec<AttributeProto>| {
        let constants = vec![bytes("weight", &[3, 2, 8]), bytes("zeros", &[3, 1]), bytes("table", &[5, 16])];
        error(&contrib(inputs(), constants, operator, operands, attributes))
    };
    let shape = |k: i64, n: i64, bits: i64, block: i64| {
        vec![int("K", k), int("N", n), int("bits", bits), int("block_size", block)]
    };
    let usual = ["a", "weight", "scales", "zeros"];
    let huge = i64::MAX;
    let cases: Vec<(&[&str], Vec<AttributeProto>, &str)> = vec![
        (&usual, shape(32, 3, 3, 16), "`bits` is 3, must be 2, 4 or 8"),
        (&usual, shape(32, 3, huge, 16), "`bits` is 9223372036854775807"),
        (&usual, shape(32, 3, 4, 0), "`block_size` is 0, must be a power of two of at least 16"),
        (&usual, shape(32, 3, 4, -16), "`block_size` is -16"),
        (&usual, shape(32, 3, 4, 8), "`block_size` is 8"),
        (&usual, shape(32, 3, 4, 24), "`block_size` is 24"),
        (&usual, shape(32, 3, 4, huge), "`block_size` is 9223372036854775807"),
        (
            &usual,
            shape(32, 3, 4, 1 << 62),
            "`B` has 48 bytes, must have 2305843009213693952 for each of 3 rows",
        ),
        (&usual, shape(0, 3, 4, 16), "`K` is 0, must be the size of an axis"),
        (&usual, shape(32, -1, 4, 16), "`N` is -1"),
        (&usual, shape(huge, huge, 4, 16), "`K` is 9223372036854775807"),
        (&usual, shape(i64::from(i32::MAX), i64::from(i32::MAX), 4, 16), "`B` has 48 bytes"),
        (&usual, shape(32, 4, 4, 16), "`B` has 48 bytes, must have 8 for each of 8 rows"),
        (&usual, vec![int("K", 32), int("N", 3)], "`block_size` is missing"),
        (&["a", "weight"], shape(32, 3, 4, 16), "input `scales` is missing"),
        (&["a", "b", "scales"], shape(32, 3, 4, 16), "`B` must be a constant"),
        (&["a", "weight", "at"], shape(32, 3, 4, 16), "`scales` has dtype i64, expected f32"),
        (
            &["a", "weight", "a"],
            shape(32, 3, 4, 16),
            "`scales` is f32[2, 32], must have 2 numbers for each of 3 columns",
        ),
        (
            &["a", "weight", "scales", "wide"],
            shape(32, 3, 4, 16),
            "`zero_points` has dtype f64, expected f32",
        ),
        (&["a", "weight", "scales", "table"], shape(32, 3, 4, 16), "`zero_points` has 80 bytes, must have 1"),
        (&["a", "weight", "scales", "", "order"], shape(32, 3, 4, 16), "not supported: `g_idx`"),
        (&["scales", "weight", "scales"], shape(32, 3, 4, 16), "do not fit"),
    ];
    for (operands, attributes, text) in cases {
        let message = refused("MatMulNBits", operands, attributes);
        if !message.contains(text) {
            wrong.push(format!("{operands:?} {text}: {message}"));
        }
    }
    let table = |bits: i64, block: i64, gather: i64, quantize: i64| {
        vec![
            int("bits", bits),
            int("block_size", block),
            int("gather_axis", gather),
            int("quantize_axis", quantize),
        ]
    };
    let cases: Vec<(&[&str], Vec<AttributeProto>, &str)> = vec![
        (&["table", "at", "scales"], table(5, 16, 0, 1), "`bits` is 5"),
        (&["table", "at", "scales"], table(4, 17, 0, 1), "`block_size` is 17"),
        (&["table", "at", "scales"], table(4, 16, 0, 0), "that are the same"),
        (
            &["table", "at", "scales"],
            table(4, 16, 1, 0),
            "packed integers whose blocks lie along axis 0 of 2",
        ),
        (&["table", "at", "scales"], table(4, 16, 7, 1), "axis 7 is outside a tensor of rank 2"),
        (&["table", "at", "scales"], table(4, 16, 0, i64::MIN), "is outside a tensor of rank 2"),
        (&["table", "at", "scales", "table"], table(4, 16, 0, 1), "`zero_points` has 80 bytes"),
        (&["b", "at", "scales"], table(4, 16, 0, 2), "`data` must be a constant"),
        (&["a", "at", "scales"], table(4, 16, 0, 1), "`data` has dtype f32, expected u8, i4 or u4"),
        (&["table", "at"], table(4, 16, 0, 1), "input `scales` is missing"),
    ];
    for (operands, attributes, text) in cases {
        let message = refused("GatherBlockQuantized", operands, attributes);
        if !message.contains(text) {
            wrong.push(format!("{operands:?} {text}: {message}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn attention_of_the_runtimes_domain_is_checked() {
    let mut wrong = Vec::new();
    let (f32, i32) = (1, 6);
    let inputs = || {
        vec![
            typed("x", f32, &[2, 3, 32]),
            typed("key", f32, &[2, 3, 16]),
            typed("longer", f32, &[2, 5, 32]),
            typed("matrix", f32, &[3, 32]),
            typed("past", f32, &[2, 2, 4, 8]),
            typed("both", f32, &[3, 2, 4, 4, 8]),
            typed("weights", f32, &[32, 95]),
            typed("square", f32, &[32, 96]),
            typed("bias", f32, &[95]),
            typed("lengths", i32, &[2]),
            typed("three", i32, &[3]),
            typed("total", i32, &[]),
            typed("cos", f32, &[10, 4]),
            typed("deep", i32, &[2, 1, 3, 3]),
        ]
    };
    let refused = |operator: &str, operands: &[&str], attributes: Vec<AttributeProto>| {
        error(&contrib(inputs(), Vec::new(), operator, operands, attributes))
    };
    let heads = |heads: i64| vec![int("num_heads", heads)];
    let groups = |heads: i64, groups: i64| vec![int("num_heads", heads), int("kv_num_heads", groups)];
    let also = |mut attributes: Vec<AttributeProto>, name: &str| {
        attributes.push(int(name, 1));
        attributes
    };
    let query = ["x", "key", "key", "", "", "lengths", "total"];
    let cached = ["x", "key", "key", "past", "past", "lengths", "total"];
    let with = |rest: &[&'static str]| [&query[..], rest].concat();
    let mut cases: Vec<(&str, Vec<&str>, Vec<AttributeProto>, &str)> = Vec::new();
    let mut case = |operator, operands: &[&'static str], attributes, text| {
        cases.push((operator, operands.to_vec(), attributes, text));
    };
    let grouped = "GroupQueryAttention";
    case(grouped, &query, heads(4), "`kv_num_heads` is missing");
    case(grouped, &query, groups(0, 2), "`num_heads` is 0, must be a number of heads");
    case(grouped, &query, groups(4, -2), "`kv_num_heads` is -2");
    case(grouped, &query, groups(i64::MAX, 1), "`num_heads` is 9223372036854775807");
    case(grouped, &query, groups(4, 3), "`kv_num_heads` is 3, of which 4 is no multiple");
    case(grouped, &query, groups(3, 3), "`query` has 32 features, which 3 heads cannot share");
    case(grouped, &query, groups(4, 4), "head size");
    case(grouped, &query[..5], groups(4, 2), "input `seqlens_k` is missing");
    case(grouped, &query[..6], groups(4, 2), "input `total_sequence_length` is missing");
    case(grouped, &["x", "key", "", "", "", "lengths", "total"], groups(4, 2), "input `value` is missing");
    case(
        grouped,
        &["x", "key", "key", "past", "", "lengths", "total"],
        groups(4, 2),
        "input `past_value` is missing",
    );
    case(
        grouped,
        &["x", "key", "key", "x", "x", "lengths", "total"],
        groups(4, 2),
        "`past_key` has rank 3, expected 4",
    );
    case(
        grouped,
        &["matrix", "key", "key", "", "", "lengths", "total"],
        groups(4, 2),
        "`query` has rank 2, expected 3",
    );
    case(grouped, &["x", "key", "key", "", "", "three", "total"], groups(4, 2), "reshape");
    case(
        grouped,
        &["x", "key", "key", "past", "past", "lengths", "three"],
        groups(4, 2),
        "`total_sequence_length` must be one number",
    );
    case(grouped, &cached, groups(2, 1), "do not fit");
    case(grouped, &query, also(groups(4, 2), "do_rotary"), "input `cos_cache` is missing");
    case(
        grouped,
        &with(&["cos", "x"]),
        also(groups(4, 2), "do_rotary"),
        "`sin_cache` has rank 3, expected 2",
    );
    case(grouped, &query, also(groups(4, 2), "qk_output"), "not supported: the scores as an output");
    case(
        grouped,
        &query,
        also(groups(4, 2), "sliding_window_cache"),
        "not supported: `sliding_window_cache`",
    );
    case(
        grouped,
        &with(&["", "", "", "", "", "cos", "cos"]),
        groups(4, 2),
        "not supported: the input `k_scale`",
    );
    case(grouped, &with(&["", "", "", "x"]), groups(4, 2), "`attention_bias` has rank 3, expected 4");
    let plain = "MultiHeadAttention";
    case(plain, &["x", "x", "x"], Vec::new(), "`num_heads` is missing");
    case(plain, &["x", "x", "x"], heads(0), "`num_heads` is 0");
    case(plain, &["x", "x", "x"], heads(5), "`query` has 32 features, which 5 heads cannot share");
    case(plain, &["x"], heads(4), "packed into one input");
    case(plain, &["x", "x"], heads(4), "input `value` is missing");
    case(plain, &["x", "x", "x", "bias"], heads(4), "`bias` is f32[95], must have 96 numbers");
    case(
        plain,
        &["x", "x", "x", "", "three"],
        heads(4),
        "`key_padding_mask` is i32[3], must have one end for each of 2 entries",
    );
    case(plain, &["x", "x", "x", "", "deep"], heads(4), "`key_padding_mask` has rank 4, expected 1 to 3");
    case(
        plain,
        &["x", "longer", "longer"],
        also(heads(4), "unidirectional"),
        "`unidirectional` beside 3 queries and 5 keys",
    );
    case(plain, &["x", "x", "x", "", "", "", "past"], heads(4), "input `past_value` is missing");
    case(plain, &["x", "x", "x", "", "", "", "", "", "total"], heads(4), "the input `past_sequence_length`");
    let own = "Attention";
    case(own, &["x", "weights"], heads(4), "`weights` has 95 columns, which are not 31 + 31 + 31");
    case(own, &["x", "square", "bias"], heads(4), "95] do not fit");
    case(own, &["matrix", "square"], heads(4), "`input` has rank 2, expected 3");
    case(own, &["x", "square"], heads(5), "`weights` has 32 features, which 5 heads cannot share");
    case(
        own,
        &["x", "square", "", "", "both"],
        heads(4),
        "`past` is f32[3, 2, 4, 4, 8], must be keys and values of rank 4",
    );
    case(own, &["x", "square"], also(heads(4), "do_rotary"), "not supported: `do_rotary`");
    case(
        own,
        &["x", "square"],
        also(heads(4), "past_present_share_buffer"),
        "not supported: `past_present_share_buffer`",
    );
    let rotary = "RotaryEmbedding";
    case(rotary, &["x", "lengths"], Vec::new(), "input `cos_cache` is missing");
    case(
        rotary,
        &["x", "lengths", "cos", "cos"],
        vec![int("rotary_embedding_dim", 4)],
        "`num_heads` is missing",
    );
    case(rotary, &["x", "lengths", "cos", "cos"], heads(i64::MAX), "reshape");
    case(rotary, &["matrix", "lengths", "cos", "cos"], heads(4), "`input` has rank 2, expected 3 or 4");
    for (operator, operands, attributes, text) in cases {
        let message = refused(operator, &operands, attributes);
        if !message.contains(text) {
            wrong.push(format!("{operator} {operands:?} {text}: {message}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn other_operators_of_the_runtimes_domain_are_checked() {
    let (f32, i32) = (1, 6);
    let inputs = || {
        vec![
            typed("x", f32, &[3, 4]),
            typed("deep", f32, &[2, 3, 4]),
            typed("ids", i32, &[2, 3]),
            typed("table", f32, &[5, 4]),
            typed("norm", f32, &[4]),
            typed("q", 2, &[3, 4]),
            typed("scale", f32, &[]),
        ]
    };
    let name = |name: &str| AttributeProto {
        name: "activation".into(),
        r#type: attribute_type::STRING,
        s: name.as_bytes().to_vec().into(),
        ..AttributeProto::default()
    };
    let gemm = ["x", "table"];
    let turned = || int("transB", 1);
    let cases: Vec<(&str, &[&str], Vec<AttributeProto>, &str)> = vec![
        ("FusedGemm", &gemm, vec![turned()], "not supported: the activation ``"),
        ("FusedGemm", &gemm, vec![turned(), name("Sine")], "not supported: the activation `Sine`"),
        ("FusedGemm", &gemm, vec![turned(), name("LeakyRelu")], "`activation_alpha` is missing"),
        ("FusedGemm", &gemm, vec![name("Relu")], "do not fit"),
        ("FusedGemm", &["deep", "table"], vec![name("Relu")], "`A` has rank 3, expected 2"),
        (
            "EmbedLayerNormalization",
            &["ids", "ids", "table", "table", "", "norm", "norm"],
            Vec::new(),
            "input `segment_embedding` is missing",
        ),
        (
            "EmbedLayerNormalization",
            &["norm", "", "table", "table", "", "norm", "norm"],
            Vec::new(),
            "`input_ids` has rank 1, expected 2",
        ),
        (
            "EmbedLayerNormalization",
            &["ids", "", "table", "table", "", "norm"],
            Vec::new(),
            "input `beta` is missing",
        ),
        ("DynamicQuantizeMatMul", &["x", "q"], Vec::new(), "input `b_scale` is missing"),
        ("DynamicQuantizeMatMul", &["x", "q", "scale"], Vec::new(), "do not fit"),
        ("MatMulIntegerToFloat", &["x", "q", "scale", "scale"], Vec::new(), "`a` has dtype f32"),
        ("MatMulIntegerToFloat", &["q", "q", "scale"], Vec::new(), "input `b_scale` is missing"),
    ];
    let mut wrong = Vec::new();
    for (operator, operands, attributes, text) in cases {
        let message = error(&contrib(inputs(), Vec::new(), operator, operands, attributes));
        if !message.contains(text) {
            wrong.push(format!("{operator} {operands:?} {text}: {message}"));
        }
    }
    let unique = |dims: &[DimensionValue], axis: i64| {
        let mut node = node("u", "Unique", &["x"], &["y"]);
        node.attribute = vec![int("axis", axis)];
        error(&model(vec![value("x", dims)], vec![node], &["y"]))
    };
    let named = DimensionValue::Param("n".into());
    for (message, text) in [
        (unique(&[size(3), size(65)], 0), "entries of 65 numbers each, where 64 are the most"),
        (unique(&[size(3), named], 0), "entries of n numbers each, where 64 are the most"),
        (unique(&[size(3)], 1), "axis 1 is outside a tensor of rank 1"),
    ] {
        if !message.contains(text) {
            wrong.push(format!("{text}: {message}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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
         Upsample (opset 18; known: 7 to 8, 9 to 9), in `u1`\n  \
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
    let _ = import(&model(vec![x], nodes, &["s60"]));
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
         Upsample (opset 18; known: 7 to 8, 9 to 9), in `upsample`\n    \
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
fn ranks_of_unrolled_cells_are_checked() {
    let sizes = |sizes: &[i64]| sizes.iter().map(|&n| size(n)).collect::<Vec<_>>();
    let inputs = vec![
        value("x", &sizes(&[5, 3, 4])),
        value("w", &sizes(&[1, 3, 4])),
        value("r", &sizes(&[1, 3, 3])),
        value("b", &sizes(&[6])),
    ];
    let mut rnn = node("rnn", "RNN", &["x", "w", "r", "b"], &["y"]);
    // With parameters of its own, so that it is unrolled.
    let function = AttributeProto {
        name: "activations".into(),
        r#type: attribute_type::STRINGS,
        strings: vec!["Affine".into()],
        ..AttributeProto::default()
    };
    rnn.attribute = vec![int("hidden_size", 3), function];
    let message = error(&model(inputs, vec![rnn], &["y"]));
    assert_eq!(message, "node `rnn` (RNN, opset 18): `B` has rank 1, expected 2");
}

/// A loop without a bound, whose condition is `x > 0`; the body takes and yields these names.
fn loop_model(body: (&[&str], Vec<NodeProto>, &[&str]), carried: &[&str], outputs: &[&str]) -> ModelProto {
    let (inputs, nodes, yielded) = body;
    let named = |name: &&str| ValueInfoProto { name: (*name).into(), ..ValueInfoProto::default() };
    let data = |name: &str, data_type: i32, dims: Vec<i64>, raw: Vec<u8>| TensorProto {
        name: name.into(),
        data_type,
        dims,
        raw_data: raw.into(),
        ..TensorProto::default()
    };
    let graph = GraphProto {
        node: nodes,
        input: inputs.iter().map(named).collect(),
        output: yielded.iter().map(named).collect(),
        ..GraphProto::default()
    };
    let body = AttributeProto {
        name: "body".into(),
        r#type: attribute_type::GRAPH,
        g: Some(Box::new(graph)),
        ..AttributeProto::default()
    };
    let names: Vec<&str> = ["", "go"].iter().chain(carried).copied().collect();
    let mut repeated = node("loop", "Loop", &names, outputs);
    repeated.attribute = vec![body];
    let nodes = vec![
        node("sum", "ReduceMax", &["x"], &["largest"]),
        node("flat", "Squeeze", &["largest"], &["scalar"]),
        node("first", "Greater", &["scalar", "zero"], &["go"]),
        repeated,
    ];
    let mut model = model(vec![value("x", &[size(2), size(3)])], nodes, &outputs[..1]);
    let graph = model.graph.as_mut().expect("a graph");
    graph.initializer = vec![
        data("zero", 1, vec![], vec![0; 4]),
        data("on", 9, vec![], vec![1]),
        data("axis", 7, vec![1], vec![0; 8]),
    ];
    model
}

#[test]
fn loops_are_checked() {
    let condition = || {
        vec![
            node("max", "ReduceMax", &["h"], &["most"]),
            node("scalar_in", "Squeeze", &["most"], &["most_scalar"]),
            node("again", "Greater", &["most_scalar", "zero"], &["more"]),
        ]
    };
    let with = |others: Vec<NodeProto>| condition().into_iter().chain(others).collect::<Vec<_>>();
    let body: &[&str] = &["i", "c", "h"];
    let sequence = vec![node("list", "SequenceConstruct", &["h"], &["next"])];
    let cases = [
        (loop_model((&["i", "c"], condition(), &["more", "h"]), &["x"], &["y"]), "has 2 inputs, 3 are given"),
        (loop_model((body, condition(), &["more"]), &["x"], &["y"]), "yields too few values"),
        (
            loop_model(
                (body, with(vec![node("up", "Unsqueeze", &["h", "axis"], &["next"])]), &["more", "next"]),
                &["x"],
                &["y"],
            ),
            "a loop that makes a tensor of rank 3 of one of rank 2",
        ),
        (
            loop_model(
                (body, with(vec![node("sign", "Greater", &["h", "zero"], &["next"])]), &["more", "next"]),
                &["x"],
                &["y"],
            ),
            "`what the loop begins with` is f32 and `what a round yields for it` is bool",
        ),
        (
            loop_model((body, with(sequence), &["more", "next"]), &["x"], &["y"]),
            "a sequence or an optional that a loop changes",
        ),
        (
            loop_model(
                (body, vec![node("next", "Relu", &["h"], &["next"])], &["on", "next"]),
                &["x"],
                &["y"],
            ),
            "a loop without an end",
        ),
        (
            loop_model(
                (body, with(vec![node("next", "Softplus", &["more"], &["next"])]), &["more", "next"]),
                &["x"],
                &["y"],
            ),
            "(Softplus",
        ),
    ];
    for (model, text) in cases {
        let found = error(&model);
        assert!(found.contains(text), "{text}: {found}");
    }
    let fine = loop_model(
        (body, with(vec![node("next", "Neg", &["h"], &["next"])]), &["more", "next"]),
        &["x"],
        &["y"],
    );
    assert!(import(&fine).is_ok());
}

/// An `If` over `c` that yields `y`, and what follows.
fn if_model(then_nodes: Vec<NodeProto>, else_nodes: Vec<NodeProto>, rest: Vec<NodeProto>) -> ModelProto {
    let branch = |name: &str, nodes: Vec<NodeProto>| AttributeProto {
        name: name.into(),
        r#type: attribute_type::GRAPH,
        g: Some(Box::new(GraphProto {
            output: nodes.last().map(|last| value(&last.output[0], &[])).into_iter().collect(),
            node: nodes,
            ..GraphProto::default()
        })),
        ..AttributeProto::default()
    };
    let typed = |elem_type: i32, mut port: ValueInfoProto| {
        if let Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), .. }) = &mut port.r#type {
            tensor.elem_type = elem_type;
        }
        port
    };
    let mut choice = node("choice", "If", &["c"], &["y"]);
    choice.attribute = vec![branch("then_branch", then_nodes), branch("else_branch", else_nodes)];
    let inputs = vec![
        typed(9, value("c", &[])),
        value("x", &[DimensionValue::Param("n".into()), size(4)]),
        typed(7, value("a", &[])),
    ];
    let nodes = std::iter::once(choice).chain(rest).collect();
    model(inputs, nodes, &["z"])
}

#[test]
fn branches_are_lost_to_shapes_only() {
    let identity = || vec![node("same", "Identity", &["x"], &["e"])];
    // Its axis is no constant.
    let sums = || vec![node("sums", "CumSum", &["x", "a"], &["t"])];
    let relu = || vec![node("after", "Relu", &["y"], &["z"])];
    for (a, b) in [(sums(), identity()), (identity(), sums())] {
        let found = error(&if_model(a, b, relu()));
        assert!(found.contains("node `sums`") && found.contains("must be a constant"), "{found}");
    }
    // The same after the `If`, for one of its ranks.
    let total = || {
        let mut total = node("total", "ReduceSum", &["x"], &["t"]);
        total.attribute = vec![int("keepdims", 0)];
        vec![total]
    };
    let squeeze = || vec![node("flat", "Squeeze", &["y"], &["z"])];
    for (a, b) in [(total(), identity()), (identity(), total())] {
        let found = error(&if_model(a, b, squeeze()));
        assert!(found.contains("node `flat`") && found.contains("the size n is unknown"), "{found}");
    }
    // What cannot be done with one of the ranks says which branch runs.
    let transpose = || {
        let mut turned = node("turned", "Transpose", &["y"], &["z"]);
        let ints = vec![1, 0];
        let attribute_type = attribute_type::INTS;
        turned.attribute = vec![AttributeProto {
            name: "perm".into(),
            r#type: attribute_type,
            ints,
            ..AttributeProto::default()
        }];
        vec![turned]
    };
    for (a, b) in [(total(), identity()), (identity(), total())] {
        let graph = import(&if_model(a, b, transpose())).unwrap();
        assert!(graph.root.nodes.iter().all(|&id| !matches!(graph.node(id).op, ir::Op::If(_))), "{graph}");
    }
    let found = error(&if_model(total(), total(), transpose()));
    assert!(found.contains("node `turned`") && found.contains("rank 0"), "{found}");
}
