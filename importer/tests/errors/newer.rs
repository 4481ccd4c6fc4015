//! Operators whose inputs and attributes depend on each other.

use super::*;

fn refused(operator: &str, operands: &[&str], attributes: Vec<AttributeProto>) -> String {
    let sized =
        |name: &str, dims: &[i64]| value(name, &dims.iter().map(|&dim| size(dim)).collect::<Vec<_>>());
    let integers = |name: &str, dims: &[i64]| {
        let mut value = sized(name, dims);
        if let Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), .. }) = &mut value.r#type {
            tensor.elem_type = 7;
        }
        value
    };
    let inputs = vec![
        sized("matrix", &[2, 3]),
        sized("image", &[1, 2, 4, 4]),
        sized("regions", &[3, 5]),
        sized("tokens", &[1, 2, 8]),
        sized("others", &[1, 2, 6]),
        sized("gate", &[1, 2, 2]),
        sized("gates", &[1, 2, 3]),
        sized("image_weight", &[6, 2, 3, 3]),
        sized("wide_weight", &[6, 5, 3, 3]),
        sized("offset", &[1, 18, 2, 2]),
        sized("short_offset", &[1, 7, 2, 2]),
        sized("vector", &[5]),
        sized("boxes", &[1, 3, 4]),
        sized("scores", &[2, 5, 7]),
        sized("places", &[2, 3, 3, 2]),
        sized("triples", &[1, 3, 3, 3]),
        integers("four", &[4]),
        integers("pairs", &[3, 2]),
        integers("batches", &[4, 2, 1]),
    ];
    let mut node = node("n", operator, operands, &["y"]);
    node.attribute = attributes;
    let mut model = model(inputs, vec![node], &["y"]);
    model.opset_import = vec![opset(28)];
    error(&model)
}

#[test]
fn what_depends_on_each_other_is_checked() {
    let heads = |queries, keys| vec![int("q_num_heads", queries), int("kv_num_heads", keys)];
    let rule = |name, queries, keys| [heads(queries, keys), vec![string("update_rule", name)]].concat();
    let tokens = ["tokens", "tokens", "tokens"];
    let gated = ["tokens", "tokens", "tokens", "", "gate"];
    let (f32, f16, i32, u8) = (1, 10, 6, 2);
    let cases: [(&str, &[&str], Vec<AttributeProto>, &str); 31] = [
        ("Det", &["matrix"], vec![], "node `n` (Det, opset 28): `X` has matrices of 2 rows and 3 columns"),
        (
            "BitCast",
            &["matrix"],
            vec![int("to", u8)],
            "`to` is u8, which has not as many bits as the input's f32",
        ),
        ("BitCast", &["matrix"], vec![int("to", f16)], "`to` is f16, which has not as many bits"),
        ("BitCast", &["matrix"], vec![int("to", i32)], "not supported: the bits of f32 as i32"),
        ("MaxRoiPool", &["image", "regions"], vec![], "`pooled_shape` is missing"),
        (
            "MaxRoiPool",
            &["image", "regions"],
            vec![ints("pooled_shape", &[2, -1])],
            "is [2, -1], must be two sizes",
        ),
        (
            "MaxRoiPool",
            &["image", "tokens"],
            vec![ints("pooled_shape", &[2, 2])],
            "`rois` is f32[1, 2, 8], must have the dims [_, 5]",
        ),
        ("Multinomial", &["tokens"], vec![], "`input` has rank 3, expected 2"),
        ("Multinomial", &["matrix"], vec![int("dtype", f32)], "`dtype` is f32, must be i32 or i64"),
        (
            "LinearAttention",
            &tokens,
            rule("linear", 3, 2),
            "`q_num_heads` is 3, must be a multiple of `kv_num_heads`, 2",
        ),
        ("LinearAttention", &tokens, rule("gated", 2, 2), "input `decay` is missing"),
        ("LinearAttention", &gated, rule("linear", 2, 2), "`update_rule` does not go with `decay`"),
        ("LinearAttention", &tokens, rule("linear", 3, 3), "`query` has 8 numbers a token for 3 heads"),
        (
            "LinearAttention",
            &["tokens", "others", "tokens"],
            rule("linear", 2, 2),
            "heads of another size than the queries', 4",
        ),
        ("CausalConvWithState", &["tokens", "matrix"], vec![], "`weight` has rank 2, expected 3"),
        (
            "LinearAttention",
            &tokens,
            rule("linear", 1 << 40, 2),
            "`q_num_heads` is 1099511627776, must be a number of heads",
        ),
        (
            "LinearAttention",
            &["tokens", "tokens", "boxes"],
            rule("linear", 2, 2),
            "`value` is f32[1, 3, 4], must have the dims [1, 2, _]",
        ),
        (
            "LinearAttention",
            &["tokens", "tokens", "tokens", "", "gates"],
            rule("gated", 2, 2),
            "`decay` is f32[1, 2, 3], must have the dims [1, 2, 2]",
        ),
        (
            "LinearAttention",
            &["tokens", "tokens", "tokens", "places"],
            rule("linear", 2, 2),
            "`past_state` is f32[2, 3, 3, 2], must have the dims [1, 2, 4, 4]",
        ),
        (
            "DeformConv",
            &["image", "wide_weight", "offset"],
            vec![],
            "`W` is f32[6, 5, 3, 3], must have the dims [_, 2, 3, 3]",
        ),
        (
            "DeformConv",
            &["image", "image_weight", "short_offset"],
            vec![],
            "`offset` is f32[1, 7, 2, 2], must have the dims [1, 18, 2, 2]",
        ),
        (
            "DeformConv",
            &["image", "image_weight", "offset", "vector"],
            vec![],
            "`B` is f32[5], must have the dims [6]",
        ),
        (
            "DeformConv",
            &["image", "image_weight", "offset"],
            vec![int("offset_group", 4)],
            "`offset_group` is 4 for 2 channels",
        ),
        ("RoiAlign", &["image", "regions", "four"], vec![], "`rois` is f32[3, 5], must have the dims [_, 4]"),
        (
            "RoiAlign",
            &["image", "matrix", "vector"],
            vec![],
            "`rois` is f32[2, 3], must have the dims [_, 4]",
        ),
        (
            "MaxRoiPool",
            &["image", "matrix"],
            vec![ints("pooled_shape", &[2, 2])],
            "`rois` is f32[2, 3], must have the dims [_, 5]",
        ),
        (
            "NonMaxSuppression",
            &["boxes", "scores"],
            vec![],
            "`scores` is f32[2, 5, 7], must have the dims [1, _, 3]",
        ),
        (
            "GridSample",
            &["image", "places"],
            vec![],
            "`grid` is f32[2, 3, 3, 2], must have the dims [1, _, _, 2]",
        ),
        (
            "GridSample",
            &["image", "triples"],
            vec![],
            "`grid` is f32[1, 3, 3, 3], must have the dims [1, _, _, 2]",
        ),
        ("ScatterND", &["matrix", "pairs", "vector"], vec![], "`updates` is f32[5], must have the dims [3]"),
        (
            "GatherND",
            &["scores", "batches"],
            vec![int("batch_dims", 1)],
            "`indices` is i64[4, 2, 1], must have the dims [2, _, _]",
        ),
    ];
    for (operator, operands, attributes, text) in cases {
        let message = refused(operator, operands, attributes);
        assert!(message.contains(text), "{operator}: {message}");
    }
}
