//! Scoring functions in queries. Scores are compared with those of the model alone, or of models that are simple enough to say what they yield.

mod errors;
mod inputs;
mod nulls;
mod outputs;
mod properties;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float32Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Float32Type, Int64Type};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::logical_expr::col;
use datafusion::prelude::{SessionConfig, SessionContext};
use kiln_core::Tensor;
use kiln_core::nn::{Linear, LinearConfig};
use kiln_core::tensor::TensorData;
use kiln_datafusion::{Input, Output, ScoringFunctionConfig};
use kiln_ndarray::NdArray;
use std::sync::{Arc, Mutex};

type B = NdArray;

/// A session with a table `t` of these partitions, each of which is a list of batches.
fn session(partitions: Vec<Vec<RecordBatch>>) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(partitions.len());
    let context = SessionContext::new_with_config(config);
    let schema = partitions[0][0].schema();
    let table = MemTable::try_new(schema, partitions).expect("batches of one schema");
    context.register_table("t", Arc::new(table)).expect("a new table");
    context
}

/// A session with a table `t` of one batch of these columns.
fn table(columns: Vec<(&str, ArrayRef)>) -> SessionContext {
    session(vec![vec![RecordBatch::try_from_iter(columns).expect("columns of one length")]])
}

/// All rows of the result.
async fn query(context: &SessionContext, sql: &str) -> Result<RecordBatch> {
    let frame = context.sql(sql).await?;
    let schema = Arc::new(frame.schema().as_arrow().clone());
    Ok(concat_batches(&schema, &frame.collect().await?)?)
}

/// The numbers of the last column.
async fn scores(context: &SessionContext, sql: &str) -> Result<Vec<f32>> {
    let batch = query(context, sql).await?;
    Ok(floats(batch.columns().last().expect("a column")))
}

fn floats(array: &dyn Array) -> Vec<f32> {
    assert_eq!(array.null_count(), 0);
    array.as_primitive::<Float32Type>().values().to_vec()
}

fn float_column(values: impl IntoIterator<Item = f32>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<Float32Array>())
}

fn tensor<const D: usize>(values: Vec<f32>, dims: [usize; D]) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(values, dims), &Default::default())
}

fn config(name: &str) -> ScoringFunctionConfig {
    ScoringFunctionConfig::new(name)
}

