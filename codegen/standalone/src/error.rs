//! Why a model has no source without a runtime.

use crate::MOST_BYTES;
use kiln_codegen::names::comment;
use kiln_importer::ir::{Node, TensorType};

/// A model cannot be source without a runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StandaloneError {
    /// What of the model cannot be.
    #[error("no source without a runtime can be made of the model:{}", lines(.0))]
    Unfit(Vec<Unfit>),
    /// The model is not a small one.
    #[error(
        "the model has {size} {what}: source without a runtime is for small models, which have at most {most}"
    )]
    TooLarge {
        /// What it has too many of: `bytes of weights`.
        what: &'static str,
        /// How many it has.
        size: u64,
        /// How many it may have.
        most: u64,
    },
    /// A defect of Kiln's: the source could not be printed.
    #[error("internal error, please report it: {0}")]
    Print(#[from] kiln_codegen::print::PrintError),
    /// A defect of Kiln's: something that an earlier stage should have made is not there.
    #[error("internal error, please report it: {0}")]
    Missing(&'static str),
}

/// A part of a model that source without a runtime cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// An operation without such a form.
    #[error("node `{name}` ({operator}, {}): this operation, with these options, needs the runtime", .operands.join(", "))]
    Operation {
        /// The node's name in the file.
        name: String,
        /// Its operator.
        operator: String,
        /// The types of its operands.
        operands: Vec<String>,
    },
    /// A value of a dtype that such source does not compute with.
    #[error("{what} `{name}` is {ty}: such source computes with f32, integers of 8 to 64 bits, and bools")]
    DType {
        /// `input` or `value`.
        what: &'static str,
        /// The value's name in the file.
        name: String,
        /// Its type.
        ty: String,
    },
    /// A value with a size that is no number.
    #[error("{what} `{name}` is {ty}: each size must be a number, see `bind_dim` (`--bind NAME=N`)")]
    Size {
        /// `input` or `value`.
        what: &'static str,
        /// The value's name in the file.
        name: String,
        /// Its type.
        ty: String,
    },
    /// A value that is larger than a small model.
    #[error(
        "{what} `{name}` is {ty}: source without a runtime is for small models, of at most {MOST_BYTES} bytes"
    )]
    Large {
        /// `input` or `value`.
        what: &'static str,
        /// The value's name in the file.
        name: String,
        /// Its type.
        ty: String,
    },
    /// A value without elements.
    #[error("{what} `{name}` is {ty}, which has no elements")]
    Empty {
        /// `input` or `value`.
        what: &'static str,
        /// The value's name in the file.
        name: String,
        /// Its type.
        ty: String,
    },
}

impl Unfit {
    pub(crate) fn operation(node: &Node, operands: &[&TensorType]) -> Self {
        Unfit::Operation {
            name: comment(&node.origin.name),
            operator: comment(&node.origin.operator),
            operands: operands.iter().map(|ty| comment(&ty.to_string())).collect(),
        }
    }
}

/// No more lines are shown.
const MOST_SHOWN: usize = 20;

fn lines(parts: &[Unfit]) -> String {
    let mut text: String = parts.iter().take(MOST_SHOWN).map(|part| format!("\n  {part}")).collect();
    if let Some(more) = parts.len().checked_sub(MOST_SHOWN).filter(|&more| more > 0) {
        text.push_str(&format!("\n  … and {more} more"));
    }
    text
}
