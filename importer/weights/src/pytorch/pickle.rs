//! A machine that runs pickles and can build nothing but tensors and plain data. Objects of other classes are noted and not made.

mod calls;
mod globals;
mod input;
mod machine;
mod memo;
mod numpy;
mod value;

pub(crate) use globals::{ElementType, Global};
pub(crate) use machine::run;
pub(crate) use value::{Arena, ArraySpec, Node, StorageId, StorageSpec, StorageSpecs, TensorSpec, Value};

use std::collections::BTreeMap;

/// What a pickle's persistent ids stand for, and which globals beyond the common ones it may have.
#[derive(Clone, Copy)]
pub(crate) enum Dialect<'a> {
    /// Nothing.
    Plain,
    /// Storages.
    Storages,
    /// Storages; classes under `__torch__` are script modules.
    Script,
    /// Tensors, by number.
    Tensors(&'a BTreeMap<String, TensorSpec>),
}

/// What a pickle built.
#[derive(Debug)]
pub(crate) struct Pickled {
    pub(crate) arena: Arena,
    pub(crate) root: Value,
    pub(crate) storages: StorageSpecs,
}

impl Pickled {
    /// The root, if it is an integer of more than 64 bits.
    pub(crate) fn big_int(&self) -> Option<&str> {
        match self.arena.node(self.root) {
            Some(Node::BigInt(digits)) => Some(digits),
            _ => None,
        }
    }
}
