//! The exporter's module path of a node.

mod counted;
mod quantized;
mod slashes;

use super::proto::NodeProto;
use crate::ir::ScopeEntry;

pub(crate) use quantized::QuantizedScopes;
pub(crate) use slashes::{SlashPaths, path as slash_path};

/// Modules inside each other, and bytes of a module's path. No network has more; each module repeats the path of those around
/// it, so that what looks like a longer one, and is not, would take memory by the square of its length.
const DEEPEST: usize = 32;
const LONGEST: usize = 512;

/// The modules around a node, the root first; empty when the file does not tell.
pub(crate) fn scope_of(node: &NodeProto) -> Vec<ScopeEntry> {
    let entry =
        |key: &str| node.metadata_props.iter().find(|entry| entry.key == key).map(|e| e.value.as_str());
    match entry("pkg.torch.onnx.name_scopes") {
        Some(names) if names.len() > DEEPEST * LONGEST => Vec::new(),
        Some(names) => {
            let classes = entry("pkg.torch.onnx.class_hierarchy").unwrap_or_default();
            from_metadata(names, classes).unwrap_or_default()
        }
        None => from_node_name(&node.name, &node.op_type),
    }
}

/// PyTorch's dynamo exporter: lists of paths and of classes, from the root to the operation itself.
fn from_metadata(names: &str, classes: &str) -> Option<Vec<ScopeEntry>> {
    let mut names = list(names)?;
    let classes = list(classes).unwrap_or_default();
    // The last entry is the operation. Without the root before it, the node belongs to no module.
    names.pop()?;
    let long = names.iter().chain(&classes).any(|name| name.len() > LONGEST);
    if names.first().is_none_or(|root| !root.is_empty()) || names.len() > DEEPEST || long {
        return None;
    }
    let class = |n: usize| classes.get(n).map(String::as_str).unwrap_or_default();
    Some(
        names
            .into_iter()
            .enumerate()
            .map(|(n, path)| ScopeEntry { class: class(n).to_owned(), path })
            .collect(),
    )
}

/// What ONNX Runtime's tools call nodes of some operators, or called them before they were merged or quantized.
const CALLED: [(&str, &str); 10] = [
    ("ConvInteger", "Conv"),
    ("GatherBlockQuantized", "Gather"),
    ("LayerNormalization", "LayerNorm"),
    ("MatMulBnb4", "MatMul"),
    ("MatMulInteger", "MatMul"),
    ("MatMulNBits", "MatMul"),
    ("QGemm", "Gemm"),
    ("SimplifiedLayerNormalization", "LayerNorm"),
    ("SkipLayerNormalization", "SkipLayerNorm"),
    ("SkipSimplifiedLayerNormalization", "SkipLayerNorm"),
];

/// Whether the last part of a node's name is its operator's, and a number where there are several: `Conv_2`. ONNX Runtime's
/// quantizers add the number of bits, or that of `bitsandbytes`: `MatMul_Q4`, `MatMul_Bnb4`; or `_quant`, to the name of an operator of floats.
fn names_operator(last: &str, operator: &str) -> bool {
    let last = last.strip_suffix("_Bnb4").or(last.strip_suffix("_quant")).unwrap_or(last);
    let called = CALLED.iter().filter(|(of, _)| *of == operator).map(|(_, called)| *called);
    let called = called.chain(operator.strip_prefix("QLinear"));
    [operator].into_iter().chain(called).filter_map(|name| last.strip_prefix(name)).any(|rest| {
        let (number, bits) = rest.rsplit_once("_Q").unwrap_or((rest, ""));
        let number = number.strip_prefix('_').unwrap_or(number);
        number.bytes().chain(bits.bytes()).all(|byte| byte.is_ascii_digit())
    })
}

/// PyTorch's TorchScript exporter, and ONNX Runtime's builder of generative models: `/layer1/layer1.0/conv1/Conv_2`. A child of
/// a container repeats the container's name.
fn from_node_name(name: &str, operator: &str) -> Vec<ScopeEntry> {
    let Some((path, last)) = name.strip_prefix('/').map(|path| path.rsplit_once('/').unwrap_or(("", path)))
    else {
        return Vec::new();
    };
    if !names_operator(last, operator) {
        return Vec::new();
    }
    if path.len() > LONGEST || path.split('/').count() >= DEEPEST {
        return Vec::new();
    }
    let entry = |path: &str| ScopeEntry { path: path.to_owned(), class: String::new() };
    let mut scope = vec![entry("")];
    let (mut full, mut container) = (String::new(), "");
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let child = part.strip_prefix(container).and_then(|rest| rest.strip_prefix('.'));
        let step = match child {
            Some(child) if !container.is_empty() => child,
            _ => part,
        };
        if !full.is_empty() {
            full.push('.');
        }
        full.push_str(step);
        scope.push(entry(&full));
        container = part;
    }
    scope
}

