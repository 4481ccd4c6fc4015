//! Records and checkpoints that are small, or would be refused for their size, and would take much.

use flate2::{Compression, write::GzEncoder};
use kiln_core::module::{ConstantRecord, Module};
use kiln_core::nn::DropoutConfig;
use kiln_core::record::{
    BinBytesRecorder, BinFileRecorder, BinGzFileRecorder, FileRecorder, FullPrecisionSettings,
    JsonGzFileRecorder, NamedMpkBytesRecorder, NamedMpkFileRecorder, NamedMpkGzFileRecorder,
    PrettyJsonFileRecorder, Record, Recorder, RecorderError,
};
use kiln_limits_tests::bounded;
use kiln_ndarray::NdArray;
use kiln_record::safetensors::Safetensors;
use kiln_record::{Envelope, Format, Metadata, NamedRecord, Precision};
use kiln_types::Bytes;
use kiln_weights::{Checkpoint, OpenOptions};
use std::io::Write;

/// What a reader says of a record.
fn refusal(format: Format, bytes: &[u8]) -> String {
    let error = NamedRecord::read(format, bytes).expect_err("it is refused");
    assert!(error.to_string().len() < 2_000);
    error.to_string()
}

#[test]
fn a_gzip_bomb() {
    bounded(|| {
        for format in [Format::NamedMpkGz, Format::JsonGz] {
            let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
            let zeros = vec![0; 1 << 20];
            for _ in 0..64 {
                bomb.write_all(&zeros).expect("memory");
            }
            let bomb = bomb.finish().expect("memory");
            assert!(bomb.len() < 2 << 20, "{}", bomb.len());
            assert!(refusal(format, &bomb).contains("it inflates to more than"));
            assert!(format.read::<Vec<u8>>(&bomb).is_err());
        }
    });
}

/// A record in JSON whose parameters are below a field of a long name.
fn long_name(length: usize, parameters: usize) -> String {
    let parameter = r#"{"id":"0000000000000","param":{"bytes":[],"shape":[0],"dtype":"F32"}}"#;
    let parameters: Vec<String> = (0..parameters).map(|n| format!("\"{n}\":{parameter}")).collect();
    let metadata = r#"{"float":"f32","int":"i32","format":"","version":"0.20.1","settings":""}"#;
    let item = format!("{{\"{}\":{{{}}}}}", "a".repeat(length), parameters.join(","));
    format!("{{\"metadata\":{metadata},\"item\":{item}}}")
}

#[test]
fn paths_that_are_longer_than_the_file() {
    bounded(|| {
        assert!(NamedRecord::read(Format::PrettyJson, long_name(100, 10).as_bytes()).is_ok());
        let text = long_name(1_300_000, 15_000);
        assert!(text.len() < 2_700_000);
        assert!(refusal(Format::PrettyJson, text.as_bytes()).contains("the paths of its parameters"));
    });
}

#[test]
fn deep_nesting() {
    bounded(|| {
        const DEPTH: usize = 300_000;
        let json = ["{\"metadata\":", &"[".repeat(DEPTH)].concat();
        let text = ["{\"item\":", &"{\"a\":".repeat(DEPTH)].concat();
        for text in [json, text, "[".repeat(DEPTH)] {
            refusal(Format::PrettyJson, text.as_bytes());
        }
        // Maps of one entry, "item" and then "a"; and lists of one.
        let maps = [&b"\x81\xa4item"[..], &b"\x81\xa1a".repeat(DEPTH)].concat();
        let lists = [&b"\x82\xa5other"[..], &b"\x91".repeat(DEPTH)].concat();
        for bytes in [maps, lists, vec![0x91; DEPTH]] {
            refusal(Format::NamedMpk, &bytes);
        }
    });
}

