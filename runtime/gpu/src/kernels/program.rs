//! What the steps of elementwise programs compute, and the numbers that kernels are told with them.

use crate::language::{Builder, Number, Storage, Type, Value};
use crate::tensor::held_as;
use half::bf16;
use kiln_tensor::{
    Activation, BinaryOp, CompareOp, DType, Element, Expression, InlineVec, Scalar, Step, UnaryOp,
};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// The dtypes of a program's parameters, by their number.
fn own_parameters(expression: &Expression) -> InlineVec<Option<DType>> {
    let mut dtypes = InlineVec::new();
    for step in &expression.steps {
        if let Step::Parameter(n, dtype) = *step {
            let n = usize::from(n);
            while dtypes.len() <= n {
                dtypes.push(None);
            }
            dtypes[n] = Some(dtype);
        }
    }
    dtypes
}

/// The next parameters as a program's own: the words of each, by their number.
pub(super) fn declare_parameters<'k>(k: &'k Builder, expression: &Expression) -> Vec<Vec<Value<'k>>> {
    let words = |dtype: Option<DType>| dtype.map_or(1, |dtype| computed_as(dtype).words());
    own_parameters(expression).into_iter().map(|dtype| k.parameters(words(dtype))).collect()
}

/// Appends the words that tell a kernel a program's parameters.
///
/// # Panics
/// When the program names parameters that are not there.
pub(super) fn append_parameters(
    words: &mut impl Extend<u32>,
    expression: &Expression,
    parameters: &[Scalar],
) {
    for (n, &dtype) in own_parameters(expression).iter().enumerate() {
        match (parameters.get(n), dtype) {
            (Some(&value), Some(dtype)) => words.extend(scalar_words(value, dtype)),
            (_, None) => words.extend([0]),
            (None, Some(_)) => panic!("elementwise: a program names parameters that are not there"),
        }
    }
}

/// The type in which elements of a dtype are computed.
fn computed_as(dtype: DType) -> Type {
    held_as(dtype).value()
}

/// A number as a dtype holds it, in the type in which that is computed. (F16 alone is not rounded: what is told of it, such as the ε of
/// an optimizer, may be less than its least number.)
#[derive(Clone, Copy)]
enum ScalarArgument {
    F64(f64),
    F32(f32),
    I64(i64),
    I32(i32),
    U64(u64),
    U32(u32),
    Bool(bool),
}

impl ScalarArgument {
    fn of(value: Scalar, dtype: DType) -> Self {
        match held_as(dtype) {
            Storage::F64 => ScalarArgument::F64(value.to_f64()),
            Storage::F32 | Storage::F16 => ScalarArgument::F32(value.to_f64() as f32),
            Storage::BF16 => ScalarArgument::F32(bf16::from_scalar(value).to_f32()),
            Storage::I64 => ScalarArgument::I64(i64::from_scalar(value)),
            Storage::I32 => ScalarArgument::I32(i32::from_scalar(value)),
            Storage::I16 => ScalarArgument::I32(i16::from_scalar(value).into()),
            Storage::I8 => ScalarArgument::I32(i8::from_scalar(value).into()),
            Storage::U64 => ScalarArgument::U64(u64::from_scalar(value)),
            Storage::U32 => ScalarArgument::U32(u32::from_scalar(value)),
            Storage::U16 => ScalarArgument::U32(u16::from_scalar(value).into()),
            Storage::U8 => ScalarArgument::U32(u8::from_scalar(value).into()),
            Storage::Bool => ScalarArgument::Bool(value.to_bool()),
        }
    }
}

/// The words in which a number of a dtype is told, the lower first.
pub(super) fn scalar_words(value: Scalar, dtype: DType) -> InlineVec<u32> {
    let both = |bits: u64| [bits as u32, (bits >> 32) as u32].into();
    match ScalarArgument::of(value, dtype) {
        ScalarArgument::F64(x) => both(x.to_bits()),
        ScalarArgument::F32(x) => [x.to_bits()].into(),
        ScalarArgument::I64(x) => both(x as u64),
        ScalarArgument::I32(x) => [x as u32].into(),
        ScalarArgument::U64(x) => both(x),
        ScalarArgument::U32(x) => [x].into(),
        ScalarArgument::Bool(x) => [u32::from(x)].into(),
    }
}