/// Parses a list of strings as Python prints it: `['', 'layer1', "it's"]`.
pub(super) fn list(text: &str) -> Option<Vec<String>> {
    let body = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut items = Vec::new();
    let mut chars = body.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace() || *c == ',').is_some() {}
        let Some(quote) = chars.next() else {
            return Some(items);
        };
        if quote != '\'' && quote != '"' {
            return None;
        }
        let mut item = String::new();
        loop {
            match chars.next()? {
                '\\' => match chars.next()? {
                    'n' => item.push('\n'),
                    't' => item.push('\t'),
                    'r' => item.push('\r'),
                    other => item.push(other),
                },
                c if c == quote => break,
                c => item.push(c),
            }
        }
        items.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(scope: &[ScopeEntry]) -> Vec<&str> {
        scope.iter().map(|entry| entry.path.as_str()).collect()
    }

    #[test]
    fn metadata_names_modules_and_classes() {
        let scope = from_metadata(
            "['', 'layer1', 'layer1.0', \"layer1.0.conv1\", 'conv2d']",
            "['torchvision.models.resnet.ResNet', 'torch.nn.Sequential', 'm.BasicBlock', 'm.Conv2d', 'aten.conv2d']",
        );
        let scope = scope.unwrap();
        assert_eq!(paths(&scope), ["", "layer1", "layer1.0", "layer1.0.conv1"]);
        assert_eq!(scope[0].class, "torchvision.models.resnet.ResNet");
        assert_eq!(scope[2].class, "m.BasicBlock");
        assert!(from_metadata("['_empty_nn_module_stack', 'sym_size_int_2']", "").is_none());
    }

    #[test]
    fn paths_of_node_names() {
        let scope = from_node_name("/bert/encoder/layer.0/attention/self/query/MatMul_1", "MatMul");
        assert_eq!(paths(&scope).last(), Some(&"bert.encoder.layer.0.attention.self.query"));
        let scope = from_node_name("/features/features.1/conv/conv.0/conv.0.0/Conv", "Conv");
        assert_eq!(
            paths(&scope),
            ["", "features", "features.1", "features.1.conv", "features.1.conv.0", "features.1.conv.0.0"]
        );
        assert_eq!(paths(&from_node_name("/Add", "Add")), [""]);
        for name in ["MatMul_Q4", "MatMul_1_Q8", "MatMul", "MatMulNBits"] {
            let scope = from_node_name(&format!("/model/layers.0/attn/o_proj/{name}"), "MatMulNBits");
            assert_eq!(paths(&scope).last(), Some(&"model.layers.0.attn.o_proj"), "{name}");
        }
        let scope = from_node_name("/model/layers.0/attn/o_proj/MatMul_1_Bnb4", "MatMulBnb4");
        assert_eq!(paths(&scope).last(), Some(&"model.layers.0.attn.o_proj"));
        let scope = from_node_name("/model/norm/SkipLayerNorm", "SkipSimplifiedLayerNormalization");
        assert_eq!(paths(&scope), ["", "model", "model.norm"]);
        for name in ["/a/MatMul_Qx", "/a/MatMul_Q4_", "/a/MatMulQ"] {
            assert!(from_node_name(name, "MatMulNBits").is_empty(), "{name}");
        }
        assert!(from_node_name("Add_12", "Add").is_empty());
        assert!(from_node_name("/some/file", "Add").is_empty());
    }

    #[test]
    fn no_module_lies_so_deep() {
        let deep = |levels: usize| format!("{}Add", "/a".repeat(levels) + "/");
        assert_eq!(from_node_name(&deep(20), "Add").len(), 21);
        assert!(from_node_name(&deep(1000), "Add").is_empty());
        let list = format!("['', {}'add']", "'a', ".repeat(1000));
        assert!(from_metadata(&list, &list).is_none());
    }

    #[test]
    fn broken_lists_are_refused() {
        for text in ["", "[", "['a", "[a]", "['a' 1]"] {
            assert!(list(text).is_none(), "{text}");
        }
        assert_eq!(list(r"['a\'b', 'c']").unwrap(), ["a'b", "c"]);
    }
}
