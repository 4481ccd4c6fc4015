//! Where the values of metrics go.

use crate::metric::{MetricDefinition, MetricEntry, NumericEntry};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Keeps the values of the metrics of training, or of validation. Epochs count from 1 on.
pub trait MetricLogger: Send {
    /// Is told of a metric before its first value.
    fn register_metric(&mut self, _definition: &MetricDefinition) {}

    /// Takes in a value of the current epoch.
    fn log(&mut self, item: &MetricEntry);

    /// Takes in a value of the current epoch that is a number. Usually it is logged as any value.
    fn log_numeric(&mut self, item: &MetricEntry, _number: NumericEntry) {
        self.log(item);
    }

    /// The epoch is over; the next one begins.
    fn end_epoch(&mut self, epoch: usize);

    /// A metric's values of an epoch, in order. A training that goes on asks for those of all epochs that are over; where it
    /// gets none that its checkpoints are chosen by, it removes no checkpoint of these epochs.
    ///
    /// # Errors
    /// When they cannot be read, or are no numbers.
    fn read_numeric(&mut self, name: &str, epoch: usize) -> Result<Vec<NumericEntry>, String>;

    /// The training goes on in an epoch of which so many values of each metric are known: what was logged after them, by a
    /// run that was stopped, comes again.
    fn resume_at(&mut self, epoch: usize, _entries: usize) {
        if epoch > 1 {
            self.end_epoch(epoch - 1);
        }
    }

    /// What was logged can be read by others now.
    fn flush(&mut self) {}
}

/// A file of each metric in each epoch, `epoch-1/Loss.log`, a line a value.
#[derive(Debug)]
pub struct FileMetricLogger {
    folder: PathBuf,
    epoch: usize,
    files: HashMap<String, BufWriter<File>>,
    /// The first thing that went wrong is told once; a training does not end because a disk is full.
    failed: bool,
}

impl FileMetricLogger {
    /// In a folder, which need not exist.
    pub fn new(directory: impl AsRef<Path>) -> Self {
        let folder = directory.as_ref().to_owned();
        Self { folder, epoch: 1, files: HashMap::new(), failed: false }
    }

    fn epoch_folder(&self, epoch: usize) -> PathBuf {
        self.folder.join(format!("epoch-{epoch}"))
    }

    fn path(&self, name: &str, epoch: usize) -> PathBuf {
        self.epoch_folder(epoch).join(format!("{}.log", crate::file_name(name)))
    }

    fn write(&mut self, item: &MetricEntry) -> io::Result<()> {
        let path = self.path(&item.name, self.epoch);
        let file = match self.files.entry(item.name.to_string()) {
            std::collections::hash_map::Entry::Occupied(file) => file.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                if let Some(folder) = path.parent() {
                    fs::create_dir_all(folder)?;
                }
                place.insert(BufWriter::new(File::options().create(true).append(true).open(&path)?))
            }
        };
        // Lines are counted: each is an entry.
        writeln!(file, "{}", item.serialize.replace(['\n', '\r'], " "))
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result
            && !std::mem::replace(&mut self.failed, true)
        {
            let folder = self.folder.display();
            eprintln!("warning: metrics are no longer logged in {folder}, or not wholly: {error}");
        }
    }

    /// Shortens the logs of the epoch, and removes those of later ones.
    fn rewind(&self, epoch: usize, entries: usize) -> io::Result<()> {
        let folders = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            folders => folders?,
        };
        for folder in folders {
            let folder = folder?;
            let name = folder.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("epoch-")?.parse::<usize>().ok());
            match number {
                Some(number) if number > epoch || (number == epoch && entries == 0) => {
                    fs::remove_dir_all(folder.path())?;
                }
                Some(number) if number == epoch => {
                    for log in fs::read_dir(folder.path())? {
                        keep_lines(&log?.path(), entries)?;
                    }
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }
}

/// Keeps so many lines of a file.
fn keep_lines(path: &Path, lines: usize) -> io::Result<()> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut length, mut line) = (0, Vec::new());
    for _ in 0..lines {
        line.clear();
        length += reader.read_until(b'\n', &mut line)? as u64;
    }
    File::options().write(true).open(path)?.set_len(length)
}

