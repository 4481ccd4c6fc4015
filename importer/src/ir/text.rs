//! Graphs as text, and back.
//!
//! ```text
//! graph "sample" {
//!   %0: f32[batch, 3] = input "x"
//!   %1: f32[3] = parameter "encoder.scale" [1.0, 0.5, 2.0]
//!   symbol batch = dim 0 of %0
//!   @0 = scope "" "Net"
//!   @1 = scope @0 "encoder" "Encoder"
//!   %2 "h": f32[batch, 3] = Binary(Mul) %0, %1 at @1 "/encoder/Mul" "Mul"
//!   %3: f32[3 * batch] = Reshape { dims: [3 * batch] } %2
//!   return %3 "y"
//! }
//! ```
//!
//! A value is a label, the name it has in the file where that is known, its type, and `host [batch, 3]` when its contents
//! are known as dims. An operation is written by `write` and read by `read`, which know no operation: both follow the
//! declaration of [`Op`]. Then come its operands (`_` for an absent one), where it comes from (`at`: the module, the node's
//! name, the operator), and its regions (`region { … return %4 }`). A `parameter` is one
//! of the original network, under its name there; a `constant` is known from the graph, or was made `from` parameters. The
//! contents of either are a list, `splat 0.5`, or the bytes in `hex "…"`. `//` starts a comment.
//!
//! [`Graph::to_text`] prints all of this, with values numbered in order of appearance, and [`Graph::parse`] reads it: what
//! no region reaches is not printed, everything else is kept. `Display` is for people: values by their ids, scalars in
//! place, no contents of constants, the module as a comment; it does not read back.

mod cursor;
mod data;
mod parse;
mod print;
mod read;
mod types;
mod write;

pub use cursor::{Cursor, TextError, TextErrorKind, TextResult};

use super::{Graph, Op};
use std::fmt::{self, Display, Formatter};

impl Graph {
    /// The graph as text that [`Graph::parse`] reads.
    pub fn to_text(&self) -> String {
        print::complete(self)
    }

    /// Reads a graph that [`Graph::to_text`] printed or a person wrote. It is not verified yet.
    ///
    /// # Errors
    /// The first thing in the text that is no graph, with its line and column.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        parse::graph(text)
    }
}

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&print::brief(self))
    }
}

impl Op {
    /// The operation's name alone: `Conv`, `Add`, `Relu`.
    pub fn name(&self) -> String {
        let text = self.to_string();
        let inner = match self {
            Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Activation(_) => text.split_once('('),
            _ => None,
        };
        let text = inner.map_or(text.as_str(), |(_, inner)| inner);
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    }
}

/// An operation without its regions; its name comes first.
impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&write::notation(self)?)
    }
}

impl std::str::FromStr for Op {
    type Err = TextError;

    /// Reads an operation; its regions stay empty.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut cursor = Cursor::new(text);
        let op = read::value(&mut cursor)?;
        cursor.end()?;
        Ok(op)
    }
}

#[cfg(test)]
pub(crate) mod tests;
