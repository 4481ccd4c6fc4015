//! The zip format: `<name>/data.pkl`, `<name>/data/<key>` for each storage, `<name>/byteorder`. A TorchScript archive has
//! code and `constants.pkl` beside them.

use super::PytorchFile;
use super::pickle::{Dialect, run};
use crate::identify::identify_archive;
use crate::tensor::Source;
use crate::{CheckpointFormat, Result, WeightsError, limits};
use kiln_types::Bytes;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use zip::{CompressionMethod, ZipArchive};

/// Longest distance of the end record from the end of the file: the record and the longest comment.
const END_RECORD_WITHIN: usize = 22 + 0xffff;

/// An entry of the directory, checked to lie inside the file and to overlap no other.
struct Entry {
    data: Range<usize>,
    size: usize,
    crc: u32,
    method: CompressionMethod,
    encrypted: bool,
}

/// An archive's directory.
pub(super) struct Archive {
    file: Bytes,
    entries: BTreeMap<String, Entry>,
}

/// Reads the structure of a zip checkpoint.
pub(super) fn read(archive: &Archive) -> Result<PytorchFile> {
    let prefix = archive.prefix()?;
    let big_endian = archive.big_endian(&prefix)?;
    let script = archive.entries.contains_key(&format!("{prefix}/constants.pkl"));
    let entry = format!("{prefix}/data.pkl");
    let pickle = archive.pickle(&entry).map_err(|error| error.in_entry(&entry))?;
    let dialect = if script { Dialect::Script } else { Dialect::Storages };
    let (pickled, _end) = run(&pickle, 0, dialect).map_err(|error| error.in_entry(&entry))?;
    // Freezing makes constants of the parameters, which have numbers for names.
    if script && pickled.storages.iter().next().is_none() && archive.has_constants(&prefix) {
        return Err(WeightsError::not_a_checkpoint(
            "the TorchScript archive was frozen (`torch.jit.freeze`, `optimize_for_inference`): its parameters are constants \
             without names; save it before it is frozen",
        )
        .in_entry(&entry));
    }
    let folder = format!("{prefix}/data/");
    let mut storages = BTreeMap::new();
    for spec in pickled.storages.iter() {
        let path = format!("{folder}{}", spec.key);
        if archive.entries.contains_key(&path) {
            let source = archive.source(&path).map_err(|error| error.in_entry(&path))?;
            storages.insert(spec.key.clone(), source);
        }
    }
    let format = if script { CheckpointFormat::TorchScript } else { CheckpointFormat::PytorchZip };
    Ok(PytorchFile { format, pickled, storages, big_endian, entry: Some(entry) })
}

impl Archive {
    pub(super) fn read(file: &Bytes) -> Result<Self> {
        let broken = |error: zip::result::ZipError| WeightsError::archive(error.to_string());
        // Before the file is given to a reader that would search all of it.
        let end = end_record(file)
            .ok_or_else(|| WeightsError::archive("its directory is missing; the file ends early"))?;
        let mut zip = ZipArchive::new(Once::new(file)).map_err(broken)?;
        let directory = Directory::of(&zip, file, end);
        if directory.as_ref().is_none_or(|directory| !directory.is_of(&zip)) {
            return Err(WeightsError::archive("its directory is broken, or not where its last record says"));
        }
        if zip.len() > limits::MAX_ENTRIES {
            return Err(WeightsError::limit(
                format!("the archive has {} entries", zip.len()),
                limits::MAX_ENTRIES,
            ));
        }
        // Readers choose between two entries of one name in different ways: the one here has each name once.
        if directory.is_some_and(|directory| directory.entries > zip.len() as u64) {
            return Err(WeightsError::archive("two of its entries have the same name"));
        }
        // Each entry has a header before its data, anywhere in the file.
        file.scattered(true);
        let mut entries = BTreeMap::new();
        let mut spans = Vec::with_capacity(zip.len());
        for index in 0..zip.len() {
            let found = zip.by_index_raw(index).map_err(broken)?;
            let name = found.name().to_owned();
            let (header, entry) = Entry::new(&found, file.len()).map_err(|error| error.in_entry(&name))?;
            spans.push((header, entry.data.end));
            entries.insert(name, entry);
        }
        file.scattered(false);
        check_disjoint(spans)?;
        let archive = Self { file: file.clone(), entries };
        archive.check_inflated()?;
        Ok(archive)
    }

    /// Refuses an archive whose compressed entries promise far more than such a file may hold.
    fn check_inflated(&self) -> Result<()> {
        let sizes = self.entries.values().filter(|entry| entry.method != CompressionMethod::Stored);
        let total = sizes.fold(0_u64, |total, entry| total.saturating_add(entry.size as u64));
        let in_proportion = (self.file.len() as u64).saturating_mul(limits::MAX_EXPANSION as u64);
        let limit = limits::MAX_INFLATED.max(in_proportion);
        if total > limit {
            let what = format!("the archive of {} bytes would inflate to {total}", self.file.len());
            return Err(WeightsError::limit(what, usize::try_from(limit).unwrap_or(usize::MAX)));
        }
        Ok(())
    }

