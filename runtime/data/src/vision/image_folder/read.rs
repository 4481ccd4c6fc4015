//! Reading an image.

use super::{ImageLoaderError, PixelDepth, SegmentationMask};
use image::{DynamicImage, GenericImageView, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::fs;
use std::path::Path;

/// An image as it lies in its file.
pub(super) struct Picture {
    pub(super) pixels: Vec<PixelDepth>,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The most that deflate compresses; JPEG compresses less.
const RATIO: u64 = 1032;
/// The bytes that a pixel of one bit becomes eight times over: one of a palette becomes four.
const EXPANSION: u64 = 8 * 4;
const LARGEST: u64 = 512 << 20;
/// Each takes 8 bytes as a [`PixelDepth`], or as a class of a mask: RGB images may have 33 million pixels.
const MOST_SAMPLES: u64 = 96 << 20;

fn decode(path: &Path) -> Result<DynamicImage, ImageLoaderError> {
    let of_file = |source| ImageLoaderError::Io { path: path.to_owned(), source };
    let broken = |reason: String| ImageLoaderError::Image { path: path.to_owned(), reason };
    let size = fs::metadata(path).map_err(of_file)?.len();
    // What the file is counts, not what its name says.
    let mut reader = ImageReader::open(path).and_then(ImageReader::with_guessed_format).map_err(of_file)?;
    if !matches!(reader.format(), Some(ImageFormat::Png | ImageFormat::Jpeg)) {
        return Err(broken("it is neither a PNG nor a JPEG file".into()));
    }
    let mut limits = Limits::default();
    limits.max_alloc = Some(size.saturating_mul(RATIO * EXPANSION).saturating_add(1 << 20).min(LARGEST));
    reader.limits(limits.clone());
    let unreadable = |error| broken(format!("the image cannot be read: {error}"));
    let mut decoder = reader.into_decoder().map_err(unreadable)?;
    let ((width, height), channels) = (decoder.dimensions(), decoder.color_type().channel_count());
    if u64::from(width) * u64::from(height) > MOST_SAMPLES / u64::from(channels) {
        return Err(broken(format!(
            "the image has {width} × {height} pixels of {channels} channels, and {MOST_SAMPLES} numbers are read at most"
        )));
    }
    limits.reserve(decoder.total_bytes()).and_then(|()| decoder.set_limits(limits)).map_err(unreadable)?;
    DynamicImage::from_decoder(decoder).map_err(unreadable)
}

/// An image with the channels and the depth that its file has.
pub(super) fn picture(path: &Path) -> Result<Picture, ImageLoaderError> {
    let image = decode(path)?;
    let (width, height) = image.dimensions();
    let bytes = |values: Vec<u8>| values.into_iter().map(PixelDepth::U8).collect();
    let words = |values: Vec<u16>| values.into_iter().map(PixelDepth::U16).collect();
    let floats = |values: Vec<f32>| values.into_iter().map(PixelDepth::F32).collect();
    let pixels = match image {
        DynamicImage::ImageLuma8(image) => bytes(image.into_raw()),
        DynamicImage::ImageLumaA8(image) => bytes(image.into_raw()),
        DynamicImage::ImageRgb8(image) => bytes(image.into_raw()),
        DynamicImage::ImageRgba8(image) => bytes(image.into_raw()),
        DynamicImage::ImageLuma16(image) => words(image.into_raw()),
        DynamicImage::ImageLumaA16(image) => words(image.into_raw()),
        DynamicImage::ImageRgb16(image) => words(image.into_raw()),
        DynamicImage::ImageRgba16(image) => words(image.into_raw()),
        DynamicImage::ImageRgb32F(image) => floats(image.into_raw()),
        DynamicImage::ImageRgba32F(image) => floats(image.into_raw()),
        other => {
            let reason = format!("pixels of {:?} are not read", other.color());
            return Err(ImageLoaderError::Image { path: path.to_owned(), reason });
        }
    };
    Ok(Picture { pixels, width: width as usize, height: height as usize })
}

/// The mask of an image: one number for each of its pixels.
pub(super) fn mask(path: &Path, of: &Picture) -> Result<SegmentationMask, ImageLoaderError> {
    let wrong = |reason: String| ImageLoaderError::Mask { path: path.to_owned(), reason };
    let image = decode(path)?;
    let (width, height) = image.dimensions();
    if [width as usize, height as usize] != [of.width, of.height] {
        let Picture { width: w, height: h, .. } = of;
        return Err(wrong(format!("the mask has {width} × {height} pixels, its image {w} × {h}")));
    }
    let mask = match image {
        DynamicImage::ImageLuma8(image) => image.into_raw().into_iter().map(usize::from).collect(),
        DynamicImage::ImageLuma16(image) => image.into_raw().into_iter().map(usize::from).collect(),
        other => {
            let reason = format!(
                "a mask is a grayscale image, whose values are classes; this one has {:?}",
                other.color()
            );
            return Err(wrong(reason));
        }
    };
    Ok(SegmentationMask { mask })
}
