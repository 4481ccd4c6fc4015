//! Which of several ways to do the same were fastest on a device: timed once for each class of work, and kept in a file of the user's.
//!
//! A file holds what was found on one device with one driver by one version of Kiln: a line that says so, and a line a class. One that
//! says otherwise, or is damaged, is as good as none, and written anew.
//!
//! Not all work of a class can be done in the same ways (some kernels ask for sizes that others of the class have not), so that several of a class may be
//! the fastest: the first found that some work has is taken for it.

use crate::kept;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, fs, io};

/// The variable that says, by 1, that devices time kernels which do the same. Else they run those that are usually the fastest.
pub const TUNE: &str = "KILN_TUNE";

/// What a device knows of ways to do the same.
#[derive(Debug)]
pub struct Tuning {
    is_on: AtomicBool,
    file: Option<File>,
    /// What was found; nothing before it was looked for in the file.
    found: Mutex<Option<Found>>,
}

/// The fastest ways' names by the class of work, in the order in which they were found.
type Found = BTreeMap<String, Vec<String>>;

impl Tuning {
    /// That of a device, which a line of text names with its driver, and what it keeps in a folder, if there is one. It is on where [`TUNE`] says so.
    pub fn new(device: &str, folder: Option<&Path>) -> Self {
        let is_on = !cfg!(target_arch = "wasm32") && env::var(TUNE).is_ok_and(|value| value == "1");
        Self::with(is_on, folder.map(|folder| File::of(folder, device)))
    }

    fn with(is_on: bool, file: Option<File>) -> Self {
        Self { is_on: AtomicBool::new(is_on), file, found: Mutex::default() }
    }

    /// One that is on, and forgets what it found with the process.
    pub fn of_process() -> Self {
        Self::with(true, None)
    }

    /// Whether ways are timed. Never in a browser, where no thread can wait for the device.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Has ways timed, or not any more.
    pub fn set(&self, on: bool) {
        self.is_on.store(on && !cfg!(target_arch = "wasm32"), Ordering::Relaxed);
    }

    /// The place among `names` of the way that is fastest for a class of work. `can` goes one, if it can be gone, and where there is a choice of such, `time` takes
    /// the time of one, unless that fails.
    pub fn fastest(
        &self,
        class: &str,
        names: &[&str],
        mut can: impl FnMut(usize) -> bool,
        mut time: impl FnMut(usize) -> Option<Duration>,
    ) -> usize {
        if names.len() < 2 {
            return 0;
        }
        let place_of = |known: &String| names.iter().position(|name| name == known);
        let place = |found: &Found| found.get(class)?.iter().find_map(place_of);
        if let Some(place) = self.found().as_ref().and_then(place) {
            return place;
        }
        // Nothing is locked meanwhile: launches ask for what was found.
        let possible: Vec<usize> = (0..names.len()).filter(|&place| can(place)).collect();
        let best = match possible[..] {
            [only] => Some(only),
            _ => {
                let times = possible.into_iter().filter_map(|place| Some((time(place)?, place)));
                times.min().map(|(_, best)| best)
            }
        };
        let Some(best) = best else { return 0 };
        let mut found = self.found();
        let all = found.get_or_insert_default();
        // Another program may have found more since.
        let others = self.file.as_ref().and_then(File::read).unwrap_or_default();
        others.into_iter().for_each(|(class, names)| {
            all.entry(class).or_insert(names);
        });
        let of_class = all.entry(class.to_owned()).or_default();
        if !of_class.iter().any(|known| known == names[best]) {
            of_class.push(names[best].to_owned());
        }
        if let Some(Err(error)) = self.file.as_ref().map(|file| file.write(all)) {
            log::debug!("which kernels are fastest could not be kept: {error}");
        }
        best
    }

    /// What was found, here or before.
    fn found(&self) -> MutexGuard<'_, Option<Found>> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_none() {
            *found = Some(self.file.as_ref().and_then(File::read).unwrap_or_default());
        }
        found
    }
}

/// The folder in which a backend keeps what it found for the next start: the one that a variable names (nothing where it is empty), or the backend's own in the
/// user's folder for such (`$XDG_CACHE_HOME`, `~/.cache`, `%LOCALAPPDATA%`); nothing where there is none.
pub fn folder(variable: &str, backend: &str) -> Option<PathBuf> {
    if let Some(folder) = env::var_os(variable) {
        return (!folder.is_empty()).then(|| folder.into());
    }
    let known = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = known("XDG_CACHE_HOME")
        .or_else(|| known("HOME").map(|home| home.join(".cache")))
        .or_else(|| known("LOCALAPPDATA"))?;
    Some(folder.join("kiln").join(backend))
}

/// What was found on a device, on disk.
#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Its first line.
    header: String,
}

impl File {
    fn of(folder: &Path, device: &str) -> Self {
        let device = device.replace(char::is_whitespace, " ");
        let header = format!("kiln {} fastest kernels 2: {device}", env!("CARGO_PKG_VERSION"));
        let mut hasher = DefaultHasher::new();
        header.hash(&mut hasher);
        Self { path: folder.join(format!("{:016x}.tuning", hasher.finish())), header }
    }

    /// What it says; nothing where it is not whole.
    fn read(&self) -> Option<Found> {
        // What is no file is not opened: a pipe of the name would be waited for.
        fs::metadata(&self.path).ok().filter(fs::Metadata::is_file)?;
        let text = fs::read_to_string(&self.path).ok()?;
        let mut lines = text.lines();
        let of_this = lines.next()? == self.header;
        let found: Option<Found> = lines
            .map(|line| {
                let (class, names) = line.split_once('\t')?;
                Some((class.to_owned(), names.split('\t').map(str::to_owned).collect()))
            })
            .collect();
        found.filter(|_| of_this && text.ends_with('\n'))
    }

