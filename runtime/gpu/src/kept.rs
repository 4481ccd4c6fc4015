//! Files that backends keep for later starts, beside which others may be writing theirs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// What was written aside so long ago is nobody's any more: a process was killed before it could rename it.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// Names of a folder that are looked at for files to be removed.
const MOST_NAMES: usize = 1 << 16;
/// Bytes that files of a kind may take in a folder. Of more, those go that were not used for longest, until half of it is left.
const MOST_BYTES: u64 = 1 << 30;
/// Files of a kind that a folder may hold, likewise: those of advice about products are small, and there is one for each shape.
const MOST_FILES: usize = 1 << 14;
/// How exactly is known when a file was last used.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Writes a file, whose name is a hash, as a whole: aside and renamed, so that programs that run at once do not see halves. The first time that a process writes to a
/// folder, it removes what others left aside there, and of files of its kind those that were not [used](mark_used) for longest, where they are a gibibyte together or 16,384.
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
    if let Ok(now) = file.metadata().and_then(|about| about.modified())
        && is_first_write(folder)
    {
        clean(folder, path.extension(), now, MOST_BYTES, MOST_FILES);
    }
    file.write_all(contents).and_then(|()| fs::rename(&aside, path)).inspect_err(|_| {
        let _ = fs::remove_file(&aside);
    })
}

/// Notes that a file is of use, so that it stays when others are removed. Who may not write that changes nothing.
pub fn mark_used(file: &fs::File) {
    let now = SystemTime::now();
    let used = file.metadata().and_then(|about| about.modified());
    if used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age >= DAY)) {
        let _ = file.set_modified(now);
    }
}

/// Whether this process did not write to a folder so far.
fn is_first_write(folder: &Path) -> bool {
    static KNOWN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned())
}

/// Removes what was written aside long before now and not renamed, and what is too much of files of a kind.
fn clean(folder: &Path, kind: Option<&OsStr>, now: SystemTime, most_bytes: u64, most_files: usize) {
    let mut kept = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().take(MOST_NAMES).flatten() {
        // Not of what a link leads to.
        let Some(about) = entry.metadata().ok().filter(fs::Metadata::is_file) else { continue };
        let (Ok(used), Some(name)) = (about.modified(), entry.file_name().to_str().map(str::to_owned)) else {
            continue;
        };
        let path = entry.path();
        if is_aside(&name) {
            if now.duration_since(used).is_ok_and(|age| age >= ABANDONED) {
                remove(&path);
            }
        } else if is_kept(&name) && path.extension() == kind {
            kept.push((used, about.len(), path));
        }
    }
    let mut bytes: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
    let mut files = kept.len();
    if bytes <= most_bytes && files <= most_files {
        return;
    }
    kept.sort();
    for (_, length, path) in kept {
        if bytes <= most_bytes / 2 && files <= most_files / 2 {
            break;
        }
        remove(&path);
        bytes -= length;
        files -= 1;
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        log::debug!("{} could not be removed: {error}", path.display());
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a file of that name is one that was kept.
fn is_kept(name: &str) -> bool {
    name.split_once('.').is_some_and(|(hash, kind)| is_hash(hash) && !kind.contains('.'))
}

/// Whether a file of that name was written aside, by this version or one of before, which named the process and the thread.
fn is_aside(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((hash, of)) = name.split_once('.') else { return false };
    let thread = of
        .split_once('.')
        .and_then(|(process, thread)| Some([process, thread.strip_prefix("ThreadId(")?.strip_suffix(')')?]));
    is_hash(hash) && (is_hash(of) || thread.is_some_and(|numbers| numbers.into_iter().all(is_number)))
}

#[cfg(test)]
mod tests {
    use super::{DAY, clean, mark_used};
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    fn days_ago(days: u32) -> SystemTime {
        SystemTime::now() - days * DAY
    }

    fn make(folder: &Path, name: &str, bytes: usize, days: u32) {
        let path = folder.join(name);
        fs::write(&path, vec![0; bytes]).unwrap();
        File::options().write(true).open(path).unwrap().set_modified(days_ago(days)).unwrap();
    }

    #[test]
    fn what_was_not_used_for_longest_is_removed_where_there_is_too_much() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let all = [
            ("0000000000000001.cubin", 40, 5),
            ("0000000000000002.cubin", 40, 9),
            ("0000000000000003.cubin", 40, 1),
            // Of another kind, and nobody's.
            ("0000000000000004.tuning", 400, 9),
            ("notes.cubin", 400, 9),
            ("0000000000000005.old.cubin", 400, 9),
        ];
        all.iter().for_each(|&(name, bytes, days)| make(folder, name, bytes, days));
        let left = || all.iter().map(|(name, ..)| folder.join(name).exists()).collect::<Vec<_>>();
        let clean = |bytes, files| clean(folder, Some(OsStr::new("cubin")), SystemTime::now(), bytes, files);
        clean(120, 3);
        assert_eq!(left(), [true; 6]);
        clean(119, 3);
        assert_eq!(left(), [false, false, true, true, true, true]);
        make(folder, all[0].0, 40, 5);
        clean(120, 1);
        assert_eq!(left(), [false, false, false, true, true, true]);
    }

    #[test]
    fn what_is_used_is_not_old() {
        let folder = tempfile::tempdir().unwrap();
        let age = |name: &str| {
            let used = fs::metadata(folder.path().join(name)).unwrap().modified().unwrap();
            SystemTime::now().duration_since(used).unwrap_or(Duration::ZERO)
        };
        make(folder.path(), "0000000000000001.cubin", 1, 3);
        let file = File::open(folder.path().join("0000000000000001.cubin")).unwrap();
        assert!(age("0000000000000001.cubin") > 2 * DAY);
        mark_used(&file);
        assert!(age("0000000000000001.cubin") < DAY);
    }
}
