//! Memory of tensors: from the pool, and back to the system.

use super::{Context, State, lock};
use crate::memory::{Buffer, Memory};
use crate::read;
use crate::statistics::count;
use kiln_gpu::memory::{Owner, size_class_within};
use rustc_hash::FxHashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bind groups that are kept: those of many forward passes of large networks.
const MOST_BIND_GROUPS: usize = 16_384;
/// Bytes that are uploaded at once, a multiple of 4: a write keeps its bytes in memory of its own until the next submission.
const MOST_UPLOADED: usize = 64 << 20;

impl Context {
    /// Why something cannot run that uses these: there is no memory for one of them, or what computes it did not run.
    pub(super) fn missing<'a>(
        &self,
        state: &State,
        memories: impl IntoIterator<Item = &'a Memory>,
    ) -> Option<Arc<str>> {
        memories.into_iter().find_map(|memory| match memory.buffer() {
            Some(_) if !memory.is_of(self) => Some(
                "a tensor was lost with its device, which was opened anew since, or is on another device"
                    .into(),
            ),
            Some(buffer) => state.lost.get(&buffer.id).cloned(),
            // Only while it is dropped.
            None => None,
        })
    }

    /// [`missing`](Self::missing), once what was asked for so far is known to run.
    pub fn why_unreadable<'a>(&self, memories: impl IntoIterator<Item = &'a Memory>) -> Option<Arc<str>> {
        let state = &mut *lock(&self.state);
        self.submit_pending(state);
        self.missing(state, memories)
    }

    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Memory {
        let class = size_class_within(bytes, self.largest);
        count(&self.counters.requested_bytes, bytes);
        let mut state = lock(&self.state);
        let buffer = match state.pool.take(class) {
            Some(buffer) => {
                // A kernel that was to write it before may have been refused since, or may be yet: what it loses by that is not this buffer.
                if state.last.template.is_some() && state.last.writes.0 == buffer.id {
                    self.record_last(&mut state);
                }
                state.lost.remove(&buffer.id);
                buffer
            }
            None => self.new_buffer(&mut state, class),
        };
        drop(state);
        Memory::new(buffer, bytes, self.clone())
    }

    /// A buffer, and why it is none, if it is. Where the device has no memory left, it is made in place of what is of no use now.
    fn make_buffer(
        &self,
        state: &mut State,
        size: u64,
        usage: wgpu::BufferUsages,
    ) -> (wgpu::Buffer, Option<String>) {
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let create = || self.made(|| self.device.create_buffer(&descriptor));
        let made = create();
        if made.1.is_none() {
            return made;
        }
        let unused = state.pool.take_unused();
        // What is recorded may use them yet, and so may the device until it is done.
        self.submit_pending(state);
        self.submit_uploads(state);
        self.release(state, unused);
        if read::poll(&self.device).is_ok() { create() } else { made }
    }

    /// A buffer that parts of others are copied into, for the CPU to read; else why there is none.
    pub fn staging(&self, size: u64) -> Result<wgpu::Buffer, String> {
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
        let (buffer, error) = self.make_buffer(&mut lock(&self.state), size, usage);
        let reason = |error| format!("there is no memory of {size} bytes to read tensors by: {error}");
        error.map_or(Ok(buffer), |error| Err(reason(error)))
    }

    /// A buffer that the pool does not have. Where there is no memory for it, it is none, and those who read or wait are told.
    fn new_buffer(&self, state: &mut State, size: u64) -> Buffer {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let (raw, error) = self.make_buffer(state, size, usage);
        // Other contexts name their buffers otherwise: a tensor may outlive the device that it was on.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        match &error {
            None => {
                count(&self.counters.buffers, 1);
                count(&self.counters.buffer_bytes, size as usize);
                state.pool.use_new(size);
                state.buffers.insert(id, raw.clone());
            }
            Some(error) => {
                let reason = format!("there is no memory of {size} bytes for a tensor: {error}").into();
                self.lose(state, [id].into_iter(), &reason);
            }
        }
        Buffer { raw, id, is_usable: error.is_none() }
    }

    pub fn upload(self: &Arc<Self>, bytes: &[u8]) -> Memory {
        let memory = self.allocate(bytes.len());
        let state = &mut *lock(&self.state);
        // A write overtakes kernels that are recorded but not submitted, and they may still use the buffer.
        self.submit_pending(state);
        count(&self.counters.uploaded_bytes, bytes.len());
        if let Some(buffer) = memory.buffer().filter(|buffer| buffer.is_usable) {
            for (at, piece) in (0..).step_by(MOST_UPLOADED).zip(bytes.chunks(MOST_UPLOADED)) {
                let (whole, rest) = piece.split_at(piece.len() / 4 * 4);
                if !whole.is_empty() {
                    self.queue.write_buffer(&buffer.raw, at, whole);
                }
                if !rest.is_empty() {
                    let mut word = [0; 4];
                    word[..rest.len()].copy_from_slice(rest);
                    self.queue.write_buffer(&buffer.raw, at + whole.len() as u64, &word);
                }
                state.uploaded += piece.len();
                if state.uploaded >= MOST_UPLOADED {
                    self.submit_uploads(state);
                }
            }
        }
        memory
    }

    /// Has the device take what was uploaded, which is in memory twice until then.
    fn submit_uploads(&self, state: &mut State) {
        self.queue.submit([]);
        state.uploaded = 0;
    }

    /// Gives buffers back to the system that were of no use for long, and bind groups of such buffers.
    pub(super) fn release_unused(&self, state: &mut State) {
        let released = state.pool.release_unused(|_| false);
        self.release(state, released);
        if state.bind_groups.iter().map(FxHashMap::len).sum::<usize>() > MOST_BIND_GROUPS {
            // What is needed again is made again.
            state.retain_bind_groups(&self.counters, |_| false);
        }
    }

    /// Gives buffers back to the system, and their bind groups.
    fn release(&self, state: &mut State, released: Vec<Buffer>) {
        if !released.is_empty() {
            count(&self.counters.released_buffers, released.len());
            count(
                &self.counters.released_bytes,
                released.iter().map(|buffer| buffer.raw.size() as usize).sum(),
            );
            let gone: HashSet<u64> = released.iter().map(|buffer| buffer.id).collect();
            state.buffers.retain(|id, _| !gone.contains(id));
            // A bind group keeps its buffers.
            state.retain_bind_groups(&self.counters, |parts| {
                !parts.iter().any(|part| gone.contains(&part.id))
            });
            // All that used them is submitted. A browser would keep them until it looks for what nothing refers to.
            released.iter().for_each(|buffer| buffer.raw.destroy());
        }
    }
}

