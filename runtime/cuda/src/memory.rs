//! Buffers of a device.

use crate::driver::Address;
use std::sync::atomic::{AtomicU64, Ordering};

/// A buffer of a device. Which one it is may change while tensors hold it (`exchange`), as nobody sees who looks with the device's state at hand.
#[derive(Debug)]
pub struct Buffer {
    /// 0 where the device had no more memory: what depends on it is not computed.
    address: AtomicU64,
    bytes: AtomicU64,
    id: AtomicU64,
}

/// Memory of a tensor, or a part of it; the last clone that is dropped gives it back to the pool.
pub type Memory = kiln_gpu::memory::Memory<Buffer>;

impl Buffer {
    pub(crate) fn new(address: Option<Address>, bytes: u64, id: u64) -> Self {
        let [address, bytes, id] = [address.map_or(0, |address| address.0), bytes, id].map(AtomicU64::new);
        Self { address, bytes, id }
    }

    /// Where it is; nowhere where the device had no more memory.
    pub(crate) fn address(&self) -> Option<Address> {
        match self.address.load(Ordering::Relaxed) {
            0 => None,
            address => Some(Address(address)),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Has each be the other: whoever holds one has the other's contents from here on. With the device's state at hand, and while nothing waits to be launched
    /// with either.
    pub(crate) fn exchange(&self, other: &Self) {
        for (own, others) in
            [(&self.address, &other.address), (&self.bytes, &other.bytes), (&self.id, &other.id)]
        {
            own.store(others.swap(own.load(Ordering::Relaxed), Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl kiln_gpu::memory::Buffer for Buffer {
    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn id(&self) -> u64 {
        self.id()
    }

    fn is_usable(&self) -> bool {
        self.address().is_some()
    }
}
