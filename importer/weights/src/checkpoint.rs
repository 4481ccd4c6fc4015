//! A checkpoint of any format.

use crate::pytorch::{self, Arena, Contents, Value};
use crate::tensor::LazyTensor;
use crate::{ErrorKind, Result, WeightsError, expansion, safetensors, shards};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::path::Path;

/// How a checkpoint's file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointFormat {
    /// `torch.save` since PyTorch 1.6.
    PytorchZip,
    /// `torch.save` before.
    PytorchLegacy,
    /// `torch.save` of the first versions.
    PytorchTar,
    /// `torch.jit.save`.
    TorchScript,
    /// `torch.export.save`, of which only the `state_dict` is read.
    ExportedProgram,
    /// Safetensors.
    Safetensors,
}

/// Which part of a file is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Where the tensors are, if not at the root: `model.state_dict`. Paths then begin below. It may also be what all
    /// names in a dict begin with: `module` for `module.fc.weight`.
    pub top_level_key: Option<String>,
}

/// The tensors of a file or of several shards, and the plain data beside them.
///
/// ```no_run
/// # fn main() -> Result<(), kiln_weights::WeightsError> {
/// let checkpoint = kiln_weights::Checkpoint::open("model.pt")?;
/// for (path, tensor) in checkpoint.tensors() {
///     println!("{path}: {} {:?}", tensor.dtype(), tensor.shape());
/// }
/// let weight = checkpoint.data("fc.weight")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    file: String,
    /// Bytes of the file, or of all shards.
    file_bytes: usize,
    format: CheckpointFormat,
    tensors: Vec<(String, LazyTensor)>,
    places: BTreeMap<String, usize>,
    unsupported: BTreeMap<String, String>,
    plain: Plain,
}

/// What a path of a checkpoint leads to.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A tensor.
    Tensor(LazyTensor),
    /// A tensor of a kind that Kiln does not have, or an object that holds some, and which.
    Unsupported(String),
}

impl Entry {
    /// The tensor.
    pub(crate) fn tensor(&self) -> Option<&LazyTensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            Self::Unsupported(_) => None,
        }
    }
}

/// The data beside the tensors.
#[derive(Debug)]
pub(crate) enum Plain {
    /// Known.
    Json(Json),
    /// Still in a pickle, which is spelled out when it is needed.
    Pickled(Box<Arena>, Value),
}

