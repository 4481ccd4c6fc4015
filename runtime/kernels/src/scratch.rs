//! Elements aligned to cache lines, and working space that is used again.

use crate::memory::Block;
use core::ops::{Deref, DerefMut};

/// A run of f32 that starts at a cache line.
#[derive(Debug)]
pub(crate) struct Aligned(Block);

impl Aligned {
    /// Zeros.
    ///
    /// # Panics
    /// When no memory can be so large.
    pub fn new(len: usize) -> Self {
        Self(Block::zeroed(Self::bytes(len)))
    }

    /// Zeros for what is made once and lives long: packed weights.
    ///
    /// # Panics
    /// When no memory can be so large.
    pub fn lasting(len: usize) -> Self {
        Self(Block::lasting(Self::bytes(len)))
    }

    fn bytes(len: usize) -> usize {
        let Some(bytes) = len.checked_mul(size_of::<f32>()) else {
            panic!("{len} elements are more than memory can hold");
        };
        bytes
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(self.0.bytes())
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(self.0.bytes_mut())
    }
}

impl Clone for Aligned {
    fn clone(&self) -> Self {
        let mut copy = Self::lasting(self.len());
        copy.copy_from_slice(self);
        copy
    }
}

/// Elements that a thread keeps in all: 128 MiB.
#[cfg(feature = "std")]
const KEEP: usize = 1 << 25;

#[cfg(feature = "std")]
mod kept {
    use super::{Aligned, KEEP};
    use alloc::vec::Vec;
    use core::cell::RefCell;

    /// What the thread used before.
    #[derive(Default)]
    struct Free {
        /// By size, smallest first.
        buffers: Vec<Aligned>,
        elements: usize,
    }

    std::thread_local!(static FREE: RefCell<Free> = const { RefCell::new(Free { buffers: Vec::new(), elements: 0 }) });

    /// The smallest buffer that is large enough. If none is, the largest is freed: it makes room for a larger one.
    pub fn pop(len: usize) -> Option<Aligned> {
        let found = FREE.try_with(|free| {
            let mut free = free.try_borrow_mut().ok()?;
            let at = free.buffers.partition_point(|buffer| buffer.len() < len);
            let found =
                if at < free.buffers.len() { Some(free.buffers.remove(at)) } else { free.buffers.pop() };
            free.elements -= found.as_ref().map_or(0, |buffer| buffer.len());
            found
        });
        found.ok().flatten().filter(|buffer| buffer.len() >= len)
    }

    /// Keeps a buffer, unless there is enough already.
    pub fn push(buffer: Aligned) {
        let _ = FREE.try_with(|free| {
            if let Ok(mut free) = free.try_borrow_mut()
                && free.elements + buffer.len() <= KEEP
            {
                free.elements += buffer.len();
                let at = free.buffers.partition_point(|other| other.len() < buffer.len());
                free.buffers.insert(at, buffer);
            }
        });
    }
}

/// A buffer of at least `len` elements, with whatever was left in them. [`give`] leaves it to others.
pub(crate) fn take(len: usize) -> Aligned {
    #[cfg(feature = "std")]
    {
        // A little more than asked for, so that slowly growing demands do not allocate each time.
        kept::pop(len).unwrap_or_else(|| Aligned::new(len + len / 4))
    }
    #[cfg(not(feature = "std"))]
    Aligned::new(len)
}

/// Leaves a buffer to whoever takes one next on this thread.
pub(crate) fn give(buffer: Aligned) {
    #[cfg(feature = "std")]
    kept::push(buffer);
    #[cfg(not(feature = "std"))]
    drop(buffer);
}

/// Lends `len` elements of working space, with whatever was left in them.
///
/// Each thread keeps what it used before; nested calls get different buffers.
pub(crate) fn with_scratch<R>(len: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    if len == 0 {
        return body(&mut []);
    }
    let mut buffer = take(len);
    let result = body(&mut buffer[..len]);
    give(buffer);
    result
}
