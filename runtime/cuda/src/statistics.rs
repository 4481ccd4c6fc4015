//! What a device was asked to do.

use crate::device::{CudaDevice, expect_context};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Kernels that were launched, or written down for a graph.
    pub launches: u64,
    /// Those of them that a library of NVIDIA's did: cuBLASLt, cuDNN.
    pub library_calls: u64,
    /// Graphs that were launched.
    pub replays: u64,
    /// Reads and synchronizations, each of which waited for the device.
    pub waits: u64,
    /// Buffers that were allocated, rather than taken from the pool.
    pub buffers: u64,
    /// Their bytes.
    pub buffer_bytes: u64,
    /// Buffers that were given back to the driver.
    pub released_buffers: u64,
    /// Their bytes.
    pub released_bytes: u64,
    /// Kernels that were compiled.
    pub compiled: u64,
    /// Kernels that were loaded from the disk instead.
    pub loaded: u64,
    /// Bytes of memory that was asked for, from the pool or not.
    pub requested_bytes: u64,
    /// Bytes that kernels read and wrote.
    pub moved_bytes: u64,
    /// Bytes that were sent to the device, parameters of kernels apart.
    pub uploaded_bytes: u64,
}

macro_rules! counters {
    ($($name:ident)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub $name: AtomicU64,)*
        }

        impl Counters {
            fn read(&self) -> Statistics {
                Statistics { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters!(launches library_calls replays waits buffers buffer_bytes released_buffers released_bytes compiled loaded requested_bytes moved_bytes uploaded_bytes);

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// What a device was asked to do so far. What is between two of these is exact where nothing else uses the device.
///
/// # Panics
/// When the device does not open.
pub fn statistics(device: &CudaDevice) -> Statistics {
    expect_context(device).counters.read()
}