#[test]
fn lengths_that_nothing_backs() {
    bounded(|| {
        // A byte string, a list, a map and a text of 2^32 - 1.
        for kind in [0xc6, 0xdd, 0xdf, 0xdb] {
            let head = [&b"\x82\xa8metadata\x80\xa4item"[..], &[kind, 0xff, 0xff, 0xff, 0xff]].concat();
            refusal(Format::NamedMpk, &head);
            assert!(Format::NamedMpk.read::<kiln_types::TensorData>(&head[15..]).is_err());
        }
        assert!(Format::Bincode.read::<kiln_types::TensorData>(&[0xfd; 9]).is_err());
    });
}

/// A record in a format, up to its fields: these are what is put behind it.
fn head(format: Format) -> Vec<u8> {
    let whole = Envelope::new(Metadata::new(String::new(), Precision::Full), ());
    let mut bytes = format.to_vec(&whole).expect("memory");
    // The field that has no content, and the marker with its name.
    let tail = match format {
        Format::NamedMpk => "\u{0}\u{0}_b\u{0}".len(),
        Format::PrettyJson => "null,\n  \"_b\": null\n}".len(),
        Format::Bincode => 0,
        Format::NamedMpkGz | Format::BincodeGz | Format::JsonGz => panic!("compressed"),
    };
    bytes.truncate(bytes.len() - tail);
    bytes
}

/// The head of a record, and fields in the format.
fn record(format: Format, fields: &[u8]) -> Vec<u8> {
    [&head(format), fields].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

type Settings = FullPrecisionSettings;

/// What modules without state have in a record, where a list of them is.
type Constants = Vec<ConstantRecord>;

/// What a recorder reads from a file of these bytes.
fn loaded<T: Record<NdArray>, R: FileRecorder<NdArray>>(
    recorder: &R,
    bytes: &[u8],
) -> Result<T, RecorderError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("record").with_extension(R::file_extension());
    std::fs::write(&path, bytes).expect("a file");
    recorder.load(path, &Default::default())
}

/// What every recorder reads of fields in bincode, in MessagePack and in JSON.
fn loaded_by_all<T: Record<NdArray>>(
    binary: &[u8],
    named: &[u8],
    text: &[u8],
) -> Vec<Result<T, RecorderError>> {
    let binary = record(Format::Bincode, binary);
    let named = record(Format::NamedMpk, named);
    let text = record(Format::PrettyJson, text);
    let device = Default::default();
    let (in_memory, named_in_memory) =
        (BinBytesRecorder::<Settings>::new(), NamedMpkBytesRecorder::<Settings>::new());
    vec![
        loaded(&BinFileRecorder::<Settings>::new(), &binary),
        loaded(&BinGzFileRecorder::<Settings>::new(), &gzip(&binary)),
        loaded(&NamedMpkFileRecorder::<Settings>::new(), &named),
        loaded(&NamedMpkGzFileRecorder::<Settings>::new(), &gzip(&named)),
        loaded(&PrettyJsonFileRecorder::<Settings>::new(), &text),
        loaded(&JsonGzFileRecorder::<Settings>::new(), &gzip(&text)),
        Recorder::<NdArray>::load(&in_memory, binary.clone(), &device),
        Recorder::<NdArray>::load(&named_in_memory, named.clone(), &device),
    ]
}

fn refused_by_all<T: Record<NdArray>>(binary: &[u8], named: &[u8], text: &[u8]) {
    for (index, result) in loaded_by_all::<T>(binary, named, text).into_iter().enumerate() {
        assert!(matches!(result, Err(RecorderError::DeserializeError(_))), "recorder {index}");
    }
}

/// 2^64 - 1 in bincode, and a list of 2^32 - 1 in MessagePack.
const LONGEST: (&[u8], &[u8]) = (b"\xfd\xff\xff\xff\xff\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff");

#[test]
fn lists_of_constants_that_nothing_backs() {
    bounded(|| {
        // Three of so many, and a list that does not end.
        let (binary, named) = ([LONGEST.0, b"\0\0\0"].concat(), [LONGEST.1, b"\xc0\xc0\xc0"].concat());
        refused_by_all::<Constants>(&binary, &named, b"[null, null, null");
        // Among other fields, in an option, and as arrays.
        refused_by_all::<(ConstantRecord, Option<Constants>)>(
            &[b"\0\x01", LONGEST.0].concat(),
            &[b"\x92\xc0", LONGEST.1].concat(),
            b"[null, [null, null",
        );
        refused_by_all::<Vec<[ConstantRecord; 40]>>(LONGEST.0, LONGEST.1, b"[[null");
    });
}

