//! Compiles every network under `fixtures/training`, or under the folder that `KILN_TRAINING_CASES` names, to be trained.

use kiln_build::ModelGen;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=KILN_TRAINING_CASES");
    let folder = std::env::var_os("KILN_TRAINING_CASES").map(PathBuf::from);
    let folder =
        folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/training"));
    println!("cargo::rerun-if-changed={}", folder.display());
    println!("cargo::rustc-env=TRAINING_CASES={}", folder.display());
    let root = PathBuf::from(std::env::var_os("OUT_DIR").expect("OUT_DIR"));
    let untied = folder.join("gpt/model.onnx");
    let mut model = ModelGen::new();
    model.input(untied).out_dir("cases/untied").trainable(true).untie("model.lm_head.weight");
    model
        .run_below(&root)
        .iter()
        .filter(|line| line.starts_with("cargo::error"))
        .for_each(|line| println!("{line}"));
    for entry in std::fs::read_dir(&folder).expect("a folder of cases") {
        let case = entry.expect("an entry").path();
        let out = Path::new("cases").join(case.file_name().expect("a name"));
        let mut model = ModelGen::new();
        let program = case.join("model.pt2");
        let input = if program.exists() { program } else { case.join("model.onnx") };
        let lines = model.input(input).out_dir(out).trainable(true).run_below(&root);
        // These networks have no dropout, so that PyTorch's numbers are theirs.
        let known = |line: &&String| !line.contains("there is no dropout in the file");
        lines.iter().filter(known).for_each(|line| println!("{line}"));
    }
}
