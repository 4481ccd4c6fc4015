//! Blocks of memory: owned ones, which come from a pool, shared ones, and such as are computed when they are read.

use crate::ops::Pointwise;
use crate::sync::{Mutex, Once};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use bytemuck::Pod;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};
use kiln_kernels::memory::{Block, LINE};
use kiln_tensor::Bytes;

/// Size classes, four per doubling; the last one holds 2^41 lines, more than any machine has.
const CLASSES: usize = 160;

/// Bytes that the pool keeps for reuse in any case. What is freed beyond goes back to the system, unless as much was in use at
/// once before: a training step frees what it kept, and the next one wants it again.
const RETAINED_LIMIT: usize = 512 << 20;

/// Freed buffers by size class.
struct Pool {
    free: [Vec<Block>; CLASSES],
    /// Bytes in freed buffers.
    retained: usize,
    /// Bytes in buffers in use.
    live: usize,
    /// The most that were in use at once.
    most: usize,
}

static POOL: Mutex<Pool> =
    Mutex::new(Pool { free: [const { Vec::new() }; CLASSES], retained: 0, live: 0, most: 0 });

/// The smallest class that holds `lines`, and how many lines it has: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ….
fn class_of(lines: usize) -> (usize, usize) {
    if lines <= 8 {
        return (lines, lines);
    }
    let shift = (lines - 1).ilog2() as usize - 2;
    let quarters = ((lines - 1) >> shift) + 1;
    (8 + (shift - 1) * 4 + (quarters - 4), quarters << shift)
}

impl Pool {
    /// A buffer of the class, which has this many lines, or one up to twice its size; nothing if one has to be made.
    fn take(&mut self, class: usize, lines: usize) -> Option<Block> {
        let last = (class + 4).min(CLASSES - 1);
        let found = self.free[class..=last].iter_mut().find_map(Vec::pop);
        self.retained -= found.as_ref().map_or(0, Block::len);
        self.live += found.as_ref().map_or(lines * LINE, Block::len);
        self.most = self.most.max(self.live);
        found
    }

    /// Keeps a buffer, unless the pool is full.
    fn give(&mut self, block: Block) -> Option<Block> {
        let (bytes, lines) = (block.len(), block.len() / LINE);
        self.live -= bytes;
        let (class, exact) = class_of(lines);
        let retained = self.retained + bytes;
        let keeps = retained <= RETAINED_LIMIT || retained + self.live <= self.most;
        if exact != lines || class >= CLASSES || !keeps {
            return Some(block);
        }
        self.retained += bytes;
        self.free[class].push(block);
        None
    }
}

/// Owned memory, aligned to a cache line, returned to the pool when dropped.
pub(crate) struct Buffer {
    /// A whole number of cache lines.
    block: Block,
    /// Bytes in use.
    len: usize,
}

impl Buffer {
    /// Memory with arbitrary contents (of earlier tensors, or zero).
    ///
    /// # Panics
    /// When the size overflows.
    pub(crate) fn new<T>(elements: usize) -> Self {
        Self::of_bytes(
            elements.checked_mul(size_of::<T>()).expect("a tensor's size overflows the address space"),
        )
    }

    #[inline(never)]
    fn of_bytes(len: usize) -> Self {
        let (class, lines) = class_of(len.div_ceil(LINE));
        let reused = if lines == 0 { None } else { POOL.with(|pool| pool.take(class, lines)) };
        Self { block: reused.unwrap_or_else(|| Block::zeroed(lines * LINE)), len }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.block.bytes()[..self.len]
    }

