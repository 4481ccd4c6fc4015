//! What cannot be undone.

use super::super::ImportError;
use alloc::string::{String, ToString};
use kiln_types::Misfit;

/// A parameter that cannot be written as a checkpoint's tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsaved {
    /// Its path in the module.
    pub path: String,
    /// What it was made of: the text of a [`Derivation`](crate::module::Derivation).
    pub expression: String,
    /// Why.
    pub reason: Undone,
}

/// Why a parameter cannot be written as a checkpoint's tensors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undone {
    /// There is no way back through an operation.
    #[error("`{0}` cannot be undone")]
    Operation(String),
    /// The attribute of the field says nothing that can be read.
    #[error("the attribute of its field cannot be read")]
    Unreadable,
    /// A tensor's shape is not known.
    #[error(
        "the sizes of {0} are not said; generate the model again, or take them from the original with `save_weights_like`"
    )]
    Sizes(String),
    /// Tensors do not fit.
    #[error("{0}")]
    Misfit(Misfit),
    /// The module holds a part of a tensor.
    #[error(
        "the model has {known} of the {all} elements of {key}; `save_weights_like` takes the others from the original"
    )]
    Partial {
        /// The tensor.
        key: String,
        /// How many elements are known.
        known: usize,
        /// How many it has.
        all: usize,
    },
    /// No tensors make the parameter what it is now.
    #[error(
        "no tensors make it what it has become (others are made of the same ones, or it was a fixed number)"
    )]
    Changed,
    /// The backend failed.
    #[error("{0}")]
    Backend(String),
}

impl From<Misfit> for Undone {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::Missing(key) => Self::Sizes(key),
            other => Self::Misfit(other),
        }
    }
}

impl From<ImportError> for Undone {
    fn from(error: ImportError) -> Self {
        Self::Backend(error.to_string())
    }
}
