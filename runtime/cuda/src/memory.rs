//! Buffers of a device.

use crate::driver::Address;

/// A buffer of a device.
#[derive(Debug)]
pub struct Buffer {
    /// Nothing where the device had no more memory: what depends on it is not computed.
    pub(crate) address: Option<Address>,
    pub(crate) bytes: u64,
    pub(crate) id: u64,
}

/// Memory of a tensor, or a part of it; the last clone that is dropped gives it back to the pool.
pub type Memory = kiln_gpu::memory::Memory<Buffer>;

impl kiln_gpu::memory::Buffer for Buffer {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn is_usable(&self) -> bool {
        self.address.is_some()
    }
}
