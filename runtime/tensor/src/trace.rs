//! Elementwise programs, written as closures.
//!
//! `elementwise([a, b], |[a, b]| (a - b) * 0.5)` runs the closure once, on [`Traced`] values that record what is done to
//! them, and hands the recorded [`Expression`] to the backend, which computes it in one pass.

use crate::backend::{Backend, Primitive};
use crate::check;
use crate::{
    Activation, BinaryOp, CompareOp, DType, Expression, Scalar, Shape, Step, StepId, Tensor, TensorKind,
    UnaryOp,
};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::{Add, Div, Mul, Neg, Not, Rem, Sub};

/// What the steps of one program do, with the dtype of each.
type Program = Rc<RefCell<Vec<(Step, DType)>>>;

/// A value in a program that is being recorded: an operand, a number, or what was made of them.
///
/// It has the elementwise methods and operators of tensors; numbers take the dtype of what they meet.
#[derive(Clone, Debug)]
pub struct Traced(Inner);

#[derive(Clone, Debug)]
enum Inner {
    /// A number that has met no operand yet; with a dtype, if it has one of its own.
    Number(Scalar, Option<DType>),
    Step {
        program: Program,
        id: StepId,
    },
}

impl<S: Into<Scalar>> From<S> for Traced {
    fn from(number: S) -> Self {
        Self(Inner::Number(number.into(), None))
    }
}

impl Traced {
    /// A number of a given dtype.
    pub fn constant(number: impl Into<Scalar>, dtype: DType) -> Self {
        Self(Inner::Number(number.into(), Some(dtype)))
    }

    fn dtype(&self) -> Option<DType> {
        match &self.0 {
            Inner::Number(_, dtype) => *dtype,
            Inner::Step { program, id } => program.borrow().get(usize::from(*id)).map(|(_, dtype)| *dtype),
        }
    }

    /// The step of this value, made in the program and with the dtype of `near` if it is a number.
    #[track_caller]
    fn step(&self, near: &Traced) -> (Program, StepId) {
        match (&self.0, &near.0) {
            (Inner::Step { program, id }, _) => (program.clone(), *id),
            (Inner::Number(value, own), Inner::Step { program, .. }) => {
                let dtype = own.or(near.dtype()).unwrap_or(DType::F32);
                (program.clone(), push(program, Step::Constant(*value, dtype), dtype))
            }
            _ => check::fail("elementwise", format_args!("an operation without any operand")),
        }
    }

    #[track_caller]
    fn of_one(self, dtype: Option<DType>, step: impl FnOnce(StepId) -> Step) -> Self {
        let (program, id) = self.step(&self);
        let dtype = dtype.or(self.dtype()).unwrap_or(DType::F32);
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
        if let (Some(a), Some(b)) = (self.dtype(), other.dtype()) {
            check::same_dtype(op, a, b);
        }
        let dtype = dtype.or(self.dtype()).or(other.dtype()).unwrap_or(DType::F32);
        let id = push(&program, step(a, b), dtype);
        Self(Inner::Step { program, id })
    }

    #[track_caller]
    fn binary(self, op: BinaryOp, other: Self) -> Self {
        self.of_two(other, op.name(), None, |a, b| Step::Binary(op, a, b))
    }

    #[track_caller]
    fn compare(self, op: CompareOp, other: Self) -> Self {
        self.of_two(other, op.name(), Some(DType::Bool), |a, b| Step::Compare(op, a, b))
    }

    /// Applies an [`Activation`].
    pub fn activation(self, activation: Activation) -> Self {
        self.of_one(None, |x| Step::Activation(activation, x))
    }

    /// `value` where the mask is true, else this.
    pub fn mask_where(self, mask: impl Into<Self>, value: impl Into<Self>) -> Self {
        let (mask, value) = (mask.into(), value.into());
        let Some(dtype) = self.dtype().or(value.dtype()) else {
            check::fail("mask_where", format_args!("two numbers need a dtype; see `Traced::constant`"))
        };
        // Numbers take the dtype of the other value, not that of the mask that they are recorded beside.
        let with_dtype = |value: Self| match value.0 {
            Inner::Number(number, None) => Self::constant(number, dtype),
            step => Self(step),
        };
        let (no, yes) = (with_dtype(self), with_dtype(value));
        let (program, mask_step) = mask.step(if matches!(no.0, Inner::Step { .. }) { &no } else { &yes });
        let ((_, no), (_, yes)) = (no.step(&mask), yes.step(&mask));
        let id = push(&program, Step::Where(mask_step, yes, no), dtype);
        Self(Inner::Step { program, id })
    }

    /// `value` where the mask is true, else this.
    pub fn mask_fill(self, mask: impl Into<Self>, value: impl Into<Scalar>) -> Self {
        self.mask_where(mask, value.into())
    }