/// Columns `id`, `a`, `b`, `c` of some rows, from a row on.
fn abc(start: usize, rows: usize) -> RecordBatch {
    let number = |row: usize, column: usize| ((row * 7 + column * 3) % 11) as f32 / 4.0 - 1.0;
    let column = |column| float_column((start..start + rows).map(|row| number(row, column)));
    let id: ArrayRef = Arc::new(
        (start..start + rows).map(|row| row as i64).collect::<datafusion::arrow::array::Int64Array>(),
    );
    let columns = vec![("id", id), ("a", column(0)), ("b", column(1)), ("c", column(2))];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

/// The scores of a model alone on columns `a`, `b`, `c` of the whole table.
fn alone(model: &Linear<B>, context_rows: usize) -> Vec<f32> {
    let batch = abc(0, context_rows);
    let columns: Vec<_> = (1..4).map(|column| floats(batch.column(column))).collect();
    let rows = (0..context_rows).flat_map(|row| columns.iter().map(move |column| column[row]));
    let x = tensor(rows.collect(), [context_rows, 3]);
    model.forward(x).into_data().iter().collect()
}

fn linear(from: usize, to: usize) -> Linear<B> {
    LinearConfig::new(from, to).init(&Default::default())
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{found} is not {expected}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_are_those_of_the_model_alone_over_partitions_and_batches() {
    let model = linear(3, 1);
    let expected = alone(&model, 1000);
    let context =
        session(vec![vec![abc(0, 300), abc(300, 1)], vec![abc(301, 0), abc(301, 399)], vec![abc(700, 300)]]);
    let config =
        config("score").with_input(Input::columns(["x", "y", "z"])).with_output(Output::number("score"));
    let udf = config
        .with_max_batch_size(128)
        .init(&Default::default(), move |x: Tensor<B, 2>| model.forward(x))
        .expect("a function");
    context.register_udf(udf);
    let found = query(&context, "SELECT id, score(a, b, c) FROM t ORDER BY id").await.expect("scores");
    assert_eq!(found.column(0).as_primitive::<Int64Type>().values()[999], 999);
    assert_close(&floats(found.column(1)), &expected);

    let named = "SELECT score(z => c, x => a, y => b) FROM t ORDER BY id";
    assert_close(&scores(&context, named).await.expect("scores"), &expected);
    let above = "SELECT count(*) FROM t WHERE score(a, b, c) > 0";
    let count = query(&context, above).await.expect("a count");
    let positive = expected.iter().filter(|score| **score > 0.0).count();
    assert_eq!(count.column(0).as_primitive::<Int64Type>().value(0), positive as i64);
}

#[tokio::test]
async fn data_frames_call_it_too() {
    let model = linear(3, 1);
    let expected = alone(&model, 40);
    let context = session(vec![vec![abc(0, 40)]]);
    let udf = config("score")
        .with_input(Input::columns(["a", "b", "c"]))
        .with_output(Output::number("score"))
        .init(&Default::default(), move |x: Tensor<B, 2>| model.forward(x))
        .expect("a function");
    let frame = context.table("t").await.expect("a table");
    let frame = frame.with_column("score", udf.call(vec![col("a"), col("b"), col("c")])).expect("a column");
    let frame = frame.filter(col("score").gt(col("a"))).expect("a filter");
    let batches = frame.select_columns(&["a", "score"]).expect("columns").collect().await.expect("scores");
    let found: Vec<f32> = batches.iter().flat_map(|batch| floats(batch.column(1))).collect();
    let a = floats(abc(0, 40).column(1));
    let above = expected.into_iter().zip(a).filter(|(score, a)| score > a).map(|(score, _)| score);
    assert_close(&found, &above.collect::<Vec<_>>());
}

#[tokio::test]
async fn literals_are_scored_once_and_stand_beside_columns() {
    let model = linear(3, 1);
    let x = tensor(vec![1.0, 0.5, -2.0, 1.0, 0.5, 0.25], [2, 3]);
    let expected: Vec<f32> = model.forward(x).into_data().iter().collect();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    let context = table(vec![("c", float_column([-2.0, 0.25]))]);
    let udf = config("score")
        .with_input(Input::columns(["a", "b", "c"]))
        .with_output(Output::number("score"))
        .init(&Default::default(), move |x: Tensor<B, 2>| {
            seen.lock().expect("no panic").push(x.dims());
            model.forward(x)
        })
        .expect("a function");
    context.register_udf(udf);
    let found = scores(&context, "SELECT score(1, 0.5, c) FROM t").await.expect("scores");
    assert_close(&found, &expected);
    let found = scores(&context, "SELECT score(CAST(1 AS TINYINT), 0.5, -2) FROM t").await.expect("scores");
    assert_close(&found, &[expected[0]; 2]);
    assert_eq!(*calls.lock().expect("no panic"), [[2, 3], [1, 3]]);
}

/// What a config is given as sizes of batches.
type Sizes = fn(ScoringFunctionConfig) -> ScoringFunctionConfig;

#[tokio::test]
async fn batches_are_scored_in_parts() {
    let cases: [(&str, Sizes, &[usize]); 5] = [
        ("default", |config| config, &[10]),
        ("at most 4", |config| config.with_max_batch_size(4), &[4, 4, 2]),
        ("at most 5", |config| config.with_max_batch_size(5), &[5, 5]),
        ("exactly 4", |config| config.with_exact_batch_size(4), &[4, 4, 4]),
        ("exactly 16", |config| config.with_exact_batch_size(16), &[16]),
    ];
    for (name, sizes, expected) in cases {
        let found = Arc::new(Mutex::new(Vec::new()));
        let seen = found.clone();
        let context = table(vec![("a", float_column((0..10).map(|row| row as f32)))]);
        let config =
            sizes(config("score").with_input(Input::columns(["a"])).with_output(Output::number("score")));
        let udf = config
            .init(&Default::default(), move |x: Tensor<B, 1>| {
                seen.lock().expect("no panic").push(x.dims()[0]);
                x.mul_scalar(2.0)
            })
            .expect("a function");
        context.register_udf(udf);
        let scores = scores(&context, "SELECT score(a) FROM t").await.expect("scores");
        assert_eq!(scores, (0..10).map(|row| row as f32 * 2.0).collect::<Vec<_>>(), "{name}");
        assert_eq!(*found.lock().expect("no panic"), expected, "{name}");
    }
}

#[tokio::test]
async fn a_table_without_rows_has_no_scores() {
    let context = table(vec![("a", float_column([]))]);
    let udf = config("score")
        .with_input(Input::columns(["a"]))
        .with_output(Output::list("score", [2]))
        .init(&Default::default(), |_: Tensor<B, 1>| -> Tensor<B, 2> { panic!("there is nothing to score") })
        .expect("a function");
    context.register_udf(udf);
    let found = query(&context, "SELECT score(a) FROM t").await.expect("no scores");
    assert_eq!((found.num_rows(), found.num_columns()), (0, 1));
}
