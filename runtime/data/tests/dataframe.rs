//! Datasets in data frames: rows become items through serde, and what does not fit is named.
#![cfg(feature = "dataframe")]

use kiln_data::dataset::polars::df;
use kiln_data::dataset::polars::prelude::{Column, DataFrame, NamedFrom, Series};
use kiln_data::dataset::transform::ShuffledDataset;
use kiln_data::dataset::{DataframeDataset, Dataset};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Item {
    name: String,
    count: u16,
    weight: f32,
    good: bool,
    maybe: Option<i64>,
    bytes: Vec<u8>,
    list: Vec<Option<f32>>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Cat,
    Dog,
}

fn frame() -> DataFrame {
    let lists =
        [Series::new("".into(), [Some(1.5_f64), None]), Series::new("".into(), Vec::<Option<f64>>::new())];
    let mut frame = df!(
        "kind" => ["dog", "cat"],
        "ignored" => [Some("x"), None],
        "count" => [7_i64, 65535],
        "name" => ["a", "b"],
        "weight" => [1.5_f64, -2.0],
        "good" => [true, false],
        "maybe" => [None, Some(-3_i32)],
    )
    .expect("a frame");
    let bytes: [&[u8]; 2] = [&[1, 2], &[]];
    frame.with_column(Series::new("bytes".into(), bytes)).expect("a column");
    frame.with_column(Series::new("list".into(), lists)).expect("a column");
    frame
}

fn items() -> [Item; 2] {
    let item = |name: &str, count, weight, good, maybe, bytes: &[u8], list: &[Option<f32>], kind| Item {
        name: name.into(),
        count,
        weight,
        good,
        maybe,
        bytes: bytes.into(),
        list: list.into(),
        kind,
    };
    [
        item("a", 7, 1.5, true, None, &[1, 2], &[Some(1.5), None], Kind::Dog),
        item("b", 65535, -2.0, false, Some(-3), &[], &[], Kind::Cat),
    ]
}

#[test]
fn columns_are_fields() {
    let dataset = DataframeDataset::<Item>::new(frame()).expect("a dataset");
    assert_eq!(dataset.iter().collect::<Vec<_>>(), items());
    assert_eq!((dataset.len(), dataset.get(2), dataset.get(usize::MAX)), (2, None, None));
    assert_eq!(dataset.frame().width(), 9);
    assert!(DataframeDataset::<Item>::new(DataFrame::default()).expect("no rows").is_empty());
}

#[test]
fn frames_in_pieces_are_read() {
    let mut twice = frame();
    twice.vstack_mut(&frame()).expect("the same columns");
    let dataset = DataframeDataset::<Item>::new(twice.tail(Some(3))).expect("a dataset");
    let [a, b] = items();
    assert_eq!(dataset.iter().collect::<Vec<_>>(), [b.clone(), a, b]);
}

#[test]
fn rows_are_tuples_and_single_values() {
    let frame = df!("text" => ["a", "b"], "number" => [1_i32, 2]).expect("a frame");
    let pairs = DataframeDataset::<(String, f64)>::new(frame.clone()).expect("a dataset");
    assert_eq!(pairs.get(1), Some(("b".into(), 2.0)));
    #[derive(Clone, Debug, PartialEq, Deserialize)]
    struct Number(u8);
    let numbers = frame.select(["number"]).expect("a column");
    assert_eq!(DataframeDataset::<Number>::new(numbers.clone()).expect("a dataset").get(0), Some(Number(1)));
    assert_eq!(DataframeDataset::<Option<i8>>::new(numbers).expect("a dataset").get(1), Some(Some(2)));
    let error = DataframeDataset::<u8>::new(frame).expect_err("two columns").to_string();
    assert_eq!(error, "row 0 of the data frame: a single value is wanted of 2 columns");
}

#[test]
fn what_does_not_fit_is_named() {
    let error = |frame: DataFrame| match DataframeDataset::<Item>::new(frame) {
        Ok(dataset) => dataset.try_get(1).expect_err("an error").to_string(),
        Err(error) => error.to_string(),
    };
    let with = |column: Series| {
        let mut frame = frame();
        frame.with_column(column).expect("a column");
        frame
    };
    assert!(
        error(frame().drop("name").expect("dropped"))
            .contains("row 0 of the data frame: missing field `name`")
    );
    for (column, expected) in [
        (
            Series::new("count".into(), [1_i64, 65536]),
            "row 1 of the data frame: column \"count\": invalid value: integer `65536`",
        ),
        (
            Series::new("count".into(), [Some(1_i64), None]),
            "row 1 of the data frame: column \"count\": invalid type: unit value",
        ),
        (
            Series::new("good".into(), [1_i32, 0]),
            "row 0 of the data frame: column \"good\": invalid type: integer `1`",
        ),
        (Series::new("kind".into(), ["dog", "bird"]), "column \"kind\": unknown variant `bird`"),
        (Series::new("kind".into(), [1.0, 2.0]), "column \"kind\": the name of a variant is wanted"),
        (Series::new("bytes".into(), ["a", "b"]), "column \"bytes\": invalid type: string \"a\""),
    ] {
        let error = error(with(column));
        assert!(error.contains(expected), "{error} is not {expected}");
    }
}

#[test]
fn a_frame_is_a_dataset_like_any_other() {
    let frame =
        DataFrame::new(vec![Column::new("n".into(), (0..100_i64).collect::<Vec<_>>())]).expect("a frame");
    let dataset = ShuffledDataset::new(DataframeDataset::<i64>::new(frame).expect("a dataset"), 3);
    let mut numbers: Vec<i64> = std::thread::scope(|scope| {
        let parts = [0..50, 50..100]
            .map(|part| scope.spawn(|| part.filter_map(|n| dataset.get(n)).collect::<Vec<_>>()));
        parts.into_iter().flat_map(|part| part.join().expect("a part")).collect()
    });
    assert_ne!(numbers, (0..100).collect::<Vec<_>>());
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}
