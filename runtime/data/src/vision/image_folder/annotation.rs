//! An image and what is known of it.

use serde::{Deserialize, Serialize};

/// One number of an image: a channel of a pixel, in the depth that the file has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PixelDepth {
    /// Of 0 to 255.
    U8(u8),
    /// Of 0 to 65535.
    U16(u16),
    /// Of 0 to 1.
    F32(f32),
}

macro_rules! try_from_depth {
    ($($number:ty: $depth:ident, $message:literal;)*) => {
        $(
            impl TryFrom<PixelDepth> for $number {
                type Error = &'static str;

                fn try_from(value: PixelDepth) -> Result<Self, Self::Error> {
                    match value {
                        PixelDepth::$depth(value) => Ok(value),
                        _ => Err($message),
                    }
                }
            }
        )*
    };
}

try_from_depth! {
    u8: U8, "the pixel's depth is not u8";
    u16: U16, "the pixel's depth is not u16";
    f32: F32, "the pixel's depth is not f32";
}

/// What is known of an image, by its task.
#[derive(Clone, Debug, PartialEq)]
pub enum Annotation {
    /// The index of its class.
    Label(usize),
    /// The indices of its classes.
    MultiLabel(Vec<usize>),
    /// The objects in it.
    BoundingBoxes(Vec<BoundingBox>),
    /// A class for each pixel.
    SegmentationMask(SegmentationMask),
}

/// A class for each pixel.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentationMask {
    /// Row by row, as the file has them: mostly indices of classes, also other numbers that mean none of them (often 255).
    pub mask: Vec<usize>,
}

/// An object in an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundingBox {
    /// The least x and y, the width and the height, in pixels.
    pub coords: [f32; 4],
    /// The index of its class.
    pub label: usize,
}

/// An image and what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageDatasetItem {
    /// Row by row, pixel by pixel, with as many channels as the file has.
    pub image: Vec<PixelDepth>,
    /// Pixels in a row.
    pub image_width: usize,
    /// Rows.
    pub image_height: usize,
    /// What is known of it.
    pub annotation: Annotation,
    /// The image's file.
    pub image_path: String,
}
