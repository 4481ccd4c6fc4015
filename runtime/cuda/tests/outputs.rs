//! What graphs leave in their own memory: whoever holds it keeps what was there, and nothing is copied for those who do not.

#![cfg(target_os = "linux")]

mod host;

use host::{faults, mend};
use kiln_cuda::{Captured, Cuda, CudaDevice, Graph, statistics};
use kiln_tensor::backend::Backend;
use kiln_tensor::{IndexingUpdateOp, Int, Tensor, TensorData};
use std::sync::{Mutex, MutexGuard, PoisonError};

type T<const D: usize> = Tensor<Cuda, D>;

const DEVICE: CudaDevice = CudaDevice { index: 0 };

/// Counts and faults are the device's, which the tests share.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn numbers(seed: usize) -> T<2> {
    let values: Vec<f32> = (0..12).map(|n| ((n * 31 + seed * 17) % 1009 % 9) as f32 - 4.0).collect();
    T::from_data(TensorData::new(values, [3, 4]), &DEVICE)
}

fn floats<const D: usize>(tensor: T<D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("floats")
}

/// What the graphs here compute.
fn computed(x: T<2>) -> T<2> {
    x.sum_dim(1).exp() + 1.0
}

fn expected(seed: usize) -> Vec<f32> {
    floats(computed(numbers(seed)))
}

#[test]
fn whoever_holds_an_output_keeps_it() {
    let _alone = alone();
    let graph = Graph::capture(numbers(1), computed).expect("a graph");
    let replay = |seed: usize| graph.replay(numbers(seed)).expect("a replay");
    let first = replay(2);
    // Another handle, a view, and what waits to be computed of it.
    let (again, part, sum) = (first.clone(), first.clone().slice([1..3, 0..1]), first.clone() * 2.0);
    let second = replay(3);
    let third = replay(4);
    assert_eq!(floats(third), expected(4));
    assert_eq!(floats(second), expected(3));
    assert_eq!(floats(again), expected(2));
    assert_eq!(floats(part), expected(2)[1..]);
    assert_eq!(floats(sum), expected(2).iter().map(|x| x * 2.0).collect::<Vec<_>>());
    // It is what the next replay is given.
    let mut x = replay(5);
    for _ in 0..3 {
        let wide = x.clone().repeat_dim(1, 4);
        let next = floats(computed(wide.clone()));
        x = graph.replay(wide).expect("a replay");
        assert_eq!(floats(x.clone()), next);
    }
    drop(first);
}

#[test]
fn what_is_dropped_in_time_is_not_copied() {
    let _alone = alone();
    let graph = Graph::capture(numbers(1), computed).expect("a graph");
    let launches = || statistics(&DEVICE).launches;
    let x = numbers(2);
    drop(graph.replay(x.clone()).expect("a replay"));
    let before = launches();
    drop(graph.replay(x.clone()).expect("a replay"));
    assert_eq!(launches() - before, 1, "the input is copied");
    let held = graph.replay(x.clone()).expect("a replay");
    let before = launches();
    drop(graph.replay(x).expect("a replay"));
    assert_eq!(launches() - before, 2, "the input is copied, and what is held");
    assert_eq!(floats(held), expected(2));
}

/// Copies wait for others of their kind.
#[test]
fn several_that_are_held_are_copied_together() {
    let _alone = alone();
    let several = |x: T<2>| (0..20).map(|n| x.clone() + n as f32).collect::<Vec<_>>();
    let graph = Graph::capture(numbers(1), several).expect("a graph");
    let mut held = graph.replay(numbers(2)).expect("a replay");
    // The first two by themselves, until it is known that there are more of them.
    for seed in 3..6 {
        let input = numbers(seed);
        let before = statistics(&DEVICE).launches;
        let next = graph.replay(input).expect("a replay");
        let launches = statistics(&DEVICE).launches - before;
        assert!(launches <= 4, "{launches} launches");
        for (n, (held, next)) in held.into_iter().zip(&next).enumerate() {
            assert_eq!(floats(held), floats(numbers(seed - 1) + n as f32));
            assert_eq!(floats(next.clone()), floats(numbers(seed) + n as f32));
        }
        held = next;
    }
}

