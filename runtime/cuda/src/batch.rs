//! Launches that wait for others of their kind, to be done as one.
//!
//! An optimizer does the same for each parameter of a model: hundreds of short launches that do not depend on each other. Programs of
//! several results, which optimizers are, wait here until something else is asked for; then all of a kind are done by a
//! [kernel that takes a table of them](kiln_gpu::language::cuda::batch).

use crate::memory::Buffer;
use kiln_gpu::kernels::Template;
use std::collections::HashSet;

/// Launches that wait at most.
const MOST: usize = 64;
/// Bytes of buffers that wait with them, from where on no more launches do.
const MOST_HELD: u64 = 64 << 20;

/// Launches that do not depend on each other, by their kernels; `L` is what is known of one.
pub(crate) struct Batch<L> {
    pub groups: Vec<(Template, Vec<L>)>,
    /// Buffers that somebody else may not have before all is launched: a launch uses them, and nobody else does any more.
    pub held: Vec<Buffer>,
    read: HashSet<u64>,
    written: HashSet<u64>,
    count: usize,
    held_bytes: u64,
}

impl<L> Default for Batch<L> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            held: Vec::new(),
            read: HashSet::new(),
            written: HashSet::new(),
            count: 0,
            held_bytes: 0,
        }
    }
}

/// How many of a kernel's buffers it reads, where its launches wait for others; those that follow it writes.
pub(crate) fn reads_of(template: &Template) -> Option<usize> {
    match template {
        Template::Elementwise(program) if program.results.len() > 1 => Some(program.operands.len()),
        _ => None,
    }
}

impl<L> Batch<L> {
    /// Whether a launch that reads and writes these buffers can wait with those that do.
    pub fn takes(&self, reads: &[u64], writes: &[u64]) -> bool {
        let independent = reads.iter().all(|id| !self.written.contains(id))
            && writes.iter().all(|id| !self.written.contains(id) && !self.read.contains(id));
        independent && self.count < MOST && self.held_bytes < MOST_HELD
    }

    pub fn push(&mut self, template: &Template, launch: L, reads: &[u64], writes: &[u64]) {
        self.count += 1;
        self.read.extend(reads);
        self.written.extend(writes);
        match self.groups.iter_mut().find(|(known, _)| known == template) {
            Some((_, group)) => group.push(launch),
            None => self.groups.push((template.clone(), vec![launch])),
        }
    }

    /// Keeps a buffer that nobody but launches here uses any more; gives it back where none does.
    pub fn hold(&mut self, buffer: Buffer) -> Option<Buffer> {
        if !self.read.contains(&buffer.id) && !self.written.contains(&buffer.id) {
            return Some(buffer);
        }
        self.held_bytes += buffer.bytes;
        self.held.push(buffer);
        None
    }
}
