//! Datasets in SQLite databases: a table for each split.
//!
//! Files have Burn's layout, in both its forms (see [`SqliteDataset`]). They may come from strangers: a database is read
//! without running anything that is written in it (views, triggers, virtual tables, computed columns), and names of
//! splits are checked before they stand in a statement.

mod reader;
mod storage;
mod table;
mod writer;

pub use reader::SqliteDataset;
pub use storage::SqliteDatasetStorage;
pub use writer::SqliteDatasetWriter;

use std::io;
use std::path::PathBuf;

/// What reading and writing of such datasets yields.
pub type Result<T> = std::result::Result<T, SqliteDatasetError>;

/// A dataset in a SQLite database could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteDatasetError {
    /// The file itself.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no database, or a statement failed.
    #[error("{}: {source}", path.display())]
    Sql {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A writer may not replace a file.
    #[error("{}: the file exists; `overwrite` replaces it", .0.display())]
    FileExists(PathBuf),
    /// A split that could not be a table.
    #[error(
        "{0:?} is no name of a split: such a name has letters, digits, `_`, `-` and `.`, at most 128 bytes, and does not begin with `sqlite_`"
    )]
    SplitName(String),
    /// The database has no such split.
    #[error("{}: there is no split {split:?}, but {}", path.display(), table::listed(splits))]
    NoSplit {
        /// The database.
        path: PathBuf,
        /// The split.
        split: String,
        /// The splits that there are.
        splits: Vec<String>,
    },
    /// The table of a split is not laid out as a dataset.
    #[error("{}: the table {split:?} is no dataset: {reason}", path.display())]
    Table {
        /// The database.
        path: PathBuf,
        /// The split.
        split: String,
        /// What is wrong with it, and what it should be.
        reason: String,
    },
    /// A row that is no such item.
    #[error("{}: row {row_id} of {split:?}: {reason}", path.display())]
    Row {
        /// The database.
        path: PathBuf,
        /// The split.
        split: String,
        /// The row's `row_id`, from 1.
        row_id: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// An item cannot be written as MessagePack.
    #[error("an item of {split:?} cannot be stored: {source}")]
    Encode {
        /// The split.
        split: String,
        /// Why.
        source: rmp_serde::encode::Error,
    },
    /// Something was written after [`SqliteDatasetWriter::set_completed`].
    #[error("{}: the dataset is complete, nothing can be written to it any more", .0.display())]
    Completed(PathBuf),
    /// Something was asked of a writer whose file could not be written before.
    #[error("{}: the dataset was not written, as an error said before; write it anew", .0.display())]
    Unwritten(PathBuf),
}
