//! A batcher between threads, tasks and a model. Where the order of things matters, the model waits at a gate; no test waits for a time.

mod gate;
mod refusals;

use gate::{B, Gate, block_on, gated, row, values};
use kiln_core::Tensor;
use kiln_core::nn::{Linear, LinearConfig, Lstm, LstmConfig};
use kiln_core::tensor::{Distribution, Int};
use kiln_serve::{DynamicBatcher, DynamicBatcherConfig, ServeError};
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

#[test]
fn joined_requests_have_the_answers_of_single_ones() {
    let device = Default::default();
    let model: Linear<B> = LinearConfig::new(3, 5).init(&device);
    let alone = model.clone();
    let config = DynamicBatcherConfig::new().with_max_batch_size(8).with_max_queue_delay(Duration::MAX);
    let batcher = config.init(move |x: Tensor<B, 2>| model.forward(x)).expect("a batcher");
    // Eight rows in three requests: none of them goes before the last is there.
    let inputs = [1, 4, 3].map(|rows| Tensor::<B, 2>::random([rows, 3], Distribution::Default, &device));
    let responses = inputs.clone().map(|input| batcher.call_async(input));
    for (input, response) in inputs.into_iter().zip(responses) {
        let answer = response.wait().expect("an answer");
        answer.to_data().assert_approx_eq::<f32>(&alone.forward(input).to_data(), Default::default());
    }
    let stats = batcher.stats();
    assert_eq!((stats.batches, stats.requests, stats.rows), (1, 3, 8));
}

#[test]
fn many_threads_get_their_own_rows() {
    let (threads, calls) = (16, 50);
    let config = DynamicBatcherConfig::new().with_max_batch_size(8).with_workers(3);
    let batcher = config.init(|x: Tensor<B, 2>| x.mul_scalar(2.0)).expect("a batcher");
    thread::scope(|scope| {
        for thread in 0..threads {
            let batcher = &batcher;
            scope.spawn(move || {
                for call in 0..calls {
                    let (rows, value) = (1 + call % 3, (thread * calls + call) as f32);
                    // Widths differ, so that there are several queues.
                    let input = Tensor::full([rows, 1 + call % 2], value, &Default::default());
                    let answer = batcher.call(input).expect("an answer");
                    assert_eq!(answer.dims(), [rows, 1 + call % 2]);
                    assert!(values(answer).iter().all(|&found| found == 2.0 * value));
                }
            });
        }
    });
    let stats = batcher.stats();
    assert_eq!((stats.requests, stats.waiting_rows, stats.failed), ((threads * calls) as u64, 0, 0));
    assert!(stats.batches <= stats.requests && stats.mean_batch_size() >= 1.0);
}

#[test]
fn what_comes_while_the_worker_is_busy_shares_a_batch_and_shapes_do_not_mix() {
    let gate = Gate::closed();
    let batcher = DynamicBatcherConfig::new().init(gated(&gate, |x| x)).expect("a batcher");
    let first = batcher.call_async(row(&[0.0]));
    gate.entered();
    let narrow = [1.0, 2.0, 3.0].map(|value| batcher.call_async(row(&[value])));
    let wide = [4.0, 5.0].map(|value| batcher.call_async(row(&[value, value])));
    assert_eq!(batcher.stats().waiting_rows, 5);
    gate.open();
    assert_eq!(values(first.wait().expect("an answer")), [0.0]);
    for (response, value) in narrow.into_iter().zip([1.0, 2.0, 3.0]) {
        assert_eq!(values(response.wait().expect("an answer")), [value]);
    }
    for (response, value) in wide.into_iter().zip([4.0, 5.0]) {
        assert_eq!(values(response.wait().expect("an answer")), [value, value]);
    }
    assert_eq!(gate.shapes(), [[1, 1], [3, 1], [2, 2]]);
}

#[test]
fn workers_run_the_model_at_the_same_time() {
    // A pass ends when another one has begun.
    let both = Barrier::new(2);
    let model = move |x: Tensor<B, 2>| {
        both.wait();
        x
    };
    let batcher = DynamicBatcherConfig::new().with_workers(2).init(model).expect("a batcher");
    let responses = [row(&[1.0]), row(&[2.0, 2.0])].map(|input| batcher.call_async(input));
    assert!(responses.into_iter().all(|response| response.wait().is_ok()));
}

#[test]
fn a_request_of_a_dropped_response_is_not_computed() {
    let gate = Gate::closed();
    let batcher = DynamicBatcherConfig::new().init(gated(&gate, |x| x)).expect("a batcher");
    let first = batcher.call_async(row(&[0.0]));
    gate.entered();
    let dropped = batcher.call_async(row(&[1.0]));
    let kept = batcher.call_async(row(&[2.0]));
    drop(dropped);
    gate.open();
    assert_eq!(values(kept.wait().expect("an answer")), [2.0]);
    assert_eq!(values(first.wait().expect("an answer")), [0.0]);
    assert_eq!(gate.shapes(), [[1, 1], [1, 1]]);
    assert_eq!(batcher.stats().abandoned, 1);
}

