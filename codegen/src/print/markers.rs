//! Comments and lists: what stands for them until the source is printed, since macros are not formatted.

use super::lexer::{Token, lex};
use crate::literals;
use crate::names::ident;
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{Macro, MacroDelimiter, Stmt, StmtMacro};

/// Lines end here, comments included.
const MAX_WIDTH: usize = 110;

/// No identifier begins like this that is made of a name ([`crate::names`]).
const PREFIX: &str = "__kiln_";
const TAIL: &str = "__kiln_tail";
const BLANK: &str = "__kiln_blank";
const LIST: &str = "__kiln_list";

/// A comment at the end of the statement before it.
pub fn tail(text: &str) -> Stmt {
    let mac = Macro {
        path: ident(TAIL).into(),
        bang_token: Default::default(),
        delimiter: MacroDelimiter::Paren(Default::default()),
        tokens: literals::string(text),
    };
    Stmt::Macro(StmtMacro { attrs: Vec::new(), mac, semi_token: Some(Default::default()) })
}

/// An empty line between items.
pub fn blank() -> TokenStream {
    let marker = ident(BLANK);
    quote!(#marker!();)
}

/// `vec![…]`, formatted.
pub fn list(items: &[impl ToTokens]) -> TokenStream {
    let marker = ident(LIST);
    quote!(#marker([#(#items),*]))
}

/// Whether a word is one of the markers that are statements or items, which leave no tokens.
pub(super) fn is_comment(word: &Ident) -> bool {
    word == TAIL || word == BLANK
}

/// Whether a word is the marker of a list.
pub(super) fn is_list(word: &Ident) -> bool {
    word == LIST
}

/// A marker that is a statement or an item.
enum Marker {
    Blank,
    Tail(String),
}

/// The marker that tokens begin with, and how many it takes.
fn marker(tokens: &[Token<'_>]) -> Option<(Marker, usize)> {
    if !tokens.first()?.text.starts_with(PREFIX) {
        return None;
    }
    let words: Vec<&str> = tokens.iter().take(6).map(|token| token.text).collect();
    let text = |literal: &str| {
        let text: syn::LitStr = syn::parse_str(literal).ok()?;
        Some(text.value().replace(['\n', '\r'], " "))
    };
    match *words.as_slice() {
        [BLANK, "!", "(", ")", ";", ..] => Some((Marker::Blank, 5)),
        [TAIL, "!", "(", literal, ")", ";"] => Some((Marker::Tail(text(literal)?), 6)),
        _ => None,
    }
}

/// Puts comments and lists where their markers stand.
pub fn replace(source: &str) -> String {
    let tokens = lex(source);
    let mut text = Text { source, copied: 0, text: String::with_capacity(source.len()) };
    // The brackets that are open, and whether each is a list's.
    let mut open: Vec<bool> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let rest = &tokens[at..];
        if let Some((marker, length)) = marker(rest) {
            let indent = text.skip_lines(token.start, rest[length - 1].end());
            match marker {
                Marker::Blank => text.text.push('\n'),
                Marker::Tail(comment) => text.attach(indent, &comment),
            }
            at += length;
            continue;
        }
        at += 1;
        match token.text {
            LIST => {
                // The parenthesis goes; the bracket in it is the list's.
                if let Some(bracket) = rest.get(2) {
                    text.copy(token.start);
                    text.text.push_str("vec!");
                    text.copied = bracket.start;
                    open.push(true);
                    at += 2;
                }
            }
            "(" | "[" | "{" => open.push(false),
            ")" | "]" | "}" => {
                let is_list = open.pop().unwrap_or_default();
                if is_list && let Some(end) = tokens[at..].iter().find(|token| token.text == ")") {
                    text.copy(token.end());
                    text.copied = end.end();
                    at += 1;
                }
            }
            _ => {}
        }
    }
    text.copy(source.len());
    text.text
}

/// The text so far, and how much of the source is in it.
struct Text<'s> {
    source: &'s str,
    copied: usize,
    text: String,
}

impl<'s> Text<'s> {
    fn copy(&mut self, to: usize) {
        self.text.push_str(&self.source[self.copied.min(to)..to]);
        self.copied = to;
    }

    /// Copies the lines before the one in which `at` is; the indent of that.
    fn copy_lines(&mut self, at: usize) -> &'s str {
        let start = self.source[..at].rfind('\n').map_or(0, |end| end + 1);
        if start > self.copied {
            self.copy(start);
        }
        let line = &self.source[start..at];
        &line[..line.len() - line.trim_start().len()]
    }

    /// Copies what is before the lines of a marker and leaves those out; their indent.
    fn skip_lines(&mut self, start: usize, end: usize) -> &'s str {
        let indent = self.copy_lines(start);
        self.copied = self.source[end..].find('\n').map_or(self.source.len(), |length| end + length + 1);
        indent
    }

    /// Adds a comment to the last line, or below it when it is too long.
    fn attach(&mut self, indent: &str, comment: &str) {
        let line = self.text.strip_suffix('\n').and_then(|text| text.rsplit('\n').next());
        if line.is_some_and(|line| line.len() + comment.len() + 4 <= MAX_WIDTH) {
            self.text.pop();
            self.text.push_str(" // ");
        } else {
            self.text.push_str(indent);
            self.text.push_str("// ");
        }
        self.text.push_str(comment);
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_become_comments() {
        let source = "{\n    let x = 1;\n    __kiln_tail!(\"[1, \\\"a\\\"]\");\n    x\n}\n";
        assert_eq!(replace(source), "{\n    let x = 1; // [1, \"a\"]\n    x\n}\n");
    }

    #[test]
    fn long_comments_stand_below() {
        let long = "a".repeat(MAX_WIDTH);
        let source =
            format!("{{\n    let x = 1;\n    __kiln_tail!(\n        \"{long}\"\n    );\n    x\n}}\n");
        assert_eq!(replace(&source), format!("{{\n    let x = 1;\n    // {long}\n    x\n}}\n"));
    }

    #[test]
    fn lists_may_hold_lists() {
        let source = "f(__kiln_list([a, __kiln_list([]), g([1])]), \"__kiln_list([\") // __kiln_list([\n";
        assert_eq!(replace(source), "f(vec![a, vec![], g([1])], \"__kiln_list([\") // __kiln_list([\n");
    }
}
