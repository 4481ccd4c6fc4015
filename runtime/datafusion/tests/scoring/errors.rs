//! Configs, calls and models that are refused.

use crate::{B, abc, config, float_column, query, session, table};
use datafusion::arrow::array::{ArrayRef, FixedSizeListArray, StringArray};
use datafusion::arrow::datatypes::Float32Type;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ScalarUDF;
use kiln_core::Tensor;
use kiln_core::tensor::{DType, Int, Scalar};
use kiln_datafusion::{Input, Nulls, Output, Problem, ScoringError, ScoringFunctionConfig};
use std::fmt;
use std::sync::Arc;

/// What a query's error says is wrong.
pub fn problem(error: &DataFusionError) -> Option<&Problem> {
    match error.find_root() {
        DataFusionError::External(error) => error.downcast_ref::<ScoringError>().map(|error| &error.problem),
        _ => None,
    }
}

fn score(config: ScoringFunctionConfig) -> std::result::Result<ScalarUDF, ScoringError> {
    config.init(&Default::default(), |x: Tensor<B, 2>| x)
}

#[test]
fn configs_that_make_no_function() {
    let input = || Input::columns(["a", "b"]);
    let output = || Output::number("y");
    let with = |input, output| config("score").with_input(input).with_output(output);
    let cases = [
        (config("score").with_output(output()), "score: inputs is 0 in number: the closure has 1"),
        (config("score").with_input(input()), "outputs is 0 in number: the closure has 1"),
        (with(input(), output()).with_output(Output::number("z")), "outputs is 2 in number"),
        (with(input(), output()).with_max_batch_size(0), "batch size is 0"),
        (with(Input::columns(["a", "a"]), output()), "input is a: names must differ"),
        (with(Input::columns([""; 0]), output()), "the closure takes a tensor of rank 2"),
        (with(input().with_dims([2]), output()), "dims are those of lists"),
        (
            with(Input::list("x").with_dims([2, 2]), output()),
            "input is x with dims [2, 2]: dims are those of lists",
        ),
        (with(Input::list("x").with_dims([0]), output()), "at least 1 each"),
        (
            with(input().with_dtype(DType::I64), output()),
            "input is a, b of i64: the closure takes it as Float",
        ),
        (with(input(), output().with_dtype(DType::Bool)), "output is y of bool: the closure yields Float"),
        (with(input(), Output::list("y", [2, 2])), "the closure yields a tensor of rank 2"),
        (with(input(), Output::list("y", [0])), "dims are from 1"),
        (with(input(), output()).with_exact_batch_size(usize::MAX), "memory has no room for it"),
    ];
    for (config, expected) in cases {
        let error = score(config).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let fill = with(input(), output()).with_nulls(Nulls::Fill(Scalar::Float(0.5)));
    let error = fill.init(&Default::default(), |x: Tensor<B, 2, Int>| x).expect_err("no integer is a half");
    assert_eq!(error.to_string(), "score: nulls is 0.5: the input a, b is of i64, which does not hold that");
}

#[tokio::test]
async fn calls_that_are_not_planned() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["one"]));
    let pair = [Some(vec![Some(1.0), Some(2.0)])];
    let pair: ArrayRef = Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(pair, 2));
    let context = table(vec![("a", float_column([1.0])), ("text", text), ("pair", pair)]);
    let of_columns = config("score").with_input(Input::columns(["x", "y"])).with_output(Output::number("z"));
    context.register_udf(score(of_columns).expect("a function"));
    let of_ids = config("ids").with_input(Input::columns(["id"])).with_output(Output::number("z"));
    context.register_udf(of_ids.init(&Default::default(), |x: Tensor<B, 1, Int>| x).expect("a function"));
    let of_list =
        config("list").with_input(Input::list("x").with_dims([3])).with_output(Output::list("z", [3]));
    context.register_udf(score(of_list).expect("a function"));
    let cases = [
        ("score(a)", "score: it was called with 1 arguments and takes 2: x, y"),
        ("score(a, a, a)", "it was called with 3 arguments and takes 2: x, y"),
        ("score(a, text)", "the argument `y` is of type Utf8"),
        ("score(a, pair)", "the argument `y` is of type FixedSizeList"),
        ("ids(a)", "the argument `id` is of type Float32: the model takes i64"),
        ("list(a)", "the argument `x` is of type Float32: the model takes a tensor of rank 2"),
        ("list(pair)", "its lists have 2 elements, and the input takes 3"),
        ("score(a, z => a)", "z"),
    ];
    for (call, expected) in cases {
        let error = context.sql(&format!("SELECT {call} FROM t")).await.expect_err(expected).to_string();
        assert!(error.contains(expected), "{call}: {error}");
    }
}

