//! What a batcher refuses, and how it says so.

use crate::gate::{B, row};
use kiln_core::Tensor;
use kiln_serve::{Batch, DynamicBatcher, DynamicBatcherConfig, ServeError};

type Pair = (Tensor<B, 2>, Tensor<B, 1>);

fn zeros<const D: usize>(dims: [usize; D]) -> Tensor<B, D> {
    Tensor::zeros(dims, &Default::default())
}

/// The error of one call of a model that gives its input back.
fn refused<I: Batch>(input: I) -> String {
    let batcher =
        DynamicBatcherConfig::new().with_max_batch_size(4).init(|input: I| input).expect("a batcher");
    batcher.call(input).err().map_or_else(String::new, |error| error.to_string())
}

#[test]
fn requests_must_be_rows() {
    let cases = [
        (refused(zeros([0, 2])), "a request has no rows: dim 0 of its tensors must be at least 1"),
        (
            refused(zeros([5, 2])),
            "a request has 5 rows, and a batch at most 4: send it in parts, or raise max_batch_size",
        ),
        (
            refused::<Pair>((zeros([1, 2]), zeros([3]))),
            "the tensors of a request have [1, 3] rows: dim 0 must be the same in all of them",
        ),
        (
            refused((zeros([1, 2]), zeros([]))),
            "a tensor of a request has rank 0: dim 0 of every input must count the rows",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn an_output_must_have_the_rows_of_the_input() {
    let sum = |x: Tensor<B, 2>| (x.clone(), x.sum_dim(0));
    let batcher = DynamicBatcherConfig::new().init(sum).expect("a batcher");
    let error = batcher.call(zeros([2, 3])).expect_err("one row for two");
    let expected = "of 2 rows the model made an output of shape [1, 3]: dim 0 must have one row for each row of the input";
    assert_eq!(error.to_string(), expected);
    let stats = batcher.stats();
    assert_eq!((stats.failed, stats.panics), (1, 0));
}

#[test]
fn configs_must_not_contradict_themselves() {
    let start =
        |config: DynamicBatcherConfig| -> Result<DynamicBatcher<Tensor<B, 2>, Tensor<B, 2>>, ServeError> {
            config.init(|x: Tensor<B, 2>| x)
        };
    let new = DynamicBatcherConfig::new;
    let cases = [
        (new().with_max_batch_size(0), "max_batch_size is 0: a batch has at least one row"),
        (new().with_workers(0), "workers is 0: somebody must run the model"),
        (
            new().with_max_queue_size(31),
            "max_queue_size is 31: a whole batch must be able to wait, and max_batch_size is 32",
        ),
        (
            new().with_allowed_batch_sizes(vec![4, 1, 32]),
            "allowed_batch_sizes is [4, 1, 32]: sizes must increase from at least 1 to max_batch_size, which is 32",
        ),
        (
            new().with_allowed_batch_sizes(vec![1, 16]),
            "allowed_batch_sizes is [1, 16]: sizes must increase from at least 1 to max_batch_size, which is 32",
        ),
    ];
    for (config, expected) in cases {
        assert_eq!(start(config).expect_err("a contradiction").to_string(), expected);
    }
    let batcher = start(new().with_allowed_batch_sizes(vec![1, 32])).expect("a batcher");
    assert!(batcher.call(row(&[1.0])).is_ok());
}

#[test]
fn a_config_is_kept_in_json() {
    use kiln_core::config::{Config, config_to_json};

    let config = DynamicBatcherConfig::new().with_max_batch_size(8);
    let again = DynamicBatcherConfig::load_binary(config_to_json(&config).as_bytes()).expect("a config");
    assert_eq!(again.to_string(), config.to_string());
}
