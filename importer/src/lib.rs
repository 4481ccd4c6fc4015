//! Reads model files into the Kiln IR.
//!
//! `ir` is what everything here produces and consumes; `onnx` is the front end, and `pt2` (feature `pt2`) that before it for
//! exported programs of PyTorch;
//! `passes` rewrite IR into simpler or faster IR; `interpreter` runs whole graphs, for tests.
#![forbid(unsafe_code)]

pub mod data;
pub mod interpreter;
pub mod ir;
pub mod onnx;
pub mod passes;

#[cfg(feature = "pt2")]
mod pt2;

mod error;

pub use error::{ImportError, ImportErrorKind, ImportResult, Site, UnsupportedOperator};
