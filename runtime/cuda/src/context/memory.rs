//! Memory of an open device: taken, written, read, given back.

use super::{Context, Part, State, is_awaited, lock};
use crate::driver::{Address, Driver, DriverError, Pending};
use crate::graph::CaptureError;
use crate::memory::{Buffer, Memory};
use crate::statistics::count;
use kiln_gpu::memory::size_class;
use kiln_tensor::backend::ExecutionError;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::thread;

impl Context {
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Memory {
        count(&self.counters.requested_bytes, bytes);
        let size = size_class(bytes);
        let mut state = self.state();
        let of_capture = state.capture.as_mut().and_then(|capture| capture.free.take(size));
        let buffer = of_capture.unwrap_or_else(|| {
            let buffer = self.take(&mut state, size);
            if let Some(capture) = &mut state.capture {
                capture.free.use_new(size);
                capture.scratch.insert(buffer.id());
            }
            buffer
        });
        self.hand_out(&mut state, &buffer);
        drop(state);
        Memory::new(buffer, bytes, self.clone())
    }

    /// Has a buffer lack nothing, whose earlier contents nobody asks for any more. Should a launch that waits turn out not to run, what it loses by that is
    /// not this buffer; and should it read what is lost, it is not run.
    fn hand_out(&self, state: &mut State, buffer: &Buffer) {
        let id = buffer.id();
        if state.is_to_be_written(id) || (state.lost.contains_key(&id) && state.is_awaited(id)) {
            self.launch_waiting(state);
        }
        if buffer.address().is_some() {
            state.lost.remove(&id);
        }
    }

    /// A buffer of a size that nothing written down uses.
    fn take(&self, state: &mut State, size: u64) -> Buffer {
        if let Some(buffer) = state.pool.take(size) {
            return buffer;
        }
        let allocated = self.allocate_anew(state, size);
        state.next_buffer += 1;
        let id = state.next_buffer;
        let address = allocated.map_err(|reason| self.lose(state, [id].into_iter(), &reason)).ok();
        Buffer::new(address, size, id)
    }

    /// Where the buffer is; else why there is none.
    fn allocate_anew(&self, state: &mut State, size: u64) -> Result<Address, Arc<str>> {
        let mut allocated = self.driver.allocate(size);
        if allocated.as_ref().is_err_and(|error| error.is_out_of_memory) {
            // Nothing of the pool is needed any more then.
            self.launch_waiting(state);
            allocated = self.with_memory(state, &[], |driver| driver.allocate(size));
        }
        match allocated {
            Ok(address) => {
                state.pool.use_new(size);
                count(&self.counters.buffers, 1);
                count(&self.counters.buffer_bytes, size as usize);
                Ok(address)
            }
            Err(error) => {
                let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
                let reason = self.reason(&error);
                let held = read(&self.counters.buffer_bytes) - read(&self.counters.released_bytes);
                Err(format!("{reason}, asking for {size} bytes where tensors hold {held}").into())
            }
        }
    }

    /// What the driver is asked for that takes memory; where there is none, once more without what the pool keeps: of that stays what a launch that waits uses, or
    /// one of these parts, which is what it is asked for or follows it.
    pub(super) fn with_memory<T>(
        &self,
        state: &mut State,
        parts: &[Part],
        ask: impl Fn(&dyn Driver) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let lacks =
            |asked: &Result<T, DriverError>| asked.as_ref().is_err_and(|error| error.is_out_of_memory);
        let first = ask(&*self.driver);
        if !lacks(&first) {
            return first;
        }
        // While launches are written down, nothing can be given back.
        if state.capture.is_some() {
            count(&self.lacks, 1);
            return first;
        }
        let State { pool, last, batch, .. } = state;
        let is_part = |id: u64| parts.iter().any(|part| part.id == id);
        let unused = pool.take_unused_but(|buffer| {
            is_part(buffer.id()) || is_awaited(last.as_deref(), batch, buffer.id())
        });
        self.release(state, unused);
        // Where the device failed, so does what is asked for.
        let _ = self.driver.trim();
        let second = ask(&*self.driver);
        count(&self.lacks, lacks(&second).into());
        second
    }

    /// How often there was no memory for something so far.
    pub fn lacks(&self) -> u64 {
        self.lacks.load(Ordering::Relaxed)
    }

    /// Gives buffers back to the driver.
    pub(super) fn release(&self, state: &mut State, buffers: Vec<Buffer>) {
        for buffer in buffers {
            state.lost.remove(&buffer.id());
            count(&self.counters.released_buffers, 1);
            count(&self.counters.released_bytes, buffer.bytes() as usize);
            if let Some(Err(error)) = buffer.address().map(|address| self.driver.free(address)) {
                self.fail(self.reason(&error));
            }
        }
    }

    pub fn upload(self: &Arc<Self>, bytes: &[u8]) -> Memory {
        count(&self.counters.requested_bytes, bytes.len());
        count(&self.counters.uploaded_bytes, bytes.len());
        let mut state = self.state();
        // The kernel that waits may still use the buffer.
        self.launch_waiting(&mut state);
        // The bytes are there once, before all replays: not in memory that what was written down before them writes to.
        let buffer = self.take(&mut state, size_class(bytes.len()));
        self.hand_out(&mut state, &buffer);
        if let Some(address) = buffer.address()
            && let Err(error) = self.driver.upload(address, bytes)
        {
            self.lose(&mut state, [buffer.id()].into_iter(), &self.reason(&error).into());
        }
        let memory = Memory::new(buffer, bytes.len(), self.clone());
        if let Some(capture) = &mut state.capture {
            // Nor is it written to in place by what follows.
            capture.constants.push(memory.clone());
        }
        drop(state);
        memory
    }

