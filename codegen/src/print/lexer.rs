//! The tokens of printed source and where they stand.

/// A token of a source: a literal, a word (a name or the digits of a number), or one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'s> {
    pub text: &'s str,
    /// The offset of its first byte.
    pub start: usize,
}

impl Token<'_> {
    /// The offset behind its last byte.
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// Every token in order; comments are none.
pub fn lex(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut start = 0;
    while let Some(c) = source[start..].chars().next() {
        let rest = &source[start..];
        let (length, is_token) = if c.is_whitespace() {
            (c.len_utf8(), false)
        } else if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with("/*") {
            (block_comment(rest), false)
        } else {
            (token(rest, c), true)
        };
        if is_token {
            tokens.push(Token { text: &rest[..length], start });
        }
        start += length;
    }
    tokens
}

/// The length of the token that a text begins with, whose first character is `c`.
fn token(text: &str, c: char) -> usize {
    match c {
        '"' => quoted(text, 0, '"'),
        '\'' => character_or_quote(text),
        c if is_of_word(c) => {
            let length = text.find(|c| !is_of_word(c)).unwrap_or(text.len());
            let (word, rest) = text.split_at(length);
            match word {
                "b" if rest.starts_with('\'') => quoted(text, length, '\''),
                "b" | "c" if rest.starts_with('"') => quoted(text, length, '"'),
                "r" | "br" | "cr" => length + raw_string(rest).unwrap_or(0),
                _ => length,
            }
        }
        c => c.len_utf8(),
    }
}

fn is_of_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The length of a literal whose opening quote stands at `open`.
fn quoted(text: &str, open: usize, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip_while(|(at, _)| *at <= open) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    text.len()
}

/// `'a'` and `'\n'` are literals; of a lifetime, only the quote is taken.
fn character_or_quote(text: &str) -> usize {
    let mut characters = text.chars().skip(1);
    match (characters.next(), characters.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(text, 0, '\''),
        _ => 1,
    }
}

/// The length of `"…"` or `#"…"#` behind the letter of a raw string.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text.len() - text.trim_start_matches('#').len();
    let inside = text[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", &text[..hashes]);
    Some(inside.find(&end).map_or(text.len(), |at| hashes + 1 + at + end.len()))
}

/// The length of a block comment, which may hold others.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(next) = text[at..].find("/*").into_iter().chain(text[at..].find("*/")).min() {
        depth = if text[at + next..].starts_with("/*") { depth + 1 } else { depth - 1 };
        at += next + 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_are_whole() {
        let cases: &[(&str, &[&str])] = &[
            (r#"let x = "a\"b(\\";"#, &["let", "x", "=", r#""a\"b(\\""#, ";"]),
            ("a // \" (\nb /* /* \" */ ( */ c", &["a", "b", "c"]),
            (
                "r\"\\\" r#\"a\"b\"# br##\"\"#\"## r#fn",
                &["r\"\\\"", "r#\"a\"b\"#", "br##\"\"#\"##", "r", "#", "fn"],
            ),
            (
                r"'a' '\'' '\u{1f}' b'\'' &'a 'static",
                &["'a'", r"'\''", r"'\u{1f}'", r"b'\''", "&", "'", "a", "'", "static"],
            ),
            ("b\"a\" c\"\\\"\" 1.5e-3_f64", &["b\"a\"", "c\"\\\"\"", "1", ".", "5e", "-", "3_f64"]),
            ("\"open", &["\"open"]),
            ("/* open", &[]),
        ];
        for (source, expected) in cases {
            let tokens = lex(source);
            assert_eq!(tokens.iter().map(|token| token.text).collect::<Vec<_>>(), *expected);
            assert!(tokens.iter().all(|token| &source[token.start..token.end()] == token.text));
        }
    }
}