    /// Converts to a dtype.
    pub fn cast(self, dtype: DType) -> Self {
        self.of_one(Some(dtype), |x| Step::Cast(dtype, x))
    }

    /// Within bounds.
    pub fn clamp(self, min: impl Into<Self>, max: impl Into<Self>) -> Self {
        self.max_pair(min).min_pair(max)
    }
}

/// Appends a step.
#[track_caller]
fn push(program: &Program, step: Step, dtype: DType) -> StepId {
    let mut steps = program.borrow_mut();
    let id = StepId::try_from(steps.len());
    steps.push((step, dtype));
    match id {
        Ok(id) => id,
        Err(_) => check::fail("elementwise", format_args!("more than {} steps", StepId::MAX)),
    }
}

macro_rules! traced_unary {
    ($($name:ident $op:ident $dtype:expr, $what:literal;)*) => {
        impl Traced {
            $(
                #[doc = $what]
                #[allow(clippy::should_implement_trait, reason = "named like the tensor's method; the trait is there too")]
                pub fn $name(self) -> Self {
                    self.of_one($dtype, |x| Step::Unary(UnaryOp::$op, x))
                }
            )*
        }
    };
}

traced_unary! {
    neg Neg None, "`-x`.";
    abs Abs None, "The absolute value.";
    sign Sign None, "-1, 0 or 1.";
    exp Exp None, "`e^x`.";
    log Log None, "The natural logarithm.";
    log1p Log1p None, "`ln(1 + x)`.";
    sqrt Sqrt None, "The square root.";
    recip Recip None, "`1 / x`.";
    sin Sin None, "The sine.";
    cos Cos None, "The cosine.";
    tan Tan None, "The tangent.";
    asin Asin None, "The inverse sine.";
    acos Acos None, "The inverse cosine.";
    atan Atan None, "The inverse tangent.";
    sinh Sinh None, "The hyperbolic sine.";
    cosh Cosh None, "The hyperbolic cosine.";
    tanh Tanh None, "The hyperbolic tangent.";
    asinh Asinh None, "The inverse hyperbolic sine.";
    acosh Acosh None, "The inverse hyperbolic cosine.";
    atanh Atanh None, "The inverse hyperbolic tangent.";
    erf Erf None, "The Gauss error function.";
    floor Floor None, "Rounded down.";
    ceil Ceil None, "Rounded up.";
    round Round None, "Rounded; halves to even.";
    trunc Trunc None, "Rounded towards zero.";
    bool_not Not None, "Logical not.";
    bitwise_not BitwiseNot None, "Bitwise not.";
    is_nan IsNan Some(DType::Bool), "Whether it is NaN.";
    is_inf IsInf Some(DType::Bool), "Whether it is infinite.";
}

macro_rules! traced_binary {
    ($($name:ident $($scalar:ident)? => $op:ident $what:literal;)*) => {
        impl Traced {
            $(
                #[doc = $what]
                #[allow(clippy::should_implement_trait, reason = "named like the tensor's method; the trait is there too")]
                pub fn $name(self, other: impl Into<Self>) -> Self {
                    self.binary(BinaryOp::$op, other.into())
                }

                $(
                    #[doc = $what]
                    pub fn $scalar(self, other: impl Into<Self>) -> Self {
                        self.binary(BinaryOp::$op, other.into())
                    }
                )?
            )*
        }
    };
}

traced_binary! {
    add add_scalar => Add "`a + b`.";
    sub sub_scalar => Sub "`a - b`.";
    mul mul_scalar => Mul "`a * b`.";
    div div_scalar => Div "`a / b`.";
    powf powf_scalar => Pow "`a` to the power of `b`.";
    powi powi_scalar => Pow "`a` to the power of `b`.";
    remainder remainder_scalar => Remainder "The remainder with the divisor's sign.";
    fmod fmod_scalar => Fmod "The remainder with the dividend's sign.";
    max_pair clamp_min => Max "The larger.";
    min_pair clamp_max => Min "The smaller.";
    atan2 => Atan2 "The angle of the point `(b, a)`.";
    bool_and => And "Logical and.";
    bool_or => Or "Logical or.";
    bool_xor => Xor "Logical exclusive or.";
    bitwise_and bitwise_and_scalar => BitwiseAnd "Bitwise and.";
    bitwise_or bitwise_or_scalar => BitwiseOr "Bitwise or.";
    bitwise_xor bitwise_xor_scalar => BitwiseXor "Bitwise exclusive or.";
    bitwise_left_shift bitwise_left_shift_scalar => ShiftLeft "Shifted towards the high bits.";
    bitwise_right_shift bitwise_right_shift_scalar => ShiftRight "Shifted towards the low bits.";
}

