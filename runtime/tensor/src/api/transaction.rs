//! Reading several tensors back together.

use super::base::Tensor;
use super::kind::TensorKind;
use crate::TensorData;
use crate::backend::{Backend, ExecutionError};
use crate::check;
use alloc::vec::Vec;

/// Reads several tensors back: `Transaction::default().register(a).register(b).execute()`.
#[derive(Clone, Debug)]
pub struct Transaction<B: Backend> {
    tensors: Vec<B::Primitive>,
}

impl<B: Backend> Default for Transaction<B> {
    fn default() -> Self {
        Self { tensors: Vec::new() }
    }
}

impl<B: Backend> Transaction<B> {
    /// Adds a tensor to be read.
    pub fn register<const D: usize, K: TensorKind<B>>(mut self, tensor: Tensor<B, D, K>) -> Self {
        self.tensors.push(tensor.into_backend());
        self
    }

    /// Reads all, in the order in which they were added.
    ///
    /// # Panics
    /// When the device failed.
    pub fn execute(self) -> Vec<TensorData> {
        check::ran("transaction", self.try_execute())
    }

    /// Reads all, in the order in which they were added.
    ///
    /// # Errors
    /// When the device failed.
    pub fn try_execute(self) -> Result<Vec<TensorData>, ExecutionError> {
        B::into_data_all(self.tensors)
    }

    /// Reads all without blocking the thread, in the order in which they were added.
    ///
    /// # Errors
    /// When the device failed.
    pub async fn execute_async(self) -> Result<Vec<TensorData>, ExecutionError> {
        B::into_data_all_async(self.tensors).await
    }
}
