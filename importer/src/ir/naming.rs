//! What names in a file say: how exporters name parameters, results and scopes.

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

/// The last parts of names that a layer's parameters have in files.
const PARAMETER_NAMES: &[&str] =
    &["weight", "bias", "running_mean", "running_var", "weight_bias", "gamma", "beta"];

/// Whether a parameter's name in the file can be that of a layer's field.
pub fn names_field(name: &str, field: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let last = without_quantization(last);
    last == field || is_numbered_parameter(last) || PARAMETER_NAMES.contains(&last)
}

/// Whether a parameter has its number in its layer for a name, as PaddlePaddle's have: `linear_3.w_0`.
pub fn is_numbered_parameter(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.rsplit_once('_').is_some_and(|(letter, number)| matches!(letter, "w" | "b") && is_number(number))
}

/// The scope of a module's first call, where that of a later one has a number behind it, as the TorchScript exporter writes: `layer` for
/// `layer_3`.
pub fn scope_of_first_call(scope: &str) -> Option<&str> {
    let (stem, number) = scope.rsplit_once('_')?;
    (!stem.is_empty() && is_number(number)).then_some(stem)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
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
    fn parameters_and_later_calls_have_numbers() {
        assert!(is_numbered_parameter("linear_3.w_0") && names_field("linear_3.b_1", "bias"));
        assert!(names_field("fc.weight_quantized", "weight") && !names_field("fc.table", "weight"));
        assert!(!["linear_3.w_", "w_x", "linear_0"].into_iter().any(is_numbered_parameter));
        assert_eq!(["fc_1", "fc", "_1"].map(scope_of_first_call), [Some("fc"), None, None]);
    }

    #[test]
    fn operations_are_no_results() {
        assert!(["view", "getitem", "log_softmax"].into_iter().all(names_an_operation));
        assert!(!["logits", "label", "views"].into_iter().any(names_an_operation));
    }
}
