//! Archives of `torch.export.save` (`.pt2`, since PyTorch 2.8): `<name>/models/<model>.json` is the program,
//! `<name>/data/weights/<model>_weights_config.json` says where the `state_dict` lies, a file for each storage, and
//! `<name>/data/constants/` holds what else the program reads, in the same way.
//!
//! The layout is that of `torch/csrc/export/pt2_archive_constants.h`, the configurations' that of `PayloadConfig` in
//! `torch/_export/serde/schema.py`.

use super::archive::Archive;
use crate::checkpoint::Entry;
use crate::identify::{identify, identify_archive};
use crate::tensor::{LazyTensor, Source, Storage};
use crate::{Result, WeightsError, limits};
use kiln_record::Stored;
use kiln_types::{Bytes, DType, Minifloat};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The folders of an archive.
const MODELS: &str = "models/";
const WEIGHTS: &str = "data/weights/";
const CONSTANTS: &str = "data/constants/";

/// An exported program: its graph, still text, and its tensors.
#[derive(Debug)]
pub struct ExportedProgram {
    /// The program, as JSON (`ExportedProgram` in PyTorch's `schema.py`).
    pub program: Bytes,
    weights: Tensors,
    constants: Tensors,
}

/// Tensors in the order of the file.
#[derive(Debug, Default)]
struct Tensors {
    entries: Vec<(String, Entry)>,
    places: HashMap<String, usize>,
    /// The complex ones, as pairs of real and imaginary parts along a last axis.
    pairs: HashMap<String, LazyTensor>,
}

/// A tensor that a program reads.
#[derive(Clone, Copy, Debug)]
pub enum ProgramTensor<'t> {
    /// One whose elements have a dtype that Kiln has.
    Real(&'t LazyTensor),
    /// Complex numbers, as pairs of real and imaginary parts along a last axis.
    Complex(&'t LazyTensor),
}

#[derive(Deserialize)]
struct PayloadConfig {
    #[serde(deserialize_with = "in_order")]
    config: Vec<(String, PayloadMeta)>,
}

/// The entries of an object, in the order in which they stand.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, PayloadMeta)>, D::Error> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<(String, PayloadMeta)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of tensors")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_map(Entries)
}

#[derive(Deserialize)]
struct PayloadMeta {
    path_name: String,
    use_pickle: bool,
    tensor_meta: Option<TensorMeta>,
}

#[derive(Deserialize)]
struct TensorMeta {
    dtype: u32,
    sizes: Vec<Size>,
    strides: Vec<Size>,
    storage_offset: Size,
    layout: u32,
}

/// A size that is a number: weights have no others.
#[derive(Deserialize)]
struct Size {
    as_int: u64,
}

/// `Layout.Strided`.
const STRIDED: u32 = 7;

impl ExportedProgram {
    /// Reads the structure of an archive that is in memory.
    ///
    /// # Errors
    /// When the file is no such archive, or one of several programs, or breaks a rule of its format.
    pub fn read(file: &Bytes) -> Result<Self> {
        if !file.starts_with(b"PK") {
            let what = identify(file).unwrap_or_else(|| "it is no zip archive".to_owned());
            return Err(WeightsError::not_a_checkpoint(what));
        }
        let archive = Archive::read(file)?;
        Self::of(&archive)?.ok_or_else(|| {
            WeightsError::not_a_checkpoint(identify_archive(archive.names()).unwrap_or(
                "the archive holds no exported program (`models/*.json`), which `torch.export.save` of PyTorch 2.8 and later writes; a \
                 checkpoint has a name that ends with `.pt` or `.pth`",
            ))
        })
    }

