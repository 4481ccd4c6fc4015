//! Which tensors share memory: the second stage.

use crate::MOST_BYTES;
use crate::error::StandaloneError;
use crate::program::{Origin, Program, TensorId};
use kiln_types::DType;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Memory of a model: an array of numbers.
pub(crate) struct Buffer {
    pub(crate) dtype: DType,
    /// Number of elements.
    pub(crate) len: usize,
    /// The output that it holds at last.
    pub(crate) output: Option<usize>,
    /// The steps in which its tensors are needed, from the first of each to its last.
    taken: BTreeMap<usize, usize>,
}

impl Buffer {
    /// Whether nobody needs it in any of these steps.
    fn is_free(&self, steps: &RangeInclusive<usize>) -> bool {
        let before = self.taken.range(..=steps.end()).next_back();
        before.is_none_or(|(_, last)| last < steps.start())
    }
}

/// All memory of a model, and where each tensor that a step computes is in it.
pub(crate) struct Memory {
    pub(crate) buffers: Vec<Buffer>,
    of: Vec<Option<usize>>,
}

/// A tensor, and the steps from the one that computes it to the last that reads it.
struct Lifetime {
    tensor: TensorId,
    steps: RangeInclusive<usize>,
}

impl Memory {
    /// Shares memory out: tensors in the order of their sizes, each the smallest buffer that is large enough and free while it is needed
    /// ("Greedy by Size for Shared Objects", Pisarchyk & Lee 2020). Buffers are arrays of their own, of one dtype each: borrowing one leaves the others alone.
    pub(crate) fn new(program: &Program<'_>) -> Result<Self, StandaloneError> {
        let mut memory = Memory { buffers: Vec::new(), of: vec![None; program.tensors.len()] };
        let mut lifetimes = lifetimes(program);
        // An output keeps its buffer to the end, which has just its size.
        for (n, &output) in program.outputs.iter().enumerate() {
            let at = lifetimes.iter().position(|lifetime| lifetime.tensor == output);
            let lifetime =
                lifetimes.swap_remove(at.ok_or(StandaloneError::Missing("an output that no step computes"))?);
            memory.add(program, *lifetime.steps.start()..=usize::MAX, output, Some(n));
        }
        lifetimes.sort_by_key(|lifetime| {
            (std::cmp::Reverse(program.tensors[lifetime.tensor].len), lifetime.tensor)
        });
        for Lifetime { tensor, steps } in lifetimes {
            let (dtype, len) = (program.tensors[tensor].dtype, program.tensors[tensor].len);
            let free =
                memory.buffers.iter().enumerate().filter(|(_, buffer)| {
                    buffer.dtype == dtype && buffer.len >= len && buffer.is_free(&steps)
                });
            match free.min_by_key(|(_, buffer)| buffer.len).map(|(at, _)| at) {
                Some(at) => {
                    memory.buffers[at].taken.extend([steps.into_inner()]);
                    memory.of[tensor] = Some(at);
                }
                None => memory.add(program, steps, tensor, None),
            }
        }
        let bytes = memory.bytes();
        if bytes > MOST_BYTES {
            return Err(StandaloneError::TooLarge {
                what: "bytes of activations",
                size: bytes,
                most: MOST_BYTES,
            });
        }
        Ok(memory)
    }

    fn add(
        &mut self,
        program: &Program<'_>,
        steps: RangeInclusive<usize>,
        tensor: TensorId,
        output: Option<usize>,
    ) {
        let (dtype, len) = (program.tensors[tensor].dtype, program.tensors[tensor].len);
        self.of[tensor] = Some(self.buffers.len());
        self.buffers.push(Buffer { dtype, len, output, taken: BTreeMap::from([steps.into_inner()]) });
    }

    /// The buffer of a tensor that a step computes.
    pub(crate) fn buffer(&self, tensor: TensorId) -> Option<usize> {
        self.of.get(tensor).copied().flatten()
    }

    /// How many bytes all buffers take.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |buffer: &Buffer| (buffer.len as u64).saturating_mul(buffer.dtype.size() as u64);
        self.buffers.iter().map(bytes).fold(0, u64::saturating_add)
    }
}

/// When each tensor that a step computes is needed.
fn lifetimes(program: &Program<'_>) -> Vec<Lifetime> {
    let last = program.last_uses();
    let mut first = vec![None; program.tensors.len()];
    for (at, step) in program.steps.iter().enumerate() {
        step.tensors().for_each(|tensor| first[tensor] = first[tensor].or(Some(at)));
    }
    let computed =
        program.tensors.iter().enumerate().filter(|(_, tensor)| matches!(tensor.origin, Origin::Step));
    computed
        .filter_map(|(tensor, _)| Some(Lifetime { tensor, steps: first[tensor]?..=last[tensor] }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_importer::onnx::{LoadOptions, load};
    use kiln_importer::passes;
    use std::path::Path;

    #[test]
    fn no_two_tensors_need_the_same_memory_at_once() {
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/cases");
        let mut shared = 0;
        for case in std::fs::read_dir(cases).expect("the cases") {
            let model = case.expect("a case").path().join("model.onnx");
            let Ok(mut graph) = load(&model, &LoadOptions::default()) else { continue };
            passes::optimize(&mut graph, &passes::Options::default());
            let Ok(program) = Program::new(&graph) else { continue };
            let memory = Memory::new(&program).expect("memory");
            let of = lifetimes(&program);
            for (n, one) in of.iter().enumerate() {
                let buffer = memory.buffer(one.tensor).expect("a buffer");
                let (tensor, at) = (&program.tensors[one.tensor], &memory.buffers[buffer]);
                assert!(at.dtype == tensor.dtype && at.len >= tensor.len, "{}", model.display());
                for other in of[n + 1..].iter().filter(|other| memory.buffer(other.tensor) == Some(buffer)) {
                    let (a, b) = (&one.steps, &other.steps);
                    assert!(a.end() < b.start() || b.end() < a.start(), "{}", model.display());
                    shared += 1;
                }
            }
            // An output stays to the end.
            for &output in &program.outputs {
                let of_output = of.iter().find(|lifetime| lifetime.tensor == output).expect("an output");
                let buffer = memory.buffer(output).expect("a buffer");
                let later = of
                    .iter()
                    .filter(|other| other.tensor != output && memory.buffer(other.tensor) == Some(buffer));
                assert!(
                    later.into_iter().all(|other| other.steps.end() < of_output.steps.start()),
                    "{}",
                    model.display()
                );
            }
        }
        assert!(shared > 100, "{shared}");
    }
}
