//! Numbers go through columns, tensors and columns again, whatever their nulls, slices and parts are.

use crate::{B, config, floats, query, session};
use datafusion::arrow::array::{ArrayRef, AsArray, Float32Array, ListArray, RecordBatch};
use datafusion::arrow::datatypes::Float32Type;
use kiln_core::Tensor;
use kiln_datafusion::{Input, Nulls, Output};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use std::sync::Arc;
use tokio::runtime::Builder;

/// Runs a query of a function that yields what it is given, over batches of a slice of the table.
fn identity(
    columns: Vec<(String, ArrayRef)>,
    input: Input,
    width: usize,
    cut: (usize, usize),
    exact: bool,
) -> RecordBatch {
    let (offset, size) = cut;
    let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let offset = offset.min(batch.num_rows());
    let batch = batch.slice(offset, batch.num_rows() - offset);
    let middle = batch.num_rows() / 2;
    let parts = vec![batch.slice(0, middle), batch.slice(middle, batch.num_rows() - middle)];
    let context = session(vec![parts]);
    let config = config("same")
        .with_nulls(Nulls::Propagate)
        .with_input(input)
        .with_output(Output::list("same", [width]));
    let config = if exact { config.with_exact_batch_size(size) } else { config.with_max_batch_size(size) };
    context.register_udf(config.init(&Default::default(), |x: Tensor<B, 2>| x).expect("a function"));
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let sql = format!("SELECT same({}) FROM t", names.join(", "));
    runtime.block_on(query(&context, &sql)).expect("scores")
}

/// Rows of the result.
fn rows(batch: &RecordBatch) -> Vec<Option<Vec<f32>>> {
    batch.column(0).as_fixed_size_list().iter().map(|row| row.map(|row| floats(&row))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn columns_come_back(
        table in (1..4_usize).prop_flat_map(|width| vec(vec(weighted(0.9, -1e6..1e6_f32), width), 0..20)),
        offset in 0..4_usize,
        size in 1..9_usize,
        exact: bool,
    ) {
        let width = table.first().map_or(1, Vec::len);
        let column = |column: usize| -> ArrayRef {
            Arc::new(table.iter().map(|row| row[column]).collect::<Float32Array>())
        };
        let columns: Vec<_> = (0..width).map(|place| (format!("c{place}"), column(place))).collect();
        let input = Input::columns(columns.iter().map(|(name, _)| name));
        let found = identity(columns, input, width, (offset, size), exact);
        let expected = table.iter().skip(offset).map(|row| row.iter().copied().collect::<Option<Vec<_>>>());
        prop_assert_eq!(rows(&found), expected.collect::<Vec<_>>());
    }

    #[test]
    fn lists_come_back(
        table in vec(weighted(0.8, vec(weighted(0.9, -1e6..1e6_f32), 3)), 0..20),
        offset in 0..4_usize,
        size in 1..9_usize,
        exact: bool,
    ) {
        let lists = ListArray::from_iter_primitive::<Float32Type, _, _>(table.clone());
        let columns = vec![("x".to_owned(), Arc::new(lists) as ArrayRef)];
        let found = identity(columns, Input::list("x"), 3, (offset, size), exact);
        let whole = |row: &Vec<Option<f32>>| row.iter().copied().collect::<Option<Vec<_>>>();
        let expected = table.iter().skip(offset).map(|row| row.as_ref().and_then(whole));
        prop_assert_eq!(rows(&found), expected.collect::<Vec<_>>());
    }
}
