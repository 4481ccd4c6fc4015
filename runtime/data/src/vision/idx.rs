//! IDX files (LeCun et al. 1998): unsigned bytes behind a head of sizes, as they are or compressed by gzip.

use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// The bytes of a file with `D` sizes, and these.
pub(super) struct Bytes<const D: usize> {
    pub(super) sizes: [usize; D],
    pub(super) bytes: Vec<u8>,
}

/// What is wrong with a file.
pub(super) enum Fault {
    Io(io::Error),
    Format(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Format("it is cut off".into()),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => Self::Format(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

/// What is compressed may always be this long.
const ALWAYS_INFLATED: u64 = 32 << 20;
/// What is compressed may be this many times as long as its file; MNIST's images are five times as long.
const INFLATED_TIMES: u64 = 20;

/// Reads a file whose sizes are all right with `check`; memory grows with what it holds, not with what its head says.
pub(super) fn read<const D: usize>(
    path: &Path,
    check: impl FnOnce(&[usize; D]) -> Result<(), String>,
) -> Result<Bytes<D>, Fault> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut magic = [0; 2];
    file.read_exact(&mut magic)?;
    file.seek(SeekFrom::Start(0))?;
    match magic {
        [0x1f, 0x8b] => {
            let limit = length.saturating_mul(INFLATED_TIMES).max(ALWAYS_INFLATED);
            parse(MultiGzDecoder::new(BufReader::new(file)), limit, check)
        }
        _ => parse(BufReader::new(file), length, check),
    }
}

/// Reads what is `limit` bytes long at most.
fn parse<const D: usize>(
    mut reader: impl Read,
    limit: u64,
    check: impl FnOnce(&[usize; D]) -> Result<(), String>,
) -> Result<Bytes<D>, Fault> {
    let mut word = || -> Result<[u8; 4], Fault> {
        let mut bytes = [0; 4];
        reader.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let magic = word()?;
    // Two zeros, the type (8: unsigned bytes), the number of sizes.
    if magic != [0, 0, 8, D as u8] {
        return Err(Fault::Format(format!(
            "it is no IDX file of bytes with {D} sizes (it begins with {magic:02x?})"
        )));
    }
    let mut sizes = [0; D];
    for size in &mut sizes {
        *size = u32::from_be_bytes(word()?) as usize;
    }
    let count = sizes.iter().try_fold(1_u64, |count, &size| count.checked_mul(size as u64));
    let count = count.ok_or_else(|| Fault::Format(format!("its sizes {sizes:?} are too large")))?;
    check(&sizes).map_err(Fault::Format)?;
    if count > limit {
        return Err(Fault::Format(format!(
            "its sizes {sizes:?} say {count} bytes, and a file so short is read up to {limit} bytes"
        )));
    }
    let mut bytes = Vec::new();
    // One byte more shows whether there is more.
    reader.take(count.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != count {
        let relation = if (bytes.len() as u64) < count { "fewer" } else { "more" };
        return Err(Fault::Format(format!(
            "it has {relation} bytes than the {count} that its sizes {sizes:?} say"
        )));
    }
    bytes.shrink_to_fit();
    Ok(Bytes { sizes, bytes })
}
