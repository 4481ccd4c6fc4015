//! Turns Kiln IR into Rust source and a weight record.
//!
//! The way: `plan` groups nodes into modules and modules into structs, `code` makes statements of spellings,
//! `emit` names variables and prints, `record` gathers the parameters in the form of the printed structs.
//! Nothing here knows an operator: spellings say which call of the runtime performs a node.

mod code;
mod emit;
mod golden;
mod literals;
pub mod names;
mod plan;
pub mod print;
mod record;
mod spelling;

pub use golden::{GoldenTest, golden_tests};
pub use record::{Generated, RecordFormat};

use kiln_importer::ir::Graph;
use plan::Plan;

/// Where generated code finds its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordPath {
    /// Below the build's `OUT_DIR`: `model/model.safetensors`.
    OutDir(String),
    /// As given, relative to the directory in which the program runs (or, embedded, to the source file).
    Given(String),
}

/// How source is generated.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name under which the user's crate knows the runtime.
    pub runtime_crate: String,
    /// Name of the model's struct.
    pub model_name: String,
    /// Name of the model's file, for the head of the source; without folders.
    pub source_name: String,
    /// Format of the record.
    pub record: RecordFormat,
    /// The record that `default()` loads; without one there is no `default()`.
    pub default_record: Option<RecordPath>,
    /// The record that becomes part of the program.
    pub embed: Option<RecordPath>,
    /// Whether the record holds floats as f16.
    pub half_precision: bool,
    /// Whether the source is for a crate without the standard library: it then reads no files.
    pub no_std: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            runtime_crate: "kiln".to_owned(),
            model_name: "Model".to_owned(),
            source_name: String::new(),
            record: RecordFormat::Safetensors,
            default_record: None,
            embed: None,
            half_precision: false,
            no_std: false,
        }
    }
}

/// Why no source can be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodegenError {
    /// The runtime crate's name is no identifier.
    #[error("the runtime crate cannot be called {0:?}")]
    RuntimeName(String),
    /// A size is used for which the graph has no origin.
    #[error("the size `{0}` is needed at run time, but nothing defines it")]
    UnknownSymbol(String),
    /// Generated tokens are no Rust file, or printing changed them: a defect of Kiln's.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

/// Generates the source of a model and its parameters.
pub fn generate(graph: &Graph, options: &Options) -> Result<Generated, CodegenError> {
    runtime_ident(options)?;
    let mut plan = Plan::new(graph);
    if let Some(symbol) = plan.modules[plan.root].body.symbols.first() {
        return Err(CodegenError::UnknownSymbol(symbol.to_string()));
    }
    let source = emit::emit(&mut plan, options)?;
    let record = record::record(&plan);
    Ok(Generated { source, record, format: options.record, half_precision: options.half_precision })
}

/// The runtime crate's name, which must be an identifier.
fn runtime_ident(options: &Options) -> Result<proc_macro2::Ident, CodegenError> {
    syn::parse_str(&options.runtime_crate)
        .map_err(|_| CodegenError::RuntimeName(options.runtime_crate.clone()))
}