impl Checkpoint {
    /// Reads the structure of a checkpoint: a file of PyTorch or Safetensors, a folder of shards (or of one file under its
    /// usual name), or the index of shards.
    ///
    /// # Errors
    /// When the file breaks a rule of its format, refers to what is neither a tensor nor plain data, or shows so little so often
    /// that it would become far larger; see [`ErrorKind`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// Reads the structure of a part of a checkpoint; see [`Checkpoint::open`].
    ///
    /// # Errors
    /// As [`Checkpoint::open`], and when the file has no such part.
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        let is_index = path.to_str().is_some_and(|path| path.ends_with(".index.json"));
        let opened = if path.is_dir() {
            shards::open_folder(path, options)
        } else if is_index {
            shards::open_index(path, options)
        } else {
            Self::open_file(path, options)
        };
        opened.map_err(|error| error.in_file(&path.display().to_string()))
    }

    /// Reads one file.
    pub(crate) fn open_file(path: &Path, options: &OpenOptions) -> Result<Self> {
        let name = path.display().to_string();
        Self::read_file(path, options).map_err(|error| error.in_file(&name))
    }

    fn read_file(path: &Path, options: &OpenOptions) -> Result<Self> {
        let file = kiln_record::map_file(path).map_err(|error| match error {
            kiln_record::RecordError::Io { source, .. } => ErrorKind::Io(source),
            error => ErrorKind::NotACheckpoint(error.to_string()),
        })?;
        let name = path.display().to_string();
        // By its name, since a broken file no longer looks like what it is; unless it looks like something else.
        let named = path.extension().is_some_and(|extension| extension == "safetensors");
        let named = named && !file.starts_with(b"PK\x03\x04");
        Self::read_as(file, name, named, options)
    }

    /// Reads the structure of a file that is in memory; `name` stands for it in messages.
    ///
    /// # Errors
    /// As [`Checkpoint::open_with`].
    pub fn read(file: kiln_types::Bytes, name: &str, options: &OpenOptions) -> Result<Self> {
        let safetensors = safetensors::is_safetensors(&file);
        Self::read_as(file, name.to_owned(), safetensors, options).map_err(|error| error.in_file(name))
    }

    fn read_as(file: kiln_types::Bytes, name: String, named: bool, options: &OpenOptions) -> Result<Self> {
        let key = options.top_level_key.as_deref();
        let file_bytes = file.len();
        if named || safetensors::is_safetensors(&file) {
            let (entries, metadata) = safetensors::read(file, key)?;
            let plain = Plain::Json(metadata);
            return Self::new(name, file_bytes, CheckpointFormat::Safetensors, entries, plain);
        }
        let file = match pytorch::read(&file)? {
            Contents::Pickled(file) => file,
            Contents::Program(program) => {
                if let Some(key) = key {
                    let candidates = "an exported program has its tensors at the root".to_owned();
                    return Err(ErrorKind::NoSuchKey { key: key.to_owned(), candidates }.into());
                }
                let (format, nothing) =
                    (CheckpointFormat::ExportedProgram, Plain::Json(Json::Object(Map::new())));
                return Self::new(name, file_bytes, format, program.into_weights(), nothing);
            }
        };
        let (root, prefix) = pytorch::select(&file.pickled, key)?;
        let mut entries = pytorch::tensors(&file, root)?;
        if let Some(prefix) = prefix {
            let below = entries.into_iter().filter_map(|(path, entry)| {
                let path = path.strip_prefix(&prefix)?.to_owned();
                Some((path, entry))
            });
            entries = below.collect();
        }
        let plain = Plain::Pickled(Box::new(file.pickled.arena), root);
        Self::new(name, file_bytes, file.format, entries, plain)
    }

    /// A checkpoint of these entries, unless they are far larger than what they were read from.
    pub(crate) fn new(
        file: String,
        file_bytes: usize,
        format: CheckpointFormat,
        entries: Vec<(String, Entry)>,
        plain: Plain,
    ) -> Result<Self> {
        expansion::check(&entries, file_bytes)?;
        let (mut tensors, mut unsupported) = (Vec::with_capacity(entries.len()), BTreeMap::new());
        for (path, entry) in entries {
            match entry {
                Entry::Tensor(tensor) => tensors.push((path, tensor)),
                Entry::Unsupported(what) => drop(unsupported.insert(path, what)),
            }
        }
        let places = tensors.iter().enumerate().map(|(place, (path, _))| (path.clone(), place)).collect();
        Ok(Self { file, file_bytes, format, tensors, places, unsupported, plain })
    }

    /// The file, folder or index that was opened.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Bytes of the file, or of all shards.
    pub(crate) fn file_bytes(&self) -> usize {
        self.file_bytes
    }

    /// How the file is made; for shards, how the shards are.
    pub fn format(&self) -> CheckpointFormat {
        self.format
    }

    /// All tensors in the order of the file, but those that are [not supported](Self::unsupported).
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&str, &LazyTensor)> {
        self.tensors.iter().map(|(path, tensor)| (path.as_str(), tensor))
    }

    /// The tensor of a path.
    pub fn tensor(&self, path: &str) -> Option<&LazyTensor> {
        self.places.get(path).and_then(|place| self.tensors.get(*place)).map(|entry| &entry.1)
    }

    /// What the file has beside, sorted by path: tensors of kinds that Kiln does not have, as of complex numbers, and of which
    /// kind they are; objects of other classes that hold tensors, and of which class.
    pub fn unsupported(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.unsupported.iter().map(|(path, what)| (path.as_str(), what.as_str()))
    }

    /// What a path leads to.
    pub(crate) fn entry(&self, path: &str) -> Option<Entry> {
        let unsupported = || self.unsupported.get(path).cloned().map(Entry::Unsupported);
        self.tensor(path).cloned().map(Entry::Tensor).or_else(unsupported)
    }

    /// The elements of the tensor of a path.
    ///
    /// # Errors
    /// When there is none, or none that Kiln has tensors for, or its elements cannot be read ([`LazyTensor::data`]).
    pub fn data(&self, path: &str) -> Result<kiln_types::TensorData> {
        let missing = || match self.unsupported.get(path) {
            Some(what) => WeightsError::from(ErrorKind::Unsupported(what.clone())).at_key(path),
            None => {
                let candidates = format!("there are {} others", self.tensors.len());
                ErrorKind::NoSuchKey { key: path.to_owned(), candidates }.into()
            }
        };
        let tensor = self.tensor(path).ok_or_else(|| missing().in_file(&self.file))?;
        tensor.data().map_err(|error| error.at_key(path).in_file(&self.file))
    }

    /// Groups of paths whose tensors view one storage, in the order of the file.
    pub fn shared_storages(&self) -> Vec<Vec<&str>> {
        let mut groups: Vec<Vec<&str>> = Vec::new();
        let mut places = BTreeMap::new();
        for (path, tensor) in self.tensors().filter(|(_, tensor)| tensor.num_elements() > 0) {
            // The address only tells storages apart; the order is the file's.
            let address = std::sync::Arc::as_ptr(tensor.storage()) as usize;
            let place = *places.entry(address).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(group) => group.push(path),
                None => groups.push(vec![path]),
            }
        }
        groups.retain(|group| group.len() > 1);
        groups
    }

    /// What the file holds beside tensors: numbers, texts, lists and dicts, with null where a tensor is. For Safetensors
    /// the texts of its metadata.
    ///
    /// Floats that JSON does not have are texts, integers of more than 64 bits floats, bytes lists of numbers.
    ///
    /// # Errors
    /// When shared values, spelled out, are more than [`limits::MAX_SPELLED_OUT`](crate::limits::MAX_SPELLED_OUT).
    pub fn plain_data(&self) -> Result<Json> {
        match &self.plain {
            Plain::Json(json) => Ok(json.clone()),
            Plain::Pickled(arena, root) => {
                pytorch::to_json(arena, *root).map_err(|error| error.in_file(&self.file))
            }
        }
    }
}

/// Reads a configuration that stands in a checkpoint, under a dotted key or at the root.
///
/// # Errors
/// When the file cannot be read, has no such key, or its data do not fit `T`.
pub fn config_from_file<T: DeserializeOwned>(
    path: impl AsRef<Path>,
    top_level_key: Option<&str>,
) -> Result<T> {
    let options = OpenOptions { top_level_key: top_level_key.map(str::to_owned) };
    let checkpoint = Checkpoint::open_with(path, &options)?;
    let fits = T::deserialize(checkpoint.plain_data()?);
    fits.map_err(|error| {
        let error = WeightsError::from(ErrorKind::Data(error.to_string())).in_file(&checkpoint.file);
        match top_level_key {
            Some(key) => error.at_key(key),
            None => error,
        }
    })
}
