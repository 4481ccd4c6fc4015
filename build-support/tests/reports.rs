//! What a build says of models that cannot be compiled: one report, with everything in it.

use kiln_build::{CompileOptions, ModelGen, RecordType, compile};
use std::fs;
use std::path::{Path, PathBuf};

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases").join(name)
}

fn report(model: &ModelGen) -> String {
    model.run_from_cli().expect_err("an error").report()
}

#[test]
fn every_model_is_in_the_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::copy(case("op_conv_2d").join("model.onnx"), path("good.onnx")).expect("a copy");
    fs::write(path("noise.onnx"), "no model").expect("a file");
    fs::write(path("empty.onnx"), "").expect("a file");
    let mut models = ModelGen::new();
    for name in ["noise.onnx", "missing.onnx", "empty.onnx", "good.onnx"] {
        models.input(path(name));
    }
    let text = report(models.input(folder.path()).out_dir(path("out")));
    for part in [
        "noise.onnx: not a valid ONNX file",
        "cannot read",
        "missing.onnx",
        "empty.onnx: not a valid ONNX file: the file is empty",
        "it is a folder",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(path("out/good.rs").is_file(), "the others are written");
}

#[test]
fn files_of_other_programs_are_told_from_models() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    let cases: [(&[u8], &str); 10] = [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"{\"graph\": 1}", "it is JSON"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "unpack it first"),
        (b"\x89HDF\r\n\x1a\n", "model.export"),
        (b"GGUF\x03\0\0\0", "it is a GGUF file"),
        (b"\x1c\0\0\0TFL3\x14\0\x20\0", "tf2onnx"),
        (b"\x10\0\0\0\0\0\0\0{\"x\":1}", "`.safetensors`"),
        // A program of PyTorch, or where those are not read, maybe one.
        (b"PK\x03\x04\0\0\0\0", "PyTorch"),
        (&[0; 64], "never finished"),
    ];
    for (contents, says) in cases {
        fs::write(&path, contents).expect("a file");
        let text = report(ModelGen::new().input(&path).out_dir(folder.path().join("out")));
        assert!(text.contains("model.onnx: not a valid ") && text.contains(says), "{text}");
    }
}

#[test]
fn what_cannot_be_written_is_named_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let into =
        |out: &str| report(ModelGen::new().input(case("op_conv_2d").join("model.onnx")).out_dir(path(out)));
    for (out, file) in [("source", "model.rs"), ("record", "model.safetensors")] {
        fs::create_dir_all(path(out).join(file)).expect("a folder in the way");
        let text = into(out);
        assert_eq!(text.matches(file).count(), 1, "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    fs::write(path("file"), "").expect("a file");
    let text = into("file");
    assert!(text.starts_with(&format!("the folder {} cannot be made: ", path("file").display())), "{text}");
}

#[test]
fn golden_data_must_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = case("op_conv_2d").join("model.onnx");
    let check = |golden: &Path| {
        report(ModelGen::new().input(&model).golden(golden).out_dir(folder.path().join("out")))
    };
    assert!(check(&folder.path().join("none")).contains("there is no such folder"));
    assert!(check(folder.path()).contains("no folder `test_data_set_*` in it"));

    // One input of another case in place of the model's own.
    let set = folder.path().join("test_data_set_0");
    fs::create_dir(&set).expect("a folder");
    for entry in fs::read_dir(case("op_conv_2d").join("test_data_set_0")).expect("the data set") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), set.join(entry.file_name())).expect("a copy");
    }
    let other = case("op_rnn").join("test_data_set_0/input_0.pb");
    fs::copy(other, set.join("input_0.pb")).expect("a copy");
    let text = check(folder.path());
    assert!(text.contains("is f32[5, 3, 4], the model has f32["), "{text}");
}

#[test]
fn data_files_are_watched() {
    let model = case("external_data").join("model.onnx");
    let compiled = compile(&model, &CompileOptions::default()).expect("a model");
    let watched =
        compiled.sources.iter().any(|source| source.path == case("external_data").join("weights.bin"));
    assert!(watched, "{:?}", compiled.sources);
}

/// A build that is to train a network says what the exporter took out of it; others do not.
#[test]
fn what_training_lacks_is_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = case("../digits").join("model.onnx");
    let warnings = |trainable: bool| -> Vec<String> {
        let mut models = ModelGen::new();
        let lines = models.input(&model).out_dir("model").trainable(trainable).run_below(folder.path());
        assert!(!lines.iter().any(|line| line.starts_with("cargo::error")), "{lines:?}");
        lines.into_iter().filter(|line| line.starts_with("cargo::warning=")).collect()
    };
    assert!(warnings(false).is_empty());
    // Also when the model is compiled already.
    for _ in 0..2 {
        let found = warnings(true);
        assert_eq!(found.len(), 1, "{found:?}");
        for part in ["model.onnx: the exporter folded", "block1.norm (into node_Conv_37)", "optimize=False"] {
            assert!(found[0].contains(part), "{found:?}");
        }
    }
}