    /// The names of all entries.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.entries.keys().map(String::as_str)
    }

    /// Whether there is an entry of that name.
    pub(super) fn has(&self, path: &str) -> bool {
        self.entries.contains_key(path)
    }

    /// The folder that holds `data.pkl`.
    fn prefix(&self) -> Result<String> {
        let folders: Vec<_> = self
            .entries
            .keys()
            .filter_map(|name| name.strip_suffix("/data.pkl"))
            .filter(|folder| !folder.is_empty() && !folder.contains(['/', '\\']) && *folder != "..")
            .collect();
        match folders.as_slice() {
            [folder] => Ok((*folder).to_owned()),
            [] => Err(WeightsError::not_a_checkpoint(
                identify_archive(self.entries.keys().map(String::as_str))
                    .unwrap_or("the archive has no `data.pkl` in a folder of its own"),
            )),
            [first, second, ..] => Err(WeightsError::not_a_checkpoint(format!(
                "the archive has a `data.pkl` in {first:?} and one in {second:?}"
            ))),
        }
    }

    /// Whether the code has tensors among its constants.
    fn has_constants(&self, prefix: &str) -> bool {
        let folder = format!("{prefix}/constants/");
        self.entries.range(folder.clone()..).next().is_some_and(|(name, _)| name.starts_with(&folder))
    }

    /// What the archive says of the byte order; little-endian if nothing, as it was before the mark existed.
    pub(super) fn big_endian(&self, prefix: &str) -> Result<bool> {
        let path = format!("{prefix}/byteorder");
        if !self.entries.contains_key(&path) {
            return Ok(false);
        }
        let bytes =
            self.source(&path).and_then(|source| source.bytes()).map_err(|error| error.in_entry(&path))?;
        match &*bytes {
            b"little" => Ok(false),
            b"big" => Ok(true),
            other => {
                let shown: String = String::from_utf8_lossy(other).chars().take(20).collect();
                Err(WeightsError::archive(format!("{shown:?} is no byte order")).in_entry(&path))
            }
        }
    }

    /// A pickle's bytes.
    fn pickle(&self, path: &str) -> Result<Bytes> {
        let source = self.source(path)?;
        if source.len() > limits::MAX_PICKLE_BYTES {
            return Err(WeightsError::limit(
                format!("the pickle has {} bytes", source.len()),
                limits::MAX_PICKLE_BYTES,
            ));
        }
        source.bytes()
    }

    /// Where an entry's bytes are.
    pub(super) fn source(&self, path: &str) -> Result<Source> {
        let missing = || WeightsError::archive(format!("there is no entry {path:?}"));
        let entry = self.entries.get(path).ok_or_else(missing)?;
        if entry.encrypted {
            return Err(WeightsError::archive("it is encrypted"));
        }
        let bytes = self.file.slice(entry.data.clone()).ok_or_else(missing)?;
        match entry.method {
            CompressionMethod::Stored if bytes.len() == entry.size => Ok(Source::Mapped(bytes)),
            CompressionMethod::Stored => Err(WeightsError::archive(format!(
                "it is stored as it is, yet in {} bytes instead of {}",
                bytes.len(),
                entry.size
            ))),
            CompressionMethod::DEFLATE => {
                Ok(Source::Deflated { packed: bytes, size: entry.size, crc: entry.crc })
            }
            method => {
                let name = compression_name(method);
                Err(WeightsError::archive(format!(
                    "its compression ({name}) is not known; save it with `torch.save`"
                )))
            }
        }
    }
}

impl Entry {
    /// An entry and the position of its header, if all of it lies inside the file.
    fn new(found: &zip::read::ZipFile<'_, Once>, file: usize) -> Result<(usize, Self)> {
        let beyond = || WeightsError::archive("it lies beyond the end of the file");
        let place = |position: u64| usize::try_from(position).ok().filter(|position| *position <= file);
        let header = place(found.header_start()).ok_or_else(beyond)?;
        let start = found.data_start().ok_or_else(beyond)?;
        let end = start.checked_add(found.compressed_size()).and_then(place).ok_or_else(beyond)?;
        let size = usize::try_from(found.size()).map_err(|_| beyond())?;
        let (crc, method, encrypted) = (found.crc32(), found.compression(), found.encrypted());
        Ok((header, Self { data: start as usize..end, size, crc, method, encrypted }))
    }
}

