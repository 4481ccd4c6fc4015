//! Compiles the exported models, with what training needs.

use std::path::PathBuf;

/// The models, each in a folder of its own below the one that `scripts/bench_training.py` names.
const MODELS: [&str; 6] = ["resnet18", "bert", "gpt2", "lstm_tagger", "gru_tagger", "mlp"];

fn main() {
    println!("cargo::rerun-if-env-changed=KILN_TRAINING_MODELS");
    let Some(folder) = std::env::var_os("KILN_TRAINING_MODELS").map(PathBuf::from) else {
        println!(
            "cargo::error=KILN_TRAINING_MODELS is not set: run scripts/bench_training.py, which exports the models"
        );
        return;
    };
    let mut models = kiln_build::ModelGen::new();
    for name in MODELS {
        models.input(folder.join(name).join(format!("{name}.onnx")));
    }
    models.trainable(true).out_dir("models/").run_from_script();
}
