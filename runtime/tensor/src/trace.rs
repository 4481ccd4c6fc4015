//! Elementwise programs, written as closures.
//!
//! `elementwise([a, b], |[a, b]| (a - b) * 0.5)` runs the closure once, on [`Traced`] values that record what is done to
//! them, and hands the recorded [`Expression`] to the backend, which computes it in one pass.

mod methods;
mod recordings;

use crate::backend::{Backend, Primitive, held};
use crate::check;
use crate::compose::{self, ElementwiseProgram};
use crate::{
    Activation, BinaryOp, CompareOp, DType, Element, Expression, InlineVec, Scalar, Step, StepId, Tensor,
    TensorKind, UnaryOp,
};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

/// A program that is being recorded.
#[derive(Debug)]
struct Recording {
    /// What the steps do.
    expression: RefCell<Expression>,
    /// The dtype of each step.
    kinds: RefCell<Vec<DType>>,
    /// The numbers that are not part of the program.
    parameters: RefCell<Vec<Scalar>>,
    dtypes: Dtypes,
}

impl Recording {
    fn new(dtypes: Dtypes) -> Self {
        let expression = RefCell::new(Expression::default());
        Self { expression, kinds: RefCell::default(), parameters: RefCell::default(), dtypes }
    }

    /// Forgets what was recorded; its memory stays.
    fn clear(&mut self) {
        let Expression { steps, outputs } = self.expression.get_mut();
        steps.clear();
        outputs.clear();
        self.kinds.get_mut().clear();
        self.parameters.get_mut().clear();
    }
}

/// The dtypes of the backend that will run a program.
#[derive(Clone, Debug)]
struct Dtypes {
    /// What floats are when nothing else is said.
    float: DType,
    /// What integers are when nothing else is said.
    int: DType,
    /// What stands in for each dtype that the device does not support.
    stand_ins: InlineVec<(DType, DType)>,
}

impl Dtypes {
    fn of<B: Backend>(device: &B::Device) -> Self {
        let dtypes = DType::ALL.into_iter().filter(|dtype| !B::supports(device, *dtype));
        let stand_ins = dtypes.map(|dtype| (dtype, held::<B>(dtype, device))).collect();
        Self { float: B::FloatElem::DTYPE, int: B::IntElem::DTYPE, stand_ins }
    }

    fn held(&self, dtype: DType) -> DType {
        self.stand_ins.iter().find(|(asked, _)| *asked == dtype).map_or(dtype, |(_, held)| *held)
    }
}

/// Shared by the values of one program.
type Program = Rc<Recording>;

/// Whether a number is part of the program.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// It is.
    Constant,
    /// It is told when the program runs.
    Parameter,
}

/// The dtype that a number was given.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// That of what it meets.
    Any,
    /// The backend's usual floats.
    Float,
    /// The backend's usual integers.
    Int,
    /// This one.
    Exactly(DType),
}

impl Wanted {
    /// The dtype in a program, unless any will do.
    fn within(self, program: &Recording) -> Option<DType> {
        match self {
            Wanted::Any => None,
            Wanted::Float => Some(program.dtypes.float),
            Wanted::Int => Some(program.dtypes.int),
            Wanted::Exactly(dtype) => Some(program.dtypes.held(dtype)),
        }
    }
}

/// A value in a program that is being recorded: an operand, a number, or what was made of them.
///
/// It has the elementwise methods and operators of tensors; numbers take the dtype of what they meet.
#[derive(Clone, Debug)]
pub struct Traced(Inner);

#[derive(Clone, Debug)]
enum Inner {
    /// A number that has met no operand yet.
    Number(Scalar, Role, Wanted),
    Step {
        program: Program,
        id: StepId,
    },
}

impl<S: Into<Scalar>> From<S> for Traced {
    fn from(number: S) -> Self {
        Self(Inner::Number(number.into(), Role::Constant, Wanted::Any))
    }
}

impl Traced {
    /// A number of a given dtype.
    pub fn constant(number: impl Into<Scalar>, dtype: DType) -> Self {
        Self(Inner::Number(number.into(), Role::Constant, Wanted::Exactly(dtype)))
    }

    /// A number that changes from run to run, as a learning rate does: it is no part of the program, so that a backend
    /// which compiles programs compiles one for all of its values.
    pub fn parameter(number: impl Into<Scalar>) -> Self {
        Self(Inner::Number(number.into(), Role::Parameter, Wanted::Any))
    }

