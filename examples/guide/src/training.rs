//! The training.

use crate::data::{DigitsBatch, DigitsBatcher, DigitsDataset};
use crate::model::{Model, ModelConfig};
use kiln::data::dataloader::DataLoaderBuilder;
use kiln::nn::loss::CrossEntropyLossConfig;
use kiln::optim::AdamConfig;
use kiln::prelude::*;
use kiln::record::CompactRecorder;
use kiln::tensor::backend::AutodiffBackend;
use kiln::train::metric::{AccuracyMetric, LossMetric};
use kiln::train::{ClassificationOutput, LearnerBuilder, TrainOutput, TrainStep, ValidStep};
use std::path::Path;

impl<B: Backend> Model<B> {
    /// What a batch's scores are, and how wrong.
    pub fn forward_classification(
        &self,
        images: Tensor<B, 3>,
        targets: Tensor<B, 1, Int>,
    ) -> ClassificationOutput<B> {
        let output = self.forward(images);
        let loss =
            CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), targets.clone());
        ClassificationOutput::new(loss, output, targets)
    }
}

impl<B: AutodiffBackend> TrainStep<DigitsBatch<B>, ClassificationOutput<B>> for Model<B> {
    fn step(&self, batch: DigitsBatch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let item = self.forward_classification(batch.images, batch.targets);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl<B: Backend> ValidStep<DigitsBatch<B>, ClassificationOutput<B>> for Model<B> {
    fn step(&self, batch: DigitsBatch<B>) -> ClassificationOutput<B> {
        self.forward_classification(batch.images, batch.targets)
    }
}

/// How a model is trained.
#[derive(Config, Debug)]
pub struct TrainingConfig {
    /// The model.
    pub model: ModelConfig,
    /// Its optimizer.
    pub optimizer: AdamConfig,
    /// Epochs.
    #[config(default = 30)]
    pub num_epochs: usize,
    /// Images in a batch.
    #[config(default = 16)]
    pub batch_size: usize,
    /// Threads that make batches.
    #[config(default = 2)]
    pub num_workers: usize,
    /// What all random numbers follow from.
    #[config(default = 42)]
    pub seed: u64,
    /// How far a step goes.
    #[config(default = 2.0e-3)]
    pub learning_rate: f64,
}

/// Trains a model, and saves it with its config.
pub fn train<B: AutodiffBackend>(artifact_dir: &Path, config: &TrainingConfig, device: B::Device) {
    std::fs::create_dir_all(artifact_dir).expect("the folder of the artifacts can be made");
    config.save(artifact_dir.join("config.json")).expect("the config can be saved");
    B::seed(&device, config.seed);

    let batcher = DigitsBatcher::default();
    let dataloader_train = DataLoaderBuilder::new(batcher.clone())
        .batch_size(config.batch_size)
        .shuffle(config.seed)
        .num_workers(config.num_workers)
        .build(DigitsDataset::train());
    let dataloader_test = DataLoaderBuilder::new(batcher)
        .batch_size(config.batch_size)
        .num_workers(config.num_workers)
        .build(DigitsDataset::test());

    let learner = LearnerBuilder::new(artifact_dir)
        .metric_train_numeric(AccuracyMetric::new())
        .metric_valid_numeric(AccuracyMetric::new())
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .with_file_checkpointer(CompactRecorder::new())
        .resume()
        .devices(vec![device.clone()])
        .num_epochs(config.num_epochs)
        .summary()
        .build(config.model.init::<B>(&device), config.optimizer.init(), config.learning_rate);
    let model_trained = learner.fit(dataloader_train, dataloader_test);

    model_trained
        .save_file(artifact_dir.join("model"), &CompactRecorder::new())
        .expect("the trained model can be saved");
}
