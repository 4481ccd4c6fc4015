//! Files that backends keep for later starts, beside which others may be writing theirs.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// What was written aside so long ago is nobody's any more: a process was killed before it could rename it.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// Names of a folder that are looked at for such files.
const MOST_NAMES: usize = 1 << 16;

/// Writes a file, whose name is a hash, as a whole: aside and renamed, so that programs that run at once do not see halves. The first time that a process writes to a
/// folder, it removes what others left aside there.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // Nobody else's: in containers that share a folder, processes have the same numbers.
    let aside = path.with_extension(format!("{:016x}", RandomState::new().hash_one(path)));
    let mut file = fs::File::create_new(&aside)?;
    // By the clock of the file system. There may be no room before the others are gone.
    if let Ok(now) = file.metadata().and_then(|about| about.modified()) {
        remove_abandoned(folder, now);
    }
    file.write_all(contents).and_then(|()| fs::rename(&aside, path)).inspect_err(|_| {
        let _ = fs::remove_file(&aside);
    })
}

/// Removes what was written aside long before now and not renamed, once in a process.
fn remove_abandoned(folder: &Path, now: SystemTime) {
    static DONE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if !DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned()) {
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().take(MOST_NAMES).flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_aside)) {
        // Not of what a link leads to.
        let about = entry.metadata().ok().filter(fs::Metadata::is_file);
        let written = about.and_then(|about| about.modified().ok());
        let age = written.and_then(|written| now.duration_since(written).ok());
        if age.is_some_and(|age| age >= ABANDONED)
            && let Err(error) = fs::remove_file(entry.path())
        {
            log::debug!("{} could not be removed: {error}", entry.path().display());
        }
    }
}

/// Whether a file of that name was written aside, by this version or one of before, which named the process and the thread.
fn is_aside(name: &str) -> bool {
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((hash, of)) = name.split_once('.') else { return false };
    let thread = of
        .split_once('.')
        .and_then(|(process, thread)| Some([process, thread.strip_prefix("ThreadId(")?.strip_suffix(')')?]));
    is_hash(hash) && (is_hash(of) || thread.is_some_and(|numbers| numbers.into_iter().all(is_number)))
}
