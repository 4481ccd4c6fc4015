//! Kernels that run on an open device, and the last that waits for more to do.

use super::capture::NEVER_RUN;
use super::compile::Kernel;
use super::{COUNTERS, Context, LIMITS, Part, State, is_awaited};
use crate::batch::Waits;
use crate::driver::{Address, DriverError, KernelLaunch};
use crate::kernel::{CudaKernel, KernelError};
use crate::memory::{Buffer, Memory};
use crate::runtime::CudaRuntime;
use crate::statistics::count;
use kiln_gpu::kernels::Template;
use kiln_gpu::language::{Atomic, cuda};
use kiln_gpu::runtime::{self, Amendment, Instead, Launch};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Launches after which memory that nobody needs is looked for.
const ROUND: u64 = 256;

/// What a kernel sees of its buffers.
type Parts = SmallVec<[Part; 8]>;
/// What a kernel is told beside them.
type Words = SmallVec<[u32; 24]>;

/// A launch that waits: for more to do, or for others of its kind.
pub(crate) struct Waiting {
    pub template: Template,
    parts: Parts,
    parameters: Words,
    blocks: [u32; 3],
    /// The buffer of which it writes all elements, one after another, and how many these are.
    writes: Option<(u64, usize)>,
    /// Buffers that somebody else may not have before it is launched, or waits with others.
    held: Vec<Buffer>,
}

impl Waiting {
    /// Whether a buffer is one of its own.
    pub fn uses(&self, buffer: u64) -> bool {
        self.parts.iter().any(|part| part.id == buffer)
    }

    /// The buffers that it writes to.
    fn written(&self) -> impl Iterator<Item = u64> {
        self.template.written(self.parts.iter().map(|part| part.id))
    }

    pub fn template(&self) -> &Template {
        &self.template
    }

    /// Whether a buffer is the one of which it writes all elements.
    pub fn writes_all_of(&self, buffer: u64) -> bool {
        self.writes.is_some_and(|(written, _)| written == buffer)
    }

    /// Whether it writes to a buffer, as its kernel says; that is made to ask it, where it is not known.
    pub(super) fn writes(&self, buffer: u64, kernel: Option<&Result<Arc<Kernel>, Arc<str>>>) -> bool {
        match kernel {
            Some(Ok(kernel)) => written_by(kernel, &self.parts).any(|written| written == buffer),
            Some(Err(_)) | None => self.written().any(|written| written == buffer),
        }
    }

    /// Keeps a buffer of its own that nobody else uses any more.
    pub fn hold(&mut self, buffer: Buffer) {
        self.held.push(buffer);
    }

    /// Whether a launch that reads and writes such buffers does the same before it as behind it.
    fn is_independent_of(&self, read: &[u64], written: &[u64]) -> bool {
        // What else writes to one of several buffers is not told.
        let only_reads = |id: u64| {
            matches!(self.template, Template::Elementwise(_))
                && self.writes.is_some_and(|(written, _)| written != id)
        };
        !written.iter().any(|&id| self.uses(id)) && read.iter().all(|&id| !self.uses(id) || only_reads(id))
    }
}

impl Context {
    /// Records a kernel.
    ///
    /// # Panics
    /// When the grid is larger than devices take.
    pub fn record(&self, launch: Launch<'_, CudaRuntime>) {
        let Launch { template, buffers, parameters, groups, moved, writes_all_of } = launch;
        count(&self.counters.moved_bytes, moved);
        assert!(
            groups.iter().all(|&groups| groups <= LIMITS.groups),
            "a grid of {groups:?} blocks, of which {} takes {} along each axis",
            self.name,
            LIMITS.groups
        );
        let mut state = self.state();
        let parts: Parts = buffers.iter().filter_map(|memory| self.part(memory)).collect();
        let writes =
            writes_all_of.and_then(|(output, elements)| parts.get(output).map(|part| (part.id, elements)));
        let parameters = Words::from_slice(parameters);
        let launch = Waiting { template, parts, parameters, blocks: groups, writes, held: Vec::new() };
        if state.given_up().is_some() {
            state.lost.extend(launch.written().map(|buffer| (buffer, NEVER_RUN.into())));
            return;
        }
        if let Some(reason) = state.missing(&launch.parts) {
            self.lose(&mut state, launch.written(), &reason);
            return;
        }
        let launch = Box::new(launch);
        let (template, parts) = (&launch.template, &launch.parts);
        state.reserve(parts.iter().map(|part| part.id));
        match Waits::of(template, groups, writes_all_of.is_some()) {
            Waits::Always { reads } => {
                let ids: SmallVec<[u64; 8]> = parts.iter().map(|part| part.id).collect();
                let (read, written) = ids.split_at(reads.min(ids.len()));
                // What waits is launched before the last, which can still be added to.
                let is_independent =
                    state.last.as_ref().is_some_and(|last| last.is_independent_of(read, written));
                if !is_independent && !self.last_waits_for(&mut state, template) {
                    self.make_way(&mut state, &[]);
                }
                self.let_wait(&mut state, launch, read, written);
                return;
            }
            Waits::IfSeen => {
                if !self.last_waits_for(&mut state, template) {
                    self.make_way(&mut state, parts);
                }
            }
            Waits::Never => self.begin_alone(&mut state, parts),
        }
        count(&self.counters.launches, 1);
        state.last = Some(launch);
        if writes.is_none() {
            // Nothing is ever added to it: the device may begin.
            self.launch_last(&mut state);
        }
    }

