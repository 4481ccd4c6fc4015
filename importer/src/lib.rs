//! Reads model files into the Kiln IR.
//!
//! `ir` is what everything here produces and consumes; `onnx`, `pytorch` and `safetensors` are the front ends;
//! `passes` rewrite IR into simpler or faster IR; `fold` evaluates operations on constants.

pub mod data;
pub mod fold;
pub mod ir;
pub mod onnx;
pub mod passes;

mod error;

pub use error::{ImportError, ImportErrorKind, ImportResult, Site, UnsupportedOperator};
