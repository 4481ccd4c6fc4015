//! Modules from the checkpoints of other frameworks: PyTorch's files and Safetensors.
//!
//! Two ways lead into a module. [`load_weights`] loads into one that is there: it knows the parameters that it looks
//! for, so it checks every shape, and all that does not fit is one error. The recorders ([`PyTorchFileRecorder`],
//! [`SafetensorsFileRecorder`]) load a record without the module, as Burn's do. [`save_weights`] is the way back.
//!
//! What frameworks do differently is settled by the *type* of the layer that a tensor goes to ([`AdapterType`]): a
//! `Linear`'s weight is transposed, a norm's `weight` is `gamma`, an `Lstm`'s gates are cut out of PyTorch's one matrix.

mod adapter;
mod args;
mod derived;
mod error;
mod item;
mod load;
mod recorder;
mod report;
mod save;
mod source;

pub use adapter::AdapterType;
pub use args::LoadArgs;
pub use error::ImportError;
pub use load::load_weights;
pub use recorder::{PyTorchFileRecorder, SafetensorsFileRecorder, config_from_file};
pub use report::{ImportReport, MissingWeight, WantedShape, WrongWeight};
pub use save::save_weights;