#[test]
fn outputs_that_are_several_things_at_once() {
    let _alone = alone();
    let weight = numbers(9);
    let graph = Graph::capture(numbers(1), |x| {
        let y = computed(x.clone());
        // Twice the same, a view, what is in no memory of the graph's, and an input.
        [
            y.clone(),
            y.clone(),
            y.swap_dims(0, 1).reshape([3, 1]),
            weight.clone().slice([0..3, 0..1]),
            x.slice([0..3, 1..2]),
        ]
    })
    .expect("a graph");
    let of_seed = |seed: usize| {
        let column = |of: T<2>, at: usize| floats(of.slice([0..3, at..at + 1]));
        let y = expected(seed);
        [y.clone(), y.clone(), y, column(weight.clone(), 0), column(numbers(seed), 1)]
    };
    let held: Vec<_> = (2..6).map(|seed| (seed, graph.replay(numbers(seed)).expect("a replay"))).collect();
    for (seed, found) in held {
        assert_eq!(found.map(floats), of_seed(seed), "{seed}");
    }
    assert_eq!(floats(weight), floats(numbers(9)));
}

/// The first rows of what is computed, and none of them.
#[test]
fn parts_of_what_is_in_the_graphs_memory() {
    let _alone = alone();
    let rows = |rows: usize| move |x: T<2>| (x.repeat_dim(0, 200) * 2.0).slice([0..rows, 0..4]);
    let graph = Graph::capture(numbers(1), |x| [rows(2)(x.clone()), rows(0)(x)]).expect("a graph");
    let held: Vec<_> = (2..6).map(|seed| (seed, graph.replay(numbers(seed)).expect("a replay"))).collect();
    // What they were in is not taken for smaller, or larger, than it is.
    let others: Vec<_> = (0..8).map(|seed| numbers(seed).repeat_dim(0, 200)).collect();
    for (seed, [two, none]) in held {
        assert_eq!(floats(two), floats(rows(2)(numbers(seed))), "{seed}");
        assert_eq!(none.dims(), [0, 4]);
    }
    for (seed, other) in others.into_iter().enumerate() {
        assert_eq!(floats(other), floats(numbers(seed)).repeat(200));
    }
}

#[test]
fn what_is_written_to_in_place_is_the_holders() {
    let _alone = alone();
    let graph = Graph::capture(numbers(1), computed).expect("a graph");
    let y = graph.replay(numbers(2)).expect("a replay");
    let index = Tensor::<Cuda, 1, Int>::from_data([0_i64], &DEVICE);
    let value = T::<2>::from_data([[7.0]], &DEVICE);
    let y = y.select_assign(0, index, value, IndexingUpdateOp::Add);
    assert_eq!(floats(graph.replay(numbers(3)).expect("a replay")), expected(3));
    let mut changed = expected(2);
    changed[0] += 7.0;
    assert_eq!(floats(y), changed);
}

/// What another graph reads stays what it was when that was captured.
#[test]
fn an_output_is_another_graphs_constant() {
    let _alone = alone();
    let first = Graph::capture(numbers(1), computed).expect("a graph");
    let constant = first.replay(numbers(2)).expect("a replay");
    let second = Graph::capture(numbers(3), |x| x + constant.clone()).expect("a graph");
    let sum = |seed: usize| floats(numbers(seed) + constant.clone());
    for seed in 4..7 {
        assert_eq!(floats(first.replay(numbers(seed)).expect("a replay")), expected(seed));
        assert_eq!(floats(second.replay(numbers(seed)).expect("a replay")), sum(seed), "{seed}");
    }
    assert_eq!(floats(constant.clone()), expected(2));
    drop(constant);
    assert_eq!(floats(second.replay(numbers(1)).expect("a replay")), {
        floats(numbers(1) + computed(numbers(2)))
    });
}

