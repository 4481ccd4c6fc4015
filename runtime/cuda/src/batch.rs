//! Launches that wait for others of their kind, to be done as one.
//!
//! An optimizer does the same for each parameter of a model: hundreds of short launches that do not depend on each other. Such launches wait here
//! until somebody waits for the device or asks for what uses the same memory; then all of a kind are done by a [kernel that takes a table of
//! them](kiln_gpu::language::cuda::batch). What uses other memory is launched before them.
//!
//! What depends on a launch that waits, waits at a later level: levels are launched one after another, so that a buffer is read behind who wrote
//! it, and written to behind who used it. So what is several launches for a parameter is as many for all of them.

use crate::context::Waiting;
use crate::memory::Buffer;
use kiln_gpu::kernels::Template;
use rustc_hash::FxHashMap;

/// Launches that wait at most.
const MOST: usize = 256;
/// Bytes of buffers that wait with them, from where on no more launches do.
const MOST_HELD: u64 = 64 << 20;
/// Bytes of a short buffer: numbers of channels, not of images.
pub(crate) const SHORT: u64 = 64 << 10;
/// Kernels that are remembered.
const MOST_SEEN: usize = 16;

/// Lists of launches whose memory is kept for others.
const MOST_SPARE: usize = 16;

/// Launches of one kernel.
type Group = Vec<Box<Waiting>>;

/// Launches that wait, by their levels and kernels.
#[derive(Default)]
pub(crate) struct Batch {
    levels: Vec<Vec<Group>>,
    /// Empty lists.
    spare: Vec<Group>,
    /// Buffers that somebody else may not have before all is launched: a launch uses them, and nobody else does any more.
    held: Vec<Buffer>,
    /// The level from which on a buffer can be read: behind those who write it.
    readable: FxHashMap<u64, usize>,
    /// The level from which on a buffer can be written to: behind all who use it.
    writable: FxHashMap<u64, usize>,
    count: usize,
    held_bytes: u64,
}

/// Launches that waited.
pub(crate) struct Launches {
    levels: Vec<Vec<Group>>,
    spare: Vec<Group>,
}

impl Launches {
    /// Hands all to `launch`, a kernel's of a level at a time.
    pub fn drain(&mut self, mut launch: impl FnMut(&mut Group)) {
        for mut launches in self.levels.iter_mut().flat_map(|groups| groups.drain(..)) {
            launch(&mut launches);
            launches.clear();
            if self.spare.len() < MOST_SPARE {
                self.spare.push(launches);
            }
        }
    }
}

/// Which kernels wait for others of their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// All: programs of several results, which optimizers are. So many of their buffers are read, the others written.
    Always { reads: usize },
    /// Those that were [launched](Seen) a moment ago, or that the same kernel follows: the next may well be the same for another tensor. Of products of one
    /// row several read the same one.
    IfSeen,
    /// None.
    Never,
}

impl Waits {
    /// Whether a kernel's launches of so many blocks wait; `writes_whole` is whether each writes all of one tensor.
    pub fn of(template: &Template, blocks: [u32; 3], writes_whole: bool) -> Self {
        match template {
            Template::Elementwise(program) if program.results.len() > 1 => {
                Self::Always { reads: program.operands.len() }
            }
            // Of several that count, each would count with the others; and those who wait write one tensor.
            Template::Reduce(reduce) if reduce.joins || reduce.computed.is_some() => Self::Never,
            Template::Elementwise(_) | Template::Reduce(_) if writes_whole => Self::IfSeen,
            // A table's blocks lie along one axis.
            Template::Gemv(_) if writes_whole && blocks[1..] == [1, 1] => Self::IfSeen,
            _ => Self::Never,
        }
    }
}

/// The kernels that were asked for since one that waits for none.
#[derive(Default)]
pub(crate) struct Seen {
    launched: Vec<Template>,
    waits: bool,
}

impl Seen {
    /// Whether one was launched.
    pub fn contains(&self, template: &Template) -> bool {
        self.launched.contains(template)
    }

    /// Whether some of them wait, or did.
    pub fn waits(&self) -> bool {
        self.waits
    }

    pub fn note(&mut self, template: Template) {
        if self.launched.len() < MOST_SEEN && !self.contains(&template) {
            self.launched.push(template);
        }
    }

    pub fn note_waiting(&mut self) {
        self.waits = true;
    }

