//! The chapter on datasets: transformations, storage, sources.

use burn::data::dataset::source::huggingface::HuggingfaceDatasetLoader;
use burn::data::dataset::transform::{
    ComposedDataset, Mapper, MapperDataset, PartialDataset, SamplerDataset, SamplerDatasetOptions,
    ShuffledDataset, WindowsDataset,
};
use burn::data::dataset::{Dataset, InMemDataset, SqliteDataset, SqliteDatasetStorage, SqliteDatasetWriter};

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs, reason = "a program of the book")]
pub struct DbPediaItem {
    pub title: String,
    pub content: String,
    pub label: usize,
}

fn item(n: usize) -> DbPediaItem {
    DbPediaItem { title: format!("title {n}"), content: "words".repeat(n), label: n % 14 }
}

type DbPedia = SqliteDataset<DbPediaItem>;

/// A local copy of the dataset, in a folder.
fn copy() -> (tempfile::TempDir, impl Fn() -> DbPedia) {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().to_str().unwrap().to_owned();
    let storage = SqliteDatasetStorage::from_name("dbpedia_14").with_base_dir(&base);
    let mut writer: SqliteDatasetWriter<DbPediaItem> = storage.writer(true).unwrap();
    for n in 0..50 {
        writer.write("train", &item(n)).unwrap();
    }
    writer.set_completed().unwrap();
    assert!(storage.exists());
    let load = move || {
        let dataset: SqliteDataset<DbPediaItem> = HuggingfaceDatasetLoader::new("dbpedia_14")
            .with_base_dir(&base)
            .dataset("train") // The training split.
            .unwrap();
        dataset
    };
    (folder, load)
}

#[test]
fn a_dataset_is_loaded_and_sampled() {
    let (_folder, load) = copy();
    assert_eq!(load().get(3), Some(item(3)));
    let dataset = SamplerDataset::<DbPedia, DbPediaItem>::new(load(), 10000);
    assert_eq!(dataset.len(), 10000);
    let options = SamplerDatasetOptions::default().without_replacement().with_size_ratio(0.5).with_seed(3);
    assert_eq!(SamplerDataset::<DbPedia, DbPediaItem>::new(load(), options).len(), 25);
    assert!(dataset.iter().take(100).all(|sampled| sampled == item(sampled.content.len() / 5)));
}

#[test]
fn shuffled_splits_share_nothing() {
    type PartialData = PartialDataset<ShuffledDataset<DbPedia, DbPediaItem>, DbPediaItem>;
    let (_folder, load) = copy();
    let split = |split: &str| {
        let dataset = ShuffledDataset::<DbPedia, DbPediaItem>::with_seed(load(), 42);
        let len = dataset.len();
        match split {
            "train" => PartialData::new(dataset, 0, len * 8 / 10), // Get first 80% dataset
            "test" => PartialData::new(dataset, len * 8 / 10, len), // Take remaining 20%
            _ => panic!("Invalid split type"),                     // Handle unexpected split types
        }
    };
    // 0.20 takes the seed, or a generator, where 0.18 had a function of its own.
    let newer = ShuffledDataset::<DbPedia, DbPediaItem>::new(load(), 42);
    assert_eq!(newer.iter().take(40).collect::<Vec<_>>(), split("train").iter().collect::<Vec<_>>());
    assert_eq!((split("train").len(), split("test").len()), (40, 10));
    let mut titles: Vec<String> =
        split("train").iter().chain(split("test").iter()).map(|item| item.title).collect();
    titles.sort();
    titles.dedup();
    assert_eq!(titles.len(), 50);
}

struct Label;

impl Mapper<DbPediaItem, usize> for Label {
    fn map(&self, item: &DbPediaItem) -> usize {
        item.label
    }
}

#[test]
fn datasets_are_mapped_composed_and_seen_through_windows() {
    let (_folder, load) = copy();
    let labels = MapperDataset::new(load(), Label);
    assert_eq!(labels.iter().take(16).sum::<usize>(), 13 * 14 / 2 + 1);
    let twice = ComposedDataset::new(vec![load(), load()]);
    assert_eq!((twice.len(), twice.get(53)), (100, Some(item(3))));
    let windows = WindowsDataset::new(InMemDataset::from_dataset(&labels), 3);
    assert_eq!((windows.len(), windows.get(12)), (48, Some(vec![12, 13, 0])));
}

/// A frame of the version of Polars that the runtime has.
#[test]
fn a_data_frame_is_a_dataset() {
    use burn::data::dataset::{DataframeDataset, polars::df};
    let frame = df!("title" => ["a", "b"], "content" => ["", "words"], "label" => [3_i64, 4]).unwrap();
    let dataset: DataframeDataset<DbPediaItem> = DataframeDataset::new(frame).unwrap();
    assert_eq!(dataset.len(), 2);
    assert_eq!(dataset.get(1), Some(DbPediaItem { title: "b".into(), content: "words".into(), label: 4 }));
}
