//! [`Config`]: the hyperparameters of a module or an experiment.

use alloc::string::{String, ToString};
#[cfg(feature = "std")]
use kiln_record::RecordError;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use kiln_derive::Config;

/// A config could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read, or its text is not such a config.
    #[error("the config could not be read: {0}")]
    InvalidFormat(String),
    /// There is no such file.
    #[error("the config was not found: {0}")]
    FileNotFound(String),
}

/// Plain values that describe a module or an experiment, kept in JSON.
///
/// `#[derive(Config)]` implements it for a struct with named fields or an enum, together with `Clone`, `Display` (the
/// JSON), serde's traits and, for a struct, a constructor: `new` takes the fields that have no default; a field with
/// `#[config(default = …)]` starts with that value, an `Option` with `None`, and both get a method `with_…`. A default
/// is an expression, or a string that holds one. A field that a file lacks has its default, unless that names other fields.
///
/// ```
/// use kiln::config::Config;
///
/// #[derive(Config, Debug)]
/// pub struct TrainingConfig {
///     classes: usize,
///     #[config(default = 64)]
///     batch_size: usize,
///     checkpoint: Option<String>,
/// }
///
/// let config = TrainingConfig::new(10).with_batch_size(128);
/// assert_eq!((config.classes, config.batch_size, config.checkpoint), (10, 128, None));
/// ```
pub trait Config: Serialize + DeserializeOwned {
    /// Writes the config to a file, whose old contents stay if that fails.
    #[cfg(feature = "std")]
    fn save<P: AsRef<std::path::Path>>(&self, file: P) -> std::io::Result<()> {
        use std::io::Write;
        let path = file.as_ref();
        let text = config_to_json(self);
        let failed = |source| RecordError::Io { path: alloc::format!("{}", path.display()), source };
        kiln_record::replace_file(path, |file| file.write_all(text.as_bytes()).map_err(failed)).map_err(
            |error| match error {
                RecordError::Io { source, .. } => source,
                other => std::io::Error::other(other),
            },
        )
    }

    /// Reads the config from a file.
    #[cfg(feature = "std")]
    fn load<P: AsRef<std::path::Path>>(file: P) -> Result<Self, ConfigError> {
        let path = file.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = alloc::format!("{}: {error}", path.display());
            match error.kind() {
                std::io::ErrorKind::NotFound => ConfigError::FileNotFound(message),
                _ => ConfigError::InvalidFormat(message),
            }
        })?;
        serde_json::from_str(&text)
            .map_err(|error| ConfigError::InvalidFormat(alloc::format!("{}: {error}", path.display())))
    }

    /// Reads the config from the bytes of a file.
    fn load_binary(data: &[u8]) -> Result<Self, ConfigError> {
        let text =
            core::str::from_utf8(data).map_err(|error| ConfigError::InvalidFormat(error.to_string()))?;
        serde_json::from_str(text).map_err(|error| ConfigError::InvalidFormat(error.to_string()))
    }
}

/// The JSON of a config.
///
/// # Panics
/// When a field's own serialization fails, or it is a map whose keys are no texts.
pub fn config_to_json<C: Config>(config: &C) -> String {
    match serde_json::to_string_pretty(config) {
        Ok(text) => text,
        Err(error) => panic!("the config cannot be written as JSON: {error}"),
    }
}
