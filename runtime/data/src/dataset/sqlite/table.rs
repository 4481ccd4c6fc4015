//! The table of a split: its name and its layout.

use super::{Result, SqliteDatasetError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use std::fmt;
use std::path::Path;

/// The column that numbers the rows, from 1.
pub(super) const ROW_ID: &str = "row_id";
/// The column of items that are stored as a whole, in MessagePack.
pub(super) const ITEM: &str = "item";

/// The checked name of a split. Displayed, it is quoted for a statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Split(String);

impl Split {
    pub(super) fn new(name: &str) -> Result<Self> {
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let reserved = name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("sqlite_"));
        if name.is_empty() || name.len() > 128 || reserved || !name.chars().all(allowed) {
            return Err(SqliteDatasetError::SplitName(name.to_owned()));
        }
        Ok(Self(name.to_owned()))
    }

    pub(super) fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.0))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) fn listed(splits: &[String]) -> String {
    match splits {
        [] => "none at all".to_owned(),
        splits => splits.iter().map(|split| format!("{split:?}")).collect::<Vec<_>>().join(", "),
    }
}

/// How a table stores items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A column for each field.
    Columns,
    /// The whole item in MessagePack, in the column `item`.
    Serialized,
}

/// What is known of a split's table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) form: Form,
    /// The columns that are read, in order, without `row_id`.
    pub(super) columns: Vec<String>,
    pub(super) rows: usize,
}

/// Opens a database that only is read, and of which nothing is run.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    // No `SQLITE_OPEN_URI`: a path that begins with `file:` is a path.
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    Ok(connection)
}

impl Table {
    /// Looks at the table of a split.
    pub(super) fn of(connection: &Connection, path: &Path, split: &Split) -> Result<Self> {
        let of_sql = |source| SqliteDatasetError::Sql { path: path.to_owned(), source };
        let wrong = |reason: String| SqliteDatasetError::Table {
            path: path.to_owned(),
            split: split.name().to_owned(),
            reason,
        };
        // A virtual table has no page of its own.
        let stored = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ?1";
        let found = connection.query_row(stored, [split.name()], |_| Ok(())).optional().map_err(of_sql)?;
        if found.is_none() {
            let splits = splits(connection).map_err(of_sql)?;
            return Err(SqliteDatasetError::NoSplit {
                path: path.to_owned(),
                split: split.name().to_owned(),
                splits,
            });
        }
        // Computed columns are not among these.
        let infos = columns(connection, split).map_err(of_sql)?;
        let numbered =
            infos.iter().any(|c| c.name == ROW_ID && c.key && c.declared.eq_ignore_ascii_case("INTEGER"));
        if !numbered {
            return Err(wrong(
                "it has no column `row_id INTEGER PRIMARY KEY`, which numbers the rows from 1".into(),
            ));
        }
        let items: Vec<&Column> = infos.iter().filter(|column| column.name != ROW_ID).collect();
        let form = match items.as_slice() {
            [] => return Err(wrong("it has no column but `row_id`".into())),
            [item] if item.name == ITEM && item.declared.eq_ignore_ascii_case("BLOB") => Form::Serialized,
            _ => Form::Columns,
        };
        let rows = rows(connection, split).map_err(of_sql)?;
        let rows = rows.ok_or_else(|| {
            wrong("the numbers in `row_id` do not go from 1 to the number of rows without gaps".into())
        })?;
        Ok(Self { form, columns: items.into_iter().map(|column| column.name.clone()).collect(), rows })
    }

    /// The statement that reads a row by its number.
    pub(super) fn query(&self, split: &Split) -> String {
        let columns: Vec<String> = self.columns.iter().map(|name| quoted(name)).collect();
        format!("SELECT {} FROM {split} WHERE {ROW_ID} = ?1", columns.join(", "))
    }
}

struct Column {
    name: String,
    declared: String,
    key: bool,
}

fn columns(connection: &Connection, split: &Split) -> rusqlite::Result<Vec<Column>> {
    let mut statement = connection.prepare("SELECT name, type, pk FROM pragma_table_info(?1)")?;
    let column = |row: &rusqlite::Row<'_>| {
        Ok(Column { name: row.get(0)?, declared: row.get(1)?, key: row.get::<_, i64>(2)? == 1 })
    };
    statement.query_map([split.name()], column)?.collect()
}

fn splits(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let all = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY name LIMIT 100";
    let mut statement = connection.prepare(all)?;
    let names: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(names.into_iter().filter(|name| Split::new(name).is_ok()).collect())
}

/// The number of rows, from the first and the last row's number; nothing if these cannot be without gaps. Counting every
/// row would read the whole file.
fn rows(connection: &Connection, split: &Split) -> rusqlite::Result<Option<usize>> {
    let end = |function: &str| {
        connection.query_row(&format!("SELECT {function}({ROW_ID}) FROM {split}"), [], |row| {
            row.get::<_, Option<i64>>(0)
        })
    };
    let (Some(first), Some(last)) = (end("min")?, end("max")?) else { return Ok(Some(0)) };
    // A row takes at least 5 bytes: its place in the page, its length, its number, and its head.
    let pragma = |name| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let most = pragma("page_count")?.saturating_mul(pragma("page_size")?) / 5;
    Ok((first == 1 && last <= most).then(|| usize::try_from(last).ok()).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_splits() {
        for good in ["train", "test", "validation.2", "ru-ru", "été", "sqlite"] {
            assert_eq!(Split::new(good).expect("a name").to_string(), format!("\"{good}\""));
        }
        let long = "x".repeat(129);
        for bad in
            ["", "a b", "train\"; drop table train; --", "a\0", "sqlite_master", "SQLite_x", "a'b", &long]
        {
            assert!(matches!(Split::new(bad), Err(SqliteDatasetError::SplitName(name)) if name == bad));
        }
    }
}