    /// A copy of bytes of another device's memory, where the driver copies them from device to device.
    pub fn copy_from(
        self: &Arc<Self>,
        other: &Self,
        (memory, range): &(Memory, Range<usize>),
    ) -> Option<Memory> {
        let copy = self.allocate(range.len());
        let mut states = Self::all(&[self, other]);
        let [own, others] = &mut *states else { return None };
        // A graph holds no copies between devices.
        if own.captures() || others.captures() {
            return None;
        }
        // The kernels that wait may still use the buffers, or are to write them.
        other.launch_waiting(others);
        self.launch_waiting(own);
        let part = other.part(memory)?;
        if others.missing(&[part]).is_some() {
            // Whoever reads it is told why.
            return None;
        }
        let from = Address(part.address?.0 + range.start as u64);
        let to = copy.buffer()?.address()?;
        match self.driver.copy_from(to, &*other.driver, from, range.len()) {
            Ok(copied) => copied.then(|| copy.clone()),
            Err(error) => {
                log::warn!("a copy from {} to {} goes through the host: {error}", other.name, self.name);
                None
            }
        }
    }

    /// The states of several devices, each of which is named once, when no other thread writes down what is asked of one. Nobody waits for one with another's
    /// in hand.
    pub(super) fn all<'a>(contexts: &[&'a Self]) -> Vec<MutexGuard<'a, State>> {
        let mut order: Vec<usize> = (0..contexts.len()).collect();
        order.sort_unstable_by_key(|&place| std::ptr::from_ref(contexts[place]));
        loop {
            contexts.iter().for_each(|context| drop(context.state()));
            let mut states: Vec<_> =
                order.iter().map(|&place| (place, lock(&contexts[place].state))).collect();
            let is_free = |state: &State| {
                state.capture.as_ref().is_none_or(|capture| capture.thread == thread::current().id())
            };
            if states.iter().all(|(_, state)| is_free(state)) {
                states.sort_unstable_by_key(|&(place, _)| place);
                return states.into_iter().map(|(_, state)| state).collect();
            }
        }
    }

    /// Begins to read ranges of bytes.
    pub fn read(&self, parts: &[(Memory, Range<usize>)]) -> Result<Box<dyn Pending>, ExecutionError> {
        let mut state = self.state();
        if state.refuse(CaptureError::Read) {
            return Err(self.error(CaptureError::Read.to_string()));
        }
        self.launch_waiting(&mut state);
        count(&self.counters.waits, 1);
        self.check_there(&state, parts.iter().map(|(memory, _)| memory))?;
        let address = |(memory, range): &(Memory, Range<usize>)| {
            let start = self.part(memory)?.address?.0 + range.start as u64;
            Some((Address(start), range.len()))
        };
        let addresses: Vec<_> = parts.iter().filter_map(address).collect();
        self.driver.download(&addresses).map_err(|error| self.failure_behind(&error))
    }

    /// Has memory that is about to be written as a whole lack nothing, whatever became of what was to write it before.
    pub fn renew(&self, memories: impl Iterator<Item = Memory>) {
        let mut state = self.state();
        if !state.lost.is_empty() {
            self.launch_waiting(&mut state);
            for memory in memories {
                if let Some(buffer) = memory.buffer() {
                    state.lost.remove(&buffer.id());
                }
            }
        }
    }

    /// Refuses memory that does not have what was asked for; where that is not what went wrong first, tells what was.
    fn check_there<'a>(
        &self,
        state: &State,
        memories: impl Iterator<Item = &'a Memory>,
    ) -> Result<(), ExecutionError> {
        let parts: Vec<_> = memories.filter_map(|memory| self.part(memory)).collect();
        match state.missing(&parts) {
            None => Ok(()),
            Some(reason) => {
                self.check()?;
                Err(self.error(reason.to_string()))
            }
        }
    }

    /// [`check_there`](Self::check_there), once what was asked for so far is known to run.
    pub fn check_memory<I: Iterator<Item = Memory>>(
        &self,
        memories: impl FnOnce() -> I,
    ) -> Result<(), ExecutionError> {
        let mut state = self.state();
        self.launch_waiting(&mut state);
        if state.lost.is_empty() {
            return Ok(());
        }
        self.check_there(&state, memories().collect::<Vec<_>>().iter())
    }

    /// What was read.
    pub fn finish(
        &self,
        pending: Result<Box<dyn Pending>, ExecutionError>,
    ) -> Result<Vec<Vec<u8>>, ExecutionError> {
        let read = pending?.wait().map_err(|error| self.reason(&error));
        // What failed before explains why it cannot be read.
        self.check()?;
        read.map_err(|reason| self.error(reason))
    }

    pub(super) fn failure_behind(&self, error: &DriverError) -> ExecutionError {
        let reason = self.reason(error);
        match self.check() {
            Err(earlier) => earlier,
            Ok(()) => self.error(reason),
        }
    }

    /// Waits until everything has run.
    pub fn sync(&self) -> Result<(), ExecutionError> {
        let mut state = self.state();
        if state.refuse(CaptureError::Read) {
            return Err(self.error(CaptureError::Read.to_string()));
        }
        self.launch_waiting(&mut state);
        count(&self.counters.waits, 1);
        // Nobody may wait for a device that writes launches down, which other threads may have it do from here on. For what was asked for before, one may.
        let begun = self.driver.download(&[]);
        drop(state);
        let waited = begun.and_then(Pending::wait).map_err(|error| self.reason(&error));
        self.check()?;
        waited.map(drop).map_err(|reason| self.error(reason))
    }
}
