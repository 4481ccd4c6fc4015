//! Bytes of a tensor: owned, or shared with a memory map.

use alloc::{sync::Arc, vec::Vec};
use core::ops::{Deref, Range};

/// Anything that keeps bytes alive: a memory map, a static slice, a vector.
type Owner = dyn AsRef<[u8]> + Send + Sync;

/// A read-only, cheaply cloned run of bytes.
///
/// It may borrow from a memory-mapped file (the map lives as long as any `Bytes` into it), so that loading a record
/// copies nothing. Alignment is whatever the owner gives; readers that need typed slices check it.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<Owner>,
    range: Range<usize>,
}

impl Bytes {
    /// Takes ownership of a vector.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self::from_owner(bytes)
    }

    /// Takes ownership of a typed vector without copying; keeps its alignment.
    pub fn from_elements<E: bytemuck::NoUninit + Send + Sync + 'static>(elements: Vec<E>) -> Self {
        struct Typed<E>(Vec<E>);
        impl<E: bytemuck::NoUninit> AsRef<[u8]> for Typed<E> {
            fn as_ref(&self) -> &[u8] {
                bytemuck::cast_slice(&self.0)
            }
        }
        Self::from_owner(Typed(elements))
    }

    /// All bytes of `owner`, which is kept alive.
    pub fn from_owner<O: AsRef<[u8]> + Send + Sync + 'static>(owner: O) -> Self {
        let range = 0..owner.as_ref().len();
        Self { owner: Arc::new(owner), range }
    }

    /// A part of these bytes, sharing the owner; `None` when `range` lies outside.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Self { owner: self.owner.clone(), range: start..start + range.len() })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::from_vec(Vec::new())
    }
}

impl core::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Bytes({})", self.len())
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}
