//! Rows a second that SQL scores, beside the model alone on the same numbers:
//! `cargo run --release --example throughput [ROWS] [TURNS]`.
//!
//! All ways take turns, so that whatever else the machine does hits all of them; what is printed are medians over the turns, and of ratios
//! within a turn.

use datafusion::arrow::array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use kiln_core::Tensor;
use kiln_core::nn::{Linear, LinearConfig};
use kiln_core::tensor::activation::relu;
use kiln_core::tensor::{Bytes, DType, TensorData};
use kiln_datafusion::{Input, Output, ScoringFunctionConfig};
use kiln_ndarray::NdArray;
use std::error::Error;
use std::hint::black_box;
use std::iter;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Builder;

type B = NdArray;

const FEATURES: usize = 16;
/// DataFusion's batches, and the rows that the model is given at once.
const ROWS: (usize, usize) = (8192, 1024);
const HIDDEN: [usize; 3] = [16, 64, 256];
const PARTITIONS: [usize; 2] = [1, 2];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let turns = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(11);
    let table = Table::new(rows);
    println!(
        "| model | partitions | alone, rows/s | SQL, {FEATURES} columns | ratio | SQL, a list | ratio |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for hidden in HIDDEN {
        for partitions in PARTITIONS {
            compare(&table, hidden, partitions, turns)?;
        }
    }
    Ok(())
}

/// The rows, in batches: as the columns of a table, and as they lie in the column of lists.
struct Table {
    rows: usize,
    batches: Vec<RecordBatch>,
    lists: Vec<Float32Array>,
}

impl Table {
    fn new(rows: usize) -> Self {
        // A linear congruential generator: any numbers do.
        let mut state = 1_u32;
        let mut number = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        let (mut batches, mut lists) = (Vec::new(), Vec::new());
        for start in (0..rows).step_by(ROWS.0) {
            let len = ROWS.0.min(rows - start);
            let numbers: Vec<f32> = iter::repeat_with(&mut number).take(len * FEATURES).collect();
            let column = |column: usize| -> ArrayRef {
                Arc::new(numbers.iter().skip(column).step_by(FEATURES).copied().collect::<Float32Array>())
            };
            let columns = (0..FEATURES).map(|number| (format!("f{number}"), column(number)));
            let mut columns: Vec<_> = columns.collect();
            let list = Float32Array::from(numbers.clone());
            let field = Arc::new(Field::new_list_field(DataType::Float32, false));
            let features = FixedSizeListArray::new(field, FEATURES as i32, Arc::new(list.clone()), None);
            columns.push(("features".to_owned(), Arc::new(features)));
            batches.push(RecordBatch::try_from_iter(columns).expect("columns of one length"));
            lists.push(list);
        }
        Self { rows, batches, lists }
    }

    /// The batches of each partition.
    fn partitions<T: Clone>(&self, batches: &[T], partitions: usize) -> Vec<Vec<T>> {
        batches.chunks(batches.len().div_ceil(partitions)).map(<[T]>::to_vec).collect()
    }
}

/// Prints a line.
fn compare(table: &Table, hidden: usize, partitions: usize, turns: usize) -> Result<(), Box<dyn Error>> {
    let device = Default::default();
    let layers: [Linear<B>; 3] = [[FEATURES, hidden], [hidden, hidden], [hidden, 1]]
        .map(|[from, to]| LinearConfig::new(from, to).init(&device));
    let forward = move |x: Tensor<B, 2>| {
        let [first, second, last] = &layers;
        last.forward(relu(second.forward(relu(first.forward(x)))))
    };
    let model = Arc::new(forward);

    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
    let schema = table.batches.first().ok_or("a table has rows")?.schema();
    let batches = table.partitions(&table.batches, partitions);
    context.register_table("t", Arc::new(MemTable::try_new(schema, batches)?))?;
    let names: Vec<String> = (0..FEATURES).map(|number| format!("f{number}")).collect();
    for (name, input) in [("by_columns", Input::columns(names.clone())), ("by_list", Input::list("features"))]
    {
        let shared = model.clone();
        let config = ScoringFunctionConfig::new(name).with_input(input).with_output(Output::number("score"));
        let config = config.with_max_batch_size(ROWS.1);
        context.register_udf(config.init(&device, move |x: Tensor<B, 2>| shared(x))?);
    }
    let runtime = Builder::new_multi_thread().worker_threads(partitions).build()?;
    let sql = |query: &str| {
        let frame = runtime.block_on(context.sql(query)).expect("the query is planned");
        let scored = runtime.block_on(runtime.spawn(frame.collect())).expect("no panic");
        let rows = scored.expect("the query runs").iter().map(RecordBatch::num_rows).sum::<usize>();
        assert_eq!(rows, table.rows);
    };
    let by_columns = format!("SELECT by_columns({}) FROM t", names.join(", "));
    // On the same threads as queries, which keep what they have allocated.
    let alone = || {
        let parts = table.partitions(&table.lists, partitions).into_iter();
        let tasks = parts.map(|lists| {
            let model = model.clone();
            runtime.spawn(async move { lists.iter().for_each(|list| score(list, &*model)) })
        });
        for task in tasks.collect::<Vec<_>>() {
            runtime.block_on(task).expect("the model does not panic");
        }
    };

    let (mut rates, mut ratios) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
    for turn in 0..=turns {
        let found = [
            rate(table.rows, alone),
            rate(table.rows, || sql(&by_columns)),
            rate(table.rows, || sql("SELECT by_list(features) FROM t")),
        ];
        // In the first, weights are packed and memory is new.
        if turn > 0 {
            rates.iter_mut().zip(found).for_each(|(rates, rate)| rates.push(rate));
            ratios.iter_mut().zip(&found[1..]).for_each(|(ratios, rate)| ratios.push(rate / found[0]));
        }
    }
    let [alone, columns, list] = rates.map(|rates| median(rates) / 1e6);
    let [of_columns, of_list] = ratios.map(median);
    println!(
        "| {FEATURES} → {hidden} → {hidden} → 1 | {partitions} | {alone:.2} M | {columns:.2} M | {of_columns:.2} | {list:.2} M | {of_list:.2} |"
    );
    Ok(())
}

/// Memory of a column.
struct Shared(Float32Array);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.values().inner().as_slice()
    }
}

/// Scores what lies in memory as the model takes it.
fn score(list: &Float32Array, model: &impl Fn(Tensor<B, 2>) -> Tensor<B, 2>) {
    let rows = list.len() / FEATURES;
    for start in (0..rows).step_by(ROWS.1) {
        let rows = ROWS.1.min(rows - start);
        let part = Shared(list.slice(start * FEATURES, rows * FEATURES));
        let data = TensorData::from_bytes(Bytes::from_owner(part), vec![rows, FEATURES], DType::F32);
        let x = Tensor::from_data(data.expect("as many bytes as the shape says"), &Default::default());
        black_box(model(x).into_data());
    }
}

/// Rows a second.
fn rate(rows: usize, work: impl Fn()) -> f64 {
    let start = Instant::now();
    work();
    rows as f64 / start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
