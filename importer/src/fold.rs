//! Evaluates core operations on data known at build time.

mod strided;

pub(crate) use strided::Strided;
