//! Recorders to and from files.

use super::{FullPrecisionSettings, HalfPrecisionSettings, PrecisionSettings, Recorder, RecorderError};
use crate::tensor::backend::Backend;
use alloc::string::{String, ToString};
use core::marker::PhantomData;
use kiln_record::Format;
use serde::{Serialize, de::DeserializeOwned};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A recorder to and from files.
pub trait FileRecorder<B: Backend>:
    Recorder<B, RecordArgs = PathBuf, RecordOutput = (), LoadArgs = PathBuf>
{
    /// The extension that the recorder gives to its files, without a leading dot.
    fn file_extension() -> &'static str;
}

/// Declares the recorder of one format.
macro_rules! file_recorder {
    ($(#[$doc:meta])* $name:ident, $format:expr) => {
        $(#[$doc])*
        #[derive(Debug, Default, Clone)]
        pub struct $name<S: PrecisionSettings> {
            settings: PhantomData<S>,
        }

        impl<S: PrecisionSettings> $name<S> {
            /// A recorder.
            pub fn new() -> Self {
                Self::default()
            }
        }

        impl<B: Backend, S: PrecisionSettings> FileRecorder<B> for $name<S> {
            fn file_extension() -> &'static str {
                $format.extension()
            }
        }

        impl<B: Backend, S: PrecisionSettings> Recorder<B> for $name<S> {
            type Settings = S;
            type RecordArgs = PathBuf;
            type RecordOutput = ();
            type LoadArgs = PathBuf;

            fn save_item<I: Serialize>(&self, item: I, file: PathBuf) -> Result<(), RecorderError> {
                let mut writer = create(&with_extension(file, $format.extension()))?;
                $format.write(&mut writer, &item)?;
                writer.flush().map_err(|error| RecorderError::Unknown(error.to_string()))
            }

            fn load_item<I: DeserializeOwned>(&self, file: &mut PathBuf) -> Result<I, RecorderError> {
                let path = with_extension(file.clone(), $format.extension());
                Ok($format.read(&kiln_record::map_file(&path)?)?)
            }

            fn format_name(&self) -> String {
                $format.recorder_type(S::PRECISION)
            }
        }
    };
}

file_recorder!(
    /// Files in bincode, `.bin`: small, and quick to read.
    BinFileRecorder,
    Format::Bincode
);
file_recorder!(
    /// Files in bincode, compressed with gzip, `.bin.gz`.
    BinGzFileRecorder,
    Format::BincodeGz
);
file_recorder!(
    /// Files in JSON, compressed with gzip, `.json.gz`.
    JsonGzFileRecorder,
    Format::JsonGz
);
file_recorder!(
    /// Files in indented JSON, `.json`: for people to read, large and slow.
    PrettyJsonFileRecorder,
    Format::PrettyJson
);
file_recorder!(
    /// Files in MessagePack with field names, compressed with gzip, `.mpk.gz`.
    NamedMpkGzFileRecorder,
    Format::NamedMpkGz
);
file_recorder!(
    /// Files in MessagePack with field names, `.mpk`.
    NamedMpkFileRecorder,
    Format::NamedMpk
);

/// The recorder to use when there is no reason for another.
pub type DefaultFileRecorder<S> = NamedMpkFileRecorder<S>;

/// The recorder to use when there is no reason for another, in full precision.
pub type DefaultRecorder = DefaultFileRecorder<FullPrecisionSettings>;

/// The default recorder in half precision: files of half the size.
pub type CompactRecorder = DefaultFileRecorder<HalfPrecisionSettings>;

/// Half precision, compressed; the smallest files.
pub type SensitiveCompactRecorder = BinGzFileRecorder<HalfPrecisionSettings>;

/// For training where the weights go to a device without an operating system.
pub type NoStdTrainingRecorder = BinFileRecorder<FullPrecisionSettings>;

/// For people to read.
pub type DebugRecordSettings = PrettyJsonFileRecorder<FullPrecisionSettings>;

/// The path of a record: `file` with the recorder's extension in place of its own.
pub(super) fn with_extension(mut file: PathBuf, extension: &str) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let has_it = name.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.'));
    if !has_it {
        file.set_extension(extension);
    }
    file
}

/// A new file for a record. One that is there is removed, not overwritten: maps of it stay valid.
fn create(path: &Path) -> Result<std::io::BufWriter<std::fs::File>, RecorderError> {
    let fail = |error: std::io::Error| RecorderError::Unknown(alloc::format!("{}: {error}", path.display()));
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(fail)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    std::fs::File::create(path).map(std::io::BufWriter::new).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_set_once() {
        let cases = [
            ("model", "mpk", "model.mpk"),
            ("model.mpk", "mpk", "model.mpk"),
            ("dir.x/model", "mpk.gz", "dir.x/model.mpk.gz"),
            ("model.mpk.gz", "mpk.gz", "model.mpk.gz"),
            ("model.bin", "mpk", "model.mpk"),
        ];
        for (given, extension, expected) in cases {
            assert_eq!(with_extension(given.into(), extension), PathBuf::from(expected));
        }
    }
}