#[test]
fn a_full_queue_refuses_at_once() {
    let gate = Gate::closed();
    let config = DynamicBatcherConfig::new().with_max_batch_size(2).with_max_queue_size(3);
    let batcher = config.init(gated(&gate, |x| x)).expect("a batcher");
    let first = batcher.call_async(row(&[0.0]));
    gate.entered();
    let waiting = [1.0, 2.0, 3.0].map(|value| batcher.call_async(row(&[value])));
    let refused = batcher.call(row(&[4.0])).expect_err("a full queue");
    assert!(
        matches!(refused, ServeError::Overloaded { rows: 1, waiting: 3, max_queue_size: 3 }),
        "{refused}"
    );
    gate.open();
    assert!(first.wait().is_ok() && waiting.into_iter().all(|response| response.wait().is_ok()));
    assert!(batcher.call(row(&[5.0])).is_ok());
    assert_eq!(batcher.stats().refused, 1);
}

#[test]
fn a_panic_is_an_error_of_the_bad_request_and_the_batcher_goes_on() {
    let gate = Gate::closed();
    let model = |x: Tensor<B, 2>| {
        assert!(values(x.clone()).iter().all(|value| *value >= 0.0), "a negative value");
        x
    };
    let batcher = DynamicBatcherConfig::new().init(gated(&gate, model)).expect("a batcher");
    let first = batcher.call_async(row(&[0.0]));
    gate.entered();
    let responses = [1.0, -1.0, 2.0].map(|value| batcher.call_async(row(&[value])));
    gate.open();
    assert!(first.wait().is_ok());
    let [good, bad, other] = responses.map(|response| response.wait());
    assert_eq!((values(good.expect("an answer")), values(other.expect("an answer"))), (vec![1.0], vec![2.0]));
    assert_eq!(bad.expect_err("a panic").to_string(), "the model panicked: a negative value");
    assert!(batcher.call(row(&[3.0])).is_ok());
}

#[test]
fn an_error_of_the_model_comes_to_the_bad_request_alone() {
    #[derive(Debug, thiserror::Error)]
    #[error("{0} is negative")]
    struct Negative(f32);

    let config = DynamicBatcherConfig::new().with_max_batch_size(3).with_max_queue_delay(Duration::MAX);
    let batcher = config
        .init_fallible(|x: Tensor<B, 2>| match values(x.clone()).into_iter().find(|value| *value < 0.0) {
            Some(value) => Err(Negative(value)),
            None => Ok(x),
        })
        .expect("a batcher");
    let [good, bad, other] = [1.0, -1.0, 2.0].map(|value| batcher.call_async(row(&[value])));
    assert!(good.wait().is_ok() && other.wait().is_ok());
    let error = bad.wait().expect_err("a negative value");
    assert_eq!(error.to_string(), "the model returned an error: -1 is negative");
    assert!(error.source().is_some_and(|source| source.to_string() == "-1 is negative"));
    let stats = batcher.stats();
    assert_eq!((stats.batches, stats.failed, stats.panics), (1, 1, 0));
}

#[test]
fn a_shutdown_computes_what_waits_and_refuses_what_comes() {
    let gate = Gate::closed();
    // Nothing but the shutdown makes the second request ready.
    let config = DynamicBatcherConfig::new().with_max_batch_size(2).with_max_queue_delay(Duration::MAX);
    let batcher = Arc::new(config.init(gated(&gate, |x| x)).expect("a batcher"));
    let waiting = batcher.call_async(row(&[1.0]));
    let ending = thread::spawn({
        let batcher = batcher.clone();
        move || batcher.shutdown()
    });
    gate.entered();
    assert!(matches!(batcher.call(row(&[2.0])), Err(ServeError::ShutDown)));
    gate.open();
    ending.join().expect("the workers ended");
    assert_eq!(values(waiting.wait().expect("an answer")), [1.0]);
    batcher.shutdown();
    assert!(matches!(batcher.call(row(&[2.0])), Err(ServeError::ShutDown)));
}

#[test]
fn responses_outlive_their_batcher() {
    let config = DynamicBatcherConfig::new().with_max_queue_delay(Duration::MAX);
    let batcher = config.init(|x: Tensor<B, 2>| x).expect("a batcher");
    let response = batcher.call_async(row(&[1.0]));
    drop(batcher);
    assert_eq!(values(block_on(response).expect("an answer")), [1.0]);
}

