//! Memory aligned to cache lines, and working space that is used again.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// The alignment: a cache line, which is also the widest vector.
const ALIGN: usize = 64;

/// A run of f32 that starts at a cache line.
pub(crate) struct Aligned {
    /// What was allocated, in which the elements start at the first cache line.
    base: NonNull<u8>,
    data: NonNull<f32>,
    len: usize,
}

// SAFETY: it owns its elements as a `Box<[f32]>` does.
unsafe impl Send for Aligned {}
// SAFETY: as for `Send`.
unsafe impl Sync for Aligned {}

impl Aligned {
    /// Zeros.
    pub fn new(len: usize) -> Self {
        if len == 0 {
            return Self { base: NonNull::dangling(), data: NonNull::dangling(), len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout has a size.
        let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let skip = base.as_ptr().align_offset(ALIGN);
        debug_assert!(skip < ALIGN);
        // SAFETY: the layout has room for the elements behind the first cache line's start.
        let data = unsafe { base.add(skip) }.cast();
        advise(data.cast(), len * size_of::<f32>());
        Self { base, data, len }
    }

    /// What is allocated for so many elements. The allocator is asked for no alignment: then it takes zeros from the system as they are, where
    /// otherwise it would write them.
    fn layout(len: usize) -> Layout {
        let elements = Layout::array::<f32>(len).map(|layout| layout.size().checked_add(ALIGN));
        match elements.map(|size| size.map(|size| Layout::from_size_align(size, align_of::<f32>()))) {
            Ok(Some(Ok(layout))) => layout,
            _ => panic!("{len} elements are more than memory can hold"),
        }
    }
}

/// Asks for large pages where memory holds some whole: writing to fresh memory and reading far apart then costs little. Memory stays as it is
/// where the system does not know them.
#[cfg(all(feature = "std", target_os = "linux"))]
fn advise(data: NonNull<u8>, bytes: usize) {
    const PAGE: usize = 2 << 20;
    const MADV_HUGEPAGE: core::ffi::c_int = 14;
    unsafe extern "C" {
        fn madvise(
            address: *mut core::ffi::c_void,
            length: usize,
            advice: core::ffi::c_int,
        ) -> core::ffi::c_int;
    }
    let skip = data.as_ptr().align_offset(PAGE);
    let whole = bytes.saturating_sub(skip) / PAGE * PAGE;
    if whole > 0 {
        // SAFETY: the pages lie within memory that the caller owns, and keep their contents. An error changes nothing.
        unsafe { madvise(data.as_ptr().add(skip).cast(), whole, MADV_HUGEPAGE) };
    }
}

#[cfg(not(all(feature = "std", target_os = "linux")))]
fn advise(_data: NonNull<u8>, _bytes: usize) {}

impl Drop for Aligned {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `new` allocated it with this layout.
            unsafe { dealloc(self.base.as_ptr(), Self::layout(self.len)) };
        }
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `len` initialized elements (or none, behind a dangling, aligned pointer).
        unsafe { core::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as for `deref`.
        unsafe { core::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

impl Clone for Aligned {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl core::fmt::Debug for Aligned {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Aligned({})", self.len)
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
    let mut buffer = take(len);
    let result = body(&mut buffer[..len]);
    give(buffer);
    result
}