/// What a way of compressing is called.
fn compression_name(method: CompressionMethod) -> String {
    let name = match method {
        CompressionMethod::DEFLATE64 => "Deflate64",
        CompressionMethod::BZIP2 => "bzip2",
        CompressionMethod::LZMA => "LZMA",
        CompressionMethod::ZSTD => "zstd",
        CompressionMethod::XZ => "xz",
        other => return format!("{other:?}"),
    };
    name.to_owned()
}

/// A file that is read about once: where a directory is broken, the reader looks for another one before it, up to the beginning of the file, and reads
/// each anew.
struct Once {
    file: Cursor<Bytes>,
    /// Bytes that may still be read.
    left: Cell<usize>,
}

impl Once {
    /// The directory, and the headers of its entries, are parts of the file; the record at its end is searched for in blocks.
    fn new(file: &Bytes) -> Self {
        let left = file.len().saturating_mul(2).saturating_add(4 * END_RECORD_WITHIN);
        Self { file: Cursor::new(file.clone()), left: Cell::new(left) }
    }
}

impl Read for Once {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(to)?;
        match self.left.get().checked_sub(count) {
            Some(left) => self.left.set(left),
            None => return Err(io::Error::other("its directory is broken, and so are others before it")),
        }
        Ok(count)
    }
}

impl Seek for Once {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Where in a file the record at its end begins, and the record: the last one whose comment the file ends with, or the last of all, behind which
/// there are bytes that some tools append.
fn end_record(file: &[u8]) -> Option<(usize, &[u8])> {
    let tail = file.len().saturating_sub(END_RECORD_WITHIN);
    let signatures = file.get(tail..)?.windows(4).enumerate().rev();
    let signatures = signatures.filter(|(_, window)| window == b"PK\x05\x06");
    let records = signatures.filter_map(|(at, _)| {
        let record = file.get(tail + at..)?;
        let comment: usize = u16::from_le_bytes(*record.get(20..)?.first_chunk()?).into();
        (record.len() >= 22 + comment).then_some((tail + at, record, record.len() == 22 + comment))
    });
    let mut last = None;
    for (at, record, is_end) in records {
        if is_end {
            return Some((at, record));
        }
        last.get_or_insert((at, record));
    }
    last
}

/// What the record at the end tells of the directory, or in an archive of more than 4 GiB or 65,535 entries the record before it (4.3.14 to 4.3.16 of the
/// format's specification, APPNOTE.TXT).
struct Directory {
    /// Where the record stands, and with it the directory's end.
    end: u64,
    size: u64,
    entries: u64,
}

impl Directory {
    fn of(zip: &ZipArchive<Once>, file: &[u8], (at, record): (usize, &[u8])) -> Option<Self> {
        let long = |bytes: &[u8], at: usize| bytes.get(at..)?.first_chunk().map(|n| u64::from_le_bytes(*n));
        let locator =
            at.checked_sub(20).and_then(|at| file.get(at..)).filter(|bytes| bytes.starts_with(b"PK\x06\x07"));
        if let Some(locator) = locator {
            let end = long(locator, 8)?.checked_add(zip.offset())?;
            let record = file.get(usize::try_from(end).ok()?..)?;
            return Some(Self { end, size: long(record, 40)?, entries: long(record, 32)? });
        }
        let size = record.get(12..)?.first_chunk().map(|size| u32::from_le_bytes(*size))?;
        let entries = record.get(10..)?.first_chunk().map(|count| u16::from_le_bytes(*count))?;
        Some(Self { end: at as u64, size: size.into(), entries: entries.into() })
    }

    /// Whether it is the directory that was read: that ends where the record begins.
    fn is_of(&self, zip: &ZipArchive<Once>) -> bool {
        zip.central_directory_start().checked_add(self.size) == Some(self.end)
    }
}

/// Refuses entries that share bytes: a small file could hold any number of large ones that way.
fn check_disjoint(mut spans: Vec<(usize, usize)>) -> Result<()> {
    spans.sort_unstable();
    match spans.windows(2).find(|pair| matches!(pair, [(_, end), (start, _)] if end > start)) {
        Some(_) => Err(WeightsError::archive("two of its entries overlap")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeros deflate to a thousandth of their size.
    #[test]
    fn what_inflates_out_of_proportion_is_refused() {
        let archive = |file: usize, size: usize| {
            let entry =
                Entry { data: 0..0, size, crc: 0, method: CompressionMethod::DEFLATE, encrypted: false };
            let entries = BTreeMap::from([("a/data/0".to_owned(), entry)]);
            Archive { file: Bytes::from_vec(vec![0; file]), entries }.check_inflated()
        };
        assert!(archive(800_000, 256 << 20).is_ok());
        let error = archive(800_000, 800 << 20).unwrap_err().in_file("z.pt").to_string();
        let expected =
            "z.pt: the archive of 800000 bytes would inflate to 838860800, and the limit is 268435456";
        assert_eq!(error, expected);
        // A file of some size is its own measure.
        assert!(archive(9 << 20, 800 << 20).is_ok());
    }
}
