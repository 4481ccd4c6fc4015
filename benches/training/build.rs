//! Compiles the exported models, with what training needs, and writes what each is called with.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=KILN_TRAINING_MODELS");
    if let Err(error) = run() {
        println!(
            "cargo::error={error}; scripts/bench_training.py and scripts/cuda_training.py export the models"
        );
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let folder = std::env::var_os("KILN_TRAINING_MODELS").map(PathBuf::from);
    let folder = folder.ok_or("KILN_TRAINING_MODELS names no folder")?;
    // One line a model: whether a batch is of images or of tokens, and its dims.
    let list = folder.join("models.txt");
    println!("cargo::rerun-if-changed={}", list.display());
    let list = fs::read_to_string(list)?;
    let mut models = kiln_build::ModelGen::new();
    let (mut modules, mut names) = (String::new(), Vec::new());
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[name, kind, ref dims @ ..] = words.as_slice() else {
            return Err(format!("`{line}` is not a name, the kind of a batch and its dims").into());
        };
        models.input(folder.join(name).join(format!("{name}.onnx")));
        modules += &module(name, kind, dims)?;
        names.push(name);
    }
    models.trainable(true).out_dir("models/").run_from_script();
    write!(modules, "networks! {{ {} }}", names.join(" "))?;
    let out = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    fs::write(Path::new(&out).join("networks.rs"), modules)?;
    Ok(())
}

/// The module of a model, with its `Network`.
fn module(name: &str, kind: &str, dims: &[&str]) -> Result<String, Box<dyn Error>> {
    let (rank, dims) = (dims.len(), dims.join(", "));
    let inputs = match kind {
        "images" => format!("Tensor<B, {rank}>"),
        "tokens" => format!("Tensor<B, {rank}, Int>"),
        other => return Err(format!("no batch is of {other}").into()),
    };
    Ok(format!(
        r#"
pub mod {name} {{
    include!(concat!(env!("OUT_DIR"), "/models/{name}.rs"));
}}

impl<B: Backend> Network<B> for {name}::Model<B> {{
    type Inputs = {inputs};

    fn load(record: &Path, device: &B::Device) -> Self {{
        Self::from_file(record, device)
    }}

    fn inputs(batch: &Batch, device: &B::Device) -> Result<Self::Inputs, Box<dyn Error>> {{
        Ok(Tensor::from_data(batch.{kind}([{dims}])?, device))
    }}

    fn logits(&self, inputs: Self::Inputs) -> Tensor<B, 2> {{
        rows(self.forward(inputs))
    }}
}}
"#
    ))
}
