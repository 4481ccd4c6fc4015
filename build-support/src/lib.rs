//! Compiles models to Rust at build time.
//!
//! In `build.rs`:
//!
//! ```no_run
//! kiln_build::ModelGen::new().input("model/resnet18.onnx").out_dir("model/").run_from_script();
//! ```
//!
//! and in the crate:
//!
//! ```ignore
//! mod resnet18 {
//!     include!(concat!(env!("OUT_DIR"), "/model/resnet18.rs"));
//! }
//!
//! let model = resnet18::Model::<NdArray>::default();
//! let logits = model.forward(image);
//! ```
//!
//! Exported programs of PyTorch (`.pt2`) are read with the feature `pt2`.
//!
//! The same work is done outside a build by the `kiln` command (`cargo install kiln-build --features cli`).
#![forbid(unsafe_code)]

mod cargo;
mod compile;
mod destination;
mod error;
mod golden;
mod model_gen;
mod stamp;

#[cfg(feature = "cli")]
pub mod command;

pub use compile::{CompileOptions, Compiled, compile};
pub use error::BuildError;
pub use kiln_codegen::RecordType;
pub use kiln_types::{FloatDType, Precision};
pub use model_gen::ModelGen;

/// ONNX models, under Burn's path: `use burn_import::onnx::ModelGen` with `burn-import = { package = "kiln-build" }`.
pub mod onnx {
    pub use crate::{ModelGen, RecordType};
}

/// Checkpoints of PyTorch in modules: `use kiln_build::pytorch::PyTorchFileRecorder`.
#[cfg(feature = "pytorch")]
pub mod pytorch {
    pub use kiln::weights::{
        AdapterType, ImportError, LoadArgs, PyTorchFileRecorder, config_from_file, load_weights, save_weights,
    };
}

/// Checkpoints of Safetensors in modules: `use kiln_build::safetensors::SafetensorsFileRecorder`.
#[cfg(feature = "safetensors")]
pub mod safetensors {
    pub use kiln::weights::{
        AdapterType, ImportError, LoadArgs, SafetensorsFileRecorder, load_weights, save_weights,
    };
}
