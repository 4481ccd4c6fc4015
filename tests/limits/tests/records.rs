//! Records and checkpoints that are small, or would be refused for their size, and would take much.

use flate2::{Compression, write::GzEncoder};
use kiln_limits_tests::bounded;
use kiln_record::safetensors::Safetensors;
use kiln_record::{Format, NamedRecord};
use kiln_types::Bytes;
use kiln_weights::Checkpoint;
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