#[test]
fn lists_of_nothing_that_nothing_backs() {
    bounded(|| {
        refused_by_all::<Vec<()>>(LONGEST.0, LONGEST.1, b"[null, null");
        refused_by_all::<Vec<[(); 40]>>(LONGEST.0, LONGEST.1, b"[[null");
    });
}

/// No list alone is longer than lists may be, but all of them together.
#[test]
fn lists_in_lists_that_nothing_backs() {
    bounded(|| {
        // 65000 lists of 65000.
        let binary = [&b"\xfb\xe8\xfd"[..], &b"\xfb\xe8\xfd".repeat(65_000)].concat();
        let named = [&b"\xdc\xfd\xe8"[..], &b"\xdc\xfd\xe8".repeat(65_000)].concat();
        refused_by_all::<Vec<Constants>>(&binary, &named, "[".repeat(65_000).as_bytes());
        refused_by_all::<Vec<Vec<()>>>(&binary, &named, "[".repeat(65_000).as_bytes());
        // Lists of 250 in lists of 250 in lists of 250, and so on.
        let (binary, named) = (b"\xfa".repeat(1000), b"\xdc\0\xfa".repeat(1000));
        refused_by_all::<Vec<Vec<Vec<Vec<Constants>>>>>(&binary, &named, "[".repeat(1000).as_bytes());
    });
}

/// The smallest records there are: lists in lists, whose items have a byte each.
#[test]
fn lists_of_as_many_items_as_bytes() {
    bounded(|| {
        const COUNT: u32 = 200_000;
        let length = COUNT.to_le_bytes();
        let binary = [&b"\xfc"[..], &length, &b"\x01\0".repeat(COUNT as usize)].concat();
        let length = COUNT.to_be_bytes();
        let named = [&b"\xdd"[..], &length, &b"\x91\xc0".repeat(COUNT as usize), b"\xa2_b\xc0"].concat();
        let text = format!("[{}[null]], \"_b\": null}}", "[null], ".repeat(COUNT as usize - 1));
        for result in loaded_by_all::<Vec<Constants>>(&binary, &named, text.as_bytes()) {
            let record = result.expect("an honest record");
            assert_eq!((record.len(), record.iter().flatten().count()), (COUNT as usize, COUNT as usize));
        }
    });
}

/// Lists of what has no bytes in bincode; and a record in it may end where a constant stands.
#[test]
fn values_without_bytes() {
    bounded(|| {
        let recorder = BinBytesRecorder::<Settings>::new();
        let load = |fields: &[u8]| record(Format::Bincode, fields);
        let device = Default::default();
        let units: Vec<()> =
            Recorder::<NdArray>::load(&recorder, load(b"\xfb\xe8\x03"), &device).expect("units");
        assert_eq!(units.len(), 1000);
        let fields: (u8, [ConstantRecord; 3]) =
            Recorder::<NdArray>::load(&recorder, load(b"\x07"), &device).expect("a number");
        assert_eq!(fields.0, 7);
    });
}

