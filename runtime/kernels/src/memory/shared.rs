//! Blocks in which memory that lives long lies side by side, so that all of it fills large pages.

use super::{Block, HAS_LARGE_PAGES, LARGE_PAGE, LINE, Owner, Sharing};
use alloc::vec::Vec;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
    /// What was [kept](keep).
    free: Vec<Block>,
    with: Sharing,
}

static LASTING: Mutex<Shared> = Mutex::new(Shared::new(Sharing::Lasting));
static REUSED: Mutex<Shared> = Mutex::new(Shared::new(Sharing::Reused));

fn lock(with: Sharing) -> MutexGuard<'static, Shared> {
    let shared = match with {
        Sharing::Lasting => &LASTING,
        Sharing::Reused => &REUSED,
    };
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that starts at a cache line, in a block that others lie in as well, where that is worth it: zeros, but for what was kept.
///
/// # Panics
/// When no memory can be so large.
pub(super) fn part(len: usize, with: Sharing) -> Option<Block> {
    if !HAS_LARGE_PAGES || len < LEAST {
        return None;
    }
    lock(with).part(len)
}

/// Takes a part, whose pages hold nothing any more, for the next one of its size: what comes and goes for ever must not take new addresses each time.
pub(super) fn keep(part: Block) {
    lock(Sharing::Reused).free.push(part);
}

impl Shared {
    const fn new(with: Sharing) -> Self {
        Self { block: Weak::new(), next: 0, asked: 0, free: Vec::new(), with }
    }

    fn part(&mut self, len: usize) -> Option<Block> {
        if let Some(at) = self.free.iter().position(|part| part.len == len) {
            return Some(self.free.swap_remove(at));
        }
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
        Some(Block { data, len, owner: Owner::Shared { whole: block, with: self.with } })
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Block, FIRST, LEAST, LINE, Owner, Shared, Sharing, WHOLE};

    #[test]
    fn parts_lie_apart_and_live_as_long_as_one_of_them() {
        let mut shared = Shared::new(Sharing::Lasting);
        let sizes = [FIRST + 1, 100, 1_000_000, WHOLE + 1, 64];
        let parts: Vec<Block> = sizes.into_iter().map(|len| shared.part(len).unwrap()).collect();
        let mut ranges: Vec<_> = parts.iter().map(|part| (part.data.addr().get(), part.len)).collect();
        assert!(ranges.iter().all(|(start, _)| start % LINE == 0));
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let Owner::Shared { whole, .. } = &parts[3].owner else { panic!("a part of nothing") };
        let whole = Arc::downgrade(whole);
        drop(parts);
        assert!(whole.upgrade().is_none());
    }

    #[test]
    fn what_little_there_is_comes_from_the_allocator() {
        let mut shared = Shared::new(Sharing::Lasting);
        assert!(shared.part(FIRST / 2).is_none());
        assert!(shared.part(FIRST / 2).is_none());
        assert!(shared.part(1).is_some());
    }
    #[test]
    fn what_is_used_again_takes_no_new_addresses() {
        // So many bytes that no other test asks for them.
        let len = FIRST + LEAST + LINE;
        let part = Block::reused(len);
        assert!(matches!(part.owner, Owner::Shared { .. }) == super::HAS_LARGE_PAGES);
        if super::HAS_LARGE_PAGES {
            let data = part.data;
            drop(part);
            let again = Block::reused(len);
            assert_eq!(again.data, data);
            assert_ne!(Block::reused(len).data, data);
        }
    }
}