/// Builds replace what builds wrote, and neither what a model is read from nor what others wrote; below `OUT_DIR` all is the build's.
#[test]
fn files_of_others_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("more")).expect("a folder");
    for (from, to) in
        [("model.onnx", "weights.onnx"), ("weights.bin", "weights.bin"), ("more/w2.bin", "more/w2.bin")]
    {
        fs::copy(case("external_data").join(from), path(to)).expect("a copy");
    }
    let weights = fs::read(path("weights.bin")).expect("weights");
    let mut model = ModelGen::new();
    model.input(path("weights.onnx")).record_type(RecordType::Bincode);
    let text = report(model.clone().out_dir(folder.path()));
    assert!(text.contains("which the model is read from"), "{text}");
    let lines = model.run_below(folder.path());
    assert!(lines.iter().any(|line| line.contains("which the model is read from")), "{lines:?}");
    assert_eq!(fs::read(path("weights.bin")).expect("weights"), weights);

    let out = path("out");
    fs::create_dir(&out).expect("a folder");
    fs::write(out.join("weights.bin"), "mine").expect("a file");
    let text = report(model.clone().out_dir(&out));
    assert!(text.contains("which Kiln did not write"), "{text}");
    assert_eq!(fs::read(out.join("weights.bin")).expect("a file"), b"mine");
    let lines = model.run_below(&out);
    assert!(!lines.iter().any(|line| line.contains("error")), "{lines:?}");
    assert_ne!(fs::read(out.join("weights.bin")).expect("a record"), b"mine");
    model.out_dir(&out).run_from_cli().expect("a record is replaced");
}

/// What a build script writes is found below `OUT_DIR`.
#[test]
fn a_build_script_writes_below_its_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("out");
    for (out_dir, fits) in [("", true), (".", true), ("models/net", true), ("../src", false), ("/src", false)]
    {
        let mut model = ModelGen::new();
        let lines = model.input(case("op_conv_2d").join("model.onnx")).out_dir(out_dir).run_below(&root);
        let errors: Vec<_> = lines.iter().filter(|line| line.starts_with("cargo::error=")).collect();
        assert_eq!(errors.is_empty(), fits, "{out_dir}: {lines:?}");
        assert!(errors.iter().all(|line| line.contains("`out_dir` is") && line.contains("without `..`")));
        assert_eq!(root.join(out_dir).join("model.rs").exists(), fits, "{out_dir}");
    }
}

/// Whoever writes it: several builders may have one folder, and file systems may not tell cases apart.
#[test]
fn two_models_never_become_one_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for name in ["a/model.onnx", "b/model.onnx", "Model.onnx", "model.golden_0.onnx"] {
        fs::create_dir_all(path(name).parent().expect("a folder")).expect("a folder");
        fs::copy(case("op_conv_2d").join("model.onnx"), path(name)).expect("a copy");
    }
    let run = |name: &str, out: &str| {
        let mut model = ModelGen::new();
        model.input(path(name)).golden(case("op_conv_2d")).out_dir(path(out)).run_from_cli()
    };
    for _ in 0..2 {
        run("a/model.onnx", "out").expect("files, and the same once more");
    }
    for name in ["b/model.onnx", "Model.onnx", "model.golden_0.onnx"] {
        let text = run(name, "out").expect_err("a name that is taken").report();
        assert!(text.contains("would both become the same file"), "{text}");
        run(name, &format!("out of {}", name.replace('/', " "))).expect("another folder");
    }
}

/// Source without the standard library reads no file: what would have to is refused, and not written.
#[test]
fn source_that_reads_no_files_names_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let decoder = case("net_cached_decoder");
    let mut model = ModelGen::new();
    model.input(decoder.join("model.onnx")).no_std(true).out_dir(folder.path());
    model.run_from_cli().expect("files");
    let source = fs::read_to_string(folder.path().join("model.rs")).expect("source");
    assert!(!source.contains("from_file") && source.contains("no_checkpoints!"), "{source}");
    let text = report(model.golden(&decoder));
    assert!(text.contains("embed it (`ModelGen::embed_states`)"), "{text}");
    model.embed_states(true).run_from_cli().expect("files with tests");
    let source = fs::read_to_string(folder.path().join("model.rs")).expect("source");
    assert!(source.contains("from_checkpoints!(Self::from_embedded)"), "{source}");
    assert!(source.contains("fn test_data_set_0"), "{source}");
}
