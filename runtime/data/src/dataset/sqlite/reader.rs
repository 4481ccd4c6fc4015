//! Reading a split.

use super::table::{Form, Split, Table, open};
use super::{Result, SqliteDatasetError};
use crate::dataset::Dataset;
use rusqlite::{Connection, OptionalExtension, Row};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Levels of an item in MessagePack: each takes from the stack, and a loader's threads have little. Records have as many.
const MAX_DEPTH: usize = 128;

/// A split of a dataset in a SQLite database, the table with the split's name.
///
/// The table has the column `row_id INTEGER PRIMARY KEY`, which numbers the rows from 1, and its items in one of two forms:
/// - a column for each field of `I`, with the field's name; there may be more columns, in any order. Numbers, booleans (as
///   integers), text, bytes and options of these are such fields;
/// - the one column `item BLOB`, the whole item in MessagePack, whatever it is made of; so
///   [`SqliteDatasetWriter`](super::SqliteDatasetWriter) writes it.
///
/// Nothing but the number of rows is kept in memory. Several threads read at once, each over a connection of its own.
pub struct SqliteDataset<I> {
    path: PathBuf,
    split: Split,
    table: Table,
    query: String,
    /// Connections that no thread uses.
    idle: Mutex<Vec<Connection>>,
    item: PhantomData<fn() -> I>,
}

impl<I> SqliteDataset<I> {
    /// Opens a split of a database.
    ///
    /// # Errors
    /// When the file cannot be read or is no database, the name cannot be a split's, or there is no such table of that
    /// layout.
    pub fn from_db_file<P: AsRef<Path>>(db_file: P, split: &str) -> Result<Self> {
        let (path, split) = (db_file.as_ref().to_owned(), Split::new(split)?);
        // SQLite says no more than that it could not open a file.
        File::open(&path).map_err(|source| SqliteDatasetError::Io { path: path.clone(), source })?;
        let connection =
            open(&path).map_err(|source| SqliteDatasetError::Sql { path: path.clone(), source })?;
        let table = Table::of(&connection, &path, &split)?;
        let query = table.query(&split);
        Ok(Self { path, split, table, query, idle: Mutex::new(vec![connection]), item: PhantomData })
    }

    fn connection(&self) -> Result<Connection> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(connection) => Ok(connection),
            None => open(&self.path).map_err(|source| self.sql_error(source)),
        }
    }

    fn sql_error(&self, source: rusqlite::Error) -> SqliteDatasetError {
        SqliteDatasetError::Sql { path: self.path.clone(), source }
    }
}

impl<I: DeserializeOwned> SqliteDataset<I> {
    /// An item; nothing beyond the last.
    ///
    /// # Errors
    /// When the row cannot be read, is missing, or is no such item.
    pub fn try_get(&self, index: usize) -> Result<Option<I>> {
        if index >= self.table.rows {
            return Ok(None);
        }
        let row_id = index as u64 + 1;
        let wrong = |reason| SqliteDatasetError::Row {
            path: self.path.clone(),
            split: self.split.name().to_owned(),
            row_id,
            reason,
        };
        let connection = self.connection()?;
        let item = connection.prepare_cached(&self.query).and_then(|mut statement| {
            statement.query_row([row_id as i64], |row| Ok(self.item(row))).optional()
        });
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        match item.map_err(|source| self.sql_error(source))? {
            Some(item) => item.map(Some).map_err(wrong),
            None => Err(wrong("there is none; `row_id` has to count without gaps".into())),
        }
    }

    fn item(&self, row: &Row<'_>) -> std::result::Result<I, String> {
        match self.table.form {
            Form::Columns => serde_rusqlite::from_row_with_columns(row, &self.table.columns)
                .map_err(|error| error.to_string()),
            Form::Serialized => {
                let bytes = row
                    .get_ref(0)
                    .and_then(|value| Ok(value.as_blob()?))
                    .map_err(|error| error.to_string())?;
                let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
                reader.set_max_depth(MAX_DEPTH);
                I::deserialize(&mut reader).map_err(|error| error.to_string())
            }
        }
    }
}

impl<I: DeserializeOwned + Clone + Send + Sync> Dataset<I> for SqliteDataset<I> {
    /// [`SqliteDataset::try_get`].
    ///
    /// # Panics
    /// Where that is an error, which it names.
    fn get(&self, index: usize) -> Option<I> {
        self.try_get(index).unwrap_or_else(|error| panic!("SqliteDataset: {error}"))
    }

    fn len(&self) -> usize {
        self.table.rows
    }
}
