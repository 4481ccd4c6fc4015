//! Compiled kernels, and what they see of buffers.

use super::{Context, State};
use crate::kernel::{KernelError, LaunchProblem, WgslKernel};
use crate::memory::{Buffer, Memory};
use crate::statistics::{Counters, count};
use kiln_gpu::kernels::Template;
use kiln_gpu::language::Binding;
use kiln_gpu::language::wgsl::{self, Parameters, Wide};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::sync::Arc;

/// What a kernel sees of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    /// The buffer's.
    pub id: u64,
    pub start: u64,
    pub end: u64,
}

/// What a layout says of a binding: whether it is written to, and the bytes that it has at least, or 0.
pub(super) type Bound = (bool, u64);

pub(super) struct Layout {
    /// How many layouts were made before it.
    pub number: usize,
    pub group: wgpu::BindGroupLayout,
    pub pipeline: wgpu::PipelineLayout,
    /// Bytes of parameters that are set with a launch; they are in memory where there are none.
    pub immediate_bytes: u32,
}

pub(super) struct Pipeline {
    pub raw: wgpu::ComputePipeline,
    pub layout: Arc<Layout>,
}

/// That of a user's kernel.
pub(super) struct OwnPipeline {
    pipeline: Arc<Pipeline>,
    /// Bytes of each binding that are known to do.
    enough: Vec<u64>,
}

impl Context {
    /// The compiled kernel; else why it does not compile.
    pub(super) fn pipeline(&self, state: &mut State, template: &Template) -> Result<Arc<Pipeline>, Arc<str>> {
        if let Some(pipeline) = state.pipelines.get(template) {
            return Ok(pipeline.clone());
        }
        let kernel = template.kernel();
        // Nobody else looks before the driver does, to which anything may happen.
        let (shared, most) = (kernel.shared_bytes(), self.limits.shared_bytes);
        if shared > most {
            return Err(format!(
                "a workgroup of the kernel `{}` shares {shared} bytes, and on {} the most are {most}",
                kernel.name, self.name
            )
            .into());
        }
        let least = |binding: &Binding| (binding.storage.bytes() * if binding.fours { 4 } else { 1 }) as u64;
        let bindings = kernel.bindings.iter().map(|binding| (binding.writable, least(binding))).collect();
        let bytes = 16 * kernel.parameters.div_ceil(4);
        let (immediate, parameters) = match bytes <= self.immediate_bytes {
            true => (bytes, Parameters::Immediate),
            false => (0, Parameters::Uniform),
        };
        let layout = self.layout(state, bindings, immediate);
        let has_wide = self.numbers.contains(wgpu::Features::SHADER_INT64);
        let source = wgsl::source(&kernel, if has_wide { Wide::Native } else { Wide::Pairs }, parameters);
        log::trace!("{source}");
        let options = wgpu::PipelineCompilationOptions {
            // Shared arrays are written before they are read.
            zero_initialize_workgroup_memory: false,
            ..wgpu::PipelineCompilationOptions::default()
        };
        let reason = |error| format!("the kernel `{}` does not compile: {error}", kernel.name);
        let compiled = self.compile(&kernel.name, source.into(), wgsl::ENTRY_POINT, &layout, options);
        let pipeline = Arc::new(Pipeline { raw: compiled.map_err(reason)?, layout });
        state.pipelines.insert(template.clone(), pipeline.clone());
        Ok(pipeline)
    }

    pub(super) fn own_pipeline(
        &self,
        state: &mut State,
        kernel: &WgslKernel,
        writable: &[bool],
    ) -> Result<Arc<Pipeline>, KernelError> {
        let key = (kernel.clone(), writable.to_vec());
        if let Some(own) = state.own_pipelines.get(&key) {
            return Ok(own.pipeline.clone());
        }
        // What its text takes for the type of an array is not known.
        let layout = self.layout(state, key.1.iter().map(|&writable| (writable, 0)).collect(), 0);
        let constants: Vec<(&str, f64)> = kernel.constants().collect();
        let options = wgpu::PipelineCompilationOptions {
            constants: &constants,
            ..wgpu::PipelineCompilationOptions::default()
        };
        let source = Cow::Owned(kernel.wgsl().to_owned());
        let raw = self
            .compile(kernel.name(), source, kernel.entry_point(), &layout, options)
            .map_err(|reason| KernelError::Compile { kernel: kernel.name().to_owned(), reason })?;
        let pipeline = Arc::new(Pipeline { raw, layout });
        let enough = vec![u64::MAX; writable.len()];
        state.own_pipelines.insert(key, OwnPipeline { pipeline: pipeline.clone(), enough });
        Ok(pipeline)
    }

