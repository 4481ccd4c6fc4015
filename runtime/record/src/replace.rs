//! Files that take another's place in one step.

use crate::RecordError;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes a file: `write` fills one beside it, which then takes its name. Who reads meanwhile finds the old contents or the new, whole;
/// maps of the old ones stay valid. When anything fails, the old file stays as it was.
///
/// A link is followed, and what is no file (a pipe, a device) is written to as it is.
///
/// # Errors
/// What `write` says, or that the system refuses.
pub fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    /// Writers of one process do not meet in one file.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let fail = |source| RecordError::Io { path: path.display().to_string(), source };
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let fill = |file: File| {
        let mut writer = BufWriter::new(file);
        write(&mut writer)?;
        writer.flush().map_err(fail)
    };
    if fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
        return fill(File::options().write(true).open(&target).map_err(fail)?);
    }
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}-{}.part", process(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let part = target.with_file_name(name);
    let file = File::create(&part).map_err(fail)?;
    let written = fill(file).and_then(|()| fs::rename(&part, &target).map_err(fail));
    if written.is_err() {
        // The first error is the one to report, whether or not the remains can be removed.
        let _ = fs::remove_file(&part);
    }
    written
}

/// This process's number among those that run; 0 in WebAssembly, where nobody numbers them.
pub(crate) fn process() -> u32 {
    if cfg!(target_family = "wasm") { 0 } else { std::process::id() }
}