    /// The position of each element of the result along a dim, in the backend's usual integers. It says nothing of this
    /// value, which is only there to name the program.
    #[track_caller]
    pub fn iota(&self, dim: usize) -> Self {
        let Inner::Step { program, .. } = &self.0 else {
            check::fail("elementwise", format_args!("a number has no positions"))
        };
        let (dim, dtype) = (u16::try_from(dim).unwrap_or(u16::MAX), program.dtypes.int);
        let id = push(program, Step::Iota(dim, dtype), dtype);
        Self(Inner::Step { program: program.clone(), id })
    }

    /// Its dtype; nothing for a number, which takes that of what it meets.
    pub fn dtype(&self) -> Option<DType> {
        match &self.0 {
            Inner::Number(..) => None,
            Inner::Step { program, id } => Some(dtype_of(program, *id)),
        }
    }

    /// The step of this value, made in the program and with the dtype of `near` if it is a number.
    #[track_caller]
    fn step(&self, near: &Traced) -> (Program, StepId) {
        match (&self.0, &near.0) {
            (Inner::Step { program, id }, _) => (program.clone(), *id),
            (Inner::Number(value, role, wanted), Inner::Step { program, id }) => {
                let dtype = wanted.within(program).unwrap_or_else(|| dtype_of(program, *id));
                (program.clone(), push_number(program, *value, *role, dtype))
            }
            _ => check::fail("elementwise", format_args!("an operation without any operand")),
        }
    }

    #[track_caller]
    fn of_one(self, dtype: Option<DType>, step: impl FnOnce(StepId) -> Step) -> Self {
        let (program, id) = self.step(&self);
        let dtype = dtype.unwrap_or_else(|| dtype_of(&program, id));
        let id = push(&program, step(id), dtype);
        Self(Inner::Step { program, id })
    }

    #[track_caller]
    fn of_two(
        self,
        other: Self,
        op: &str,
        dtype: Option<DType>,
        step: impl FnOnce(StepId, StepId) -> Step,
    ) -> Self {
        let (program, a) = self.step(&other);
        let (_, b) = other.step(&self);
        let own = dtype_of(&program, a);
        check::same_dtype(op, own, dtype_of(&program, b));
        let id = push(&program, step(a, b), dtype.unwrap_or(own));
        Self(Inner::Step { program, id })
    }

    /// Applies a [`UnaryOp`].
    pub fn unary(self, op: UnaryOp) -> Self {
        let dtype = matches!(op, UnaryOp::IsNan | UnaryOp::IsInf).then_some(DType::Bool);
        self.of_one(dtype, |x| Step::Unary(op, x))
    }

    /// Applies a [`BinaryOp`].
    #[track_caller]
    pub fn binary(self, op: BinaryOp, other: Self) -> Self {
        self.of_two(other, op.name(), None, |a, b| Step::Binary(op, a, b))
    }

    /// Applies a [`CompareOp`].
    #[track_caller]
    pub fn compare(self, op: CompareOp, other: Self) -> Self {
        self.of_two(other, op.name(), Some(DType::Bool), |a, b| Step::Compare(op, a, b))
    }

    /// Applies an [`Activation`].
    pub fn activation(self, activation: Activation) -> Self {
        self.of_one(None, |x| Step::Activation(activation, x))
    }

    /// `value` where the mask is true, else this.
    pub fn mask_where(self, mask: impl Into<Self>, value: impl Into<Self>) -> Self {
        let (mask, value) = (mask.into(), value.into());
        let (program, mask) = mask.step(&mask);
        // Numbers take the dtype of the other value, not that of the mask.
        let known = |value: &Self| match &value.0 {
            Inner::Number(_, _, wanted) => wanted.within(&program),
            Inner::Step { program, id } => Some(dtype_of(program, *id)),
        };
        let Some(dtype) = known(&self).or(known(&value)) else {
            check::fail("mask_where", format_args!("two numbers need a dtype; see `Traced::constant`"))
        };
        let step = |value: &Self| match &value.0 {
            Inner::Number(number, role, wanted) => {
                push_number(&program, *number, *role, wanted.within(&program).unwrap_or(dtype))
            }
            Inner::Step { id, .. } => *id,
        };
        let (no, yes) = (step(&self), step(&value));
        check::same_dtype("mask_where", dtype_of(&program, no), dtype_of(&program, yes));
        let id = push(&program, Step::Where(mask, yes, no), dtype);
        Self(Inner::Step { program, id })
    }

    /// `value` where the mask is true, else this.
    pub fn mask_fill(self, mask: impl Into<Self>, value: impl Into<Scalar>) -> Self {
        self.mask_where(mask, value.into())
    }

