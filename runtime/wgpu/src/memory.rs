//! Memory from a pool of whole buffers, by size.

use crate::context::Context;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of a tensor, or a part of it; the last clone that is dropped gives it back to the pool.
#[derive(Clone)]
pub struct Memory {
    pub(crate) block: Arc<Block>,
    /// Which bytes of the block's buffer it is.
    pub(crate) range: Range<usize>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.range.len())
    }
}

/// A buffer that is in use.
pub(crate) struct Block {
    /// The buffer; only gone while it is dropped.
    buffer: Option<Buffer>,
    context: Arc<Context>,
    /// What was made of its contents, and what that is.
    derived: Mutex<Option<(DerivedKey, Memory)>>,
}

/// Where in a block something begins of which something else was made, and what.
type DerivedKey = (usize, [usize; 4]);

impl Block {
    pub fn new(buffer: Buffer, context: Arc<Context>) -> Self {
        Self { buffer: Some(buffer), context, derived: Mutex::default() }
    }

    /// What was made of the contents; made anew where there is none, or another.
    pub fn derived(&self, key: DerivedKey, make: impl FnOnce() -> Memory) -> Memory {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        match &*derived {
            Some((known, memory)) if *known == key => memory.clone(),
            _ => derived.insert((key, make())).1.clone(),
        }
    }

    /// Forgets what was made of contents that are about to change.
    pub fn forget_derived(&mut self) {
        *self.derived.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub fn buffer(&self) -> Option<&Buffer> {
        self.buffer.as_ref()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.context.give_back(buffer);
        }
    }
}

/// A buffer of the device.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub raw: wgpu::Buffer,
    /// Names it within its device for good.
    pub id: u64,
}

/// Submissions after which a buffer that nobody took since goes back to the system.
const LONGEST_UNUSED: u64 = 512;
/// Bytes of free buffers that are kept in any case.
const LEAST_KEPT: u64 = 64 << 20;
/// How many times as many bytes may be free as were in use at most: the tensors of a forward pass are not all there at once, and their
/// sizes differ.
const MOST_KEPT: u64 = 4;

/// Buffers that wait to be used again. Kernels run in the order in which they are asked for, so a buffer may go to its next
/// user before the kernels of the last have run. The oldest buffer goes first: a forward pass that starts with the same buffers
/// free takes the same ones again, and their bind groups serve again.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// By size, then by id, with the submission before which they were last in use.
    free: HashMap<u64, BTreeMap<u64, (Buffer, u64)>>,
    free_bytes: u64,
    used_bytes: u64,
    most_used_bytes: u64,
    /// Submissions so far.
    now: u64,
}

impl Pool {
    /// The size of the buffers that serve a request: at most a quarter more than it, so that few sizes serve many.
    pub fn class(bytes: usize) -> u64 {
        let bytes = bytes.max(256) as u64;
        let step = 1 << (bytes.ilog2() - 2);
        bytes.div_ceil(step) * step
    }

    /// A buffer for use. Where there is none the caller makes one, which is counted as in use too.
    pub fn take(&mut self, class: u64) -> Option<Buffer> {
        self.used_bytes += class;
        self.most_used_bytes = self.most_used_bytes.max(self.used_bytes);
        let (_, (buffer, _)) = self.free.get_mut(&class)?.pop_first()?;
        self.free_bytes -= class;
        Some(buffer)
    }

    pub fn put(&mut self, buffer: Buffer) {
        let size = buffer.raw.size();
        self.used_bytes -= size;
        self.free_bytes += size;
        self.free.entry(size).or_default().insert(buffer.id, (buffer, self.now));
    }

    /// Takes out what was free for long, and what is more than a forward pass may need, longest unused first; called once a
    /// submission.
    pub fn release_unused(&mut self) -> Vec<Buffer> {
        self.now += 1;
        let most = LEAST_KEPT + MOST_KEPT * self.most_used_bytes;
        let mut excess = self.free_bytes.saturating_sub(most);
        // Looking through all of them now and then is enough.
        if excess == 0 && !self.now.is_multiple_of(LONGEST_UNUSED / 8) {
            return Vec::new();
        }
        let each = |(&size, buffers): (&u64, &BTreeMap<u64, (Buffer, u64)>)| {
            buffers.iter().map(|(&id, &(_, since))| (since, id, size)).collect::<Vec<_>>()
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
            released.extend(
                self.free.get_mut(&size).and_then(|buffers| buffers.remove(&id)).map(|(buffer, _)| buffer),
            );
        }
        self.free.retain(|_, buffers| !buffers.is_empty());
        released
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;

    #[test]
    fn classes_hold_what_is_asked_for() {
        for bytes in [0, 1, 255, 256, 257, 1000, 4096, 4097, 1 << 20, (1 << 27) - 3] {
            let class = Pool::class(bytes);
            assert!(class >= bytes as u64 && class.is_multiple_of(4), "{bytes}: {class}");
            assert!(bytes < 256 || class <= (bytes + bytes / 4 + 4) as u64, "{bytes}: {class}");
        }
    }
}
