//! Blocks of memory: owned ones, which come from a pool, shared ones, and such as are computed when they are read.
//!
//! What a convolution computes for another one that rounds its image is held in bf16. Whoever reads the f32 that it is a storage of gets them widened.

#[cfg(feature = "std")]
use crate::kept::{self, Kept};
use crate::ops::{MaxPool, Pointwise, RoundedConv};
use crate::sync::{Mutex, Once};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use bytemuck::Pod;
use core::any::Any;
use core::ops::{Deref, Range};
use kiln_kernels::memory::{Block, LINE};
use kiln_tensor::{Bytes, bf16};

/// Size classes, four per doubling; the last one holds 2^41 lines, more than any machine has.
const CLASSES: usize = 160;

/// Bytes that the pool keeps for reuse in any case. What is freed beyond goes back to the system, unless as much was in use at
/// once before: a training step frees what it kept, and the next one wants it again.
const RETAINED_LIMIT: usize = 512 << 20;

/// Bytes of a small block, which its thread keeps: results of networks that compute for a microsecond are small.
const SMALL: usize = 8 * LINE;

// Freed small blocks, each thread's own: they cost no lock.
#[cfg(feature = "std")]
std::thread_local!(static SMALL_BLOCKS: Kept<Block> = const { Kept::new() });

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

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

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
    const fn new() -> Self {
        Self { free: [const { Vec::new() }; CLASSES], retained: 0, live: 0, most: 0 }
    }

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

    pub(crate) fn empty() -> Self {
        Self { block: Block::empty(), len: 0 }
    }

    #[inline(never)]
    fn of_bytes(len: usize) -> Self {
        let lines = len.div_ceil(LINE);
        if lines == 0 {
            return Self::empty();
        }
        #[cfg(feature = "std")]
        if len <= SMALL {
            let block = kept::pop(&SMALL_BLOCKS).unwrap_or_else(|| Block::zeroed(SMALL));
            return Self { block, len };
        }
        let (class, lines) = class_of(lines);
        let reused = POOL.with(|pool| pool.take(class, lines));
        Self { block: reused.unwrap_or_else(|| Block::reused(lines * LINE)), len }
    }

    /// Whether it has a small block.
    fn is_small(&self) -> bool {
        cfg!(feature = "std") && self.block.len() == SMALL
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
        let block = core::mem::replace(&mut self.block, Block::empty());
        if block.is_empty() {
            return;
        }
        #[cfg(feature = "std")]
        if block.len() == SMALL {
            return kept::push(&SMALL_BLOCKS, block);
        }
        // What the pool refuses is freed after the lock is released.
        let _refused = POOL.with(|pool| pool.give(block));
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
    /// Our own, once somebody reads it: until then the storage has the work that yields it.
    Deferred(Once<Computed>),
}

/// Work that waits for whoever reads its result.
pub(crate) enum Work {
    /// A 1x1 convolution that a depthwise one may be computed together with.
    Pointwise(Pointwise),
    /// A convolution of rounded operands, whose results may be rounded too.
    Rounded(RoundedConv),
    /// Maxima of such results.
    Maxima(MaxPool),
}

/// What work yielded.
pub(crate) enum Computed {
    /// Numbers of f32.
    Single(Buffer),
    /// Numbers of bf16.
    Rounded {
        /// They themselves.
        numbers: Buffer,
        /// As f32, once somebody reads that.
        wide: Once<Buffer>,
    },
}

impl Work {
    /// The result, rounded if that is wanted and possible.
    fn run(self, rounded: bool) -> Computed {
        match self {
            Self::Pointwise(work) => Computed::Single(work.run()),
            Self::Rounded(work) if rounded => Computed::rounded(work.run_rounded()),
            Self::Rounded(work) => Computed::Single(work.run()),
            Self::Maxima(work) => work.run(rounded),
        }
    }
}

impl Computed {
    /// Numbers of bf16.
    pub(crate) fn rounded(numbers: Buffer) -> Self {
        Self::Rounded { numbers, wide: Once::new() }
    }