    /// Converts to a dtype.
    pub fn cast(self, dtype: DType) -> Self {
        self.converted(Wanted::Exactly(dtype))
    }

    /// Converts to the backend's usual float dtype.
    pub fn float(self) -> Self {
        self.converted(Wanted::Float)
    }

    /// Converts to the backend's usual integer dtype.
    pub fn int(self) -> Self {
        self.converted(Wanted::Int)
    }

    fn converted(self, wanted: Wanted) -> Self {
        match self.0 {
            Inner::Number(number, role, _) => Self(Inner::Number(number, role, wanted)),
            Inner::Step { program, id } => {
                let own = dtype_of(&program, id);
                let dtype = wanted.within(&program).unwrap_or(own);
                if dtype == own {
                    return Self(Inner::Step { program, id });
                }
                let id = push(&program, Step::Cast(dtype, id), dtype);
                Self(Inner::Step { program, id })
            }
        }
    }

    /// Within bounds.
    pub fn clamp(self, min: impl Into<Self>, max: impl Into<Self>) -> Self {
        self.max_pair(min).min_pair(max)
    }
}

/// The dtype of a step.
fn dtype_of(program: &Recording, id: StepId) -> DType {
    match program.kinds.borrow().get(usize::from(id)) {
        Some(dtype) => *dtype,
        // Steps are made by `push` alone, which counts them.
        None => check::fail("elementwise", format_args!("step {id} is of another program")),
    }
}

/// Appends a number.
#[track_caller]
fn push_number(program: &Recording, number: Scalar, role: Role, dtype: DType) -> StepId {
    let step = match role {
        Role::Constant => Step::Constant(number, dtype),
        Role::Parameter => {
            let mut parameters = program.parameters.borrow_mut();
            parameters.push(number);
            Step::Parameter((parameters.len() - 1) as u16, dtype)
        }
    };
    push(program, step, dtype)
}

/// Appends a step.
#[track_caller]
fn push(program: &Recording, step: Step, dtype: DType) -> StepId {
    let steps = &mut program.expression.borrow_mut().steps;
    let id = StepId::try_from(steps.len());
    steps.push(step);
    program.kinds.borrow_mut().push(dtype);
    match id {
        Ok(id) => id,
        Err(_) => check::fail("elementwise", format_args!("more than {} steps", StepId::MAX)),
    }
}

/// The `n`-th operand of a program, the first steps of which are the operands.
fn operand(program: &Program, n: usize, dtype: DType) -> Traced {
    let id = push(program, Step::Input(n as u16), dtype);
    Traced(Inner::Step { program: program.clone(), id })
}

/// Ends a program with its results.
fn finish(program: &Program, results: &[Traced]) {
    let Expression { steps, outputs } = &mut *program.expression.borrow_mut();
    outputs.extend(results.iter().map(|result| match &result.0 {
        Inner::Step { program: own, id } if Rc::ptr_eq(own, program) => *id,
        Inner::Step { .. } => check::fail("elementwise", format_args!("the result is of another program")),
        Inner::Number(..) => check::fail("elementwise", format_args!("the result is a number")),
    }));
    // What was recorded after the last result is not needed.
    steps.truncate(outputs.iter().map(|id| usize::from(*id) + 1).max().unwrap_or(0));
    if outputs.len() == 1 {
        // It is the last step, which needs no name.
        outputs.clear();
    }
}

/// Records what a closure does to operands of the given dtypes, as a program for a backend's device, with the numbers of
/// its parameters.
///
/// # Panics
/// When dtypes mix, or a result is a number that has met no operand.
pub fn record<B: Backend>(
    operands: &[DType],
    device: &B::Device,
    f: impl FnOnce(&[Traced]) -> Vec<Traced>,
) -> (Expression, Vec<Scalar>) {
    let program = Program::new(Recording::new(Dtypes::of::<B>(device)));
    let operands: Vec<Traced> =
        operands.iter().enumerate().map(|(n, &dtype)| operand(&program, n, dtype)).collect();
    finish(&program, &f(&operands));
    (program.expression.take(), program.parameters.take())
}

/// Operands that broadcast, then the backend's pass over them.
#[track_caller]
pub(crate) fn run<B: Backend, const N: usize, const M: usize>(
    operands: [B::Primitive; N],
    f: impl FnOnce([Traced; N]) -> [Traced; M],
) -> [B::Primitive; M] {
    let (device, dtypes) = (device_of::<B, N>(&operands), dtypes_of(&operands));
    recorded::<B, _, N, M>(&device, &dtypes, f, |expression, parameters| {
        all(B::elementwise(expression, operands.into(), parameters))
    })
}

