//! Each kind of checkpoint, each format of record: what `kiln convert` writes loads into a module written by hand, which
//! then answers as PyTorch does, and into the skeleton that it writes beside it.

use super::net::{Cpu, Net, check_answer};
use super::{fixture, printed};
use kiln::module::Module;
use kiln::record::{
    BinFileRecorder, FileRecorder, Format, FullPrecisionSettings, HalfPrecisionSettings,
    NamedMpkFileRecorder, NamedMpkGzFileRecorder, PrettyJsonFileRecorder, Recorder, load_named,
    load_safetensors, save_safetensors,
};
use kiln::weights::{LoadArgs, PyTorchFileRecorder, SafetensorsFileRecorder, load_weights};
use std::path::Path;

/// A skeleton as it was written; a test of `kiln-skeletons` compares them with what it writes now.
macro_rules! skeletons {
    ($($name:ident)*) => {$(
        mod $name {
            include!(concat!("../../../codegen/skeletons/tests/expected/", stringify!($name), ".rs"));
        }
    )*};
}

skeletons!(net_bincode net_named_mpk net_named_mpk_gz net_pretty_json net_sorted net_sorted_bincode);

/// A checkpoint of the network.
struct Kind {
    file: &'static str,
    key: Option<&'static str>,
    /// How far the answer may be from PyTorch's in full precision.
    tolerance: f64,
    /// Whether the keys are sorted, not in the order of the module.
    sorted: bool,
}

const fn kind(file: &'static str, tolerance: f64) -> Kind {
    Kind { file, key: None, tolerance, sorted: false }
}

/// The kinds: plain, nested, legacy, sharded, half, TorchScript, and what is near them.
const KINDS: &[Kind] = &[
    kind("net.pt", 1e-5),
    Kind { key: Some("model.state_dict"), ..kind("net_nested.pt", 1e-5) },
    kind("net_legacy.pt", 1e-5),
    Kind { key: Some("model.state_dict"), ..kind("net_nested_legacy.pt", 1e-5) },
    kind("net_tar.pt", 1e-5),
    Kind { sorted: true, ..kind("net_sharded", 1e-5) },
    Kind { sorted: true, ..kind("net_sharded_bin/pytorch_model.bin.index.json", 1e-5) },
    Kind { sorted: true, ..kind("net.safetensors", 1e-5) },
    kind("net_half.pt", 5e-3),
    kind("net_bfloat16.pt", 5e-2),
    kind("net_torchscript.pt", 1e-5),
    kind("net_traced.pt", 1e-5),
];

/// The text of a skeleton, which makes room for that of other options.
fn take(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::remove_file(path).unwrap();
    text
}

impl Kind {
    /// Runs `kiln convert`; yields the text of the skeleton without its first line, which names the file.
    fn convert(&self, folder: &Path, format: &str, half: bool) -> (String, std::path::PathBuf) {
        let (file, folder) = (fixture(self.file), folder.to_str().unwrap());
        let mut arguments = vec!["convert", file.to_str().unwrap(), "-o", folder, "--record-type", format];
        if let Some(key) = self.key {
            arguments.extend(["--top-level-key", key]);
        }
        if half {
            arguments.push("--half-precision");
        }
        let printed = printed(&arguments);
        let (source, record) = printed.trim_end().split_once('\n').unwrap();
        let source = take(source);
        (source.split_once('\n').unwrap().1.to_owned(), record.into())
    }

    fn args(&self) -> LoadArgs {
        let args = LoadArgs::new(fixture(self.file)).with_strict(self.key.is_none());
        match self.key {
            Some(key) => args.with_top_level_key(key),
            None => args,
        }
    }
}

/// Loads a record of a format with names in both ways that there are.
fn check_named<R: FileRecorder<Cpu> + Default>(path: &Path, format: Format, tolerance: f64, what: &str) {
    let device = Default::default();
    let net = load_named(Net::<Cpu>::new(&device), path, format, &device).unwrap();
    check_answer(&net, tolerance, what);
    check_recorder::<R>(path, tolerance, what);
}

/// Loads a record through a recorder.
fn check_recorder<R: FileRecorder<Cpu> + Default>(path: &Path, tolerance: f64, what: &str) {
    let device = Default::default();
    let record = R::default().load(path.to_path_buf(), &device).unwrap();
    check_answer(&Net::<Cpu>::new(&device).load_record(record), tolerance, what);
}

/// Gives the parameters of a skeleton to the network.
fn check_skeleton<M: Module<Cpu>>(skeleton: &M, folder: &Path, tolerance: f64, what: &str) {
    let (device, path) = (Default::default(), folder.join("again.safetensors"));
    save_safetensors(skeleton, &path).unwrap();
    let net = load_safetensors(Net::<Cpu>::new(&device), &path, &device).unwrap();
    check_answer(&net, tolerance, what);
}

/// The text of a skeleton that is part of this test, without its first line.
macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../../../codegen/skeletons/tests/expected/", $name, ".rs"))
            .split_once('\n')
            .unwrap()
            .1
    };
}

