//! Record files that Burn 0.20 wrote load, and are written again byte for byte.
//!
//! `scripts/burn_compat.sh` compares with the real Burn and makes the files anew.
#![cfg(all(feature = "std", feature = "ndarray"))]

use std::io::Read;
use std::path::{Path, PathBuf};

type Cpu = kiln::backend::NdArray;

#[allow(missing_docs, dead_code)]
mod plain {
    use kiln as root;
    include!("../../tests/burn-compat/src/plain.rs");
}

#[allow(missing_docs, dead_code)]
mod layers {
    use kiln as root;
    include!("../../tests/burn-compat/src/layers.rs");
}

#[allow(missing_docs, dead_code)]
mod files {
    use kiln as root;
    include!("../../tests/burn-compat/src/files.rs");
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/burn-records")
}

/// A file's bytes; of a compressed file, what is in it, since compressors may differ.
fn content(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_none_or(|extension| extension != "gz") {
        return bytes;
    }
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut content).unwrap();
    content
}

/// A folder for the test, empty.
fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kiln-burn-records-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Asserts that each fixture has its like in the folder, and removes the folder.
fn assert_like_fixtures(folder: &Path) {
    let mut count = 0;
    for entry in std::fs::read_dir(fixtures()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        assert!(content(&path) == content(&folder.join(name)), "{} differs", path.display());
        count += 1;
    }
    assert_eq!(count, 48, "a file for each of two modules, three precisions and eight recorders");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn files_of_burn_load_and_are_written_again() {
    let folder = scratch("copy");
    let blank = plain::Plain::<Cpu>::blank(&Default::default());
    files::each::<Cpu>(&fixtures(), "plain", &mut files::Copy { blank, to: &folder });
    let blank = layers::Layers::<Cpu>::blank(&Default::default());
    files::each::<Cpu>(&fixtures(), "layers", &mut files::Copy { blank, to: &folder });
    assert_like_fixtures(&folder);
}

#[test]
fn a_module_is_written_as_burn_writes_it() {
    let folder = scratch("write");
    let sample = plain::Plain::<Cpu>::sample(&Default::default());
    files::each::<Cpu>(&folder, "plain", &mut files::Save(sample));
    let sample = layers::Layers::<Cpu>::sample(&Default::default());
    files::each::<Cpu>(&folder, "layers", &mut files::Save(sample));
    assert_like_fixtures(&folder);
}

#[test]
fn a_tree_without_types_is_written_as_the_module() {
    use kiln::module::ParamId;
    use kiln::tensor::TensorData;
    use kiln_record::{Format, Precision, RecordNode as Node, write_node};

    let param = |id: u64, shape: &[usize]| {
        let count: usize = shape.iter().product();
        let values: Vec<f32> =
            (0..count).map(|i| ((i * 7 + id as usize * 5) % 64) as f32 / 32.0 - 1.0).collect();
        Node::Param(ParamId::from(id * 0x0123_4567_89ab), TensorData::new(values, shape))
    };
    let dense = |id: u64, bias: bool| {
        let bias = if bias { Node::Some(Box::new(param(id + 1, &[3]))) } else { Node::None };
        Node::fields([("weight", param(id, &[2, 3])), ("bias", bias)])
    };
    let running = |id: u64| match param(id, &[5]) {
        Node::Param(_, data) => Node::Param(ParamId::from(id), data),
        node => node,
    };
    let tree = Node::fields([
        ("dense", dense(1, true)),
        ("without_bias", dense(3, false)),
        ("layers", Node::Seq(vec![dense(4, true), dense(6, false)])),
        ("array", Node::Tuple(vec![dense(7, false), dense(8, false)])),
        ("tuple", Node::Tuple(vec![dense(9, true), param(11, &[1])])),
        ("absent", Node::None),
        ("chosen", Node::Variant(0, "Dense".to_string(), Box::new(dense(12, true)))),
        ("other", Node::Variant(1, "Scale".to_string(), Box::new(param(14, &[4])))),
        ("running", running(15)),
        ("indices", Node::Param(ParamId::from(16), TensorData::new(vec![0_i32, 1, -2, 300, 7, -8], [3, 2]))),
        ("mask", Node::Param(ParamId::from(u64::MAX), TensorData::new(vec![true, false, true], [3]))),
        ("table", Node::Constant),
        ("constant", Node::Constant),
        ("count", Node::Constant),
        ("maybe", Node::Some(Box::new(Node::Constant))),
        ("name", Node::Constant),
        ("ignored", Node::Constant),
        ("marker", Node::Constant),
    ]);
    let folder = scratch("tree");
    for format in Format::ALL {
        let name = format!("plain_full.{}", format.extension());
        let file = std::fs::File::create(folder.join(&name)).unwrap();
        write_node(&tree, format, Precision::Full, file).unwrap();
        assert!(content(&fixtures().join(&name)) == content(&folder.join(&name)), "{name} differs");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_broken_file_is_an_error() {
    use kiln::module::Module;
    use kiln::record::{BinBytesRecorder, FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
    type Record = <plain::Plain<Cpu> as Module<Cpu>>::Record;

    let device = Default::default();
    let binary = std::fs::read(fixtures().join("plain_full.memory.bin")).unwrap();
    let named = std::fs::read(fixtures().join("plain_full.memory.mpk")).unwrap();
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let named_recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
    for at in (0..binary.len()).step_by(7) {
        assert!(Recorder::<Cpu>::load::<Record>(&recorder, binary[..at].to_vec(), &device).is_err());
    }
    for at in (0..named.len()).step_by(31) {
        assert!(Recorder::<Cpu>::load::<Record>(&named_recorder, named[..at].to_vec(), &device).is_err());
    }
    // Any byte may be wrong: the result may be a module with other values, but nothing panics or takes memory that the
    // file does not have.
    for at in 0..binary.len() {
        let mut bytes = binary.clone();
        bytes[at] = 0xfd;
        let _ = Recorder::<Cpu>::load::<Record>(&recorder, bytes, &device);
    }
    for at in (0..named.len()).step_by(3) {
        let mut bytes = named.clone();
        bytes[at] = 0xdf;
        let _ = kiln_record::NamedRecord::read(kiln_record::Format::NamedMpk, &bytes);
        let _ = Recorder::<Cpu>::load::<Record>(&named_recorder, bytes, &device);
    }
}

/// What a record of the sample holds.
type Item = <<plain::Plain<Cpu> as kiln::module::Module<Cpu>>::Record as kiln::record::Record<Cpu>>::Item<
    kiln::record::FullPrecisionSettings,
>;

#[test]
fn a_file_that_ends_early_is_an_error_in_every_format() {
    for format in kiln_record::Format::ALL {
        let path = fixtures().join(format!("plain_full.{}", format.extension()));
        let bytes = std::fs::read(path).unwrap();
        let read = |bytes: &[u8]| format.read::<kiln_record::Envelope<Item>>(bytes);
        assert!(read(&bytes).is_ok(), "{format:?}");
        // The last bytes of a compressed file are its checksum; the record may be whole without them.
        for at in (0..bytes.len() - 8).step_by(bytes.len() / 60) {
            assert!(read(&bytes[..at]).is_err(), "{format:?}, {at} bytes");
        }
    }
}

#[test]
fn an_error_tells_what_the_record_is() {
    use kiln::record::{
        BinBytesRecorder, FullPrecisionSettings, NamedMpkBytesRecorder, Recorder, RecorderError,
    };
    type Other = <plain::Dense<Cpu> as kiln::module::Module<Cpu>>::Record;

    let device = Default::default();
    let load = |bytes: Vec<u8>| {
        let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
        Recorder::<Cpu>::load::<Other>(&recorder, bytes, &device).err().unwrap()
    };
    let bytes = std::fs::read(fixtures().join("plain_half.memory.mpk")).unwrap();
    let error = load(bytes.clone());
    let expected = "\
the record could not be read: missing field `weight`
the record's float type is half::binary16::f16, the recorder's is f32
the record's integer type is i16, the recorder's is i32
the record's format is burn_core::record::memory::NamedMpkBytesRecorder<burn_core::record::settings::HalfPrecisionSettings>, \
the recorder's is burn_core::record::memory::NamedMpkBytesRecorder<burn_core::record::settings::FullPrecisionSettings>";
    assert_eq!(error.to_string(), expected);

    let version = bytes.windows(6).position(|window| window == b"0.20.1").unwrap();
    let mut newer = bytes;
    newer[version + 2] = b'9';
    let error = load(newer);
    assert!(matches!(error, RecorderError::UnknownVersion(_)));
    let expected = "the record was written by Burn 0.90.1, this version of Kiln reads up to 0.20.1: \
                    the record could not be read: missing field `weight`";
    assert_eq!(error.to_string(), expected);

    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    assert!(Recorder::<Cpu>::load::<Other>(&recorder, b"nothing".to_vec(), &device).is_err());
}

#[test]
fn named_records_load_without_the_record_type() {
    use kiln::module::Module;
    use kiln::record::{Format, load_named, load_named_bytes, save_safetensors_bytes};

    let device = Default::default();
    for format in [Format::NamedMpk, Format::NamedMpkGz, Format::PrettyJson, Format::JsonGz] {
        for precision in ["full", "half", "double"] {
            let plain = plain::Plain::<Cpu>::blank(&device);
            let loaded =
                load_named(plain, fixtures().join(format!("plain_{precision}")), format, &device).unwrap();
            let expected = plain::Plain::<Cpu>::sample(&device);
            assert_eq!(loaded.running.to_string(), expected.running.to_string(), "ids come from the record");
            let bytes = |module| save_safetensors_bytes::<Cpu, _>(module).unwrap();
            assert_eq!(bytes(&loaded), bytes(&expected));

            let path = fixtures().join(format!("layers_{precision}.{}", format.extension()));
            let layers = layers::Layers::<Cpu>::blank(&device);
            let loaded = load_named_bytes(layers, &std::fs::read(path).unwrap(), format, &device).unwrap();
            let expected = layers::Layers::<Cpu>::sample(&device);
            assert_eq!(
                save_safetensors_bytes::<Cpu, _>(&loaded).unwrap(),
                save_safetensors_bytes::<Cpu, _>(&expected).unwrap()
            );
        }
    }
    let path = fixtures().join("plain_full.bin");
    let dense = plain::Plain::<Cpu>::blank(&device).dense;
    let error = load_named(dense.clone(), &path, Format::Bincode, &device).unwrap_err().to_string();
    assert!(error.contains("Bincode has no names"), "{error}");
    let error =
        load_named(dense, fixtures().join("plain_full"), Format::NamedMpk, &device).unwrap_err().to_string();
    assert!(error.contains("missing: weight [2, 3]") && error.contains("unused: array.0.weight"), "{error}");
    assert!(Module::<Cpu>::num_params(&plain::Plain::<Cpu>::blank(&device)) > 0);
}