/// [`run`] over so many operands that broadcast, where their number is not known beforehand.
#[track_caller]
pub(crate) fn run_all<B: Backend>(
    operands: InlineVec<B::Primitive>,
    f: impl FnOnce(&[Traced]) -> Traced,
) -> B::Primitive {
    let Some((first, others)) = operands.split_first() else {
        check::fail("elementwise", format_args!("there are no operands"))
    };
    let device = broadcast_device::<B>(first, others);
    let program = recordings::take(Dtypes::of::<B>(&device));
    let own: Vec<Traced> =
        operands.iter().enumerate().map(|(n, operand_n)| operand(&program, n, operand_n.dtype())).collect();
    let [result] = completed(
        program,
        |_| {
            let result = f(&own);
            drop(own);
            [result]
        },
        |expression, parameters| all(B::elementwise(expression, operands, parameters)),
    );
    result
}

/// Operands that broadcast, then the sums of each result along axes, which stay with size 1.
#[track_caller]
pub(crate) fn sums<B: Backend, const N: usize, const M: usize>(
    operands: [B::Primitive; N],
    axes: &[usize],
    f: impl FnOnce([Traced; N]) -> [Traced; M],
) -> [B::Primitive; M] {
    let (device, dtypes) = (device_of::<B, N>(&operands), dtypes_of(&operands));
    recorded::<B, _, N, M>(&device, &dtypes, f, |expression, parameters| {
        let of = ElementwiseProgram { expression, operands: operands.into(), parameters };
        all(B::elementwise_sums(of, axes, None))
    })
}

/// Operands that broadcast, then what is made of the sums of each result along axes, which stay with size 1, and of others that have or broadcast to their
/// shape.
#[track_caller]
pub(crate) fn of_sums<B: Backend, const N: usize, const M: usize, const E: usize, const R: usize>(
    operands: [B::Primitive; N],
    axes: &[usize],
    f: impl FnOnce([Traced; N]) -> [Traced; M],
    others: [B::Primitive; E],
    then: impl FnOnce([Traced; M], [Traced; E]) -> [Traced; R],
) -> [B::Primitive; R] {
    let (device, dtypes) = (device_of::<B, N>(&operands), dtypes_of(&operands));
    recorded::<B, _, N, M>(&device, &dtypes, f, |expression, parameters| {
        let Some(own) = expression.dtypes(&dtypes) else { unreachable!("a program of its own operands") };
        let results = expression.results();
        let sums: [DType; M] = core::array::from_fn(|n| own[usize::from(results[n])]);
        let of = ElementwiseProgram { expression, operands: operands.into(), parameters };
        behind::<B, _, M, E, R>(&device, sums, &dtypes_of(&others), then, |expression, parameters| {
            let then = ElementwiseProgram { expression, operands: others.into(), parameters };
            all(B::elementwise_sums(of, axes, Some(then)))
        })
    })
}

/// What is made of the mean and the variance of a tensor along axes, which stay with size 1, and of others that have or broadcast to their shape.
#[track_caller]
pub(crate) fn of_moments<B: Backend, const E: usize, const R: usize>(
    x: B::Primitive,
    axes: &[usize],
    others: [B::Primitive; E],
    then: impl FnOnce([Traced; 2], [Traced; E]) -> [Traced; R],
) -> [B::Primitive; R] {
    let wide = compose::calc::wide(x.dtype());
    behind::<B, _, 2, E, R>(&B::device(&x), [wide; 2], &dtypes_of(&others), then, |expression, parameters| {
        all(B::elementwise_moments(
            x,
            axes,
            ElementwiseProgram { expression, operands: others.into(), parameters },
        ))
    })
}

/// The device of operands that broadcast.
#[track_caller]
fn device_of<B: Backend, const N: usize>(operands: &[B::Primitive; N]) -> B::Device {
    let Some((first, others)) = operands.split_first() else {
        check::fail("elementwise", format_args!("there are no operands"))
    };
    broadcast_device::<B>(first, others)
}

/// The device of the first of operands that broadcast.
#[track_caller]
fn broadcast_device<B: Backend>(first: &B::Primitive, others: &[B::Primitive]) -> B::Device {
    if others.iter().any(|other| other.dims() != first.dims()) {
        let mut shape = first.shape();
        for other in others {
            shape = check::broadcast("elementwise", &shape, other.dims());
        }
    }
    B::device(first)
}

