//! From a derivation to text.

use super::{Derivation, KeyBase};
use crate::{BinaryOp, UnaryOp};
use core::fmt::{self, Display, Formatter};

impl Derivation {
    /// How tightly its parts hold together in text.
    fn precedence(&self) -> u8 {
        match self {
            Self::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => 1,
            Self::Binary(BinaryOp::Mul | BinaryOp::Div, ..) => 2,
            Self::Number(number) if number.is_sign_negative() => 3,
            Self::Unary(UnaryOp::Neg, _) => 3,
            _ => 4,
        }
    }

    fn print(&self, f: &mut Formatter<'_>, least: u8) -> fmt::Result {
        if self.precedence() < least {
            return write!(f, "({self})");
        }
        write!(f, "{self}")
    }
}

/// The sign of an operation that stands between its operands.
fn infix(op: BinaryOp) -> Option<char> {
    match op {
        BinaryOp::Add => Some('+'),
        BinaryOp::Sub => Some('-'),
        BinaryOp::Mul => Some('*'),
        BinaryOp::Div => Some('/'),
        _ => None,
    }
}

/// Whether a key can stand without quotes: words between dots, the first not taken for a number.
pub(super) fn is_plain(path: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    path.split('.').all(word) && !path.starts_with(|c: char| c.is_ascii_digit())
}

/// A key, in quotes where it needs them.
fn name(f: &mut Formatter<'_>, path: &str) -> fmt::Result {
    if is_plain(path) {
        return write!(f, "{path}");
    }
    write!(f, "'")?;
    for c in path.chars() {
        match c {
            '\'' | '\\' => write!(f, "\\{c}")?,
            c => write!(f, "{c}")?,
        }
    }
    write!(f, "'")
}

/// `name(a, b)`.
fn list(f: &mut Formatter<'_>, name: &str, parts: &[Derivation]) -> fmt::Result {
    write!(f, "{name}(")?;
    for (i, part) in parts.iter().enumerate() {
        write!(f, "{}{part}", if i > 0 { ", " } else { "" })?;
    }
    write!(f, ")")
}

/// `name(x, 1, 2)`.
fn call(f: &mut Formatter<'_>, name: &str, of: &Derivation, numbers: &[usize]) -> fmt::Result {
    write!(f, "{name}({of}")?;
    numbers.iter().try_for_each(|number| write!(f, ", {number}"))?;
    write!(f, ")")
}

impl Display for Derivation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { path, base, shape } => {
                match *base {
                    KeyBase::Module => {}
                    KeyBase::Above(levels) => (0..levels).try_for_each(|_| write!(f, "super::"))?,
                    KeyBase::Root => write!(f, "::")?,
                }
                name(f, path)?;
                shape.as_ref().map_or(Ok(()), |shape| write!(f, "{shape:?}"))
            }
            Self::Number(number) if number.abs() >= 1e-3 && number.abs() < 1e15 || *number == 0.0 => {
                write!(f, "{number}")
            }
            Self::Number(number) => write!(f, "{number:e}"),
            Self::First(parts) => list(f, "first", parts),
            Self::Stack(parts) => list(f, "stack", parts),
            Self::Parts(x, order) => call(f, "parts", x, order),
            Self::Constant => write!(f, "constant()"),
            Self::Unary(UnaryOp::Neg, x) => {
                write!(f, "-")?;
                x.print(f, 4)
            }
            Self::Unary(op, x) => call(f, op.name(), x, &[]),
            Self::Binary(op, a, b) => match infix(*op) {
                Some(sign) => {
                    let own = self.precedence();
                    a.print(f, own)?;
                    write!(f, " {sign} ")?;
                    b.print(f, own + 1)
                }
                None => write!(f, "{}({a}, {b})", op.name()),
            },
            Self::Reduce(op, x, axes) => call(f, op.name(), x, axes),
            Self::Permute(x, axes) if axes.as_slice() == [1, 0] => call(f, "transpose", x, &[]),
            Self::Permute(x, axes) => call(f, "permute", x, axes),
            Self::Squeeze(x, axes) => call(f, "squeeze", x, axes),
            Self::Unsqueeze(x, axes) => call(f, "unsqueeze", x, axes),
            Self::Reshape(x, sizes) => call(f, "reshape", x, sizes.as_deref().unwrap_or_default()),
            Self::Expand(x, sizes) => call(f, "expand", x, sizes),
            Self::Slice { of, axis, start, end, step: 1 } => call(f, "slice", of, &[*axis, *start, *end]),
            Self::Slice { of, axis, start, end, step } => call(f, "slice", of, &[*axis, *start, *end, *step]),
            Self::Concat(axis, parts) => {
                write!(f, "cat({axis}")?;
                parts.iter().try_for_each(|part| write!(f, ", {part}"))?;
                write!(f, ")")
            }
            Self::MatMul(a, b) => write!(f, "matmul({a}, {b})"),
            Self::Scaled(weight, factors) => write!(f, "scaled({weight}, {factors})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::ToString};

    #[test]
    fn text_reads_back() {
        for text in [
            "conv1.weight",
            "::lm_head.weight",
            "super::scale.gamma + super::super::'0.x'[4]",
            "super",
            "'0.weight'",
            "::'it\\'s \\\\ odd.weight'",
            "a + b - c",
            "a - (b - c)",
            "(a + b) * c / d",
            "a / (b * c)",
            "-(a + b)",
            "-a * b",
            "1e-5",
            "-0.5 * x",
            "bn.weight / sqrt(bn.running_var + 1e-5)",
            "transpose(w)",
            "permute(w, 2, 0, 1)",
            "reshape(w)",
            "reshape(w, 3, 4)",
            "reshape(w[12, 64, 768])",
            "squeeze(cls_token, 0)",
            "unsqueeze(-gamma[], 1, 2)",
            "::'0.w'[3]",
            "expand(w, 3)",
            "slice(w, 0, 64, 128)",
            "slice(w, 0, 64, 128, 2)",
            "cat(0, query.weight, key.weight, value.weight)",
            "matmul(a, transpose(b))",
            "scaled(w, gamma)",
            "sum(w * w, 1, 2)",
            "max_pair(a, 0)",
            "stack(parts(weight_ih_l0, 0, 3, 1, 2), parts(weight_ih_l0_reverse, 0, 3, 1, 2))",
            "first(wte.weight, transpose(::head.weight))",
            "constant()",
        ] {
            let parsed: Derivation = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn numbers_read_back() {
        for number in [0.0, 1.0, -2.5, 1e-12, 1e-5, 0.1, 1e30, -1e-7, 0.001] {
            let text = Derivation::Number(number).to_string();
            let parsed: Derivation = text.parse().unwrap();
            let value = match parsed {
                Derivation::Number(value) => value,
                other => panic!("{other:?}"),
            };
            assert_eq!(value, number, "{text}");
        }
    }

    #[test]
    fn broken_texts_are_errors() {
        for text in [
            "",
            "a +",
            "(a",
            "a b",
            "f(",
            "unknown(a)",
            "'a",
            "transpose(a, b)",
            "cat(0)",
            "slice(a)",
            "reshape(a, b)",
            "1.5.2",
            "a..b",
            "::",
            "super::",
            "super::::a",
            "super::transpose(a)",
            "permute(a, 1.5)",
            "a[1 2]",
            "a[1",
        ] {
            assert!(text.parse::<Derivation>().is_err(), "{text}");
        }
        let deep = format!("{}a{}", "(".repeat(5000), ")".repeat(5000));
        assert!(deep.parse::<Derivation>().is_err());
        assert!("-".repeat(5000).parse::<Derivation>().is_err());
    }
}
