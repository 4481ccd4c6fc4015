//! Rows in which something is missing.

use crate::errors::problem;
use crate::{B, config, query, scores, table};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, Float64Array, Int32Array, ListArray,
    StructArray,
};
use datafusion::arrow::datatypes::{Float32Type, Int32Type, Int64Type};
use datafusion::prelude::SessionContext;
use kiln_core::Tensor;
use kiln_core::tensor::{DType, Int, Scalar};
use kiln_datafusion::{Input, Nulls, Output, Problem};
use std::sync::Arc;

/// Rows 1 and 3 have nulls among `a` and `b`; of `x`, row 1 is null, and row 2 has a null among its elements.
fn rows() -> SessionContext {
    let a: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(3.0), Some(4.0), Some(5.0)]));
    let b: ArrayRef = Arc::new(Int32Array::from(vec![Some(10), Some(20), Some(30), None, Some(50)]));
    let list = |numbers: [i32; 2]| Some(numbers.map(Some).to_vec());
    let x = || [list([1, 2]), None, Some(vec![Some(5), None]), list([7, 8]), list([9, 10])];
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(x()));
    let fixed: ArrayRef = Arc::new(FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(x(), 2));
    table(vec![("a", a), ("b", b), ("x", lists), ("fixed", fixed)])
}

/// Functions `sums` of two columns and `pairs` of a list, which have no scores for rows that are zeros.
fn register(context: &SessionContext, nulls: Nulls) {
    let check =
        |x: &Tensor<B, 2>| assert!(x.clone().sum_dim(1).into_data().iter::<f32>().all(|sum| sum != 0.0));
    let sums = config("sums").with_nulls(nulls).with_max_batch_size(2);
    let sums = sums.with_input(Input::columns(["a", "b"])).with_output(Output::number("sum"));
    let sums = sums.init(&Default::default(), move |x: Tensor<B, 2>| {
        check(&x);
        x.sum_dim(1)
    });
    context.register_udf(sums.expect("a function"));
    let pairs = config("pairs").with_nulls(nulls).with_exact_batch_size(2);
    let pairs =
        pairs.with_input(Input::list("x")).with_output(Output::list("pair", [2]).with_dtype(DType::I32));
    let pairs = pairs.init(&Default::default(), |x: Tensor<B, 2, Int>| x + 1);
    context.register_udf(pairs.expect("a function"));
}

#[tokio::test]
async fn nulls_are_errors_that_name_argument_and_row() {
    let context = rows();
    register(&context, Nulls::Error);
    let cases = [
        ("sums(a, 1)", "a", 1),
        ("sums(1, b)", "b", 3),
        ("sums(a, b)", "a", 1),
        ("sums(1, NULL)", "b", 0),
        ("pairs(x)", "x", 1),
        ("pairs(fixed)", "x", 1),
    ];
    for (call, column, row) in cases {
        let error = query(&context, &format!("SELECT {call} FROM t")).await.expect_err("a null is no number");
        let found = problem(&error);
        let Some(Problem::Null { column: found, row: place, .. }) = found else {
            panic!("{error}: {found:?}");
        };
        assert_eq!((&**found, *place), (column, row), "{call}");
    }
    let error = query(&context, "SELECT pairs(x) FROM t WHERE a > 2 OR a IS NULL AND FALSE").await;
    let error = error.expect_err("an element is null");
    assert!(matches!(problem(&error), Some(Problem::Null { row: 0, rows: 3, .. })), "{error}");
    let whole = "SELECT sums(a, b) FROM t WHERE a IS NOT NULL AND b IS NOT NULL";
    assert_eq!(scores(&context, whole).await.expect("scores"), [11.0, 33.0, 55.0]);
    assert_eq!(scores(&context, "SELECT sums(coalesce(a, 0.5), 1) FROM t").await.expect("scores")[1], 1.5);
}