impl MetricLogger for FileMetricLogger {
    fn log(&mut self, item: &MetricEntry) {
        let written = self.write(item);
        self.note(written);
    }

    fn end_epoch(&mut self, epoch: usize) {
        self.flush();
        self.files.clear();
        self.epoch = epoch + 1;
    }

    fn read_numeric(&mut self, name: &str, epoch: usize) -> Result<Vec<NumericEntry>, String> {
        self.flush();
        let path = self.path(name, epoch);
        let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| fail(&error))?;
        text.lines().map(|line| NumericEntry::deserialize(line).map_err(|error| fail(&error))).collect()
    }

    fn resume_at(&mut self, epoch: usize, entries: usize) {
        self.files.clear();
        self.epoch = epoch;
        let done = self.rewind(epoch, entries);
        self.note(done);
    }

    fn flush(&mut self) {
        let flushed = self.files.values_mut().try_for_each(Write::flush);
        self.note(flushed);
    }
}

/// Values that are kept in memory: for tests, and where there are no files.
#[derive(Clone, Debug)]
pub struct InMemoryMetricLogger {
    epoch: usize,
    values: BTreeMap<(String, usize), Vec<String>>,
}

impl Default for InMemoryMetricLogger {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemoryMetricLogger {
    /// Without values.
    pub fn new() -> Self {
        Self { epoch: 1, values: BTreeMap::new() }
    }
}

impl MetricLogger for InMemoryMetricLogger {
    fn log(&mut self, item: &MetricEntry) {
        let key = (item.name.to_string(), self.epoch);
        self.values.entry(key).or_default().push(item.serialize.clone());
    }

    fn end_epoch(&mut self, epoch: usize) {
        self.epoch = epoch + 1;
    }

    fn read_numeric(&mut self, name: &str, epoch: usize) -> Result<Vec<NumericEntry>, String> {
        let values = self.values.get(&(name.to_owned(), epoch));
        let values = values.ok_or_else(|| format!("{name} has no values in epoch {epoch}"))?;
        values.iter().map(|value| NumericEntry::deserialize(value)).collect()
    }

    fn resume_at(&mut self, epoch: usize, entries: usize) {
        self.epoch = epoch;
        self.values.retain(|(_, of), _| *of < epoch || (*of == epoch && entries > 0));
        self.values.iter_mut().filter(|((_, of), _)| *of == epoch).for_each(|(_, all)| all.truncate(entries));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, value: f64) -> MetricEntry {
        MetricEntry::new(name.to_owned(), String::new(), NumericEntry::Value(value).serialize())
    }

    /// Two epochs and a half, then it goes on in the middle of the second one.
    fn stopped_and_resumed(logger: &mut dyn MetricLogger) {
        logger.resume_at(1, 0);
        for epoch in 1..=3 {
            for step in 1..=4 {
                logger.log(&entry("Top-K / odd", f64::from(epoch * 10 + step)));
            }
            if epoch < 3 {
                logger.end_epoch(epoch as usize);
            }
        }
        logger.resume_at(2, 3);
        logger.log(&entry("Top-K / odd", 0.5));
        let mut read = |epoch| {
            let values = logger.read_numeric("Top-K / odd", epoch)?;
            Ok::<_, String>(values.iter().map(NumericEntry::current).collect::<Vec<_>>())
        };
        assert_eq!(read(1), Ok(vec![11.0, 12.0, 13.0, 14.0]));
        assert_eq!(read(2), Ok(vec![21.0, 22.0, 23.0, 0.5]));
        assert!(read(3).is_err());
        logger.resume_at(1, 0);
        assert!(logger.read_numeric("Top-K / odd", 1).is_err());
    }

    #[test]
    fn logs_go_on_where_a_run_does() {
        let folder = tempfile::tempdir().expect("a folder");
        stopped_and_resumed(&mut FileMetricLogger::new(folder.path().join("train")));
        stopped_and_resumed(&mut InMemoryMetricLogger::new());
    }
}
