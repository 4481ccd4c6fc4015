//! Recorders to and from files.

use super::{FullPrecisionSettings, HalfPrecisionSettings, PrecisionSettings, Recorder, RecorderError};
use crate::tensor::backend::Backend;
use alloc::string::String;
use core::marker::PhantomData;
use kiln_record::Format;
use serde::{Serialize, de::DeserializeOwned};
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
                let path = with_extension(file, $format.extension());
                make_folder(&path)?;
                Ok(kiln_record::replace_file(&path, |writer| $format.write(writer, &item))?)
            }

            fn load_item<I: DeserializeOwned>(&self, file: &mut PathBuf) -> Result<I, RecorderError> {
                let path = with_extension(file.clone(), $format.extension());
                let bytes = kiln_record::map_file(&path)?;
                $format.read(&bytes).map_err(|error| RecorderError::in_file(error, &path))
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
pub(crate) fn with_extension(mut file: PathBuf, extension: &str) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let has_it = name.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.'));
    if !has_it {
        file.set_extension(extension);
    }
    file
}

/// The folder of a record that is to be written.
fn make_folder(path: &Path) -> Result<(), RecorderError> {
    let fail = |error| RecorderError::Unknown(alloc::format!("{}: {error}", path.display()));
    path.parent().map_or(Ok(()), |parent| std::fs::create_dir_all(parent).map_err(fail))
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
