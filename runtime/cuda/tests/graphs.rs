//! Computations that are captured and replayed.

#![cfg(target_os = "linux")]

mod host;

use kiln_cuda::{
    CaptureError, Captured, CapturedError, Cuda, CudaDevice, Graph, InitError, ReplayError, init, statistics,
};
use kiln_tensor::backend::Backend;
use kiln_tensor::{DType, Distribution, Int, Tensor, TensorData, activation};
use std::sync::{Mutex, MutexGuard, PoisonError};

type T<const D: usize> = Tensor<Cuda, D>;

/// Counts are the device's, which the tests share.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn numbers<const D: usize>(shape: [usize; D], seed: usize) -> T<D> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|n| ((n * 31 + seed * 17) % 1009 % 9) as f32 - 4.0).collect();
    T::from_data(TensorData::new(values, shape), &CudaDevice::default())
}

fn floats<const D: usize>(tensor: T<D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("floats")
}

/// Two layers with weights.
fn network(weights: &[T<2>; 2], x: T<2>) -> T<2> {
    let [first, second] = weights.clone();
    activation::softmax(activation::relu(x.matmul(first)).matmul(second), 1)
}

#[test]
fn a_replay_computes_with_new_data() {
    let _alone = alone();
    let weights = [numbers([6, 9], 1), numbers([9, 4], 2)];
    let graph = Graph::capture(numbers([5, 6], 3), |x| network(&weights, x)).expect("a graph");
    let mut kept = Vec::new();
    for seed in 4..8 {
        let y = graph.replay(numbers([5, 6], seed)).expect("a replay");
        kept.push((seed, y));
    }
    // Earlier results are not overwritten by later replays.
    for (seed, y) in kept {
        assert_eq!(floats(y), floats(network(&weights, numbers([5, 6], seed))), "{seed}");
    }
}

#[test]
fn a_replay_is_one_launch_beside_copies() {
    let _alone = alone();
    let weights = [numbers([6, 9], 1), numbers([9, 4], 2)];
    let x = numbers([5, 6], 3);
    let graph = Graph::capture(x.clone(), |x| network(&weights, x)).expect("a graph");
    graph.replay(x.clone()).expect("a replay");
    let before = statistics(&CudaDevice::default());
    let y = graph.replay(x).expect("a replay");
    let after = statistics(&CudaDevice::default());
    assert_eq!(after.replays - before.replays, 1);
    assert_eq!(after.launches - before.launches, 2, "the input and the output are copied");
    assert_eq!(after.buffers, before.buffers);
    assert_eq!(after.waits, before.waits);
    drop(y);
}

#[test]
fn what_a_graph_uses_is_nobody_elses() {
    let _alone = alone();
    let weights = [numbers([6, 9], 1), numbers([9, 4], 2)];
    let x = numbers([5, 6], 3);
    let expected = floats(network(&weights, x.clone()));
    let graph = {
        // Constants that are made on the way, and weights that nobody else holds any more.
        let weights = weights;
        Graph::capture(x.clone(), move |x| {
            let ones = T::<2>::from_data(TensorData::new(vec![1.0_f32; 30], [5, 6]), &x.device());
            network(&weights, x * ones)
        })
        .expect("a graph")
    };
    // Tensors of all sizes that the graph has had, with other contents.
    let others: Vec<T<1>> = (0..200).map(|n| T::full([n % 60 + 1], 1e9, &CudaDevice::default())).collect();
    assert_eq!(floats(graph.replay(x.clone()).expect("a replay")), expected);
    drop(others);
    let others: Vec<T<1>> = (0..200).map(|n| T::full([n % 60 + 1], 1e9, &CudaDevice::default())).collect();
    assert_eq!(floats(graph.replay(x).expect("a replay")), expected);
    assert_eq!(floats(others[7].clone()), vec![1e9; 8]);
}

#[test]
fn a_dropped_graph_gives_its_memory_back() {
    let _alone = alone();
    let device = CudaDevice::default();
    let capture = || {
        let x = T::<1>::full([1 << 20], 2.0, &device);
        Graph::capture(x, |x| (x.clone() * 2.0).exp().sum() + x.sum()).expect("a graph")
    };
    drop(capture());
    let before = statistics(&device);
    for _ in 0..10 {
        drop(capture());
    }
    let after = statistics(&device);
    assert_eq!(after.buffers, before.buffers, "memory of a graph is used again");
}

