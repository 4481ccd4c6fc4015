//! Computations that are captured and replayed.

#![cfg(target_os = "linux")]

mod host;

use kiln_cuda::{
    CaptureError, Captured, CapturedError, Cuda, CudaDevice, Graph, InitError, Operand, ReplayError, init,
    statistics,
};
use kiln_tensor::backend::Backend;
use kiln_tensor::{
    CoordinateTransform, DType, Distribution, IndexingUpdateOp, Int, InterpolateMode, Tensor, TensorData,
    activation, module,
};
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

/// What is made of a weight (turned, packed) is made anew where the weight is an input, or state.
#[test]
fn weights_that_are_given_are_turned_anew() {
    let _alone = alone();
    let options = || kiln_tensor::ConvOptions {
        stride: [1, 1].into(),
        padding: [(1, 1), (1, 1)].into(),
        dilation: [1, 1].into(),
        groups: 8,
    };
    // Channels of their own that stand last in memory.
    let images = |seed| numbers([1, 6, 7, 8], seed).permute([0, 3, 1, 2]);
    let depthwise = |x: T<4>, weight: T<4>| module::conv2d(x, weight, None, options());
    let given = (numbers([1, 6, 7, 8], 3), numbers([8, 1, 3, 3], 4));
    let graph = Graph::capture(given, |(x, weight): (T<4>, T<4>)| depthwise(x.permute([0, 3, 1, 2]), weight))
        .expect("a graph");
    for seed in 5..8 {
        let y =
            graph.replay((numbers([1, 6, 7, 8], seed), numbers([8, 1, 3, 3], seed + 9))).expect("a replay");
        let expected = depthwise(images(seed), numbers([8, 1, 3, 3], seed + 9));
        assert_eq!(floats(y), floats(expected), "{seed}");
    }
    let step = |weight: T<4>, x: T<4>| (weight.clone() + 1.0, depthwise(x.permute([0, 3, 1, 2]), weight));
    let graph =
        Graph::capture_with_state(numbers([8, 1, 3, 3], 4), numbers([1, 6, 7, 8], 3), step).expect("a graph");
    for n in 0..3 {
        let y = graph.replay(numbers([1, 6, 7, 8], 5)).expect("a replay");
        let expected = depthwise(images(5), numbers([8, 1, 3, 3], 4) + n as f32);
        assert_eq!(floats(y), floats(expected), "step {n}");
    }
}

/// What was made of memory goes with its contents.
#[test]
fn an_overwritten_weight_is_turned_anew() {
    let _alone = alone();
    let options = kiln_tensor::ConvOptions {
        stride: [1, 1].into(),
        padding: [(1, 1), (1, 1)].into(),
        dilation: [1, 1].into(),
        groups: 8,
    };
    let images = numbers([1, 6, 7, 8], 3).permute([0, 3, 1, 2]).into_backend();
    let convolved =
        |weight| T::<4>::from_backend(Cuda::<f32, i64>::conv(images.clone(), weight, None, &options));
    let [weight, other] = [4, 5].map(|seed| numbers([8, 1, 3, 3], seed).into_backend());
    let before = floats(convolved(weight.clone()));
    weight.overwrite(&other);
    let after = floats(convolved(weight));
    assert_ne!(after, before);
    assert_eq!(after, floats(convolved(other)));
}

/// What a captured computation makes of a weight is there when the graph is replayed, not before.
#[test]
fn what_a_capture_turns_is_not_taken_for_turned() {
    let _alone = alone();
    let options = |groups| kiln_tensor::ConvOptions {
        stride: [1, 1].into(),
        padding: [(1, 1), (1, 1)].into(),
        dilation: [1, 1].into(),
        groups,
    };
    // Two layers share their weights, which are kept turned for one of them. Channels stand last in memory.
    let layer = |weights: T<1>, images: T<4>, channels: usize| {
        let weight = weights.reshape([channels, 1, 9 * 128 / channels / 3, 3]);
        module::conv2d(images.permute([0, 3, 1, 2]), weight, None, options(channels))
    };
    let images = |seed| (numbers([1, 6, 7, 128], seed), numbers([1, 6, 7, 64], seed + 1));
    let weights = numbers([9 * 128], 4);
    drop([(); 8].map(|()| T::<1>::full([9 * 128], 1e9, &CudaDevice::default())));
    let mut kept = Vec::new();
    let graph = Graph::capture(images(3), |(x, y)| {
        let x = layer(weights.clone(), x, 128);
        // It takes the memory of what was turned before.
        kept.push(weights.clone() + 1.0);
        (x, layer(weights.clone(), y, 64))
    })
    .expect("a graph");
    let expected = |seed| {
        let (x, y) = images(seed);
        (floats(layer(numbers([9 * 128], 4), x, 128)), floats(layer(numbers([9 * 128], 4), y, 64)))
    };
    // The layer for which they were turned last comes first.
    let y = layer(weights.clone(), images(5).1, 64);
    let x = layer(weights.clone(), images(5).0, 128);
    assert_eq!((floats(x), floats(y)), expected(5));
    let (x, y) = graph.replay(images(7)).expect("a replay");
    assert_eq!((floats(x), floats(y)), expected(7));
}

