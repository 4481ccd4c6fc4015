//! Names for what a program yields, from the keys of the dicts in which the network returned it.

use serde::Deserialize;

/// How Python's containers lie inside each other (`torch.utils._pytree.treespec_dumps`).
#[derive(Deserialize)]
struct TreeSpec {
    context: Option<String>,
    r#type: Option<String>,
    children_spec: Vec<TreeSpec>,
}

/// A name for each result, where a dict has one for it; the text is a version and a tree.
pub(super) fn names(spec: &str) -> Vec<Option<String>> {
    let Ok((_, tree)) = serde_json::from_str::<(u64, TreeSpec)>(spec) else { return Vec::new() };
    let mut found = Vec::new();
    let mut waiting = vec![(&tree, String::new())];
    while let Some((tree, path)) = waiting.pop() {
        if tree.r#type.is_none() {
            found.push((!path.is_empty()).then_some(path));
            continue;
        }
        let keys = tree.context.as_deref().and_then(keys);
        let keys = keys.filter(|keys| keys.len() == tree.children_spec.len());
        // Items of a list below a key are numbered.
        let several = tree.children_spec.len() > 1;
        let name = |place: usize| match keys.as_ref().and_then(|keys| keys.get(place)) {
            Some(key) if path.is_empty() => key.clone(),
            Some(key) => format!("{path}_{key}"),
            None if several && !path.is_empty() => format!("{path}_{place}"),
            None => path.clone(),
        };
        let children = tree.children_spec.iter().enumerate().map(|(place, child)| (child, name(place)));
        waiting.extend(children.collect::<Vec<_>>().into_iter().rev());
    }
    found
}

/// The keys of a dict, if all are names; other contexts have them at the end.
fn keys(context: &str) -> Option<Vec<String>> {
    let mut value: serde_json::Value = serde_json::from_str(context).ok()?;
    if let Some(last) = value.as_array_mut().and_then(|items| items.last_mut()).filter(|last| last.is_array())
    {
        value = last.take();
    }
    let keys: Vec<String> = serde_json::from_value(value).ok()?;
    let plain = |key: &String| {
        (1..=64).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    keys.iter().all(plain).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf() -> &'static str {
        r#"{"type": null, "context": null, "children_spec": []}"#
    }

    #[test]
    fn keys_of_dicts_name_results() {
        let list =
            format!(r#"{{"type": "builtins.list", "context": "null", "children_spec": [{0}, {0}]}}"#, leaf());
        let spec = format!(
            r#"[1, {{"type": "builtins.dict", "context": "[\"logits\", \"states\"]", "children_spec": [{}, {list}]}}]"#,
            leaf()
        );
        let found: Vec<_> = names(&spec).into_iter().flatten().collect();
        assert_eq!(found, ["logits", "states_0", "states_1"]);
    }

    #[test]
    fn lists_and_odd_keys_name_none() {
        let tuple = format!(
            r#"[1, {{"type": "builtins.tuple", "context": "null", "children_spec": [{0}, {0}]}}]"#,
            leaf()
        );
        assert_eq!(names(&tuple), [None, None]);
        let odd = format!(
            r#"[1, {{"type": "builtins.dict", "context": "[\"a b\"]", "children_spec": [{}]}}]"#,
            leaf()
        );
        assert_eq!(names(&odd), [None]);
        assert!(names("[1, 2]").is_empty());
    }
}
