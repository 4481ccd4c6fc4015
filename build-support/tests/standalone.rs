//! `ModelGen::standalone`: which files it writes, and what it says of models that it cannot.

use kiln_build::{ModelGen, RecordType};
use std::fs;
use std::path::{Path, PathBuf};

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

#[test]
fn source_numbers_and_golden_data_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let tagger = case("cases/net_lstm_tagger");
    let mut model = ModelGen::new();
    model.input(tagger.join("model.onnx")).golden(&tagger).standalone(true).out_dir(folder.path());
    model.run_from_cli().expect("files");
    let read =
        |name: &str| fs::read(folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let source = String::from_utf8(read("model.rs")).expect("text");
    assert!(
        source.contains("include_bytes!(\"model.weights\")") && source.contains("fn test_data_set_0()"),
        "{source}"
    );
    assert!(!source.contains("kiln::"), "{source}");
    let weights = read("model.weights").len();
    assert!(source.contains(&format!("It has {weights} bytes of weights")), "{source}");
    // 2 x 9 words of 8 bytes, and 2 x 9 x 5 scores of 4.
    assert_eq!(read("model.golden_0.bin").len(), 18 * 8 + 90 * 4);
    assert!(!folder.path().join("model.safetensors").exists());
}

#[test]
fn source_with_and_without_a_runtime_take_each_others_place() {
    let folder = tempfile::tempdir().expect("a folder");
    for standalone in [true, false, true] {
        let mut model = ModelGen::new();
        model.input(case("cases/net_lstm_tagger/model.onnx")).standalone(standalone).out_dir(folder.path());
        model.run_from_cli().unwrap_or_else(|error| panic!("{standalone}: {}", error.report()));
        assert_eq!(folder.path().join("model.weights").exists(), standalone);
    }
}

#[test]
fn what_was_written_before_is_written_again() {
    for name in ["cases/net_lstm_tagger", "cases/op_swi_glu"] {
        for stem in ["model", "größe \"1"] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = |extension: &str| folder.path().join(format!("{stem}.{extension}"));
            fs::copy(case(name).join("model.onnx"), path("onnx")).expect("a copy");
            let mut model = ModelGen::new();
            model.input(path("onnx")).standalone(true).out_dir(folder.path());
            for _ in 0..2 {
                model.run_from_cli().unwrap_or_else(|error| panic!("{name}: {}", error.report()));
                fs::remove_file(path("stamp")).expect("a stamp");
            }
            // Numbers of somebody's, whose source is not there.
            fs::remove_file(path("rs")).expect("source");
            fs::write(path("weights"), "mine").expect("numbers");
            let report = model.run_from_cli().expect_err("somebody's numbers").report();
            assert!(report.contains("which Kiln did not write"), "{report}");
        }
    }
}

#[test]
fn sizes_that_are_no_numbers_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut model = ModelGen::new();
    model.input(case("digits/model.onnx")).standalone(true).out_dir(folder.path());
    let report = model.run_from_cli().expect_err("an error").report();
    for part in ["digits/model.onnx", "input `image` is f32[batch, 1, 8, 8]", "bind_dim"] {
        assert!(report.contains(part), "{part}\n{report}");
    }
    assert!(!folder.path().join("model.rs").exists());
    model.bind_dim("batch", 1).run_from_cli().expect("files");
}

#[test]
fn what_only_the_runtime_has_is_refused() {
    let refused = |set: &dyn Fn(&mut ModelGen), option: &str| {
        let mut model = ModelGen::new();
        model.input(case("digits/model.onnx")).standalone(true).bind_dim("batch", 1);
        set(&mut model);
        let report = model.run_from_cli().expect_err("an error").report();
        assert!(report.contains(&format!("`standalone` and `{option}` exclude each other")), "{report}");
    };
    refused(&|model| _ = model.half_precision(true), "half_precision");
    refused(&|model| _ = model.trainable(true), "trainable");
    refused(&|model| _ = model.record_type(RecordType::NamedMpk), "record_type");
}
