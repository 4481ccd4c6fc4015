//! PyTorch's checkpoints: zip archives, the legacy pickles and tars before them, TorchScript archives, and exported programs.

mod archive;
mod exported;
mod flatten;
mod legacy;
mod pickle;
mod plain;
mod tar;

pub use exported::{ExportedProgram, ProgramTensor, complex_part, scalar_type};
pub(crate) use flatten::{select, tensors};
pub(crate) use pickle::{Arena, Value};
pub(crate) use plain::to_json;

use crate::identify::identify;
use crate::tensor::{Source, Storage};
use crate::{CheckpointFormat, Result, WeightsError};
use kiln_types::Bytes;
use pickle::{ElementType, Pickled, StorageSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a file of PyTorch holds.
pub(crate) enum Contents {
    /// A pickle, and storages.
    Pickled(Box<PytorchFile>),
    /// An exported program.
    Program(Box<ExportedProgram>),
}

/// A checkpoint's values, and the storages that its tensors view, by key.
pub(crate) struct PytorchFile {
    pub(crate) format: CheckpointFormat,
    pub(crate) pickled: Pickled,
    pub(crate) storages: BTreeMap<String, Source>,
    pub(crate) big_endian: bool,
    /// The archive's entry that the pickle is, for messages.
    pub(crate) entry: Option<String>,
}

/// Reads the structure of a file of any of PyTorch's formats.
pub(crate) fn read(file: &Bytes) -> Result<Contents> {
    let pickled = if file.starts_with(b"PK") {
        let archive = archive::Archive::read(file)?;
        match ExportedProgram::of(&archive)? {
            Some(program) => return Ok(Contents::Program(Box::new(program))),
            None => archive::read(&archive),
        }
    } else if file.get(257..262) == Some(b"ustar") {
        tar::read(file)
    } else if legacy::is_legacy(file) {
        legacy::read(file)
    } else {
        Err(WeightsError::not_a_checkpoint(identify(file).unwrap_or_else(|| {
            "it is no zip or tar archive, does not begin with the mark of PyTorch's older format, and is no Safetensors file"
                .to_owned()
        })))
    };
    pickled.map(|file| Contents::Pickled(Box::new(file)))
}

impl PytorchFile {
    /// The storage that a specification asks for, made once a key and byte order.
    pub(crate) fn storage(
        &self,
        spec: &StorageSpec,
        made: &mut BTreeMap<(String, bool), Arc<Storage>>,
    ) -> Result<Arc<Storage>> {
        let Some(source) = self.storages.get(&spec.key) else {
            return Err(WeightsError::tensor(format!("its storage {:?} is not in the file", spec.key)));
        };
        let needed = spec.count.checked_mul(spec.element.width());
        if needed.is_none_or(|needed| needed > source.len()) {
            return Err(WeightsError::tensor(format!(
                "its storage {:?} should hold {} elements of {} bytes, but has {} bytes",
                spec.key,
                spec.count,
                spec.element.width(),
                source.len()
            )));
        }
        // An untyped storage is bytes, which have no order.
        let big_endian = self.big_endian && spec.element != ElementType::Untyped;
        let key = (spec.key.clone(), big_endian);
        let storage = made
            .entry(key)
            .or_insert_with(|| Arc::new(Storage::new(spec.key.clone(), source.clone(), big_endian)));
        Ok(storage.clone())
    }
}