/// Sums of columns in runs, which the last workgroup joins: with counters that every replay finds as it leaves them.
#[test]
fn replays_count_anew() {
    let _alone = alone();
    let sums = |x: T<2>| x.sum_dim(0);
    let graph = Graph::capture(numbers([4100, 70], 3), sums).expect("a graph");
    for seed in 4..7 {
        let y = graph.replay(numbers([4100, 70], seed)).expect("a replay");
        assert_eq!(floats(y), floats(sums(numbers([4100, 70], seed))), "{seed}");
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
    assert_eq!(after.launches - before.launches, 1, "the input is copied");
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

/// What comes from the host in the middle of a computation has memory of its own: replays write to that of what was computed before.
#[test]
fn constants_are_what_they_were_in_every_replay() {
    let _alone = alone();
    let weight = numbers([256, 256], 1);
    let ids = |values: Vec<i64>| {
        Tensor::<Cuda, 1, Int>::from_data(TensorData::new(values, [4]), &CudaDevice::default())
    };
    let run = |x: T<2>| {
        let products = x.clone().matmul(weight.clone()).matmul(weight.clone());
        // As large as the first product, which nobody needs any more.
        let sum = products.clone() + numbers([256, 256], 7);
        // Written to in place, and others each time.
        let counts = numbers([256, 256], 8).select_assign(
            0,
            ids(vec![0, 7, 7, 255]),
            sum.clone().slice([0..4, 0..256]),
            IndexingUpdateOp::Add,
        );
        let images = products.slice([0..64, 0..256]).reshape([1, 4, 64, 64]);
        let resized =
            module::interpolate(images, &[99, 70], InterpolateMode::Linear, CoordinateTransform::HalfPixel);
        (sum, counts, resized)
    };
    let graph = Graph::capture(numbers([256, 256], 3), run).expect("a graph");
    for seed in 4..7 {
        let (sum, counts, images) = graph.replay(numbers([256, 256], seed)).expect("a replay");
        let expected = run(numbers([256, 256], seed));
        assert_eq!(floats(sum), floats(expected.0), "{seed}");
        assert_eq!(floats(counts), floats(expected.1), "{seed}");
        assert_eq!(floats(images), floats(expected.2), "{seed}");
    }
}

/// Inputs, launch and outputs of one replay do not mix with those of another.
#[test]
fn threads_that_share_a_graph_have_the_outputs_of_their_inputs() {
    let _alone = alone();
    let weights = [numbers([6, 9], 1), numbers([9, 4], 2)];
    let graph = Graph::capture(numbers([5, 6], 3), |x| network(&weights, x)).expect("a graph");
    std::thread::scope(|scope| {
        for seed in 4..8 {
            let (graph, weights) = (&graph, &weights);
            scope.spawn(move || {
                let expected = floats(network(weights, numbers([5, 6], seed)));
                for _ in 0..50 {
                    let y = graph.replay(numbers([5, 6], seed)).expect("a replay");
                    assert_eq!(floats(y), expected, "{seed}");
                }
            });
        }
    });
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
    let nested = Graph::capture(x(), |x| match Graph::capture(x.clone(), |x| x * 2.0) {
        Ok(inner) => inner.replay(x).expect("a replay"),
        Err(_) => x,
    });
    assert!(matches!(nested.map(|_| ()), Err(CaptureError::Nested)));
    let inner = Graph::capture(x(), |x| x * 2.0).expect("a graph");
    let replays = Graph::capture(x(), |x| inner.replay(x.clone()).unwrap_or(x));
    assert!(matches!(replays.map(|_| ()), Err(CaptureError::Replay)));
    assert_eq!(floats(inner.replay(x()).expect("a replay")), floats(x() * 2.0));
    // The device goes on.
    assert_eq!(floats(x() + 1.0), floats(x()).iter().map(|x| x + 1.0).collect::<Vec<_>>());
}

#[test]
fn random_numbers_are_others_in_each_replay() {
    let _alone = alone();
    let device = CudaDevice::default();
    let run = |x: T<2>| {
        let noise = T::<2>::random([40, 50], Distribution::Default, &x.device());
        let normal = T::<2>::random([40, 50], Distribution::Normal(0.0, 1.0), &x.device());
        (x.clone() + noise.clone(), noise, normal, module::dropout(x.clone(), 0.5), module::dropout(x, 0.5))
    };
    let ones = || T::<2>::ones([40, 50], &device);
    let replays = || {
        // What follows the seed is the same, capture and replays.
        Cuda::<f32, i64>::seed(&device, 11);
        let graph = Graph::capture(ones(), run).expect("a graph");
        (0..3)
            .map(|_| graph.replay(ones()).expect("a replay"))
            .map(|(sum, noise, normal, first, second)| {
                let [sum, noise, normal, first, second] = [sum, noise, normal, first, second].map(floats);
                assert_eq!(sum, noise.iter().map(|noise| noise + 1.0).collect::<Vec<_>>());
                assert!(noise.iter().all(|noise| (0.0..1.0).contains(noise)));
                let mean = normal.iter().sum::<f32>() / 2000.0;
                assert!(mean.abs() < 0.1, "{mean}");
                for dropped in [&first, &second] {
                    let zeros = dropped.iter().filter(|value| **value == 0.0).count();
                    assert!((850..1150).contains(&zeros), "{zeros}");
                    assert!(dropped.iter().all(|value| [0.0, 2.0].contains(value)));
                }
                assert_ne!(first, second);
                [noise, normal, first, second]
            })
            .collect::<Vec<_>>()
    };
    let all = replays();
    for (n, kind) in all.iter().enumerate() {
        for other in &all[n + 1..] {
            assert!(kind.iter().zip(other).all(|(numbers, others)| numbers != others));
        }
    }
    assert_eq!(all, replays());
    // A thread's own sequence is followed as well.
    let of_thread = || {
        Cuda::<f32, i64>::seed_thread(&device, Some(5));
        let graph = Graph::capture(ones(), |x| module::dropout(x, 0.5)).expect("a graph");
        let all = [(); 2].map(|()| floats(graph.replay(ones()).expect("a replay")));
        Cuda::<f32, i64>::seed_thread(&device, None);
        all
    };
    let [first, second] = of_thread();
    assert_ne!(first, second);
    assert_eq!([first, second], of_thread());
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
    let mut waits = Captured::new(|x: T<2>| {
        let _ = Cuda::<f32, i64>::sync(&CudaDevice::default());
        x
    });
    for _ in 0..2 {
        let error = waits.run(numbers([5, 6], 3)).expect_err("a read");
        assert!(matches!(error, CapturedError::Capture(CaptureError::Read)), "{error}");
        assert_eq!(waits.graphs(), 0);
    }
    let mut nothing = Captured::new(|()| numbers([2, 2], 1));
    let error = nothing.run(()).expect_err("no inputs");
    assert_eq!(error.to_string(), "a captured computation needs at least one input, or state");
}

fn integers(values: &[i64]) -> Tensor<Cuda, 1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), &CudaDevice::default())
}