    /// The numbers as f32.
    fn wide(&self) -> &Buffer {
        match self {
            Self::Single(buffer) => buffer,
            Self::Rounded { numbers, wide } => wide.get_or(|| widened(numbers)),
        }
    }

    /// [`Computed::wide`], taken out.
    fn into_wide(self) -> Buffer {
        match self {
            Self::Single(buffer) => buffer,
            Self::Rounded { numbers, wide } => wide.into_inner().unwrap_or_else(|| widened(&numbers)),
        }
    }
}

/// Numbers of bf16 as f32.
fn widened(numbers: &Buffer) -> Buffer {
    let numbers: &[bf16] = bytemuck::cast_slice(numbers.bytes());
    let mut wide = Buffer::new::<f32>(numbers.len());
    kiln_kernels::conv::widen(numbers, wide.as_mut());
    wide
}

/// Prepared forms kept per storage; a weight that is used in more ways than this is not worth preparing.
const MAX_PREPARED: usize = 8;

/// A form of a storage's contents that some kernel prepared, and those that were prepared after it: found without a lock.
struct Prepared {
    /// The form with the key it was made for: an `Arc<(K, P)>`.
    form: Box<dyn Any + Send + Sync>,
    next: Once<Box<Prepared>>,
}

/// The memory that one or more tensors view.
pub(crate) struct Storage {
    memory: Memory,
    /// What yields [`Memory::Deferred`], until there is a result.
    work: Mutex<Option<Work>>,
    prepared: Once<Box<Prepared>>,
}

/// Headers of freed storages, each thread's own: they cost no lock.
mod headers {
    use super::Storage;
    #[cfg(feature = "std")]
    use crate::kept::{self, Kept};
    use alloc::sync::Arc;

    #[cfg(feature = "std")]
    std::thread_local! {
        static EMPTY: Kept<Arc<Storage>> = const { Kept::new() };
        static WITH_SMALL_BLOCK: Kept<Arc<Storage>> = const { Kept::new() };
    }

    /// A storage without contents that nobody else has; one with a small block, if there is one and it is wanted.
    pub(super) fn take(small: bool) -> Arc<Storage> {
        #[cfg(feature = "std")]
        if small && let Some(header) = kept::pop(&WITH_SMALL_BLOCK) {
            return header;
        } else if let Some(header) = kept::pop(&EMPTY) {
            return header;
        }
        #[cfg(not(feature = "std"))]
        let _ = small;
        Arc::new(Storage::empty())
    }

    /// Leaves a storage without contents, which nobody else has, to whoever makes one next on this thread.
    pub(super) fn give(header: Arc<Storage>, small: bool) {
        #[cfg(feature = "std")]
        kept::push(if small { &WITH_SMALL_BLOCK } else { &EMPTY }, header);
        #[cfg(not(feature = "std"))]
        let _ = (header, small);
    }
}

/// A storage and those who share it. Once the last one is gone, its header waits for other contents.
#[derive(Clone)]
pub(crate) struct SharedStorage(
    /// There until it is dropped.
    Option<Arc<Storage>>,
);

impl SharedStorage {
    pub(crate) fn new(memory: Memory) -> Self {
        Self::with(memory, None)
    }

    /// A storage whose contents a convolution computes when somebody reads them.
    pub(crate) fn deferred(work: Work) -> Self {
        Self::with(Memory::Deferred(Once::new()), Some(work))
    }

    /// Owned memory of so many bytes with arbitrary contents (of earlier tensors, or zero), to be [filled](Self::room).
    #[inline(never)]
    pub(crate) fn with_room(bytes: usize) -> Self {
        let small = (1..=SMALL).contains(&bytes);
        let header = headers::take(small);
        match &header.memory {
            Memory::Owned(buffer) if small && buffer.is_small() => Self(Some(header)),
            _ => Self::over(header, Memory::Owned(Buffer::of_bytes(bytes)), None),
        }
    }

    /// The bytes of a storage that was just made [for as many](Self::with_room).
    pub(crate) fn room<T: Pod>(&mut self, bytes: usize) -> &mut [T] {
        match self.get_mut().map(|storage| &mut storage.memory) {
            Some(Memory::Owned(buffer)) => {
                buffer.len = bytes;
                buffer.as_mut()
            }
            _ => unreachable!("nobody else has a storage that was just made, which owns its memory"),
        }
    }

