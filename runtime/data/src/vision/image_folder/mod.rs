//! Images in files, with what is known of each.

mod annotation;
mod coco;
mod folder;
mod read;

pub use annotation::{Annotation, BoundingBox, ImageDatasetItem, PixelDepth, SegmentationMask};
pub use folder::ImageFolderDataset;

use std::io;
use std::path::PathBuf;

/// A dataset of images could not be made, or an image of it not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageLoaderError {
    /// A file or folder that is missing or cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder without images.
    #[error("{}: no folder in it has an image ({}); an image's folder is its class", root.display(), extensions.join(", "))]
    NoImages {
        /// The folder.
        root: PathBuf,
        /// The extensions that were looked for.
        extensions: Vec<String>,
    },
    /// A file whose extension is of no format that is read.
    #[error("{}: images are read from files whose names end in .png, .jpg or .jpeg", .0.display())]
    Extension(PathBuf),
    /// A class whose name is no text.
    #[error("{}: a class's folder needs a name in Unicode", .0.display())]
    ClassName(PathBuf),
    /// A class that is listed twice.
    #[error("the class {0:?} is listed twice")]
    DuplicateClass(String),
    /// An image of a class that is not listed.
    #[error("{}: its label {label:?} is none of the classes {classes:?}", path.display())]
    UnknownLabel {
        /// The image.
        path: PathBuf,
        /// Its label.
        label: String,
        /// The classes.
        classes: Vec<String>,
    },
    /// A file that is no image, or a broken one.
    #[error("{}: {reason}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A mask that does not fit its image.
    #[error("{}: {reason}", path.display())]
    Mask {
        /// The mask's file.
        path: PathBuf,
        /// What is wrong with it, and what it should be.
        reason: String,
    },
    /// A file of annotations that does not say what it should.
    #[error("{}: {reason}", path.display())]
    Annotations {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}
