//! Fine-tunes an imported network on another task than it was trained for.
//!
//! `build.rs` compiled the digits network; it knows light digits on dark ground, upright. Here they are dark on light ground and turned
//! by up to 60°. Of the 360 images that the network has never seen, 240 are trained on, each epoch turned anew, and 120 are
//! for the test. The tuned model is saved three ways:
//!
//! ```text
//! finetune [FOLDER]
//!   FOLDER/digits.safetensors     Kiln's record, for `Model::from_file`
//!   FOLDER/state_dict.safetensors PyTorch's names and layouts, for `load_state_dict`
//!   FOLDER/answers.txt            what it takes the upright images for, digit by digit: `scripts/finetune.sh` compares PyTorch's
//!   FOLDER/curve.svg              loss and accuracy by epoch
//! ```

mod curve;
mod task;

use curve::Epoch;
use kiln::backend::{Autodiff, NdArray};
use kiln::data::dataloader::DataLoaderBuilder;
use kiln::data::dataset::InMemDataset;
use kiln::module::{AutodiffModule, Module};
use kiln::nn::loss::CrossEntropyLossConfig;
use kiln::optim::{AdamWConfig, GradientsParams};
use kiln::record::save_safetensors;
use kiln::tensor::Tensor;
use kiln::tensor::backend::Backend;
use kiln::weights::{AdapterType, save_weights};
use std::error::Error;
use std::path::{Path, PathBuf};
use task::{Batch, ToBatch};

mod digits {
    include!(concat!(env!("OUT_DIR"), "/model/model.rs"));
}

type Cpu = NdArray;
type Training = Autodiff<Cpu>;

const EPOCHS: usize = 40;
const RATE: f64 = 3e-3;
const SEED: u64 = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let folder =
        std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("kiln-finetune"), PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    let tuned = tune(EPOCHS, true);
    println!("{}", curve::text(&tuned.epochs));
    let Tuned { before, model, test, .. } = &tuned;
    println!("upright digits, light on dark:  {:.3} before, {:.3} after", before.upright, upright(model));
    println!(
        "turned digits, dark on light:   {:.3} before, {:.3} after",
        before.shifted,
        accuracy(model, test)
    );
    save(model, &folder)?;
    std::fs::write(folder.join("curve.svg"), curve::svg(&tuned.epochs))?;
    let upright = task::upright_batch(&task::digits(), &Default::default());
    let answers = model.forward(upright.images).argmax(1).into_data();
    std::fs::write(
        folder.join("answers.txt"),
        answers.iter::<i64>().map(|digit| digit.to_string()).collect::<String>(),
    )?;
    println!("saved to {}", folder.display());
    Ok(())
}

/// A tuned model, with what became of it on the way.
struct Tuned {
    model: digits::Model<Cpu>,
    /// The images that it was not tuned on.
    test: Batch<Cpu>,
    before: Accuracies,
    epochs: Vec<Epoch>,
}

/// Parts that are right, before.
struct Accuracies {
    upright: f32,
    shifted: f32,
}

/// Tunes the network: the first convolution block keeps what it has learnt, statistics too.
fn tune(epochs: usize, tell: bool) -> Tuned {
    let device = Default::default();
    Training::seed(&device, SEED);
    let (train, test) = task::split(&task::digits());
    let test: Batch<Cpu> = task::test_batch(&test, &device);
    let imported = digits::Model::<Training>::default();
    let before =
        Accuracies { upright: upright(&imported.valid()), shifted: accuracy(&imported.valid(), &test) };

    let mut model = imported.freeze("block1").expect("the network has a first block");
    let mut optim = AdamWConfig::new().with_weight_decay(1e-2).init();
    let criterion = CrossEntropyLossConfig::new().init(&device);
    let mut history = vec![Epoch { loss: loss(&model.valid(), &test), accuracy: before.shifted }];
    for epoch in 1..=epochs {
        // Each epoch turns the digits anew, by angles that follow from its number.
        let loader = DataLoaderBuilder::new(ToBatch { seed: SEED + epoch as u64 })
            .batch_size(48)
            .shuffle(SEED + epoch as u64)
            .build(InMemDataset::new(train.clone()));
        let (mut sum, mut batches) = (0.0, 0);
        for batch in loader.iter() {
            let loss = criterion.forward(model.forward(batch.images), batch.labels);
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optim.step(RATE, model, grads);
            sum += loss.into_scalar();
            batches += 1;
        }
        let now = Epoch { loss: sum / batches as f32, accuracy: accuracy(&model.valid(), &test) };
        if tell && epoch % 5 == 0 {
            println!("epoch {epoch:>2}: loss {:.3}, accuracy {:.3}", now.loss, now.accuracy);
        }
        history.push(now);
    }
    Tuned { model: model.valid(), test, before, epochs: history }
}

/// The part of the images that a model gets right.
fn accuracy(model: &digits::Model<Cpu>, batch: &Batch<Cpu>) -> f32 {
    let answers = model.forward(batch.images.clone()).argmax(1).flatten::<1>(0, 1);
    answers.equal(batch.labels.clone()).float().mean().into_scalar()
}

/// The same on what the network was made for.
fn upright(model: &digits::Model<Cpu>) -> f32 {
    accuracy(model, &task::upright_batch(&task::digits(), &Default::default()))
}

fn loss(model: &digits::Model<Cpu>, batch: &Batch<Cpu>) -> f32 {
    let logits: Tensor<Cpu, 2> = model.forward(batch.images.clone());
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, batch.labels.clone()).into_scalar()
}

/// Saves the model as a record, and as PyTorch has it.
fn save(model: &digits::Model<Cpu>, folder: &Path) -> Result<(), Box<dyn Error>> {
    save_safetensors(model, folder.join("digits.safetensors"))?;
    save_weights(model, folder.join("state_dict.safetensors"), AdapterType::PyTorch)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few epochs are enough to learn much of the task, and both files hold the tuned model.
    #[test]
    fn the_network_learns_the_task_and_is_saved() {
        let tuned = tune(4, false);
        let after = accuracy(&tuned.model, &tuned.test);
        assert!(tuned.before.upright > 0.98, "{}", tuned.before.upright);
        assert!(tuned.before.shifted < 0.4 && after > tuned.before.shifted + 0.25, "{after}");

        let folder = std::env::temp_dir().join(format!("kiln-finetune-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        save(&tuned.model, &folder).expect("saved");
        let device = Default::default();
        let record = digits::Model::<Cpu>::from_file(folder.join("digits.safetensors"), &device);
        let path = folder.join("state_dict.safetensors");
        let state = digits::Model::<Cpu>::from_safetensors(path.as_path(), &device).expect("a checkpoint");
        for model in [record, state] {
            assert_eq!(accuracy(&model, &tuned.test), after);
        }
        std::fs::remove_dir_all(folder).expect("removed");
        let svg = curve::svg(&tuned.epochs);
        assert!(svg.starts_with("<svg") && svg.matches("<polyline").count() == 2);
    }
}
