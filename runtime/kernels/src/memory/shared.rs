//! Blocks in which memory that lives long lies side by side, so that all of it fills large pages.

use super::{Block, HAS_LARGE_PAGES, LARGE_PAGE, LINE, Owner, Sharing};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes of such a block, unless one part needs more. Pages that nobody has written to take no memory.
const WHOLE: usize = 64 << 20;

/// Bytes from which on a part is worth one: a page, mostly.
const LEAST: usize = 4 << 10;

/// Bytes in all that come from the allocator first. A small model needs no more: a large page would take longer to be cleared, and be empty mostly.
const FIRST: usize = LARGE_PAGE / 2;

/// Where parts lie.
struct Shared {
    /// The block in which there is room, and where.
    block: Weak<Block>,
    next: usize,
    /// Bytes that were asked for so far.
    asked: usize,
}

static LASTING: Mutex<Shared> = Mutex::new(Shared::new());
static REUSED: Mutex<Shared> = Mutex::new(Shared::new());

/// Zeros that start at a cache line, in a block that others lie in as well, where that is worth it.
///
/// # Panics
/// When no memory can be so large.
pub(super) fn part(len: usize, with: Sharing) -> Option<Block> {
    if !HAS_LARGE_PAGES || len < LEAST {
        return None;
    }
    let shared = match with {
        Sharing::Lasting => &LASTING,
        Sharing::Reused => &REUSED,
    };
    shared.lock().unwrap_or_else(PoisonError::into_inner).part(len)
}

impl Shared {
    const fn new() -> Self {
        Self { block: Weak::new(), next: 0, asked: 0 }
    }

    fn part(&mut self, len: usize) -> Option<Block> {
        self.asked = self.asked.saturating_add(len);
        if self.asked <= FIRST {
            return None;
        }
        let room = self.block.upgrade().filter(|block| len <= block.len - self.next);
        let block = match room {
            Some(block) => block,
            None => {
                let block = Arc::new(Block::zeroed(len.max(WHOLE)));
                (self.block, self.next) = (Arc::downgrade(&block), 0);
                block
            }
        };
        // SAFETY: the part lies in the block, and all further ones behind it.
        let data = unsafe { block.data.add(self.next) };
        self.next = (self.next + len).next_multiple_of(LINE).min(block.len);
        Some(Block { data, len, owner: Owner::Shared { _whole: block } })
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Block, FIRST, LINE, Owner, Shared, WHOLE};

    #[test]
    fn parts_lie_apart_and_live_as_long_as_one_of_them() {
        let mut shared = Shared::new();
        let sizes = [FIRST + 1, 100, 1_000_000, WHOLE + 1, 64];
        let parts: Vec<Block> = sizes.into_iter().map(|len| shared.part(len).unwrap()).collect();
        let mut ranges: Vec<_> = parts.iter().map(|part| (part.data.addr().get(), part.len)).collect();
        assert!(ranges.iter().all(|(start, _)| start % LINE == 0));
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let Owner::Shared { _whole: whole } = &parts[3].owner else { panic!("a part of nothing") };
        let whole = Arc::downgrade(whole);
        drop(parts);
        assert!(whole.upgrade().is_none());
    }

    #[test]
    fn what_little_there_is_comes_from_the_allocator() {
        let mut shared = Shared::new();
        assert!(shared.part(FIRST / 2).is_none());
        assert!(shared.part(FIRST / 2).is_none());
        assert!(shared.part(1).is_some());
    }
}
