//! Strings that a model takes and yields: tensors hold numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The strings of a model, and which of its inputs and outputs are strings to whoever wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    /// Every string that the model compares with or yields, once. A tensor of strings holds their places here, in 64 bits; what is not
    /// here is -1.
    pub table: Vec<String>,
    /// Positions of the inputs that are strings.
    pub inputs: BTreeSet<usize>,
    /// Positions of the outputs that are strings.
    pub outputs: BTreeSet<usize>,
    /// What each column of an output stands for, by the output's position: outputs that are a map for each row.
    pub columns: BTreeMap<usize, Vec<Key>>,
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// An integer.
    Integer(i64),
    /// A string.
    String(String),
}

impl std::fmt::Display for Key {
    /// As Rust writes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(key) => write!(f, "{key}"),
            Self::String(key) => write!(f, "{key:?}"),
        }
    }
}

impl Strings {
    /// The places of the strings.
    pub fn places(&self) -> HashMap<&str, i64> {
        self.table.iter().zip(0..).map(|(text, place)| (text.as_str(), place)).collect()
    }

    /// Whether an input or an output is strings.
    pub fn are_told(&self) -> bool {
        !(self.inputs.is_empty() && self.outputs.is_empty())
    }
}
