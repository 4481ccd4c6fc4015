//! The state of a graph: where it is, and how what a computation returns comes there.
//!
//! A computation owns the state that it is handed, so that it may write to it in place. The graph holds none of that memory meanwhile, but
//! its buffers are reserved for the graph before anything is written down: they become nobody else's, and what of them is free when the
//! computation ends is taken back.

use super::CaptureError;
use crate::CudaTensor;
use crate::context::Context;
use crate::device::CudaDevice;
#[cfg(feature = "autodiff")]
use crate::device::expect_context;
use crate::memory::Memory;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{DType, Shape};
use std::ops::Range;
use std::sync::Arc;

/// Where a row-major tensor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    buffer: u64,
    bytes: Range<usize>,
    shape: Shape,
    dtype: DType,
}

impl Place {
    /// Where a tensor is; every copy has such a place, as its buffer's only one.
    pub fn of(tensor: &CudaTensor) -> Option<Self> {
        let memory = tensor.memory()?;
        let buffer = memory.buffer()?.id();
        Some(Self { buffer, bytes: memory.range(), shape: tensor.shape(), dtype: tensor.dtype() })
    }

    /// Likewise of a tensor that stays there.
    #[cfg(feature = "autodiff")]
    pub fn of_constant(tensor: &CudaTensor) -> Option<Self> {
        expect_context(tensor.device()).keep(tensor);
        Self::of(tensor)
    }

    /// The number of the buffer.
    pub fn buffer(&self) -> u64 {
        self.buffer
    }

    /// How many bytes are there.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The tensor there, of memory that is the place's.
    pub fn tensor(&self, memory: Memory, device: CudaDevice) -> CudaTensor {
        CudaTensor::from_memory(memory, self.shape.clone(), self.dtype, device)
    }

    /// Whether it is a buffer from its start.
    pub fn is_from_start(&self) -> bool {
        self.bytes.start == 0
    }

    /// Whether a tensor is there, all of it.
    fn holds(&self, tensor: &CudaTensor) -> bool {
        tensor.memory().is_some_and(|memory| {
            memory.range().start == 0 && memory.buffer().is_some_and(|buffer| buffer.id() == self.buffer)
        })
    }
}

/// Whether a computation returns such state as it was given.
pub(super) fn check(given: &[CudaTensor], returned: &[CudaTensor]) -> Result<(), CaptureError> {
    if given.len() != returned.len() {
        return Err(CaptureError::StateNumber { given: given.len(), returned: returned.len() });
    }
    for (number, (given, returned)) in given.iter().zip(returned).enumerate() {
        let [given_as, returned_as] = [given, returned].map(|tensor| (tensor.shape(), tensor.dtype()));
        if given_as != returned_as {
            let [given, returned] = [given_as, returned_as].map(Box::new);
            return Err(CaptureError::State { number, given, returned });
        }
        if given.device() != returned.device() {
            return Err(CaptureError::SeveralDevices);
        }
    }
    Ok(())
}

/// The tensor, copied if it lies in a place of the state, or is a view of one.
pub(super) fn beside(places: &[Place], tensor: CudaTensor) -> CudaTensor {
    if is_a_place(places, &tensor) { tensor.copied() } else { tensor }
}

fn is_a_place(places: &[Place], tensor: &CudaTensor) -> bool {
    let buffer = tensor.viewed_memory().buffer();
    buffer.is_some_and(|buffer| places.iter().any(|place| place.buffer == buffer.id()))
}

/// Brings the state that a computation returned to its places while launches are written down; yields it there.
pub(super) fn settle(
    context: &Arc<Context>,
    places: &[Place],
    returned: Vec<CudaTensor>,
) -> Result<Vec<CudaTensor>, CaptureError> {
    // What lies in the place of other state (two that are exchanged), or is a part of its own, is copied first: that place is written to.
    let of_others = |(tensor, place): (CudaTensor, &Place)| match place.holds(&tensor) {
        true => tensor,
        false => beside(places, tensor),
    };
    let returned: Vec<CudaTensor> = returned.into_iter().zip(places).map(of_others).collect();
    let settled = returned.into_iter().zip(places).enumerate().map(|(number, (tensor, place))| {
        if place.holds(&tensor) {
            return Ok(tensor);
        }
        let memory =
            context.take_back(place.buffer, place.bytes.len()).ok_or(CaptureError::StateKept { number })?;
        let own = place.tensor(memory, *tensor.device());
        own.overwrite(&tensor);
        Ok(own)
    });
    settled.collect()
}
