//! Scores a table of handwritten digits in SQL, by a network that `build.rs` compiled.
//!
//! ```sh
//! cargo run --release --manifest-path examples/scoring/Cargo.toml
//! cargo run --release --manifest-path examples/scoring/Cargo.toml -- "SELECT count(*) FROM digits WHERE get_field(read_digit(pixels), 'digit') <> label"
//! ```
//!
//! The table `digits` has a row for each image of the held-out part of scikit-learn's digits: `id`, `label`, and `pixels`, a list of 64
//! bytes from 0 to 16. The function `read_digit` makes of these a struct of the likeliest `digit` and the `probabilities` of all ten.

use datafusion::arrow::array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, UInt8Array};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;
use kiln::backend::NdArray;
use kiln::tensor::activation::softmax;
use kiln::tensor::{Int, Tensor};
use kiln_datafusion::{Input, Output, ScoringError, ScoringFunctionConfig};
use std::error::Error;
use std::sync::Arc;

mod digits {
    include!(concat!(env!("OUT_DIR"), "/model/model.rs"));
}

type B = NdArray;

const HELD_OUT: &[u8] = include_bytes!("../../../fixtures/digits/held_out.bin");
const PIXELS: usize = 8 * 8;

const BY_LABEL: &str = "
    SELECT label, count(*) AS images, sum(CASE WHEN digit = label THEN 1 ELSE 0 END) AS right
    FROM (SELECT label, get_field(read_digit(pixels), 'digit') AS digit FROM digits)
    GROUP BY label ORDER BY label";

/// The network as a function of SQL.
fn read_digit() -> Result<ScalarUDF, ScoringError> {
    let model = digits::Model::<B>::default();
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

/// The images as a table: 65 bytes each, the last of them the label.
fn images() -> Result<RecordBatch, Box<dyn Error>> {
    let records = || HELD_OUT.chunks_exact(PIXELS + 1);
    let pixels = records().flat_map(|record| record.iter().take(PIXELS).copied());
    let labels = records().filter_map(|record| record.last().copied()).map(i64::from);
    let field = Arc::new(Field::new_list_field(DataType::UInt8, false));
    let pixels = FixedSizeListArray::try_new(
        field,
        PIXELS as i32,
        Arc::new(UInt8Array::from_iter_values(pixels)),
        None,
    )?;
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..records().len() as i64))),
        ("label", Arc::new(Int64Array::from_iter_values(labels))),
        ("pixels", Arc::new(pixels)),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// A session that knows the table and the function.
fn session() -> Result<SessionContext, Box<dyn Error>> {
    let context = SessionContext::new();
    context.register_batch("digits", images()?)?;
    context.register_udf(read_digit()?);
    Ok(context)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let query = std::env::args().nth(1);
    let result = session()?.sql(query.as_deref().unwrap_or(BY_LABEL)).await?.collect().await?;
    println!("{}", pretty_format_batches(&result)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;

    /// PyTorch's answers on the same images, from `scripts/train_digits.py`.
    const EXPECTED: &str = include_str!("../../../fixtures/digits/expected.json");

    #[tokio::test]
    async fn answers_are_pytorchs() {
        let context = session().expect("a session");
        let frame = context
            .sql("SELECT get_field(read_digit(pixels), 'digit') FROM digits ORDER BY id")
            .await
            .expect("a plan");
        let batches = frame.collect().await.expect("scores");
        let digits = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values());
        let answers: String = digits.map(ToString::to_string).collect();
        assert!(EXPECTED.contains(&format!("\"predictions\": \"{answers}\"")), "answers differ: {answers}");
    }

    #[tokio::test]
    async fn most_are_right() {
        let context = session().expect("a session");
        let batches = context.sql(BY_LABEL).await.expect("a plan").collect().await.expect("a table");
        let column = |column: usize| {
            batches
                .iter()
                .flat_map(|batch| batch.column(column).as_primitive::<Int64Type>().values())
                .sum::<i64>()
        };
        assert!(column(1) == 360 && column(2) > 342, "{} of {}", column(2), column(1));
    }
}
