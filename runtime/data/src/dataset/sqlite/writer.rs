//! Writing a dataset.

use super::table::{ITEM, ROW_ID, Split};
use super::{Result, SqliteDatasetError};
use rusqlite::{Connection, OpenFlags};
use serde::Serialize;
use std::collections::HashSet;
use std::fs::OpenOptions;
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
    state: Mutex<State>,
    item: PhantomData<fn(I)>,
}

/// How far a dataset is.
enum State {
    /// Items are written.
    Writing(Unfinished),
    /// All are in the file beside, which has not taken its name yet.
    Written(TempPath),
    /// The file is there.
    Complete,
    /// It is lost, since the file beside could not be written to its end.
    Failed,
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
        let state = Mutex::new(State::Writing(Unfinished { connection, splits: HashSet::new(), file }));
        Ok(Self { path, overwrite, state, item: PhantomData })
    }

    /// Makes the file of what was written. Done again after that, it does nothing; done again after the file could not take its
    /// name, it tries that once more, so that one that stood in the way can be moved.
    ///
    /// # Errors
    /// When the file cannot be written, or exists by now and may not be replaced.
    pub fn set_completed(&mut self) -> Result<()> {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let file = match std::mem::replace(state, State::Failed) {
            State::Writing(unfinished) => unfinished.end(&self.path)?,
            State::Written(file) => file,
            State::Complete => {
                *state = State::Complete;
                return Ok(());
            }
            State::Failed => return Err(SqliteDatasetError::Unwritten(self.path.clone())),
        };
        let named =
            if self.overwrite { file.persist(&self.path) } else { file.persist_noclobber(&self.path) };
        match named {
            Ok(()) => *state = State::Complete,
            Err(error) => {
                *state = State::Written(error.path);
                return Err(match error.error.kind() {
                    io::ErrorKind::AlreadyExists => SqliteDatasetError::FileExists(self.path.clone()),
                    _ => SqliteDatasetError::Io { path: self.path.clone(), source: error.error },
                });
            }
        }
        Ok(())
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let unfinished = match &mut *state {
            State::Writing(unfinished) => unfinished,
            State::Written(_) | State::Complete => {
                return Err(SqliteDatasetError::Completed(self.path.clone()));
            }
            State::Failed => return Err(SqliteDatasetError::Unwritten(self.path.clone())),
        };
        unfinished
            .insert(split, &bytes)
            .map_err(|source| SqliteDatasetError::Sql { path: self.path.clone(), source })
    }
}

impl Unfinished {
    /// The file with all that was written, on the disk.
    fn end(self, path: &Path) -> Result<TempPath> {
        let Self { connection, file, .. } = self;
        let of_sql = |source| SqliteDatasetError::Sql { path: path.to_owned(), source };
        connection.execute_batch("COMMIT").map_err(of_sql)?;
        connection.close().map_err(|(_, source)| of_sql(source))?;
        // Windows writes back nothing through a handle that may only read.
        OpenOptions::new()
            .write(true)
            .open(&file)
            .and_then(|file| file.sync_all())
            .map_err(|source| SqliteDatasetError::Io { path: path.to_owned(), source })?;
        Ok(file)
    }

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
