//! Blocks in which memory that lives long lies side by side, so that all of it fills large pages.

use super::{Advice, Block, LINE, advise};
use core::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes of a block, unless one part needs more. Pages that nobody has written to take no memory.
const BLOCK: usize = 64 << 20;

/// The block in which there is room, and where.
struct Current {
    block: Weak<Block>,
    next: usize,
}

static CURRENT: Mutex<Current> = Mutex::new(Current { block: Weak::new(), next: 0 });

/// Some bytes of a block; its owner alone reads and writes them. The block is freed with its last part.
pub(crate) struct Part {
    /// Keeps the block.
    _block: Arc<Block>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its bytes as a `Box<[u8]>` does.
unsafe impl Send for Part {}
// SAFETY: as for `Send`.
unsafe impl Sync for Part {}

impl Part {
    /// Zeros that start at a cache line.
    ///
    /// # Panics
    /// When no memory can be so large.
    pub fn zeroed(len: usize) -> Self {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let room = current.block.upgrade().filter(|block| len <= block.len() - current.next);
        let block = match room {
            Some(block) => block,
            None => {
                let block = Arc::new(Block::zeroed(len.max(BLOCK)));
                *current = Current { block: Arc::downgrade(&block), next: 0 };
                block
            }
        };
        // SAFETY: the part lies in the block, and all further ones behind it.
        let start = unsafe { block.start().add(current.next) };
        current.next = (current.next + len).next_multiple_of(LINE).min(block.len());
        Self { _block: block, start, len }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Other parts may keep the block for long.
        advise(self.start, self.len, Advice::Unused);
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Part};
    use std::sync::Arc;

    #[test]
    fn parts_lie_apart_and_live_as_long_as_one_of_them() {
        let parts: Vec<Part> = [1, 100, 1_000_000, BLOCK + 1, 64].map(Part::zeroed).into();
        let mut ranges: Vec<_> = parts.iter().map(|part| (part.start().addr().get(), part.len)).collect();
        assert!(ranges.iter().all(|(start, _)| start % 64 == 0));
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let block = Arc::downgrade(&parts[3]._block);
        drop(parts);
        assert!(block.upgrade().is_none());
    }
}
