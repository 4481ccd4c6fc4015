//! Counted memory from a pool of whole buffers, by size.

use crate::runtime::Derived;
use rustc_hash::FxHashMap;
use std::fmt::{self, Debug};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A buffer of a device.
pub trait Buffer: Debug + Send + Sync + 'static {
    /// How large it is.
    fn bytes(&self) -> u64;

    /// Names it within its device for good.
    fn id(&self) -> u64;

    /// Whether it is memory at all: not where the device had none.
    fn is_usable(&self) -> bool;
}

/// Where buffers come from.
pub trait Owner<B>: Send + Sync {
    /// Takes a buffer back that nobody uses any more.
    fn give_back(&self, buffer: B);

    /// Which of the owner's graphs this thread writes down, if it does: what it makes then is there when that runs, not before.
    fn graph(&self) -> Option<u64> {
        None
    }
}

/// Memory of a tensor, or a part of it; the last clone that is dropped gives it back to its owner.
pub struct Memory<B: Buffer> {
    block: Arc<Block<B>>,
    range: Range<usize>,
}

impl<B: Buffer> Clone for Memory<B> {
    fn clone(&self) -> Self {
        Self { block: self.block.clone(), range: self.range.clone() }
    }
}

impl<B: Buffer> Debug for Memory<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.range.len())
    }
}

/// Memory that somebody else may hold.
#[derive(Debug)]
pub struct WeakMemory<B: Buffer> {
    block: Weak<Block<B>>,
    range: Range<usize>,
}

impl<B: Buffer> WeakMemory<B> {
    /// The memory, while somebody holds it.
    pub fn upgrade(&self) -> Option<Memory<B>> {
        let block = self.block.upgrade()?;
        Some(Memory { block, range: self.range.clone() })
    }
}

/// A buffer that is in use.
struct Block<B: Buffer> {
    /// The buffer; only gone while it is dropped.
    buffer: Option<B>,
    owner: Arc<dyn Owner<B>>,
    /// What was made of its contents. Not locked while something is made: that may wait for another thread, which makes something of
    /// the same block.
    derived: Mutex<Derivation<B>>,
}

/// What was made of the contents of a block.
struct Derivation<B: Buffer> {
    known: Option<Box<Kept<B>>>,
    /// How often it was forgotten.
    forgotten: u64,
}

impl<B: Buffer> Default for Derivation<B> {
    fn default() -> Self {
        Self { known: None, forgotten: 0 }
    }
}

/// What was made of the contents of a block: from where in it on, and what; in which graph, if it is made there each time.
struct Kept<B: Buffer> {
    from: usize,
    what: Derived,
    graph: Option<u64>,
    memory: Memory<B>,
}

impl<B: Buffer> Drop for Block<B> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.owner.give_back(buffer);
        }
    }
}

impl<B: Buffer> Memory<B> {
    /// The first `bytes` of a buffer.
    pub fn new(buffer: B, bytes: usize, owner: Arc<dyn Owner<B>>) -> Self {
        let block = Block { buffer: Some(buffer), owner, derived: Mutex::default() };
        Self { block: Arc::new(block), range: 0..bytes }
    }

    /// The buffer that it is a part of.
    pub fn buffer(&self) -> Option<&B> {
        self.block.buffer.as_ref()
    }

    /// The same without holding it.
    pub fn downgrade(&self) -> WeakMemory<B> {
        WeakMemory { block: Arc::downgrade(&self.block), range: self.range.clone() }
    }

    /// Which bytes of the buffer it is.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// A part of it, which it shares.
    pub fn window(&self, range: Range<usize>) -> Self {
        let start = self.range.start;
        Self { block: self.block.clone(), range: start + range.start..start + range.end }
    }

