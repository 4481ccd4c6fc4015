//! Turns Kiln IR into Rust source and a weight record.
//!
//! The way: `tree` groups nodes into modules, `structs` gives them code and modules of equal code one struct, `naming` names
//! everything, `emit` and `print` write the source, `record` gathers the parameters in the form of the structs.
//! Nothing here knows an operator: the IR says which call of the runtime performs a node.
#![forbid(unsafe_code)]

mod code;
mod dims;
mod emit;
mod golden;
mod ids;
pub mod literals;
pub mod names;
mod naming;
pub mod print;
mod record;
mod spelling;
mod structs;
mod tree;

pub use emit::{GENERATED_MARK, MOST_PARAMETERS};
pub use golden::{GoldenTest, golden_tests};
pub use record::{Generated, RecordType};

use kiln_importer::ir::Graph;
use kiln_types::Precision;
use proc_macro2::TokenStream;
use quote::quote;
use structs::Program;
use tree::ModuleTree;

/// Where generated code finds its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordPath {
    /// Below the build's `OUT_DIR`: `model/model.safetensors`.
    OutDir(String),
    /// As given, relative to the directory in which the program runs (or, embedded, to the source file).
    Given(String),
}

impl RecordPath {
    /// The path as an expression of the source.
    pub fn tokens(&self) -> TokenStream {
        match self {
            RecordPath::OutDir(path) => {
                let path = literals::string(&format!("/{}", path.trim_start_matches('/')));
                quote!(concat!(env!("OUT_DIR"), #path))
            }
            RecordPath::Given(path) => literals::string(path),
        }
    }
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
    pub record: RecordType,
    /// The record that `default()` loads; without one there is no `default()`.
    pub default_record: Option<RecordPath>,
    /// The record that becomes part of the program.
    pub embed: Option<RecordPath>,
    /// Whether the record holds floats as f16.
    pub half_precision: bool,
    /// What the model's products are computed of.
    pub precision: Precision,
    /// Whether the source is for a crate without the standard library: it then reads no files.
    pub no_std: bool,
    /// Whether the model is to be trained: what the original network does not train stays as it is, and fields can be replaced.
    pub trainable: bool,
    /// Whether each call of a module says so to the runtime's profiler.
    pub profiled: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            runtime_crate: "kiln".to_owned(),
            model_name: "Model".to_owned(),
            source_name: String::new(),
            record: RecordType::Safetensors,
            default_record: None,
            embed: None,
            half_precision: false,
            precision: Precision::F32,
            no_std: false,
            trainable: false,
            profiled: false,
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
    /// A defect of Kiln's.
    #[error("internal error, please report it: {0}")]
    Internal(#[from] Defect),
}

/// A defect of Kiln's: something that an earlier stage should have found or made is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// A node without something that each of its kind has.
    #[error("node `{name}` ({operator}) has {what}")]
    Node {
        /// Its name in the file.
        name: String,
        /// Its operator in the file.
        operator: String,
        /// What is wrong: `no spelling`.
        what: &'static str,
    },
    /// A module, or a parameter, without something that each has.
    #[error("`{path}` has {what}")]
    Module {
        /// Its path.
        path: String,
        /// What is wrong: `no struct`.
        what: &'static str,
    },
    /// A struct without modules.
    #[error("a struct stands for no module")]
    NoMembers,
    /// A loop over nothing.
    #[error("a loop calls no modules")]
    EmptyLoop,
    /// A statement that should choose between branches and does not.
    #[error("a statement without branches ends a function as if it had some")]
    NoBranches,
    /// A variable or field without a name.
    #[error("a variable or a field has no name")]
    Unnamed,
    /// A literal without a value that all modules of a struct have.
    #[error("a literal has no value")]
    NoLiteral,
    /// An operator that is none of Rust's.
    #[error("`{0}` is no operator")]
    Operator(&'static str),
    /// The source could not be printed.
    #[error(transparent)]
    Print(#[from] print::PrintError),
}

impl Defect {
    fn node(node: &kiln_importer::ir::Node, what: &'static str) -> Self {
        let (name, operator) = (names::comment(&node.origin.name), names::comment(&node.origin.operator));
        Defect::Node { name, operator, what }
    }

    fn module(path: &str, what: &'static str) -> Self {
        Defect::Module { path: names::comment(path), what }
    }
}

/// Generates the source of a model and its parameters.
pub fn generate(graph: &Graph, options: &Options) -> Result<Generated, CodegenError> {
    runtime_ident(options)?;
    let mut tree = ModuleTree::new(graph);
    tree.trainable = options.trainable;
    let program = Program::new(tree)?;
    if let Some(symbol) = program.structs[program.root].body.symbols.first() {
        return Err(CodegenError::UnknownSymbol(symbol.to_string()));
    }
    let record = record::record(&program)?;
    let file = emit::emit(&program, options)?;
    drop(program);
    let source = emit::print(file, options)?;
    Ok(Generated { source, record, format: options.record, half_precision: options.half_precision })
}

/// The runtime crate's name, which must be an identifier.
fn runtime_ident(options: &Options) -> Result<proc_macro2::Ident, CodegenError> {
    syn::parse_str(&options.runtime_crate)
        .map_err(|_| CodegenError::RuntimeName(options.runtime_crate.clone()))
}
