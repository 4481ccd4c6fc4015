//! Scores a table of handwritten digits in SQL, by a network that `build.rs` compiled.
//!
//! ```sh
//! cargo run --release --manifest-path examples/scoring/Cargo.toml
//! cargo run --release --manifest-path examples/scoring/Cargo.toml -- "SELECT count(*) FROM digits WHERE get_field(read_digit(pixels), 'digit') <> label"
//! ```
//!
//! The table `digits` has a row for each image of the held-out part of scikit-learn's digits: `id`, `label`, and `pixels`, a list of 64
//! bytes from 0 to 16. The function `read_digit` makes of these a struct of the likeliest `digit` and the `probabilities` of all ten.

mod digits;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use digits::{BY_LABEL, HELD_OUT, read_digit, table};
use std::error::Error;

/// A session that knows the table and the function.
fn session() -> Result<SessionContext, Box<dyn Error>> {
    let context = SessionContext::new();
    context.register_batch("digits", table(0, HELD_OUT)?)?;
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
