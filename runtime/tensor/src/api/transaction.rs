//! Reading several tensors back together.

use super::base::Tensor;
use super::kind::TensorKind;
use crate::TensorData;
use crate::backend::{Backend, ExecutionError};
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
        self.tensors.push(tensor.into_primitive());
        self
    }

    /// Reads all, in the order in which they were added.
    ///
    /// # Panics
    /// When the device failed.
    pub fn execute(self) -> Vec<TensorData> {
        match self.try_execute() {
            Ok(data) => data,
            Err(error) => crate::check::fail("transaction", format_args!("{error}")),
        }
    }

    /// Reads all, in the order in which they were added.
    ///
    /// # Errors
    /// When the device failed.
    pub fn try_execute(self) -> Result<Vec<TensorData>, ExecutionError> {
        self.tensors.into_iter().map(B::into_data).collect()
    }

    /// Reads all without blocking the thread, in the order in which they were added.
    ///
    /// # Errors
    /// When the device failed.
    pub async fn execute_async(self) -> Result<Vec<TensorData>, ExecutionError> {
        let mut all = Vec::with_capacity(self.tensors.len());
        for tensor in self.tensors {
            all.push(B::into_data_async(tensor).await?);
        }
        Ok(all)
    }
}