#[test]
fn outputs_outlive_their_graph() {
    let _alone = alone();
    let mut forward = Captured::new(computed).with_capacity(1);
    let first = forward.run(numbers(2)).expect("a graph");
    let wide = T::<2>::ones([5, 4], &DEVICE);
    // The graph of the first shape is forgotten.
    let second = forward.run(wide.clone()).expect("a graph");
    let third = forward.run(numbers(3)).expect("a graph");
    drop(forward);
    assert_eq!(floats(first), expected(2));
    assert_eq!(floats(second), floats(computed(wide)));
    assert_eq!(floats(third), expected(3));
}

#[test]
fn threads_hold_outputs_of_one_graph() {
    let _alone = alone();
    let graph = Graph::capture(numbers(1), |x| [computed(x.clone()), x * 3.0]).expect("a graph");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let graph = &graph;
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..30 {
                    let seed = thread * 100 + round;
                    held.push((seed, graph.replay(numbers(seed)).expect("a replay")));
                    if round % 3 == thread % 3 {
                        held.truncate(2);
                    }
                    if round % 7 == 0 {
                        // What is captured meanwhile uses nothing that is lent.
                        let (_, [y, _]) = held[0].clone();
                        let other = Graph::capture(numbers(seed), |x| x + y.clone()).expect("a graph");
                        let sum = floats(numbers(seed) + y.clone());
                        assert_eq!(floats(other.replay(numbers(seed)).expect("a replay")), sum);
                    }
                }
                for (seed, [y, tripled]) in held {
                    assert_eq!(floats(y), expected(seed), "{seed}");
                    assert_eq!(floats(tripled), floats(numbers(seed) * 3.0), "{seed}");
                }
            });
        }
    });
}

/// What a computation keeps for itself is there once its graph ran.
#[test]
fn what_is_kept_of_a_capture_is_not_there_yet() {
    let _alone = alone();
    let mut kept = None;
    let graph = Graph::capture(numbers(1), |x| {
        let y = computed(x);
        kept = Some(y.clone());
        y * 2.0
    })
    .expect("a graph");
    let kept = kept.expect("what it kept");
    let told = kept.clone().try_into_data().expect_err("it did not run").to_string();
    assert!(told.contains("was not replayed yet"), "{told}");
    assert!((kept.clone() + 1.0).try_into_data().is_err());
    let _ = Cuda::<f32, i64>::sync(&DEVICE);
    for seed in 2..4 {
        let doubled = graph.replay(numbers(seed)).expect("a replay");
        assert_eq!(floats(kept.clone()), expected(seed));
        assert_eq!(floats(doubled), floats(computed(numbers(seed)) * 2.0));
    }
}

/// Who holds an output of which there is no memory for a copy is told so, and the graph goes on.
#[test]
fn there_is_no_memory_for_what_is_held() {
    let _alone = alone();
    let large = |seed: usize| T::<1>::full([1 << 20], seed as f32, &DEVICE);
    let graph = Graph::capture(large(1), |x| x + 1.0).expect("a graph");
    let held = graph.replay(large(2)).expect("a replay");
    let inputs = [large(3), large(4)];
    Cuda::<f32, i64>::sync(&DEVICE).expect("a device");
    faults(&DEVICE, |faults| faults.memory = Some(0));
    let fill: Vec<_> = (0..8).map(large).collect();
    let [third, fourth] = inputs.map(|input| graph.replay(input).map(|y| y.narrow(0, 0, 2)));
    drop(fill);
    mend(&DEVICE);
    // What is missing first is told first.
    let _ = Cuda::<f32, i64>::sync(&DEVICE);
    assert!(held.try_into_data().is_err(), "it was overwritten");
    for y in [third, fourth] {
        drop(y);
        let _ = Cuda::<f32, i64>::sync(&DEVICE);
    }
    let y = graph.replay(large(5)).expect("a replay");
    assert_eq!(floats(y.narrow(0, 0, 2)), [6.0, 6.0]);
}
