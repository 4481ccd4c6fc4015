//! What a kernel does to each element before it writes it: elementwise programs that came after it, on what it computed and further
//! operands. So they cost neither a kernel of their own nor a way of all elements to memory and back.

use super::access::{self, Access, Operand, Walk};
use super::{Template, program};
use crate::language::{Buffer, Builder, Value};
use crate::runtime::{Amendment, Last, Runtime};
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::{DType, Expression, InlineVec, Scalar, Shape, Step};
use smallvec::SmallVec;

/// Programs that one kernel does at most.
const MOST: usize = 4;

/// A program on what a kernel computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EpilogueProgram {
    /// The dtype of what the kernel computes, and of what the program makes of it.
    pub dtype: DType,
    /// What is computed of each element.
    pub expression: Expression,
    /// Which of the program's operands the kernel's own result is.
    pub own: usize,
    /// The dtypes of the other operands, and how they are read.
    pub operands: InlineVec<(DType, Access)>,
    /// Number of dims over which strides are told.
    pub rank: usize,
}

/// A program with its operands in a kernel.
pub(super) struct Declared<'t, 'k> {
    epilogue: &'t EpilogueProgram,
    operands: Vec<(Buffer<'k>, Operand<'k>)>,
    dims: Vec<Value<'k>>,
    parameters: Vec<Vec<Value<'k>>>,
}

/// The next buffers and parameters as those of programs: of each the dims, the operands, the program's own. They are a kernel's last.
pub(super) fn declare<'t, 'k>(k: &'k Builder, programs: &'t [EpilogueProgram]) -> Vec<Declared<'t, 'k>> {
    let declared = programs.iter().map(|epilogue| {
        let dims = k.parameters(epilogue.rank);
        let operand = |&(dtype, access): &(DType, Access)| {
            (k.input(held_as(dtype)), Operand::declare(k, access, epilogue.rank))
        };
        let operands = epilogue.operands.iter().map(operand).collect();
        Declared {
            epilogue,
            operands,
            dims,
            parameters: program::declare_parameters(k, &epilogue.expression),
        }
    });
    declared.collect()
}

/// What the programs make of a value that would have been written at a position.
pub(super) fn apply<'k>(programs: &[Declared<'_, 'k>], position: Value<'k>, value: Value<'k>) -> Value<'k> {
    programs.iter().fold(value, |value, declared| {
        let coordinates = access::coordinates(position, &declared.dims);
        let read =
            |(buffer, operand): &(Buffer<'k>, Operand<'k>)| buffer.at(operand.at(position, &coordinates));
        let mut operands: Vec<_> = declared.operands.iter().map(read).collect();
        let mut dtypes: Vec<DType> = declared.epilogue.operands.iter().map(|&(dtype, _)| dtype).collect();
        operands.insert(declared.epilogue.own, value.held_as(held_as(declared.epilogue.dtype)));
        dtypes.insert(declared.epilogue.own, declared.epilogue.dtype);
        let operands = program::Operands { values: &operands, dtypes: &dtypes };
        let expression = &declared.epilogue.expression;
        let steps = program::evaluate(value.kernel(), expression, &operands, &[], &declared.parameters);
        expression.results().first().map_or(value, |&step| steps[usize::from(step)])
    })
}

impl Template {
    /// Which of its buffers it writes beside that of its result, for others to read or for itself; nothing if it does no programs after its own.
    pub fn written_beside(&self) -> Option<SmallVec<[usize; 2]>> {
        self.clone().programs().map(|(_, written)| written)
    }

    /// The programs that it does after its own, if it can do any, and which of its buffers it writes beside that of its result.
    fn programs(&mut self) -> Option<(&mut Vec<EpilogueProgram>, SmallVec<[usize; 2]>)> {
        let nothing = SmallVec::new();
        match self {
            Template::Elementwise(template) => {
                let first = template.place_of_result();
                let before_last = first..first + template.results.len().saturating_sub(1);
                Some((&mut template.epilogues, before_last.collect()))
            }
            Template::Transpose(template) => Some((&mut template.epilogues, nothing)),
            Template::Reduce(template) => {
                let written = template.written_beside();
                Some((&mut template.epilogues, written))
            }
            Template::Rows(template) => {
                let shared = template.from.as_ref().filter(|_| template.shares);
                let written = shared.map(|program| program.place_of_result()).into_iter().collect();
                Some((&mut template.epilogues, written))
            }
            Template::NormGradient(template) => {
                let written = template.statistics().collect();
                Some((&mut template.epilogues, written))
            }
            Template::Gather(template) => Some((&mut template.epilogues, nothing)),
            Template::Matmul(template) => Some((&mut template.epilogues, nothing)),
            Template::Direct(template) => Some((&mut template.epilogues, nothing)),
            Template::Gemv(template) => Some((&mut template.epilogues, nothing)),
            Template::Conv(template) => Some((&mut template.epilogues, nothing)),
            Template::DepthwiseConv(template) => Some((&mut template.epilogues, nothing)),
            Template::NarrowConv(template) => Some((&mut template.epilogues, nothing)),
            Template::RowConv(template) => Some((&mut template.epilogues, nothing)),
            Template::MatmulInteger(template) => Some((&mut template.epilogues, nothing)),
            Template::ConvInteger(template) => Some((&mut template.epilogues, nothing)),
            Template::Moments(_)
            | Template::JoinMoments(_)
            | Template::ArgReduce(_)
            | Template::CrossEntropy(_)
            | Template::Scan(_)
            | Template::Compact(_)
            | Template::Scatter(_)
            | Template::Assign(_)
            | Template::LastPlaces(_)
            | Template::EmbeddingGradient(_)
            | Template::SegmentedReduction(_)
            | Template::BlockSort(_)
            | Template::MergeRuns(_)
            | Template::Attention(_)
            | Template::TiledAttention(_)
            | Template::Decode(_)
            | Template::DecodeJoin(_)
            | Template::Flash(_)
            | Template::FlashGradient(_)
            | Template::WeightGradient(_)
            | Template::RowWeightGradient(_)
            | Template::FillChannels(_)
            | Template::Im2col(_)
            | Template::Pool(_)
            | Template::PoolGradient(_)
            | Template::AdaptivePoolGradient(_)
            | Template::Recurrent(_)
            | Template::RecurrentStep(_)
            | Template::Dropout(_)
            | Template::Random(_) => None,
        }
    }
}

