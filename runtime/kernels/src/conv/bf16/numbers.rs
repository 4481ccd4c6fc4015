//! Numbers of images: as they are, or rounded to bf16.

use crate::gemm::{Bf16Rows, copy_rows, f32_of, round_rows, round_slice};
use crate::threads::parallel_chunks;
use core::ops::Range;
use kiln_types::bf16;

/// What is wrong with planes elsewhere than where [`ConvShape::takes_planes`](crate::conv::ConvShape::takes_planes).
const PLANES: &str = "images of this convolution have their channels last";

/// Numbers that a thread rounds or widens at a time.
const PIECE: usize = 4096;

/// Numbers of an image.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// As they are.
    Single(&'a [f32]),
    /// Rounded before.
    Rounded(&'a [bf16]),
    /// As they are, with the channels first: `[batch, in, spatial…]`. For what [`ConvShape::takes_planes`](crate::conv::ConvShape::takes_planes).
    Planes(&'a [f32]),
}

/// Where numbers of an image go.
#[derive(Debug)]
pub enum NumbersMut<'a> {
    /// As they are.
    Single(&'a mut [f32]),
    /// Rounded.
    Rounded(&'a mut [bf16]),
}

impl<'a> Numbers<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Single(x) | Self::Planes(x) => x.len(),
            Self::Rounded(x) => x.len(),
        }
    }

    /// Rows of a left operand that start at an element, `step` elements apart.
    pub(super) fn rows(self, start: usize, step: usize) -> Bf16Rows<'a> {
        match self {
            Self::Single(x) => Bf16Rows::Single(&x[start..], step),
            Self::Rounded(x) => Bf16Rows::Rounded(bytemuck::cast_slice(&x[start..]), step),
            Self::Planes(_) => panic!("{PLANES}"),
        }
    }

    /// Writes `n` rounded elements of each of `rows` rows and zeros behind them, as [`round_rows`] does.
    ///
    /// # Safety
    /// The rows lie inside, from the element `start` on and `step` apart, and `to` has room for them.
    pub(super) unsafe fn write_rows(
        self,
        rows: usize,
        n: usize,
        (start, step): (usize, usize),
        to: (*mut u16, usize),
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Single(x) => round_rows(rows, n, (x.as_ptr().add(start), step), to),
                Self::Rounded(x) => copy_rows(rows, n, (x.as_ptr().cast::<u16>().add(start), step), to),
                Self::Planes(_) => panic!("{PLANES}"),
            }
        }
    }

    /// Writes some pixels of an image of so many, rounded; each has `channels` elements.
    pub(super) fn write(
        self,
        image: usize,
        size: usize,
        pixels: Range<usize>,
        channels: usize,
        to: &mut [u16],
    ) {
        let start = (image * size + pixels.start) * channels;
        match self {
            Self::Single(x) => round_slice(&x[start..start + to.len()], to),
            Self::Rounded(x) => to.copy_from_slice(bytemuck::cast_slice(&x[start..start + to.len()])),
            Self::Planes(x) => {
                let plane =
                    |channel: usize| &x[(image * channels + channel) * size + pixels.start..][..pixels.len()];
                match channels {
                    2 => interleave(core::array::from_fn::<_, 2, _>(plane), to),
                    3 => interleave(core::array::from_fn::<_, 3, _>(plane), to),
                    4 => interleave(core::array::from_fn::<_, 4, _>(plane), to),
                    _ => panic!("{PLANES}"),
                }
            }
        }
    }
}

/// Rounds planes of some pixels into pixels.
fn interleave<const CHANNELS: usize>(planes: [&[f32]; CHANNELS], to: &mut [u16]) {
    const PIXELS: usize = 128;
    for (part, to) in to.chunks_mut(PIXELS * CHANNELS).enumerate() {
        let count = to.len() / CHANNELS;
        let mut rounded = [[0; PIXELS]; CHANNELS];
        for (plane, rounded) in planes.iter().zip(&mut rounded) {
            round_slice(&plane[part * PIXELS..][..count], &mut rounded[..count]);
        }
        for (i, pixel) in to.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate() {
            *pixel = core::array::from_fn(|channel| rounded[channel][i]);
        }
    }
}

impl NumbersMut<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Single(x) => x.len(),
            Self::Rounded(x) => x.len(),
        }
    }
}

/// Rounds numbers to the nearest bf16, halves to even, as convolutions do.
///
/// # Panics
/// When there is not as much room as there are numbers.
pub fn round(from: &[f32], to: &mut [bf16]) {
    assert_eq!(from.len(), to.len(), "as many numbers");
    let to: &mut [u16] = bytemuck::cast_slice_mut(to);
    parallel_chunks(to, PIECE, PIECE / 16, |i, to| round_slice(&from[i * PIECE..][..to.len()], to));
}

/// Rounded numbers as f32.
///
/// # Panics
/// When there is not as much room as there are numbers.
pub fn widen(from: &[bf16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "as many numbers");
    parallel_chunks(to, PIECE, PIECE / 16, |i, to| {
        from[i * PIECE..].iter().zip(to).for_each(|(from, to)| *to = f32_of(from.to_bits()));
    });
}
