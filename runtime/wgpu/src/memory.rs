//! Buffers of `wgpu`.

/// A buffer of a device.
#[derive(Debug)]
pub struct Buffer {
    pub(crate) raw: wgpu::Buffer,
    /// Names it for good.
    pub(crate) id: u64,
    /// Whether it is memory at all: not where the device had none.
    pub(crate) is_usable: bool,
}

/// Memory of a tensor, or a part of it; the last clone that is dropped gives it back to the pool.
pub type Memory = kiln_gpu::memory::Memory<Buffer>;

impl kiln_gpu::memory::Buffer for Buffer {
    fn bytes(&self) -> u64 {
        self.raw.size()
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn is_usable(&self) -> bool {
        self.is_usable
    }
}