    /// Whether it comes from an owner.
    pub fn is_of<O: Owner<B>>(&self, owner: &O) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.block.owner), owner)
    }

    /// Whether nobody else holds the buffer, so that it may be written to: what was made of its contents is forgotten.
    pub fn is_unique(&mut self) -> bool {
        let Some(block) = Arc::get_mut(&mut self.block) else { return false };
        block.derived.get_mut().unwrap_or_else(PoisonError::into_inner).known = None;
        true
    }

    /// Forgets what was made of the contents: they change.
    pub fn forget_derived(&self) {
        let mut derived = self.block.derived.lock().unwrap_or_else(PoisonError::into_inner);
        derived.forgotten += 1;
        let forgotten = derived.known.take();
        // It may be the last to hold memory, which goes back to the owner.
        drop(derived);
        drop(forgotten);
    }

    /// What was made of the contents; made anew where there is none, or another. What is made while a graph is written down is known to that
    /// graph alone.
    pub fn derived(&self, what: Derived, make: impl FnOnce() -> Self) -> Self {
        let lock = || self.block.derived.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, graph) = (self.range.start, self.block.owner.graph());
        let is_it = |known: &Kept<B>| {
            (known.from, known.what) == (from, what) && (known.graph.is_none() || known.graph == graph)
        };
        let derived = lock();
        if let Some(known) = derived.known.as_ref().filter(|known| is_it(known)) {
            return known.memory.clone();
        }
        let forgotten = derived.forgotten;
        drop(derived);
        let memory = make();
        let new = Box::new(Kept { from, what, graph, memory: memory.clone() });
        let mut derived = lock();
        // Else the contents may be others than those of which it was made.
        let replaced = if derived.forgotten == forgotten { derived.known.replace(new) } else { Some(new) };
        // It may be the last to hold memory, which goes back to the owner.
        drop(derived);
        drop(replaced);
        memory
    }
}

/// Rounds of work after which a buffer that nobody took since goes back to the system, and what was in use is forgotten.
const LONGEST_UNUSED: u64 = 512;
/// Bytes of free buffers that are kept in any case.
const LEAST_KEPT: u64 = 64 << 20;
/// How many times as many bytes may be free as were in use at most: the tensors of a forward pass are not all there at once, and their
/// sizes differ.
const MOST_KEPT: u64 = 4;

/// Buffers that wait to be used again. Kernels run in the order in which they are asked for, so a buffer may go to its next
/// user before the kernels of the last have run. The oldest buffer goes first: a forward pass that starts with the same buffers
/// free takes the same ones again, and what was made for them serves again.
#[derive(Debug)]
pub struct Pool<B> {
    /// By size, the oldest last.
    free: FxHashMap<u64, Vec<Free<B>>>,
    free_bytes: u64,
    used_bytes: u64,
    /// The most bytes that were in use at once in the last [`LONGEST_UNUSED`] rounds or fewer, and in as many before them.
    most_used_bytes: [u64; 2],
    /// Rounds so far.
    now: u64,
}

/// A buffer that waits.
#[derive(Debug)]
struct Free<B> {
    /// The buffer's: those that were made first have the least.
    id: u64,
    /// The round before which it was last in use.
    since: u64,
    buffer: B,
}

impl<B> Default for Pool<B> {
    fn default() -> Self {
        Self { free: FxHashMap::default(), free_bytes: 0, used_bytes: 0, most_used_bytes: [0; 2], now: 0 }
    }
}

/// The size of the buffers that serve a request: at most a quarter more than it, so that few sizes serve many.
pub fn size_class(bytes: usize) -> u64 {
    let bytes = bytes.max(256) as u64;
    let step = 1 << (bytes.ilog2() - 2);
    bytes.div_ceil(step) * step
}

/// Likewise where a buffer has at most `largest` bytes: what fits one is not made too large for it.
pub fn size_class_within(bytes: usize, largest: u64) -> u64 {
    size_class(bytes).min((largest / 4 * 4).max(bytes.next_multiple_of(4) as u64))
}

impl<B: Buffer> Pool<B> {
    /// A buffer of a [size](size_class) for use. Where there is none the caller makes one, and [says so](Self::use_new).
    pub fn take(&mut self, size: u64) -> Option<B> {
        let Free { buffer, .. } = self.free.get_mut(&size)?.pop()?;
        self.free_bytes -= size;
        self.use_new(size);
        Some(buffer)
    }

