//! Turns Kiln IR of small models into Rust source that needs no runtime and allocates nothing.
//!
//! The way: `program` asks each operation for its loops and decides which values are one tensor, `memory` shares memory out, `emit` writes
//! the source. The kernels that it calls are functions as text (`library`), which it brings along; `spelling` knows how Rust writes numbers and elementwise programs. Nothing here knows an operator.
#![forbid(unsafe_code)]

mod emit;
mod error;
mod join;
mod library;
mod memory;
mod program;
mod spelling;
mod weights;

#[cfg(test)]
mod kernels;

pub use emit::{GoldenTest, golden_tests};
pub use error::{StandaloneError, Unfit};

use emit::Emitter;
use kiln_codegen::RecordPath;
use kiln_importer::ir::Graph;
use memory::Memory;
use program::Program;

/// A small model has at most so many bytes of memory, and of weights.
const MOST_BYTES: u64 = 1 << 28;

/// How source is generated.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the model's struct.
    pub model_name: String,
    /// Name of the model's file, for the head of the source; without folders.
    pub source_name: String,
    /// Where the source finds the file with the weights.
    pub weights: RecordPath,
}

/// A model as source that needs no runtime.
#[derive(Clone, Debug)]
pub struct Standalone {
    /// The source.
    pub source: String,
    /// The contents of the file with the weights; empty where there are none.
    pub weights: Vec<u8>,
}

/// Generates the source of a model.
///
/// # Errors
/// What of the model such source cannot have: sizes that are no numbers, dtypes, operations.
pub fn generate(graph: &Graph, options: &Options) -> Result<Standalone, StandaloneError> {
    let program = Program::new(graph)?;
    let memory = Memory::new(&program)?;
    Emitter::new(&program, &memory).finish(options)
}
