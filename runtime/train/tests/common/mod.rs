//! A small task that several tests train on: which of three bands a point lies in.
#![allow(missing_docs, dead_code)]

use kiln_autodiff::Autodiff;
use kiln_core::config::Config;
use kiln_core::module::Module;
use kiln_core::nn::loss::CrossEntropyLossConfig;
use kiln_core::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig, Relu};
use kiln_core::tensor::backend::{AutodiffBackend, Backend};
use kiln_core::tensor::{DType, Int, Tensor, TensorData};
use kiln_data::dataloader::batcher::Batcher;
use kiln_data::dataloader::{DataLoader, DataLoaderBuilder};
use kiln_data::dataset::InMemDataset;
use kiln_ndarray::NdArray;
use kiln_train::{ClassificationOutput, MixedTrainStep, StepPrecision, TrainOutput, TrainStep, ValidStep};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub type Inner = NdArray;
pub type Trained = Autodiff<Inner>;

#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    first: Linear<B>,
    norm: BatchNorm<B>,
    dropout: Dropout,
    last: Linear<B>,
    relu: Relu,
}

#[derive(Config, Debug)]
pub struct ModelConfig {
    #[config(default = 16)]
    hidden: usize,
    #[config(default = 0.25)]
    dropout: f64,
}

impl ModelConfig {
    pub fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            first: LinearConfig::new(2, self.hidden).init(device),
            norm: BatchNormConfig::new(self.hidden).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            last: LinearConfig::new(self.hidden, 3).init(device),
            relu: Relu::new(),
        }
    }
}

impl<B: Backend> Model<B> {
    pub fn forward(&self, points: Tensor<B, 2>) -> Tensor<B, 2> {
        let [batch, _] = points.dims();
        let points = points.cast(self.first.weight.val().dtype());
        let x = self.first.forward(points).unsqueeze_dim::<3>(2);
        let x = self.norm.forward(x).reshape([batch as i32, -1]);
        self.last.forward(self.dropout.forward(self.relu.forward(x)))
    }

    fn classify(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        classified(self.forward(batch.points), batch.bands)
    }
}

fn classified<B: Backend>(output: Tensor<B, 2>, bands: Tensor<B, 1, Int>) -> ClassificationOutput<B> {
    let loss = CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), bands.clone());
    ClassificationOutput::new(loss, output, bands)
}

impl<B: AutodiffBackend> MixedTrainStep<Batch<B>, ClassificationOutput<B>> for Model<B> {
    fn step_in(&self, batch: Batch<B>, precision: &StepPrecision) -> TrainOutput<ClassificationOutput<B>> {
        let output = precision.model::<B, _>(self).forward(batch.points.cast(precision.dtype()));
        assert_eq!(output.dtype(), precision.dtype());
        let item = classified(output.cast(DType::F32), batch.bands);
        TrainOutput::new(self, precision.backward(item.loss.clone()), item)
    }
}

impl<B: AutodiffBackend> TrainStep<Batch<B>, ClassificationOutput<B>> for Model<B> {
    fn step(&self, batch: Batch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let item = self.classify(batch);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl<B: Backend> ValidStep<Batch<B>, ClassificationOutput<B>> for Model<B> {
    fn step(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        self.classify(batch)
    }
}

#[derive(Clone, Debug)]
pub struct Point([f32; 2]);

#[derive(Clone, Debug)]
pub struct Batch<B: Backend> {
    pub points: Tensor<B, 2>,
    pub bands: Tensor<B, 1, Int>,
}

#[derive(Clone, Debug)]
pub struct Batcher2d;

impl<B: Backend> Batcher<B, Point, Batch<B>> for Batcher2d {
    fn batch(&self, items: Vec<Point>, device: &B::Device) -> Batch<B> {
        let bands: Vec<i64> = items.iter().map(|Point([x, y])| ((x + y) * 1.5) as i64).collect();
        let points: Vec<f32> = items.iter().flat_map(|Point(point)| *point).collect();
        let count = items.len();
        Batch {
            points: Tensor::from_data(TensorData::new(points, [count, 2]), device),
            bands: Tensor::from_data(TensorData::new(bands, [count]), device),
        }
    }
}

/// Points spread evenly (the plastic number's sequence).
pub fn points(count: usize, from: usize) -> InMemDataset<Point> {
    let place = |n: usize, step: f64| ((n as f64 * step) % 1.0) as f32;
    let point = |n| Point([place(n, 0.754_877_666_246_692_7), place(n, 0.569_840_290_998_053_2)]);
    InMemDataset::new((from..from + count).map(point).collect())
}

pub type Loaders = (Arc<dyn DataLoader<Trained, Batch<Trained>>>, Arc<dyn DataLoader<Inner, Batch<Inner>>>);

/// 110 points in 7 steps to train on, 50 to measure with.
pub fn loaders(workers: usize) -> Loaders {
    let train = DataLoaderBuilder::new(Batcher2d).batch_size(16).shuffle(5).num_workers(workers);
    let valid = DataLoaderBuilder::new(Batcher2d).batch_size(20).num_workers(workers);
    (train.build(points(110, 0)), valid.build(points(50, 1000)))
}

/// All files under a folder, with their bytes.
pub fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        for entry in std::fs::read_dir(&inner).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("within").to_string_lossy().into_owned();
                found.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
    found
}
