//! Checkpoints: what PyTorch and Safetensors files hold, tensor by tensor.
//!
//! [`Checkpoint::open`] reads the structure of a file, of a folder of shards, or of a shard index. A tensor's bytes are
//! read when they are asked for ([`LazyTensor::data`]), from a memory map, and copied only when they are not already
//! one contiguous run in the machine's byte order.
//!
//! The files are taken as hostile. Pickles are read by a machine that builds tensors and plain data and can do nothing
//! else: a call beyond a short list, and a name of Python's own or of PyTorch's beyond that, is an error that names it.
//! Objects of other classes, as trainers leave them beside the weights, are not made; one that holds tensors is
//! [said to](Checkpoint::unsupported). What a file may make this crate allocate is bounded by the constants in [`limits`].
#![forbid(unsafe_code)]

mod checkpoint;
mod error;
mod expansion;
mod identify;
pub mod limits;
mod pytorch;
mod remap;
mod safetensors;
mod shards;
mod tensor;

pub use checkpoint::{Checkpoint, CheckpointFormat, OpenOptions, config_from_file};
pub use error::{ErrorKind, Site, WeightsError};
pub use pytorch::{ExportedProgram, ProgramTensor, complex_part, scalar_type};
pub use remap::{KeyMap, PathPattern, Remapped};
pub use tensor::{LazyTensor, Storage};

/// The result of reading weights.
pub type Result<T, E = WeightsError> = core::result::Result<T, E>;