#[test]
fn several_inputs_and_outputs_of_several_kinds() {
    let _alone = alone();
    let device = CudaDevice::default();
    let ids =
        |values: [i32; 3]| Tensor::<Cuda, 1, Int>::from_data(TensorData::new(values.to_vec(), [3]), &device);
    let table = numbers([7, 4], 1);
    let run = |(ids, [a, b]): (Tensor<Cuda, 1, Int>, [T<2>; 2])| {
        let rows = table.clone().select(0, ids.clone());
        // An input as it came in, a view, and a result twice.
        (ids, rows.clone().transpose(), vec![rows.clone() + a.clone(), a], rows * b)
    };
    let inputs = |seed| (ids([0, 6, seed as i32]), [numbers([3, 4], seed), numbers([3, 4], seed + 1)]);
    let graph = Graph::capture(inputs(1), run).expect("a graph");
    let (same, turned, sums, product) = graph.replay(inputs(3)).expect("a replay");
    let expected = run(inputs(3));
    assert_eq!(same.into_data(), expected.0.into_data());
    assert_eq!(turned.into_data(), expected.1.into_data());
    for (sum, expected) in sums.into_iter().zip(expected.2) {
        assert_eq!(sum.into_data(), expected.into_data());
    }
    assert_eq!(product.into_data(), expected.3.into_data());
}

#[test]
fn what_cannot_be_replayed_is_refused_by_name() {
    let _alone = alone();
    let x = || numbers([5, 6], 3);
    // What has no way to fail panics with the same words.
    let branches = |x: T<2>| if x.clone().sum().into_scalar() > 1e9 { x.clone() } else { x };
    let positions = |x: T<2>| x.clone().greater_elem(0.0).nonzero().len() as f32 * x;
    for computation in [&branches as &dyn Fn(T<2>) -> T<2>, &positions] {
        let captured = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Graph::capture(x(), computation).map(|_| ())
        }));
        let said = captured.expect_err("a panic");
        let said = said.downcast_ref::<String>().expect("words");
        assert!(said.contains("a captured computation reads what the device computes"), "{said}");
    }
    let waits = Graph::capture(x(), |x| {
        let _ = Cuda::<f32, i64>::sync(&CudaDevice::default());
        x
    });
    assert!(matches!(waits.map(|_| ()), Err(CaptureError::Read)));
    let random = Graph::capture(x(), |x| {
        let noise = T::<2>::random([5, 6], Distribution::Default, &CudaDevice::default());
        x + noise
    });
    assert!(matches!(random.map(|_| ()), Err(CaptureError::Random)));
    let nested = Graph::capture(x(), |x| match Graph::capture(x.clone(), |x| x * 2.0) {
        Ok(inner) => inner.replay(x).expect("a replay"),
        Err(_) => x,
    });
    assert!(matches!(nested.map(|_| ()), Err(CaptureError::Read | CaptureError::Nested)));
    // The device goes on.
    assert_eq!(floats(x() + 1.0), floats(x()).iter().map(|x| x + 1.0).collect::<Vec<_>>());
}

#[test]
fn other_inputs_are_refused_by_name() {
    let _alone = alone();
    let graph = Graph::capture(numbers([5, 6], 3), |x| x * 2.0).expect("a graph");
    let error = graph.replay(numbers([5, 7], 3)).expect_err("another shape");
    assert_eq!(
        error.to_string(),
        "input 0 is f32 [5, 7], and the graph was captured with f32 [5, 6]: capture another for it"
    );
    let graph = Graph::capture(vec![numbers([2, 2], 1)], |x| x).expect("a graph");
    let error = graph.replay(vec![numbers([2, 2], 1); 2]).expect_err("another number");
    assert!(matches!(error, ReplayError::Number { given: 2, captured: 1 }));
    // Where there is one device, there is no other to be refused.
    let other = CudaDevice::new(1);
    if init(&other) == Err(InitError::NotFound { index: 1, found: 1 }) {
        return;
    }
    let elsewhere = numbers::<2>([2, 2], 1).to_device(&other);
    let error = graph.replay(vec![elsewhere]).expect_err("another device");
    assert!(matches!(error, ReplayError::Device { number: 0, .. }));
}