macro_rules! traced_compare {
    ($($name:ident $elem:ident => $op:ident $what:literal;)*) => {
        impl Traced {
            $(
                #[doc = $what]
                pub fn $name(self, other: impl Into<Self>) -> Self {
                    self.compare(CompareOp::$op, other.into())
                }

                #[doc = $what]
                pub fn $elem(self, other: impl Into<Self>) -> Self {
                    self.compare(CompareOp::$op, other.into())
                }
            )*
        }
    };
}

traced_compare! {
    equal equal_elem => Equal "`a == b`.";
    not_equal not_equal_elem => NotEqual "`a != b`.";
    greater greater_elem => Greater "`a > b`.";
    greater_equal greater_equal_elem => GreaterEqual "`a >= b`.";
    lower lower_elem => Lower "`a < b`.";
    lower_equal lower_equal_elem => LowerEqual "`a <= b`.";
}

macro_rules! traced_operators {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(
            impl<T: Into<Traced>> $trait<T> for Traced {
                type Output = Traced;

                fn $method(self, other: T) -> Traced {
                    self.binary(BinaryOp::$op, other.into())
                }
            }

            traced_operators!(@left $trait $method $op: f32 f64 i32 i64);
        )*
    };
    (@left $trait:ident $method:ident $op:ident: $($ty:ty)*) => {
        $(
            impl $trait<Traced> for $ty {
                type Output = Traced;

                fn $method(self, other: Traced) -> Traced {
                    Traced::from(self).binary(BinaryOp::$op, other)
                }
            }
        )*
    };
}

traced_operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Remainder;
}

impl Neg for Traced {
    type Output = Self;

    fn neg(self) -> Self {
        Traced::neg(self)
    }
}

impl Not for Traced {
    type Output = Self;

    fn not(self) -> Self {
        self.bool_not()
    }
}

/// Records what a closure does to operands of the given dtypes.
fn record<const N: usize>(dtypes: [DType; N], f: impl FnOnce([Traced; N]) -> Traced) -> (Expression, DType) {
    let program: Program = Rc::new(RefCell::new(Vec::new()));
    let operands = core::array::from_fn(|n| {
        let id = push(&program, Step::Input(n as u16), dtypes[n]);
        Traced(Inner::Step { program: program.clone(), id })
    });
    finish(f(operands))
}

/// The recorded program, cut after the step that yields the result.
fn finish(result: Traced) -> (Expression, DType) {
    let Inner::Step { program, id } = &result.0 else {
        check::fail("elementwise", format_args!("the result is a number"))
    };
    let program = program.borrow();
    let kept = &program[..=usize::from(*id)];
    let dtype = kept.last().map_or(DType::F32, |(_, dtype)| *dtype);
    (Expression { steps: kept.iter().map(|(step, _)| *step).collect() }, dtype)
}

/// Operands that broadcast, then the backend's pass over them.
#[track_caller]
fn run<B: Backend>(expression: &Expression, operands: Vec<B::Primitive>) -> B::Primitive {
    let mut shape: Option<Shape> = None;
    for operand in &operands {
        let own = operand.shape();
        shape = Some(match shape {
            Some(shape) if shape == own => shape,
            Some(shape) => check::broadcast("elementwise", &shape, &own),
            None => own,
        });
    }
    B::elementwise(expression, operands)
}

/// Computes an elementwise program over tensors that broadcast, in one pass: `elementwise([a, b], |[a, b]| (a - b) * 0.5)`.
///
/// # Panics
/// When the shapes do not broadcast, dtypes mix, or the closure's result is of another kind.
pub fn elementwise<B: Backend, const D: usize, K: TensorKind<B>, const N: usize>(
    operands: [Tensor<B, D, K>; N],
    f: impl FnOnce([Traced; N]) -> Traced,
) -> Tensor<B, D, K> {
    let dtypes = core::array::from_fn(|n| operands[n].dtype());
    let (expression, _) = record(dtypes, f);
    let operands = operands.into_iter().map(Tensor::into_primitive).collect();
    Tensor::from_primitive(run::<B>(&expression, operands))
}

/// A tensor of any kind and of rank `D`, as an operand of [`Tensor::elementwise`].
#[derive(Clone, Debug)]
pub struct Operand<B: Backend, const D: usize>(B::Primitive);

impl<B: Backend, const D: usize, K: TensorKind<B>> From<Tensor<B, D, K>> for Operand<B, D> {
    fn from(tensor: Tensor<B, D, K>) -> Self {
        Self(tensor.into_primitive())
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
        let dtypes = core::array::from_fn(|n| operands[n].0.dtype());
        let (expression, _) = record(dtypes, f);
        Self::from_primitive(run::<B>(&expression, operands.into_iter().map(|operand| operand.0).collect()))
    }
}