    /// The program of an archive, if it is one of an exported program.
    pub(super) fn of(archive: &Archive) -> Result<Option<Self>> {
        let programs: Vec<(&str, &str)> = archive.names().filter_map(program_path).collect();
        let (root, model) = match programs.as_slice() {
            [] => return Ok(None),
            [only] => *only,
            several => {
                return Err(WeightsError::not_a_checkpoint(format!(
                    "the archive holds {} exported programs; save each in a file of its own",
                    several.len()
                )));
            }
        };
        let path = format!("{root}{MODELS}{model}.json");
        let program = text(archive, &path)?;
        let big_endian = archive.big_endian(root.trim_end_matches('/'))?;
        let read = |folder: &str, kind: &str| {
            let folder = format!("{root}{folder}");
            tensors(archive, &folder, &format!("{folder}{model}_{kind}_config.json"), big_endian)
        };
        let weights = read(WEIGHTS, "weights")?;
        let constants = read(CONSTANTS, "constants")?;
        Ok(Some(Self { program, weights, constants }))
    }

    /// A tensor of the `state_dict`.
    ///
    /// # Errors
    /// When there is none of that name, or one of a kind that Kiln does not have.
    pub fn weight(&self, name: &str) -> Result<ProgramTensor<'_>> {
        get(&self.weights, name)
    }

    /// A tensor that the program reads and the `state_dict` does not have.
    ///
    /// # Errors
    /// As [`ExportedProgram::weight`].
    pub fn constant(&self, name: &str) -> Result<ProgramTensor<'_>> {
        get(&self.constants, name)
    }

    /// The `state_dict`.
    pub(crate) fn into_weights(self) -> Vec<(String, Entry)> {
        self.weights.entries
    }
}

fn get<'t>(tensors: &'t Tensors, name: &str) -> Result<ProgramTensor<'t>> {
    if let Some(pairs) = tensors.pairs.get(name) {
        return Ok(ProgramTensor::Complex(pairs));
    }
    let entry = tensors.places.get(name).and_then(|&place| tensors.entries.get(place));
    match entry.map(|(_, entry)| entry) {
        Some(Entry::Tensor(tensor)) => Ok(ProgramTensor::Real(tensor)),
        Some(Entry::Unsupported(what)) => {
            Err(WeightsError::from(crate::ErrorKind::Unsupported(what.clone())).at_key(name))
        }
        None => {
            Err(WeightsError::archive("the program reads a tensor that the archive does not have")
                .at_key(name))
        }
    }
}

/// The root folder, with its slash, and the name of the model that an entry is the program of.
fn program_path(entry: &str) -> Option<(&str, &str)> {
    let (folder, file) = entry.rsplit_once('/')?;
    let root = entry.get(..(folder.len() + 1).checked_sub(MODELS.len())?)?;
    let model = file.strip_suffix(".json").filter(|model| !model.is_empty())?;
    let inside = entry.get(root.len()..)?.starts_with(MODELS) && (root.is_empty() || root.ends_with('/'));
    (inside && root.matches('/').count() <= 1).then_some((root, model))
}

/// An entry of text, whole.
fn text(archive: &Archive, path: &str) -> Result<Bytes> {
    let source = archive.source(path).map_err(|error| error.in_entry(path))?;
    let limit = match &source {
        Source::Deflated { packed, .. } => {
            let in_proportion = packed.len().saturating_mul(limits::MAX_EXPANSION);
            limits::MAX_INFLATED_TEXT.max(in_proportion).min(limits::MAX_PROGRAM_BYTES)
        }
        Source::Mapped(_) => limits::MAX_PROGRAM_BYTES,
    };
    if source.len() > limit {
        let what = format!("the text has {} bytes", source.len());
        return Err(WeightsError::limit(what, limit).in_entry(path));
    }
    source.bytes().map_err(|error| error.in_entry(path))
}