/// The error of a query of a model that takes columns `a` and `b`.
async fn error_of<const D: usize, E: std::error::Error + Send + Sync + 'static>(
    output: Output,
    forward: impl Fn(Tensor<B, 2>) -> std::result::Result<Tensor<B, D>, E> + Send + Sync + 'static,
) -> DataFusionError {
    let context = session(vec![vec![abc(0, 5)], vec![abc(5, 5)]]);
    let config = config("score").with_input(Input::columns(["a", "b"])).with_output(output);
    context.register_udf(config.init_fallible(&Default::default(), forward).expect("a function"));
    query(&context, "SELECT score(a, b) FROM t").await.expect_err("the model fails")
}

#[tokio::test]
async fn models_that_fail_fail_the_query() {
    let panicked = error_of(Output::number("y"), |x: Tensor<B, 2>| -> Result<Tensor<B, 2>, fmt::Error> {
        panic!("{} rows are too many", x.dims()[0])
    });
    let panicked = panicked.await;
    assert!(
        matches!(problem(&panicked), Some(Problem::Panicked { message }) if message == "5 rows are too many"),
        "{panicked}"
    );
    // What the runtime refuses, too.
    let shapes = error_of(Output::number("y"), |x: Tensor<B, 2>| Ok::<_, fmt::Error>(x.clone().matmul(x)));
    assert!(matches!(problem(&shapes.await), Some(Problem::Panicked { .. })));
    let returned = error_of(Output::number("y"), |_| Err::<Tensor<B, 2>, _>(fmt::Error)).await;
    assert!(matches!(problem(&returned), Some(Problem::Model(_))), "{returned}");
    assert!(returned.to_string().contains("score: the model returned an error"), "{returned}");
}

#[tokio::test]
async fn other_shapes_than_declared_are_errors() {
    let same = |x: Tensor<B, 2>| Ok::<_, fmt::Error>(x);
    let error = error_of(Output::number("y"), same).await.to_string();
    let expected =
        "score: the model's output `y` is of shape [5, 2] where [5] was declared; lists are declared by";
    assert!(error.contains(expected), "{error}");
    let error = error_of(Output::list("y", [3]), same).await.to_string();
    assert!(error.contains("is of shape [5, 2] where [5, 3] was declared"), "{error}");
    let error =
        error_of(Output::list("y", [2]), |x: Tensor<B, 2>| Ok::<_, fmt::Error>(x.narrow(0, 0, 1))).await;
    assert!(
        matches!(problem(&error), Some(Problem::OutputShape { actual, .. }) if *actual == [1, 2]),
        "{error}"
    );
}

#[tokio::test]
async fn numbers_that_the_column_does_not_hold_are_errors() {
    let context = table(vec![("a", float_column([1.0, 300.0]))]);
    let output = Output::number("y").with_dtype(DType::U8);
    let config = config("score").with_input(Input::columns(["a"])).with_output(output);
    context.register_udf(config.init(&Default::default(), |x: Tensor<B, 2>| x.int()).expect("a function"));
    let error = query(&context, "SELECT score(a) FROM t").await.expect_err("300 is more than a byte holds");
    assert!(
        error.to_string().contains("score: the model's output `y` is 300, which u8 does not hold"),
        "{error}"
    );
}
