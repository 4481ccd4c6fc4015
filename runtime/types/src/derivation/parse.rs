//! From text to a derivation.

use super::{Derivation, KeyBase};
use crate::{BinaryOp, ReduceOp, UnaryOp};
use alloc::{borrow::ToOwned, boxed::Box, format, string::String, vec, vec::Vec};
use core::str::FromStr;

/// A text is no derivation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no expression over a checkpoint's tensors: {reason}")]
pub struct DerivationError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

/// More is not written by anybody.
const MAX_DEPTH: usize = 100;

impl FromStr for Derivation {
    type Err = DerivationError;

    fn from_str(text: &str) -> Result<Self, DerivationError> {
        let mut parser = Parser { rest: text, depth: 0 };
        let parsed = parser.sum().and_then(|parsed| {
            let rest = parser.rest.trim_start();
            if rest.is_empty() { Ok(parsed) } else { Err(format!("`{rest}` is left over")) }
        });
        parsed.map_err(|reason| DerivationError { text: text.to_owned(), reason })
    }
}

struct Parser<'t> {
    rest: &'t str,
    depth: usize,
}

type Parsed<T> = Result<T, String>;

impl<'t> Parser<'t> {
    /// Takes a token if it comes next.
    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(token) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        if self.eat(token) { Ok(()) } else { Err(format!("`{token}` is missing before `{}`", self.rest)) }
    }

    fn sum(&mut self) -> Parsed<Derivation> {
        let mut left = self.product()?;
        loop {
            let op = if self.eat("+") {
                BinaryOp::Add
            } else if self.eat("-") {
                BinaryOp::Sub
            } else {
                return Ok(left);
            };
            left = Derivation::binary(op, left, self.product()?);
        }
    }

    fn product(&mut self) -> Parsed<Derivation> {
        let mut left = self.negated()?;
        loop {
            let op = if self.eat("*") {
                BinaryOp::Mul
            } else if self.eat("/") {
                BinaryOp::Div
            } else {
                return Ok(left);
            };
            left = Derivation::binary(op, left, self.negated()?);
        }
    }

    fn negated(&mut self) -> Parsed<Derivation> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("it is too deep".into());
        }
        let parsed = if self.eat("-") {
            match self.negated()? {
                Derivation::Number(number) => Derivation::Number(-number),
                other => Derivation::Unary(UnaryOp::Neg, Box::new(other)),
            }
        } else {
            self.primary()?
        };
        self.depth -= 1;
        Ok(parsed)
    }

    fn primary(&mut self) -> Parsed<Derivation> {
        if self.eat("(") {
            let inner = self.sum()?;
            self.expect(")")?;
            return Ok(inner);
        }
        let base = if self.eat("::") { KeyBase::Root } else { self.levels() };
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('\'') {
            let path = self.quoted()?;
            return self.key(path, base);
        }
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if name.is_empty() {
            return Err(format!("an operand is missing before `{}`", self.rest));
        }
        let relative = base == KeyBase::Module;
        if relative && name.starts_with(|c: char| c.is_ascii_digit()) {
            return self.number(name);
        }
        if !super::text::is_plain(name) {
            return Err(format!("`{name}` is no key; quote it"));
        }
        if relative && self.eat("(") {
            let parsed = self.call(name)?;
            self.expect(")")?;
            return Ok(parsed);
        }
        self.key(name.to_owned(), base)
    }

    /// `super::`, as often as it stands here.
    fn levels(&mut self) -> KeyBase {
        let mut levels = 0;
        while self.eat("super::") {
            levels += 1;
        }
        if levels == 0 { KeyBase::Module } else { KeyBase::Above(levels) }
    }

    /// A key whose name is taken, with its sizes if they come next.
    fn key(&mut self, path: String, base: KeyBase) -> Parsed<Derivation> {
        let mut shape = None;
        if self.eat("[") {
            let mut sizes = Vec::new();
            while !self.eat("]") {
                if !sizes.is_empty() {
                    self.expect(",")?;
                }
                sizes.push(self.whole()?);
            }
            shape = Some(sizes);
        }
        Ok(Derivation::Key { path, base, shape })
    }

    fn word(&mut self, inside: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest.trim_start();
        let end = rest.find(|c| !inside(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        self.rest = after;
        word
    }

    /// A number whose first part is taken; an exponent's sign is no part of a word.
    fn number(&mut self, first: &str) -> Parsed<Derivation> {
        let mut text = first.to_owned();
        if first.ends_with('e')
            && let Some(after) = self.rest.strip_prefix('-')
        {
            self.rest = after;
            text.push('-');
            text.push_str(self.word(|c| c.is_ascii_digit()));
        }
        text.parse().map(Derivation::Number).map_err(|_| format!("`{text}` is no number"))
    }

    fn quoted(&mut self) -> Parsed<String> {
        let mut path = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\'' => {
                    self.rest = self.rest.get(at + 1..).unwrap_or_default();
                    return Ok(path);
                }
                '\\' => path.extend(chars.next().map(|(_, c)| c)),
                c => path.push(c),
            }
        }
        Err("a quote is not closed".into())
    }

    /// A whole number, an axis or a size.
    fn whole(&mut self) -> Parsed<usize> {
        let word = self.word(|c| c.is_ascii_alphanumeric() || c == '.');
        word.parse().map_err(|_| format!("`{word}` is no whole number"))
    }

    /// `, 1, 2, …` up to the closing parenthesis.
    fn numbers(&mut self) -> Parsed<Vec<usize>> {
        let mut numbers = Vec::new();
        while self.eat(",") {
            numbers.push(self.whole()?);
        }
        Ok(numbers)
    }

    /// The arguments of a function whose name and opening parenthesis are taken.
    fn call(&mut self, name: &str) -> Parsed<Derivation> {
        if name == "constant" {
            return Ok(Derivation::Constant);
        }
        if name == "cat" {
            return self.cat();
        }
        if matches!(name, "first" | "stack") {
            let mut parts = vec![self.sum()?];
            while self.eat(",") {
                parts.push(self.sum()?);
            }
            return Ok(if name == "first" { Derivation::First(parts) } else { Derivation::Stack(parts) });
        }
        let first = Box::new(self.sum()?);
        if let Some(&op) = UnaryOp::ALL.iter().find(|op| op.name() == name) {
            return Ok(Derivation::Unary(op, first));
        }
        if let Some(&op) = BinaryOp::ALL.iter().find(|op| op.name() == name) {
            self.expect(",")?;
            return Ok(Derivation::Binary(op, first, Box::new(self.sum()?)));
        }
        if let Some(&op) = ReduceOp::ALL.iter().find(|op| op.name() == name) {
            return Ok(Derivation::Reduce(op, first, self.numbers()?));
        }
        match name {
            "transpose" => Ok(Derivation::Permute(first, [1, 0].into())),
            "parts" => Ok(Derivation::Parts(first, self.numbers()?)),
            "permute" => Ok(Derivation::Permute(first, self.numbers()?)),
            "squeeze" => Ok(Derivation::Squeeze(first, self.numbers()?)),
            "unsqueeze" => Ok(Derivation::Unsqueeze(first, self.numbers()?)),
            "expand" => Ok(Derivation::Expand(first, self.numbers()?)),
            "reshape" => {
                let sizes = self.numbers()?;
                Ok(Derivation::Reshape(first, (!sizes.is_empty()).then_some(sizes)))
            }
            "slice" => match *self.numbers()?.as_slice() {
                [axis, start, end] => Ok(Derivation::Slice { of: first, axis, start, end, step: 1 }),
                [axis, start, end, step] => Ok(Derivation::Slice { of: first, axis, start, end, step }),
                _ => Err("`slice` takes an axis, a start, an end and perhaps a step".into()),
            },
            "matmul" | "scaled" => {
                self.expect(",")?;
                let second = Box::new(self.sum()?);
                Ok(match name {
                    "matmul" => Derivation::MatMul(first, second),
                    _ => Derivation::Scaled(first, second),
                })
            }
            _ => Err(format!("`{name}` is no function")),
        }
    }

    fn cat(&mut self) -> Parsed<Derivation> {
        let axis = self.whole()?;
        let mut parts = Vec::new();
        while self.eat(",") {
            parts.push(self.sum()?);
        }
        if parts.is_empty() { Err("`cat` joins nothing".into()) } else { Ok(Derivation::Concat(axis, parts)) }
    }
}