    fn write(&self, found: &Found) -> io::Result<()> {
        let lines = found.iter().map(|(class, names)| format!("{class}\t{}\n", names.join("\t")));
        let text: String = [format!("{}\n", self.header)].into_iter().chain(lines).collect();
        kept::write(&self.path, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::{File, Tuning};
    use std::path::Path;
    use std::time::Duration;

    fn tuning(folder: &Path, device: &str) -> Tuning {
        Tuning::with(true, Some(File::of(folder, device)))
    }

    /// The fastest by times that are given, in milliseconds, and how many were taken.
    fn fastest(tuning: &Tuning, class: &str, names: &[&str], times: &[Option<u64>]) -> (usize, usize) {
        let mut taken = 0;
        let can = |n: usize| times[n].is_some();
        let best = tuning.fastest(class, names, can, |n| {
            taken += 1;
            times[n].map(Duration::from_millis)
        });
        (best, taken)
    }

    #[test]
    fn each_class_is_timed_once_for_an_adapter() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a", "b", "c"];
        let first = tuning(folder.path(), "one");
        assert_eq!(fastest(&first, "x", &names, &[Some(3), Some(1), Some(2)]), (1, 3));
        assert_eq!(fastest(&first, "x", &names, &[Some(1), Some(3), Some(2)]), (1, 0));
        assert_eq!(fastest(&first, "y", &names, &[Some(3), Some(2), Some(1)]), (2, 3));
        // Another process, with the kernels in another order, and one that has not the fastest.
        let second = tuning(folder.path(), "one");
        assert_eq!(fastest(&second, "x", &["c", "b"], &[Some(1), Some(2)]), (1, 0));
        assert_eq!(fastest(&second, "x", &["a", "c"], &[Some(1), Some(2)]), (0, 2));
        // Neither of the two is timed anew for the other's sake.
        for tuning in [&second, &tuning(folder.path(), "one")] {
            assert_eq!(fastest(tuning, "x", &["c", "b"], &[None, None]), (1, 0));
            assert_eq!(fastest(tuning, "x", &["a", "c"], &[None, None]), (0, 0));
        }
        let other = tuning(folder.path(), "two");
        assert_eq!(fastest(&other, "x", &names, &[Some(1), Some(3), None]), (0, 2));
        // Both go on with what each of them found.
        assert_eq!(fastest(&tuning(folder.path(), "one"), "y", &names, &[None, None, None]), (2, 0));
    }

    #[test]
    fn what_cannot_be_timed_is_the_usual_one() {
        let folder = tempfile::tempdir().unwrap();
        let tuning = tuning(folder.path(), "one");
        assert_eq!(tuning.fastest("x", &["a", "b"], |_| true, |_| None), 0);
        assert_eq!(fastest(&tuning, "x", &["a", "b"], &[None, None]), (0, 0));
        assert_eq!(fastest(&tuning, "x", &["a", "b"], &[Some(5), Some(4)]), (1, 2));
    }

    #[test]
    fn what_leaves_no_choice_is_not_timed() {
        let folder = tempfile::tempdir().unwrap();
        let tuning = tuning(folder.path(), "one");
        assert_eq!(tuning.fastest("x", &["a"], |_| panic!("tried"), |_| None), 0);
        assert_eq!(fastest(&tuning, "x", &["a", "b", "c"], &[None, Some(5), None]), (1, 0));
        // Nor is it tried again.
        assert_eq!(tuning.fastest("x", &["a", "b", "c"], |_| panic!("tried"), |_| None), 1);
    }

    #[test]
    fn a_damaged_file_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a", "b"];
        fastest(&tuning(folder.path(), "one"), "x", &names, &[Some(2), Some(1)]);
        let path = File::of(folder.path(), "one").path;
        let whole = std::fs::read(&path).unwrap();
        let cut = whole[..whole.len() - 1].to_vec();
        let other = String::from_utf8(whole.clone()).unwrap().replace("one", "two").into_bytes();
        for damaged in [Vec::new(), cut, other, b"\xff\xfe\n".to_vec(), [&whole[..], b"no tab\n"].concat()] {
            std::fs::write(&path, damaged).unwrap();
            let tuning = tuning(folder.path(), "one");
            assert_eq!(fastest(&tuning, "x", &names, &[Some(2), Some(1)]), (1, 2));
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
    }

    /// A pipe in the file's place has no end, and no beginning until somebody writes to it.
    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = File::of(folder.path(), "one").path;
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (found, is_found) = std::sync::mpsc::channel();
        let own = tuning(folder.path(), "one");
        std::thread::spawn(move || found.send(fastest(&own, "x", &["a", "b"], &[Some(2), Some(1)])));
        assert_eq!(is_found.recv_timeout(Duration::from_secs(10)), Ok((1, 2)));
        assert_eq!(fastest(&tuning(folder.path(), "one"), "x", &["a", "b"], &[Some(1), Some(2)]), (1, 0));
    }

    #[test]
    fn without_a_folder_it_is_kept_in_the_process() {
        let tuning = Tuning::with(true, None);
        assert_eq!(fastest(&tuning, "x", &["a", "b"], &[Some(2), Some(1)]), (1, 2));
        assert_eq!(fastest(&tuning, "x", &["a", "b"], &[Some(1), Some(2)]), (1, 0));
    }
}