#[tokio::test]
async fn nulls_are_filled() {
    let context = rows();
    register(&context, Nulls::Fill(Scalar::Int(-1)));
    let found = scores(&context, "SELECT sums(a, b) FROM t").await.expect("scores");
    assert_eq!(found, [11.0, 19.0, 33.0, 3.0, 55.0]);
    assert_eq!(scores(&context, "SELECT sums(NULL, 3)").await.expect("scores"), [2.0]);
    for column in ["x", "fixed"] {
        let found = query(&context, &format!("SELECT pairs({column}) FROM t")).await.expect("scores");
        let pairs = found.column(0).as_fixed_size_list();
        let numbers = pairs.values().as_primitive::<Int32Type>().values().to_vec();
        assert_eq!((pairs.null_count(), numbers), (0, vec![2, 3, 0, 0, 6, 0, 8, 9, 10, 11]), "{column}");
    }
    let error =
        query(&context, "SELECT pairs(x) FROM t WHERE a IS NULL").await.expect_err("no list has elements");
    assert!(matches!(problem(&error), Some(Problem::UnknownDims { .. })), "{error}");
}

#[tokio::test]
async fn trees_take_nan_for_what_is_missing() {
    let context = rows();
    let nan = config("score").with_nulls(Nulls::Fill(Scalar::Float(f64::NAN)));
    let nan =
        nan.with_input(Input::columns(["a"])).with_output(Output::number("score").with_dtype(DType::Bool));
    context.register_udf(nan.init(&Default::default(), |x: Tensor<B, 1>| x.is_nan()).expect("a function"));
    let found = query(&context, "SELECT score(a) FROM t").await.expect("scores");
    assert_eq!(found.column(0).as_boolean(), &BooleanArray::from(vec![false, true, false, false, false]));
}

#[tokio::test]
async fn nulls_have_null_scores() {
    let context = rows();
    register(&context, Nulls::Propagate);
    let found = query(&context, "SELECT sums(a, b) AS s FROM t").await.expect("scores");
    assert!(found.schema().field(0).is_nullable());
    let sums: Vec<_> = found.column(0).as_primitive::<Float32Type>().iter().collect();
    assert_eq!(sums, [Some(11.0), None, Some(33.0), None, Some(55.0)]);
    for column in ["x", "fixed"] {
        let found = query(&context, &format!("SELECT pairs({column}) FROM t")).await.expect("scores");
        let pairs = found.column(0).as_fixed_size_list();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|pair| pair.map(|pair| pair.as_primitive::<Int32Type>().values().to_vec()))
            .collect();
        assert_eq!(pairs, [Some(vec![2, 3]), None, None, Some(vec![8, 9]), Some(vec![10, 11])], "{column}");
    }
    let count =
        query(&context, "SELECT count(sums(a, NULL)), count(sums(a, b)), count(pairs(x)) FROM t").await;
    let counts = count.expect("counts");
    let counts: Vec<_> =
        counts.columns().iter().map(|count| count.as_primitive::<Int64Type>().value(0)).collect();
    assert_eq!(counts, [0, 3, 3]);
}

#[tokio::test]
async fn structs_are_null_with_all_their_fields() {
    let context = rows();
    let both = config("both").with_nulls(Nulls::Propagate).with_input(Input::columns(["a"]));
    let both = both.with_output(Output::number("double")).with_output(Output::list("pair", [2]));
    let both = both.init(&Default::default(), |x: Tensor<B, 2>| {
        let pair = Tensor::cat(vec![x.clone(), x.clone()], 1);
        (x.mul_scalar(2.0), pair)
    });
    context.register_udf(both.expect("a function"));
    let found = query(&context, "SELECT both(a) FROM t").await.expect("scores");
    let found: &StructArray = found.column(0).as_struct();
    assert!(found.is_null(1) && found.null_count() == 1);
    assert!(found.columns().iter().all(|column| column.is_null(1) && column.null_count() == 1));
    let doubles =
        query(&context, "SELECT count(get_field(both(a), 'double')) FROM t").await.expect("a count");
    assert_eq!(doubles.column(0).as_primitive::<Int64Type>().value(0), 4);
}