    /// Has the last kernel wait for others of its kind, where such were launched a moment before or the `next` is one; says whether it does.
    fn last_waits_for(&self, state: &mut State, next: &Template) -> bool {
        let Some(last) = &state.last else { return false };
        let known = state.seen.waits() || state.seen.contains(&last.template) || last.template == *next;
        known && self.last_waits(state)
    }

    /// Launches what has to be before a kernel that uses some buffers: the last, and what waits if either of them uses a buffer of that.
    fn make_way(&self, state: &mut State, parts: &[Part]) {
        let used = |part: &Part| state.batch.uses(part.id);
        let by_last = state.last.as_ref().is_some_and(|last| last.parts.iter().any(used));
        if by_last || parts.iter().any(used) {
            self.launch_waiting(state);
        } else {
            self.launch_last(state);
        }
    }

    /// Likewise before a kernel, or what a library does, that waits for nothing.
    pub(super) fn begin_alone(&self, state: &mut State, parts: &[Part]) {
        if state.last.as_ref().is_some_and(|last| state.batch.has(&last.template)) {
            self.last_waits(state);
        }
        self.make_way(state, parts);
        state.seen.forget();
    }

    /// Has the last kernel wait with others, if it is one that does; says whether it does now.
    fn last_waits(&self, state: &mut State) -> bool {
        let waits =
            |last: &Waiting| Waits::of(&last.template, last.blocks, last.writes.is_some()) == Waits::IfSeen;
        if !state.last.as_deref().is_some_and(waits) {
            return false;
        }
        // Before it is taken: what it uses is kept as long as it is the last.
        if state.batch.is_full() {
            self.launch_batch(state);
        }
        let Some(mut last) = state.last.take() else { return false };
        let held = std::mem::take(&mut last.held);
        let written = last.writes.map(|(written, _)| written);
        // It is counted with those that it waits with.
        self.counters.launches.fetch_sub(1, Ordering::Relaxed);
        let read = last.parts.iter().map(|part| part.id).filter(|&id| Some(id) != written);
        let read: SmallVec<[u64; 8]> = read.collect();
        self.let_wait(state, last, &read, written.as_slice());
        held.into_iter().for_each(|buffer| state.batch.hold(buffer));
        true
    }

    /// Launches the last kernel. What waits uses none of its buffers, or was launched.
    fn launch_last(&self, state: &mut State) {
        let Some(last) = state.last.take() else { return };
        self.launch_one(state, &last, last.blocks);
        let Waiting { template, held, .. } = *last;
        held.into_iter().for_each(|buffer| state.give_back(buffer));
        state.seen.note(template);
        self.end_round(state);
    }

    fn let_wait(&self, state: &mut State, launch: Box<Waiting>, read: &[u64], written: &[u64]) {
        if state.batch.is_full() {
            self.launch_batch(state);
        }
        state.batch.push(launch, read, written);
        state.seen.note_waiting();
    }

    /// Runs a user's kernel.
    pub fn record_own(
        &self,
        kernel: &CudaKernel,
        (memories, writable): (&[Memory], &[bool]),
        words: &[u32],
        (blocks, threads): ([u32; 3], [u32; 2]),
    ) -> Result<(), KernelError> {
        let mut state = self.state();
        let function = match state.own_kernels.get(kernel) {
            Some(known) => known.clone(),
            None => {
                let compile = |error: DriverError| KernelError::Compile {
                    kernel: kernel.entry_point().to_owned(),
                    reason: self.reason(&error),
                };
                // What it uses is somebody's.
                let loaded = self.load((&mut state, &[]), kernel.text(), kernel.entry_point());
                // Where there was no memory for its code there may be some later.
                let is_final = !loaded.as_ref().is_err_and(|error| error.is_out_of_memory);
                let function = loaded.map_err(compile);
                if is_final {
                    state.own_kernels.insert(kernel.clone(), function.clone());
                }
                function
            }
        }?;
        self.launch_all(&mut state);
        count(&self.counters.launches, 1);
        count(&self.counters.moved_bytes, memories.iter().map(|memory| memory.range().len()).sum());
        let parts: Parts = memories.iter().filter_map(|memory| self.part(memory)).collect();
        let written =
            || parts.iter().zip(writable).filter(|(_, writable)| **writable).map(|(part, _)| part.id);
        if state.given_up().is_some() {
            state.lost.extend(written().map(|buffer| (buffer, NEVER_RUN.into())));
            return Ok(());
        }
        state.reserve(parts.iter().map(|part| part.id));
        match state.missing(&parts) {
            Some(reason) => self.lose(&mut state, written(), &reason),
            None => {
                let buffers = &addresses(&parts);
                let launch = KernelLaunch { function, blocks, threads, buffers, words, is_table: false };
                self.launch_now((&mut state, &parts), &launch, || written().collect());
                self.end_round(&mut state);
            }
        }
        Ok(())
    }

