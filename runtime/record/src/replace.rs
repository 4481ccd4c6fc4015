//! Files that take another's place in one step.

use crate::RecordError;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Makes a file: `write` fills one beside it, which then takes its name. Who reads meanwhile finds the old contents or the new, whole;
/// maps of the old ones stay valid. When anything fails, be it the machine's power, the old file stays as it was. The new one has its permissions.
///
/// A link is followed, and what is no file (a pipe, a device) is written to as it is.
///
/// # Errors
/// What `write` says, or that the system refuses.
pub fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let replacement = Replacement::new(path);
    let fail = |source| RecordError::Io { path: path.display().to_string(), source };
    let mut options = File::options();
    match replacement.is_beside() {
        true => options.write(true).create(true).truncate(true),
        false => options.write(true),
    };
    #[cfg(unix)]
    if replacement.is_beside() && replacement.target.exists() {
        use std::os::unix::fs::OpenOptionsExt;
        // Until it has the old file's permissions, nobody reads what that one may keep from them.
        options.mode(0o600);
    }
    let mut writer = BufWriter::new(options.open(replacement.path()).map_err(fail)?);
    write(&mut writer)?;
    writer.flush().map_err(fail)?;
    drop(writer);
    replacement.commit()
}

/// A file that is written beside another and then takes its name: for those who write several and replace none before all are there.
///
/// One that is dropped leaves the old file as it was. What processes that were ended left of the same file is removed when the next one
/// is begun.
#[derive(Debug)]
#[must_use = "nothing is replaced before `commit`"]
pub struct Replacement {
    /// The path that was asked for, for messages.
    path: PathBuf,
    /// Where the file goes, links followed.
    target: PathBuf,
    /// What is written; `None` where the target is written to as it is.
    part: Option<PathBuf>,
}

impl Replacement {
    /// One for the file at a path.
    pub fn new(path: &Path) -> Self {
        /// Writers of one process do not meet in one file.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let target = fs::canonicalize(path).unwrap_or_else(|_| link_target(path));
        let part = match fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
            true => None,
            false => {
                remove_left_over(&target);
                let mut name = target.file_name().unwrap_or_default().to_os_string();
                // Containers number their processes alike: what is hashed by chance tells those apart that write to one folder.
                let number = RandomState::new().hash_one(NEXT.fetch_add(1, Ordering::Relaxed));
                name.push(format!(".{}-{number}.part", process()));
                Some(target.with_file_name(name))
            }
        };
        Self { path: path.to_owned(), target, part }
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        self.part.as_deref().unwrap_or(&self.target)
    }

    /// Whether that is another file than the one to be replaced.
    fn is_beside(&self) -> bool {
        self.part.is_some()
    }

    /// Gives what was written the name of the file.
    ///
    /// # Errors
    /// When the system refuses; the old file is then as it was.
    pub fn commit(mut self) -> Result<(), RecordError> {
        let Some(part) = &self.part else { return Ok(()) };
        let fail = |source| RecordError::Io { path: self.path.display().to_string(), source };
        if let Ok(old) = fs::metadata(&self.target) {
            // A name may be written to the disk before what bears it. Windows writes back nothing through a handle that may only read.
            File::options().write(true).open(part).and_then(|part| part.sync_all()).map_err(fail)?;
            fs::set_permissions(part, old.permissions()).map_err(fail)?;
        }
        fs::rename(part, &self.target).map_err(fail)?;
        self.part = None;
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Whatever kept it from taking the name is the error to report, whether or not the remains can be removed.
            let _ = fs::remove_file(part);
        }
    }
}

