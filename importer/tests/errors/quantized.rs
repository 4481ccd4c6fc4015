//! Quantized operators, and those of the domain of ONNX Runtime.

use super::*;

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
fn experts_are_checked() {
    let mut wrong = Vec::new();
    let f32 = 1;
    let bytes = |name: &str, dims: &[i64]| TensorProto {
        name: name.into(),
        data_type: 2,
        dims: dims.to_vec(),
        raw_data: vec![0x21; dims.iter().product::<i64>() as usize].into(),
        ..TensorProto::default()
    };
    let inputs = || {
        vec![
            typed("x", f32, &[7, 32]),
            typed("line", f32, &[32]),
            typed("scores", f32, &[7, 5]),
            typed("fewer", f32, &[6, 5]),
            typed("up", f32, &[5, 16, 32]),
            typed("old_up", f32, &[5, 32, 16]),
            typed("odd_up", f32, &[5, 15, 32]),
            typed("down", f32, &[5, 32, 16]),
            typed("up_bias", f32, &[5, 16]),
            typed("up_scales", f32, &[5, 16]),
            typed("down_scales", f32, &[5, 32]),
            typed("block_scales", f32, &[5, 16, 2]),
        ]
    };
    let refused = |operator: &str, operands: &[&str], attributes: Vec<AttributeProto>| {
        let constants = vec![
            bytes("packed_up", &[5, 16, 16]),
            bytes("packed_down", &[5, 32, 8]),
            bytes("zeros", &[5, 7]),
            bytes("flat", &[5, 256]),
        ];
        error(&contrib(inputs(), constants, operator, operands, attributes))
    };
    let usual = ["x", "scores", "up", "up_bias", "down"];
    let kind = |name: &str| string("activation_type", name);
    let mut cases: Vec<(&str, Vec<&str>, Vec<AttributeProto>, &str)> = Vec::new();
    let mut case = |operator, operands: &[&'static str], attributes, text| {
        cases.push((operator, operands.to_vec(), attributes, text));
    };
    case("MoE", &usual, vec![int("k", 0)], "`k` is 0, must be at least 1");
    case("MoE", &usual, vec![int("k", 6)], "`k` is 6, and there are 5 experts");
    case("MoE", &usual, vec![int("k", i64::MAX)], "`k` is 9223372036854775807");
    case("MoE", &usual, vec![kind("tanh")], "`activation_type` is `tanh`, must be one of relu");
    case("MoE", &usual, vec![kind("swiglu")], "input `fc3_experts_weights` is missing");
    case("MoE", &usual, vec![int("swiglu_fusion", 3)], "`swiglu_fusion` is 3, must be 0, 1 or 2");
    case("MoE", &usual, vec![kind("geglu")], "`swiglu_fusion` is 0, must be 1 or 2 for `geglu`");
    case(
        "MoE",
        &["x", "scores", "up", "", "old_up", "", "up"],
        vec![kind("swiglu"), int("swiglu_fusion", 2)],
        "`swiglu_fusion` does not go with `fc3_experts_weights`",
    );
    case(
        "MoE",
        &["x", "scores", "odd_up", "", "down"],
        vec![kind("swiglu"), int("swiglu_fusion", 1)],
        "`fc1_experts_weights` has 15 rows, which have no halves",
    );
    case(
        "MoE",
        &usual,
        vec![int("use_sparse_mixer", 1)],
        "`use_sparse_mixer` chooses 2 experts, and `k` is 1",
    );
    case("MoE", &usual[..4], vec![], "input `fc2_experts_weights` is missing");
    case("MoE", &["line", "scores", "up", "", "down"], vec![], "`input` has rank 1, expected 2 or 3");
    case(
        "MoE",
        &["x", "fewer", "up", "", "down"],
        vec![],
        "`router_probs` is f32[6, 5], must have the dims [7, 5]",
    );
    case(
        "MoE",
        &["x", "scores", "old_up", "", "up"],
        vec![],
        "`fc1_experts_weights` is f32[5, 32, 16], must have the dims [5, 32, 32]",
    );
    case(
        "MoE",
        &["x", "scores", "up", "down_scales", "down"],
        vec![],
        "`fc1_experts_bias` is f32[5, 32], must have the dims [5, 16]",
    );
    let packed = ["x", "scores", "packed_up", "up_scales", "", "packed_down", "down_scales"];
    let swapped = |at: usize, name: &'static str| {
        let mut operands = packed;
        operands[at] = name;
        operands
    };
    case("QMoE", &packed, vec![int("expert_weight_bits", 3)], "`expert_weight_bits` is 3, must be 2, 4 or 8");
    case("QMoE", &packed, vec![int("fc2_expert_weight_bits", 16)], "`fc2_expert_weight_bits` is 16");
    case("QMoE", &packed, vec![string("quant_type", "nvfp4")], "not supported: `quant_type` \"nvfp4\"");
    case("QMoE", &packed, vec![int("weights_prepacked", 1)], "not supported: `weights_prepacked`");
    case("QMoE", &packed, vec![int("block_size", 17)], "`block_size` is 17, must be a power of two");
    case(
        "QMoE",
        &packed,
        vec![int("block_size", 64)],
        "`block_size` is 64, which does not divide rows of 32",
    );
    case(
        "QMoE",
        &packed,
        vec![int("block_size", 16)],
        "`fc1_scales` is f32[5, 16], must have the dims [5, 16, 2]",
    );
    case(
        "QMoE",
        &swapped(3, "block_scales"),
        vec![],
        "`fc1_scales` is f32[5, 16, 2], must have the dims [5, 16]",
    );
    case("QMoE", &swapped(2, "flat"), vec![], "`fc1_experts_weights` has rank 2, expected 3");
    case("QMoE", &swapped(2, "up"), vec![], "`fc1_experts_weights` must be a constant");
    case(
        "QMoE",
        &[&packed[..], &["", "", "", "", "zeros"]].concat(),
        vec![],
        "`fc1_zero_points` has 35 bytes, must have 8 for each of 5 rows",
    );
    case(
        "QMoE",
        &[&packed[..], &["", "", "", "", "", "", "", "scores"]].concat(),
        vec![int("k", 2), int("use_sparse_mixer", 1)],
        "`use_sparse_mixer` does not go with `router_weights`",
    );
    for (operator, operands, attributes, text) in cases {
        let message = refused(operator, &operands, attributes);
        if !message.contains(text) {
            wrong.push(format!("{operator} {operands:?} {text}: {message}"));
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
    let set = |name: &str, value: i64| [groups(4, 2), vec![int(name, value)]].concat();
    let window = |size: i64| [set("sliding_window_cache", 1), vec![int("local_window_size", size)]].concat();
    case(grouped, &query, set("qk_output", 3), "`qk_output` is 3, must be 0, 1 or 2");
    case(
        grouped,
        &cached,
        set("sliding_window_cache", 1),
        "`sliding_window_cache` is set without `local_window_size`",
    );
    case(grouped, &query, window(4), "input `past_key` is missing");
    case(grouped, &cached, window(5), "`past_key` has 4 rows, too few for a window of 5");
    case(
        grouped,
        &with(&["", "", "", "", "", "cos", "cos"]),
        groups(4, 2),
        "`k_scale` is given for a cache that is not quantized",
    );
    case(
        grouped,
        &with(&["", "", "", "", "", "", "", "", "", "lengths"]),
        groups(4, 2),
        "input `past_key` is missing",
    );
    case(
        grouped,
        &with(&["", "", "", "", "", "", "", "cos"]),
        groups(4, 2),
        "input `k_norm_weight` is missing",
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
