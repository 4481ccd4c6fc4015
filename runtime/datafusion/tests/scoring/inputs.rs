//! What tensors are made of: columns of every type, lists, several inputs.

use crate::{B, config, float_column, floats, query, scores, table};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, Float32Array, LargeListArray, ListArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Int64Type, UInt8Type};
use kiln_core::Tensor;
use kiln_core::tensor::{Bool, DType, Int, TensorData};
use kiln_datafusion::{Input, Output, Problem};
use std::sync::{Arc, Mutex};

const NUMBERS: [DataType; 11] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float16,
    DataType::Float32,
    DataType::Float64,
];

fn column(values: &[f32], data_type: &DataType) -> ArrayRef {
    cast(&float_column(values.iter().copied()), data_type).expect("numbers that the type holds")
}

/// The data of the tensor that a closure was given.
fn remember() -> (Arc<Mutex<Option<TensorData>>>, impl Fn(TensorData)) {
    let seen = Arc::new(Mutex::new(None));
    let remembered = seen.clone();
    (seen, move |data| *remembered.lock().expect("no panic") = Some(data))
}

#[tokio::test]
async fn columns_of_every_type_make_floats_of_every_dtype() {
    let values = [0.0, 1.0, 5.0, 127.0];
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        for data_type in &NUMBERS {
            let context =
                table(vec![("a", column(&values, data_type)), ("b", float_column([1.0, 2.0, 3.0, 4.0]))]);
            let (seen, remember) = remember();
            let udf = config("score")
                .with_input(Input::columns(["a", "b"]).with_dtype(dtype))
                .with_output(Output::number("score"))
                .init(&Default::default(), move |x: Tensor<B, 2>| {
                    remember(x.to_data());
                    x.sum_dim(1).cast(DType::F32)
                })
                .expect("a function");
            context.register_udf(udf);
            let found = scores(&context, "SELECT score(a, b) FROM t").await.expect("scores");
            assert_eq!(found, [1.0, 3.0, 8.0, 131.0], "{data_type} as {dtype}");
            let seen = seen.lock().expect("no panic").take().expect("it ran");
            assert_eq!((seen.dtype, seen.shape), (dtype, vec![4, 2]));
        }
    }
}

#[tokio::test]
async fn columns_of_integers_make_integers_of_every_dtype() {
    let values = [0.0, 1.0, 5.0, 127.0];
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int() && !dtype.is_packed()) {
        for data_type in NUMBERS.iter().filter(|data_type| data_type.is_integer()) {
            let context =
                table(vec![("a", column(&values, data_type)), ("b", column(&values, &DataType::Int16))]);
            let (seen, remember) = remember();
            let udf = config("score")
                .with_input(Input::columns(["a", "b"]).with_dtype(dtype))
                .with_output(Output::number("score"))
                .init(&Default::default(), move |x: Tensor<B, 2, Int>| {
                    remember(x.to_data());
                    x.cast(DType::I64).sum_dim(1)
                })
                .expect("a function");
            context.register_udf(udf);
            let found = query(&context, "SELECT score(a, b) FROM t").await.expect("scores");
            let found = found.column(0).as_primitive::<Int64Type>().values().to_vec();
            assert_eq!(found, [0, 2, 10, 254], "{data_type} as {dtype}");
            assert_eq!(seen.lock().expect("no panic").take().expect("it ran").dtype, dtype);
        }
    }
}

#[tokio::test]
async fn booleans_are_numbers_and_booleans() {
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
    let context = table(vec![("f", flags)]);
    let of_float = config("of_float").with_input(Input::columns(["f"])).with_output(Output::number("score"));
    let of_float = of_float.init(&Default::default(), |x: Tensor<B, 2>| x.mul_scalar(3.0));
    context.register_udf(of_float.expect("a function"));
    let of_bool = config("of_bool").with_input(Input::columns(["f"])).with_output(Output::number("score"));
    let of_bool = of_bool.init(&Default::default(), |x: Tensor<B, 1, Bool>| x.bool_not());
    context.register_udf(of_bool.expect("a function"));
    assert_eq!(scores(&context, "SELECT of_float(f) FROM t").await.expect("scores"), [3.0, 0.0, 3.0]);
    let found = query(&context, "SELECT of_bool(f) FROM t").await.expect("scores");
    assert_eq!(found.column(0).as_boolean(), &BooleanArray::from(vec![false, true, false]));
}

