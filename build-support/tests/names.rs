//! What a build says to cargo of models whose names try to say more.

#[path = "../../codegen/tests/hostile_names/fragments.rs"]
mod fragments;

use fragments::FRAGMENTS;
use kiln_build::ModelGen;
use kiln_importer::onnx::proto::*;
use prost::Message;
use std::fs;
use std::path::{Path, PathBuf};

/// A line of its own, if it were printed as it is.
const ATTACK: &str = "w\ncargo::rustc-link-arg=x";

/// A folder with the data files of a model with external data.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir(folder.path().join("more")).expect("a folder");
        for data in ["weights.bin", "more/w2.bin"] {
            fs::copy(case().join(data), folder.path().join(data)).expect("a copy");
        }
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The lines for cargo, each of which must be one, and of a kind that runs nothing.
    fn lines(&self, model: &ModelProto) -> Vec<String> {
        let path = self.path().join("model.onnx");
        fs::write(&path, model.encode_to_vec()).expect("a model");
        let lines = ModelGen::new().input(path).run_below(&self.path().join("out"));
        for line in &lines {
            assert!(!line.contains(char::is_control), "{line:?}");
            assert!(WATCH.is_in(line) || ERROR.is_in(line), "{line}");
        }
        lines
    }
}

struct Kind(&'static str);
const WATCH: Kind = Kind("cargo::rerun-if-changed=");
const ERROR: Kind = Kind("cargo::error=");

impl Kind {
    fn is_in(&self, line: &str) -> bool {
        line.starts_with(self.0)
    }

    fn of<'a>(&self, lines: &'a [String]) -> Vec<&'a str> {
        lines.iter().filter_map(|line| line.strip_prefix(self.0)).collect()
    }
}

fn case() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/external_data")
}

fn model() -> ModelProto {
    let bytes = fs::read(case().join("model.onnx")).expect("the case");
    ModelProto::decode(bytes.as_slice()).expect("a model")
}

fn tensors(model: &mut ModelProto) -> &mut Vec<TensorProto> {
    &mut model.graph.as_mut().expect("a graph").initializer
}

/// A tensor whose contents are in a file that is not there.
fn unread(model: &mut ModelProto) -> TensorProto {
    let mut tensor = tensors(model).first().expect("a tensor").clone();
    *location(&mut tensor) = format!("unread{ATTACK}");
    tensor
}

fn location(tensor: &mut TensorProto) -> &mut String {
    let mut entries = tensor.external_data.iter_mut();
    &mut entries.find(|entry| entry.key == "location").expect("external data").value
}

#[test]
fn no_location_ends_its_line() {
    let folder = Folder::new();
    if cfg!(unix) {
        fs::copy(folder.path().join("weights.bin"), folder.path().join(ATTACK)).expect("a copy");
    }
    let mut attacked = model();
    tensors(&mut attacked).iter_mut().for_each(|tensor| *location(tensor) = ATTACK.to_owned());
    let lines = folder.lines(&attacked);
    assert!(ERROR.of(&lines).iter().any(|line| line.contains("no characters that nobody sees")), "{lines:?}");
    assert!(!WATCH.of(&lines).iter().any(|line| line.contains("link-arg")), "{lines:?}");
}

/// Whatever a location is made of, and whether or not there can be such a file.
#[test]
fn locations_of_any_characters() {
    let folder = Folder::new();
    let data = fs::read(folder.path().join("weights.bin")).expect("a file");
    for (n, fragment) in FRAGMENTS.iter().enumerate() {
        let other = FRAGMENTS[(5 * n + 3) % FRAGMENTS.len()];
        for name in [format!("{fragment}{n}"), format!("{n}{fragment}{other}")] {
            let exists = !name.contains('/') && fs::write(folder.path().join(&name), &data).is_ok();
            let mut model = model();
            let [first, ..] = tensors(&mut model).as_mut_slice() else { panic!("no tensors") };
            *location(first) = name.clone();
            let lines = folder.lines(&model);
            let watched = WATCH.of(&lines).iter().any(|path| Path::new(path).ends_with(&name));
            let plain = exists && !name.contains(kiln_types::is_invisible) && !name.contains('\\');
            assert_eq!(watched, plain, "{name:?}: {lines:?}");
            assert_eq!(watched, ERROR.of(&lines).is_empty(), "{name:?}: {lines:?}");
        }
    }
}

#[test]
fn only_what_was_read_is_watched() {
    let folder = Folder::new();
    let mut model = model();
    let unread = unread(&mut model);
    // Contents in the model, and all the same a location.
    let here = TensorProto {
        name: "here".to_owned(),
        data_location: 0,
        dims: vec![1],
        float_data: vec![1.0],
        raw_data: Default::default(),
        ..unread.clone()
    };
    tensors(&mut model).push(here);
    // A second location.
    let [first, ..] = tensors(&mut model).as_mut_slice() else { panic!("no tensors") };
    let entry = |key: &str| StringStringEntryProto { key: key.to_owned(), value: format!("second{ATTACK}") };
    first.external_data.extend([entry("location"), entry("unknown")]);
    // A function that nobody calls.
    let value = AttributeProto {
        name: "value".to_owned(),
        r#type: attribute_type::TENSOR,
        t: Some(Box::new(unread)),
        ..AttributeProto::default()
    };
    let constant = NodeProto {
        op_type: "Constant".to_owned(),
        output: vec!["y".to_owned()],
        attribute: vec![value],
        ..NodeProto::default()
    };
    model.functions.push(FunctionProto {
        name: "Unused".to_owned(),
        domain: "unused".to_owned(),
        output: vec!["y".to_owned()],
        node: vec![constant],
        ..FunctionProto::default()
    });
    let lines = folder.lines(&model);
    assert_eq!(ERROR.of(&lines), Vec::<&str>::new());
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let mut watched = WATCH.of(&lines);
    watched.sort_unstable();
    watched.dedup();
    let mut expected =
        ["Cargo.toml".to_owned(), path("model.onnx"), path("more/w2.bin"), path("weights.bin")];
    expected.sort_unstable();
    assert_eq!(watched, expected);
}

#[test]
fn data_of_attributes_is_watched() {
    let folder = Folder::new();
    let mut model = model();
    let [first, ..] = tensors(&mut model).as_mut_slice() else { panic!("no tensors") };
    let mut moved = std::mem::take(first);
    let name = std::mem::take(&mut moved.name);
    fs::copy(folder.path().join("weights.bin"), folder.path().join("constant.bin")).expect("a copy");
    *location(&mut moved) = "constant.bin".to_owned();
    tensors(&mut model).remove(0);
    let value = AttributeProto {
        name: "value".to_owned(),
        r#type: attribute_type::TENSOR,
        t: Some(Box::new(moved)),
        ..AttributeProto::default()
    };
    let constant = NodeProto {
        op_type: "Constant".to_owned(),
        output: vec![name],
        attribute: vec![value],
        ..NodeProto::default()
    };
    model.graph.as_mut().expect("a graph").node.insert(0, constant);
    let lines = folder.lines(&model);
    assert_eq!(ERROR.of(&lines), Vec::<&str>::new());
    assert!(WATCH.of(&lines).iter().any(|path| path.ends_with("constant.bin")), "{lines:?}");
    // And again when the stamp says that nothing changed.
    let again = ModelGen::new().input(folder.path().join("model.onnx")).run_below(&folder.path().join("out"));
    assert!(WATCH.of(&again).iter().any(|path| path.ends_with("constant.bin")), "{again:?}");
}
