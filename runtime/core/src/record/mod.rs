//! Records: the state of modules and optimizers, and how it is stored.
//!
//! Two ways lead to a file. The recorders write a module's record in Burn 0.20's formats, in the precision of their
//! settings, and Burn reads what they write. [`save_safetensors`] and [`load_safetensors`] store the parameters by
//! path; the file is memory-mapped, and a backend on the CPU uses the weights where they lie.

mod bytes;
#[cfg(feature = "std")]
mod file;
mod items;
mod parameters;
mod recorder;
mod traits;

#[cfg(feature = "std")]
pub use bytes::NamedMpkBytesRecorder;
pub use bytes::{BinBytesRecorder, BytesRecorder};
#[cfg(feature = "std")]
pub(crate) use file::with_extension;
#[cfg(feature = "std")]
pub use file::{
    BinFileRecorder, BinGzFileRecorder, CompactRecorder, DebugRecordSettings, DefaultFileRecorder,
    DefaultRecorder, FileRecorder, JsonGzFileRecorder, NamedMpkFileRecorder, NamedMpkGzFileRecorder,
    NoStdTrainingRecorder, PrettyJsonFileRecorder, SensitiveCompactRecorder,
};
#[cfg(feature = "weights")]
pub(crate) use items::RANKED_NAMES;
pub use items::{Array, BoolTensorSerde, FloatTensorSerde, IntTensorSerde, ParamSerde};
pub use kiln_record::Format;
pub use kiln_record::safetensors::Safetensors;
#[cfg(feature = "weights")]
pub(crate) use parameters::{COMPARED, LONGEST_COMPARED, SHOWN, nearest, write_rest};
pub use parameters::{
    MissingParameter, ParameterMismatch, RecordCheck, WrongParameter, load_named_bytes, load_parameters,
    load_safetensors_bytes, save_safetensors_bytes,
};
#[cfg(feature = "std")]
pub use parameters::{load_named, load_safetensors, save_safetensors};
pub use recorder::{Recorder, RecorderError};
pub use traits::{
    DoublePrecisionSettings, ExactPrecisionSettings, FullPrecisionSettings, HalfPrecisionSettings,
    PrecisionSettings, Record,
};

/// Bincode from bytes that are part of the program.
pub type NoStdInferenceRecorder = BinBytesRecorder<FullPrecisionSettings, &'static [u8]>;