    fn with(memory: Memory, work: Option<Work>) -> Self {
        Self::over(headers::take(false), memory, work)
    }

    /// A storage in the place of one without contents.
    fn over(mut header: Arc<Storage>, memory: Memory, work: Option<Work>) -> Self {
        match Arc::get_mut(&mut header) {
            Some(storage) => {
                storage.memory = memory;
                if work.is_some() {
                    *storage.work.get_mut() = work;
                }
            }
            None => unreachable!("nobody else has a header that is new or was kept"),
        }
        Self(Some(header))
    }

    fn header(&self) -> &Arc<Storage> {
        match &self.0 {
            Some(header) => header,
            None => unreachable!("only `drop` takes the header"),
        }
    }

    /// The storage, if nobody else has it.
    pub(crate) fn get_mut(&mut self) -> Option<&mut Storage> {
        self.0.as_mut().and_then(Arc::get_mut)
    }

    /// A number that no other storage has meanwhile.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(self.header()).addr()
    }
}

impl Deref for SharedStorage {
    type Target = Storage;

    fn deref(&self) -> &Storage {
        self.header()
    }
}

impl Drop for SharedStorage {
    fn drop(&mut self) {
        let Some(mut header) = self.0.take() else { return };
        // Mostly another one has it too, a weight's above all.
        if Arc::strong_count(&header) > 1 {
            return;
        }
        // Of two that go at once neither may be the last: then the header is freed.
        let Some(storage) = Arc::get_mut(&mut header) else { return };
        let small = storage.clear();
        headers::give(header, small);
    }
}

impl Storage {
    fn empty() -> Self {
        Self { memory: Memory::Owned(Buffer::empty()), work: Mutex::new(None), prepared: Once::new() }
    }

    /// Leaves nothing in it but a small block, if it has one, and says whether it has.
    fn clear(&mut self) -> bool {
        let small = matches!(&self.memory, Memory::Owned(buffer) if buffer.is_small());
        if !small {
            self.memory = Memory::Owned(Buffer::empty());
        }
        *self.work.get_mut() = None;
        self.prepared = Once::new();
        small
    }

    /// A form of a weight's contents (packed for a kernel), with the key that it was made for, that is made once and kept as long as the contents
    /// stay; `None` when there are too many.
    pub(crate) fn prepared<K, P>(
        &self,
        is_key: impl Fn(&K) -> bool,
        make: impl Fn() -> (K, P),
    ) -> Option<&Arc<(K, P)>>
    where
        K: Send + Sync + 'static,
        P: Send + Sync + 'static,
    {
        let mut at = &self.prepared;
        for _ in 0..MAX_PREPARED {
            let entry = at.get_or(|| {
                let form = Box::new(Arc::new(make()));
                if let Memory::Shared(bytes) = &self.memory {
                    // From now on the prepared form is read, whatever of these `make` released. A mapped record's pages would only fill memory beside it.
                    bytes.release();
                }
                Box::new(Prepared { form, next: Once::new() })
            });
            match entry.form.downcast_ref::<Arc<(K, P)>>() {
                Some(form) if is_key(&form.0) => return Some(form),
                _ => at = &entry.next,
            }
        }
        None
    }

    /// Lets the memory of some bytes go where they can be fetched again.
    pub(crate) fn release(&self, range: Range<usize>) {
        if let Memory::Shared(bytes) = &self.memory
            && let Some(bytes) = bytes.slice(range)
        {
            bytes.release();
        }
    }

