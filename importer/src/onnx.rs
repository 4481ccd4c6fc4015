//! The ONNX front end: bytes of a `ModelProto` to IR.
//!
//! `proto` declares the messages, `wire` decodes them, `source` maps files, `lowering` walks graphs, functions and branches,
//! and `ops` holds one file an operator.

pub mod proto;

mod bound;
mod golden;
mod load;
mod lowering;
mod node;
pub(crate) mod operator;
mod ops;
mod parameters;
mod scope;
mod source;
mod summary;
mod tensor;
mod training;
mod untie;
mod wire;

pub use golden::{GoldenTensor, read_output, read_tensor};
pub use load::{LoadOptions, load, load_bytes, load_with_sources};
#[cfg(feature = "pt2")]
pub(crate) use ops::NEWEST_OPSET;
pub use ops::{Support, supported};
#[cfg(feature = "pt2")]
pub(crate) use parameters::REQUIRES_GRAD;
pub use source::SourceFile;
pub use summary::{PortSummary, Summary, summarize};
pub use training::{TrainingLosses, training_losses};
#[cfg(all(test, feature = "pt2"))]
pub(crate) use {scope::scope_of, tensor::dtype};