/// Does a program of one result within the kernel that computed one of its operands, where that was the last one and nobody else holds what
/// it computed; elsewhere leaves the operands as they are. `shape` is what they broadcast to. Results are as if the kernels ran one after another: what would
/// have been written is rounded as it would have been.
pub(super) fn within_last<R: Runtime>(
    expression: &Expression,
    operands: &mut InlineVec<GpuTensor<R>>,
    parameters: &[Scalar],
    shape: &Shape,
    dtype: DType,
) -> Option<GpuTensor<R>> {
    let counts = |step: &Step| matches!(step, Step::Iota(..));
    if expression.only_result().is_none() || expression.steps.iter().any(counts) {
        return None;
    }
    for own in 0..operands.len() {
        let whole = |x: &GpuTensor<R>| x.dtype == dtype && lies_as(x, shape) && x.layout.offset == 0;
        if !whole(&operands[own]) {
            continue;
        }
        let mut x = operands.remove(own);
        let (device, elements) = (x.device.clone(), x.len());
        let amended = R::amend(&device, &mut x.memory, elements, |last| {
            if !last.is_alone {
                return None;
            }
            amendment(last, (expression, dtype), own, operands, parameters, shape)
        });
        if amended {
            return Some(x);
        }
        operands.insert(own, x);
    }
    None
}

/// Whether elements lie as those of a row-major tensor of a shape do.
fn lies_as<R: Runtime>(x: &GpuTensor<R>, shape: &Shape) -> bool {
    *x.dims() == *shape.dims && x.layout.is_contiguous()
}

fn amendment<'a, R: Runtime>(
    last: Last<'_, R>,
    (expression, dtype): (&Expression, DType),
    own: usize,
    operands: &'a [GpuTensor<R>],
    parameters: &[Scalar],
    shape: &Shape,
) -> Option<Amendment<'a, R>> {
    let buffers = last.buffers + operands.len();
    let (programs, written) = last.template.programs().filter(|(programs, _)| programs.len() < MOST)?;
    if let Some(first) = operands.first() {
        let fits = buffers <= R::limits(&first.device).bindings;
        if !fits || !operands.iter().all(GpuTensor::is_visible) {
            return None;
        }
    }
    // A program that read what the kernel itself writes would not be told that it is there by then.
    if operands.iter().any(|x| written.iter().any(|&buffer| (last.has_at)(&x.memory, buffer))) {
        return None;
    }
    let mut words = SmallVec::new();
    let mut kinds: InlineVec<(DType, Access)> = operands.iter().map(|x| (x.dtype, Access::Linear)).collect();
    let mut rank = 0;
    if operands.iter().all(|x| lies_as(x, shape)) {
        words.extend(operands.iter().map(|x| x.layout.offset as u32));
    } else {
        let expanded: SmallVec<[_; 4]> =
            operands.iter().map(|operand| operand.layout.expanded_strides(shape)).collect();
        let strides: SmallVec<[&[isize]; 4]> = expanded.iter().map(InlineVec::as_slice).collect();
        let walk = Walk::new(&shape.dims, &strides);
        for (n, (_, access)) in kinds.iter_mut().enumerate() {
            *access = walk.access(n);
        }
        if kinds.iter().any(|&(_, access)| access == Access::Strided) {
            rank = walk.dims.len();
            words.extend(walk.dim_words());
        }
        for (n, operand) in operands.iter().enumerate() {
            words.push(operand.layout.offset as u32);
            words.extend(walk.stride_words(n));
        }
    }
    program::append_parameters(&mut words, expression, parameters);
    programs.push(EpilogueProgram { dtype, expression: expression.clone(), own, operands: kinds, rank });
    Some(Amendment {
        buffers: operands.iter().map(|operand| &operand.memory).collect(),
        parameters: words,
        moved: operands.iter().map(GpuTensor::bytes_in_memory).sum::<usize>() as isize,
        instead: None,
    })
}