/// Where links lead to nothing yet; a path that is none as it is.
fn link_target(path: &Path) -> PathBuf {
    /// As many as Linux follows.
    const MOST: usize = 40;
    let mut target = path.to_owned();
    for _ in 0..MOST {
        let Ok(next) = fs::read_link(&target) else { break };
        // What a link says is relative to its folder.
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    target
}

/// Removes what processes that were ended in the middle left beside a file. It is in nobody's way, so that what cannot be removed stays.
fn remove_left_over(target: &Path) {
    let folder = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = target.file_name().and_then(|name| name.to_str()) else { return };
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let found = entry.file_name();
        let found = found.to_str().and_then(|found| found.strip_prefix(name));
        if let Some(writer) = found.and_then(writer_of)
            && is_left_over(writer, &entry)
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process in `.123-4.part`, which is what a name of a part has after that of its file. A part may be written by way of another.
fn writer_of(rest: &str) -> Option<u32> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut found = None;
    for part in rest.strip_suffix(".part")?.split(".part") {
        let (writer, number) = part.strip_prefix('.')?.split_once('-')?;
        found = Some(writer).filter(|writer| digits(writer) && digits(number));
        found?;
    }
    found?.parse().ok()
}

/// Whether nobody writes a part any more: its process does not run, where the system lists those that do, and for a while nothing was written, or it is a day old.
fn is_left_over(writer: u32, part: &fs::DirEntry) -> bool {
    /// Nothing is written for so long.
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    /// The process may run in another container, which is not listed: it writes on meanwhile.
    const WHILE: Duration = Duration::from_secs(10 * 60);
    let listed = Path::new("/proc/self").exists();
    let ended = listed && writer != process() && !Path::new("/proc").join(writer.to_string()).exists();
    let age = part.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|at| at.elapsed().ok());
    age.is_some_and(|age| age > DAY || ended && age > WHILE)
}

/// This process's number among those that run; 0 in WebAssembly, where nobody numbers them.
pub(crate) fn process() -> u32 {
    if cfg!(target_family = "wasm") { 0 } else { std::process::id() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        let fill = |file: &mut BufWriter<File>| {
            file.write_all(text.as_bytes()).unwrap();
            Ok(())
        };
        replace_file(path, fill).unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Only the parts of the same file, and only those that nobody writes.
    #[test]
    fn what_ended_processes_left_is_removed() {
        let folder = std::env::temp_dir().join(format!("kiln-replace-{}", process()));
        fs::create_dir_all(&folder).unwrap();
        // Numbers of processes are far smaller.
        let (ended, runs) = (u32::MAX, process());
        let kept = [
            "a.json".to_owned(),
            format!("a.json.{runs}-900.part"),
            format!("a.json.{ended}-x.part"),
            format!("a.json.old.{ended}-0.part"),
            format!("b.json.{ended}-0.part"),
        ];
        for name in &kept[1..] {
            fs::write(folder.join(name), "").unwrap();
        }
        let left = folder.join(format!("a.json.{ended}-0.part"));
        let inner = folder.join(format!("a.json.{ended}-0.part.{ended}-1.part"));
        let half = |path: &Path, minutes: u64| {
            fs::write(path, "half").unwrap();
            let at = std::time::SystemTime::now() - Duration::from_secs(minutes * 60);
            File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
        };
        // Somebody in another container may be writing.
        half(&left, 5);
        half(&inner, 11);
        write(&folder.join("a.json"), "whole");
        let listed = Path::new("/proc/self").exists();
        assert_eq!((left.exists(), inner.exists()), (true, !listed));
        let _ = fs::remove_file(inner);
        // Where no system lists processes, age tells.
        half(&left, 25 * 60);
        write(&folder.join("a.json"), "again");
        let mut expected = kept.to_vec();
        expected.sort();
        assert_eq!(names(&folder), expected);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Who could not read the old file cannot read the new one, and a link that led to nothing leads to the file.
    #[cfg(unix)]
    #[test]
    fn permissions_and_links_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = std::env::temp_dir().join(format!("kiln-permissions-{}", process()));
        fs::create_dir_all(folder.join("inner")).unwrap();
        let path = folder.join("secret");
        write(&path, "old");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write(&path, "new");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        // One that may only be read is replaced, too, and so is one by way of a part that somebody else writes.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
        write(&path, "newer");
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("newer", 0o440));
        let replacement = Replacement::new(&path);
        fs::write(replacement.path(), "newest").unwrap();
        replacement.commit().unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("newest", 0o440));
        let (link, second) = (folder.join("link"), folder.join("inner/second"));
        symlink("inner/second", &link).unwrap();
        symlink("../file", &second).unwrap();
        write(&link, "behind two links");
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "behind two links");
        assert!(link.is_symlink() && second.is_symlink());
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Nothing is replaced by what was not committed, and nothing of it stays.
    #[test]
    fn a_replacement_that_is_dropped_leaves_the_file() {
        let folder = std::env::temp_dir().join(format!("kiln-dropped-{}", process()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a");
        write(&path, "old");
        let replacement = Replacement::new(&path);
        fs::write(replacement.path(), "new").unwrap();
        drop(replacement);
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(&folder).len()), ("old", 1));
        let replacement = Replacement::new(&path);
        fs::write(replacement.path(), "new").unwrap();
        replacement.commit().unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(&folder).len()), ("new", 1));
        fs::remove_dir_all(&folder).unwrap();
    }
}