#[tokio::test]
async fn decimals_and_dictionaries_are_converted_by_the_query() {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Float32));
    let numbers = float_column([1.5, 1.5, 2.0]);
    let decimals = cast(&numbers, &DataType::Decimal128(10, 2)).expect("decimals");
    let context = table(vec![("d", decimals), ("e", cast(&numbers, &dictionary).expect("a dictionary"))]);
    let udf = config("score").with_input(Input::columns(["d", "e"])).with_output(Output::number("score"));
    let udf = udf.init(&Default::default(), |x: Tensor<B, 2>| x.sum_dim(1));
    context.register_udf(udf.expect("a function"));
    assert_eq!(scores(&context, "SELECT score(d, e) FROM t").await.expect("scores"), [3.0, 3.0, 4.0]);
}

/// Six numbers a row: as a flat list of each kind, and as two lists of three.
fn lists() -> Vec<(&'static str, ArrayRef)> {
    let numbers = || (0..24).map(|number| Some(number as f32));
    let flat = || numbers().collect::<Vec<_>>();
    let rows = || flat().chunks(6).map(<[_]>::to_vec).map(Some).collect::<Vec<_>>();
    let small = ListArray::from_iter_primitive::<Float32Type, _, _>(rows());
    let large = LargeListArray::from_iter_primitive::<Float32Type, _, _>(rows());
    let fixed = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows(), 6);
    let inner = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(
        flat().chunks(3).map(<[_]>::to_vec).map(Some).collect::<Vec<_>>(),
        3,
    );
    let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
    let nested = FixedSizeListArray::new(field, 2, Arc::new(inner), None);
    // The same of lists whose lengths the type does not tell.
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let item = Arc::new(Field::new_list_field(DataType::List(item), true));
    let loose = cast(&nested, &DataType::LargeList(item)).expect("lists");
    vec![
        ("small", Arc::new(small)),
        ("large", Arc::new(large)),
        ("fixed", Arc::new(fixed)),
        ("nested", Arc::new(nested)),
        ("loose", loose),
    ]
}

#[tokio::test]
async fn lists_make_tensors_of_any_rank() {
    let context = table(lists());
    // The sum of a row says which numbers it has, the products with its columns in which order.
    let by_rows = |x: Tensor<B, 3>| {
        assert_eq!(x.dims()[1..], [2, 3]);
        x.mul(Tensor::from_data([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]], &Default::default()))
            .sum_dim(2)
            .sum_dim(1)
            .flatten::<2>(1, 2)
    };
    let shaped =
        config("shaped").with_input(Input::list("x").with_dims([2, 3])).with_output(Output::number("score"));
    context
        .register_udf(shaped.with_max_batch_size(3).init(&Default::default(), by_rows).expect("a function"));
    let free = config("free").with_input(Input::list("x")).with_output(Output::number("score"));
    context
        .register_udf(free.with_exact_batch_size(3).init(&Default::default(), by_rows).expect("a function"));
    let row = |row: usize| (0..6).map(|number| ((row * 6 + number) * (number + 1)) as f32).sum::<f32>();
    let expected: Vec<f32> = (0..4).map(row).collect();
    for (name, _) in lists() {
        let found = scores(&context, &format!("SELECT shaped({name}) FROM t")).await.expect("scores");
        assert_eq!(found, expected, "{name}");
    }
    for name in ["nested", "loose"] {
        let found = scores(&context, &format!("SELECT free({name}) FROM t")).await.expect("scores");
        assert_eq!(found, expected, "{name}");
    }
    let limited = "SELECT free(nested) FROM (SELECT nested FROM t LIMIT 2 OFFSET 1)";
    assert_eq!(scores(&context, limited).await.expect("scores"), expected[1..3]);
}

#[tokio::test]
async fn what_lies_as_the_tensor_has_it_is_not_copied() {
    let numbers = Float32Array::from((0..32).map(|number| number as f32).collect::<Vec<_>>());
    let start = numbers.values().as_ptr() as usize;
    let field = Arc::new(Field::new_list_field(DataType::Float32, false));
    let lists: ArrayRef = Arc::new(FixedSizeListArray::new(field, 4, Arc::new(numbers), None));
    let found = Arc::new(Mutex::new(Vec::new()));
    let seen = found.clone();
    let context = table(vec![("x", lists)]);
    let udf = config("score").with_input(Input::list("x")).with_output(Output::number("score"));
    let udf = udf.with_max_batch_size(4).init(&Default::default(), move |x: Tensor<B, 2>| {
        let data = x.into_data();
        seen.lock().expect("no panic").push(data.as_bytes().as_ptr() as usize);
        // What the model writes in place is memory of its own.
        Tensor::<B, 2>::from_data(data, &Default::default()).mul_scalar(2.0).sum_dim(1)
    });
    context.register_udf(udf.expect("a function"));
    let expected: Vec<f32> = (0..8).map(|row| (row * 32 + 12) as f32).collect();
    for _ in 0..2 {
        assert_eq!(scores(&context, "SELECT score(x) FROM t").await.expect("scores"), expected);
    }
    assert_eq!(*found.lock().expect("no panic"), [start, start + 64, start, start + 64]);
}

