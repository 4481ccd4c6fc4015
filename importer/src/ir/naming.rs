//! What names in a file say.

/// Whether a name in a file looks like a counter of the exporter's and says nothing: `val_58`, `onnx::MatMul_193`.
pub fn is_anonymous(name: &str) -> bool {
    let name = name.rsplit("::").next().unwrap_or(name);
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = stem.trim_end_matches(['_', '.', '-']);
    let counted = stem.len() < name.len();
    stem.is_empty()
        || matches!(stem, "val" | "v" | "const" | "constant" | "Constant" | "input" | "tensor" | "t" | "x")
        || (counted && !name.contains('.') && stem.chars().next().is_some_and(|c| c.is_ascii_uppercase()))
        || name.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_say_nothing() {
        for name in ["val_58", "onnx::MatMul_193", "", "123", "Constant_7", "/layer/Add_output_0"] {
            assert!(is_anonymous(name), "{name}");
        }
        for name in ["pos_embed", "cls_token", "layer1.0.conv1.weight"] {
            assert!(!is_anonymous(name), "{name}");
        }
    }
}