impl Owner<Buffer> for Context {
    fn give_back(&self, buffer: Buffer) {
        let mut state = lock(&self.state);
        // Whoever gets it next lacks nothing.
        state.lost.remove(&buffer.id);
        state.pool.put(buffer);
    }
}

#[cfg(test)]
mod tests {
    use crate::context::{Context, lock};
    use crate::device::{WgpuDevice, open};
    use kiln_gpu::promise::block_on;
    use std::sync::Arc;

    impl Context {
        /// Whether a buffer was given back to the system, whoever refers to it yet.
        pub(crate) fn is_destroyed(&self, buffer: &wgpu::Buffer) -> bool {
            let (_, error) = self.made(|| {
                let mut encoder =
                    self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                if buffer.usage().contains(wgpu::BufferUsages::MAP_READ) {
                    buffer.unmap();
                }
                encoder.clear_buffer(buffer, 0, Some(4));
                self.queue.submit([encoder.finish()]);
            });
            error.is_some_and(|error| error.contains("destroyed"))
        }
    }

    #[test]
    fn buffers_that_are_given_back_are_destroyed() {
        let context = Arc::new(block_on(open(&WgpuDevice::default())).expect("a device"));
        let memory = context.upload(&[1, 2, 3, 4]);
        let raw = memory.buffer().expect("a buffer").raw.clone();
        let give_back = || {
            let state = &mut *lock(&context.state);
            let unused = state.pool.take_unused();
            context.release(state, unused);
        };
        give_back();
        assert!(!context.is_destroyed(&raw), "it is in use");
        drop(memory);
        assert!(!context.is_destroyed(&raw), "it is in the pool");
        give_back();
        assert!(context.is_destroyed(&raw));
        context.check().expect("nothing went wrong");
    }
}
