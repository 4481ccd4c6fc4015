//! Where a program's messages go.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Says where the messages of the `log` crate go during a training.
pub trait ApplicationLoggerInstaller {
    /// Makes them go there.
    ///
    /// # Errors
    /// When that is not possible, such as when the program has a logger of its own.
    fn install(&self) -> Result<(), String>;
}

/// Messages go to a file.
#[derive(Clone, Debug)]
pub struct FileApplicationLoggerInstaller {
    path: PathBuf,
}

impl FileApplicationLoggerInstaller {
    /// To this file, after what it has.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned() }
    }
}

/// The file that messages go to. A process has one logger, whose file is that of the last training.
static FILE: Mutex<Option<File>> = Mutex::new(None);

struct FileLogger;

static LOGGER: FileLogger = FileLogger;

impl log::Log for FileLogger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        // What is formatted may log, too.
        let line = format!("{} {}: {}\n", record.level(), record.target(), record.args());
        if let Some(file) = FILE.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            // A message that cannot be written is no reason to stop.
            let _ = file.write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

impl ApplicationLoggerInstaller for FileApplicationLoggerInstaller {
    fn install(&self) -> Result<(), String> {
        /// Whether [`LOGGER`] is the process's logger.
        static INSTALLED: Mutex<bool> = Mutex::new(false);
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if !*installed {
            log::set_logger(&LOGGER).map_err(|_| "the program has a logger of its own".to_owned())?;
            log::set_max_level(log::LevelFilter::Info);
            *installed = true;
        }
        let fail = |error| format!("{}: {error}", self.path.display());
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(fail)?;
        }
        let file = File::options().create(true).append(true).open(&self.path).map_err(fail)?;
        *FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }
}
