//! Modules from the checkpoints of other frameworks: PyTorch's files and Safetensors.
//!
//! Two ways lead into a module. [`load_weights`] loads into one that is there: it knows the parameters that it looks
//! for, so it checks every shape, and all that does not fit is one error. The recorders ([`PyTorchFileRecorder`],
//! [`SafetensorsFileRecorder`]) load a record without the module, as Burn's do. [`save_weights`] and
//! [`save_weights_like`] are the way back. Low-rank pairs alone go through [`save_low_rank`] and [`load_low_rank`].
//!
//! Models that were generated from ONNX have `from_pytorch` and `from_safetensors`, which are [`load_weights`] with what
//! their fields say about where their parameters come from ([`Origin`](crate::module::Origin)): weights that were folded
//! into each other when the model was generated are folded again.
//!
//! What frameworks do differently is settled by the *type* of the layer that a tensor goes to ([`AdapterType`]): a
//! `Linear`'s weight is transposed, a norm's `weight` is `gamma`, an `Lstm`'s gates are cut out of PyTorch's one matrix.
//! A weight that a file has normalized (`weight_norm`, `spectral_norm`) is computed.

mod adapter;
mod args;
mod derived;
mod error;
mod item;
mod load;
mod low_rank;
mod normalized;
mod outline;
mod recorder;
mod report;
mod save;
mod source;

pub use adapter::AdapterType;
pub use args::LoadArgs;
pub use derived::{Undone, Unsaved};
pub use error::ImportError;
pub use load::load_weights;
pub use low_rank::{load_low_rank, save_low_rank};
pub use recorder::{PyTorchFileRecorder, SafetensorsFileRecorder, config_from_file};
pub use report::{ImportReport, MissingWeight, SaveReport, UnsupportedWeight, WantedShape, WrongWeight};
pub use save::{save_weights, save_weights_like};