#[test]
fn another_thread_waits_for_a_graph() {
    let _alone = alone();
    let (begun, go_on) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let other = std::thread::spawn(move || {
        begun.1.recv().expect("a capture");
        go_on.0.send(()).expect("a capture");
        // Runs between the launches of the other thread's graph, or after them.
        floats(numbers([8, 8], 5) * 3.0)
    });
    let mut rounds = 0;
    let graph = Graph::capture(numbers([5, 6], 3), |x| {
        rounds += 1;
        let x = x * 2.0;
        if rounds == 2 {
            begun.0.send(()).expect("a thread");
            go_on.1.recv().expect("a thread");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        x + 1.0
    })
    .expect("a graph");
    let expected: Vec<f32> = floats(numbers([8, 8], 5)).iter().map(|x| x * 3.0).collect();
    assert_eq!(other.join().expect("a thread"), expected);
    let expected: Vec<f32> = floats(numbers([5, 6], 9)).iter().map(|x| x * 2.0 + 1.0).collect();
    assert_eq!(floats(graph.replay(numbers([5, 6], 9)).expect("a replay")), expected);
}

#[test]
fn a_computation_that_panics_leaves_the_device_as_it_was() {
    let _alone = alone();
    let mut rounds = 0;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Graph::capture(numbers([2, 3], 3), |x| {
            rounds += 1;
            assert!(rounds < 2, "on purpose");
            x * 2.0
        })
    }));
    assert!(panicked.is_err());
    let x = Cuda::<f32, i64>::full([2].into(), 3.0.into(), DType::F32, &CudaDevice::default());
    assert_eq!(
        Cuda::<f32, i64>::into_data(x).expect("a device").to_vec::<f32>().expect("floats"),
        [3.0, 3.0]
    );
}

#[test]
fn what_is_captured_by_itself_has_a_graph_for_each_shape() {
    let _alone = alone();
    let weights = [numbers([6, 9], 1), numbers([9, 4], 2)];
    let mut runs = 0;
    let mut forward = Captured::new(|(x, scale): (T<2>, T<1>)| {
        runs += 1;
        network(&weights, x) * scale.unsqueeze()
    })
    .with_capacity(2);
    let mut replays = Vec::new();
    // Two shapes in turn, then a third, for which the first is forgotten; that comes again.
    for (rows, graphs) in [(5, 1), (3, 2), (5, 2), (3, 2), (5, 2), (1, 2), (5, 2), (3, 2)] {
        let before = statistics(&CudaDevice::default());
        let (x, scale) = (numbers([rows, 6], rows), numbers([4], 7));
        let y = forward.run((x.clone(), scale.clone())).expect("a graph");
        replays.push(statistics(&CudaDevice::default()).replays - before.replays);
        let weights = [numbers([6, 9], 1), numbers([9, 4], 2)];
        assert_eq!(floats(y), floats(network(&weights, x) * scale.unsqueeze()), "{rows}");
        assert_eq!(forward.graphs(), graphs);
    }
    drop(forward);
    // A capture runs the computation twice, a replay never: four shapes were met anew.
    assert_eq!(runs, 8);
    assert_eq!(replays, [1; 8]);
}

#[test]
fn what_cannot_be_captured_by_itself_is_refused_by_name() {
    let _alone = alone();
    let mut random = Captured::new(|x: T<2>| {
        let noise = T::<2>::random([5, 6], Distribution::Default, &CudaDevice::default());
        x + noise
    });
    for _ in 0..2 {
        let error = random.run(numbers([5, 6], 3)).expect_err("random numbers");
        assert!(matches!(error, CapturedError::Capture(CaptureError::Random)), "{error}");
        assert_eq!(random.graphs(), 0);
    }
    let mut nothing = Captured::new(|()| numbers([2, 2], 1));
    let error = nothing.run(()).expect_err("no inputs");
    assert_eq!(error.to_string(), "a captured computation needs at least one input");
}