/// Formats that say what a value is skip what an older module had where there is a constant now.
#[test]
fn constants_in_place_of_values() {
    bounded(|| {
        let named = record(Format::NamedMpk, b"\x93\xc0\x81\xa1a\x92\x01\xc0\x07\xa2_b\xc0");
        let text = record(Format::PrettyJson, br#"[null, {"a": [1, null]}, 7], "_b": null}"#);
        for result in [
            loaded::<Constants, _>(&NamedMpkFileRecorder::<Settings>::new(), &named),
            loaded::<Constants, _>(&PrettyJsonFileRecorder::<Settings>::new(), &text),
        ] {
            assert_eq!(result.expect("three").len(), 3);
        }
    });
}

/// A constant in which lists are nested as deep as they may be, or deeper, is an error, and what is behind it is not read.
#[test]
fn constants_that_are_deep() {
    bounded(|| {
        let deep = |depth: usize| record(Format::NamedMpk, &[b"\x92", &b"\x91".repeat(depth)[..]].concat());
        for depth in [120, 125, 126, 127, 128, 300_000] {
            let recorder = NamedMpkBytesRecorder::<Settings>::new();
            let result: Result<Constants, _> =
                Recorder::<NdArray>::load(&recorder, deep(depth), &Default::default());
            assert!(matches!(result, Err(RecorderError::DeserializeError(_))), "{depth}");
        }
    });
}

#[test]
fn texts_and_bytes_that_nothing_backs() {
    bounded(|| {
        for length in
            [&b"\xfd\xff\xff\xff\xff\xff\xff\xff\xff"[..], b"\xfd\0\0\0\0\0\x01\0\0", b"\xfc\0\0\0\xff"]
        {
            let recorder = BinBytesRecorder::<Settings>::new();
            let fields = record(Format::Bincode, length);
            let result: Result<String, _> = Recorder::<NdArray>::load(&recorder, fields, &Default::default());
            assert!(matches!(result, Err(RecorderError::DeserializeError(_))), "{result:?}");
        }
    });
}

/// Lists of modules without state go through every recorder.
#[test]
fn lists_of_constants() {
    fn through<R: FileRecorder<NdArray>>(recorder: &R) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("record");
        let layers = vec![DropoutConfig::new(0.5).init(); 3];
        let record = Module::<NdArray>::into_record(layers);
        recorder.record(record, path.clone()).expect("a file");
        let record = recorder.load::<Constants>(path, &Default::default()).expect("what was written");
        assert_eq!(record.len(), 3);
    }
    bounded(|| {
        through(&BinFileRecorder::<Settings>::new());
        through(&BinGzFileRecorder::<Settings>::new());
        through(&NamedMpkFileRecorder::<Settings>::new());
        through(&NamedMpkGzFileRecorder::<Settings>::new());
        through(&PrettyJsonFileRecorder::<Settings>::new());
        through(&JsonGzFileRecorder::<Settings>::new());
    });
}