fn constant(k: &Builder, value: Scalar, dtype: DType) -> Value<'_> {
    match ScalarArgument::of(value, dtype) {
        ScalarArgument::F64(x) => k.double(x),
        ScalarArgument::F32(x) => k.value(x),
        ScalarArgument::I64(x) => k.value(x),
        ScalarArgument::I32(x) => k.value(x),
        ScalarArgument::U64(x) => k.value(x),
        ScalarArgument::U32(x) => k.value(x),
        ScalarArgument::Bool(x) => k.value(x),
    }
}

/// A number computed within a program in the type of a dtype: an integer as that holds it, a float with all that it is computed with.
pub(super) fn narrowed(x: Value<'_>, dtype: DType) -> Value<'_> {
    if dtype.is_float() { x } else { x.held_as(held_as(dtype)) }
}

/// A number of one dtype in another, as Rust's `as` has it: floats are truncated and saturate, NaN becomes 0, integers wrap.
pub(super) fn converted<'k>(x: Value<'k>, from: DType, to: DType) -> Value<'k> {
    let (held, ty) = (held_as(to), computed_as(to));
    if x.ty().is_float() && held.narrow_bits().is_some() {
        let (least, greatest) = to.integers().unwrap_or_default();
        let x = x.is_nan().select(0.0, x).max(least as f64).min(greatest as f64);
        return x.to(ty);
    }
    // What 32-bit floats do not hold is rounded once.
    let is_wide = matches!(from, DType::F64 | DType::I64 | DType::I32 | DType::U64 | DType::U32);
    match held {
        Storage::BF16 if is_wide => x.to(Type::F64).to_odd(),
        Storage::F16 if from == DType::F64 => x.to_odd(),
        Storage::F64
        | Storage::F32
        | Storage::F16
        | Storage::BF16
        | Storage::I64
        | Storage::I32
        | Storage::I16
        | Storage::I8
        | Storage::U64
        | Storage::U32
        | Storage::U16
        | Storage::U8
        | Storage::Bool => narrowed(x.to(ty), to),
    }
}

/// What a program reads, with its dtypes.
pub(super) struct Operands<'a, 'k> {
    pub values: &'a [Value<'k>],
    pub dtypes: &'a [DType],
}

/// The values of all steps. Of integers each is as its dtype holds it; floats of 16 bits keep more.
///
/// # Panics
/// When the program names operands that are not there.
pub(super) fn evaluate<'k>(
    k: &'k Builder,
    expression: &Expression,
    operands: &Operands<'_, 'k>,
    counters: &[Value<'k>],
    parameters: &[Vec<Value<'k>>],
) -> Vec<Value<'k>> {
    let Some(dtypes) = expression.dtypes(operands.dtypes) else {
        panic!("elementwise: a program names operands that are not there")
    };
    let mut counters = counters.iter();
    let mut values: Vec<Value<'k>> = Vec::with_capacity(expression.steps.len());
    for (step, &own) in expression.steps.iter().zip(&dtypes) {
        let of = |id: u16| values[usize::from(id)];
        // What is rounded to 16 bits need not be more exact.
        let is_short = matches!(own, DType::F16 | DType::BF16);
        let value = match *step {
            Step::Input(n) => operands.values[usize::from(n)],
            Step::Constant(value, dtype) => constant(k, value, dtype),
            Step::Parameter(n, dtype) => k.from_words(&parameters[usize::from(n)], computed_as(dtype)),
            Step::Iota(_, dtype) => {
                let counter = counters.next().copied().unwrap_or_else(|| k.value(0_u32));
                narrowed(counter.to(computed_as(dtype)), dtype)
            }
            Step::Unary(UnaryOp::Exp, x) if is_short => of(x).short_exp(),
            Step::Unary(UnaryOp::Erf, x) if is_short => of(x).short_erf(),
            Step::Unary(op, x) => narrowed(unary(op, of(x)), own),
            Step::Binary(BinaryOp::Pow, base, exponent) => match constant_of(expression, exponent) {
                Some(power) => narrowed(power_of(of(base), of(exponent), power), own),
                None => narrowed(binary(BinaryOp::Pow, of(base), of(exponent)), own),
            },
            Step::Binary(op, a, b) => narrowed(binary(op, of(a), of(b)), own),
            Step::Compare(op, a, b) => compare(op, of(a), of(b)),
            Step::Activation(Activation::Gelu, x) if is_short => of(x).rough_gelu(),
            Step::Activation(op, x) if is_short => activation_by(op, of(x), Value::short_exp),
            Step::Activation(op, x) => activation(op, of(x)),
            Step::Where(condition, a, b) => of(condition).select(of(a), of(b)),
            Step::Cast(dtype, x) => converted(of(x), dtypes[usize::from(x)], dtype),
        };
        values.push(value);
    }
    values
}

