//! What columns are made of the tensors that models yield.

use crate::{B, config, float_column, floats, query, table};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int8Type};
use kiln_core::Tensor;
use kiln_core::tensor::{DType, Int};
use kiln_datafusion::{Input, Output};

fn fixed(item: DataType, size: i32) -> DataType {
    DataType::new_fixed_size_list(item, size, false)
}

#[tokio::test]
async fn outputs_are_columns_of_every_dtype() {
    let of_dtype = |dtype| match dtype {
        DType::F64 => DataType::Float64,
        DType::F32 | DType::BF16 => DataType::Float32,
        DType::F16 => DataType::Float16,
        DType::I64 => DataType::Int64,
        DType::I32 => DataType::Int32,
        DType::I16 => DataType::Int16,
        DType::I8 | DType::I4 => DataType::Int8,
        DType::U64 => DataType::UInt64,
        DType::U32 => DataType::UInt32,
        DType::U16 => DataType::UInt16,
        DType::U8 | DType::U4 => DataType::UInt8,
        DType::Bool => DataType::Boolean,
    };
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_packed()) {
        let context = table(vec![("a", float_column([0.0, 1.0, 1.0]))]);
        let config = config("score")
            .with_input(Input::columns(["a"]))
            .with_output(Output::number("y").with_dtype(dtype));
        let device = Default::default();
        // What the closure yields has the kind's usual dtype, the column the declared one.
        let udf = match dtype.kind() {
            kiln_core::tensor::DTypeKind::Float => config.init(&device, |x: Tensor<B, 2>| x),
            kiln_core::tensor::DTypeKind::Int => config.init(&device, |x: Tensor<B, 2>| x.int()),
            kiln_core::tensor::DTypeKind::Bool => config.init(&device, |x: Tensor<B, 2>| x.greater_elem(0.5)),
        };
        context.register_udf(udf.expect("a function"));
        let found = query(&context, "SELECT score(a) AS y, CAST(score(a) AS FLOAT) AS f FROM t")
            .await
            .expect("scores");
        assert_eq!(found.schema().field(0).data_type(), &of_dtype(dtype));
        assert!(!found.schema().field(0).is_nullable());
        assert_eq!(floats(found.column(1)), [0.0, 1.0, 1.0], "{dtype}");
    }
}

#[tokio::test]
async fn lists_are_nested_as_tensors_are() {
    let context = table(vec![("a", float_column([1.0, 2.0, 3.0]))]);
    let udf = config("grid").with_input(Input::columns(["a"])).with_output(Output::list("grid", [2, 3]));
    let udf = udf.with_exact_batch_size(2).init(&Default::default(), |x: Tensor<B, 2>| {
        x.reshape([2, 1, 1]).mul(Tensor::from_data([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]], &Default::default()))
    });
    context.register_udf(udf.expect("a function"));
    let found = query(&context, "SELECT grid(a) FROM t").await.expect("scores");
    let grids = found.column(0).as_fixed_size_list();
    assert_eq!(grids.data_type(), &fixed(fixed(DataType::Float32, 3), 2));
    let last = grids.value(2);
    let last = last.as_fixed_size_list().values();
    assert_eq!(floats(last), [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]);
}

#[tokio::test]
async fn several_outputs_are_a_struct() {
    let context = table(vec![("a", float_column([1.0, -2.0]))]);
    let udf = config("classify")
        .with_input(Input::columns(["a"]))
        .with_output(Output::number("class").with_dtype(DType::I8))
        .with_output(Output::list("logits", [2]).with_dtype(DType::F64))
        .init(&Default::default(), |x: Tensor<B, 2>| -> (Tensor<B, 1, Int>, Tensor<B, 2>) {
            let logits = Tensor::cat(vec![x.clone(), x.neg()], 1);
            (logits.clone().argmax(1).flatten(0, 1), logits)
        })
        .expect("a function");
    context.register_udf(udf);
    let whole = query(&context, "SELECT classify(a) FROM t").await.expect("scores");
    let logits = whole.column(0).as_struct().column_by_name("logits").expect("a field");
    assert_eq!(logits.data_type(), &fixed(DataType::Float64, 2));
    let logits = logits.as_fixed_size_list().values().as_primitive::<Float64Type>();
    assert_eq!(logits.values()[..], [1.0, -1.0, -2.0, 2.0]);
    let class = "SELECT get_field(c, 'class') FROM (SELECT classify(a) AS c FROM t)";
    let class = query(&context, class).await.expect("scores");
    assert_eq!(class.column(0).as_primitive::<Int8Type>().values()[..], [0, 1]);
}
