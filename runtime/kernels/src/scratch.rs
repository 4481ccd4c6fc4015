//! Memory aligned to cache lines, and working space that is used again.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// The alignment: a cache line, which is also the widest vector.
const ALIGN: usize = 64;

/// A run of f32 that starts at a cache line.
pub(crate) struct Aligned {
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
            return Self { data: NonNull::dangling(), len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout has a size.
        let data = unsafe { alloc_zeroed(layout) };
        match NonNull::new(data.cast()) {
            Some(data) => Self { data, len },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(len: usize) -> Layout {
        match Layout::array::<f32>(len).and_then(|layout| layout.align_to(ALIGN)) {
            Ok(layout) => layout,
            Err(_) => panic!("{len} elements are more than memory can hold"),
        }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `new` allocated it with this layout.
            unsafe { dealloc(self.data.as_ptr().cast(), Self::layout(self.len)) };
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

/// Buffers above this many elements go back to the system: 64 MiB.
#[cfg(feature = "std")]
const KEEP: usize = 1 << 24;

/// Lends `len` elements of working space, with whatever was left in them.
///
/// Each thread keeps what it used before; nested calls get different buffers.
pub(crate) fn with_scratch<R>(len: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    #[cfg(feature = "std")]
    {
        use alloc::vec::Vec;
        use core::cell::RefCell;
        std::thread_local!(static FREE: RefCell<Vec<Aligned>> = const { RefCell::new(Vec::new()) });
        let kept =
            FREE.try_with(|free| free.try_borrow_mut().ok().and_then(|mut free| free.pop())).ok().flatten();
        let mut buffer = match kept {
            Some(buffer) if buffer.len() >= len => buffer,
            // A little more than asked for, so that slowly growing demands do not allocate each time.
            _ => Aligned::new(len + len / 4),
        };
        let result = body(&mut buffer[..len]);
        if buffer.len() <= KEEP {
            let _ = FREE.try_with(|free| free.try_borrow_mut().map(|mut free| free.push(buffer)));
        }
        result
    }
    #[cfg(not(feature = "std"))]
    body(&mut Aligned::new(len))
}
