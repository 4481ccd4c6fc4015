//! Runs of neighbouring items.

use crate::dataset::Dataset;
use std::marker::PhantomData;
use std::num::NonZeroUsize;

/// Runs of neighbouring items.
pub trait Window<I> {
    /// `size` items from one on; nothing when there are not so many.
    fn window(&self, current: usize, size: NonZeroUsize) -> Option<Vec<I>>;
}

impl<I, D: Dataset<I> + ?Sized> Window<I> for D {
    fn window(&self, current: usize, size: NonZeroUsize) -> Option<Vec<I>> {
        let end = current.checked_add(size.get()).filter(|&end| end <= self.len())?;
        (current..end).map(|index| self.get(index)).collect()
    }
}

/// Every run of a size.
pub trait Windows<I> {
    /// Goes through every run of `size` items, each beginning one later than the one before.
    ///
    /// # Panics
    /// For a size of 0.
    fn windows(&self, size: usize) -> WindowsIterator<'_, I>;
}

impl<I, D: Dataset<I>> Windows<I> for D {
    fn windows(&self, size: usize) -> WindowsIterator<'_, I> {
        WindowsIterator { dataset: self, size: not_zero(size), current: 0 }
    }
}

fn not_zero(size: usize) -> NonZeroUsize {
    match NonZeroUsize::new(size) {
        Some(size) => size,
        None => panic!("a window of 0 items"),
    }
}

/// Goes through every run of a size.
pub struct WindowsIterator<'a, I> {
    dataset: &'a dyn Dataset<I>,
    size: NonZeroUsize,
    current: usize,
}

impl<I> Iterator for WindowsIterator<'_, I> {
    type Item = Vec<I>;

    fn next(&mut self) -> Option<Vec<I>> {
        let window = self.dataset.window(self.current, self.size)?;
        self.current += 1;
        Some(window)
    }
}

/// Every run of a size, as a dataset.
pub struct WindowsDataset<D, I> {
    dataset: D,
    size: NonZeroUsize,
    item: PhantomData<fn() -> I>,
}

impl<D: Dataset<I>, I> WindowsDataset<D, I> {
    /// Runs of `size` items.
    ///
    /// # Panics
    /// For a size of 0.
    pub fn new(dataset: D, size: usize) -> Self {
        Self { dataset, size: not_zero(size), item: PhantomData }
    }
}

impl<D: Dataset<I>, I> Dataset<Vec<I>> for WindowsDataset<D, I> {
    fn get(&self, index: usize) -> Option<Vec<I>> {
        self.dataset.window(index, self.size)
    }

    fn len(&self) -> usize {
        (self.dataset.len() + 1).saturating_sub(self.size.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::InMemDataset;

    #[test]
    fn every_run_of_a_size() {
        let dataset = InMemDataset::new(vec![1, 2, 3, 4]);
        assert_eq!(dataset.windows(3).collect::<Vec<_>>(), [[1, 2, 3], [2, 3, 4]]);
        let windows = WindowsDataset::new(dataset, 3);
        assert_eq!((windows.len(), windows.get(1), windows.get(2)), (2, Some(vec![2, 3, 4]), None));
        assert_eq!(WindowsDataset::new(InMemDataset::new(vec![1]), 3).len(), 0);
    }
}
