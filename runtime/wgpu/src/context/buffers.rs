//! Memory of tensors: from the pool, and back to the system.

use super::{Context, State, lock};
use crate::memory::{Buffer, Memory};
use crate::read;
use crate::statistics::count;
use kiln_gpu::memory::{Owner, size_class};
use rustc_hash::FxHashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bind groups that are kept: those of many forward passes of large networks.
const MOST_BIND_GROUPS: usize = 16_384;

impl Context {
    /// The buffer that memory is in; where there is none, those who read or wait are told why.
    pub fn buffer<'a>(&self, memory: &'a Memory) -> Option<&'a Buffer> {
        let reason = match memory.buffer() {
            Some(_) if !memory.is_of(self) => {
                "a tensor was lost with its device, which was opened anew since"
            }
            Some(buffer) if buffer.is_usable => return Some(buffer),
            Some(_) | None => "there was no memory for a tensor when it was made",
        };
        self.fail(|| reason.to_owned());
        None
    }

    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Memory {
        let class = size_class(bytes);
        count(&self.counters.requested_bytes, bytes);
        let mut state = lock(&self.state);
        let buffer = match state.pool.take(class) {
            Some(buffer) => buffer,
            None => self.new_buffer(&mut state, class),
        };
        drop(state);
        Memory::new(buffer, bytes, self.clone())
    }

    /// A buffer that the pool does not have. Where the device has no memory left, it is made in place of what is of no use now; where
    /// that does not help, the buffer is none, and those who read or wait are told.
    fn new_buffer(&self, state: &mut State, size: u64) -> Buffer {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let create = || self.made(|| self.device.create_buffer(&descriptor));
        let (mut raw, mut error) = create();
        if error.is_some() {
            let unused = state.pool.take_unused();
            // What is recorded may use them yet, and so may the device until it is done.
            self.submit_pending(state);
            self.release(state, unused);
            if read::poll(&self.device).is_ok() {
                (raw, error) = create();
            }
        }
        match &error {
            None => {
                count(&self.counters.buffers, 1);
                count(&self.counters.buffer_bytes, size as usize);
                state.pool.use_new(size);
            }
            Some(error) => self.fail(|| format!("there is no memory of {size} bytes for a tensor: {error}")),
        }
        // Other contexts name their buffers otherwise: a tensor may outlive the device that it was on.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        if error.is_none() {
            state.buffers.insert(id, raw.clone());
        }
        Buffer { raw, id, is_usable: error.is_none() }
    }

    pub fn upload(self: &Arc<Self>, bytes: &[u8]) -> Memory {
        let memory = self.allocate(bytes.len());
        // A write overtakes kernels that are recorded but not submitted, and they may still use the buffer.
        self.submit();
        count(&self.counters.uploaded_bytes, bytes.len());
        if let Some(buffer) = self.buffer(&memory) {
            let whole = bytes.len() / 4 * 4;
            let (whole, rest) = bytes.split_at(whole);
            if !whole.is_empty() {
                self.queue.write_buffer(&buffer.raw, 0, whole);
            }
            if !rest.is_empty() {
                let mut word = [0; 4];
                word[..rest.len()].copy_from_slice(rest);
                self.queue.write_buffer(&buffer.raw, whole.len() as u64, &word);
            }
        }
        memory
    }

    /// Gives buffers back to the system that were of no use for long, and bind groups of such buffers.
    pub(super) fn release_unused(&self, state: &mut State) {
        let released = state.pool.release_unused();
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
        }
    }
}

impl Owner<Buffer> for Context {
    fn give_back(&self, buffer: Buffer) {
        lock(&self.state).pool.put(buffer);
    }
}
