//! Files as memory.

use crate::RecordError;
use kiln_types::Bytes;
use std::path::Path;

/// The bytes of a file, memory-mapped: they are read when they are touched, and the page cache is shared by every
/// process that maps the file.
///
/// The file must not be changed in place while any of the bytes live; replace it instead (write another, then rename),
/// as Kiln's own writers do.
pub fn map_file(path: &Path) -> Result<Bytes, RecordError> {
    let fail = |source| RecordError::Io { path: path.display().to_string(), source };
    let file = std::fs::File::open(path).map_err(fail)?;
    // SAFETY: the map is read-only. Another process that truncates or rewrites the file in place would change or take
    // away memory behind it; that is documented above as the one condition that no reader can check.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(fail)?;
    Ok(Bytes::from_owner(map))
}
