//! What a kernel reads of a tensor: elements in memory, or, where an elementwise program had just been asked to compute them, what that program yields of
//! each. So they cost neither a kernel of their own nor a way to memory and back; where somebody else holds them, they are written on the way, by kernels that
//! have each element once.

use super::direct::Side;
use super::elementwise::{Declared, Elementwise};
use super::{Template, launch_open};
use crate::language::{Builder, Value};
use crate::runtime::{Amendment, Instead, Last, Runtime};
use crate::tensor::GpuTensor;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{Activation, BinaryOp, DType, Expression, Step, UnaryOp};
use smallvec::SmallVec;

/// The program whose result is read in place of a tensor, if it is one; it may have several, read in place of as many tensors that lie alike.
pub type Program = Option<Box<Elementwise>>;

/// An operand of a program that another one yields, in the same kernel, which also writes it: somebody else reads it, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Computed {
    /// Which operand.
    pub operand: usize,
    /// What yields it, one after another: its only result.
    pub by: Box<Elementwise>,
}

/// A tensor in a kernel.
pub(super) enum Source<'t, 'k> {
    Memory(Side<'k>),
    Program(Declared<'t, 'k>),
}

impl<'t, 'k> Source<'t, 'k> {
    /// The next buffers and parameters as those of a tensor of a dtype, or of the program that yields its elements, of which one or four are read at once.
    pub(super) fn declare(k: &'k Builder, dtype: DType, program: &'t Program, neighbours: u32) -> Self {
        match program {
            None => Source::Memory(Side::declare(k, dtype, neighbours == 4)),
            Some(program) => Source::Program(program.declare(k, false, program.fours > 0)),
        }
    }

    /// Likewise of a tensor that is computed of another, which is the result of a program that stands before all else and is written as it is read.
    pub(super) fn declare_of(
        k: &'k Builder,
        dtype: DType,
        program: &'t Program,
        neighbours: u32,
        computed: &'t Option<Computed>,
    ) -> Self {
        match (program, computed) {
            (Some(program), Some(Computed { operand, by })) => {
                let fours = program.fours > 0;
                let computed = by.declare(k, true, fours);
                Source::Program(program.declare_of(k, false, fours, Some((*operand, computed))))
            }
            _ => Self::declare(k, dtype, program, neighbours),
        }
    }

    /// Likewise of a tensor whose elements are read one by one. Somebody else may be about to read it too: then the buffer of what the program yields follows
    /// those that it reads.
    pub(super) fn declare_shared(
        k: &'k Builder,
        dtype: DType,
        program: &'t Program,
        is_shared: bool,
    ) -> Self {
        match program {
            Some(program) if is_shared => Source::Program(program.declare(k, true, false)),
            _ => Self::declare(k, dtype, program, 1),
        }
    }

    /// Writes an element for who else is about to read it.
    pub(super) fn write_shared(&self, position: Value<'k>, element: Value<'k>) {
        if let Source::Program(program) = self {
            program.write_first(position, element);
        }
    }

    /// The element at a position in memory; of a program with several results the first one's.
    pub(super) fn at(&self, position: Value<'k>) -> Value<'k> {
        match self {
            Source::Memory(side) => side.one(position),
            Source::Program(program) => program.results_of(position, 1)[0],
        }
    }

    /// As many elements from a position on as are read at once, of each result; four begin at a multiple of that.
    pub(super) fn neighbours(&self, position: Value<'k>, neighbours: u32) -> Vec<Value<'k>> {
        match self {
            Source::Memory(side) => side.at(position),
            Source::Program(program) => program.results_of(position, neighbours),
        }
    }
}

/// How a kernel reads a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// Each element once.
    Once,
    /// Each several times: only what is computed as fast as read is computed each time.
    Again,
}

/// A kernel that reads a tensor, some others after it, and writes all of one.
pub(super) struct Reader<'a, R: Runtime> {
    pub reads: Reads,
    /// Whether it can write what it reads for who else holds the tensor: it has each element once.
    pub shares: bool,
    /// How many elements it reads at once, one or four.
    pub neighbours: u32,
    /// The others.
    pub others: &'a [GpuTensor<R>],
    /// What it writes before it writes the result, behind the others.
    pub left: Option<GpuTensor<R>>,
    /// The parameters.
    pub words: &'a [u32],
    pub groups: [u32; 3],
}

impl<R: Runtime> Reader<'_, R> {
    /// Runs the kernel that `template` makes of where `x` comes from, and of whether it also writes that, and yields what it wrote: a tensor like `out`, whose
    /// contents are arbitrary. The program that computes `x` becomes a part of it where that was the last kernel.
    pub(super) fn launch<T: Into<Template>>(
        &self,
        mut x: GpuTensor<R>,
        out: GpuTensor<R>,
        template: impl Fn(Program, bool) -> T,
    ) -> GpuTensor<R> {
        let (device, elements) = (x.device.clone(), x.len());
        let mut written: SmallVec<[GpuTensor<R>; 2]> = self.left.iter().cloned().chain([out]).collect();
        // Memory that the program reads may have been given back already, and be what is to be written to.
        let mut in_use = Vec::new();
        let is_done = loop {
            let mut is_read = false;
            let (dtype, bytes) = (x.dtype, x.bytes_in_memory());
            let is_done = R::amend(&device, &mut x.memory, elements, |last| {
                if !(last.is_alone || self.shares) {
                    return None;
                }
                is_read = written.iter().any(|written| last.uses(&written.memory));
                if is_read { None } else { self.with_program(last, (dtype, bytes), &written, &template) }
            });
            if is_done || !is_read {
                break is_done;
            }
            let others =
                written.iter().map(|one| GpuTensor::empty(one.shape(), one.dtype, &device)).collect();
            in_use.push(core::mem::replace(&mut written, others));
        };
        if !is_done {
            let tensors: SmallVec<[&GpuTensor<R>; 8]> =
                [&x].into_iter().chain(self.others).chain(&written).collect();
            launch_open::<R>(&device, template(None, false), &tensors, self.words, self.groups);
        }
        match written.pop() {
            Some(out) => out,
            None => unreachable!("a reader writes a result"),
        }
    }

