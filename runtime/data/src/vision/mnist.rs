//! Handwritten digits.

use super::idx::{self, Bytes, Fault};
use crate::cache;
use crate::dataset::Dataset;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const WIDTH: usize = 28;
const HEIGHT: usize = 28;

/// MNIST's files could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MnistError {
    /// A file is missing. Nothing is ever downloaded.
    #[error(
        "MNIST's {file} is missing. Put it, as it is or with .gz behind its name, into\n    {}\n(`{}` names another folder than its parent). The four files are at https://ossci-datasets.s3.amazonaws.com/mnist/, and Python's `torchvision.datasets.MNIST(folder, download=True)` brings them too (in MNIST/raw).",
        folder.display(), cache::VARIABLE
    )]
    Missing {
        /// The file's name.
        file: String,
        /// Where it should be.
        folder: PathBuf,
    },
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that is not one of MNIST's.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// An image of a digit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MnistItem {
    /// Rows of pixels, from 0 (black) to 255 (white).
    pub image: [[f32; WIDTH]; HEIGHT],
    /// The digit, 0 to 9.
    pub label: u8,
}

/// MNIST (LeCun et al. 1998): 60,000 images of handwritten digits to train with and 10,000 to test with; likewise the
/// datasets that took over its form (Fashion-MNIST, KMNIST).
///
/// The files are those that one has: nothing is downloaded.
#[derive(Clone, Debug)]
pub struct MnistDataset {
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Part {
    Train,
    Test,
}

impl Part {
    /// The beginning of its files' names.
    fn prefix(self) -> &'static str {
        match self {
            Part::Train => "train",
            Part::Test => "t10k",
        }
    }

    /// The folder in which Burn keeps it.
    fn folder(self) -> &'static str {
        match self {
            Part::Train => "train",
            Part::Test => "test",
        }
    }
}

impl MnistDataset {
    /// The images to train with, from the folder `mnist` among the local copies: `$KILN_DATASETS/mnist`, else
    /// `~/.cache/burn-dataset/mnist`.
    ///
    /// # Panics
    /// When a file is missing or broken; the message says where to put it. See [`MnistDataset::try_train`].
    pub fn train() -> Self {
        Self::try_train().unwrap_or_else(|error| panic!("MnistDataset: {error}"))
    }

    /// The images to test with, from the same folder as [`MnistDataset::train`].
    ///
    /// # Panics
    /// As there.
    pub fn test() -> Self {
        Self::try_test().unwrap_or_else(|error| panic!("MnistDataset: {error}"))
    }

    /// [`MnistDataset::train`] without panics.
    ///
    /// # Errors
    /// When a file is missing or broken.
    pub fn try_train() -> Result<Self, MnistError> {
        Self::train_from_dir(cache::folder().join("mnist"))
    }

    /// [`MnistDataset::test`] without panics.
    ///
    /// # Errors
    /// When a file is missing or broken.
    pub fn try_test() -> Result<Self, MnistError> {
        Self::test_from_dir(cache::folder().join("mnist"))
    }

    /// The images to train with, from a folder with `train-images-idx3-ubyte` and `train-labels-idx1-ubyte` in it or in
    /// its folder `train`, where Burn keeps them; each may have `.gz` behind its name.
    ///
    /// # Errors
    /// When a file is missing or broken.
    pub fn train_from_dir<P: AsRef<Path>>(folder: P) -> Result<Self, MnistError> {
        Self::read(folder.as_ref(), Part::Train)
    }

    /// The images to test with: `t10k-images-idx3-ubyte`, `t10k-labels-idx1-ubyte`, in the folder or its folder `test`.
    ///
    /// # Errors
    /// When a file is missing or broken.
    pub fn test_from_dir<P: AsRef<Path>>(folder: P) -> Result<Self, MnistError> {
        Self::read(folder.as_ref(), Part::Test)
    }

    fn read(folder: &Path, part: Part) -> Result<Self, MnistError> {
        let (_, images) = read(folder, part, "images-idx3-ubyte", |&[_, height, width]: &[usize; 3]| {
            if [height, width] == [HEIGHT, WIDTH] {
                return Ok(());
            }
            Err(format!("its images have {height} × {width} pixels instead of {HEIGHT} × {WIDTH}"))
        })?;
        let [count, ..] = images.sizes;
        let (path, labels) = read(folder, part, "labels-idx1-ubyte", |&[labelled]: &[usize; 1]| {
            if labelled == count {
                Ok(())
            } else {
                Err(format!("it has {labelled} labels for {count} images"))
            }
        })?;
        if let Some((index, label)) = labels.bytes.iter().enumerate().find(|&(_, &label)| label > 9) {
            let reason = format!("label {label} (of image {index}) is no digit");
            return Err(MnistError::Format { path, reason });
        }
        Ok(Self { pixels: images.bytes, labels: labels.bytes })
    }
}

/// Reads the file of a part, wherever it lies in a folder.
fn read<const D: usize>(
    folder: &Path,
    part: Part,
    name: &str,
    check: impl FnOnce(&[usize; D]) -> Result<(), String>,
) -> Result<(PathBuf, Bytes<D>), MnistError> {
    let file = format!("{}-{name}", part.prefix());
    let places = [folder.to_owned(), folder.join(part.folder())];
    let mut paths = places.iter().flat_map(|place| [place.join(&file), place.join(format!("{file}.gz"))]);
    let Some(path) = paths.find(|path| path.is_file()) else {
        return Err(MnistError::Missing { file, folder: folder.to_owned() });
    };
    match idx::read(&path, check) {
        Ok(bytes) => Ok((path, bytes)),
        Err(Fault::Io(source)) => Err(MnistError::Io { path, source }),
        Err(Fault::Format(reason)) => Err(MnistError::Format { path, reason }),
    }
}

impl Dataset<MnistItem> for MnistDataset {
    fn get(&self, index: usize) -> Option<MnistItem> {
        let label = *self.labels.get(index)?;
        let pixels = self.pixels.chunks_exact(WIDTH * HEIGHT).nth(index)?;
        let mut image = [[0.0; WIDTH]; HEIGHT];
        for (row, pixels) in image.iter_mut().zip(pixels.chunks_exact(WIDTH)) {
            for (value, &pixel) in row.iter_mut().zip(pixels) {
                *value = f32::from(pixel);
            }
        }
        Some(MnistItem { image, label })
    }

    fn len(&self) -> usize {
        self.labels.len()
    }
}
