//! The guide: a model, its data, its training, and inference with what was saved.
//!
//! ```text
//! cargo run --release -p guide [FOLDER]
//! ```
//!
//! On a terminal, the training is shown on a dashboard. All that it leaves is in the folder: checkpoints, the values of metrics,
//! learning curves, the trained model and the config that it was made by. It goes on where it was when it is ended and run
//! again.

mod data;
mod inference;
mod model;
mod training;

use data::DigitsDataset;
use kiln::backend::{Autodiff, NdArray};
use kiln::data::dataset::Dataset;
use kiln::optim::AdamConfig;
use model::ModelConfig;
use std::path::PathBuf;
use training::TrainingConfig;

fn main() {
    type Cpu = NdArray;
    let folder =
        std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("kiln-guide"), PathBuf::from);
    let device = Default::default();
    let config = TrainingConfig::new(ModelConfig::new(10, 64), AdamConfig::new());
    training::train::<Autodiff<Cpu>>(&folder, &config, device);

    let digits = DigitsDataset::test();
    for item in [0, 24, 42].into_iter().filter_map(|index| digits.get(index)) {
        let label = item.label;
        let found = inference::infer::<Cpu>(&folder, device, item);
        println!("Predicted {found} Expected {label}");
    }
    println!("The artifacts are in {}", folder.display());
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln::backend::Wgpu;
    use kiln::tensor::backend::Backend;

    /// Of the digits that it was not trained on, a model gets four of five right after a few epochs.
    fn trained_model_tells_digits_apart<B: Backend>() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = TrainingConfig::new(ModelConfig::new(10, 32), AdamConfig::new());
        let config = config.with_num_epochs(12).with_num_workers(1);
        let device = B::Device::default();
        training::train::<Autodiff<B>>(folder.path(), &config, device.clone());
        let digits = DigitsDataset::test();
        let is_right = |item: &data::DigitItem| {
            inference::infer::<B>(folder.path(), device.clone(), item.clone()) == i64::from(item.label)
        };
        let items: Vec<_> = (0..digits.len()).step_by(3).filter_map(|index| digits.get(index)).collect();
        let right = items.iter().filter(|item| is_right(item)).count();
        assert!(right * 10 >= items.len() * 8, "{right} of {}", items.len());
    }

    #[test]
    fn what_was_trained_tells_digits_apart() {
        trained_model_tells_digits_apart::<NdArray>();
    }

    #[test]
    fn what_was_trained_on_a_gpu_tells_digits_apart() {
        trained_model_tells_digits_apart::<Wgpu>();
    }
}
