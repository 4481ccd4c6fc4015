//! Tensors for kernels that users write.

use crate::runtime::Runtime;
use crate::tensor::GpuTensor;
use core::fmt::Debug;

/// A tensor of a user's kernel.
#[derive(Debug)]
pub enum Operand<'a, R: Runtime> {
    /// It is read.
    Input(&'a GpuTensor<R>),
    /// It is written to, and may be read.
    Output(&'a mut GpuTensor<R>),
}

impl<R: Runtime> Operand<'_, R> {
    /// The tensor.
    pub fn tensor(&self) -> &GpuTensor<R> {
        match self {
            Operand::Input(tensor) => tensor,
            Operand::Output(tensor) => tensor,
        }
    }

    /// Whether it is written to.
    pub fn is_output(&self) -> bool {
        match self {
            Operand::Input(_) => false,
            Operand::Output(_) => true,
        }
    }

    /// The memory that a kernel on a device sees of it.
    ///
    /// # Errors
    /// When it cannot take the tensor.
    pub fn memory(&mut self, device: &R::Device) -> Result<R::Memory, TensorProblem<R::Device>> {
        let on = self.tensor().device();
        if on != device {
            return Err(TensorProblem::OtherDevice { on: on.clone(), device: device.clone() });
        }
        let memory = match self {
            Operand::Input(tensor) => tensor.memory().ok_or(TensorProblem::NotContiguous)?,
            Operand::Output(tensor) if tensor.memory().is_none() => return Err(TensorProblem::NotContiguous),
            Operand::Output(tensor) => tensor.memory_mut().ok_or(TensorProblem::Shared)?,
        };
        let most = R::limits(device).binding_bytes;
        match R::bytes(&memory) {
            bytes if bytes > most => Err(TensorProblem::TooLarge { bytes, most }),
            _ => Ok(memory),
        }
    }
}

/// Why a user's kernel cannot take a tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorProblem<D: Debug> {
    /// It is a view whose elements are not row-major from a start that kernels can see.
    #[error("the tensor is not contiguous: `into_contiguous` makes it so")]
    NotContiguous,
    /// Another tensor shares the memory that would be written to.
    #[error("the memory of this output is shared with another tensor")]
    Shared,
    /// It is on another device than the first output.
    #[error("the tensor is on {on:?}, the kernel's first output on {device:?}")]
    OtherDevice {
        /// Where it is.
        on: D,
        /// Where it should be.
        device: D,
    },
    /// Kernels do not see so much of a buffer.
    #[error("the tensor has {bytes} bytes, and kernels on this device see {most} of a buffer")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// How many there may be.
        most: usize,
    },
}
