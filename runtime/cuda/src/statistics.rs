//! What a device was asked to do.

use crate::device::{CudaDevice, expect_context};
pub(crate) use kiln_gpu::statistics::count;

kiln_gpu::statistics! {
    /// Kernels that were launched, or written down for a graph.
    launches,
    /// Those of them that a library of NVIDIA's did: cuBLASLt, cuDNN.
    library_calls,
    /// Graphs that were launched.
    replays,
    /// Reads and synchronizations, each of which waited for the device.
    waits,
    /// Buffers that were allocated, rather than taken from the pool.
    buffers,
    /// Their bytes.
    buffer_bytes,
    /// Buffers that were given back to the driver.
    released_buffers,
    /// Their bytes.
    released_bytes,
    /// Kernels that were compiled.
    compiled,
    /// Kernels that were loaded from the disk instead.
    loaded,
    /// Bytes of memory that was asked for, from the pool or not.
    requested_bytes,
    /// Bytes that kernels read and wrote.
    moved_bytes,
    /// Bytes that were sent to the device, parameters of kernels apart.
    uploaded_bytes,
}

/// What a device was asked to do so far. What is between two of these is exact where nothing else uses the device.
///
/// # Panics
/// When the device does not open.
pub fn statistics(device: &CudaDevice) -> Statistics {
    expect_context(device).counters.read()
}
