//! The network as a function of SQL, and the images that it reads: the held-out part of scikit-learn's digits.

use datafusion::arrow::array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, UInt8Array};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::logical_expr::ScalarUDF;
use kiln::backend::NdArray;
use kiln::tensor::activation::softmax;
use kiln::tensor::{Int, Tensor};
use kiln_datafusion::{Input, Output, ScoringError, ScoringFunctionConfig};
use std::error::Error;
use std::sync::Arc;

mod model {
    include!(concat!(env!("OUT_DIR"), "/model/model.rs"));
}

type B = NdArray;

/// The images, 65 bytes each, the last of them the label.
pub const HELD_OUT: &[u8] = include_bytes!("../../../fixtures/digits/held_out.bin");
/// The bytes of an image and its label.
pub const RECORD: usize = PIXELS + 1;
const PIXELS: usize = 8 * 8;

/// How many images of each label there are, and how many of them are read right.
pub const BY_LABEL: &str = "
    SELECT label, count(*) AS images, sum(CASE WHEN digit = label THEN 1 ELSE 0 END) AS right
    FROM (SELECT label, get_field(read_digit(pixels), 'digit') AS digit FROM digits)
    GROUP BY label ORDER BY label";

/// The network as a function of SQL.
pub fn read_digit() -> Result<ScalarUDF, ScoringError> {
    let model = model::Model::<B>::default();
    ScoringFunctionConfig::new("read_digit")
        .with_input(Input::list("pixels").with_dims([1, 8, 8]))
        .with_output(Output::number("digit"))
        .with_output(Output::list("probabilities", [10]))
        .with_max_batch_size(256)
        .init(&Default::default(), move |pixels: Tensor<B, 4>| -> (Tensor<B, 2, Int>, Tensor<B, 2>) {
            // As the network was trained with them, from 0 to 1.
            let logits = model.forward(pixels / 16.0);
            (logits.clone().argmax(1), softmax(logits, 1))
        })
}

/// Images and labels as a part of the table, whose first row has this number.
pub fn table(first: usize, images: &[u8]) -> Result<RecordBatch, Box<dyn Error>> {
    let records = || images.chunks_exact(RECORD);
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
