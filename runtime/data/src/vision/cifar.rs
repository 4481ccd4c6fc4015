//! Small images of things.

use super::{ImageFolderDataset, ImageLoaderError};
use crate::cache;
use std::path::{Path, PathBuf};

/// Which of both datasets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CifarType {
    /// 10 classes.
    Cifar10,
    /// 100 classes.
    Cifar100,
}

impl CifarType {
    /// The folder in which Burn keeps it.
    fn folder(self) -> &'static str {
        match self {
            Self::Cifar10 => "cifar10",
            Self::Cifar100 => "cifar100",
        }
    }

    /// Where its archive can be had.
    fn source(self) -> &'static str {
        match self {
            Self::Cifar10 => "https://s3.amazonaws.com/fast-ai-sample/cifar10.tgz",
            Self::Cifar100 => "https://s3.amazonaws.com/fast-ai-imageclas/cifar100.tgz",
        }
    }
}

/// CIFAR's images could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CifarError {
    /// The folders are missing. Nothing is ever downloaded.
    #[error(
        "{} has no folders `train` and `test`. Unpack {source_url} there, so that both have a folder for each class (`{}` names another \
         folder than its parent).",
        folder.display(), cache::VARIABLE
    )]
    Missing {
        /// Where they should be.
        folder: PathBuf,
        /// Where its archive can be had.
        source_url: &'static str,
    },
    /// It has no images, or cannot be read.
    #[error(transparent)]
    Images(#[from] ImageLoaderError),
}

/// CIFAR-10 or CIFAR-100 (Krizhevsky 2009): images of 32 × 32 pixels in 10 or 100 classes, 50,000 to train with and 10,000 to test
/// with, as files in folders of their classes.
///
/// The files are those that one has: nothing is downloaded.
#[derive(Clone, Debug)]
pub struct CifarDataset {
    folder: PathBuf,
}

impl CifarDataset {
    /// The one in the folder `cifar10` or `cifar100` among the local copies: in `$KILN_DATASETS`, else `~/.cache/burn-dataset`.
    ///
    /// # Panics
    /// When the folder is missing; the message says what belongs there. See [`CifarDataset::from_dir`].
    pub fn new(cifar_type: CifarType) -> Self {
        Self::from_dir(cache::folder().join(cifar_type.folder()), cifar_type)
            .unwrap_or_else(|error| panic!("CifarDataset: {error}"))
    }

    /// The one in a folder with the folders `train` and `test`.
    ///
    /// # Errors
    /// When one of these is missing.
    pub fn from_dir(folder: impl AsRef<Path>, cifar_type: CifarType) -> Result<Self, CifarError> {
        let folder = folder.as_ref().to_owned();
        match ["train", "test"].iter().all(|part| folder.join(part).is_dir()) {
            true => Ok(Self { folder }),
            false => Err(CifarError::Missing { folder, source_url: cifar_type.source() }),
        }
    }

    /// The images to train with.
    ///
    /// # Panics
    /// When there are none, or the folder cannot be read. See [`CifarDataset::try_train`].
    pub fn train(&self) -> ImageFolderDataset {
        self.try_train().unwrap_or_else(|error| panic!("CifarDataset: {error}"))
    }

    /// The images to test with.
    ///
    /// # Panics
    /// As [`CifarDataset::train`].
    pub fn test(&self) -> ImageFolderDataset {
        self.try_test().unwrap_or_else(|error| panic!("CifarDataset: {error}"))
    }

    /// [`CifarDataset::train`] without panics.
    ///
    /// # Errors
    /// When there are no images, or the folder cannot be read.
    pub fn try_train(&self) -> Result<ImageFolderDataset, CifarError> {
        Ok(ImageFolderDataset::new_classification(self.folder.join("train"))?)
    }

    /// [`CifarDataset::test`] without panics.
    ///
    /// # Errors
    /// As [`CifarDataset::try_train`].
    pub fn try_test(&self) -> Result<ImageFolderDataset, CifarError> {
        Ok(ImageFolderDataset::new_classification(self.folder.join("test"))?)
    }
}
