//! Elementwise programs: a chain of operations in one pass over memory.
//!
//! A program runs over short blocks. Each step writes a block of working space that stays in the first-level cache, the
//! last step writes the output; operands and constants are read where they are.

use super::broadcast::{Strided, View};
use super::rows::{Row, binary_row, compare_row_f32, select_row};
use crate::math::{Map, map_slice};
use crate::scratch::with_scratch;
use crate::threads::{SharedMut, parallel_for};
use crate::walk::Walk;
use kiln_types::{BinaryOp, CompareOp, DType, Expression, InlineVec, Scalar, Shape, Step, StepId, UnaryOp};
use smallvec::SmallVec;

/// Elements of a block.
const BLOCK: usize = 512;
/// Operands that a program may have.
const OPERANDS: usize = 8;
/// Results that a program may have.
const OUTPUTS: usize = 4;

/// Something of each step. Up to 64 lie inline, more than programs that people write have, so that a run allocates nothing.
type OfSteps<T> = SmallVec<[T; 64]>;

/// Whole numbers up to this one are f32, each of them.
const WHOLE: usize = 1 << 24;

/// An [`Expression`] whose operands and results are all f32, ready to run. Inside, bool values may occur, and positions and whole numbers that
/// are compared with them.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    steps: &'a [Step],
    parameters: &'a [Scalar],
    /// The block that each step writes; unused by inputs and numbers.
    places: OfSteps<Place>,
    /// Number of blocks.
    space: usize,
    inputs: usize,
    /// The steps that are results.
    outputs: InlineVec<StepId>,
    /// Cost of eight elements in nanoseconds.
    work: usize,
}

/// Where a step's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a block of working space.
    Block(u16),
    /// In a result.
    Output(u16),
}

/// Where a program reads one of its operands.
#[derive(Clone, Copy, Debug)]
pub enum ProgramOperand<'a> {
    /// A view.
    Strided(Strided<'a>),
    /// This output, before it is overwritten: the operand's buffer is reused. See [`Program::may_overwrite`].
    Output(usize),
}

/// A [`ProgramOperand`] for threads.
#[derive(Clone, Copy)]
enum Source {
    View(View),
    Output(usize),
}

/// The part of a run that one block covers.
struct Block<'a> {
    /// The operands' rows.
    inputs: &'a dyn Fn(usize) -> Row,
    /// Where the results go.
    outputs: [*mut f32; OUTPUTS],
    /// Position of its first element in the results.
    start: usize,
    /// Number of its elements.
    len: usize,
    /// The results' dims.
    dims: &'a [usize],
}

impl<'a> Program<'a> {
    /// Prepares an expression over `dims`; `None` when it needs more than f32, bool and comparisons of positions, has more than 8 operands, 4
    /// results or 65535 steps, or a result is not f32. The caller makes sure that the operands are f32.
    pub fn new(expression: &'a Expression, parameters: &'a [Scalar], dims: &[usize]) -> Option<Self> {
        let steps = expression.steps.as_slice();
        if steps.len() > usize::from(StepId::MAX) {
            return None;
        }
        let counts = |step: &Step| matches!(step, Step::Iota(_, DType::I32 | DType::I64));
        if dims.iter().any(|&size| size > WHOLE) && steps.iter().any(counts) {
            return None;
        }
        let mut kinds: OfSteps<DType> = OfSteps::new();
        let mut inputs = 0;
        for step in steps {
            match *step {
                Step::Input(n) => inputs = inputs.max(usize::from(n) + 1),
                Step::Parameter(n, _) if usize::from(n) >= parameters.len() => return None,
                _ => {}
            }
            kinds.push(kind_of(step, &kinds)?);
        }
        let outputs = expression.results();
        let float = |step: &StepId| kinds.get(usize::from(*step)) == Some(&DType::F32);
        if outputs.is_empty() || outputs.len() > OUTPUTS || !outputs.iter().all(float) || inputs > OPERANDS {
            return None;
        }
        let (places, space) = places(steps, &outputs);
        let work = steps.iter().map(work_of).sum::<usize>() + 1;
        Some(Self { steps, parameters, places, space, inputs, outputs, work })
    }