#[test]
fn every_kind_converts_to_every_format() {
    type Full = FullPrecisionSettings;
    let device = Default::default();
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let (folder, tolerance) = (folder.path(), kind.tolerance);
        let convert = |format: &str| {
            let (source, record) = kind.convert(folder, format, false);
            (source, record, format!("{} as {format}", kind.file))
        };

        let (source, record, what) = convert("safetensors");
        check_answer(
            &load_safetensors(Net::<Cpu>::new(&device), &record, &device).unwrap(),
            tolerance,
            &what,
        );
        if kind.sorted {
            assert_eq!(source, text!("net_sorted"), "{what}");
        } else {
            assert_eq!(source, text!("net"), "{what}");
        }
        // The two differ in the order of their fields only.
        let skeleton = net_sorted::Model::<Cpu>::from_file(&record, &device).unwrap();
        check_skeleton(&skeleton, folder, tolerance, &what);

        let (source, record, what) = convert("named-mpk");
        check_named::<NamedMpkFileRecorder<Full>>(&record, Format::NamedMpk, tolerance, &what);
        assert!(kind.sorted || source == text!("net_named_mpk"), "{what}");
        let skeleton = net_named_mpk::Model::<Cpu>::from_file(&record, &device).unwrap();
        check_skeleton(&skeleton, folder, tolerance, &what);

        let (source, record, what) = convert("named-mpk-gz");
        check_named::<NamedMpkGzFileRecorder<Full>>(&record, Format::NamedMpkGz, tolerance, &what);
        assert!(kind.sorted || source == text!("net_named_mpk_gz"), "{what}");
        let skeleton = net_named_mpk_gz::Model::<Cpu>::from_file(&record, &device).unwrap();
        check_skeleton(&skeleton, folder, tolerance, &what);

        let (source, record, what) = convert("pretty-json");
        check_named::<PrettyJsonFileRecorder<Full>>(&record, Format::PrettyJson, tolerance, &what);
        assert!(kind.sorted || source == text!("net_pretty_json"), "{what}");
        let skeleton = net_pretty_json::Model::<Cpu>::from_file(&record, &device).unwrap();
        check_skeleton(&skeleton, folder, tolerance, &what);

        // Bincode has no names: a record has the order of its own skeleton, which is the module's if nothing sorted it.
        let (source, record, what) = convert("bincode");
        if kind.sorted {
            assert_eq!(source, text!("net_sorted_bincode"), "{what}");
            let skeleton = net_sorted_bincode::Model::<Cpu>::from_file(&record, &device).unwrap();
            check_skeleton(&skeleton, folder, tolerance, &what);
        } else {
            check_recorder::<BinFileRecorder<Full>>(&record, tolerance, &what);
            assert_eq!(source, text!("net_bincode"), "{what}");
            let skeleton = net_bincode::Model::<Cpu>::from_file(&record, &device).unwrap();
            check_skeleton(&skeleton, folder, tolerance, &what);
        }
    }
}

#[test]
fn every_kind_converts_in_half_precision() {
    type Half = HalfPrecisionSettings;
    let device = Default::default();
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let (folder, tolerance) = (folder.path(), kind.tolerance.max(5e-3));
        let convert = |format: &str| kind.convert(folder, format, true).1;
        let record = convert("safetensors");
        let net = load_safetensors(Net::<Cpu>::new(&device), &record, &device).unwrap();
        check_answer(&net, tolerance, kind.file);
        check_named::<NamedMpkFileRecorder<Half>>(
            &convert("named-mpk"),
            Format::NamedMpk,
            tolerance,
            kind.file,
        );
        let record = convert("bincode");
        if kind.sorted {
            let skeleton = net_sorted_bincode::Model::<Cpu>::new(&device);
            let skeleton = skeleton.load_file(record, &BinFileRecorder::<Half>::default(), &device).unwrap();
            check_skeleton(&skeleton, folder, tolerance, kind.file);
        } else {
            check_recorder::<BinFileRecorder<Half>>(&record, tolerance, kind.file);
        }
    }
}

#[test]
fn every_kind_loads_into_a_module_and_as_a_record() {
    let device = Default::default();
    for kind in KINDS {
        let net = load_weights(Net::<Cpu>::new(&device), kind.args(), &device).unwrap();
        check_answer(&net, kind.tolerance, kind.file);
        let recorder = PyTorchFileRecorder::<FullPrecisionSettings>::default();
        let net = Net::<Cpu>::new(&device).load_record(recorder.load(kind.args(), &device).unwrap());
        check_answer(&net, kind.tolerance, kind.file);
        let recorder = SafetensorsFileRecorder::<FullPrecisionSettings>::default();
        let net = Net::<Cpu>::new(&device).load_record(recorder.load(kind.args(), &device).unwrap());
        check_answer(&net, kind.tolerance, kind.file);
    }
}

/// A checkpoint that becomes a record of Burn's formats in the manner of its book, and is loaded from there.
#[test]
fn a_record_that_a_recorder_read_is_stored_by_another() {
    let (device, folder) = (Default::default(), tempfile::tempdir().unwrap());
    for kind in KINDS {
        let recorder = PyTorchFileRecorder::<FullPrecisionSettings>::default();
        let record: <Net<Cpu> as Module<Cpu>>::Record = recorder.load(kind.args(), &device).unwrap();
        let path = folder.path().join("model");
        let recorder = NamedMpkFileRecorder::<FullPrecisionSettings>::default();
        Recorder::<Cpu>::record(&recorder, record, path.clone()).unwrap();
        check_named::<NamedMpkFileRecorder<FullPrecisionSettings>>(
            &path.with_extension("mpk"),
            Format::NamedMpk,
            kind.tolerance,
            kind.file,
        );
    }
}
