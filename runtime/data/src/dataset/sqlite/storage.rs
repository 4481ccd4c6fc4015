//! Where the database of a dataset lies.

use super::{Result, SqliteDataset, SqliteDatasetWriter};
use crate::cache;
use std::path::{Path, PathBuf};

/// The database of a dataset, which need not exist yet.
#[derive(Clone, Debug)]
pub struct SqliteDatasetStorage {
    place: Place,
    base_dir: Option<PathBuf>,
}

#[derive(Clone, Debug)]
enum Place {
    /// A name in the folder of all local copies.
    Name(String),
    File(PathBuf),
}

impl SqliteDatasetStorage {
    /// The dataset of a name, among the local copies.
    pub fn from_name(name: &str) -> Self {
        Self { place: Place::Name(name.to_owned()), base_dir: None }
    }

    /// The dataset in a file.
    pub fn from_file<P: AsRef<Path>>(db_file: P) -> Self {
        Self { place: Place::File(db_file.as_ref().to_owned()), base_dir: None }
    }

    /// The folder of named datasets; without it, [`SqliteDatasetStorage::base_dir`]'s.
    #[must_use]
    pub fn with_base_dir<P: AsRef<Path>>(mut self, base_dir: P) -> Self {
        self.base_dir = Some(base_dir.as_ref().to_owned());
        self
    }

    /// Whether there is such a file.
    pub fn exists(&self) -> bool {
        self.db_file().exists()
    }

    /// The database's path. A name lies in the folder of named datasets, without the characters that cannot stand in a
    /// file's name.
    pub fn db_file(&self) -> PathBuf {
        match &self.place {
            Place::File(file) => file.clone(),
            Place::Name(name) => {
                Self::base_dir(self.base_dir.clone()).join(format!("{}.db", cache::file_name(name)))
            }
        }
    }

    /// The folder of named datasets: the given one, else `$KILN_DATASETS`, else `~/.cache/burn-dataset`.
    pub fn base_dir(base_dir: Option<PathBuf>) -> PathBuf {
        base_dir.unwrap_or_else(cache::folder)
    }

    /// [`SqliteDatasetWriter::new`].
    ///
    /// # Errors
    /// As there.
    pub fn writer<I>(&self, overwrite: bool) -> Result<SqliteDatasetWriter<I>> {
        SqliteDatasetWriter::new(self.db_file(), overwrite)
    }

    /// [`SqliteDataset::from_db_file`].
    ///
    /// # Errors
    /// As there.
    pub fn reader<I>(&self, split: &str) -> Result<SqliteDataset<I>> {
        SqliteDataset::from_db_file(self.db_file(), split)
    }
}
