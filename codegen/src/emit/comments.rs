//! Comments and lists: what stands for them until the source is printed, since macros are not formatted.

use crate::literals;
use proc_macro2::TokenStream;
use quote::quote;

/// Lines end here, comments included.
const MAX_WIDTH: usize = 110;

const TAIL: &str = "__kiln_tail!(\"";
const RESULT: &str = "__kiln_result!(\"";
const LIST: &str = "__kiln_list([";
const BLANK: &str = "__kiln_blank!();";

/// A comment at the end of the statement before it.
pub fn tail(text: &str) -> TokenStream {
    let text = literals::string(text);
    quote!(__kiln_tail!(#text);)
}

/// A comment at the end of the block's result, which follows.
pub fn result(text: &str) -> TokenStream {
    let text = literals::string(text);
    quote!(__kiln_result!(#text);)
}

/// `vec![…]`, formatted.
pub fn list(items: &[TokenStream]) -> TokenStream {
    quote!(__kiln_list([#(#items),*]))
}

/// An empty line between items.
pub fn blank() -> TokenStream {
    quote!(__kiln_blank!();)
}

/// Puts comments where their markers stand.
pub fn replace(source: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut pending: Vec<(usize, String)> = Vec::new();
    for line in joined(source) {
        let line = line.as_str();
        let trimmed = line.trim_start();
        let indent = &line[..line.len() - trimmed.len()];
        if let Some((_, text)) = pending.pop_if(|(depth, _)| indent.len() < *depth && !trimmed.is_empty()) {
            attach(&mut lines, indent, &text);
        }
        if let Some(text) = marked(trimmed, RESULT) {
            pending.push((indent.len(), text));
            continue;
        }
        if trimmed == BLANK {
            lines.push(String::new());
        } else if let Some(text) = marked(trimmed, TAIL) {
            attach(&mut lines, indent, &text);
        } else {
            lines.push(line.to_owned());
        }
    }
    lines.push(String::new());
    lists(&lines.join("\n"))
}

/// `vec![…]` for what stands for it.
fn lists(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, inside)) = rest.split_once(LIST) {
        text.push_str(before);
        text.push_str("vec![");
        let mut depth = 1_usize;
        let end = inside.char_indices().find(|(_, c)| {
            depth = match c {
                '[' => depth + 1,
                ']' => depth - 1,
                _ => depth,
            };
            depth == 0
        });
        let end = end.map_or(inside.len(), |(at, _)| at);
        text.push_str(&inside[..end]);
        text.push(']');
        // The bracket and the parenthesis.
        rest = inside.get(end + 2..).unwrap_or_default();
    }
    text.push_str(rest);
    text
}

/// The lines of a source, a marker that was broken over three being one again.
fn joined(source: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut open = false;
    for line in source.lines() {
        match lines.last_mut() {
            Some(last) if open => {
                last.push_str(line.trim());
                open = !line.trim().starts_with(')');
            }
            _ => {
                let marker = line.trim();
                open = marker.starts_with("__kiln_") && marker.ends_with('(');
                lines.push(line.to_owned());
            }
        }
    }
    lines
}

/// Adds a comment to the last line, or below it when it is too long.
fn attach(lines: &mut Vec<String>, indent: &str, text: &str) {
    match lines.last_mut() {
        Some(last) if last.len() + text.len() + 4 <= MAX_WIDTH => {
            last.push_str(" // ");
            last.push_str(text);
        }
        _ => lines.push(format!("{indent}// {text}")),
    }
}

/// The text of a marker.
fn marked(line: &str, marker: &str) -> Option<String> {
    let literal = line.strip_prefix(marker)?.strip_suffix("\");")?;
    let text: syn::LitStr = syn::parse_str(&format!("\"{literal}\"")).ok()?;
    Some(text.value().replace(['\n', '\r'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_become_comments() {
        let source = "{\n    let x = 1;\n    __kiln_tail!(\"[1, \\\"a\\\"]\");\n    __kiln_result!(\"[2]\");\n    x\n}\n";
        assert_eq!(replace(source), "{\n    let x = 1; // [1, \"a\"]\n    x // [2]\n}\n");
    }
}
