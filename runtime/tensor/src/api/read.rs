//! Small tensors as host integers: sizes and conditions that depend on data.

use super::base::Tensor;
use super::kind::TensorKind;
use crate::TensorData;
use crate::backend::Backend;
use crate::check;

impl<B: Backend, const D: usize, K: TensorKind<B>> Tensor<B, D, K> {
    /// Reads `N` integers (or bools as 0 and 1) back, in row-major order.
    ///
    /// # Panics
    /// When the tensor has another number of elements, or the device fails.
    pub fn into_integers<const N: usize>(self) -> [i64; N] {
        integers(&self.into_data())
    }

    /// [`Tensor::into_integers`] without blocking the thread.
    ///
    /// # Panics
    /// When the tensor has another number of elements, or the device fails.
    pub async fn into_integers_async<const N: usize>(self) -> [i64; N] {
        integers(&check::ran("into_integers", self.into_data_async().await))
    }
}

fn integers<const N: usize>(data: &TensorData) -> [i64; N] {
    let mut elements = data.iter::<i64>();
    let integers = core::array::from_fn(|_| elements.next());
    match (integers.iter().all(Option::is_some), elements.next()) {
        (true, None) => integers.map(Option::unwrap_or_default),
        _ => panic!("into_integers: a tensor of shape {:?} has not {N} elements", data.shape),
    }
}