    /// Counts a buffer as in use: one that the pool had, or that the caller has made.
    pub fn use_new(&mut self, size: u64) {
        self.used_bytes += size;
        let [recent, _] = &mut self.most_used_bytes;
        *recent = self.used_bytes.max(*recent);
    }

    /// Takes a buffer back, if it is of use.
    pub fn put(&mut self, buffer: B) {
        if !buffer.is_usable() {
            return;
        }
        let size = buffer.bytes();
        self.used_bytes -= size;
        self.free_bytes += size;
        let (id, since) = (buffer.id(), self.now);
        let free = self.free.entry(size).or_default();
        let place = free.partition_point(|younger| younger.id > id);
        free.insert(place, Free { id, since, buffer });
    }

    /// Takes out what was free for long, and what is more than a forward pass may need, longest unused first; called once a
    /// round of work. What is awaited (work that was not handed to the device yet uses it) stays.
    pub fn release_unused(&mut self, is_awaited: impl Fn(&B) -> bool) -> Vec<B> {
        self.now += 1;
        let [recent, before] = self.most_used_bytes;
        let most = LEAST_KEPT + MOST_KEPT * recent.max(before);
        if self.now.is_multiple_of(LONGEST_UNUSED) {
            self.most_used_bytes = [self.used_bytes, recent];
        }
        let mut excess = self.free_bytes.saturating_sub(most);
        // Looking through all of them now and then is enough.
        if excess == 0 && !self.now.is_multiple_of(LONGEST_UNUSED / 8) {
            return Vec::new();
        }
        let each = |(&size, free): (&u64, &Vec<Free<B>>)| {
            let there = free.iter().filter(|free| !is_awaited(&free.buffer));
            there.map(|free| (free.since, free.id, size)).collect::<Vec<_>>()
        };
        let mut oldest: Vec<(u64, u64, u64)> = self.free.iter().flat_map(each).collect();
        oldest.sort_unstable();
        let mut released = Vec::new();
        for (since, id, size) in oldest {
            if excess == 0 && since + LONGEST_UNUSED > self.now {
                break;
            }
            excess = excess.saturating_sub(size);
            self.free_bytes -= size;
            if let Some(free) = self.free.get_mut(&size)
                && let Some(place) = free.iter().position(|free| free.id == id)
            {
                released.push(free.remove(place).buffer);
            }
        }
        self.free.retain(|_, free| !free.is_empty());
        released
    }

    /// Takes out all that nobody uses: where the device has no more memory.
    pub fn take_unused(&mut self) -> Vec<B> {
        self.take_unused_but(|_| false)
    }