    /// See [`Runtime::amend`](kiln_gpu::runtime::Runtime::amend).
    pub fn amend<'a>(
        &self,
        memory: &mut Memory,
        elements: usize,
        with: impl FnOnce(runtime::Last<'_, CudaRuntime>) -> Option<Amendment<'a, CudaRuntime>>,
    ) -> bool {
        let is_alone = memory.is_unique();
        let mut state = self.state();
        let written = memory.buffer().filter(|_| memory.is_of(self)).map(|buffer| (buffer.id(), elements));
        let Some(last) = &mut state.last else { return false };
        if memory.range().start != 0 || written.is_none() || last.writes != written {
            return false;
        }
        let Waiting { template, parts, .. } = &mut **last;
        let has_at = |memory: &Memory, at: usize| {
            memory.buffer().is_some_and(|buffer| parts.get(at).is_some_and(|part| part.id == buffer.id()))
        };
        let known = runtime::Last { template, buffers: parts.len(), has_at: &has_at, is_alone };
        let Some(Amendment { buffers, parameters, moved, instead }) = with(known) else { return false };
        // Fewer are more that wrap.
        count(&self.counters.moved_bytes, moved as usize);
        let further: Parts = buffers.into_iter().filter_map(|memory| self.part(memory)).collect();
        last.parts.extend_from_slice(&further);
        last.parameters.extend(parameters);
        if let Some(Instead { without, groups, writes_all_of }) = instead {
            if let Some(without) = without {
                last.parts.remove(without);
            }
            last.blocks = groups;
            last.writes = writes_all_of
                .and_then(|(output, elements)| further.get(output).map(|part| (part.id, elements)));
        }
        let waits = last.writes.is_some();
        state.reserve(further.iter().map(|part| part.id));
        if !waits {
            self.make_way(&mut state, &[]);
        }
        true
    }

    /// Launches all that waits.
    pub(super) fn launch_waiting(&self, state: &mut State) {
        if !state.batch.is_empty() {
            self.last_waits(state);
        }
        self.launch_batch(state);
        self.launch_last(state);
    }

    /// Launches all that waits, before something of another kind.
    pub(super) fn launch_all(&self, state: &mut State) {
        self.launch_waiting(state);
        state.seen.forget();
    }

    /// Launches what waits for others of its kind.
    fn launch_batch(&self, state: &mut State) {
        if state.batch.is_empty() {
            return;
        }
        // What their buffers are stays known until all are launched: memory that is given back meanwhile is none of these.
        let mut launches = state.batch.take_launches();
        launches.drain(|launches| {
            self.launch_group(state, launches);
            if let Some(launch) = launches.pop() {
                state.seen.note(launch.template);
            }
        });
        for buffer in state.batch.end(launches) {
            state.give_back(buffer);
        }
        self.end_round(state);
    }

    /// Launches of one kernel that do not depend on each other.
    fn launch_group(&self, state: &mut State, launches: &[Box<Waiting>]) {
        let kernel = match launches {
            [first, _, ..] => self.batch_kernel(state, &first.template),
            [] | [_] => None,
        };
        let capacity = kernel.as_ref().map_or(1, |kernel| kernel.capacity);
        let blocks_of = |launch: &Waiting| launch.blocks[0] * launch.blocks[1];
        for launches in launches.chunks(capacity) {
            count(&self.counters.launches, 1);
            match (launches, &kernel) {
                ([launch], _) => self.launch_one(state, launch, [blocks_of(launch), 1, 1]),
                (_, Some(kernel)) => {
                    let (mut table, mut written) = (Vec::new(), Vec::new());
                    for launch in launches {
                        match state.missing(&launch.parts) {
                            Some(reason) => self.lose(state, launch.written(), &reason),
                            None => {
                                let addresses: SmallVec<[u64; 8]> =
                                    addresses(&launch.parts).iter().map(|address| address.0).collect();
                                let words = words(kernel, &launch.parts, &launch.parameters);
                                table.push((blocks_of(launch), addresses, words));
                                written.push(launch);
                            }
                        }
                    }
                    if !table.is_empty() {
                        let blocks = [table.iter().map(|(blocks, ..)| blocks).sum(), 1, 1];
                        let words = cuda::batch::table(&table);
                        let written =
                            || written.iter().flat_map(|launch| written_by(kernel, &launch.parts)).collect();
                        // Whose parts are awaited until all of the batch is launched.
                        self.launch((state, &[]), kernel, (blocks, &[], &words), written);
                    }
                }
                (_, None) => {}
            }
        }
    }

