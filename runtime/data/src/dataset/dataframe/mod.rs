//! Datasets in data frames of Polars.

mod row;

use super::Dataset;
use polars::prelude::DataFrame;
use row::Row;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// Rows of a data frame are not the items that were asked for.
#[derive(Debug, thiserror::Error)]
#[error("row {row} of the data frame: {reason}")]
pub struct DataframeDatasetError {
    /// The row, from 0.
    pub row: usize,
    /// What is wrong with it; it names the column.
    pub reason: String,
}

/// The rows of a data frame.
///
/// A row becomes an item through serde: columns are fields, by their names, in any order, and there may be more columns. Numbers, booleans,
/// text, bytes, lists and what is null (for options) are such fields; dates and times are the numbers that Polars stores.
/// An item may also be a tuple, of all columns in order, or, with one column, its value.
///
/// The frame is of the version of Polars that is re-exported here as [`polars`](super::polars). What Polars reads and computes, it does before; its
/// features are the program's own affair.
#[derive(Clone, Debug)]
pub struct DataframeDataset<I> {
    frame: DataFrame,
    item: PhantomData<fn() -> I>,
}

impl<I: DeserializeOwned> DataframeDataset<I> {
    /// The rows of a frame.
    ///
    /// # Errors
    /// When the first row is no such item, as when a column is missing. Later rows may still not be, where they have nulls.
    pub fn new(mut frame: DataFrame) -> Result<Self, DataframeDatasetError> {
        // A value is found at once when its column is in one piece.
        frame.rechunk_mut();
        let dataset = Self { frame, item: PhantomData };
        dataset.try_get(0)?;
        Ok(dataset)
    }

    /// An item; nothing beyond the last.
    ///
    /// # Errors
    /// When the row is no such item.
    pub fn try_get(&self, index: usize) -> Result<Option<I>, DataframeDatasetError> {
        if index >= self.frame.height() {
            return Ok(None);
        }
        let item = I::deserialize(Row { columns: self.frame.get_columns(), index });
        item.map(Some).map_err(|fault| DataframeDatasetError { row: index, reason: fault.to_string() })
    }
}

impl<I> DataframeDataset<I> {
    /// The frame.
    pub fn frame(&self) -> &DataFrame {
        &self.frame
    }
}

impl<I: DeserializeOwned + Clone + Send + Sync> Dataset<I> for DataframeDataset<I> {
    /// [`DataframeDataset::try_get`].
    ///
    /// # Panics
    /// Where that is an error, which it names.
    fn get(&self, index: usize) -> Option<I> {
        self.try_get(index).unwrap_or_else(|error| panic!("DataframeDataset: {error}"))
    }

    fn len(&self) -> usize {
        self.frame.height()
    }
}