    /// Likewise all but what is awaited, as in [`release_unused`](Self::release_unused).
    pub fn take_unused_but(&mut self, is_awaited: impl Fn(&B) -> bool) -> Vec<B> {
        let free = self.free.values_mut();
        let taken: Vec<Free<B>> =
            free.flat_map(|free| free.extract_if(.., |free| !is_awaited(&free.buffer))).collect();
        self.free.retain(|_, free| !free.is_empty());
        self.free_bytes -= taken.iter().map(|free| free.buffer.bytes()).sum::<u64>();
        taken.into_iter().map(|free| free.buffer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Buffer, LONGEST_UNUSED, Memory, Owner, Pool, size_class, size_class_within};
    use crate::runtime::{Derived, Order};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    #[derive(Debug)]
    struct Numbered(u64);

    impl Buffer for Numbered {
        fn bytes(&self) -> u64 {
            256
        }

        fn id(&self) -> u64 {
            self.0
        }

        fn is_usable(&self) -> bool {
            true
        }
    }

    struct Nobody;

    impl Owner<Numbered> for Nobody {
        fn give_back(&self, _buffer: Numbered) {}
    }

    fn memory(id: u64) -> Memory<Numbered> {
        Memory::new(Numbered(id), 256, Arc::new(Nobody))
    }

    fn id(memory: &Memory<Numbered>) -> u64 {
        memory.buffer().map_or(0, Buffer::id)
    }

    const TURNED: Derived = Derived { order: Order::ChannelsLast, sizes: [0; 4] };

    /// Who makes something of memory may have to wait for a thread that makes the same.
    #[test]
    fn two_threads_make_the_same_of_memory() {
        let weight = memory(1);
        let (made, is_made) = mpsc::channel();
        let other = weight.clone();
        std::thread::spawn(move || {
            let turned = other.clone().derived(TURNED, || {
                let (inner, is_inner) = mpsc::channel();
                std::thread::spawn(move || inner.send(id(&other.derived(TURNED, || memory(2)))));
                assert_eq!(is_inner.recv_timeout(Duration::from_secs(10)), Ok(2));
                memory(3)
            });
            made.send(id(&turned)).unwrap();
        });
        assert_eq!(is_made.recv_timeout(Duration::from_secs(20)), Ok(3));
        assert!([2, 3].contains(&id(&weight.derived(TURNED, || memory(4)))));
    }

    /// What was made of contents that changed meanwhile is not kept.
    #[test]
    fn what_was_made_of_earlier_contents_is_forgotten() {
        let weight = memory(1);
        let turned = weight.derived(TURNED, || {
            weight.forget_derived();
            memory(2)
        });
        assert_eq!(id(&turned), 2);
        assert_eq!(id(&weight.derived(TURNED, || memory(3))), 3);
        assert_eq!(id(&weight.derived(TURNED, || memory(4))), 3);
    }

    /// Its number and its bytes.
    #[derive(Debug)]
    struct Sized(u64, u64);

    impl Buffer for Sized {
        fn bytes(&self) -> u64 {
            self.1
        }

        fn id(&self) -> u64 {
            self.0
        }

        fn is_usable(&self) -> bool {
            true
        }
    }

    /// Of eight buffers that were in use together once, and are one after another since, as many stay as may be free beside one.
    #[test]
    fn what_was_in_use_long_ago_keeps_nothing() {
        let mut pool = Pool::default();
        let sizes: Vec<u64> = (0..8).map(|n| (1 << 30) + 256 * n).collect();
        sizes.iter().for_each(|&size| pool.use_new(size));
        (0..).zip(&sizes).for_each(|(id, &size)| pool.put(Sized(id, size)));
        let mut rounds = |count: u64| -> usize {
            let round = |_| {
                for &size in &sizes {
                    if let Some(buffer) = pool.take(size) {
                        pool.put(buffer);
                    }
                }
                pool.release_unused(|_| false).len()
            };
            (0..count).map(round).sum()
        };
        assert_eq!(rounds(LONGEST_UNUSED), 0);
        assert_eq!(rounds(LONGEST_UNUSED + 1), 4);
        assert_eq!(rounds(LONGEST_UNUSED), 0);
    }

    #[test]
    fn classes_fit_the_largest_buffer() {
        let largest = i32::MAX as u64;
        assert_eq!(size_class_within(1_900_000_000, largest), largest / 4 * 4);
        for bytes in [0, 1, 1000, 1 << 20, 1_700_000_000] {
            assert_eq!(size_class_within(bytes, largest), size_class(bytes));
        }
        // What does not fit is asked for as it is, and refused.
        assert_eq!(size_class_within(3 << 30, largest), 3 << 30);
    }

    #[test]
    fn classes_hold_what_is_asked_for() {
        for bytes in [0, 1, 255, 256, 257, 1000, 4096, 4097, 1 << 20, (1 << 27) - 3] {
            let class = size_class(bytes);
            assert!(class >= bytes as u64 && class.is_multiple_of(4), "{bytes}: {class}");
            assert!(bytes < 256 || class <= (bytes + bytes / 4 + 4) as u64, "{bytes}: {class}");
        }
    }
}
