//! What names in a file say.

/// Whether a name in a file looks like a counter of the exporter's and says nothing: `val_58`, `onnx::MatMul_193`.
pub fn is_anonymous(name: &str) -> bool {
    let name = without_quantization(name.rsplit("::").next().unwrap_or(name));
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = stem.trim_end_matches(['_', '.', '-']);
    let counted = stem.len() < name.len();
    stem.is_empty()
        || matches!(stem, "val" | "v" | "const" | "constant" | "Constant" | "input" | "tensor" | "t" | "x")
        || (counted && !name.contains('.') && stem.chars().next().is_some_and(|c| c.is_ascii_uppercase()))
        || name.starts_with('/')
        || made_by_helper(name)
}

/// Whether paddle2onnx gave this name, to what it made of weights: its part, an operation, and a number.
fn made_by_helper(name: &str) -> bool {
    const OPERATIONS: [&str; 8] =
        ["cast", "concat", "constant", "reshape", "slice", "squeeze", "transpose", "unsqueeze"];
    let mut parts = name.split('.');
    matches!(parts.next(), Some("helper" | "auto"))
        && parts.next().is_some_and(|part| OPERATIONS.contains(&part))
        && parts.next().is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
        && parts.next().is_none()
}

/// A name without what ONNX Runtime's quantizer puts behind that of a weight for its integers, their scale and zero point.
pub fn without_quantization(name: &str) -> &str {
    let suffixes = ["_quantized", "_scale", "_zero_point", "_Transposed"];
    let mut name = name;
    while let Some(rest) =
        suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).filter(|rest| !rest.is_empty())
    {
        name = rest;
    }
    name
}

/// What PyTorch's exporter calls results that nobody named: by the operation. Later ones have a number besides.
const OPERATIONS: &[&str] = &[
    "add",
    "addmm",
    "bmm",
    "cat",
    "clamp",
    "clone",
    "convolution",
    "copy",
    "div",
    "einsum",
    "embedding",
    "expand",
    "flatten",
    "gather",
    "gelu",
    "getitem",
    "index",
    "log_softmax",
    "matmul",
    "max",
    "mean",
    "min",
    "mm",
    "mul",
    "neg",
    "pad",
    "permute",
    "pow",
    "relu",
    "repeat",
    "reshape",
    "select",
    "sigmoid",
    "silu",
    "slice",
    "softmax",
    "split",
    "squeeze",
    "stack",
    "sub",
    "sum",
    "tanh",
    "to",
    "transpose",
    "unbind",
    "unsqueeze",
    "view",
    "where",
];

/// Whether a word names an operation rather than what it yields.
pub fn names_an_operation(word: &str) -> bool {
    OPERATIONS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_say_nothing() {
        for name in [
            "val_58",
            "onnx::MatMul_193",
            "",
            "123",
            "Constant_7",
            "/layer/Add_output_0",
            "helper.reshape.12",
        ] {
            assert!(is_anonymous(name), "{name}");
        }
        for name in
            ["pos_embed", "cls_token", "layer1.0.conv1.weight", "helper.weights.0", "helper.slice.0.weight"]
        {
            assert!(!is_anonymous(name), "{name}");
        }
    }

    #[test]
    fn what_a_quantizer_names_is_as_well_known_as_the_weight() {
        for name in ["val_12_quantized", "onnx::MatMul_7_zero_point", "/fc/MatMul_output_0_scale"] {
            assert!(is_anonymous(name), "{name}");
        }
        for name in ["fc.weight_quantized", "logit_scale", "fc.weight_Transposed_scale"] {
            assert!(!is_anonymous(name), "{name}");
        }
        assert_eq!(without_quantization("fc.weight_Transposed_quantized"), "fc.weight");
        assert_eq!(without_quantization("_scale"), "_scale");
    }

    #[test]
    fn operations_are_no_results() {
        assert!(["view", "getitem", "log_softmax"].into_iter().all(names_an_operation));
        assert!(!["logits", "label", "views"].into_iter().any(names_an_operation));
    }
}
