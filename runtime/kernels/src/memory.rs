//! Memory from the system, aligned to cache lines; what is large lies on large pages.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use core::ptr::NonNull;
#[cfg(feature = "std")]
use std::sync::Arc;

#[cfg(feature = "std")]
mod shared;

/// The alignment: a cache line, which is also the widest vector.
pub const LINE: usize = 64;

/// Whether the system has large pages, and gives memory page by page when it is written to: where it does not, none is asked for beyond what is needed.
const HAS_LARGE_PAGES: bool = cfg!(all(feature = "std", target_os = "linux", target_pointer_width = "64"));

/// Bytes of a large page. Writing to fresh memory costs a fault of a page's first write, reading far apart an entry of the table of pages.
const LARGE_PAGE: usize = 2 << 20;

/// Zeroed bytes at the start of a cache line.
#[derive(Debug)]
pub struct Block {
    data: NonNull<u8>,
    len: usize,
    owner: Owner,
}

/// What the bytes of a block lie in.
#[derive(Debug)]
enum Owner {
    /// Nothing: there are none.
    Empty,
    /// Memory of their own, with room for the bytes behind the first line's or page's start.
    Own(NonNull<u8>),
    /// A block that others lie in as well, which is freed with the last one.
    #[cfg(feature = "std")]
    Shared { whole: Arc<Block>, with: Sharing },
}

/// Whose large pages a block shares: what is freed together lies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// Of what is made once.
    Lasting,
    /// Of what is used again.
    Reused,
}

// SAFETY: it owns its bytes as a `Box<[u8]>` does.
unsafe impl Send for Block {}
// SAFETY: as for `Send`.
unsafe impl Sync for Block {}

impl Block {
    /// Zeros, at the start of a large page if they fill one and the system has such. Only what is written takes memory, where the system gives it page by page.
    ///
    /// # Panics
    /// When no memory can be so large.
    #[inline]
    pub fn zeroed(len: usize) -> Self {
        if len == 0 { Self::empty() } else { Self::allocated(len) }
    }

    /// Zeros for what is made once and lives long. They share large pages with others of such, if the system has any.
    ///
    /// # Panics
    /// When no memory can be so large.
    pub fn lasting(len: usize) -> Self {
        Self::sharing(len, Sharing::Lasting)
    }

    /// Memory of arbitrary contents for what is used for something else when it is no longer needed, and freed at last if ever. Such blocks share large
    /// pages, unless one fills some alone.
    ///
    /// # Panics
    /// When no memory can be so large.
    pub fn reused(len: usize) -> Self {
        if len < LARGE_PAGE { Self::sharing(len, Sharing::Reused) } else { Self::zeroed(len) }
    }

    #[cfg(feature = "std")]
    fn sharing(len: usize, with: Sharing) -> Self {
        shared::part(len, with).unwrap_or_else(|| Self::zeroed(len))
    }

    #[cfg(not(feature = "std"))]
    fn sharing(len: usize, _with: Sharing) -> Self {
        Self::zeroed(len)
    }

    /// Without bytes.
    #[inline]
    pub const fn empty() -> Self {
        Self { data: NonNull::<Line>::dangling().cast(), len: 0, owner: Owner::Empty }
    }

    /// Zeros, at least one.
    fn allocated(len: usize) -> Self {
        let (layout, align) = Self::layout(len);
        // SAFETY: the layout has a size.
        let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let skip = base.as_ptr().align_offset(align);
        debug_assert!(skip < align);
        // SAFETY: the layout has room for the bytes behind the skipped ones.
        let data = unsafe { base.add(skip) };
        advise(data, len / LARGE_PAGE * LARGE_PAGE, Advice::LargePages);
        Self { data, len, owner: Owner::Own(base) }
    }

    /// What is allocated for so many bytes, and how they are aligned within. The allocator is asked for no alignment: then it takes zeros from the
    /// system as they are, where otherwise it would write them.
    fn layout(len: usize) -> (Layout, usize) {
        let align = alignment(len);
        match len.checked_add(align).map(|size| Layout::from_size_align(size, 1)) {
            Some(Ok(layout)) => (layout, align),
            _ => panic!("{len} bytes are more than memory can hold"),
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialized bytes (or none, behind a dangling pointer).
        unsafe { core::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`.
        unsafe { core::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

/// Where so many bytes start.
fn alignment(len: usize) -> usize {
    if HAS_LARGE_PAGES && len >= LARGE_PAGE { LARGE_PAGE } else { LINE }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.owner {
            Owner::Empty => {}
            // SAFETY: `allocated` allocated it with this layout.
            Owner::Own(base) => unsafe { dealloc(base.as_ptr(), Self::layout(self.len).0) },
            #[cfg(feature = "std")]
            Owner::Shared { ref whole, with } => {
                // The others may keep what they lie in for long.
                advise(self.data, self.len, Advice::Unused);
                if with == Sharing::Reused {
                    shared::keep(Self {
                        data: self.data,
                        len: self.len,
                        owner: Owner::Shared { whole: whole.clone(), with },
                    });
                }
            }
        }
    }
}

/// What has the alignment of a cache line.
#[repr(align(64))]
struct Line;

/// What the system is told of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advice {
    /// They should be large.
    LargePages,
    /// Their contents are no longer needed: the next reader finds zeros or what was there.
    #[cfg_attr(not(feature = "std"), allow(dead_code, reason = "blocks are shared with an operating system"))]
    Unused,
}

/// Tells the system of the whole pages of memory that the caller owns. Memory stays as it is where the system does not know the advice.
#[cfg(all(feature = "std", target_os = "linux"))]
fn advise(data: NonNull<u8>, len: usize, advice: Advice) {
    const MADV_DONTNEED: core::ffi::c_int = 4;
    const MADV_HUGEPAGE: core::ffi::c_int = 14;
    unsafe extern "C" {
        fn madvise(
            address: *mut core::ffi::c_void,
            length: usize,
            advice: core::ffi::c_int,
        ) -> core::ffi::c_int;
        safe fn getpagesize() -> core::ffi::c_int;
    }
    let (page, advice) = match advice {
        Advice::LargePages => (LARGE_PAGE, MADV_HUGEPAGE),
        Advice::Unused => (usize::try_from(getpagesize()).unwrap_or(LARGE_PAGE), MADV_DONTNEED),
    };
    let skip = data.as_ptr().align_offset(page);
    let whole = len.saturating_sub(skip) / page * page;
    if whole > 0 {
        // SAFETY: the pages lie within memory that the caller owns. An error changes nothing.
        unsafe { madvise(data.as_ptr().add(skip).cast(), whole, advice) };
    }
}

#[cfg(not(all(feature = "std", target_os = "linux")))]
fn advise(_data: NonNull<u8>, _len: usize, _advice: Advice) {}

#[cfg(test)]
mod tests {
    use super::{Block, LARGE_PAGE, LINE, alignment};

    #[test]
    fn blocks_are_aligned_zeros() {
        for len in [0, 1, LINE, 100_000, LARGE_PAGE, 3 * LARGE_PAGE + 1] {
            let aligned = [(Block::zeroed(len), alignment(len)), (Block::lasting(len), LINE)];
            for (mut block, align) in aligned {
                assert_eq!((block.len(), block.bytes().as_ptr() as usize % align), (len, 0));
                assert!(block.bytes().iter().all(|&byte| byte == 0));
                block.bytes_mut().fill(1);
            }
            let reused = Block::reused(len);
            assert_eq!((reused.len(), reused.bytes().as_ptr() as usize % LINE), (len, 0));
        }
    }
}
