//! The kernels that a device is asked for: recorded one after another, and submitted together.

use super::pipelines::{Part, Pipeline};
use super::{Context, PARAMETER_BYTES, PARAMETERS_BYTES, State, lock};
use crate::kernel::{KernelError, WgslKernel};
use crate::memory::Memory;
use crate::runtime::WgpuRuntime;
use crate::statistics::count;
use kiln_gpu::kernels::Template;
use kiln_gpu::runtime::{self, Amendment, Instead, Launch};
use std::sync::Arc;

/// Kernels after which a submission does not wait for more: the device shall have work while the next are recorded.
const MOST_PENDING: usize = 256;

/// A kernel that writes a whole tensor. Until the next is recorded it may become another, so that nothing is looked up for it before.
#[derive(Default)]
pub(super) struct Last {
    /// Which kernel; nothing where there is none.
    pub template: Option<Template>,
    pub parts: Vec<Part>,
    pub parameters: Vec<u32>,
    pub groups: [u32; 3],
    /// The buffer that it writes, and how many elements of it.
    pub writes: (u64, usize),
}

/// A kernel that is recorded, or was.
pub(super) struct Recorded {
    /// Which kernel; nothing for a user's.
    pub template: Option<Template>,
    pub parts: Vec<Part>,
    pub pipeline: wgpu::ComputePipeline,
    /// The [layout](super::pipelines::Layout::immediate_bytes)'s.
    pub immediate_bytes: u32,
    pub group: wgpu::BindGroup,
    /// Where its parameters start, among those that are set with launches or those in memory.
    pub parameters: u32,
    pub groups: [u32; 3],
}

impl Context {
    /// Records a kernel.
    ///
    /// # Panics
    /// When a buffer is larger than kernels see, or the grid than the device allows.
    pub fn record(&self, launch: Launch<'_, WgpuRuntime>) {
        let Launch { template, buffers, parameters, groups, moved, writes_all_of } = launch;
        count(&self.counters.moved_bytes, moved);
        let most = self.limits.groups;
        assert!(
            groups.iter().all(|&groups| groups <= most),
            "a grid of {groups:?} workgroups, of which {} allows {most} along each axis",
            self.name
        );
        let state = &mut *lock(&self.state);
        self.record_last(state);
        if let Some(reason) = self.missing(state, buffers.iter().copied()) {
            let ids = buffers.iter().filter_map(|memory| Some(memory.buffer()?.id));
            self.lose(state, template.written(ids), &reason);
            return;
        }
        let last = &mut state.last;
        last.parts.clear();
        self.add_parts(false, buffers, &mut last.parts);
        count(&self.counters.dispatches, 1);
        last.template = Some(template);
        last.parameters.clear();
        last.parameters.extend_from_slice(parameters);
        last.groups = groups;
        match writes_all_of.and_then(|(output, elements)| Some((last.parts.get(output)?.id, elements))) {
            Some(writes) => last.writes = writes,
            None => self.record_last(state),
        }
    }

    /// See [`Runtime::amend`](kiln_gpu::runtime::Runtime::amend).
    pub fn amend<'a>(
        &self,
        memory: &mut Memory,
        elements: usize,
        with: impl FnOnce(runtime::Last<'_, WgpuRuntime>) -> Option<Amendment<'a, WgpuRuntime>>,
    ) -> bool {
        let is_alone = memory.is_unique();
        let state = &mut *lock(&self.state);
        let written = memory.buffer().map(|buffer| (buffer.id, elements));
        let last = &mut state.last;
        let Some(template) = &mut last.template else { return false };
        if memory.range().start != 0 || Some(last.writes) != written {
            return false;
        }
        let parts = &last.parts;
        let has_at = |memory: &Memory, at: usize| {
            memory.buffer().is_some_and(|buffer| parts.get(at).is_some_and(|part| part.id == buffer.id))
        };
        let known = runtime::Last { template, buffers: parts.len(), has_at: &has_at, is_alone };
        let Some(Amendment { buffers, parameters, moved, instead }) = with(known) else { return false };
        // Fewer are more that wrap.
        count(&self.counters.moved_bytes, moved as usize);
        let before = last.parts.len();
        self.add_parts(false, &buffers, &mut last.parts);
        let further = &last.parts[before..];
        let writes = instead.map_or(Some(last.writes), |Instead { writes_all_of, .. }| {
            writes_all_of.and_then(|(output, elements)| Some((further.get(output)?.id, elements)))
        });
        last.parameters.extend(parameters);
        if let Some(Instead { without, groups, .. }) = instead {
            if let Some(without) = without {
                last.parts.remove(without);
            }
            last.groups = groups;
        }
        if let Some(reason) = self.missing(state, buffers.iter().copied()) {
            self.lose_last(state, &reason);
            return true;
        }
        match writes {
            Some(writes) => state.last.writes = writes,
            None => self.record_last(state),
        }
        true
    }