/// A Safetensors file of a header alone.
fn header(text: &str) -> Bytes {
    Bytes::from_vec([&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat())
}

#[test]
fn dims_whose_product_is_no_number() {
    bounded(|| {
        for shape in ["[2,0,9223372036854775808]", "[9223372036854775808,2,0]", "[0,4611686018427387904]"] {
            let entry = r#""dtype":"F32","data_offsets":[0,0],"shape""#;
            let file = header(&format!("{{\"t\":{{{entry}:{shape}}}}}"));
            assert!(Safetensors::read(file.clone()).is_err(), "{shape}");
            assert!(Checkpoint::read(file, "t.safetensors", &Default::default()).is_err(), "{shape}");
        }
        let fine = header(r#"{"t":{"dtype":"F32","shape":[2,0,1099511627776],"data_offsets":[0,0]}}"#);
        let file = Safetensors::read(fine.clone()).expect("no elements");
        assert_eq!(file.tensor("t").expect("a tensor").num_elements(), 0);
        let checkpoint = Checkpoint::read(fine, "t.safetensors", &Default::default()).expect("a checkpoint");
        let tensor = checkpoint.tensor("t").expect("a tensor");
        assert!(tensor.data().is_ok() && tensor.transposed().is_none_or(|turned| turned.data().is_ok()));
    });
}

#[test]
fn dims_without_end() {
    bounded(|| {
        let file = |rank: usize| {
            let shape = vec!["1"; rank].join(",");
            let entry = format!(r#"{{"t":{{"dtype":"F32","shape":[{shape}],"data_offsets":[0,4]}}}}"#);
            Bytes::from_vec([&header(&entry)[..], &[0; 4]].concat())
        };
        assert!(Checkpoint::read(file(64), "t.safetensors", &Default::default()).is_ok());
        let error =
            Checkpoint::read(file(200_000), "t.safetensors", &Default::default()).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "t.safetensors, key \"t\": the tensor has 200000 dims, and the limit is 64"
        );
    });
}

/// What is said of an index.
fn index(text: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.safetensors.index.json");
    std::fs::write(&path, text).expect("a file");
    Checkpoint::open(&path).expect_err("it is refused").to_string()
}

#[test]
fn a_large_index() {
    bounded(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.safetensors.index.json");
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(256 << 20).expect("a file with a hole");
        assert!(Checkpoint::open(&path).expect_err("it is refused").to_string().contains("limit"));
    });
}

#[test]
fn an_index_of_many_values() {
    bounded(|| {
        let list = |what: &str| format!("{{\"metadata\":[{}0]}}", what.repeat(500_000));
        for text in [list("{\"a\":0},"), list("0,"), list("[],")] {
            assert!(index(text.as_bytes()).contains("its metadata has more than"), "{}", &text[..40]);
        }
        let entries: Vec<String> = (0..60_000).map(|n| format!("\"{n}\":\"{n}.safetensors\"")).collect();
        let text = format!("{{\"weight_map\":{{{}}}}}", entries.join(","));
        assert!(index(text.as_bytes()).contains("60000 of the 60000 shards"));
        let deep = ["{\"metadata\":", &"[".repeat(300_000)].concat();
        assert!(index(deep.as_bytes()).contains("the index is no JSON"));
    });
}

/// A checkpoint in PyTorch's older format, up to its storages: the magic number, the version, and nothing of the system are before
/// the pickle.
fn legacy(pickle: &[u8]) -> Bytes {
    let before = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.";
    Bytes::from_vec([&before[..], b"\x80\x02", pickle, b"\x80\x02]."].concat())
}

/// A text of a pickle.
fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

#[test]
fn keys_that_are_deep() {
    bounded(|| {
        let deep = [&b")"[..], &b"\x85".repeat(60_000)].concat();
        let options = OpenOptions { top_level_key: Some("model".to_owned()) };
        // The key of a dict, and that of a storage.
        let dict = legacy(&[b"}", &deep[..], b"Ns."].concat());
        let storage = [text("storage"), b"ctorch\nFloatStorage\n".to_vec(), deep, text("cpu")].concat();
        let storage = legacy(&[b"}", &text("weight")[..], b"(", &storage, b"K\x01tQs."].concat());
        for file in [dict, storage] {
            let error = Checkpoint::read(file, "model.pt", &options).expect_err("it is refused");
            assert!(error.to_string().contains("a dict's key is nested too deeply"), "{error}");
        }
    });
}

/// The place of an error is told by the keys on the way to it.
#[test]
fn a_key_that_is_told_again_and_again() {
    bounded(|| {
        let dicts = b"}h\0".repeat(200_000);
        let pickle = [&text(&"key ".repeat(1 << 18))[..], b"q\x000", &dicts, b"\xff"].concat();
        let error = Checkpoint::read(legacy(&pickle), "model.pt", &Default::default()).expect_err("refused");
        assert!(error.to_string().contains("opcode 0xff does not exist"), "{error}");
    });
}

#[test]
fn a_set_of_large_values() {
    bounded(|| {
        let numbers = [&b"("[..], &b"K\x07".repeat(200), b"lq\x000"].concat();
        // Each a number, in no order, and the list.
        let value = |n: u32| [b"(J", &(n.wrapping_mul(0x9e37_79b1)).to_le_bytes()[..], b"h\0l"].concat();
        let values: Vec<u8> = (0..10_000).flat_map(value).collect();
        let set = [b"}", &text("set")[..], &numbers, b"\x8f(", &values, b"\x90s."].concat();
        let file = Checkpoint::read(legacy(&set), "model.pt", &Default::default()).expect("a checkpoint");
        let data = file.plain_data().expect("plain data");
        assert_eq!(data.pointer("/set").and_then(|set| set.as_array()).map(Vec::len), Some(10_000));
    });
}