    /// Whether a user's kernel can run with what it sees of buffers; else why not. Only the device knows how many bytes its text takes of a
    /// binding, and a kernel that gets fewer would keep all others of its submission from running: so it is recorded once by itself, which
    /// is not submitted. With as many bytes or more it is not tried again.
    pub(super) fn try_own(
        &self,
        state: &mut State,
        kernel: &WgslKernel,
        writable: &[bool],
        parts: &[Part],
    ) -> Result<(), KernelError> {
        let key = (kernel.clone(), writable.to_vec());
        let Some(OwnPipeline { pipeline, enough }) = state.own_pipelines.get(&key) else { return Ok(()) };
        let bytes = |part: &Part| part.end - part.start;
        if parts.iter().zip(enough).all(|(part, &enough)| bytes(part) >= enough) {
            return Ok(());
        }
        let pipeline = pipeline.clone();
        // Not where a buffer is gone, which no kernel is recorded with.
        let Some(group) = self.bind_group(state, &pipeline, parts) else { return Ok(()) };
        let (_, refused) = self.made(|| {
            let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&pipeline.raw);
            pass.set_bind_group(0, &group, &[]);
            pass.set_bind_group(1, &self.parameter_group, &[0]);
            pass.dispatch_workgroups(1, 1, 1);
            drop(pass);
            encoder.finish()
        });
        if let Some(reason) = refused {
            let (kernel, problem) = (kernel.name().to_owned(), LaunchProblem::Bindings { reason });
            return Err(KernelError::Launch { kernel, problem });
        }
        if let Some(own) = state.own_pipelines.get_mut(&key) {
            own.enough.iter_mut().zip(parts).for_each(|(enough, part)| *enough = (*enough).min(bytes(part)));
        }
        Ok(())
    }

    fn compile(
        &self,
        name: &str,
        source: Cow<'static, str>,
        entry_point: &str,
        layout: &Layout,
        compilation_options: wgpu::PipelineCompilationOptions<'_>,
    ) -> Result<wgpu::ComputePipeline, String> {
        count(&self.counters.pipelines, 1);
        let (pipeline, error) = self.made(|| {
            let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(name),
                source: wgpu::ShaderSource::Wgsl(source),
            });
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&layout.pipeline),
                module: &module,
                entry_point: Some(entry_point),
                compilation_options,
                cache: None,
            })
        });
        error.map_or(Ok(pipeline), Err)
    }

    /// The layout of kernels with such bindings, see [`State::layouts`].
    fn layout(&self, state: &mut State, bindings: Vec<Bound>, immediate_bytes: u32) -> Arc<Layout> {
        let key = (bindings, immediate_bytes);
        if let Some(layout) = state.layouts.get(&key) {
            return layout.clone();
        }
        let entry = |(n, &(writable, least)): (usize, &Bound)| wgpu::BindGroupLayoutEntry {
            binding: n as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: !writable },
                has_dynamic_offset: false,
                // Where it is said, it is not looked at again with each launch.
                min_binding_size: wgpu::BufferSize::new(least),
            },
            count: None,
        };
        let entries: Vec<_> = key.0.iter().enumerate().map(entry).collect();
        let group = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let groups = [Some(&group), Some(&self.parameter_layout)];
        let pipeline = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: if immediate_bytes == 0 { &groups } else { &groups[..1] },
            immediate_size: immediate_bytes,
        });
        let layout = Arc::new(Layout { number: state.layouts.len(), group, pipeline, immediate_bytes });
        state.bind_groups.push(FxHashMap::default());
        state.layouts.insert(key, layout.clone());
        layout
    }

    /// Adds what a kernel sees of buffers, or `exact`ly of the tensors in them.
    ///
    /// # Panics
    /// When it sees less than it needs.
    pub(super) fn add_parts(&self, exact: bool, memories: &[&Memory], parts: &mut Vec<Part>) {
        let limit = self.limits.binding_bytes as u64;
        let part = |memory: &Memory, buffer: &Buffer| {
            // What is small enough is bound whole, so that all its parts have one bind group.
            let (start, end) = match buffer.raw.size() {
                size if size <= limit && memory.range().start == 0 && !exact => (0, size),
                // No binding is empty: this one has an element of any type.
                _ if memory.range().is_empty() => (0, 16),
                _ => (memory.range().start as u64, (memory.range().end.next_multiple_of(4)) as u64),
            };
            assert!(
                end - start <= limit,
                "a tensor of {} bytes in an operation that needs all of it at once, and kernels on {} see {limit} of a buffer",
                end - start,
                self.name
            );
            Part { id: buffer.id, start, end }
        };
        parts.extend(memories.iter().filter_map(|memory| Some(part(memory, memory.buffer()?))));
    }

    /// Nothing where one of the buffers is gone, which no tensor has then.
    pub(super) fn bind_group(
        &self,
        state: &mut State,
        pipeline: &Pipeline,
        parts: &[Part],
    ) -> Option<wgpu::BindGroup> {
        let known = state.bind_groups.get_mut(pipeline.layout.number)?;
        if let Some(group) = known.get(parts) {
            return Some(group.clone());
        }
        let entry = |(part, binding): (&Part, u32)| {
            let (offset, size) = (part.start, wgpu::BufferSize::new(part.end - part.start));
            let buffer = state.buffers.get(&part.id)?;
            let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size });
            Some(wgpu::BindGroupEntry { binding, resource })
        };
        let entries: Vec<_> = parts.iter().zip(0..).map(entry).collect::<Option<_>>()?;
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.layout.group,
            entries: &entries,
        });
        count(&self.counters.bind_groups, 1);
        known.insert(parts.to_vec(), group.clone());
        Some(group)
    }
}

impl State {
    pub(super) fn retain_bind_groups(&mut self, counters: &Counters, keep: impl Fn(&[Part]) -> bool) {
        // Those in the places of kernels are not looked up.
        self.kernels.truncate(self.pending);
        for groups in &mut self.bind_groups {
            let before = groups.len();
            groups.retain(|parts, _| keep(parts));
            count(&counters.released_bind_groups, before - groups.len());
        }
    }
}