#[test]
fn a_worker_may_drop_the_batcher() {
    /// Drops what it holds in the thread that wakes it.
    struct DropsOnWake(Mutex<Option<DynamicBatcher<Tensor<B, 2>, Tensor<B, 2>>>>, mpsc::Sender<()>);

    impl Wake for DropsOnWake {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().expect("no panic inside").take());
            self.1.send(()).expect("the test waits");
        }
    }

    let gate = Gate::closed();
    let batcher = DynamicBatcherConfig::new().init(gated(&gate, |x| x)).expect("a batcher");
    let mut response = batcher.call_async(row(&[1.0]));
    let (dropped, is_dropped) = mpsc::channel();
    let waker = Waker::from(Arc::new(DropsOnWake(Mutex::new(Some(batcher)), dropped)));
    let mut poll = || Pin::new(&mut response).poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    gate.open();
    is_dropped.recv().expect("the worker did not wait for itself");
    assert!(matches!(poll(), Poll::Ready(Ok(_))));
}

/// The others of the batch have their answers.
#[test]
fn a_waker_that_panics_is_its_callers_alone() {
    struct PanicsOnWake;

    impl Wake for PanicsOnWake {
        fn wake(self: Arc<Self>) {
            panic!("a broken executor");
        }
    }

    let gate = Gate::closed();
    let batcher = DynamicBatcherConfig::new().init(gated(&gate, |x| x)).expect("a batcher");
    let first = batcher.call_async(row(&[0.0]));
    gate.entered();
    let mut broken = batcher.call_async(row(&[1.0]));
    let others = [2.0, 3.0].map(|value| batcher.call_async(row(&[value])));
    let waker = Waker::from(Arc::new(PanicsOnWake));
    assert!(Pin::new(&mut broken).poll(&mut Context::from_waker(&waker)).is_pending());
    gate.open();
    assert!(first.wait().is_ok());
    for (response, value) in others.into_iter().zip([2.0, 3.0]) {
        assert_eq!(values(response.wait().expect("an answer")), [value]);
    }
    assert_eq!(values(broken.wait().expect("its answer was computed")), [1.0]);
    assert_eq!(gate.shapes(), [[1, 1], [3, 1]]);
}

#[test]
fn futures_run_on_any_executor() {
    let config = DynamicBatcherConfig::new().with_max_batch_size(2).with_max_queue_delay(Duration::MAX);
    let batcher = config.init(|x: Tensor<B, 2>| x.add_scalar(1.0)).expect("a batcher");
    let sum = block_on(async {
        let (a, b) = (batcher.call_async(row(&[1.0])), batcher.call_async(row(&[2.0])));
        values(a.await.expect("an answer"))[0] + values(b.await.expect("an answer"))[0]
    });
    assert_eq!(sum, 5.0);
}

#[test]
fn batches_are_filled_up_to_allowed_sizes() {
    let gate = Gate::closed();
    let config = DynamicBatcherConfig::new().with_max_batch_size(8).with_allowed_batch_sizes(vec![1, 4, 8]);
    let batcher = config.init(gated(&gate, |x| x)).expect("a batcher");
    let first = batcher.call_async(row(&[0.0]));
    gate.entered();
    let responses = [1.0, 2.0, 3.0].map(|value| batcher.call_async(row(&[value])));
    gate.open();
    assert_eq!(values(first.wait().expect("an answer")), [0.0]);
    for (response, value) in responses.into_iter().zip([1.0, 2.0, 3.0]) {
        assert_eq!(values(response.wait().expect("an answer")), [value]);
    }
    assert_eq!(gate.shapes(), [[1, 1], [4, 1]]);
    assert_eq!(batcher.stats().padding_rows, 1);
}

#[test]
fn inputs_and_outputs_may_be_tuples_of_any_kind_and_rank() {
    let device = Default::default();
    let model: Lstm<B> = LstmConfig::new(2, 3, true).init(&device);
    let alone = model.clone();
    let config = DynamicBatcherConfig::new().with_max_batch_size(3).with_max_queue_delay(Duration::MAX);
    let batcher = config
        .init(move |(x, ids): (Tensor<B, 3>, Tensor<B, 1, Int>)| {
            let (hidden, state) = model.forward(x, None);
            (hidden, (state.hidden, ids.clone().greater_elem(1), ids))
        })
        .expect("a batcher");
    let input = |rows: usize, id| {
        let x = Tensor::<B, 3>::random([rows, 4, 2], Distribution::Default, &device);
        (x, Tensor::<B, 1, Int>::full([rows], id, &device))
    };
    let (first, second) = (input(1, 1), input(2, 2));
    let responses = [&first, &second].map(|input| batcher.call_async(input.clone()));
    for ((x, id), response) in [first, second].into_iter().zip(responses) {
        let (hidden, (last, is_large, ids)) = response.wait().expect("an answer");
        let (expected, state) = alone.forward(x, None);
        hidden.to_data().assert_approx_eq::<f32>(&expected.to_data(), Default::default());
        last.to_data().assert_approx_eq::<f32>(&state.hidden.to_data(), Default::default());
        assert_eq!(ids.to_data(), id.to_data());
        assert_eq!(is_large.to_data(), id.greater_elem(1).to_data());
    }
    assert_eq!(batcher.stats().batches, 1);
}
