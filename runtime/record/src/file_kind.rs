//! What a file is that its reader did not expect: most are downloads that went wrong, or files of other programs.

/// What the beginning of a file says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// No bytes at all.
    Empty,
    /// What Git LFS has in place of the file.
    LfsPointer,
    /// HTML, or the XML of a server's refusal.
    WebPage,
    /// JSON.
    Json,
    /// Compressed with gzip.
    Gzip,
    /// Compressed with bzip2.
    Bzip2,
    /// Compressed with xz.
    Xz,
    /// Compressed with zstd.
    Zstd,
    /// An archive of 7z.
    SevenZip,
    /// HDF5, as Keras before 3 writes it.
    Hdf5,
    /// GGUF, as llama.cpp reads it.
    Gguf,
    /// TensorFlow Lite's FlatBuffer.
    TfLite,
    /// An array of NumPy.
    NumpyArray,
    /// An ONNX model.
    Onnx,
    /// Safetensors.
    Safetensors,
    /// A zip archive; PyTorch's checkpoints are some.
    Zip,
    /// A pickle; PyTorch's older checkpoints begin with one.
    Pickle,
    /// Zeros, where a file would begin with something.
    Zeros,
}

impl FileKind {
    /// The kind, where the beginning tells it.
    #[must_use]
    pub fn of(file: &[u8]) -> Option<Self> {
        let head = file.get(..1024).unwrap_or(file);
        let text = head.trim_ascii_start();
        let starts =
            |mark: &[u8]| text.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark));
        let kind = match head {
            [] => Self::Empty,
            _ if head.starts_with(b"version https://git-lfs") => Self::LfsPointer,
            _ if starts(b"<!doctype") || starts(b"<html") || starts(b"<?xml") => Self::WebPage,
            _ if starts(b"{") || starts(b"[") => Self::Json,
            [0x1f, 0x8b, ..] => Self::Gzip,
            [b'B', b'Z', b'h', ..] => Self::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [b'7', b'z', 0xbc, 0xaf, ..] => Self::SevenZip,
            [0x89, b'H', b'D', b'F', ..] => Self::Hdf5,
            [b'G', b'G', b'U', b'F', ..] => Self::Gguf,
            [_, _, _, _, b'T', b'F', b'L', b'3', ..] => Self::TfLite,
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Self::NumpyArray,
            [b'P', b'K', 3, 4, ..] => Self::Zip,
            // The length of a header, far below 4 GB, then the header.
            [_, _, _, _, 0, 0, 0, 0, b'{', ..] => Self::Safetensors,
            // The number of a version, then any other field of the message.
            [0x08, 1..=0x20, 0x12 | 0x1a | 0x22 | 0x28 | 0x32 | 0x3a | 0x42, ..] => Self::Onnx,
            // A pickle begins with its protocol.
            [0x80, 0..=5, ..] => Self::Pickle,
            _ if head.iter().all(|byte| *byte == 0) => Self::Zeros,
            _ => return None,
        };
        Some(kind)
    }

    /// What it is and, where that is the same for every reader, what to do about it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Empty => "the file is empty",
            Self::LfsPointer => {
                "it is a pointer of Git LFS, not the file itself; fetch that with `git lfs pull`"
            }
            Self::WebPage => {
                "it is a web page, perhaps in place of a download that was refused; fetch the file again"
            }
            Self::Json => "it is JSON",
            Self::Gzip => "it is compressed with gzip; unpack it first",
            Self::Bzip2 => "it is compressed with bzip2; unpack it first",
            Self::Xz => "it is compressed with xz; unpack it first",
            Self::Zstd => "it is compressed with zstd; unpack it first",
            Self::SevenZip => "it is a 7z archive; unpack it first",
            Self::Hdf5 => "it is an HDF5 file, as Keras writes them",
            Self::Gguf => "it is a GGUF file",
            Self::TfLite => "it is a model of TensorFlow Lite",
            Self::NumpyArray => "it is an array of NumPy",
            Self::Onnx => "it is an ONNX model",
            Self::Safetensors => "it is a Safetensors file",
            Self::Zip => "it is a zip archive",
            Self::Pickle => "it is a pickle",
            Self::Zeros => "it begins with zeros; perhaps the download was never finished, fetch it again",
        }
    }
}
