//! A dataset in memory.

use super::Dataset;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Items could not be read from a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file itself.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line that is no such item.
    #[error("{}, line {line}: {reason}", path.display())]
    Item {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
}

/// Items in a vector.
#[derive(Clone, Debug, Default)]
pub struct InMemDataset<I> {
    items: Vec<I>,
}

impl<I> InMemDataset<I> {
    /// Of these items.
    pub fn new(items: Vec<I>) -> Self {
        Self { items }
    }
}

impl<I: Clone> InMemDataset<I> {
    /// All items of another dataset.
    pub fn from_dataset(dataset: &impl Dataset<I>) -> Self {
        Self { items: dataset.iter().collect() }
    }
}

impl<I: DeserializeOwned> InMemDataset<I> {
    /// From a file with a JSON value on each line (JSON lines); empty lines are skipped.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is no such item.
    pub fn from_json_rows<P: AsRef<Path>>(file: P) -> Result<Self, ReadError> {
        let path = file.as_ref();
        let of_file = |source| ReadError::File { path: path.to_owned(), source };
        let reader = BufReader::new(File::open(path).map_err(of_file)?);
        let mut items = Vec::new();
        for (line, text) in (1..).zip(reader.lines()) {
            let text = text.map_err(of_file)?;
            if text.trim().is_empty() {
                continue;
            }
            let item = serde_json::from_str(&text).map_err(|error| ReadError::Item {
                path: path.to_owned(),
                line,
                reason: error.to_string(),
            })?;
            items.push(item);
        }
        Ok(Self { items })
    }

    /// From a file of comma-separated values; the reader says how it is written (separator, head line, …).
    ///
    /// # Errors
    /// When the file cannot be read, or a line is no such item.
    pub fn from_csv<P: AsRef<Path>>(file: P, reader: &csv::ReaderBuilder) -> Result<Self, ReadError> {
        let path = file.as_ref();
        let of_file = |source| ReadError::File { path: path.to_owned(), source };
        let opened = File::open(path).map_err(of_file)?;
        let mut items = Vec::new();
        for item in reader.from_reader(opened).deserialize() {
            items.push(item.map_err(|error: csv::Error| {
                let line = error.position().map_or(0, csv::Position::line);
                let reason = error.to_string();
                match error.into_kind() {
                    csv::ErrorKind::Io(source) => of_file(source),
                    _ => ReadError::Item { path: path.to_owned(), line, reason },
                }
            })?);
        }
        Ok(Self { items })
    }
}

impl<I: Clone + Send + Sync> Dataset<I> for InMemDataset<I> {
    fn get(&self, index: usize) -> Option<I> {
        self.items.get(index).cloned()
    }

    fn len(&self) -> usize {
        self.items.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::fs;

    #[derive(Clone, Debug, PartialEq, Deserialize)]
    struct Item {
        name: String,
        value: f32,
    }

    fn item(name: &str, value: f32) -> Item {
        Item { name: name.to_owned(), value }
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("items");
        fs::write(&path, text).expect("a file");
        (folder, path)
    }

    #[test]
    fn lines_of_json() {
        let (_folder, path) = file("{\"name\": \"a\", \"value\": 1}\n\n{\"name\": \"b\", \"value\": 2.5}\n");
        let dataset = InMemDataset::from_json_rows(path).expect("items");
        assert_eq!(dataset.iter().collect::<Vec<Item>>(), [item("a", 1.0), item("b", 2.5)]);
        let (_folder, path) = file("{\"name\": \"a\", \"value\": 1}\n{\"name\": 3}\n");
        let error = InMemDataset::<Item>::from_json_rows(&path).expect_err("no item");
        assert!(error.to_string().contains("line 2: invalid type"), "{error}");
    }

    #[test]
    fn separated_values() {
        let (_folder, path) = file("name\tvalue\na\t1\nb\t2.5\n");
        let mut reader = csv::ReaderBuilder::new();
        let dataset = InMemDataset::from_csv(&path, reader.delimiter(b'\t')).expect("items");
        assert_eq!((dataset.len(), dataset.get(1), dataset.get(2)), (2, Some(item("b", 2.5)), None));
        let error = InMemDataset::<Item>::from_csv(&path, &csv::ReaderBuilder::new()).expect_err("commas");
        assert!(error.to_string().contains("items, line "), "{error}");
        let error =
            InMemDataset::<Item>::from_csv("nowhere", &csv::ReaderBuilder::new()).expect_err("no file");
        assert!(error.to_string().starts_with("nowhere: "), "{error}");
    }
}
