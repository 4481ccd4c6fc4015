//! Operators whose inputs and attributes depend on each other.

use super::*;

fn refused(operator: &str, operands: &[&str], attributes: Vec<AttributeProto>) -> String {
    let sized =
        |name: &str, dims: &[i64]| value(name, &dims.iter().map(|&dim| size(dim)).collect::<Vec<_>>());
    let inputs = vec![
        sized("matrix", &[2, 3]),
        sized("image", &[1, 2, 4, 4]),
        sized("regions", &[3, 5]),
        sized("tokens", &[1, 2, 8]),
        sized("others", &[1, 2, 6]),
        sized("gate", &[1, 2, 2]),
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
    let cases: [(&str, &[&str], Vec<AttributeProto>, &str); 15] = [
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
            "`rois` has rank 3, expected 2",
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
    ];
    for (operator, operands, attributes, text) in cases {
        let message = refused(operator, operands, attributes);
        assert!(message.contains(text), "{operator}: {message}");
    }
}
