//! The table `digits`: a row for each image of the held-out part of scikit-learn's digits, with `id`, `label`, and `pixels`, a list of 64 bytes from 0 to 16.

use datafusion::arrow::array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, UInt8Array};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::SessionContext;
use std::error::Error;
use std::sync::Arc;

const HELD_OUT: &[u8] = include_bytes!("../../../fixtures/digits/held_out.bin");
const PIXELS: usize = 8 * 8;
/// Files that the table is written to, which executors read apart.
const FILES: usize = 4;

/// Images with the numbers of the first of them: 65 bytes each, the last of them the label.
fn images(first: usize, records: &[u8]) -> Result<RecordBatch, Box<dyn Error>> {
    let records = || records.chunks_exact(PIXELS + 1);
    let pixels = records().flat_map(|record| record.iter().take(PIXELS).copied());
    let labels = records().filter_map(|record| record.last().copied()).map(i64::from);
    let ids = (first..).take(records().len()).map(|id| id as i64);
    let field = Arc::new(Field::new_list_field(DataType::UInt8, false));
    let pixels = Arc::new(UInt8Array::from_iter_values(pixels));
    let pixels = FixedSizeListArray::try_new(field, PIXELS as i32, pixels, None)?;
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids))),
        ("label", Arc::new(Int64Array::from_iter_values(labels))),
        ("pixels", Arc::new(pixels)),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// Writes the table to a folder that every process of the cluster sees.
pub async fn write(folder: &str) -> Result<(), Box<dyn Error>> {
    let rows = (HELD_OUT.len() / (PIXELS + 1)).div_ceil(FILES);
    for (n, records) in HELD_OUT.chunks(rows * (PIXELS + 1)).enumerate() {
        let frame = SessionContext::new().read_batch(images(n * rows, records)?)?;
        let path = format!("{folder}/{n}.parquet");
        let options = DataFrameWriteOptions::new().with_single_file_output(true);
        frame.write_parquet(&path, options, None).await?;
    }
    Ok(())
}
