//! Names that try to become code, where they stand in a model, and what source may hold all the same. Tests and the fuzz target
//! share them.

mod fragments;
mod renaming;
mod source;

pub use fragments::FRAGMENTS;
pub use renaming::Renaming;
pub use source::check_source;
