//! Dims as text, and back.
//!
//! `seq + 1`, `2 * batch * (h / 4) - 3`, `max(a, b) % 8`, `greater(n, 0)`. A symbol stands bare when it is a word, else in
//! quotes. Reading builds what is written and simplifies nothing but sums and products, so that what was printed is what
//! is read.

use super::{Atom, Dim, Symbol};
use crate::ir::text::{Cursor, TextError, TextResult};
use kiln_types::CompareOp;
use std::fmt;

/// Whether a name needs no quotes.
pub(crate) fn is_word(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A symbol's name, in quotes where it is no word.
pub(crate) struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_word(self.0) { f.write_str(self.0) } else { write!(f, "{:?}", self.0) }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(symbol) => Name(symbol).fmt(f),
            Atom::FloorDiv(a, b) => write!(f, "{} / {}", Operand(a), Operand(b)),
            Atom::Mod(a, b) => write!(f, "{} % {}", Operand(a), Operand(b)),
            Atom::TruncDiv(a, b) => write!(f, "trunc_div({a}, {b})"),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
            Atom::Compare(op, a, b) => write!(f, "{}({a}, {b})", op.name()),
            Atom::Beyond => f.write_str("…"),
        }
    }
}

/// Prints a dim in parentheses unless it is one plain factor.
struct Operand<'a>(&'a Dim);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.as_constant().is_some_and(|c| c >= 0) || self.0.as_symbol().is_some() {
            write!(f, "{}", self.0)
        } else {
            write!(f, "({})", self.0)
        }
    }
}

impl fmt::Display for Dim {
    /// Terms with symbols first, the constant last: `seq + 1`, `2 * batch * heads - 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is(0) {
            return write!(f, "0");
        }
        let symbolic = self.terms().filter(|(_, atoms)| !atoms.is_empty());
        let constant = self.terms().filter(|(_, atoms)| atoms.is_empty());
        for (i, (coefficient, atoms)) in symbolic.chain(constant).enumerate() {
            match (i, coefficient < 0) {
                (0, false) => {}
                (0, true) => write!(f, "-")?,
                (_, false) => write!(f, " + ")?,
                (_, true) => write!(f, " - ")?,
            }
            let magnitude = coefficient.unsigned_abs();
            if atoms.is_empty() || magnitude != 1 {
                write!(f, "{magnitude}")?;
            }
            for (k, atom) in atoms.iter().enumerate() {
                if k > 0 || magnitude != 1 {
                    write!(f, " * ")?;
                }
                let nested = matches!(atom, Atom::FloorDiv(..) | Atom::Mod(..));
                let alone = atoms.len() == 1 && magnitude == 1;
                if nested && !alone { write!(f, "({atom})")? } else { write!(f, "{atom}")? }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Dim {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut cursor = Cursor::new(text);
        let dim = parse(&mut cursor)?;
        cursor.end()?;
        Ok(dim)
    }
}

/// Reads a sum of terms.
pub(crate) fn parse(cursor: &mut Cursor<'_>) -> TextResult<Dim> {
    let mut negative = cursor.eat("-");
    let mut sum = Dim::constant(0);
    loop {
        let term = term(cursor, negative)?;
        sum = &sum + &term;
        negative = match () {
            () if cursor.eat("+") => false,
            () if cursor.eat("-") => true,
            () => return Ok(sum),
        };
    }
}

/// Factors, or one quotient or remainder.
fn term(cursor: &mut Cursor<'_>, negative: bool) -> TextResult<Dim> {
    let signed_number = negative && cursor.peek().is_some_and(|c| c.is_ascii_digit());
    let mut product = factor(cursor, negative)?;
    let mut negative = negative && !signed_number;
    loop {
        if cursor.eat("*") {
            product = &product * &factor(cursor, false)?;
        } else if let Some(make) = divisor(cursor) {
            // The sign belongs to the quotient, not to what is divided.
            if signed_number && product.as_constant().is_some_and(|c| c < 0) {
                (product, negative) = (-&product, true);
            }
            let divisor = factor(cursor, false)?;
            product = Dim::atom(make(Box::new(product), Box::new(divisor)));
        } else {
            return Ok(if negative { -&product } else { product });
        }
    }
}

/// What makes an atom of two dims.
type MakeAtom = fn(Box<Dim>, Box<Dim>) -> Atom;

fn divisor(cursor: &mut Cursor<'_>) -> Option<MakeAtom> {
    match () {
        () if cursor.eat("/") => Some(Atom::FloorDiv),
        () if cursor.eat("%") => Some(Atom::Mod),
        () => None,
    }
}

/// A number (with its sign, so that the least one is read too), a symbol, a sum in parentheses, or a function.
fn factor(cursor: &mut Cursor<'_>, negative: bool) -> TextResult<Dim> {
    if cursor.eat("(") {
        let inner = cursor.deeper(parse)?;
        cursor.expect(")")?;
        return Ok(inner);
    }
    if cursor.peek().is_some_and(|c| c.is_ascii_digit()) {
        return cursor.integer(negative).map(Dim::constant);
    }
    if cursor.peek() == Some('"') {
        return Ok(Dim::symbol(Symbol::from(cursor.string()?)));
    }
    let word = cursor.word("a size")?;
    if !cursor.eat("(") {
        return Ok(Dim::symbol(Symbol::from(word)));
    }
    let a = Box::new(cursor.deeper(parse)?);
    cursor.expect(",")?;
    let b = Box::new(cursor.deeper(parse)?);
    cursor.expect(")")?;
    Ok(Dim::atom(match word {
        "trunc_div" => Atom::TruncDiv(a, b),
        "max" => Atom::Max(a, b),
        "min" => Atom::Min(a, b),
        _ => match CompareOp::ALL.iter().find(|op| op.name() == word) {
            Some(&op) => Atom::Compare(op, a, b),
            None => return Err(cursor.error(format!("no function of sizes is called `{word}`"))),
        },
    }))
}
