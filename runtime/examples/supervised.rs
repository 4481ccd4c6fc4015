//! A learner as Burn 0.20 spells it: points within a ring are told from those outside.
//!
//! `cargo run -p kiln --example supervised --features burn-0-20`

use kiln::backend::{Autodiff, NdArray};
use kiln::data::dataloader::DataLoaderBuilder;
use kiln::data::dataloader::batcher::Batcher;
use kiln::data::dataset::InMemDataset;
use kiln::nn::loss::CrossEntropyLossConfig;
use kiln::nn::{Gelu, Linear, LinearConfig};
use kiln::optim::AdamWConfig;
use kiln::prelude::*;
use kiln::record::CompactRecorder;
use kiln::tensor::backend::AutodiffBackend;
use kiln::train::metric::{AccuracyMetric, LossMetric};
use kiln::train::{
    ClassificationOutput, EvaluatorBuilder, InferenceStep, Learner, SupervisedTraining, TrainOutput,
    TrainStep,
};

#[derive(Module, Debug)]
struct Rings<B: Backend> {
    body: Linear<B>,
    head: Linear<B>,
    activation: Gelu,
}

impl<B: Backend> Rings<B> {
    fn new(device: &B::Device) -> Self {
        let (body, head) = (LinearConfig::new(2, 32).init(device), LinearConfig::new(32, 2).init(device));
        Self { body, head, activation: Gelu::new() }
    }

    fn classify(&self, (points, kinds): Batch<B>) -> ClassificationOutput<B> {
        let output = self.head.forward(self.activation.forward(self.body.forward(points)));
        let loss =
            CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), kinds.clone());
        ClassificationOutput::new(loss, output, kinds)
    }
}

type Batch<B> = (Tensor<B, 2>, Tensor<B, 1, Int>);

impl<B: AutodiffBackend> TrainStep for Rings<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Self::Input) -> TrainOutput<Self::Output> {
        let item = self.classify(batch);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl<B: Backend> InferenceStep for Rings<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Self::Input) -> Self::Output {
        self.classify(batch)
    }
}

#[derive(Clone)]
struct Points;

impl<B: Backend> Batcher<B, [f32; 2], Batch<B>> for Points {
    fn batch(&self, items: Vec<[f32; 2]>, device: &B::Device) -> Batch<B> {
        let kind = |[x, y]: &[f32; 2]| i64::from((0.1..0.5).contains(&(x * x + y * y)));
        let kinds: Vec<i64> = items.iter().map(kind).collect();
        let points = TensorData::new(items.concat(), [items.len(), 2]);
        (Tensor::from_data(points, device), Tensor::from_data(kinds.as_slice(), device))
    }
}

/// Points of the plastic number's sequence, which lie evenly.
fn points(from: usize, to: usize) -> InMemDataset<[f32; 2]> {
    let place = |n: usize, step: f64| ((n as f64 * step) % 1.0 * 2.0 - 1.0) as f32;
    let point = |n| [place(n, 0.754_877_666_246_692_7), place(n, 0.569_840_290_998_053_2)];
    InMemDataset::new((from..to).map(point).collect())
}

fn main() {
    type B = Autodiff<NdArray>;
    let folder = std::env::temp_dir().join("kiln-supervised");
    let device = Default::default();
    B::seed(&device, 1);
    let train =
        DataLoaderBuilder::new(Points).batch_size(32).shuffle(1).num_workers(1).build(points(0, 2000));
    let valid = DataLoaderBuilder::new(Points).batch_size(100).build(points(2000, 2500));
    let training = SupervisedTraining::new(&folder, train, valid)
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .with_file_checkpointer(CompactRecorder::new())
        .num_epochs(15)
        .summary();
    let result = training.launch(Learner::new(Rings::<B>::new(&device), AdamWConfig::new().init(), 1e-2));

    let test = DataLoaderBuilder::new(Points).batch_size(100).build(points(2500, 3000));
    let evaluator =
        EvaluatorBuilder::new(&folder).renderer(result.renderer).metrics((AccuracyMetric::new(),));
    evaluator.build(result.model).eval("held out", test);
}
