//! Several datasets one after the other.

use crate::dataset::Dataset;

/// The items of several datasets, one dataset after the other.
pub struct ComposedDataset<D> {
    datasets: Vec<D>,
}

impl<D> ComposedDataset<D> {
    /// Of these datasets.
    pub fn new(datasets: Vec<D>) -> Self {
        Self { datasets }
    }
}

impl<D: Dataset<I>, I> Dataset<I> for ComposedDataset<D> {
    fn get(&self, mut index: usize) -> Option<I> {
        for dataset in &self.datasets {
            if index < dataset.len() {
                return dataset.get(index);
            }
            index -= dataset.len();
        }
        None
    }

    fn len(&self) -> usize {
        self.datasets.iter().map(Dataset::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::InMemDataset;

    #[test]
    fn one_after_the_other() {
        let part = |items: &[i32]| InMemDataset::new(items.to_vec());
        let dataset = ComposedDataset::new(vec![part(&[1, 2]), part(&[]), part(&[3])]);
        assert_eq!((dataset.len(), dataset.iter().collect::<Vec<_>>()), (3, vec![1, 2, 3]));
    }
}
