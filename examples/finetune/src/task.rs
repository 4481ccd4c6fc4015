//! The shifted task: digits that are inverted and turned.

use kiln::data::dataloader::batcher::Batcher;
use kiln::tensor::backend::Backend;
use kiln::tensor::{Int, Tensor, TensorData};

/// 65 bytes each: 8×8 pixels from 0 to 16, and the label.
const HELD_OUT: &[u8] = include_bytes!("../../../fixtures/digits/held_out.bin");
const SIDE: usize = 8;
const PIXELS: usize = SIDE * SIDE;
/// How far a digit is turned at most, in degrees.
const MOST: f32 = 60.0;
/// Of three images, one is for the test.
const PARTS: u64 = 3;

/// An image with its label.
#[derive(Clone, Debug)]
pub struct Digit {
    /// From 0 to 1, row by row.
    pixels: Vec<f32>,
    label: i64,
    /// Its place in the file.
    index: u64,
}

/// Images that a model takes at once.
#[derive(Clone, Debug)]
pub struct Batch<B: Backend> {
    /// `[batch, 1, 8, 8]`.
    pub images: Tensor<B, 4>,
    /// `[batch]`.
    pub labels: Tensor<B, 1, Int>,
}

/// The images.
pub fn digits() -> Vec<Digit> {
    let records = HELD_OUT.chunks_exact(PIXELS + 1).zip(0..);
    records
        .map(|(record, index)| Digit {
            pixels: record[..PIXELS].iter().map(|&pixel| f32::from(pixel) / 16.0).collect(),
            label: i64::from(record[PIXELS]),
            index,
        })
        .collect()
}

/// Images to train on, and images for the test.
pub fn split(digits: &[Digit]) -> (Vec<Digit>, Vec<Digit>) {
    digits.iter().cloned().partition(|digit| !digit.index.is_multiple_of(PARTS))
}

/// Images as they are.
pub fn upright_batch<B: Backend>(digits: &[Digit], device: &B::Device) -> Batch<B> {
    batch(digits, device, |digit| digit.pixels.clone())
}

/// Images of the test, each turned by an angle of its own.
pub fn test_batch<B: Backend>(digits: &[Digit], device: &B::Device) -> Batch<B> {
    shifted_batch(digits, 0, device)
}

/// Makes batches of turned images; another seed turns them otherwise.
#[derive(Clone, Debug)]
pub struct ToBatch {
    /// Of the angles.
    pub seed: u64,
}

impl<B: Backend> Batcher<B, Digit, Batch<B>> for ToBatch {
    fn batch(&self, items: Vec<Digit>, device: &B::Device) -> Batch<B> {
        shifted_batch(&items, self.seed, device)
    }
}

fn shifted_batch<B: Backend>(digits: &[Digit], seed: u64, device: &B::Device) -> Batch<B> {
    batch(digits, device, |digit| {
        let turned = turned(&digit.pixels, angle(seed, digit.index));
        turned.into_iter().map(|pixel| 1.0 - pixel).collect()
    })
}

fn batch<B: Backend>(digits: &[Digit], device: &B::Device, pixels: impl Fn(&Digit) -> Vec<f32>) -> Batch<B> {
    let count = digits.len();
    let images: Vec<f32> = digits.iter().flat_map(pixels).collect();
    let labels: Vec<i64> = digits.iter().map(|digit| digit.label).collect();
    Batch {
        images: Tensor::from_data(TensorData::new(images, [count, 1, SIDE, SIDE]), device),
        labels: Tensor::from_data(TensorData::new(labels, [count]), device),
    }
}

/// An angle in radians that follows from two numbers (SplitMix64).
fn angle(seed: u64, index: u64) -> f32 {
    let mut bits = (seed << 32 | index).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let unit = ((bits ^ bits >> 31) >> 40) as f32 / (1_u64 << 24) as f32;
    (unit * 2.0 - 1.0) * MOST.to_radians()
}

/// An image turned around its middle, between pixels linearly; what comes from outside is dark.
fn turned(pixels: &[f32], angle: f32) -> Vec<f32> {
    let (sine, cosine) = angle.sin_cos();
    let middle = (SIDE - 1) as f32 / 2.0;
    let at = |x: f32, y: f32| {
        let inside = |v: f32| (0.0..SIDE as f32).contains(&v);
        if inside(x) && inside(y) { pixels[y as usize * SIDE + x as usize] } else { 0.0 }
    };
    let pixel = |index: usize| {
        let (x, y) = ((index % SIDE) as f32 - middle, (index / SIDE) as f32 - middle);
        let (x, y) = (cosine * x + sine * y + middle, cosine * y - sine * x + middle);
        let (left, top) = (x.floor(), y.floor());
        let (right, down) = (x - left, y - top);
        let row = |y: f32| at(left, y) * (1.0 - right) + at(left + 1.0, y) * right;
        row(top) * (1.0 - down) + row(top + 1.0) * down
    };
    (0..PIXELS).map(pixel).collect()
}
