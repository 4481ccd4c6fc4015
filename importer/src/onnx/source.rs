//! Files: the model itself and the data files beside it, mapped, never read whole.

use crate::error::{ImportErrorKind, quoted};
use bytes::Bytes;
use memmap2::Mmap;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Component, Path, PathBuf};

/// Maps a file.
pub(crate) fn map(path: &Path) -> Result<Bytes, ImportErrorKind> {
    let io = |error: std::io::Error| ImportErrorKind::Io { path: path.to_owned(), reason: error.to_string() };
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(ImportErrorKind::Io { path: path.to_owned(), reason: "not a file".to_owned() });
    }
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: a map is sound while nobody changes the file under it. Model files are build inputs; a build tool
    // that rewrites its inputs during a build breaks every compiler, and at worst this one reads wrong weights.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    Ok(Bytes::from_owner(map))
}

/// The folder of a model, from which external data is taken.
pub(crate) struct Folder {
    /// `None` for a model that came as bytes: it may have no external data.
    root: Option<PathBuf>,
    maps: RefCell<BTreeMap<PathBuf, Bytes>>,
}

impl Folder {
    /// The folder that holds the model file.
    pub(crate) fn of(model: &Path) -> Self {
        let parent = model.parent().filter(|parent| !parent.as_os_str().is_empty());
        let root = parent.unwrap_or(Path::new(".")).to_owned();
        Self { root: Some(root), maps: RefCell::default() }
    }

    /// No folder.
    pub(crate) fn none() -> Self {
        Self { root: None, maps: RefCell::default() }
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
            Some(end) if offset <= end && end <= size => Ok(file.slice(offset as usize..end as usize)),
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
        let file = map(&path)?;
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
        if location.is_empty() || location.contains(['\\', '\0']) || !relative.components().all(plain) {
            return Err(fail("must be a path inside the model's folder"));
        }
        let io = |path: &Path, error: std::io::Error| ImportErrorKind::Io {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let root = root.canonicalize().map_err(|error| io(root, error))?;
        let joined = root.join(relative);
        let path = joined.canonicalize().map_err(|error| io(&joined, error))?;
        if !path.starts_with(&root) {
            return Err(fail(&format!(
                "leads out of the model's folder, to {}",
                quoted(&path.to_string_lossy())
            )));
        }
        Ok(path)
    }
}
