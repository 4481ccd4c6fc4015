//! Bytes of a tensor: owned, or shared with a memory map.

use alloc::{sync::Arc, vec, vec::Vec};
use core::any::Any;
use core::ops::{Deref, Range};

/// What keeps bytes alive, and may let them be written.
trait Owner: Any + Send + Sync {
    fn bytes(&self) -> &[u8];

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        None
    }

    /// Whether the bytes lie elsewhere too; else the following do nothing.
    fn is_refetched(&self) -> bool {
        false
    }

    fn release(&self, _range: Range<usize>) {}

    fn scattered(&self, _scattered: bool) {}
}

/// A read-only owner: a static slice, a vector.
struct ReadOnly<O>(O);

impl<O: AsRef<[u8]> + Send + Sync + 'static> Owner for ReadOnly<O> {
    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }
}

/// The owner of a typed vector, which can be had back.
struct Typed<E>(Vec<E>);

impl<E: bytemuck::NoUninit + Send + Sync + 'static> Owner for Typed<E> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Bytes that lie elsewhere too: a file's pages, which the system can drop from memory and read again.
pub trait Refetched: AsRef<[u8]> + Send + Sync + 'static {
    /// Lets the memory behind a range go; whoever reads it later finds the same bytes again. A hint, which may do nothing.
    fn release(&self, range: Range<usize>);

    /// Says whether few bytes will be read here and there, so that no others should be fetched with them. A hint, which may do nothing.
    #[allow(unused_variables)]
    fn scattered(&self, scattered: bool) {}
}

/// The owner of bytes that lie elsewhere too.
struct Elsewhere<O>(O);

impl<O: Refetched> Owner for Elsewhere<O> {
    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    fn is_refetched(&self) -> bool {
        true
    }

    fn release(&self, range: Range<usize>) {
        self.0.release(range);
    }

    fn scattered(&self, scattered: bool) {
        self.0.scattered(scattered);
    }
}

/// A writable copy, aligned for every dtype.
struct Aligned {
    words: Vec<u64>,
    len: usize,
}

impl Aligned {
    fn copy_of(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self { words, len: bytes.len() }
    }
}

impl Owner for Aligned {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(&mut bytemuck::cast_slice_mut(&mut self.words)[..self.len])
    }
}

/// A cheaply cloned run of bytes; written only after [`Bytes::make_mut`] made a copy of its own.
///
/// It may borrow from a memory-mapped file (the map lives as long as any `Bytes` into it), so that loading a record
/// copies nothing. Alignment is whatever the owner gives; readers that need typed slices check it.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn Owner>,
    range: Range<usize>,
}

impl Bytes {
    /// Takes ownership of a vector.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self::from_owner(bytes)
    }

    /// Takes ownership of a typed vector without copying; keeps its alignment.
    pub fn from_elements<E: bytemuck::NoUninit + Send + Sync + 'static>(elements: Vec<E>) -> Self {
        let range = 0..size_of_val(elements.as_slice());
        Self { owner: Arc::new(Typed(elements)), range }
    }

    /// The typed vector that [`Bytes::from_elements`] took, without copying; the bytes as they are when they were made
    /// otherwise, are a part of their owner's, or are shared.
    ///
    /// # Errors
    /// Gives the bytes back.
    pub fn try_into_elements<E: bytemuck::NoUninit + Send + Sync + 'static>(self) -> Result<Vec<E>, Self> {
        let whole = self.range == (0..self.owner.bytes().len());
        let typed = (&*self.owner as &dyn Any).is::<Typed<E>>();
        if !whole || !typed || Arc::strong_count(&self.owner) != 1 {
            return Err(self);
        }
        let Self { owner, range } = self;
        let any: Arc<dyn Any + Send + Sync> = owner;
        match Arc::downcast::<Typed<E>>(any).map(Arc::try_unwrap) {
            Ok(Ok(Typed(elements))) => Ok(elements),
            Ok(Err(owner)) => Err(Self { owner, range }),
            Err(_) => unreachable!("the type was checked above"),
        }
    }

    /// All bytes of an owner that can fetch them again; see [`Bytes::release`].
    pub fn from_refetched<O: Refetched>(owner: O) -> Self {
        let range = 0..owner.as_ref().len();
        Self { owner: Arc::new(Elsewhere(owner)), range }
    }

    /// Whether these bytes can be fetched again: [`Bytes::from_refetched`] made them.
    pub fn is_refetched(&self) -> bool {
        self.owner.is_refetched()
    }

    /// Lets the memory behind these bytes go where they can be fetched again (a memory-mapped file); else does nothing.
    /// The bytes can be read as before.
    pub fn release(&self) {
        self.owner.release(self.range.clone());
    }

    /// Says whether few bytes of the owner will be read here and there, so that where they lie in a file no others should be
    /// fetched with them; until it is said otherwise.
    pub fn scattered(&self, scattered: bool) {
        self.owner.scattered(scattered);
    }

    /// All bytes of `owner`, which is kept alive.
    pub fn from_owner<O: AsRef<[u8]> + Send + Sync + 'static>(owner: O) -> Self {
        let range = 0..owner.as_ref().len();
        Self { owner: Arc::new(ReadOnly(owner)), range }
    }

    /// A part of these bytes, sharing the owner; `None` when `range` lies outside.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Self { owner: self.owner.clone(), range: start..start + range.len() })
    }

    /// Writable bytes, aligned to 8; copied first unless an earlier call made this the only owner of such a copy.
    pub fn make_mut(&mut self) -> &mut [u8] {
        let owned = Arc::get_mut(&mut self.owner).is_some_and(|owner| owner.bytes_mut().is_some());
        if !owned {
            *self = Self { owner: Arc::new(Aligned::copy_of(self)), range: 0..self.len() };
        }
        let range = self.range.clone();
        match Arc::get_mut(&mut self.owner).and_then(|owner| owner.bytes_mut()) {
            Some(bytes) => &mut bytes[range],
            None => unreachable!("the copy was made above"),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.owner.bytes()[self.range.clone()]
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