    pub fn forget(&mut self) {
        self.launched.clear();
        self.waits = false;
    }
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether no more should wait.
    pub fn is_full(&self) -> bool {
        self.count >= MOST || self.held_bytes >= MOST_HELD
    }

    pub fn push(&mut self, launch: Box<Waiting>, reads: &[u64], writes: &[u64]) {
        let of = |levels: &FxHashMap<u64, usize>, ids: &[u64]| {
            ids.iter().filter_map(|id| levels.get(id)).max().copied().unwrap_or(0)
        };
        let level = of(&self.readable, reads).max(of(&self.writable, writes));
        for &id in reads.iter().chain(writes) {
            let free = self.writable.entry(id).or_default();
            *free = (*free).max(level + 1);
        }
        self.readable.extend(writes.iter().map(|&id| (id, level + 1)));
        self.count += 1;
        // A level is one behind another.
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        let Some(groups) = self.levels.get_mut(level) else {
            unreachable!("a level without those before it")
        };
        let is_its =
            |group: &&mut Group| group.first().is_some_and(|first| first.template == launch.template);
        match groups.iter_mut().find(is_its) {
            Some(group) => group.push(launch),
            None => {
                let mut group = self.spare.pop().unwrap_or_default();
                group.push(launch);
                groups.push(group);
            }
        }
    }

    /// All launches, which are about to be done. What they use is [used](Self::uses) until their [end](Self::end).
    pub fn take_launches(&mut self) -> Launches {
        Launches { levels: std::mem::take(&mut self.levels), spare: std::mem::take(&mut self.spare) }
    }

    /// Those launches that were taken are done; yields the buffers that were held, which nothing that waits uses any more. The memory of the lists stays for those that
    /// wait next.
    pub fn end(&mut self, launches: Launches) -> Vec<Buffer> {
        (self.levels, self.spare) = (launches.levels, launches.spare);
        self.readable.clear();
        self.writable.clear();
        self.count = 0;
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }

    /// Whether a launch of a kernel waits.
    pub fn has(&self, template: &Template) -> bool {
        let groups = self.levels.iter().flatten();
        groups.filter_map(|group| group.first()).any(|first| first.template == *template)
    }

    /// Whether a launch that waits uses a buffer.
    pub fn uses(&self, id: u64) -> bool {
        self.writable.contains_key(&id)
    }

    /// Whether a launch that waits writes to a buffer.
    pub fn writes(&self, id: u64) -> bool {
        self.readable.contains_key(&id)
    }

    /// Keeps a buffer that nobody but launches that wait uses any more.
    pub fn hold(&mut self, buffer: Buffer) {
        self.held_bytes += buffer.bytes();
        self.held.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_gpu::kernels::access::Access::{Linear, Strided};
    use kiln_gpu::kernels::elementwise::Elementwise;
    use kiln_gpu::kernels::reduce::{By, Reduce, Reducer};
    use kiln_gpu::kernels::source::Computed;
    use kiln_gpu::runtime::Subgroups;
    use kiln_tensor::{DType, Expression, Step};

    /// A launch that waits is known to write one tensor, and may run beside others of its kernel.
    #[test]
    fn reductions_that_count_or_write_two_tensors_wait_for_none() {
        let sums = Reduce {
            reducer: Reducer::Sum,
            mean: false,
            dtype: DType::F32,
            result: DType::F32,
            kept: (Linear, 0),
            reduced: (Strided, 1),
            by: By::Columns { neighbours: 1 },
            subgroups: Subgroups::None,
            from: None,
            computed: None,
            joins: false,
            finish: None,
            epilogues: Vec::new(),
        };
        let by = Box::new(Elementwise {
            expression: Expression::new(vec![Step::Input(0)]),
            operands: [(DType::F32, Linear)].into(),
            counters: [].into(),
            results: [(DType::F32, Linear)].into(),
            rank: 0,
            fours: 0,
            epilogues: Vec::new(),
        });
        let of = |reduce: &Reduce| Waits::of(&reduce.clone().into(), [1; 3], true);
        assert_eq!(of(&sums), Waits::IfSeen);
        assert_eq!(of(&Reduce { joins: true, ..sums.clone() }), Waits::Never);
        assert_eq!(of(&Reduce { computed: Some(Computed { operand: 0, by }), ..sums }), Waits::Never);
    }
}