/// The tensors that a configuration lists; none, when there is no such file.
fn tensors(archive: &Archive, folder: &str, config: &str, big_endian: bool) -> Result<Tensors> {
    if !archive.has(config) {
        return Ok(Tensors::default());
    }
    let listed: PayloadConfig = serde_json::from_slice(&text(archive, config)?)
        .map_err(|error| WeightsError::archive(error.to_string()).in_entry(config))?;
    if listed.config.len() > limits::MAX_TENSORS {
        let what = format!("the archive lists {} tensors", listed.config.len());
        return Err(WeightsError::limit(what, limits::MAX_TENSORS).in_entry(config));
    }
    let mut storages = HashMap::new();
    let mut pairs = HashMap::new();
    let mut read = |name: &str, meta: PayloadMeta| -> Result<Entry> {
        let (Some(tensor), false) = (meta.tensor_meta, meta.use_pickle) else {
            // A subclass of `torch.Tensor`, or an object that is none.
            return Ok(Entry::Unsupported("what is kept as an object of Python".to_owned()));
        };
        let part = complex_part(tensor.dtype);
        let stored = match scalar_type(tensor.dtype).or(part.map(Stored::DType)) {
            Some(stored) if tensor.layout == STRIDED => stored,
            Some(_) => return Ok(Entry::Unsupported("a sparse tensor".to_owned())),
            None => return Ok(Entry::Unsupported(format!("a tensor of PyTorch's dtype {}", tensor.dtype))),
        };
        let path = format!("{folder}{}", meta.path_name);
        let storage = match storages.get(&path) {
            Some(storage) => Arc::clone(storage),
            None => {
                let source = archive.source(&path).map_err(|error| error.in_entry(&path))?;
                let storage = Arc::new(Storage::new(path.clone(), source, big_endian));
                storages.insert(path, Arc::clone(&storage));
                storage
            }
        };
        let numbers = |sizes: &[Size]| -> Result<Vec<usize>> { sizes.iter().map(number).collect() };
        let (mut shape, mut strides) = (numbers(&tensor.sizes)?, numbers(&tensor.strides)?);
        let mut offset = number(&tensor.storage_offset)?;
        let Some(part) = part else {
            return LazyTensor::new(stored, shape, strides, offset, storage).map(Entry::Tensor);
        };
        strides.iter_mut().for_each(|stride| *stride = stride.saturating_mul(2));
        offset = offset.saturating_mul(2);
        shape.push(2);
        strides.push(1);
        pairs.insert(name.to_owned(), LazyTensor::new(stored, shape, strides, offset, storage)?);
        // A checkpoint has no pairs.
        let bits = part.size() * 16;
        Ok(Entry::Unsupported(format!("a tensor of complex numbers (complex{bits})")))
    };
    let mut found = Tensors::default();
    for (name, meta) in listed.config {
        let entry = read(&name, meta).map_err(|error| error.at_key(name.clone()))?;
        if found.places.insert(name.clone(), found.entries.len()).is_some() {
            return Err(WeightsError::archive("it is listed twice").in_entry(config).at_key(name));
        }
        found.entries.push((name, entry));
    }
    found.pairs = pairs;
    Ok(found)
}

fn number(size: &Size) -> Result<usize> {
    usize::try_from(size.as_int)
        .map_err(|_| WeightsError::tensor(format!("it has a size of {}", size.as_int)))
}

/// What a `ScalarType` of PyTorch's `schema.py` stands for; nothing for complex numbers and unknown ones.
pub fn scalar_type(scalar_type: u32) -> Option<Stored> {
    Some(Stored::DType(match scalar_type {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        12 => DType::Bool,
        13 => DType::BF16,
        28 => DType::U16,
        34 => DType::U32,
        35 => DType::U64,
        29 => return Some(Stored::Minifloat(Minifloat::E4M3Fn)),
        30 => return Some(Stored::Minifloat(Minifloat::E5M2)),
        31 => return Some(Stored::Minifloat(Minifloat::E4M3Fnuz)),
        32 => return Some(Stored::Minifloat(Minifloat::E5M2Fnuz)),
        33 => return Some(Stored::Minifloat(Minifloat::E8M0Fnu)),
        _ => return None,
    }))
}

/// The dtype of either part of the complex numbers of a `ScalarType`; nothing for others.
pub fn complex_part(scalar_type: u32) -> Option<DType> {
    match scalar_type {
        9 => Some(DType::F16),
        10 => Some(DType::F32),
        11 => Some(DType::F64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_lie_in_the_folder_of_models() {
        assert_eq!(program_path("net/models/model.json"), Some(("net/", "model")));
        assert_eq!(program_path("models/a.json"), Some(("", "a")));
        for path in
            ["net/models/.json", "net/models/model.txt", "a/b/models/m.json", "netmodels/m.json", "m.json"]
        {
            assert_eq!(program_path(path), None, "{path}");
        }
    }
}
