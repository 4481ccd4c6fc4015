//! What a device was asked to do.

use crate::device::{WgpuDevice, expect_context};
pub(crate) use kiln_gpu::statistics::count;

kiln_gpu::statistics! {
    /// Kernels that were run.
    dispatches,
    /// Submissions of recorded kernels.
    submissions,
    /// Reads and synchronizations, each of which waited for the device.
    waits,
    /// Buffers that were allocated, rather than taken from the pool.
    buffers,
    /// Their bytes.
    buffer_bytes,
    /// Kernels that were compiled.
    pipelines,
    /// Bind groups that were made.
    bind_groups,
    /// Buffers that were of no use for long and were given back to the system.
    released_buffers,
    /// Their bytes.
    released_bytes,
    /// Bind groups that were dropped.
    released_bind_groups,
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
pub fn statistics(device: &WgpuDevice) -> Statistics {
    expect_context(device).counters.read()
}
