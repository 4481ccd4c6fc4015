//! Elementwise operations: masks, activations, and the interpreter of expressions.

use super::calc::{
    T, above, add_scalar, along, div, index_dtype, mean, mul, mul_scalar, scalar_like, to_dtype, wide,
    widened,
};
use crate::backend::{Backend, Primitive};
use crate::trace;
use crate::{
    Activation, BinaryOp, DType, Dims, Expression, InlineVec, ReduceOp, Scalar, Shape, Step, StepId, UnaryOp,
};
use alloc::vec;
use alloc::vec::Vec;
use core::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// Default of [`Backend::mask_fill`].
pub fn mask_fill<B: Backend>(tensor: T<B>, mask: T<B>, value: Scalar) -> T<B> {
    let value = scalar_like::<B>(&tensor, value, tensor.dtype(), tensor.shape().rank());
    B::select_where(mask, value, tensor)
}

/// Default of [`Backend::clamp`].
pub fn clamp<B: Backend>(tensor: T<B>, min: Option<Scalar>, max: Option<Scalar>) -> T<B> {
    let tensor = match min {
        Some(min) => B::binary_scalar(BinaryOp::Max, tensor, min),
        None => tensor,
    };
    match max {
        Some(max) => B::binary_scalar(BinaryOp::Min, tensor, max),
        None => tensor,
    }
}

/// Default of [`Backend::activation`].
pub fn activation<B: Backend>(activation: Activation, x: T<B>) -> T<B> {
    let bounds = |min, max| (Some(Scalar::Float(min)), Some(Scalar::Float(max)));
    match activation {
        Activation::Relu => B::binary_scalar(BinaryOp::Max, x, Scalar::Float(0.0)),
        Activation::LeakyRelu { slope } => {
            let positive = above::<B>(x.clone(), 0.0);
            B::select_where(positive, x.clone(), mul_scalar::<B>(x, slope))
        }
        Activation::Tanh => B::unary(UnaryOp::Tanh, x),
        Activation::HardSigmoid { alpha, beta } => {
            let (min, max) = bounds(0.0, 1.0);
            B::clamp(add_scalar::<B>(mul_scalar::<B>(x, alpha), beta), min, max)
        }
        Activation::HardSwish => {
            let gate = Activation::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 };
            mul::<B>(x.clone(), self::activation::<B>(gate, x))
        }
        Activation::Clamp { min, max } => {
            let (min, max) = bounds(min, max);
            B::clamp(x, min, max)
        }
        Activation::Gelu => widened::<B>(x, |x| {
            let erf = B::unary(UnaryOp::Erf, mul_scalar::<B>(x.clone(), FRAC_1_SQRT_2));
            mul::<B>(mul_scalar::<B>(x, 0.5), add_scalar::<B>(erf, 1.0))
        }),
        Activation::GeluTanh => widened::<B>(x, gelu_tanh::<B>),
        Activation::Sigmoid => widened::<B>(x, sigmoid::<B>),
        Activation::Silu => widened::<B>(x, |x| {
            // Below, the product is as good as 0, and the bound keeps what sigmoid is there from large numbers.
            let least = if x.dtype() == DType::F64 { -745.0 } else { -89.0 };
            let x = B::clamp(x, Some(Scalar::Float(least)), None);
            mul::<B>(x.clone(), sigmoid::<B>(x))
        }),
        Activation::Mish => {
            widened::<B>(x, |x| mul::<B>(x.clone(), B::unary(UnaryOp::Tanh, softplus::<B>(x))))
        }
        Activation::Softplus => widened::<B>(x, softplus::<B>),
        Activation::Elu { alpha } => widened::<B>(x, |x| elu::<B>(x, alpha)),
        Activation::Affine { alpha, beta } => add_scalar::<B>(mul_scalar::<B>(x, alpha), beta),
        Activation::ScaledTanh { alpha, beta } => {
            widened::<B>(x, |x| mul_scalar::<B>(B::unary(UnaryOp::Tanh, mul_scalar::<B>(x, beta)), alpha))
        }
        Activation::Softsign => widened::<B>(x, |x| {
            let divisor = add_scalar::<B>(B::unary(UnaryOp::Abs, x.clone()), 1.0);
            B::binary(BinaryOp::Div, x, divisor)
        }),
        Activation::ThresholdedRelu { alpha } => {
            let low = B::unary(UnaryOp::Not, above::<B>(x.clone(), alpha));
            B::mask_fill(x, low, Scalar::Float(0.0))
        }
    }
}