fn whole<const D: usize>(tensor: Tensor<Cuda, D, Int>) -> Vec<i64> {
    tensor.into_data().to_vec().expect("integers")
}

#[test]
fn state_goes_on_from_replay_to_replay() {
    let _alone = alone();
    // A recurrent layer, and the number of its steps.
    let weight = numbers([4, 4], 1) * 0.1;
    let run = |(hidden, steps): (T<2>, Tensor<Cuda, 1, Int>), x: T<2>| {
        let hidden = (hidden.matmul(weight.clone()) + x).tanh();
        ((hidden.clone(), steps + 1), hidden.sum())
    };
    let begin = || (numbers([2, 4], 2), integers(&[10]));
    let given = begin();
    let graph = Graph::capture_with_state(given.clone(), numbers([2, 4], 3), run).expect("a graph");
    // The state is as it was given: nothing that the capture ran has changed it, here or there.
    assert_eq!(whole(graph.state().expect("state").1), [10]);
    for round in 0..2 {
        let mut expected = begin();
        for seed in 3..7 {
            let sum = graph.replay(numbers([2, 4], seed)).expect("a replay");
            let (next, of_next) = run(expected, numbers([2, 4], seed));
            expected = next;
            assert_eq!(floats(sum), floats(of_next), "{round} {seed}");
        }
        let (hidden, steps) = graph.state().expect("state");
        assert_eq!(floats(hidden), floats(expected.0));
        assert_eq!(whole(steps), [14]);
        graph.set_state(begin()).expect("the first state");
    }
    assert_eq!((floats(given.0), whole(given.1)), (floats(begin().0), vec![10]));
}

