//! The file formats of Kiln's records, shared by the runtime, which writes and reads the records of typed modules, and
//! the importer, which writes records of modules that exist only as source.
//!
//! Two families:
//! - [`Format`]: MessagePack with names, bincode and JSON, each with or without gzip. These are Burn 0.20's own bytes:
//!   an [`Envelope`] of [`Metadata`] around the module's fields. A program without the module's type writes them from a
//!   [`RecordNode`].
//! - [`safetensors`]: parameters by path, to be memory-mapped. Kiln's default.
//!
//! A reader of any files tells what is none of its own by [`FileKind`].

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod binary;
mod envelope;
mod error;
#[cfg(feature = "std")]
mod file_kind;
mod format;
#[cfg(feature = "std")]
mod map;
mod named;
mod node;
mod param_id;
#[cfg(feature = "std")]
mod replace;
pub mod safetensors;
mod stored;

/// The name under which a value without content is asked for: what an older module had there is skipped. No format stores it;
/// [`Format::Bincode`], which does not know how long a value is, learns from it that one byte at most is there.
pub const CONSTANT: &str = "ConstantRecord";

pub use envelope::{BURN_VERSION, Envelope, EnvelopeHead, Metadata, Precision};
pub use error::RecordError;
#[cfg(feature = "std")]
pub use file_kind::FileKind;
pub use format::Format;
#[cfg(feature = "std")]
pub use format::begins_as_record;
#[cfg(feature = "std")]
pub use map::map_file;
pub use named::NamedRecord;
pub use node::{FieldNode, RecordNode, write_node};
pub use param_id::ParamId;
#[cfg(feature = "std")]
pub use replace::{Replacement, replace_file};
pub use stored::Stored;