    /// Records the kernel that waits for more to do.
    pub(super) fn record_last(&self, state: &mut State) {
        let Some(template) = state.last.template.take() else { return };
        let known = state.kernels.get(state.pending).filter(|next| {
            next.parts == state.last.parts && next.template.as_ref().is_some_and(|known| *known == template)
        });
        if known.is_none() {
            // A kernel that cannot run would keep all others of its submission from running.
            let pipeline = match self.pipeline(state, &template) {
                Ok(pipeline) => pipeline,
                Err(reason) => {
                    state.last.template = Some(template);
                    self.lose_last(state, &reason);
                    return;
                }
            };
            let parts = state.last.parts.clone();
            if !self.place(state, Some(template), parts, pipeline) {
                return;
            }
        }
        let groups = state.last.groups;
        // The words go and come back, since all of the state is needed meanwhile.
        let parameters = std::mem::take(&mut state.last.parameters);
        self.record_placed(state, &parameters, groups);
        state.last.parameters = parameters;
    }

    /// Forgets the kernel that waits for more to do, which cannot run.
    fn lose_last(&self, state: &mut State, reason: &Arc<str>) {
        let Some(template) = state.last.template.take() else { return };
        let written: Vec<u64> = template.written(state.last.parts.iter().map(|part| part.id)).collect();
        self.lose(state, written.into_iter(), reason);
    }

    /// Records a user's kernel with buffers, parameters and a grid that are known to be within the limits.
    pub fn record_own(
        &self,
        kernel: &WgslKernel,
        writable: Vec<bool>,
        buffers: &[&Memory],
        parameters: &[u32],
        groups: [u32; 3],
    ) -> Result<(), KernelError> {
        let mut state = lock(&self.state);
        let pipeline = self.own_pipeline(&mut state, kernel, &writable)?;
        self.record_last(&mut state);
        if let Some(reason) = self.missing(&state, buffers.iter().copied()) {
            let written = buffers.iter().zip(&writable).filter(|(_, writable)| **writable);
            let written = written.filter_map(|(memory, _)| memory.buffer().map(|buffer| buffer.id));
            self.lose(&mut state, written, &reason);
            return Ok(());
        }
        let mut parts = Vec::with_capacity(buffers.len());
        self.add_parts(true, buffers, &mut parts);
        self.try_own(&mut state, kernel, &writable, &parts)?;
        // A browser tells later what is wrong with a kernel, which takes along what is submitted with it: nothing else.
        let is_alone = cfg!(target_arch = "wasm32");
        if is_alone {
            self.submit_recorded(&mut state);
        }
        count(&self.counters.dispatches, 1);
        count(&self.counters.moved_bytes, buffers.iter().map(|memory| memory.range().len()).sum());
        if self.place(&mut state, None, parts, pipeline) {
            self.record_placed(&mut state, parameters, groups);
        }
        if is_alone {
            self.submit_recorded(&mut state);
        }
        Ok(())
    }

    /// Puts a kernel where the next that is recorded is looked for; says whether it can run.
    fn place(
        &self,
        state: &mut State,
        template: Option<Template>,
        parts: Vec<Part>,
        pipeline: Arc<Pipeline>,
    ) -> bool {
        let Some(group) = self.bind_group(state, &pipeline, &parts) else { return false };
        let (immediate_bytes, pipeline) = (pipeline.layout.immediate_bytes, pipeline.raw.clone());
        let kernel =
            Recorded { template, parts, pipeline, immediate_bytes, group, parameters: 0, groups: [0; 3] };
        match state.kernels.get_mut(state.pending) {
            Some(next) => *next = kernel,
            None => state.kernels.push(kernel),
        }
        true
    }

    /// Records the kernel that is in the next place.
    fn record_placed(&self, state: &mut State, parameters: &[u32], groups: [u32; 3]) {
        let Some(next) = state.kernels.get_mut(state.pending) else { return };
        let (all, step) = match next.immediate_bytes as usize {
            0 => (&mut state.parameters, self.parameter_step as usize),
            step => (&mut state.immediates, step),
        };
        (next.parameters, next.groups) = (all.len() as u32, groups);
        all.extend(parameters.iter().flat_map(|word| word.to_ne_bytes()));
        all.resize(all.len().next_multiple_of(step), 0);
        state.pending += 1;
        let full = state.parameters.len() as u64 + PARAMETER_BYTES > PARAMETERS_BYTES;
        if full || state.pending >= MOST_PENDING {
            self.submit_recorded(state);
        }
    }

    /// Submits what is recorded.
    pub fn submit(&self) {
        self.submit_pending(&mut lock(&self.state));
    }

    pub(super) fn submit_pending(&self, state: &mut State) {
        self.record_last(state);
        self.submit_recorded(state);
    }

    fn submit_recorded(&self, state: &mut State) {
        if state.pending == 0 {
            return;
        }
        if !state.parameters.is_empty() {
            self.queue.write_buffer(&self.parameters, 0, &state.parameters);
        }
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for kernel in &state.kernels[..state.pending] {
            pass.set_pipeline(&kernel.pipeline);
            pass.set_bind_group(0, &kernel.group, &[]);
            let start = kernel.parameters as usize;
            match kernel.immediate_bytes as usize {
                0 => pass.set_bind_group(1, &self.parameter_group, &[kernel.parameters]),
                bytes => pass.set_immediates(0, &state.immediates[start..start + bytes]),
            }
            let [x, y, z] = kernel.groups;
            pass.dispatch_workgroups(x, y, z);
        }
        drop(pass);
        self.queue.submit([encoder.finish()]);
        count(&self.counters.submissions, 1);
        (state.pending, state.uploaded) = (0, 0);
        state.parameters.clear();
        state.immediates.clear();
        self.release_unused(state);
    }
}