    pub(crate) fn slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(match &self.memory {
            Memory::Owned(buffer) => buffer.bytes(),
            Memory::Shared(bytes) => bytes,
            Memory::Deferred(result) => self.computed(result, false).wide().bytes(),
        })
    }

    /// Does the work that waits, if some does, for a convolution that rounds its operands: where it can, it yields rounded numbers.
    pub(crate) fn complete_rounded(&self) {
        if let Memory::Deferred(result) = &self.memory {
            self.computed(result, true);
        }
    }

    /// Whether the contents are held in bf16, or will be if a convolution that rounds its operands is first to read what another one yields.
    pub(crate) fn is_rounded_or_waits(&self) -> bool {
        let Memory::Deferred(result) = &self.memory else { return false };
        match result.get() {
            Some(result) => matches!(result, Computed::Rounded { .. }),
            None => self.work.with(|work| matches!(work, Some(Work::Rounded(_)))),
        }
    }

    /// The contents where they are held in bf16.
    pub(crate) fn rounded(&self) -> Option<&[bf16]> {
        let Memory::Deferred(result) = &self.memory else { return None };
        match self.computed(result, true) {
            Computed::Single(_) => None,
            Computed::Rounded { numbers, .. } => Some(bytemuck::cast_slice(numbers.bytes())),
        }
    }

    /// [`Storage::rounded`], taken out. Then nobody may read them any more.
    pub(crate) fn take_rounded(&mut self) -> Option<Buffer> {
        self.rounded()?;
        match core::mem::replace(&mut self.memory, Memory::Owned(Buffer::empty())) {
            Memory::Deferred(result) => match result.into_inner()? {
                Computed::Rounded { numbers, .. } => Some(numbers),
                Computed::Single(_) => None,
            },
            Memory::Owned(_) | Memory::Shared(_) => None,
        }
    }

    /// The result of the work, which is done if it is not yet; for whoever comes first it is rounded if that is wanted and possible.
    fn computed<'a>(&self, result: &'a Once<Computed>, rounded: bool) -> &'a Computed {
        result.get_or(|| {
            let work = self.work.with(Option::take);
            work.expect("what computes this tensor panicked before").run(rounded)
        })
    }

    /// The memory, once what waited is done.
    fn take_memory(&mut self) -> Memory {
        if let Memory::Deferred(result) = &self.memory {
            self.computed(result, false);
        }
        match core::mem::replace(&mut self.memory, Memory::Owned(Buffer::empty())) {
            Memory::Deferred(result) => {
                Memory::Owned(result.into_inner().expect("a result that was computed").into_wide())
            }
            memory @ (Memory::Owned(_) | Memory::Shared(_)) => memory,
        }
    }

    /// Whether the contents are yet to be computed.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.memory, Memory::Deferred(_)) && self.work.with(|work| work.is_some())
    }

    /// Takes the work of which the contents would be the result, if they are not there and the work is wanted. Then nobody may read them any more.
    pub(crate) fn take_work(&mut self, wanted: impl FnOnce(&Pointwise) -> bool) -> Option<Pointwise> {
        let work = self.work.get_mut();
        match work.take()? {
            Work::Pointwise(points) if wanted(&points) => Some(points),
            other => {
                *work = Some(other);
                None
            }
        }
    }

    /// The owned buffer, to be written: forms that were prepared of the contents go.
    pub(crate) fn buffer_mut(&mut self) -> Option<&mut Buffer> {
        self.prepared = Once::new();
        if matches!(self.memory, Memory::Deferred(_)) {
            self.memory = self.take_memory();
        }
        match &mut self.memory {
            Memory::Owned(buffer) => Some(buffer),
            Memory::Shared(_) | Memory::Deferred(_) => None,
        }
    }

    /// The owned buffer, if it has so many bytes. Then nobody may read the contents any more.
    pub(crate) fn take_buffer(&mut self, bytes: usize) -> Option<Buffer> {
        let buffer = self.buffer_mut().filter(|buffer| buffer.len == bytes)?;
        Some(core::mem::replace(buffer, Buffer::empty()))
    }

    /// Whether the bytes belong to someone else.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.memory, Memory::Shared(_))
    }

    /// Takes the contents out.
    pub(crate) fn take_bytes(&mut self) -> Bytes {
        match self.take_memory() {
            Memory::Owned(buffer) => Bytes::from_owner(buffer),
            Memory::Shared(bytes) => bytes,
            Memory::Deferred(_) => unreachable!("what waited is done"),
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
        let (live, most) = (2 * bytes, RETAINED_LIMIT + 2 * bytes);
        let mut pool = Pool { retained: RETAINED_LIMIT, live, most, ..Pool::new() };
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
