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
use alloc::{vec, vec::Vec};
use kiln_types::{BinaryOp, CompareOp, DType, Expression, Scalar, Step, UnaryOp};

/// Elements of a block.
const BLOCK: usize = 512;
/// Operands that a program may have.
const OPERANDS: usize = 8;
/// Results that a program may have.
const OUTPUTS: usize = 4;

/// An [`Expression`] whose operands and results are all f32 (bool values may occur inside), ready to run.
#[derive(Clone, Debug)]
pub struct Program {
    steps: Vec<Step>,
    /// The block that each step writes; unused by inputs and numbers.
    places: Vec<Place>,
    /// Number of blocks.
    space: usize,
    inputs: usize,
    /// The steps that are results.
    outputs: Vec<usize>,
    /// Cost of eight elements in nanoseconds.
    work: usize,
}

/// Where a step's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a block of working space.
    Block(usize),
    /// In a result.
    Output(usize),
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

impl Program {
    /// Prepares an expression; `None` when it needs more than f32 and bool, has more than 8 operands or 4 results, or a
    /// result is not f32. The caller makes sure that the operands are f32.
    pub fn new(expression: &Expression, parameters: &[Scalar]) -> Option<Self> {
        let told = |step: &Step| match *step {
            Step::Parameter(n, dtype) => Some(Step::Constant(*parameters.get(usize::from(n))?, dtype)),
            step => Some(step),
        };
        let steps = expression.steps.iter().map(told).collect::<Option<Vec<Step>>>()?;
        let mut kinds: Vec<DType> = Vec::with_capacity(steps.len());
        for step in &steps {
            kinds.push(kind_of(step, &kinds)?);
        }
        let input = |step: &Step| if let Step::Input(n) = step { usize::from(*n) + 1 } else { 0 };
        let inputs = steps.iter().map(input).max().unwrap_or(0);
        let outputs: Vec<usize> = expression.results().into_iter().map(usize::from).collect();
        let float = |step: &usize| kinds.get(*step) == Some(&DType::F32);
        if outputs.is_empty() || outputs.len() > OUTPUTS || !outputs.iter().all(float) || inputs > OPERANDS {
            return None;
        }
        let (places, space) = places(&steps, &outputs);
        let work = steps.iter().map(work_of).sum::<usize>() + 1;
        Some(Self { steps, places, space, inputs, outputs, work })
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
        let is_operand =
            |step: usize| matches!(self.steps[step], Step::Input(n) if usize::from(n) == operand);
        let (step, count) = (self.outputs[output], self.steps.len());
        let read_later = (step + 1..count)
            .any(|later| self.steps[later].operands().any(|read| is_operand(usize::from(read))));
        // Results that no step writes are copied at the end.
        self.places[step] == Place::Output(output)
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
        let len = dims.iter().product::<usize>();
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
        let dense: Vec<isize> = dims
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
                let mut unit = range.start;
                while unit < range.end {
                    let (i, first) = (unit / pieces, unit % pieces);
                    let last = pieces.min(first + range.end - unit);
                    walk.for_each(i..i + 1, |_, offsets| {
                        for piece in first..last {
                            let part = piece * BLOCK..row.min((piece + 1) * BLOCK);
                            let start = i * row + part.start;
                            // SAFETY: views were checked, pieces of the outputs are disjoint, `start` lies inside.
                            unsafe {
                                let mut outputs = [core::ptr::null_mut(); OUTPUTS];
                                for (to, target) in outputs.iter_mut().zip(&targets).take(count) {
                                    *to = target.ptr(start);
                                }
                                let inputs = |n: usize| match sources[n] {
                                    Source::Output(n) => Row::Elements(outputs[n].cast_const()),
                                    Source::View(view) => view.row(offsets[n], steps[n]).from(part.start),
                                };
                                let block = Block { inputs: &inputs, outputs, start, len: part.len(), dims };
                                self.block(&block, space);
                            }
                        }
                    });
                    unit += last - first;
                }
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
            Place::Block(n) => unsafe { space.add(n * BLOCK) },
            Place::Output(n) => block.outputs[n],
        };
        let row = |id: u16| {
            let id = usize::from(id);
            match self.steps[id] {
                Step::Input(k) => (block.inputs)(usize::from(k)),
                Step::Constant(value, _) => Row::Scalar(value.to_f64() as f32),
                _ => Row::Elements(place(id).cast_const()),
            }
        };
        for (k, step) in self.steps.iter().enumerate() {
            match *step {
                Step::Input(_) | Step::Constant(..) => {}
                // SAFETY: a place holds a block.
                Step::Iota(dim, _) => unsafe { iota(block, usize::from(dim), place(k)) },
                // SAFETY: as above, and so do the rows.
                _ => unsafe { run_step(step, &row, place(k), block.len) },
            }
        }
        for (output, &step) in self.outputs.iter().enumerate() {
            if !writes(&self.steps[step]) || self.places[step] != Place::Output(output) {
                // SAFETY: as above.
                unsafe { copy(row(step as u16), block.outputs[output], block.len) };
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
    for i in 0..block.len {
        let at = (block.start + i) / inner % block.dims[dim];
        // SAFETY: the caller's promise.
        unsafe { *to.add(i) = at as f32 };
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
    match *step {
        Step::Input(_) => Some(DType::F32),
        Step::Constant(_, dtype) | Step::Parameter(_, dtype) => Some(dtype).filter(|k| float(k) || bool(k)),
        Step::Iota(_, dtype) => Some(dtype).filter(float),
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
fn places(steps: &[Step], outputs: &[usize]) -> (Vec<Place>, usize) {
    let mut last_read = vec![0; steps.len()];
    for (k, step) in steps.iter().enumerate() {
        step.operands().for_each(|id| last_read[usize::from(id)] = k);
    }
    let (mut places, mut free, mut space) = (vec![Place::Block(0); steps.len()], Vec::new(), 0);
    for (k, step) in steps.iter().enumerate() {
        if !writes(step) {
            continue;
        }
        let mut done: Vec<usize> =
            step.operands().map(usize::from).filter(|&id| last_read[id] == k).collect();
        places[k] = match outputs.iter().position(|&output| output == k) {
            Some(output) => Place::Output(output),
            None => Place::Block(free.pop().unwrap_or_else(|| {
                space += 1;
                space - 1
            })),
        };
        if last_read[k] <= k {
            done.push(k);
        }
        done.sort_unstable();
        done.dedup();
        free.extend(done.into_iter().filter_map(|id| match places[id] {
            Place::Block(block) if writes(&steps[id]) => Some(block),
            _ => None,
        }));
    }
    (places, space)
}
