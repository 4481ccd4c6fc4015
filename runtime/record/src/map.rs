//! Files as memory.

use crate::RecordError;
use kiln_types::{Bytes, Refetched};
use std::ops::Range;
use std::path::Path;

/// Bytes below which nothing is given back: a call for each of many small tensors takes longer than reading them, and takes pages
/// from their neighbours that are read next.
#[cfg(unix)]
const LEAST_RELEASED: usize = 64 * 1024;

/// Bytes that the system may map at once where the page cache holds large pages: what lies beside a tensor in them comes and goes with it.
#[cfg(unix)]
const MAPPED_AT_ONCE: usize = 2 << 20;

/// A read-only map of a file.
struct MappedFile(memmap2::Mmap);

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Refetched for MappedFile {
    #[cfg(unix)]
    fn release(&self, range: Range<usize>) {
        use memmap2::UncheckedAdvice::DontNeed;
        if range.len() < LEAST_RELEASED {
            return;
        }
        // What lies before it has mostly been released, and was mapped again with it; what lies behind it was hardly read yet.
        let start = range.start / MAPPED_AT_ONCE * MAPPED_AT_ONCE;
        let end = range.end.next_multiple_of(MAPPED_AT_ONCE).min(self.0.len());
        // SAFETY: the map is read-only and backed by the file, so its pages hold nothing of their own that could be
        // lost; the next read finds the file's bytes again.
        let advised = unsafe { self.0.unchecked_advise_range(DontNeed, start, end - start) };
        // A hint: nothing is wrong when the system does not take it.
        drop(advised);
    }

    #[cfg(not(unix))]
    fn release(&self, _range: Range<usize>) {}

    #[cfg(unix)]
    fn scattered(&self, scattered: bool) {
        let advice = if scattered { memmap2::Advice::Random } else { memmap2::Advice::Normal };
        drop(self.0.advise(advice));
    }

    #[cfg(not(unix))]
    fn scattered(&self, _scattered: bool) {}
}

/// The bytes of a file, memory-mapped: they are read when they are touched, and the page cache is shared by every
/// process that maps the file.
///
/// The file must not be changed in place while any of the bytes live; replace it instead (write another, then rename),
/// as Kiln's own writers do.
pub fn map_file(path: &Path) -> Result<Bytes, RecordError> {
    let fail = |source| RecordError::Io { path: path.display().to_string(), source };
    // What cannot be mapped anyway; a pipe would be waited for when it is opened.
    if !std::fs::metadata(path).map_err(fail)?.is_file() {
        return Err(fail(std::io::Error::other("it is not a file")));
    }
    let file = std::fs::File::open(path).map_err(fail)?;
    // SAFETY: the map is read-only. Another process that truncates or rewrites the file in place would change or take
    // away memory behind it; that is documented above as the one condition that no reader can check.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(fail)?;
    Ok(Bytes::from_refetched(MappedFile(map)))
}
