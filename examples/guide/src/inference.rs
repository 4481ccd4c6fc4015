//! Inference with a model that was saved.

use crate::data::{DigitItem, DigitsBatch, DigitsBatcher};
use crate::training::TrainingConfig;
use kiln::data::dataloader::batcher::Batcher;
use kiln::prelude::*;
use kiln::record::{CompactRecorder, Recorder};
use std::path::Path;

/// The digit that the trained model sees.
pub fn infer<B: Backend>(artifact_dir: &Path, device: B::Device, item: DigitItem) -> i64 {
    let config = TrainingConfig::load(artifact_dir.join("config.json")).expect("a model was trained before");
    let record =
        CompactRecorder::new().load(artifact_dir.join("model"), &device).expect("a model was trained before");
    let model = config.model.init::<B>(&device).load_record(record);

    let batch: DigitsBatch<B> = DigitsBatcher::default().batch(vec![item], &device);
    let output = model.forward(batch.images);
    output.argmax(1).flatten::<1>(0, 1).into_scalar().elem()
}
