use super::*;
use crate::response::{Response, channel};
use kiln_core::Tensor;
use kiln_core::tensor::{Int, TensorData};
use kiln_ndarray::NdArray;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

type Ids = Tensor<NdArray, 1, Int>;

/// So many rows of the dims, numbered from `first`.
fn numbered(first: usize, rows: usize, dims: [usize; 2]) -> (Tensor<NdArray, 3>, Ids) {
    let device = Default::default();
    let width = dims[0] * dims[1];
    let values: Vec<f32> = (first * width..(first + rows) * width).map(|value| value as f32).collect();
    let ids: Vec<i64> = (first..first + rows).map(|id| id as i64).collect();
    let values = TensorData::new(values, [rows, dims[0], dims[1]]);
    (Tensor::from_data(values, &device), Tensor::from_data(TensorData::new(ids, [rows]), &device))
}

fn data((values, ids): &(Tensor<NdArray, 3>, Ids)) -> (TensorData, TensorData) {
    (values.to_data(), ids.to_data())
}

proptest! {
    #[test]
    fn what_was_joined_is_split_again(
        rows in prop::collection::vec(1..4_usize, 1..6),
        dims in [0..3_usize, 1..4_usize],
        padding in 0..5_usize,
    ) {
        let firsts = rows.iter().scan(0, |end, &rows| {
            *end += rows;
            Some(*end - rows)
        });
        let inputs: Vec<_> = firsts.zip(&rows).map(|(first, &rows)| numbered(first, rows, dims)).collect();
        let total = rows.iter().sum::<usize>();
        let joined = join(inputs.clone(), &rows, padding);
        check_output(&joined, total + padding).expect("one row for each");
        // Padding is the last row again.
        let last = data(&joined.rows(total - 1..total));
        for n in total..total + padding {
            prop_assert_eq!(&data(&joined.rows(n..n + 1)), &last);
        }
        let parts = split(joined, &rows, total + padding);
        prop_assert_eq!(parts.iter().map(data).collect::<Vec<_>>(), inputs.iter().map(data).collect::<Vec<_>>());
    }
}

/// Runs requests of one row each, numbered from 0, and returns what came and how many rows each pass had.
fn passes(count: usize, bad: &'static [i64]) -> (Vec<Result<Ids, ServeError>>, Vec<usize>, Counters) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let model = |ids: Ids| {
        let ids_read: Vec<i64> = ids.to_data().iter().collect();
        seen.lock().expect("no panic inside").push(ids_read.len());
        if let Some(id) = ids_read.iter().find(|id| bad.contains(id)) {
            panic!("{id} is bad");
        }
        Ok(ids.mul_scalar(10))
    };
    let forward = Forward { model, allowed_batch_sizes: Vec::new(), counters: Counters::default() };
    let inputs: Vec<Ids> = (0..count).map(|n| numbered(n, 1, [1, 1]).1).collect();
    let (senders, responses): (Vec<_>, Vec<_>) = (0..count).map(|_| channel(&Arc::default())).unzip();
    forward.run(inputs, &vec![1; count], senders);
    let Forward { counters, .. } = forward;
    let seen = seen.lock().expect("no panic inside").clone();
    (responses.into_iter().map(Response::wait).collect(), seen, counters)
}

#[test]
fn a_bad_request_fails_alone() {
    let (answers, rows, counters) = passes(8, &[5]);
    for (n, answer) in answers.iter().enumerate() {
        match answer {
            Ok(ids) => assert_eq!(ids.to_data().iter::<i64>().collect::<Vec<_>>(), [10 * n as i64]),
            Err(error) => assert_eq!((n, error.to_string().as_str()), (5, "the model panicked: 5 is bad")),
        }
    }
    assert_eq!(rows, [8, 4, 4, 2, 1, 1, 2]);
    let stats = counters.read(0);
    assert_eq!((stats.failed, stats.panics), (1, 4));
}

#[test]
fn a_model_that_always_panics_fails_each_request_with_its_own_message() {
    let (answers, rows, _) = passes(3, &[0, 1, 2]);
    let messages: Vec<_> =
        answers.into_iter().map(|answer| answer.expect_err("a panic").to_string()).collect();
    assert_eq!(messages, [0, 1, 2].map(|id| format!("the model panicked: {id} is bad")));
    assert_eq!(rows, [3, 1, 2, 1, 1]);
}