#[test]
fn what_is_written_in_place_is_not_copied() {
    let _alone = alone();
    let device = CudaDevice::default();
    let append = |(cache, position): (T<3>, Tensor<Cuda, 1, Int>), x: T<3>| {
        let cache = cache.select_assign(1, position.clone(), x, IndexingUpdateOp::Assign);
        ((cache, position), ())
    };
    let cache = T::<3>::full([2, 5, 3], 7.0, &device);
    let graph = Graph::capture_with_state((cache.clone(), integers(&[1])), numbers([2, 1, 3], 1), append)
        .expect("a graph");
    let rows = |cache: T<3>, row: usize| floats(cache.slice([0..2, row..row + 1, 0..3]));
    for row in [1, 4, 0] {
        let (now, _) = graph.state().expect("state");
        graph.set_state((now, integers(&[row]))).expect("another position");
        graph.replay(numbers([2, 1, 3], row as usize)).expect("a replay");
    }
    let (now, _) = graph.state().expect("state");
    for row in 0..5 {
        let expected = if [1, 4, 0].contains(&row) { floats(numbers([2, 1, 3], row)) } else { vec![7.0; 6] };
        assert_eq!(rows(now.clone(), row), expected, "{row}");
    }
    // What was given is not written to.
    assert_eq!(floats(cache.clone()), vec![7.0; 30]);

    // A capture launches what follows twice: the computation on copies of the state, and the one that is written down.
    let (x, state) = (numbers([2, 1, 3], 1), (cache, integers(&[1])));
    let before = statistics(&device);
    let graph = Graph::capture_with_state(state, x.clone(), append).expect("a graph");
    let after = statistics(&device);
    // The input is copied along with the cache, by the same launch.
    let (copies, updates) = (2 * 2, 2);
    assert_eq!(after.launches - before.launches, copies + updates);
    // Beside the input, a replay copies nothing.
    let before = statistics(&device);
    graph.replay(x).expect("a replay");
    let after = statistics(&device);
    assert_eq!((after.replays - before.replays, after.launches - before.launches), (1, 1));
    assert_eq!(after.buffers, before.buffers);
}

#[test]
fn states_that_change_places_are_both_kept() {
    let _alone = alone();
    let begin = || (numbers([3, 2], 1), numbers([3, 2], 2), numbers([2, 3], 3));
    // Two that are exchanged, one of them in part, and the view of a third, whose memory is also an output.
    let run = |(a, b, c): (T<2>, T<2>, T<2>), ()| {
        let turned = c.clone().reshape([3, 2]) + 1.0;
        let seen = (a.clone(), c.clone().transpose());
        ((b, a, turned.transpose()), seen)
    };
    let graph = Graph::capture_with_state(begin(), (), run).expect("a graph");
    let mut expected = begin();
    for round in 0..3 {
        let (first, second) = graph.replay(()).expect("a replay");
        let (next, outputs) = run(expected, ());
        expected = next;
        assert_eq!((floats(first), floats(second)), (floats(outputs.0), floats(outputs.1)), "{round}");
        let (a, b, c) = graph.state().expect("state");
        let [x, y, z] = [expected.0.clone(), expected.1.clone(), expected.2.clone()].map(floats);
        assert_eq!((floats(a), floats(b), floats(c)), (x, y, z), "{round}");
    }
}

#[test]
fn state_that_is_returned_twice_or_dropped_is_state() {
    let _alone = alone();
    let others = || numbers([2, 2], 9);
    // The first becomes both, the second is not looked at, the third is a weight afterwards, and the fourth is a row of itself.
    let run = |[a, _b, _c, d]: [T<2>; 4], x: T<2>| {
        let a = a.select_assign(0, integers(&[1]), x, IndexingUpdateOp::Assign);
        let row = d.clone().slice([1..2, 0..2]).expand([2, 2]);
        ([a.clone(), a, others(), row], d)
    };
    let begin = || [1, 2, 3, 4].map(|seed| numbers([2, 2], seed));
    let graph = Graph::capture_with_state(begin(), numbers([1, 2], 5), run).expect("a graph");
    let mut expected = begin();
    for seed in 5..8 {
        let output = graph.replay(numbers([1, 2], seed)).expect("a replay");
        let (next, of_next) = run(expected, numbers([1, 2], seed));
        assert_eq!(floats(output), floats(of_next), "{seed}");
        expected = next;
        assert_eq!(graph.state().expect("state").map(floats), expected.clone().map(floats), "{seed}");
    }
}