fn dtypes_of<P: Primitive, const N: usize>(tensors: &[P; N]) -> [DType; N] {
    core::array::from_fn(|n| tensors[n].dtype())
}

/// Records what a closure does to numbers of the given dtypes that are computed first, and to further operands, and has it `computed`.
fn behind<B: Backend, T, const M: usize, const E: usize, const R: usize>(
    device: &B::Device,
    first: [DType; M],
    others: &[DType; E],
    f: impl FnOnce([Traced; M], [Traced; E]) -> [Traced; R],
    computed: impl FnOnce(&Expression, &[Scalar]) -> T,
) -> T {
    let program = recordings::take(Dtypes::of::<B>(device));
    let own = core::array::from_fn(|n| operand(&program, n, first[n]));
    let further = core::array::from_fn(|n| operand(&program, M + n, others[n]));
    completed(program, |_| f(own, further), computed)
}

/// Records what a closure does to operands of the given dtypes, and has it `computed`.
fn recorded<B: Backend, T, const N: usize, const M: usize>(
    device: &B::Device,
    dtypes: &[DType; N],
    f: impl FnOnce([Traced; N]) -> [Traced; M],
    computed: impl FnOnce(&Expression, &[Scalar]) -> T,
) -> T {
    let program = recordings::take(Dtypes::of::<B>(device));
    completed(program, |program| f(core::array::from_fn(|n| operand(program, n, dtypes[n]))), computed)
}

/// Has the program `computed` that yields what is recorded.
fn completed<T, const M: usize>(
    program: Program,
    record: impl FnOnce(&Program) -> [Traced; M],
    computed: impl FnOnce(&Expression, &[Scalar]) -> T,
) -> T {
    let results = record(&program);
    finish(&program, &results);
    // Values of a program hold its recording.
    drop(results);
    let found = computed(&program.expression.borrow(), &program.parameters.borrow());
    recordings::give(program);
    found
}

/// As many results as are asked for.
#[track_caller]
fn all<P, const M: usize>(results: InlineVec<P>) -> [P; M] {
    match <[_; M]>::try_from(results) {
        Ok(results) => results,
        Err(results) => {
            check::fail("elementwise", format_args!("the backend yields {} results of {M}", results.len()))
        }
    }
}

/// Computes an elementwise program over tensors that broadcast, in one pass: `elementwise([a, b], |[a, b]| (a - b) * 0.5)`.
///
/// # Panics
/// When the shapes do not broadcast, dtypes mix, or the closure's result is of another kind.
pub fn elementwise<B: Backend, const D: usize, K: TensorKind<B>, const N: usize>(
    operands: [Tensor<B, D, K>; N],
    f: impl FnOnce([Traced; N]) -> Traced,
) -> Tensor<B, D, K> {
    let [result] = run::<B, N, 1>(operands.map(Tensor::into_backend), |operands| [f(operands)]);
    Tensor::from_backend(result)
}

/// [`elementwise`] with several results, computed in one pass.
///
/// # Panics
/// When the shapes do not broadcast, dtypes mix, or a result is of another kind.
pub fn elementwise_all<B: Backend, const D: usize, K: TensorKind<B>, const N: usize, const M: usize>(
    operands: [Tensor<B, D, K>; N],
    f: impl FnOnce([Traced; N]) -> [Traced; M],
) -> [Tensor<B, D, K>; M] {
    run::<B, N, M>(operands.map(Tensor::into_backend), f).map(Tensor::from_backend)
}

/// A tensor of any kind and of rank `D`, as an operand of [`Tensor::elementwise`].
#[derive(Clone, Debug)]
pub struct Operand<B: Backend, const D: usize>(B::Primitive);

impl<B: Backend, const D: usize, K: TensorKind<B>> From<Tensor<B, D, K>> for Operand<B, D> {
    fn from(tensor: Tensor<B, D, K>) -> Self {
        Self(tensor.into_backend())
    }
}

impl<B: Backend, const D: usize, K: TensorKind<B>> Tensor<B, D, K> {
    /// [`elementwise`] over operands of several kinds: `Tensor::<B, 2>::elementwise([mask.into(), x.into()], …)`.
    ///
    /// # Panics
    /// When the shapes do not broadcast, dtypes mix, or the closure's result is of another kind.
    pub fn elementwise<const N: usize>(
        operands: [Operand<B, D>; N],
        f: impl FnOnce([Traced; N]) -> Traced,
    ) -> Self {
        let operands = operands.map(|operand| operand.0);
        let [result] = run::<B, N, 1>(operands, |operands| [f(operands)]);
        Self::from_backend(result)
    }
}