    /// The last kernel as one that reads what it computes.
    fn with_program<'a, T: Into<Template>>(
        &'a self,
        last: Last<'_, R>,
        (dtype, bytes): (DType, usize),
        written: &'a [GpuTensor<R>],
        template: impl Fn(Program, bool) -> T,
    ) -> Option<Amendment<'a, R>> {
        let (Template::Elementwise(program), Some(out)) = (&*last.template, written.last()) else {
            return None;
        };
        let further = || self.others.iter().chain(written);
        let is_shared = !last.is_alone;
        // They take the place of the program's own result, unless somebody else is about to read that.
        let buffers = last.buffers - usize::from(!is_shared) + further().count();
        let fits = buffers <= R::limits(&out.device).bindings;
        let is_visible = further().all(GpuTensor::is_visible);
        let pays = self.reads == Reads::Once || is_as_fast_as_reading(program);
        // What is written for others is not read by another way in the same kernel.
        let is_read_otherwise = is_shared && self.others.iter().any(|other| last.uses(&other.memory));
        if is_read_otherwise {
            return None;
        }
        if !fits || !is_visible || !pays || program.results.first().is_none_or(|&(of, _)| of != dtype) {
            return None;
        }
        if self.neighbours > 1 && program.fours == 0 {
            return None;
        }
        let without = (!is_shared).then_some(program.operands.len());
        // It is the same program however it would have been written.
        let program = Elementwise { fours: u32::from(self.neighbours > 1), ..program.clone() };
        *last.template = template(Some(Box::new(program)), is_shared).into();
        let moved: usize = further().map(GpuTensor::bytes_in_memory).sum();
        Some(Amendment {
            buffers: further().map(|tensor| &tensor.memory).collect(),
            parameters: self.words.into(),
            moved: moved as isize - if is_shared { 0 } else { bytes as isize },
            instead: Some(Instead {
                without,
                groups: self.groups,
                writes_all_of: Some((further().count() - 1, out.len())),
            }),
        })
    }
}

/// Whether a program has no functions that take a GPU as long as reading its result. What only moves elements was asked for so that they
/// lie otherwise.
fn is_as_fast_as_reading(program: &Elementwise) -> bool {
    let is_fast = |expression: &Expression| expression.steps.iter().all(is_arithmetic);
    program.expression.steps.len() > 1
        && is_fast(&program.expression)
        && program.epilogues.iter().all(|epilogue| is_fast(&epilogue.expression))
}

fn is_arithmetic(step: &Step) -> bool {
    match step {
        Step::Binary(op, ..) => {
            matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min)
        }
        Step::Unary(op, _) => matches!(op, UnaryOp::Neg | UnaryOp::Abs),
        Step::Activation(activation, _) => matches!(
            activation,
            Activation::Relu
                | Activation::LeakyRelu { .. }
                | Activation::Affine { .. }
                | Activation::Clamp { .. }
        ),
        Step::Input(..)
        | Step::Parameter(..)
        | Step::Constant(..)
        | Step::Iota(..)
        | Step::Cast(..)
        | Step::Compare(..)
        | Step::Where(..) => true,
    }
}