/// `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
fn gelu_tanh<B: Backend>(x: T<B>) -> T<B> {
    let square = mul::<B>(x.clone(), x.clone());
    let factor = add_scalar::<B>(mul_scalar::<B>(square, 0.044_715), 1.0);
    // √(2/π) = (2/√π) / √2
    let inner = mul_scalar::<B>(mul::<B>(x.clone(), factor), FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
    mul::<B>(mul_scalar::<B>(x, 0.5), add_scalar::<B>(B::unary(UnaryOp::Tanh, inner), 1.0))
}

/// `1 / (1 + e^-x)`; the exponent is bounded, so that neither it nor its derivative overflows to NaN.
fn sigmoid<B: Backend>(x: T<B>) -> T<B> {
    let bound = if x.dtype() == DType::F64 { -700.0 } else { -87.0 };
    let x = B::clamp(x, Some(Scalar::Float(bound)), None);
    let exp = B::unary(UnaryOp::Exp, B::unary(UnaryOp::Neg, x));
    B::unary(UnaryOp::Recip, add_scalar::<B>(exp, 1.0))
}

/// `ln(1 + e^x)`; above 40 that is `x` in every dtype's precision.
fn softplus<B: Backend>(x: T<B>) -> T<B> {
    let small = B::clamp(x.clone(), None, Some(Scalar::Float(40.0)));
    let soft = B::unary(UnaryOp::Log1p, B::unary(UnaryOp::Exp, small));
    B::select_where(above::<B>(x.clone(), 40.0), x, soft)
}

/// `x` if positive, else `alpha (e^x - 1)`; by `eˣ - 1 = 2t / (1 - t)`, where `t = tanh(x / 2)`: the difference would lose all digits near 0.
fn elu<B: Backend>(x: T<B>, alpha: f64) -> T<B> {
    let negative = B::clamp(x.clone(), None, Some(Scalar::Float(0.0)));
    let t = B::unary(UnaryOp::Tanh, mul_scalar::<B>(negative, 0.5));
    let rest = add_scalar::<B>(mul_scalar::<B>(t.clone(), -1.0), 1.0);
    let exp_m1 = div::<B>(mul_scalar::<B>(t, 2.0), rest);
    B::select_where(above::<B>(x.clone(), 0.0), x, mul_scalar::<B>(exp_m1, alpha))
}

/// A step's value: constants stay on the host until an operation needs a tensor.
#[derive(Clone)]
enum Value<P> {
    Tensor(P),
    Constant(Scalar, DType),
}

/// What the interpreter of an expression knows.
struct Interpreter<'a, B: Backend> {
    values: Vec<Option<Value<T<B>>>>,
    /// For each step, the last step that reads it; results are read at the end.
    last_use: Vec<usize>,
    parameters: &'a [Scalar],
    /// The shape of all operands together.
    full: Shape,
    device: B::Device,
}

/// What an [elementwise](Backend::elementwise) pass is asked for.
#[derive(Debug)]
pub struct ElementwiseProgram<'a, P> {
    /// The program.
    pub expression: &'a Expression,
    /// What it computes on.
    pub operands: InlineVec<P>,
    /// The numbers of its [`Step::Parameter`]s.
    pub parameters: &'a [Scalar],
}

impl<P: Primitive> ElementwiseProgram<'_, P> {
    /// Its results.
    pub fn run<B: Backend<Primitive = P>>(self) -> InlineVec<P> {
        B::elementwise(self.expression, self.operands, self.parameters)
    }

    /// The same with other operands before its own.
    pub fn behind(self, first: impl IntoIterator<Item = P>) -> Self {
        Self { operands: first.into_iter().chain(self.operands).collect(), ..self }
    }
}

/// Default of [`Backend::elementwise_sums`].
pub fn elementwise_sums<B: Backend>(
    of: ElementwiseProgram<'_, T<B>>,
    axes: &[usize],
    then: Option<ElementwiseProgram<'_, T<B>>>,
) -> InlineVec<T<B>> {
    let ElementwiseProgram { expression, operands, parameters } = of;
    // One after the other: what was just asked for may be computed where it is summed.
    let sum = |result: StepId| {
        let steps = expression.steps.iter().take(usize::from(result) + 1).copied().collect();
        let results = B::elementwise(&Expression::new(steps), operands.to_vec().into(), parameters);
        results.into_iter().map(|result| match axes {
            [] => result,
            axes => B::reduce(ReduceOp::Sum, result, axes),
        })
    };
    let sums = expression.results().into_iter().flat_map(sum);
    match then {
        Some(then) => then.behind(sums).run::<B>(),
        None => sums.collect(),
    }
}

/// Default of [`Backend::elementwise_moments`].
pub fn elementwise_moments<B: Backend>(
    x: T<B>,
    axes: &[usize],
    then: ElementwiseProgram<'_, T<B>>,
) -> InlineVec<T<B>> {
    let wide = wide(x.dtype());
    let center = mean::<B>(to_dtype::<B>(x.clone(), wide), axes);
    let [square] = trace::run::<B, 2, 1>([x, center.clone()], |[x, center]| {
        let centered = x.cast(wide) - center;
        [centered.clone() * centered]
    });
    let variance = mean::<B>(square, axes);
    then.behind([center, variance]).run::<B>()
}

