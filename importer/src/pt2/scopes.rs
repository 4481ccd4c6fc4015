//! The modules around a call, as PyTorch's exporter to ONNX writes them into a node.

use super::schema::Node;
use crate::onnx::proto::StringStringEntryProto;

/// What a node of ONNX tells of its modules.
pub(super) fn entries(node: &Node) -> Vec<StringStringEntryProto> {
    let Some(stack) = node.metadata.get("nn_module_stack") else { return Vec::new() };
    // `L__self__blocks_0,blocks.0,package.Block`, the root first.
    let modules: Option<Vec<(&str, &str)>> = stack.split(';').map(module).collect();
    let Some(modules) = modules.filter(|modules| modules.first().is_some_and(|(path, _)| path.is_empty()))
    else {
        return Vec::new();
    };
    let operation = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
    let paths = modules.iter().map(|(path, _)| *path).chain([node.name.as_deref().unwrap_or_default()]);
    let classes = modules.iter().map(|(_, class)| *class).chain([operation]);
    let entry = |key: &str, value: String| StringStringEntryProto { key: key.to_owned(), value };
    vec![
        entry("pkg.torch.onnx.name_scopes", list(paths)),
        entry("pkg.torch.onnx.class_hierarchy", list(classes)),
    ]
}

/// The path and the class of a module. A module that is called again has a number behind its path.
fn module(text: &str) -> Option<(&str, &str)> {
    let mut parts = text.splitn(3, ',');
    let (_, path, class) = (parts.next()?, parts.next()?, parts.next()?);
    let path = path.strip_prefix("L['self'].").unwrap_or(path);
    let path = if path == "L['self']" { "" } else { path };
    Some((path.split_once('@').map_or(path, |(path, _)| path), class))
}

/// The class of the outermost module.
pub(super) fn root_class(node: &Node) -> Option<&str> {
    let root = node.metadata.get("nn_module_stack")?.split(';').next()?;
    let (path, class) = module(root)?;
    (path.is_empty() && !class.is_empty()).then_some(class)
}

/// The path of the innermost module.
pub(super) fn path(node: &Node) -> Option<&str> {
    node.metadata.get("nn_module_stack")?.rsplit(';').next().and_then(module).map(|(path, _)| path)
}

/// A list of strings as Python prints it.
fn list<'t>(items: impl Iterator<Item = &'t str>) -> String {
    let quoted = |item: &str| format!("'{}'", item.replace('\\', "\\\\").replace('\'', "\\'"));
    format!("[{}]", items.map(quoted).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::NodeProto;
    use std::collections::HashMap;

    /// The reader of what PyTorch's exporter writes reads this, too, whatever stands in the names.
    #[test]
    fn modules_are_told_as_the_exporter_tells_them() {
        let stack = "L__self__,,m.Net;L__self__a,a,m.Odd's \\ class;L__self__a_b,a.b@1,torch.nn.Linear";
        let node = Node {
            target: "torch.ops.aten.linear.default".into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            metadata: HashMap::from([("nn_module_stack".into(), stack.into())]),
            name: Some("linear".into()),
        };
        assert_eq!(root_class(&node), Some("m.Net"));
        let scope =
            crate::onnx::scope_of(&NodeProto { metadata_props: entries(&node), ..NodeProto::default() });
        let found: Vec<_> = scope.iter().map(|entry| (entry.path.as_str(), entry.class.as_str())).collect();
        assert_eq!(found, [("", "m.Net"), ("a", "m.Odd's \\ class"), ("a.b", "torch.nn.Linear")]);
    }
}
