//! What the command writes over, and what it leaves.

use crate::{fixture, kiln, printed};
use kiln_importer::onnx::proto::{ModelProto, StringStringEntryProto};
use prost::Message;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Formats of records, as the command names them, and the endings of their files.
const FORMATS: [(&str, &str); 5] = [
    ("safetensors", "safetensors"),
    ("named-mpk", "mpk"),
    ("named-mpk-gz", "mpk.gz"),
    ("bincode", "bin"),
    ("pretty-json", "json"),
];

fn failing(arguments: &[&str]) -> (i32, String) {
    let output = kiln(arguments);
    (output.status.code().unwrap_or_default(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A model `m.onnx` in a folder of its own, whose first weights are in a file that is called so.
fn with_weights_in(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let case = fixture("../cases/external_data");
    fs::create_dir(folder.path().join("more")).unwrap();
    fs::copy(case.join("more/w2.bin"), folder.path().join("more/w2.bin")).unwrap();
    fs::copy(case.join("weights.bin"), folder.path().join(name)).unwrap();
    let mut model = ModelProto::decode(fs::read(case.join("model.onnx")).unwrap().as_slice()).unwrap();
    let tensors = model.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
    let entries = tensors.flat_map(|tensor| &mut tensor.external_data);
    let is_there = |entry: &&mut StringStringEntryProto| entry.value == "weights.bin";
    entries.filter(is_there).for_each(|entry| entry.value = name.to_owned());
    let path = folder.path().join("m.onnx");
    fs::write(&path, model.encode_to_vec()).unwrap();
    (folder, path)
}

/// A model's own weights may be called as its record would be.
#[test]
fn weights_of_the_model_stay() {
    for (format, ending) in FORMATS {
        let (folder, model) = with_weights_in(&format!("m.{ending}"));
        let weights = folder.path().join(format!("m.{ending}"));
        let before = fs::read(&weights).unwrap();
        let arguments = ["convert", text(&model), "-o", text(folder.path()), "--record-type", format];
        let (status, said) = failing(&arguments);
        assert_eq!((status, said.contains("which the model is read from")), (2, true), "{said}");
        assert_eq!(fs::read(&weights).unwrap(), before, "{format}");
        assert!(!folder.path().join("m.rs").exists(), "{format}");
    }
}

/// What others wrote stays whatever its format, and what Kiln wrote is written again.
#[test]
fn only_records_are_replaced() {
    let model = fixture("../cases/op_conv_2d/model.onnx");
    for (format, ending) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join(format!("model.{ending}"));
        let arguments = ["convert", text(&model), "-o", text(folder.path()), "--record-type", format];
        printed(&arguments);
        let written = fs::read(&record).unwrap();
        printed(&arguments);
        assert_eq!(fs::read(&record).unwrap().len(), written.len(), "{format}");
        for others in [&b"{\"mine\": true}\n"[..], b"\x1f\x8b\x08\0mine", b""] {
            fs::write(&record, others).unwrap();
            let (status, said) = failing(&arguments);
            assert_eq!((status, said.contains("which Kiln did not write")), (2, true), "{format}: {said}");
            assert_eq!(fs::read(&record).unwrap(), others, "{format}");
        }
    }
}

/// Numbers of source without a runtime have no mark; the source beside them has their name.
#[test]
fn only_numbers_of_generated_source_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (numbers, source) = (folder.path().join("model.weights"), folder.path().join("model.rs"));
    let model = fixture("../cases/op_conv_2d/model.onnx");
    let arguments = ["convert", text(&model), "-o", text(folder.path()), "--standalone"];
    printed(&arguments);
    printed(&arguments);
    fs::remove_file(&source).unwrap();
    fs::write(&numbers, "mine").unwrap();
    let (status, said) = failing(&arguments);
    assert_eq!((status, said.contains("which Kiln did not write")), (2, true), "{said}");
    assert_eq!((fs::read(&numbers).unwrap(), source.exists()), (b"mine".to_vec(), false));
}

/// A record without its source is of no use, nor is what is half written.
#[test]
fn nothing_is_left_where_the_source_cannot_be_written() {
    for file in ["../cases/op_conv_2d/model.onnx", "net.pt"] {
        let folder = tempfile::tempdir().unwrap();
        let stem = Path::new(file).file_stem().unwrap().to_str().unwrap();
        fs::create_dir(folder.path().join(format!("{stem}.rs"))).unwrap();
        let (status, said) = failing(&["convert", text(&fixture(file)), "-o", text(folder.path())]);
        assert_eq!((status, said.contains(".rs: ")), (1, true), "{said}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{file}");
    }
}

#[test]
fn a_picture_does_not_replace_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.svg");
    fs::copy(fixture("../cases/op_conv_2d/model.onnx"), &model).unwrap();
    let before = fs::read(&model).unwrap();
    let (status, said) = failing(&["graph", text(&model), "-o", text(&model)]);
    assert_eq!((status, said.contains("the picture would replace")), (2, true), "{said}");
    assert_eq!(fs::read(&model).unwrap(), before);
    let picture = folder.path().join("new/folder/m.dot");
    printed(&["graph", text(&model), "-o", text(&picture)]);
    assert!(picture.is_file());
}