    fn launch_one(&self, state: &mut State, launch: &Waiting, blocks: [u32; 3]) {
        let kernel = match state.missing(&launch.parts) {
            Some(reason) => Err(reason),
            None => self.kernel(state, &launch.template, &launch.parts),
        };
        let ready = kernel.and_then(|kernel| {
            let counts = kernel.bindings.last().is_some_and(|last| last.atomic == Some(Atomic::Counters));
            let counters = if counts { Some(self.counters(state, &launch.parts)?) } else { None };
            Ok((kernel, launch.parts.iter().copied().chain(counters).collect::<Parts>()))
        });
        match ready {
            Ok((kernel, parts)) => {
                let words = words(&kernel, &parts, &launch.parameters);
                self.launch((state, &parts), &kernel, (blocks, &addresses(&parts), &words), || {
                    written_by(&kernel, &launch.parts).collect()
                });
            }
            Err(reason) => self.lose(state, launch.written(), &reason),
        }
    }

    /// Zeros that kernels leave as they find them, for a launch of such parts: what is launched runs one after another.
    fn counters(&self, state: &mut State, parts: &[Part]) -> Result<Part, Arc<str>> {
        if let Some(counters) = state.counters {
            return Ok(counters);
        }
        let bytes = COUNTERS as usize * size_of::<u32>();
        let allocated = self.with_memory(state, parts, |driver| driver.allocate(bytes as u64));
        let zeroed = allocated.and_then(|address| {
            self.driver.upload(address, &vec![0; bytes])?;
            Ok(address)
        });
        // Where there was no memory there may be some later.
        let address = zeroed.map_err(|error| Arc::from(self.reason(&error)))?;
        Ok(*state.counters.insert(Part { address: Some(address), bytes, id: 0 }))
    }

    fn launch(
        &self,
        of: (&mut State, &[Part]),
        kernel: &Kernel,
        (blocks, buffers, words): ([u32; 3], &[Address], &[u32]),
        written: impl FnOnce() -> Vec<u64>,
    ) {
        let (function, threads, is_table) = (kernel.function, kernel.threads, kernel.capacity > 1);
        self.launch_now(of, &KernelLaunch { function, blocks, threads, buffers, words, is_table }, written);
    }

    /// Asks the driver for a launch of such parts; what it would have `written` is lost where the driver refuses.
    fn launch_now(
        &self,
        (state, parts): (&mut State, &[Part]),
        launch: &KernelLaunch<'_>,
        written: impl FnOnce() -> Vec<u64>,
    ) {
        // The driver may bring the code to the device no earlier.
        if let Err(error) = self.with_memory(state, parts, |driver| driver.launch(launch)) {
            self.lose(state, written().into_iter(), &self.reason(&error).into());
        } else if let Some(capture) = &mut state.capture {
            capture.written.extend(written());
        }
        state.launches += 1;
        state.is_round_over |= state.launches.is_multiple_of(ROUND);
    }

    /// Gives back what nobody needs, now and then; what a launch that waits uses is needed.
    fn end_round(&self, state: &mut State) {
        if state.capture.is_some() || !std::mem::take(&mut state.is_round_over) {
            return;
        }
        let State { pool, last, batch, .. } = state;
        let unused = pool.release_unused(|buffer| is_awaited(last.as_deref(), batch, buffer.id()));
        self.release(state, unused);
    }
}

/// The buffers that a kernel writes to.
fn written_by<'a>(kernel: &'a Kernel, parts: &'a [Part]) -> impl Iterator<Item = u64> + 'a {
    let writable = parts.iter().zip(&kernel.bindings).filter(|(_, binding)| binding.writable);
    writable.map(|(part, _)| part.id)
}

/// Where the parts are, all of which are there.
fn addresses(parts: &[Part]) -> SmallVec<[Address; 8]> {
    parts.iter().filter_map(|part| part.address).collect()
}

/// What a kernel is told beside the addresses.
fn words(kernel: &Kernel, parts: &[Part], parameters: &[u32]) -> SmallVec<[u32; 32]> {
    assert_eq!(
        parameters.len(),
        kernel.parameters as usize,
        "the driver reads as many words as a kernel has"
    );
    let lasts = kernel.bindings.iter().zip(parts);
    let lasts = lasts.map(|(binding, part)| cuda::last_element(binding, part.bytes));
    lasts.chain(parameters.iter().copied()).collect()
}
