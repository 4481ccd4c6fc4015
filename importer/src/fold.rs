//! Evaluates core operations on data known at build time.

mod elements;
mod strided;

pub(crate) use elements::{Elements, scalar, scalar_text};
pub(crate) use strided::Strided;
