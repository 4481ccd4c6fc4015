//! Inputs that are bound to numbers: no inputs of the source, and left out of golden data that have them.

use kiln_build::ModelGen;
use std::fs;
use std::path::{Path, PathBuf};

/// `if_nested`, which takes `x` and `rate` and chooses by the latter; its first data set has the rate 1, the next 2.
fn case() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/if_nested")
}

fn generate(rate: i64, data_set: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let golden = folder.path().join("golden").join(data_set);
    fs::create_dir_all(&golden).expect("a folder");
    for file in fs::read_dir(case().join(data_set)).expect("a data set") {
        let path = file.expect("a file").path();
        fs::copy(&path, golden.join(path.file_name().expect("a name"))).expect("a copy");
    }
    let generated = ModelGen::new()
        .input(case().join("model.onnx"))
        .out_dir(folder.path())
        .bind_input("rate", [rate])
        .golden(folder.path().join("golden"))
        .run_from_cli();
    generated.map_err(|error| error.to_string())?;
    Ok(fs::read_to_string(folder.path().join("model.rs")).expect("source"))
}

#[test]
fn a_bound_input_is_a_constant() {
    let source = generate(1, "test_data_set_0").expect("source");
    assert!(source.contains("/// Inputs of the file that are constants:\n/// - `rate`: `1`\n"), "{source}");
    assert!(source.contains("pub fn forward(&self, x: Tensor<B, 1>)"), "{source}");
    assert!(!source.contains("if "), "the choice is made:\n{source}");
}

#[test]
fn golden_data_are_those_of_the_bound_input() {
    let error = generate(1, "test_data_set_1").expect_err("the rate is 2 there");
    assert!(error.contains("input `rate` is not what it is bound to"), "{error}");
}