/// The number that a step is, if it is one.
fn constant_of(expression: &Expression, step: u16) -> Option<f64> {
    match expression.steps.get(usize::from(step)) {
        Some(&Step::Constant(value, _)) => Some(value.to_f64()),
        _ => None,
    }
}

/// Whether [`power_of`] is exact without logarithms.
pub(crate) fn is_power_of_products(power: f64) -> bool {
    [1.0, 2.0, 3.0].contains(&power)
}

/// A power whose exponent is known.
fn power_of<'k>(base: Value<'k>, exponent: Value<'k>, power: f64) -> Value<'k> {
    if power == 2.0 {
        base * base
    } else if power == 3.0 {
        base * base * base
    } else if power == 1.0 {
        base
    } else {
        binary(BinaryOp::Pow, base, exponent)
    }
}

fn unary(op: UnaryOp, x: Value<'_>) -> Value<'_> {
    match op {
        UnaryOp::Neg if matches!(x.ty(), Type::U32 | Type::U64) => constant_like(x, 0) - x,
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign => x.sign(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.log(),
        UnaryOp::Log1p => x.log_1p(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Recip => constant_like(x, 1) / x,
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Asin => x.asin(),
        UnaryOp::Acos => x.acos(),
        UnaryOp::Atan => x.atan(),
        UnaryOp::Sinh => x.sinh(),
        UnaryOp::Cosh => x.cosh(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Asinh => x.asinh(),
        UnaryOp::Acosh => x.acosh(),
        UnaryOp::Atanh => x.atanh(),
        UnaryOp::Erf => x.erf(),
        // Integers are whole.
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc if !x.ty().is_float() => x,
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round(),
        UnaryOp::Trunc => x.trunc(),
        UnaryOp::Not => !x.to(Type::Bool),
        UnaryOp::BitwiseNot => !x,
        UnaryOp::IsNan => x.is_nan(),
        UnaryOp::IsInf => x.is_infinite(),
    }
}

fn binary<'k>(op: BinaryOp, a: Value<'k>, b: Value<'k>) -> Value<'k> {
    let is_float = a.ty().is_float();
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div if is_float => a / b,
        BinaryOp::Div => divided(a, b),
        BinaryOp::Pow if is_float => a.pow(b),
        BinaryOp::Pow => a.integer_pow(b),
        BinaryOp::Fmod if is_float => a.fmod(b),
        BinaryOp::Fmod => a - divided(a, b) * b,
        BinaryOp::Remainder => {
            let r = if is_float { a.fmod(b) } else { a - divided(a, b) * b };
            let zero = constant_like(a, 0);
            let opposite = r.differs(zero) & r.below(zero).differs(b.below(zero));
            opposite.select(r + b, r)
        }
        BinaryOp::Max => a.maximum(b),
        BinaryOp::Min => a.minimum(b),
        BinaryOp::Atan2 => a.atan2(b),
        BinaryOp::And | BinaryOp::BitwiseAnd => a & b,
        BinaryOp::Or | BinaryOp::BitwiseOr => a | b,
        BinaryOp::Xor | BinaryOp::BitwiseXor => a ^ b,
        BinaryOp::ShiftLeft => {
            let (by, is_far) = distance(b);
            is_far.select(constant_like(a, 0), a << by)
        }
        // Too far a shift leaves the sign: 0, or -1 for a negative number.
        BinaryOp::ShiftRight => {
            let (by, is_far) = distance(b);
            let least = match a.ty() {
                Type::I32 => a >> 31_u32,
                Type::I64 => a >> 63_u32,
                Type::F64 | Type::F32 | Type::U64 | Type::U32 | Type::Bool => constant_like(a, 0),
            };
            is_far.select(least, a >> by)
        }
    }
}

/// How far to shift, below the number of bits, and whether more was asked for.
fn distance(by: Value<'_>) -> (Value<'_>, Value<'_>) {
    match by.ty() {
        Type::I64 | Type::U64 => {
            let by = by.bits(Type::U64);
            (by.to(Type::U32) & 63_u32, by.at_least(64_u32))
        }
        Type::F64 | Type::F32 | Type::I32 | Type::U32 | Type::Bool => {
            let by = by.bits(Type::U32);
            (by & 31_u32, by.at_least(32_u32))
        }
    }
}

/// A whole number in the type of another value.
fn constant_like(like: Value<'_>, number: i32) -> Value<'_> {
    like.kernel().whole(number, like.ty())
}

/// Integer division towards zero; 0 by 0, where a CPU would stop.
fn divided<'k>(a: Value<'k>, b: Value<'k>) -> Value<'k> {
    let zero = constant_like(a, 0);
    let by_zero = b.equals(zero);
    let quotient = a / by_zero.select(constant_like(a, 1), b);
    by_zero.select(zero, quotient)
}

fn compare<'k>(op: CompareOp, a: Value<'k>, b: Value<'k>) -> Value<'k> {
    let (a, b) = (a.ordered(), b.ordered());
    match op {
        CompareOp::Equal => a.equals(b),
        CompareOp::NotEqual => a.differs(b),
        CompareOp::Greater => a.above(b),
        CompareOp::GreaterEqual => a.at_least(b),
        CompareOp::Lower => a.below(b),
        CompareOp::LowerEqual => a.at_most(b),
    }
}

/// An activation of a float.
pub(crate) fn activation(activation: Activation, x: Value<'_>) -> Value<'_> {
    activation_by(activation, x, Value::exp)
}

/// An activation of a float, by an exponential where it is made of such.
fn activation_by<'k>(
    activation: Activation,
    x: Value<'k>,
    exp: impl FnOnce(Value<'k>) -> Value<'k>,
) -> Value<'k> {
    match activation {
        Activation::Relu => x.maximum(constant_like(x, 0)),
        Activation::LeakyRelu { slope } => x.above(0.0).select(x, x * slope),
        Activation::Gelu => x * 0.5 * ((x * FRAC_1_SQRT_2).erf() + 1.0),
        Activation::GeluTanh => {
            // √(2/π) = (2/√π) / √2
            let inner = x * (x * x * 0.044_715 + 1.0) * (FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
            x * 0.5 * (inner.tanh() + 1.0)
        }
        Activation::Sigmoid => sigmoid(x, exp),
        Activation::Tanh => x.tanh(),
        Activation::Silu => {
            // Below, the product is as good as 0, and the bound keeps what sigmoid is there, which is not 0, from large numbers.
            let least = if x.ty() == Type::F64 { -745.0 } else { -89.0 };
            let x = x.maximum(least.beside(x));
            x * sigmoid(x, exp)
        }
        Activation::Mish => x * softplus(x, exp).tanh(),
        Activation::Softplus => softplus(x, exp),
        Activation::HardSigmoid { alpha, beta } => clamp(x * alpha + beta, 0.0, 1.0),
        Activation::HardSwish => x * clamp(x * (1.0 / 6.0) + 0.5, 0.0, 1.0),
        Activation::Elu { alpha } => x.above(0.0).select(x, x.minimum(constant_like(x, 0)).exp_m1() * alpha),
        Activation::Clamp { min, max } => clamp(x, min, max),
        Activation::Affine { alpha, beta } => x * alpha + beta,
        Activation::ScaledTanh { alpha, beta } => (x * beta).tanh() * alpha,
        Activation::Softsign => x / (x.abs() + 1.0),
        Activation::ThresholdedRelu { alpha } => (x.above(alpha) | x.is_nan()).select(x, 0.0),
    }
}

fn clamp(x: Value<'_>, min: f64, max: f64) -> Value<'_> {
    x.maximum(min.beside(x)).minimum(max.beside(x))
}

fn sigmoid<'k>(x: Value<'k>, exp: impl FnOnce(Value<'k>) -> Value<'k>) -> Value<'k> {
    // Above, the exponential is infinite.
    let greatest = if x.ty() == Type::F64 { 709.0 } else { 87.0 };
    constant_like(x, 1) / (exp((-x).minimum(greatest.beside(x))) + 1.0)
}

/// `ln(1 + e^x)`; above 40 that is `x`.
fn softplus<'k>(x: Value<'k>, exp: impl FnOnce(Value<'k>) -> Value<'k>) -> Value<'k> {
    x.above(40.0).select(x, exp(x.minimum(40.0.beside(x))).log_1p())
}
