//! Datasets of images.

mod cifar;
mod idx;
mod image_folder;
mod mnist;

pub use cifar::{CifarDataset, CifarError, CifarType};
pub use image_folder::{
    Annotation, BoundingBox, ImageDatasetItem, ImageFolderDataset, ImageLoaderError, PixelDepth,
    SegmentationMask,
};
pub use mnist::{MnistDataset, MnistError, MnistItem};
