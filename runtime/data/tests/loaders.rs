//! Data loaders: every item once, in the same order for any number of workers.

use kiln_data::dataloader::batcher::Batcher;
use kiln_data::dataloader::split::split_dataloader;
use kiln_data::dataloader::{DataLoader, DataLoaderBuilder, Place, Progress, random_seed};
use kiln_data::dataset::transform::{Mapper, MapperDataset};
use kiln_data::dataset::{Dataset, InMemDataset};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::Backend;
use kiln_tensor::{Distribution, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

type B = NdArray;

#[derive(Clone)]
struct AsTheyAre;

impl<B: Backend> Batcher<B, usize, Vec<usize>> for AsTheyAre {
    fn batch(&self, items: Vec<usize>, _device: &B::Device) -> Vec<usize> {
        // Some batches take longer than others.
        std::thread::sleep(Duration::from_micros(items[0] as u64 * 7 % 300));
        items
    }
}

fn loader(items: usize, workers: usize, seed: Option<u64>) -> Arc<dyn DataLoader<B, Vec<usize>>> {
    let builder = DataLoaderBuilder::<B, _, _>::new(AsTheyAre).batch_size(4).num_workers(workers);
    let builder = match seed {
        Some(seed) => builder.shuffle(seed),
        None => builder,
    };
    builder.build(InMemDataset::new((0..items).collect()))
}

fn epoch(loader: &Arc<dyn DataLoader<B, Vec<usize>>>) -> Vec<Vec<usize>> {
    loader.iter().collect()
}

#[test]
fn items_come_in_order_and_the_last_batch_is_smaller() {
    for workers in [0, 1, 3, 8] {
        assert_eq!(epoch(&loader(10, workers, None)), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
        assert!(epoch(&loader(0, workers, None)).is_empty());
    }
}

#[test]
fn orders_depend_on_seed_and_epoch_alone() {
    let epochs = |workers, seed| {
        let loader = loader(101, workers, Some(seed));
        [epoch(&loader), epoch(&loader)]
    };
    let expected = epochs(0, 42);
    assert_ne!(expected[0], expected[1]);
    assert_ne!(expected, epochs(0, 43));
    for workers in [1, 2, 5] {
        assert_eq!(epochs(workers, 42), expected, "{workers} workers");
    }
    let mut all = expected[0].concat();
    all.sort_unstable();
    assert_eq!(all, (0..101).collect::<Vec<_>>());
}

#[test]
fn progress_counts_items() {
    let loader = loader(10, 2, None);
    let mut batches = loader.iter();
    assert_eq!(batches.progress(), Progress::new(0, 10));
    batches.next();
    assert_eq!(batches.progress(), Progress::new(4, 10));
    batches.by_ref().for_each(drop);
    assert_eq!(batches.progress(), Progress::new(10, 10));
    assert_eq!(loader.num_items(), 10);
}

#[test]
fn an_epoch_can_be_left_early() {
    let loader = loader(10_000, 4, Some(1));
    assert_eq!(loader.iter().take(2).count(), 2);
    assert_eq!(loader.iter().count(), 2500);
}

#[test]
fn a_part_of_the_items() {
    let part = loader(10, 2, None).slice(2, 5);
    assert_eq!((part.num_items(), epoch(&part)), (3, vec![vec![2, 3, 4]]));
}

struct Breaks;

impl Dataset<usize> for Breaks {
    fn get(&self, index: usize) -> Option<usize> {
        assert!(index < 6, "item {index} is broken");
        Some(index)
    }

    fn len(&self) -> usize {
        12
    }
}

#[test]
fn what_a_worker_panics_with_is_passed_on() {
    let loader = DataLoaderBuilder::<B, _, _>::new(AsTheyAre).batch_size(4).num_workers(2).build(Breaks);
    let mut batches = loader.iter();
    assert_eq!(batches.next(), Some(vec![0, 1, 2, 3]));
    let message = catch_unwind(AssertUnwindSafe(|| batches.next())).expect_err("a broken item");
    assert_eq!(message.downcast_ref::<String>().map(String::as_str), Some("item 6 is broken"));
    // Whoever caught it gets what other threads have made, and then the end.
    while catch_unwind(AssertUnwindSafe(|| batches.next())).is_ok_and(|batch| batch.is_some()) {}
    assert_eq!(batches.next(), None);
}

/// Cannot read these items.
struct Unreadable(std::ops::Range<usize>);

impl Dataset<usize> for Unreadable {
    fn get(&self, index: usize) -> Option<usize> {
        (!self.0.contains(&index)).then_some(index)
    }

    fn len(&self) -> usize {
        12
    }
}

/// A batcher is not asked to join nothing.
#[test]
fn batches_without_an_item_that_can_be_read_are_left_out() {
    let cases: [(_, &[&[usize]]); 3] =
        [(3..9, &[&[0, 1, 2], &[9, 10, 11]]), (8..12, &[&[0, 1, 2, 3], &[4, 5, 6, 7]]), (0..12, &[])];
    for (range, expected) in cases {
        for workers in [0, 1, 2] {
            let builder = DataLoaderBuilder::<B, _, _>::new(AsTheyAre).batch_size(4).num_workers(workers);
            let loader = builder.build(Unreadable(range.clone()));
            let mut batches = loader.iter();
            assert_eq!(batches.by_ref().collect::<Vec<_>>(), expected, "{range:?}, {workers} workers");
            assert_eq!(batches.progress(), Progress::new(12, 12));
        }
    }
}

#[test]
fn an_epoch_goes_on_at_any_place() {
    let whole: Vec<_> = {
        let loader = loader(101, 0, Some(42));
        (0..3).map(|_| epoch(&loader)).collect()
    };
    for workers in [0, 1, 3] {
        for batch in [0, 1, 7, 25, 26, 99] {
            let loader = loader(101, workers, Some(42));
            let mut rest = loader.iter_at(Place { epoch: 1, batch, ..Place::default() });
            let done = batch.min(26);
            assert_eq!(rest.progress(), Progress::new((done * 4).min(101), 101));
            assert_eq!(
                rest.by_ref().collect::<Vec<_>>(),
                whole[1][done..],
                "{workers} workers, batch {batch}"
            );
            assert_eq!(rest.progress(), Progress::new(101, 101));
            drop(rest);
            assert_eq!(epoch(&loader), whole[2], "the epoch after it comes next");
        }
    }
}

/// Moves each item by a random number, each batch by another one.
#[derive(Clone)]
struct Noisy;

impl Mapper<usize, f64> for Noisy {
    fn map(&self, item: &usize) -> f64 {
        *item as f64 + (random_seed() % 1000) as f64 / 1000.0
    }
}

impl<B: Backend> Batcher<B, f64, Vec<f64>> for Noisy {
    fn batch(&self, items: Vec<f64>, device: &B::Device) -> Vec<f64> {
        let shift = Tensor::<B, 1>::random([items.len()], Distribution::Uniform(0.0, 100.0), device);
        items.into_iter().zip(shift.into_data().iter::<f64>()).map(|(item, shift)| item + shift).collect()
    }
}

#[test]
fn random_numbers_depend_on_seeds_epoch_and_place_alone() {
    let device = Default::default();
    let batches = |workers, seed, training, from| {
        let loader =
            DataLoaderBuilder::<B, _, _>::new(Noisy).batch_size(4).shuffle(seed).num_workers(workers);
        let loader = loader.build(MapperDataset::new(InMemDataset::new((0..30).collect()), Noisy));
        let epoch = |epoch| loader.iter_at(Place { epoch, batch: from, seed: training }).collect::<Vec<_>>();
        [epoch(0), epoch(1)]
    };
    let expected = batches(0, 3, 7, 0);
    assert_ne!(expected[0], expected[1]);
    for workers in [0, 1, 4] {
        B::seed(&device, workers as u64);
        let next = |workers| {
            B::seed(&device, 5);
            let found = batches(workers, 3, 7, 0);
            assert_eq!(found, expected, "{workers} workers");
            Tensor::<B, 1>::random([1], Distribution::Default, &device).into_scalar()
        };
        // What is drawn for batches does not disturb the device's sequence.
        assert_eq!(next(workers), next(0));
    }
    assert_eq!(batches(2, 3, 7, 5), expected.clone().map(|epoch| epoch[5..].to_vec()));
    for (seed, training) in [(4, 7), (3, 8)] {
        assert_ne!(batches(2, seed, training, 0), expected);
    }
    assert_ne!(random_seed(), random_seed());
}

#[test]
fn parts_for_devices_have_numbers_of_their_own() {
    let device = Default::default();
    let loader = |items| {
        let builder = DataLoaderBuilder::<B, _, _>::new(Noisy).batch_size(4);
        builder.build(MapperDataset::new(InMemDataset::new(vec![0; items]), Noisy))
    };
    let parts = split_dataloader(loader(7), &[device; 4]);
    assert_eq!(parts.iter().map(|part| part.num_items()).collect::<Vec<_>>(), [1, 2, 2, 2]);
    let parts = split_dataloader(loader(9), &[device; 2]);
    assert_eq!(parts.iter().map(|part| part.num_items()).collect::<Vec<_>>(), [4, 5]);
    let [first, second]: [Vec<_>; 2] = [0, 1].map(|n: usize| parts[n].iter().flatten().collect());
    assert_ne!(first, second[..4]);
}
