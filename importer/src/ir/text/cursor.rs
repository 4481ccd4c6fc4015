//! A place in a text, and what can be read there: words, numbers, quoted text, punctuation.

use std::fmt;

/// Structures inside structures; a text with more is broken, and reading it must not exhaust the stack.
const MAX_DEPTH: usize = 100;

/// The result of reading text.
pub type TextResult<T> = Result<T, TextError>;

/// Why a text is no graph, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {kind}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub kind: TextErrorKind,
}

/// What can be wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextErrorKind {
    /// Something else stands there.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What should stand there.
        expected: String,
        /// What does.
        found: String,
    },
    /// A value that no line before it defines.
    #[error("the value %{0} is not defined before")]
    UnknownValue(String),
    /// A label or a symbol that stands for two things.
    #[error("{0} is defined twice")]
    Twice(String),
    /// A number out of range.
    #[error("the number {0} does not fit 64 bits")]
    Number(String),
    /// Quoted text without an end.
    #[error("the text does not end")]
    Unterminated,
    /// Parentheses in parentheses without end.
    #[error("nested too deep")]
    Depth,
    /// What is read makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// A place in a text.
pub struct Cursor<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Cursor<'t> {
    /// The start of a text.
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// What is left, without the space and the comments (`//` to the end of the line) before it.
    fn rest(&mut self) -> &'t str {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return trimmed;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// The next character.
    pub fn peek(&mut self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Steps over a piece of text if it stands here.
    pub fn eat(&mut self, piece: &str) -> bool {
        let here = self.rest().starts_with(piece);
        if here {
            self.at += piece.len();
        }
        here
    }

    /// Steps over a whole word if it stands here.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let here = self.peek_word() == word;
        if here {
            self.at += word.len();
        }
        here
    }

    /// Steps over a piece of text that must stand here.
    pub fn expect(&mut self, piece: &str) -> TextResult<()> {
        if self.eat(piece) { Ok(()) } else { Err(self.expected(&format!("`{piece}`"))) }
    }

    /// Nothing may be left.
    pub fn end(&mut self) -> TextResult<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.expected("the end")) }
    }

    /// The word that stands here; empty when there is none.
    pub fn peek_word(&mut self) -> &'t str {
        let rest = self.rest();
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            return "";
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    }

    /// Reads a word; `what` says what it should be.
    pub fn word(&mut self, what: &str) -> TextResult<&'t str> {
        let word = self.peek_word();
        if word.is_empty() {
            return Err(self.expected(what));
        }
        self.at += word.len();
        Ok(word)
    }

    /// Reads letters, digits and `_` right here: the rest of a label.
    pub fn label(&mut self) -> TextResult<&'t str> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end == 0 {
            return Err(self.expected("a label"));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    /// Reads the digits of an integer whose sign was read.
    pub fn integer(&mut self, negative: bool) -> TextResult<i64> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.expected("an integer"));
        }
        let sign = if negative { "-" } else { "" };
        let number = format!("{sign}{}", &rest[..end]);
        let value = number.parse().map_err(|_| self.fail(TextErrorKind::Number(number)))?;
        self.at += end;
        Ok(value)
    }

    /// Reads a size: an integer that is not negative.
    pub fn size(&mut self) -> TextResult<usize> {
        let value = self.integer(false)?;
        usize::try_from(value).map_err(|_| self.fail(TextErrorKind::Number(value.to_string())))
    }

    /// Reads a number as written: `-1.5e-7`, `NaN`, `-inf`.
    pub fn number(&mut self) -> TextResult<&'t str> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '+' | '.'))
            .unwrap_or(rest.len());
        if rest[..end].parse::<f64>().is_err() {
            return Err(self.expected("a number"));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    /// Reads quoted text with Rust's escapes.
    pub fn string(&mut self) -> TextResult<String> {
        if self.peek() != Some('"') {
            return Err(self.expected("quoted text"));
        }
        let body = &self.text[self.at + 1..];
        let mut text = String::new();
        let mut characters = body.char_indices();
        while let Some((i, c)) = characters.next() {
            match c {
                '"' => {
                    self.at += i + 2;
                    return Ok(text);
                }
                '\\' => text.push(self.escape(&mut characters)?),
                _ => text.push(c),
            }
        }
        Err(self.fail(TextErrorKind::Unterminated))
    }

    /// What stands after a backslash.
    fn escape(&mut self, characters: &mut std::str::CharIndices<'_>) -> TextResult<char> {
        let invalid = |this: &mut Self| this.error("an unknown escape in this text");
        match characters.next().map(|(_, c)| c) {
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            Some('0') => Ok('\0'),
            Some(c @ ('\\' | '"' | '\'')) => Ok(c),
            Some('u') => {
                let code: String = characters.map(|(_, c)| c).take_while(|&c| c != '}').skip(1).collect();
                let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                code.ok_or_else(|| invalid(self))
            }
            _ => Err(invalid(self)),
        }
    }

    /// Reads something inside what is being read.
    pub fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> TextResult<T>) -> TextResult<T> {
        self.enter()?;
        let result = read(self);
        self.leave();
        result
    }

    /// What follows is inside what is being read, until [`Cursor::leave`].
    pub fn enter(&mut self) -> TextResult<()> {
        if self.depth >= MAX_DEPTH {
            return Err(self.fail(TextErrorKind::Depth));
        }
        self.depth += 1;
        Ok(())
    }

    /// The end of what [`Cursor::enter`] began.
    pub fn leave(&mut self) {
        self.depth -= 1;
    }

    /// What comes next, not stepped over.
    pub fn ahead(&mut self) -> &'t str {
        self.rest()
    }

    /// The text between two places.
    pub fn since(&self, start: usize) -> &'t str {
        &self.text[start..self.at]
    }

    /// Where the next character is that is neither space nor comment.
    pub fn position(&mut self) -> usize {
        self.rest();
        self.at
    }

    /// An error at this place.
    pub fn fail(&mut self, kind: TextErrorKind) -> TextError {
        let at = self.position();
        self.fail_at(at, kind)
    }

    /// An error at another place.
    pub fn fail_at(&self, at: usize, kind: TextErrorKind) -> TextError {
        let before = &self.text[..at.min(self.text.len())];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let line = before.matches('\n').count() + 1;
        TextError { line, column: before[line_start..].chars().count() + 1, kind }
    }

    /// An error at this place, in words.
    pub fn error(&mut self, what: impl fmt::Display) -> TextError {
        self.fail(TextErrorKind::Invalid(what.to_string()))
    }

    /// The error that something else stands here.
    pub fn expected(&mut self, expected: &str) -> TextError {
        let word = self.peek_word();
        let found = match (word.is_empty(), self.peek()) {
            (false, _) => format!("`{word}`"),
            (true, Some(c)) => format!("`{}`", c.escape_debug()),
            (true, None) => "the end".to_owned(),
        };
        self.fail(TextErrorKind::Expected { expected: expected.to_owned(), found })
    }
}