#[tokio::test]
async fn models_have_several_inputs() {
    let ids = ListArray::from_iter_primitive::<UInt8Type, _, _>(
        [[1, 2, 3], [4, 5, 6]].map(|row| Some(row.map(Some).to_vec())),
    );
    let mask: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", float_column([0.5, 0.25])),
        ("ids", Arc::new(ids)),
        ("mask", mask),
        ("b", float_column([10.0, 20.0])),
    ];
    let context = table(columns);
    let udf = config("score")
        .with_input(Input::columns(["a", "b"]))
        .with_input(Input::list("ids"))
        .with_input(Input::columns(["mask"]))
        .with_output(Output::number("score"))
        .init(&Default::default(), |(x, ids, mask): (Tensor<B, 2>, Tensor<B, 2, Int>, Tensor<B, 1, Bool>)| {
            let sums = x.sum_dim(1) + ids.to_float(DType::F32).sum_dim(1);
            sums.flatten::<1>(0, 1).mask_fill(mask.bool_not(), -1.0)
        })
        .expect("a function");
    context.register_udf(udf);
    let named = "SELECT score(a, mask => mask, b => b, ids => ids) FROM t";
    for sql in ["SELECT score(a, b, ids, mask) FROM t", named] {
        assert_eq!(scores(&context, sql).await.expect("scores"), [16.5, -1.0]);
    }
}

#[tokio::test]
async fn numbers_that_the_dtype_does_not_hold_are_errors() {
    let cases: [(DataType, &[f32], DType, &str); 5] = [
        (DataType::Int64, &[1.0, -1.0], DType::U8, "the argument `a` is -1 in row 1, which u8 does not hold"),
        (DataType::UInt16, &[300.0], DType::I8, "the argument `a` is 300 in row 0, which i8 does not hold"),
        (
            DataType::Float32,
            &[0.0, 0.0, 7e4],
            DType::F16,
            "the argument `a` is 70000 in row 2, which f16 does not hold",
        ),
        (DataType::UInt32, &[7e4], DType::F16, "the argument `a` is 70000 in row 0, which f16 does not hold"),
        (DataType::Float32, &[f32::INFINITY, 1.0], DType::F16, ""),
    ];
    for (data_type, values, dtype, expected) in cases {
        let context = table(vec![("a", column(values, &data_type))]);
        let input = Input::columns(["a"]).with_dtype(dtype);
        let config =
            config("score").with_input(input).with_output(Output::number("score")).with_max_batch_size(2);
        let udf = match dtype.is_float() {
            true => config.init(&Default::default(), |x: Tensor<B, 2>| x.cast(DType::F32)),
            false => config.init(&Default::default(), |x: Tensor<B, 2, Int>| x.cast(DType::I64)),
        };
        context.register_udf(udf.expect("a function"));
        match query(&context, "SELECT score(a) FROM t").await {
            Ok(found) => assert!(expected.is_empty() && floats(found.column(0)).len() == values.len()),
            Err(error) => assert!(error.to_string().contains(expected), "{error}"),
        }
    }
}

#[tokio::test]
async fn lists_of_unequal_lengths_are_errors() {
    let rows = [Some(vec![Some(1.0)]), Some(vec![Some(2.0)]), Some(vec![Some(3.0), Some(4.0)])];
    let ragged = ListArray::from_iter_primitive::<Float32Type, _, _>(rows);
    let context = table(vec![("x", Arc::new(ragged) as ArrayRef)]);
    let udf = config("score").with_input(Input::list("x")).with_output(Output::number("score"));
    let udf = udf.init(&Default::default(), |x: Tensor<B, 2>| x.sum_dim(1)).expect("a function");
    context.register_udf(udf);
    let error = query(&context, "SELECT score(x) FROM t").await.expect_err("no tensor has such rows");
    let problem = crate::errors::problem(&error);
    assert!(
        matches!(problem, Some(Problem::ListLength { row: 2, actual: 2, expected: 1, .. })),
        "{error}: {problem:?}"
    );
}