/// What cannot be printed is no success, unless the reader has seen enough.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let model = fixture("../cases/op_conv_2d/model.onnx");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    let output = command.args(["inspect", text(&model), "--json"]).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.contains("standard output cannot be written")), (Some(1), true));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    let output = command.args(["inspect", text(&model), "--json"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}

/// Nobody writes to these pipes.
#[cfg(unix)]
#[test]
fn pipes_are_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["q", "q.onnx", "q.pt", "q.safetensors", "q.index.json"] {
        let pipe = folder.path().join(name);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let mut child = command
            .args(["inspect", text(&pipe)])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let start = std::time::Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed().as_secs() > 60 {
                child.kill().unwrap();
                panic!("{name} is waited for");
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.contains("not a file")), (Some(1), true), "{name}: {said}");
    }
}

#[test]
fn what_is_settled_twice_is_a_slip() {
    let folder = tempfile::tempdir().unwrap();
    let model = fixture("../cases/op_conv_2d/model.onnx");
    let arguments = ["convert", text(&model), "-o", text(folder.path()), "--bind", "n=2", "--bind", "n=3"];
    let (status, said) = failing(&arguments);
    assert_eq!((status, said.contains("--bind is given for n twice")), (2, true), "{said}");
    let (status, said) = failing(&["bench", "case", "--seconds", "-1"]);
    assert_eq!((status, said.contains("not between 0 and 86400")), (2, true), "{said}");
}

/// A manifest's name of a crate may have a hyphen, for which source has an underscore.
#[test]
fn a_runtime_crate_may_have_a_hyphen() {
    for file in ["../cases/op_conv_2d/model.onnx", "net.pt"] {
        let folder = tempfile::tempdir().unwrap();
        let file = fixture(file);
        let arguments = ["convert", text(&file), "-o", text(folder.path()), "--runtime-crate", "my-kiln"];
        let written = printed(&arguments);
        let source = fs::read_to_string(written.lines().next().unwrap()).unwrap();
        assert!(source.contains("use my_kiln::") && !source.contains("my-kiln"), "{source}");
    }
}

/// A case whose data are of another dtype is told so, not by a panic of its runner.
#[test]
fn golden_data_of_another_dtype_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let case = fixture("../cases/op_conv_2d");
    fs::copy(case.join("model.onnx"), folder.path().join("model.onnx")).unwrap();
    let set = folder.path().join("test_data_set_0");
    fs::create_dir(&set).unwrap();
    for entry in fs::read_dir(case.join("test_data_set_0")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, set.join(path.file_name().unwrap())).unwrap();
    }
    // A tensor of one f64.
    fs::write(set.join("input_0.pb"), b"\x08\x01\x10\x0b\x4a\x08\0\0\0\0\0\0\0\0").unwrap();
    let output = kiln(&["verify", text(folder.path())]);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is f64[1], the model has f32") && !said.contains("panicked"), "{said}");
}
