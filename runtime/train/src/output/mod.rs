//! What comes of a step, for the usual tasks.

mod classification;
mod multi_label;
mod regression;

pub use classification::ClassificationOutput;
pub use multi_label::MultiLabelClassificationOutput;
pub use regression::RegressionOutput;

use kiln_core::Tensor;
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{TensorData, TensorKind, Transaction};
use kiln_ndarray::NdArray;

/// Reads the tensors of an item, waiting once.
///
/// # Panics
/// When the device failed.
fn read<B: Backend, const N: usize>(tensors: Transaction<B>) -> [TensorData; N] {
    match <[TensorData; N]>::try_from(tensors.execute()) {
        Ok(data) => data,
        Err(data) => unreachable!("{N} tensors were registered, {} were read", data.len()),
    }
}

/// A tensor of the backend that metrics are computed on.
fn on_host<const D: usize, K: TensorKind<NdArray>>(data: TensorData) -> Tensor<NdArray, D, K> {
    Tensor::from_data(data, &Default::default())
}
