//! Writing a dataset.

use super::table::{ITEM, ROW_ID, Split};
use super::{Result, SqliteDatasetError};
use rusqlite::{Connection, OpenFlags};
use serde::Serialize;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::{Builder, TempPath};

/// Writes items into a new database, in any number of splits.
///
/// They are written beside the file and take its name when [`SqliteDatasetWriter::set_completed`] is called; without that,
/// they are gone. Several threads may write.
pub struct SqliteDatasetWriter<I> {
    path: PathBuf,
    overwrite: bool,
    /// Nothing when the dataset is complete.
    unfinished: Mutex<Option<Unfinished>>,
    item: PhantomData<fn(I)>,
}

/// The connection is closed before its file is removed.
struct Unfinished {
    connection: Connection,
    splits: HashSet<Split>,
    file: TempPath,
}

impl<I> SqliteDatasetWriter<I> {
    /// A writer of the dataset in a file; its folder is made if there is none.
    ///
    /// # Errors
    /// When the file exists and may not be replaced, or nothing can be written there.
    pub fn new<P: AsRef<Path>>(db_file: P, overwrite: bool) -> Result<Self> {
        let path = db_file.as_ref().to_owned();
        if !overwrite && path.exists() {
            return Err(SqliteDatasetError::FileExists(path));
        }
        let file = beside(&path).map_err(|source| SqliteDatasetError::Io { path: path.clone(), source })?;
        let connection =
            begin(&file).map_err(|source| SqliteDatasetError::Sql { path: path.clone(), source })?;
        let unfinished = Mutex::new(Some(Unfinished { connection, splits: HashSet::new(), file }));
        Ok(Self { path, overwrite, unfinished, item: PhantomData })
    }

    /// Makes the file of what was written. Done again, it does nothing.
    ///
    /// # Errors
    /// When the file cannot be written, or exists by now and may not be replaced.
    pub fn set_completed(&mut self) -> Result<()> {
        let unfinished = self.unfinished.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(Unfinished { connection, file, .. }) = unfinished.take() else { return Ok(()) };
        let of_sql = |source| SqliteDatasetError::Sql { path: self.path.clone(), source };
        let of_file = |source| SqliteDatasetError::Io { path: self.path.clone(), source };
        connection.execute_batch("COMMIT").map_err(of_sql)?;
        connection.close().map_err(|(_, source)| of_sql(source))?;
        File::open(&file).and_then(|file| file.sync_all()).map_err(of_file)?;
        if self.overwrite {
            return file.persist(&self.path).map_err(|error| of_file(error.error));
        }
        file.persist_noclobber(&self.path).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => SqliteDatasetError::FileExists(self.path.clone()),
            _ => of_file(error.error),
        })
    }
}

impl<I: Serialize> SqliteDatasetWriter<I> {
    /// Appends an item to a split, and returns its index there.
    ///
    /// # Errors
    /// When the name cannot be a split's, the item cannot be stored, or the dataset is complete.
    pub fn write(&self, split: &str, item: &I) -> Result<usize> {
        let split = Split::new(split)?;
        // With the fields' names, so that items can be read whose type has got more since.
        let bytes = rmp_serde::to_vec_named(item)
            .map_err(|source| SqliteDatasetError::Encode { split: split.name().to_owned(), source })?;
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let unfinished =
            unfinished.as_mut().ok_or_else(|| SqliteDatasetError::Completed(self.path.clone()))?;
        unfinished
            .insert(split, &bytes)
            .map_err(|source| SqliteDatasetError::Sql { path: self.path.clone(), source })
    }
}

impl Unfinished {
    fn insert(&mut self, split: Split, bytes: &[u8]) -> rusqlite::Result<usize> {
        if !self.splits.contains(&split) {
            let columns = format!("{ROW_ID} INTEGER PRIMARY KEY NOT NULL, {ITEM} BLOB NOT NULL");
            self.connection.execute_batch(&format!("CREATE TABLE {split} ({columns})"))?;
        }
        let mut insert =
            self.connection.prepare_cached(&format!("INSERT INTO {split} ({ITEM}) VALUES (?1)"))?;
        let row_id = insert.insert([bytes])?;
        drop(insert);
        self.splits.insert(split);
        // Rows count from 1 in a table of which none is ever removed.
        Ok(row_id as usize - 1)
    }
}

/// An empty file in the folder of another one, with the permissions that a new file has.
fn beside(path: &Path) -> io::Result<TempPath> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(folder)?;
    let mut builder = Builder::new();
    builder.prefix(".unfinished-").suffix(".db");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    Ok(builder.tempfile_in(folder)?.into_temp_path())
}

/// Begins the one transaction in which everything is written.
fn begin(file: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        file,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // An unfinished file is of no use to anyone: nothing has to survive a failure before it is complete.
    connection.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; BEGIN")?;
    Ok(connection)
}
