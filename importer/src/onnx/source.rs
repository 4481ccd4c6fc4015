//! Files: the model itself and the data files beside it, mapped, never read whole.

use crate::error::ImportErrorKind;
use kiln_record::RecordError;
use kiln_types::{Bytes, quoted};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Maps a file. What passes have read of it, they let go again, so that a model's weights never fill the memory.
fn map(path: &Path) -> Result<Bytes, ImportErrorKind> {
    let fail = |reason: String| ImportErrorKind::Io { path: path.to_owned(), reason };
    let metadata = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?;
    if metadata.is_dir() {
        return Err(fail("it is a folder".to_owned()));
    }
    if !metadata.is_file() {
        return Err(fail("it is not a file".to_owned()));
    }
    if metadata.len() == 0 {
        return Ok(Bytes::default());
    }
    kiln_record::map_file(path).map_err(|error| match error {
        RecordError::Io { source, .. } => fail(source.to_string()),
        other => fail(other.to_string()),
    })
}

/// A file that a model was read from, as it was before it was read: one that has changed since tells so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is, by way of the model's own path.
    pub path: PathBuf,
    /// Its size.
    pub size: u64,
    /// When it was last changed, where the system tells.
    pub modified: Option<SystemTime>,
}

impl SourceFile {
    /// The file or folder at a path as it is now; `None` when there is none.
    pub fn now(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { path: path.to_owned(), size: metadata.len(), modified: metadata.modified().ok() })
    }
}

/// A model and the folder from which its external data is taken.
pub(crate) struct Folder {
    /// `None` for a model that came as bytes: it may have no external data.
    root: Option<PathBuf>,
    /// The model's own file.
    model: Bytes,
    maps: RefCell<BTreeMap<PathBuf, Bytes>>,
    /// The model's file and the data files that were read.
    sources: RefCell<Vec<SourceFile>>,
    /// Bytes of the data files that were mapped since somebody asked.
    mapped: Cell<u64>,
}

impl Folder {
    /// Maps a model file and notes its folder.
    pub(crate) fn open(model: &Path) -> Result<Self, ImportErrorKind> {
        let parent = model.parent().filter(|parent| !parent.as_os_str().is_empty());
        let root = parent.unwrap_or(Path::new(".")).to_owned();
        let sources = RefCell::new(SourceFile::now(model).into_iter().collect());
        let maps = RefCell::default();
        Ok(Self { root: Some(root), model: map(model)?, maps, sources, mapped: Cell::new(0) })
    }

    /// No folder.
    pub(crate) fn none() -> Self {
        Self {
            root: None,
            model: Bytes::default(),
            maps: RefCell::default(),
            sources: RefCell::default(),
            mapped: Cell::new(0),
        }
    }

    /// The files that were read: the model's, and its data files in the order in which they were needed.
    pub(crate) fn into_sources(self) -> Vec<SourceFile> {
        self.sources.into_inner()
    }

    /// Bytes of the data files that were met since the last time.
    pub(crate) fn take_mapped(&self) -> u64 {
        self.mapped.take()
    }

    /// The bytes of the model file, for the reader of messages.
    pub(crate) fn model(&self) -> bytes::Bytes {
        bytes::Bytes::from_owner(self.model.clone())
    }

    /// Contents that stand in a message: a part of the model's map, where they are one.
    pub(crate) fn contents(&self, raw: &bytes::Bytes) -> Bytes {
        let start = (raw.as_ptr() as usize).checked_sub(self.model.as_ptr() as usize);
        let part = start.and_then(|start| self.model.slice(start..start.checked_add(raw.len())?));
        part.unwrap_or_else(|| Bytes::from_owner(raw.clone()))
    }

    /// A part of a data file: `length` bytes, or everything from `offset` on.
    pub(crate) fn read(
        &self,
        location: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Bytes, ImportErrorKind> {
        let fail = |reason: String| ImportErrorKind::ExternalData { location: location.to_owned(), reason };
        let file = self.file(location)?;
        let size = file.len() as u64;
        let end = match length {
            Some(length) => offset.checked_add(length),
            None => Some(size),
        };
        match end {
            Some(end) if offset <= end && end <= size => {
                file.slice(offset as usize..end as usize).ok_or_else(|| fail("cannot be mapped".to_owned()))
            }
            _ => Err(fail(format!(
                "bytes {offset} to {} lie outside the file, which has {size}",
                end.map_or("beyond 2^64".to_owned(), |end| end.to_string())
            ))),
        }
    }

    fn file(&self, location: &str) -> Result<Bytes, ImportErrorKind> {
        let path = self.resolve(location)?;
        if let Some(file) = self.maps.borrow().get(&path) {
            return Ok(file.clone());
        }
        let seen = self.root.as_deref().and_then(|root| SourceFile::now(&root.join(location)));
        let file = map(&path)?;
        self.sources.borrow_mut().extend(seen);
        self.mapped.set(self.mapped.get().saturating_add(file.len() as u64));
        self.maps.borrow_mut().insert(path, file.clone());
        Ok(file)
    }

    /// The path of a data file; refuses whatever leaves the model's folder, through links too.
    fn resolve(&self, location: &str) -> Result<PathBuf, ImportErrorKind> {
        let fail = |reason: &str| ImportErrorKind::ExternalData {
            location: location.to_owned(),
            reason: reason.to_owned(),
        };
        let Some(root) = &self.root else {
            return Err(fail("the model came without a folder"));
        };
        let relative = Path::new(location);
        let plain = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        // A backslash or a drive is a path on another system; neither is a name that an exporter writes.
        if location.is_empty() || location.contains('\\') || !relative.components().all(plain) {
            return Err(fail("must be a path inside the model's folder"));
        }
        if location.contains(kiln_types::is_invisible) {
            return Err(fail("must have no characters that nobody sees, such as line breaks"));
        }
        let io = |path: &Path, error: std::io::Error| ImportErrorKind::Io {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let root = root.canonicalize().map_err(|error| io(root, error))?;
        let joined = root.join(relative);
        let path = joined.canonicalize().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => fail(
                "there is no such file; it holds weights of the model, so it belongs into the model's folder under that name",
            ),
            _ => io(&joined, error),
        })?;
        if !path.starts_with(&root) {
            return Err(fail(&format!(
                "leads out of the model's folder, to {}",
                quoted(&path.to_string_lossy())
            )));
        }
        Ok(path)
    }
}
