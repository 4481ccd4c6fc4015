//! Archives that are small and make much of themselves: refused within limits.

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use kiln_limits_tests::bounded;
use kiln_types::Bytes;
use kiln_weights::ExportedProgram;
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

fn refusal(bytes: Vec<u8>) -> String {
    ExportedProgram::read(&Bytes::from_vec(bytes)).expect_err("no program").to_string()
}

/// A directory whose last entry is broken, and so many records at the end, each of which says that it is theirs.
fn records(entries: u32, records: usize) -> Vec<u8> {
    let mut bytes = b"PK\x03\x04".to_vec();
    bytes.resize(30, 0);
    let start = bytes.len() as u32;
    for n in 0..entries {
        let name = format!("m/{n}");
        bytes.extend(b"PK\x01\x02\x14\0\x14\0");
        bytes.extend([0; 20]);
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend(name.as_bytes());
    }
    bytes.extend([b'X'; 64]);
    let length = bytes.len() as u32 - start;
    for _ in 0..records {
        bytes.extend(b"PK\x05\x06\0\0\0\0\xfe\xff\xfe\xff");
        bytes.extend(length.to_le_bytes());
        bytes.extend(start.to_le_bytes());
        bytes.extend([0; 2]);
    }
    bytes
}

#[test]
fn many_records_of_one_broken_directory() {
    bounded(|| {
        let error = refusal(records(20_000, 2_900));
        assert!(error.contains("directory is broken"), "{error}");
    });
}

/// An archive of one entry, compressed.
fn deflated(name: &str, contents: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(contents).expect("a vector takes all");
    let packed = encoder.finish().expect("a vector takes all");
    let mut crc = Crc::new();
    crc.update(contents);
    // Version 2.0, no flags, deflated, no time.
    let mut about = b"\x14\0\0\0\x08\0\0\0\0\0".to_vec();
    for number in [crc.sum(), packed.len() as u32, contents.len() as u32, name.len() as u32] {
        about.extend(number.to_le_bytes());
    }
    let header = [b"PK\x03\x04", &about[..], name.as_bytes(), &packed].concat();
    let entry = [b"PK\x01\x02\x14\0", &about[..], &[0; 14], name.as_bytes()].concat();
    let mut bytes = [&header[..], &entry, b"PK\x05\x06\0\0\0\0\x01\0\x01\0"].concat();
    bytes.extend((entry.len() as u32).to_le_bytes());
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

#[test]
fn a_text_that_inflates_a_thousandfold() {
    bounded(|| {
        let bytes = deflated("m/models/model.json", &b"0,".repeat(100 << 20));
        assert!(bytes.len() < 1 << 20);
        let error = refusal(bytes);
        assert!(error.contains("the text has 209715200 bytes, and the limit is 20372700"), "{error}");
    });
}

/// An archive inside of another one, whose own directory is broken, is not read in its place; what stands behind the last record is nothing.
#[test]
fn the_directory_is_that_of_the_last_record() {
    let inner = deflated("m/models/model.json", b"{}");
    for behind in [&b""[..], b"\r\n"] {
        let bytes = [&inner[..], behind].concat();
        let read = ExportedProgram::read(&Bytes::from_vec(bytes)).expect("an archive");
        assert_eq!(&*read.program, b"{}");
    }
    // 22 bytes more, which begin as a record does.
    let outer = [&inner[..], &records(1, 1)[..]].concat();
    let error = refusal(outer);
    assert!(error.contains("directory"), "{error}");
}

/// More entries than the last record can count, whose directory another record tells of.
#[test]
fn an_archive_of_many_entries() {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    writer.start_file("m/models/model.json", stored).expect("an entry");
    writer.write_all(b"{}").expect("its bytes");
    for n in 0..1 << 16 {
        writer.start_file(format!("m/extra/{n}"), stored).expect("an entry");
    }
    let bytes = writer.finish().expect("an archive").into_inner();
    assert!(bytes.windows(4).any(|window| window == b"PK\x06\x07"));
    let read = ExportedProgram::read(&Bytes::from_vec(bytes)).expect("an archive");
    assert_eq!(&*read.program, b"{}");
}