#[test]
fn memory_of_state_is_the_graphs_and_comes_back() {
    let _alone = alone();
    let device = CudaDevice::default();
    let capture = || {
        // Of the sizes of what is computed on the way: what is dropped there must not become that.
        let state = [T::<1>::full([1 << 16], 2.0, &device), T::<1>::full([1 << 16], 3.0, &device)];
        let run = |[a, b]: [T<1>; 2], ()| {
            let a = a.exp().log() + 1.0;
            let b = (b * 2.0).exp().log();
            ([b.clone() - a.clone(), a * b.clone()], b.sum())
        };
        Graph::capture_with_state(state, (), run).expect("a graph")
    };
    let graph = capture();
    // Others have the sizes that the graph has had, with other contents.
    let others: Vec<T<1>> = (0..20).map(|_| T::full([1 << 16], 1e9, &device)).collect();
    graph.replay(()).expect("a replay");
    let [a, b] = graph.state().expect("state").map(floats);
    assert!(a.iter().all(|&a| (a - 3.0).abs() < 1e-3), "{:?}", &a[..4]);
    assert!(b.iter().all(|&b| (b - 18.0).abs() < 1e-3), "{:?}", &b[..4]);
    assert!(others.into_iter().map(floats).all(|other| other == vec![1e9; 1 << 16]));
    drop(graph);
    drop(capture());
    let before = statistics(&device);
    for _ in 0..10 {
        drop(capture());
    }
    assert_eq!(statistics(&device).buffers, before.buffers, "memory of a graph is used again");
}

#[test]
fn graphs_that_share_weights_both_keep_them() {
    let _alone = alone();
    let weight = numbers([4, 4], 1);
    let expected = floats(numbers([2, 4], 2).matmul(weight.clone()));
    let first = Graph::capture(numbers([2, 4], 2), |x| x.matmul(weight.clone())).expect("a graph");
    let second = Graph::capture(numbers([2, 4], 3), |x| x.matmul(weight.clone())).expect("a graph");
    drop(second);
    drop(weight);
    let others: Vec<T<2>> = (0..50).map(|_| T::full([4, 4], 1e9, &CudaDevice::default())).collect();
    assert_eq!(floats(first.replay(numbers([2, 4], 2)).expect("a replay")), expected);
    drop(others);
}

#[test]
fn other_state_is_refused_by_name() {
    let _alone = alone();
    let x = || numbers([2, 3], 1);
    let error = Graph::capture_with_state(x(), (), |x, ()| (x.transpose(), ())).expect_err("another shape");
    assert_eq!(
        error.to_string(),
        "tensor 0 of the state of a captured computation is f32 [2, 3], and it returns f32 [3, 2]: each replay goes on from what the last \
         returned"
    );
    let error = Graph::capture_with_state(vec![x()], (), |_, ()| (vec![], ())).expect_err("another number");
    assert!(matches!(error, CaptureError::StateNumber { given: 1, returned: 0 }), "{error}");
    let mut kept = Vec::new();
    let error = Graph::capture_with_state([x(), x()], (), |[a, b], ()| {
        kept.push(b.clone());
        ([a, b + 1.0], ())
    });
    assert_eq!(error.map(|_| ()), Err(CaptureError::StateKept { number: 1 }));
    // What it keeps and returns as it is, nobody else writes to.
    let graph = Graph::capture_with_state([x(), x()], (), |[a, b], ()| {
        kept.push(b.clone());
        ([a + 1.0, b], ())
    });
    assert_eq!(floats(graph.expect("a graph").state().expect("state")[1].clone()), floats(x()));
    let error = Graph::capture_with_state((), (), |(), ()| ((), ())).map(|_| ());
    assert_eq!(error, Err(CaptureError::NoInputs));

    let graph = Graph::capture_with_state(vec![x()], x(), |state, x| (vec![state[0].clone() + x], ()));
    let graph = graph.expect("a graph");
    let error = graph.set_state(vec![numbers([2, 4], 1)]).expect_err("another shape");
    assert_eq!(
        error.to_string(),
        "state 0 is f32 [2, 4], and the graph was captured with f32 [2, 3]: capture another for it"
    );
    let error = graph.set_state(vec![]).expect_err("another number");
    assert!(matches!(error, ReplayError::StateNumber { given: 0, captured: 1 }));
    let error = graph.replay(numbers([3, 2], 1)).expect_err("another input");
    assert!(matches!(error, ReplayError::Input { of: Operand::Input, number: 0, .. }));
    // Nothing of this has changed the state.
    assert_eq!(floats(graph.state().expect("state")[0].clone()), floats(x()));
    graph.replay(x()).expect("a replay");
    assert_eq!(floats(graph.state().expect("state")[0].clone()), floats(x() * 2.0));
}
