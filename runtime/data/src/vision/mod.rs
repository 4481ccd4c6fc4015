//! Datasets of images.

mod idx;
mod image_folder;
mod mnist;

pub use image_folder::{
    Annotation, BoundingBox, ImageDatasetItem, ImageFolderDataset, ImageLoaderError, PixelDepth,
    SegmentationMask,
};
pub use mnist::{MnistDataset, MnistError, MnistItem};