    /// Number of operands.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Number of results.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Whether a result may be written over an operand: nothing reads the operand after the result is there.
    pub fn may_overwrite(&self, output: usize, operand: usize) -> bool {
        let input = |step: StepId| match self.steps[usize::from(step)] {
            Step::Input(n) => Some(usize::from(n)),
            _ => None,
        };
        let is_operand = |step: StepId| input(step) == Some(operand);
        let step = usize::from(self.outputs[output]);
        let read_later = self.steps[step + 1..].iter().any(|later| later.operands().any(is_operand));
        // Results that no step writes are copied at the end.
        self.places[step] == Place::Output(output as u16)
            && !read_later
            && !self.outputs.iter().any(|&step| is_operand(step))
    }

    /// Runs over `dims`; the outputs are contiguous.
    ///
    /// # Panics
    /// When the number of operands or outputs is wrong, one does not hold `dims`, or an operand is an output that may not
    /// overwrite it.
    pub fn run(&self, dims: &[usize], operands: &[ProgramOperand<'_>], outputs: &mut [&mut [f32]]) {
        assert!(operands.len() >= self.inputs, "the program reads {} operands", self.inputs);
        assert_eq!(outputs.len(), self.outputs.len(), "the program has another number of results");
        let Some(len) = Shape::count(dims) else {
            panic!("dims {dims:?} have more elements than memory can have")
        };
        assert!(outputs.iter().all(|out| out.len() == len), "an output does not have the dims {dims:?}");
        let operands = &operands[..self.inputs];
        let mut sources = [Source::Output(0); OPERANDS];
        for (n, (source, operand)) in sources.iter_mut().zip(operands).enumerate() {
            *source = match operand {
                ProgramOperand::Strided(view) => {
                    view.check(dims);
                    Source::View(View::of(view))
                }
                ProgramOperand::Output(output) => {
                    assert!(self.may_overwrite(*output, n), "output {output} may not overwrite operand {n}");
                    Source::Output(*output)
                }
            };
        }
        if len == 0 {
            return;
        }
        let mut row = 1;
        let dense: InlineVec<isize> = dims
            .iter()
            .rev()
            .map(|d| {
                let step = row;
                row *= *d as isize;
                step
            })
            .collect();
        let walk = Walk::<OPERANDS>::new(dims, |n, axis| match operands.get(n) {
            Some(ProgramOperand::Strided(view)) => view.strides[axis] as isize,
            // The output's own layout, so that it never hinders merging.
            _ => dense[dims.len() - 1 - axis],
        });
        let (row, steps) = (walk.row(), walk.row_strides());
        let mut targets: [SharedMut<'_, f32>; OUTPUTS] = core::array::from_fn(|_| SharedMut::new(&mut []));
        for (target, out) in targets.iter_mut().zip(outputs) {
            *target = SharedMut::new(out);
        }
        let count = self.outputs.len();
        let pieces = row.div_ceil(BLOCK);
        let work = row.min(BLOCK) * self.work / 8 + 3 * self.steps.len();
        parallel_for(walk.rows() * pieces, work, |range| {
            with_scratch(self.space * BLOCK, |space| {
                walk.for_each(range.start / pieces..range.end.div_ceil(pieces), |i, offsets| {
                    let (first, end) = (i * pieces, (i + 1) * pieces);
                    for unit in range.start.max(first)..range.end.min(end) {
                        let from = (unit - first) * BLOCK;
                        let (start, len) = (i * row + from, BLOCK.min(row - from));
                        // SAFETY: views were checked, pieces of the outputs are disjoint, `start` lies inside.
                        unsafe {
                            let mut outputs = [core::ptr::null_mut(); OUTPUTS];
                            for (to, target) in outputs.iter_mut().zip(&targets).take(count) {
                                *to = target.ptr(start);
                            }
                            let inputs = |n: usize| match sources[n] {
                                Source::Output(n) => Row::Elements(outputs[n].cast_const()),
                                Source::View(view) => view.row(offsets[n], steps[n]).from(from),
                            };
                            self.block(&Block { inputs: &inputs, outputs, start, len, dims }, space);
                        }
                    }
                });
            });
        });
    }

    /// Runs all steps over one block.
    ///
    /// # Safety
    /// `inputs` yields rows of `len ≤ BLOCK` elements, the outputs are valid for as many, `space` has the program's blocks.
    unsafe fn block(&self, block: &Block<'_>, space: &mut [f32]) {
        let space = space.as_mut_ptr();
        let place = |step: usize| match self.places[step] {
            // SAFETY: the block lies inside of the space.
            Place::Block(n) => unsafe { space.add(usize::from(n) * BLOCK) },
            Place::Output(n) => block.outputs[usize::from(n)],
        };
        let number = |value: Scalar| Row::Scalar(value.to_f64() as f32);
        let row = |id: StepId| {
            let id = usize::from(id);
            match self.steps[id] {
                Step::Input(k) => (block.inputs)(usize::from(k)),
                Step::Constant(value, _) => number(value),
                Step::Parameter(n, _) => number(self.parameters[usize::from(n)]),
                _ => Row::Elements(place(id).cast_const()),
            }
        };
        for (k, step) in self.steps.iter().enumerate() {
            match *step {
                Step::Input(_) | Step::Constant(..) | Step::Parameter(..) => {}
                // SAFETY: a place holds a block.
                Step::Iota(dim, _) => unsafe { iota(block, usize::from(dim), place(k)) },
                // SAFETY: as above, and so do the rows.
                _ => unsafe { run_step(step, &row, place(k), block.len) },
            }
        }
        for (&step, output) in self.outputs.iter().zip(0..) {
            let id = usize::from(step);
            if !writes(&self.steps[id]) || self.places[id] != Place::Output(output) {
                // SAFETY: as above.
                unsafe { copy(row(step), block.outputs[usize::from(output)], block.len) };
            }
        }
    }
}

/// Whether a step has a place that it writes.
fn writes(step: &Step) -> bool {
    !matches!(step, Step::Input(_) | Step::Constant(..) | Step::Parameter(..))
}

/// Writes the positions of a block's elements along a dim.
///
/// # Safety
/// `to` is valid for the block's elements.
unsafe fn iota(block: &Block<'_>, dim: usize, to: *mut f32) {
    let inner: usize = block.dims[dim + 1..].iter().product();
    let (mut at, mut within, mut done) = (block.start / inner % block.dims[dim], block.start % inner, 0);
    while done < block.len {
        let count = (inner - within).min(block.len - done);
        // SAFETY: the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(to.add(done), count) }.fill(at as f32);
        (done, within) = (done + count, 0);
        at = if at + 1 == block.dims[dim] { 0 } else { at + 1 };
    }
}

/// Runs one step over a block.
///
/// # Safety
/// `row` yields rows of `n` elements for earlier steps, `to` is valid for as many.
unsafe fn run_step(step: &Step, row: &dyn Fn(u16) -> Row, to: *mut f32, n: usize) {
    let (zero, one) = (Row::Scalar(0.0), Row::Scalar(1.0));
    // SAFETY: the caller's promise.
    unsafe {
        match *step {
            // Read where they are.
            Step::Input(_) | Step::Constant(..) | Step::Parameter(..) | Step::Iota(..) => {}
            Step::Unary(UnaryOp::Not, x) => binary_row(BinaryOp::Sub, one, row(x), to, n),
            Step::Unary(UnaryOp::IsNan, x) => compare_row_f32(CompareOp::NotEqual, row(x), row(x), to, n),
            Step::Unary(UnaryOp::IsInf, x) => {
                let x = row(x);
                for i in 0..n {
                    *to.add(i) = f32::from(u8::from(x.at(i).is_infinite()));
                }
            }
            Step::Unary(op, x) => map(Map::Unary(op), row(x), to, n),
            Step::Activation(activation, x) => map(Map::Activation(activation), row(x), to, n),
            Step::Binary(BinaryOp::And, a, b) => binary_row(BinaryOp::Mul, row(a), row(b), to, n),
            Step::Binary(BinaryOp::Or, a, b) => binary_row(BinaryOp::Max, row(a), row(b), to, n),
            Step::Binary(BinaryOp::Xor, a, b) => compare_row_f32(CompareOp::NotEqual, row(a), row(b), to, n),
            Step::Binary(op, a, b) => binary_row(op, row(a), row(b), to, n),
            Step::Compare(op, a, b) => compare_row_f32(op, row(a), row(b), to, n),
            Step::Where(mask, a, b) => select_row(row(mask), row(a), row(b), to, n),
            Step::Cast(DType::Bool, x) => compare_row_f32(CompareOp::NotEqual, row(x), zero, to, n),
            Step::Cast(_, x) => copy(row(x), to, n),
        }
    }
}

/// Copies a row.
///
/// # Safety
/// Row and destination hold `n` elements.
unsafe fn copy(from: Row, to: *mut f32, n: usize) {
    // SAFETY: the caller's promise; `copy` allows one place.
    unsafe {
        match from {
            Row::Elements(from) => core::ptr::copy(from, to, n),
            from => (0..n).for_each(|i| *to.add(i) = from.at(i)),
        }
    }
}

/// Applies a function to a row.
///
/// # Safety
/// Row and destination hold `n` elements.
unsafe fn map(map: Map, from: Row, to: *mut f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Row::Elements(from) = from {
            return map_slice(map, from, to, n);
        }
        copy(from, to, n);
        map_slice(map, to, to, n);
    }
}

/// The cost of eight elements of a step.
fn work_of(step: &Step) -> usize {
    match *step {
        Step::Input(_) => 1,
        Step::Constant(..) | Step::Parameter(..) => 0,
        Step::Iota(..) => 8,
        Step::Unary(op, _) => Map::Unary(op).work(),
        Step::Activation(activation, _) => Map::Activation(activation).work(),
        Step::Binary(BinaryOp::Pow | BinaryOp::Remainder | BinaryOp::Fmod | BinaryOp::Atan2, ..) => 80,
        _ => 1,
    }
}

/// The dtype of a step's result; `None` when a program cannot have it.
fn kind_of(step: &Step, kinds: &[DType]) -> Option<DType> {
    let kind = |id: u16| kinds.get(usize::from(id)).copied();
    let both = |a: u16, b: u16| kind(a).filter(|&k| Some(k) == kind(b));
    let float = |kind: &DType| *kind == DType::F32;
    let bool = |kind: &DType| *kind == DType::Bool;
    let position = |kind: &DType| matches!(kind, DType::I32 | DType::I64);
    match *step {
        Step::Input(_) => Some(DType::F32),
        Step::Constant(Scalar::Int(value), dtype) if position(&dtype) => {
            Some(dtype).filter(|_| value.unsigned_abs() <= WHOLE as u64)
        }
        Step::Constant(_, dtype) | Step::Parameter(_, dtype) => Some(dtype).filter(|k| float(k) || bool(k)),
        Step::Iota(_, dtype) => Some(dtype).filter(|k| float(k) || position(k)),
        Step::Unary(UnaryOp::Not, x) => kind(x).filter(bool),
        Step::Unary(UnaryOp::IsNan | UnaryOp::IsInf, x) => kind(x).filter(float).map(|_| DType::Bool),
        Step::Unary(UnaryOp::BitwiseNot, _) => None,
        Step::Unary(_, x) | Step::Activation(_, x) => kind(x).filter(float),
        Step::Binary(op, a, b) => {
            use BinaryOp::*;
            match op {
                And | Or | Xor => both(a, b).filter(bool),
                Add | Sub | Mul | Div | Pow | Remainder | Fmod | Max | Min | Atan2 => {
                    both(a, b).filter(float)
                }
                BitwiseAnd | BitwiseOr | BitwiseXor | ShiftLeft | ShiftRight => None,
            }
        }
        Step::Compare(_, a, b) => both(a, b).map(|_| DType::Bool),
        Step::Where(mask, a, b) => kind(mask).filter(bool).and(both(a, b)),
        Step::Cast(to, x) => kind(x).map(|_| to).filter(|k| float(k) || bool(k)),
    }
}

/// Gives each step that writes a place: a result's if it is one, else a block, used again once nobody reads it any more.
fn places(steps: &[Step], outputs: &[StepId]) -> (OfSteps<Place>, usize) {
    let mut last_read: OfSteps<StepId> = OfSteps::from_elem(0, steps.len());
    for (step, k) in steps.iter().zip(0..) {
        step.operands().for_each(|id| last_read[usize::from(id)] = k);
    }
    let mut places: OfSteps<Place> = OfSteps::from_elem(Place::Block(0), steps.len());
    let (mut free, mut space): (OfSteps<u16>, u16) = (OfSteps::new(), 0);
    for (step, k) in steps.iter().zip(0..) {
        if !writes(step) {
            continue;
        }
        places[usize::from(k)] = match outputs.iter().position(|&output| output == k) {
            Some(output) => Place::Output(output as u16),
            None => Place::Block(free.pop().unwrap_or_else(|| {
                space += 1;
                space - 1
            })),
        };
        let last_read = |id: StepId| last_read[usize::from(id)];
        let read = step.operands().filter(|&id| last_read(id) == k);
        for id in read.chain((last_read(k) <= k).then_some(k)) {
            // A step may read another twice.
            if let Place::Block(block) = places[usize::from(id)]
                && writes(&steps[usize::from(id)])
                && !free.contains(&block)
            {
                free.push(block);
            }
        }
    }
    (places, usize::from(space))
}