    pub(crate) fn as_mut<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.block.bytes_mut()[..self.len])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let block = core::mem::replace(&mut self.block, Block::zeroed(0));
        if !block.is_empty() {
            // What the pool refuses is freed after the lock is released.
            let _refused = POOL.with(|pool| pool.give(block));
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// What holds the bytes of a storage.
pub(crate) enum Memory {
    /// Our own, writable.
    Owned(Buffer),
    /// Someone else's: a mapped record, or data that the user handed over.
    Shared(Bytes),
    /// Our own, once somebody reads it.
    Deferred(Box<Deferred>),
}

/// The result of a convolution that is computed when somebody reads it: a depthwise convolution that alone would may do without.
pub(crate) struct Deferred {
    /// Until there is a result.
    work: Mutex<Option<Pointwise>>,
    result: Once<Buffer>,
}

impl Deferred {
    pub(crate) fn new(work: Pointwise) -> Self {
        Self { work: Mutex::new(Some(work)), result: Once::new() }
    }

    fn buffer(&self) -> &Buffer {
        self.result.get_or(|| {
            self.work.with(|work| {
                let buffer = work.as_ref().expect("work is there until its result is").run();
                *work = None;
                buffer
            })
        })
    }

    fn take_buffer(&mut self) -> Buffer {
        self.buffer();
        core::mem::replace(&mut self.result, Once::new()).into_inner().expect("a result that was computed")
    }
}

/// Prepared forms kept per storage; a weight that is used in more ways than this is not worth preparing.
const MAX_PREPARED: usize = 8;

/// A form of a storage's contents that some kernel prepared, with the key it was made for: `(K, P)`.
type Prepared = Arc<dyn Any + Send + Sync>;

/// The memory that one or more tensors view.
pub(crate) struct Storage {
    memory: Memory,
    prepared: Mutex<Vec<Prepared>>,
    /// Whether the contents are a weight, which lives long.
    weight: AtomicBool,
}

impl Storage {
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory, prepared: Mutex::new(Vec::new()), weight: AtomicBool::new(false) }
    }

    /// Says that the contents are a weight: prepared forms are kept from now on.
    pub(crate) fn keep_prepared(&self) {
        self.weight.store(true, Ordering::Relaxed);
    }

    /// A form of a weight's contents (packed for a kernel), with the key that it was made for, that is made once and kept as long as the contents
    /// stay; `None` for what is no weight.
    pub(crate) fn prepared<K, P>(
        &self,
        is_key: impl Fn(&K) -> bool,
        make: impl FnOnce() -> (K, P),
    ) -> Option<Arc<(K, P)>>
    where
        K: Send + Sync + 'static,
        P: Send + Sync + 'static,
    {
        if !self.weight.load(Ordering::Relaxed) {
            return None;
        }
        self.prepared.with(|list| {
            let same = |entry: &Prepared| {
                let entry = Arc::downcast::<(K, P)>(entry.clone()).ok()?;
                is_key(&entry.0).then_some(entry)
            };
            if let Some(entry) = list.iter().find_map(same) {
                return Some(entry);
            }
            if list.len() >= MAX_PREPARED {
                return None;
            }
            let entry = Arc::new(make());
            list.push(entry.clone());
            if let Memory::Shared(bytes) = &self.memory {
                // From now on the prepared form is read. A mapped record's pages would only fill memory beside it.
                bytes.release();
            }
            Some(entry)
        })
    }

    pub(crate) fn slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(match &self.memory {
            Memory::Owned(buffer) => buffer.bytes(),
            Memory::Shared(bytes) => bytes,
            Memory::Deferred(deferred) => deferred.buffer().bytes(),
        })
    }

    /// Whether the contents are yet to be computed.
    pub(crate) fn is_waiting(&self) -> bool {
        match &self.memory {
            Memory::Deferred(deferred) => deferred.work.with(|work| work.is_some()),
            Memory::Owned(_) | Memory::Shared(_) => false,
        }
    }

    /// Takes the work of which the contents would be the result, if they are not there and the work is wanted. Then nobody may read them any more.
    pub(crate) fn take_deferred(&mut self, wanted: impl FnOnce(&Pointwise) -> bool) -> Option<Pointwise> {
        match &self.memory {
            Memory::Deferred(deferred) => {
                deferred.work.with(|work| if wanted(work.as_ref()?) { work.take() } else { None })
            }
            Memory::Owned(_) | Memory::Shared(_) => None,
        }
    }

    /// The owned buffer, to be written: the contents are another weight then, or none.
    pub(crate) fn buffer_mut(&mut self) -> Option<&mut Buffer> {
        self.prepared = Mutex::new(Vec::new());
        self.weight = AtomicBool::new(false);
        if let Memory::Deferred(deferred) = &mut self.memory {
            self.memory = Memory::Owned(deferred.take_buffer());
        }
        match &mut self.memory {
            Memory::Owned(buffer) => Some(buffer),
            Memory::Shared(_) | Memory::Deferred(_) => None,
        }
    }

    /// Whether the bytes belong to someone else.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.memory, Memory::Shared(_))
    }

    /// Gives the memory up.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self.memory {
            Memory::Owned(buffer) => Bytes::from_owner(buffer),
            Memory::Shared(bytes) => bytes,
            Memory::Deferred(mut deferred) => Bytes::from_owner(deferred.take_buffer()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_and_waste_little() {
        let mut last = (0, 0);
        for lines in 1..5000 {
            let (class, size) = class_of(lines);
            assert!(size >= lines && size * 4 <= lines * 5 + 4, "{lines} lines got {size}");
            assert_eq!(class_of(size), (class, size));
            assert!(class == last.0 || (class == last.0 + 1 && size > last.1), "{lines} lines: {class}");
            last = (class, size);
        }
    }

    #[test]
    fn buffers_are_aligned_and_sized() {
        for n in [0, 1, 7, 1000] {
            let mut buffer = Buffer::new::<f64>(n);
            assert_eq!(buffer.as_mut::<f64>().len(), n);
            assert_eq!(buffer.bytes().as_ptr() as usize % LINE, 0);
        }
    }

    /// What was in use at once may be kept, however much it is.
    #[test]
    fn the_pool_keeps_what_was_in_use() {
        let (_, lines) = class_of(100);
        let bytes = lines * LINE;
        let mut pool = Pool {
            free: [const { Vec::new() }; CLASSES],
            retained: RETAINED_LIMIT,
            live: 2 * bytes,
            most: RETAINED_LIMIT + 2 * bytes,
        };
        for _ in 0..2 {
            assert!(pool.give(Block::zeroed(bytes)).is_none());
        }
        assert_eq!((pool.live, pool.retained), (0, pool.most));
        let (class, _) = class_of(lines);
        let again = pool.take(class, lines);
        assert_eq!((again.map(|block| block.len()), pool.live), (Some(bytes), bytes));
        // One that was not in use beside the others is too much.
        pool.live += bytes;
        pool.retained += bytes;
        assert!(pool.give(Block::zeroed(bytes)).is_some());
    }
}
