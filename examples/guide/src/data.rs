//! The digits, and batches of them.

use kiln::data::dataloader::batcher::Batcher;
use kiln::data::dataset::transform::{Mapper, MapperDataset, PartialDataset};
use kiln::data::dataset::{Dataset, InMemDataset};
use kiln::prelude::*;

/// 360 of scikit-learn's handwritten digits: 65 bytes each, 8×8 pixels from 0 to 16 and the label.
const DIGITS: &[u8] = include_bytes!("../../../fixtures/digits/held_out.bin");
const SIZE: usize = 8;
/// Digits to train on; the others are for testing.
const TRAINING: usize = 288;

/// An image with its label.
#[derive(Clone, Debug)]
pub struct DigitItem {
    /// Pixels, from 0 to 16.
    pub image: [[f32; SIZE]; SIZE],
    /// The digit.
    pub label: u8,
}

/// An image as it lies in the file.
type RawDigit = [u8; SIZE * SIZE + 1];

struct BytesToImage;

impl Mapper<RawDigit, DigitItem> for BytesToImage {
    fn map(&self, item: &RawDigit) -> DigitItem {
        let pixel = |row: usize, column: usize| f32::from(item[row * SIZE + column]);
        let image = std::array::from_fn(|row| std::array::from_fn(|column| pixel(row, column)));
        DigitItem { image, label: item[SIZE * SIZE] }
    }
}

type MappedDigits = MapperDataset<InMemDataset<RawDigit>, BytesToImage, RawDigit>;

/// A part of the digits.
pub struct DigitsDataset {
    dataset: PartialDataset<MappedDigits, DigitItem>,
}

impl DigitsDataset {
    /// What to train on.
    pub fn train() -> Self {
        Self::new(0, TRAINING)
    }

    /// What to measure with.
    pub fn test() -> Self {
        Self::new(TRAINING, usize::MAX)
    }

    fn new(start: usize, end: usize) -> Self {
        let (digits, _) = DIGITS.as_chunks();
        let mapped = MapperDataset::new(InMemDataset::new(digits.to_vec()), BytesToImage);
        Self { dataset: PartialDataset::new(mapped, start, end) }
    }
}

impl Dataset<DigitItem> for DigitsDataset {
    fn get(&self, index: usize) -> Option<DigitItem> {
        self.dataset.get(index)
    }

    fn len(&self) -> usize {
        self.dataset.len()
    }
}

/// Makes batches of digits.
#[derive(Clone, Default)]
pub struct DigitsBatcher {}

/// Digits that go through the model together.
#[derive(Clone, Debug)]
pub struct DigitsBatch<B: Backend> {
    /// `[batch, height, width]`, of mean 0 and deviation 1.
    pub images: Tensor<B, 3>,
    /// `[batch]`.
    pub targets: Tensor<B, 1, Int>,
}

impl<B: Backend> Batcher<B, DigitItem, DigitsBatch<B>> for DigitsBatcher {
    fn batch(&self, items: Vec<DigitItem>, device: &B::Device) -> DigitsBatch<B> {
        let images = items
            .iter()
            .map(|item| TensorData::from(item.image).convert::<B::FloatElem>())
            .map(|data| Tensor::<B, 2>::from_data(data, device))
            .map(|tensor| tensor.reshape([1, SIZE, SIZE]))
            // The mean and the deviation of all pixels of the dataset.
            .map(|tensor| (tensor - 4.88) / 6.02)
            .collect();
        let targets = items
            .iter()
            .map(|item| Tensor::<B, 1, Int>::from_data([i64::from(item.label).elem::<B::IntElem>()], device))
            .collect();
        DigitsBatch { images: Tensor::cat(images, 0), targets: Tensor::cat(targets, 0) }
    }
}