/// Default of [`Backend::elementwise`].
///
/// # Panics
/// When there is no operand, the operands do not broadcast, or the program names what is not there.
pub fn elementwise<B: Backend>(
    expression: &Expression,
    operands: InlineVec<T<B>>,
    parameters: &[Scalar],
) -> InlineVec<T<B>> {
    let Some(first) = operands.first() else { panic!("elementwise: no operand") };
    let full =
        operands.iter().fold(first.shape(), |shape, operand| match shape.broadcast(&operand.shape()) {
            Some(shape) => shape,
            None => panic!("elementwise: {shape} and {} do not broadcast", operand.shape()),
        });
    let results = expression.results();
    let mut run = Interpreter::<B> {
        values: Vec::with_capacity(expression.steps.len()),
        last_use: last_uses(expression, &results),
        parameters,
        full,
        device: B::device(first),
    };
    for (at, step) in expression.steps.iter().enumerate() {
        let value = run.step(at, step, &operands);
        run.values.push(Some(value));
    }
    results
        .into_iter()
        .map(|step| {
            let result = run.tensor(run.peek(step));
            if result.shape() == run.full { result } else { B::expand(result, run.full.clone()) }
        })
        .collect()
}

/// For each step, the index of the last step that reads it; no step's for a result.
fn last_uses(expression: &Expression, results: &[u16]) -> Vec<usize> {
    let mut last = vec![0; expression.steps.len()];
    for (at, step) in expression.steps.iter().enumerate() {
        step.operands().for_each(|step| last[usize::from(step)] = at);
    }
    results.iter().for_each(|&step| last[usize::from(step)] = usize::MAX);
    last
}

impl<B: Backend> Interpreter<'_, B> {
    /// Runs one step.
    fn step(&mut self, at: usize, step: &Step, operands: &[T<B>]) -> Value<T<B>> {
        Value::Tensor(match *step {
            Step::Input(n) => operands[usize::from(n)].clone(),
            Step::Constant(value, dtype) => return Value::Constant(value, dtype),
            Step::Parameter(n, dtype) => match self.parameters.get(usize::from(n)) {
                Some(&value) => return Value::Constant(value, dtype),
                None => {
                    panic!("elementwise: {} parameters, the program reads number {n}", self.parameters.len())
                }
            },
            Step::Iota(dim, dtype) => self.positions(usize::from(dim), dtype),
            Step::Unary(op, a) => B::unary(op, self.read_tensor(at, a)),
            Step::Activation(activation, a) => B::activation(activation, self.read_tensor(at, a)),
            Step::Cast(dtype, a) => match self.read(at, a) {
                Value::Constant(value, _) => return Value::Constant(value, dtype),
                Value::Tensor(a) => B::cast(a, dtype),
            },
            Step::Binary(op, a, b) => {
                let (a, b) = self.read_pair(at, a, b);
                match b {
                    Value::Constant(b, _) => B::binary_scalar(op, a, b),
                    Value::Tensor(b) => B::binary(op, a, b),
                }
            }
            Step::Compare(op, a, b) => {
                let (a, b) = self.read_pair(at, a, b);
                match b {
                    Value::Constant(b, _) => B::compare_scalar(op, a, b),
                    Value::Tensor(b) => B::compare(op, a, b),
                }
            }
            Step::Where(mask, a, b) => {
                let (b, a) = (self.read_tensor_kept(b), self.read_tensor_kept(a));
                let mask = self.read_tensor(at, mask);
                B::select_where(mask, a, b)
            }
        })
    }

    /// The left operand as a tensor and the right one as it is.
    fn read_pair(&mut self, at: usize, a: u16, b: u16) -> (T<B>, Value<T<B>>) {
        // The right one first by copy: both may name the same step.
        let b = if a == b { self.peek(b) } else { self.read(at, b) };
        (self.read_tensor(at, a), b)
    }

    fn peek(&self, step: u16) -> Value<T<B>> {
        match self.values.get(usize::from(step)) {
            Some(Some(value)) => value.clone(),
            _ => panic!("elementwise: step {step} is not an earlier one"),
        }
    }

    /// The value of a step; taken out when nothing later reads it, so that its buffer can be reused.
    fn read(&mut self, at: usize, step: u16) -> Value<T<B>> {
        let index = usize::from(step);
        if self.last_use.get(index) == Some(&at)
            && let Some(value) = self.values.get_mut(index).and_then(Option::take)
        {
            return value;
        }
        self.peek(step)
    }

    fn read_tensor(&mut self, at: usize, step: u16) -> T<B> {
        let value = self.read(at, step);
        self.tensor(value)
    }

    fn read_tensor_kept(&self, step: u16) -> T<B> {
        self.tensor(self.peek(step))
    }

    fn tensor(&self, value: Value<T<B>>) -> T<B> {
        match value {
            Value::Tensor(tensor) => tensor,
            Value::Constant(value, dtype) => {
                B::full(Shape::from(Dims::repeat(1, self.full.rank())), value, dtype, &self.device)
            }
        }
    }

    /// The positions along a dim, with the other dims of size 1.
    fn positions(&self, dim: usize, dtype: DType) -> T<B> {
        let counted = if dtype.is_int() { dtype } else { index_dtype::<B>() };
        let positions = B::arange(0, self.full[dim] as i64, 1, counted, &self.device);
        along::<B>(to_dtype::<B>(positions, dtype), dim, self.full.rank())
    }
}
