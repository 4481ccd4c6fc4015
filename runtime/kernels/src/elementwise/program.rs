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
use kiln_types::{BinaryOp, CompareOp, DType, Expression, Step, UnaryOp};

/// Elements of a block.
const BLOCK: usize = 512;
/// Operands that a program may have.
const OPERANDS: usize = 8;

/// An [`Expression`] whose operands and result are all f32 (bool values may occur inside), ready to run.
#[derive(Clone, Debug)]
pub struct Program {
    steps: Vec<Step>,
    /// The block that each step writes; unused by inputs and constants.
    places: Vec<usize>,
    /// Number of blocks.
    space: usize,
    inputs: usize,
    /// Cost of eight elements in nanoseconds.
    work: usize,
}

/// Where a program reads one of its operands.
#[derive(Clone, Copy, Debug)]
pub enum ProgramOperand<'a> {
    /// A view.
    Strided(Strided<'a>),
    /// The output itself, before it is overwritten: the operand's buffer is reused.
    Output,
}

/// A [`ProgramOperand`] for threads.
#[derive(Clone, Copy)]
enum Source {
    View(View),
    Output,
}

impl Program {
    /// Prepares an expression; `None` when it needs more than f32 and bool, has more than 8 operands, or its result is
    /// not f32. The caller makes sure that the operands are f32.
    pub fn new(expression: &Expression) -> Option<Self> {
        let steps = expression.steps.clone();
        let mut kinds: Vec<DType> = Vec::with_capacity(steps.len());
        for step in &steps {
            kinds.push(kind_of(step, &kinds)?);
        }
        let input = |step: &Step| if let Step::Input(n) = step { usize::from(*n) + 1 } else { 0 };
        let inputs = steps.iter().map(input).max().unwrap_or(0);
        if kinds.last() != Some(&DType::F32) || inputs > OPERANDS {
            return None;
        }
        let (places, space) = places(&steps);
        let work = steps.iter().map(work_of).sum::<usize>() + 1;
        Some(Self { steps, places, space, inputs, work })
    }

    /// Number of operands.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Runs over `dims`; `out` is contiguous.
    ///
    /// # Panics
    /// When the number of operands is wrong, or an operand or `out` does not hold `dims`.
    pub fn run(&self, dims: &[usize], operands: &[ProgramOperand<'_>], out: &mut [f32]) {
        assert!(operands.len() >= self.inputs, "the program reads {} operands", self.inputs);
        assert_eq!(out.len(), dims.iter().product::<usize>(), "the output does not have the dims {dims:?}");
        let operands = &operands[..self.inputs];
        let mut sources = [Source::Output; OPERANDS];
        for (source, operand) in sources.iter_mut().zip(operands) {
            if let ProgramOperand::Strided(view) = operand {
                view.check(dims);
                *source = Source::View(View::of(view));
            }
        }
        if out.is_empty() {
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
        let out = SharedMut::new(out);
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
                            // SAFETY: views were checked, pieces of the output are disjoint.
                            unsafe {
                                let to = out.ptr(i * row + part.start);
                                let input = |n: usize| match sources[n] {
                                    Source::Output => Row::Elements(to.cast_const()),
                                    Source::View(view) => view.row(offsets[n], steps[n]).from(part.start),
                                };
                                self.block(&input, space, to, part.len());
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
    /// `input` yields rows of `n ≤ BLOCK` elements, `out` is valid for as many, `space` has the program's blocks.
    unsafe fn block(&self, input: &dyn Fn(usize) -> Row, space: &mut [f32], out: *mut f32, n: usize) {
        let space = space.as_mut_ptr();
        let row = |id: u16| {
            let id = usize::from(id);
            match self.steps[id] {
                Step::Input(k) => input(usize::from(k)),
                Step::Constant(value, _) => Row::Scalar(value.to_f64() as f32),
                // SAFETY: the block lies inside of the space.
                _ => Row::Elements(unsafe { space.add(self.places[id] * BLOCK) }.cast_const()),
            }
        };
        let last = self.steps.len() - 1;
        for (k, step) in self.steps.iter().enumerate() {
            if k < last && matches!(step, Step::Input(_) | Step::Constant(..)) {
                continue;
            }
            // SAFETY: as above; `out` is the caller's promise.
            unsafe {
                let to = if k == last { out } else { space.add(self.places[k] * BLOCK) };
                run_step(step, k, &row, to, n);
            }
        }
    }
}

/// Runs one step over a block.
///
/// # Safety
/// `row` yields rows of `n` elements for earlier steps, `to` is valid for as many.
unsafe fn run_step(step: &Step, k: usize, row: &dyn Fn(u16) -> Row, to: *mut f32, n: usize) {
    let (zero, one) = (Row::Scalar(0.0), Row::Scalar(1.0));
    // SAFETY: the caller's promise.
    unsafe {
        match *step {
            // As the result: a copy.
            Step::Input(_) | Step::Constant(..) => copy(row(k as u16), to, n),
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
        Step::Constant(..) => 0,
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
        Step::Constant(_, dtype) => Some(dtype).filter(|k| float(k) || bool(k)),
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

/// The steps that a step reads.
fn operands_of(step: &Step) -> impl Iterator<Item = usize> {
    let ids = match *step {
        Step::Input(_) | Step::Constant(..) => [None, None, None],
        Step::Unary(_, x) | Step::Activation(_, x) | Step::Cast(_, x) => [Some(x), None, None],
        Step::Binary(_, a, b) | Step::Compare(_, a, b) => [Some(a), Some(b), None],
        Step::Where(mask, a, b) => [Some(mask), Some(a), Some(b)],
    };
    ids.into_iter().flatten().map(usize::from)
}

/// Gives each step a block, used again once nobody reads it any more.
fn places(steps: &[Step]) -> (Vec<usize>, usize) {
    let mut last_read = vec![0; steps.len()];
    for (k, step) in steps.iter().enumerate() {
        operands_of(step).for_each(|id| last_read[id] = k);
    }
    let (mut places, mut free, mut space) = (vec![0; steps.len()], Vec::new(), 0);
    for (k, step) in steps.iter().enumerate() {
        if matches!(step, Step::Input(_) | Step::Constant(..)) {
            continue;
        }
        places[k] = free.pop().unwrap_or_else(|| {
            space += 1;
            space - 1
        });
        let mut done: Vec<usize> = operands_of(step).filter(|&id| last_read[id] == k).collect();
        done.sort_unstable();
        done.dedup();
        let written = |id: &usize| !matches!(steps[*id], Step::Input(_) | Step::Constant(..));
        free.extend(done.into_iter().filter(written).map(|id| places[id]));
        if last_read[k] <= k {
            free.push(places[k]);
        }
    }
    (places, space)
}
