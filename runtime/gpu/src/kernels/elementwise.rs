//! Elementwise programs over strided operands; copies and fills are the shortest of them.

use super::access::{self, Access, Operand, Walk};
use super::then::{self, Then};
use super::{LINE, launch, launch_open, line_of, numbers};
use crate::language::{Builder, Kernel, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::backend::{Layout, Primitive, SliceRange};
use kiln_tensor::{
    Activation, BinaryOp, CompareOp, DType, Element, Expression, Scalar, Shape, Step, UnaryOp,
};
use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// A program with what is known of its operands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Elementwise {
    /// What is computed of each element.
    pub expression: Expression,
    /// The operands' dtypes, and how they are read.
    pub operands: Vec<(DType, Access)>,
    /// How the positions are had that `Iota` steps yield, in the steps' order.
    pub counters: Vec<Access>,
    /// The results' dtypes, and how they are written.
    pub results: Vec<(DType, Access)>,
    /// Number of dims over which strides are told.
    pub rank: usize,
    /// What is done to the one result after that.
    pub then: Vec<Then>,
}

impl Elementwise {
    /// The kernel. Parameters: the number of elements, the dims, operands, counters, results, the expression's own.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("elementwise", [LINE, 1], |k| {
            let inputs: Vec<_> = self.operands.iter().map(|&(dtype, _)| k.input(held_as(dtype))).collect();
            let outputs: Vec<_> = self.results.iter().map(|&(dtype, _)| k.output(held_as(dtype))).collect();
            let count = k.parameter();
            let dims = k.parameters(self.rank);
            let declare = |access: Access| Operand::declare(k, access, self.rank);
            let operands: Vec<_> = self.operands.iter().map(|&(_, access)| declare(access)).collect();
            let counters: Vec<_> = self.counters.iter().map(|&access| declare(access)).collect();
            let results: Vec<_> = self.results.iter().map(|&(_, access)| declare(access)).collect();
            let parameters: Vec<_> = own_parameters(&self.expression).iter().map(|_| k.parameter()).collect();
            let then = then::declare(k, &self.then);

            let position = k.position(LINE);
            k.when(position.below(count), || {
                let coordinates = access::coordinates(position, &dims);
                let operands: Vec<_> = inputs
                    .iter()
                    .zip(&operands)
                    .map(|(buffer, operand)| buffer.at(operand.at(position, &coordinates)))
                    .collect();
                let counters: Vec<_> =
                    counters.iter().map(|counter| counter.at(position, &coordinates)).collect();
                let steps = evaluate(k, &self.expression, &operands, &counters, &parameters);
                for ((output, result), step) in outputs.iter().zip(&results).zip(self.expression.results()) {
                    let value = then::apply(&then, position, steps[usize::from(step)]);
                    output.set(result.at(position, &coordinates), value);
                }
            });
        })
    }
}

/// The dtypes of a program's parameters, by their number.
pub(super) fn own_parameters(expression: &Expression) -> Vec<Option<DType>> {
    let mut dtypes = Vec::new();
    for step in &expression.steps {
        if let Step::Parameter(n, dtype) = *step {
            let n = usize::from(n);
            dtypes.resize(dtypes.len().max(n + 1), None);
            dtypes[n] = Some(dtype);
        }
    }
    dtypes
}

/// The words that tell a kernel a program's parameters.
///
/// # Panics
/// When the program names parameters that are not there.
pub(super) fn parameter_words(expression: &Expression, parameters: &[Scalar]) -> Vec<u32> {
    let word = |(n, dtype): (usize, Option<DType>)| match (parameters.get(n), dtype) {
        (Some(&value), Some(dtype)) => scalar_word(value, dtype),
        (_, None) => 0,
        (None, Some(_)) => panic!("elementwise: a program names parameters that are not there"),
    };
    own_parameters(expression).into_iter().enumerate().map(word).collect()
}

/// The type in which elements of a dtype are computed.
fn computed_as(dtype: DType) -> Type {
    held_as(dtype).value()
}

/// A number as a word, in the type in which a dtype is computed.
fn scalar_word(value: Scalar, dtype: DType) -> u32 {
    match computed_as(dtype) {
        Type::F32 => (value.to_f64() as f32).to_bits(),
        Type::I32 => i32::from_scalar(value) as u32,
        Type::U32 => u32::from_scalar(value),
        Type::Bool => u32::from(value.to_bool()),
    }
}

/// The same word in a kernel.
fn word_as<'k>(word: Value<'k>, dtype: DType) -> Value<'k> {
    match computed_as(dtype) {
        Type::Bool => word.differs(0_u32),
        ty => word.bits(ty),
    }
}

fn constant(k: &Builder, value: Scalar, dtype: DType) -> Value<'_> {
    let word = scalar_word(value, dtype);
    match computed_as(dtype) {
        Type::F32 => k.value(f32::from_bits(word)),
        Type::I32 => k.value(word as i32),
        Type::U32 => k.value(word),
        Type::Bool => k.value(word != 0),
    }
}

/// The values of all steps.
pub(super) fn evaluate<'k>(
    k: &'k Builder,
    expression: &Expression,
    operands: &[Value<'k>],
    counters: &[Value<'k>],
    parameters: &[Value<'k>],
) -> Vec<Value<'k>> {
    let mut counters = counters.iter();
    let mut values: Vec<Value<'k>> = Vec::with_capacity(expression.steps.len());
    for step in &expression.steps {
        let of = |id: u16| values[usize::from(id)];
        let value = match *step {
            Step::Input(n) => operands[usize::from(n)],
            Step::Constant(value, dtype) => constant(k, value, dtype),
            Step::Parameter(n, dtype) => word_as(parameters[usize::from(n)], dtype),
            Step::Iota(_, dtype) => match counters.next() {
                Some(counter) => counter.to(computed_as(dtype)),
                None => k.value(0_u32).to(computed_as(dtype)),
            },
            Step::Unary(op, x) => unary(op, of(x)),
            Step::Binary(BinaryOp::Pow, base, exponent) => match constant_of(expression, exponent) {
                Some(power) => power_of(of(base), of(exponent), power),
                None => binary(BinaryOp::Pow, of(base), of(exponent)),
            },
            Step::Binary(op, a, b) => binary(op, of(a), of(b)),
            Step::Compare(op, a, b) => compare(op, of(a), of(b)),
            Step::Activation(op, x) => activation(op, of(x)),
            Step::Where(condition, a, b) => of(condition).select(of(a), of(b)),
            Step::Cast(dtype, x) => of(x).to(computed_as(dtype)),
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

/// A power whose exponent is known: those that are exact without logarithms.
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
    let k = x.kernel();
    match op {
        UnaryOp::Neg if x.ty() == Type::U32 => k.value(0_u32) - x,
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign => x.sign(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.log(),
        UnaryOp::Log1p => x.log_1p(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Recip => k.value(1.0) / x,
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
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc if x.ty() != Type::F32 => x,
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
    let is_float = a.ty() == Type::F32;
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
            let by = b.bits(Type::U32);
            by.below(32_u32).select(a << (by & 31_u32), constant_like(a, 0))
        }
        // Too far a shift leaves the sign: 0, or -1 for a negative number.
        BinaryOp::ShiftRight => {
            let by = b.bits(Type::U32);
            let least = if a.ty() == Type::I32 { a >> 31_u32 } else { constant_like(a, 0) };
            by.below(32_u32).select(a >> (by & 31_u32), least)
        }
    }
}

/// A whole number in the type of another value.
fn constant_like(like: Value<'_>, number: i32) -> Value<'_> {
    let k = like.kernel();
    match like.ty() {
        Type::F32 => k.value(number as f32),
        Type::I32 => k.value(number),
        Type::U32 => k.value(number as u32),
        Type::Bool => k.value(number != 0),
    }
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
    let k = x.kernel();
    match activation {
        Activation::Relu => x.maximum(k.value(0.0)),
        Activation::LeakyRelu { slope } => x.above(0.0).select(x, x * slope as f32),
        Activation::Gelu => x * 0.5 * ((x * FRAC_1_SQRT_2).erf() + 1.0),
        Activation::GeluTanh => {
            // √(2/π) = (2/√π) / √2
            let inner = x * (x * x * 0.044_715 + 1.0) * (FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
            x * 0.5 * (inner.tanh() + 1.0)
        }
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Silu => x * sigmoid(x),
        Activation::Mish => x * softplus(x).tanh(),
        Activation::Softplus => softplus(x),
        Activation::HardSigmoid { alpha, beta } => clamp(x * alpha as f32 + beta as f32, 0.0, 1.0),
        Activation::HardSwish => x * clamp(x * (1.0 / 6.0) + 0.5, 0.0, 1.0),
        Activation::Elu { alpha } => x.above(0.0).select(x, x.minimum(k.value(0.0)).exp_m1() * alpha as f32),
        Activation::Clamp { min, max } => clamp(x, min as f32, max as f32),
        Activation::Affine { alpha, beta } => x * alpha as f32 + beta as f32,
        Activation::ScaledTanh { alpha, beta } => (x * beta as f32).tanh() * alpha as f32,
        Activation::Softsign => x / (x.abs() + 1.0),
        Activation::ThresholdedRelu { alpha } => (x.above(alpha as f32) | x.is_nan()).select(x, 0.0),
    }
}

fn clamp(x: Value<'_>, min: f32, max: f32) -> Value<'_> {
    x.maximum(x.kernel().value(min)).minimum(x.kernel().value(max))
}

fn sigmoid(x: Value<'_>) -> Value<'_> {
    let k = x.kernel();
    k.value(1.0) / ((-x).minimum(k.value(87.0)).exp() + 1.0)
}

/// `ln(1 + e^x)`; above 40 that is `x` in f32.
fn softplus(x: Value<'_>) -> Value<'_> {
    x.above(40.0).select(x, x.minimum(x.kernel().value(40.0)).exp().log_1p())
}

/// What a program's operands broadcast to, and the dtypes of its steps.
///
/// # Panics
/// When the operands do not broadcast, or the program names what is not there.
fn shape_and_dtypes<R: Runtime>(expression: &Expression, operands: &[GpuTensor<R>]) -> (Shape, Vec<DType>) {
    let Some(first) = operands.first() else { panic!("elementwise: no operand") };
    let shape = operands.iter().fold(first.shape(), |shape, operand| {
        shape
            .broadcast(&operand.shape())
            .unwrap_or_else(|| panic!("elementwise: {shape} and {} do not broadcast", operand.shape()))
    });
    let dtypes: Vec<DType> = operands.iter().map(Primitive::dtype).collect();
    let Some(dtypes) = expression.dtypes(&dtypes) else {
        panic!("elementwise: a program names operands that are not there")
    };
    (shape, dtypes)
}

/// Runs a program over operands, which broadcast, into new tensors.
///
/// # Panics
/// When the operands do not broadcast, or the program names what is not there.
pub(crate) fn run<R: Runtime>(
    expression: &Expression,
    operands: &[GpuTensor<R>],
    parameters: &[Scalar],
) -> Vec<GpuTensor<R>> {
    let expression = &*numbers::within(expression, parameters);
    let (shape, dtypes) = shape_and_dtypes(expression, operands);
    let device = &operands[0].device;
    let results: Vec<GpuTensor<R>> = expression
        .results()
        .into_iter()
        .map(|step| GpuTensor::empty(shape.clone(), dtypes[usize::from(step)], device))
        .collect();
    write(expression, operands, parameters, &results, &shape);
    results
}

/// [`run`] with operands that the caller needs no more: where one of them was just computed, by the kernel that did.
pub(crate) fn consume<R: Runtime>(
    expression: &Expression,
    operands: Vec<GpuTensor<R>>,
    parameters: &[Scalar],
) -> Vec<GpuTensor<R>> {
    let expression = &*numbers::within(expression, parameters);
    let (shape, dtypes) = shape_and_dtypes(expression, &operands);
    let dtype = expression.results().first().map(|&step| dtypes[usize::from(step)]);
    let Some(dtype) = dtype else { return run(expression, &operands, parameters) };
    match then::within_last(expression, operands, parameters, &shape, dtype) {
        Ok(result) => vec![result],
        Err(operands) => run(expression, &operands, parameters),
    }
}

/// Runs a program over operands, which broadcast to `shape`, into memory that is there: views of `shape` that no operand reads.
fn write<R: Runtime>(
    expression: &Expression,
    operands: &[GpuTensor<R>],
    parameters: &[Scalar],
    results: &[GpuTensor<R>],
    shape: &Shape,
) {
    if shape.num_elements() == 0 {
        return;
    }
    // A position along a dim is the offset of a walk that steps by one along it.
    let counters = expression.steps.iter().filter_map(|step| match *step {
        Step::Iota(dim, _) => Some(usize::from(dim)),
        _ => None,
    });
    let counter = |dim: usize| {
        let strides = (0..shape.rank()).map(|axis| isize::from(axis == dim)).collect();
        Layout { shape: shape.clone(), strides, offset: 0 }
    };
    let expanded = |operand: &GpuTensor<R>| operand.clone().with_layout(operand.layout.expand(shape));
    let views = Views {
        operands: operands.iter().map(expanded).collect(),
        counters: counters.map(counter).collect(),
        results: results.to_vec(),
    };
    views.run(expression, parameters, shape);
}

/// What a program reads and writes, over one shape.
struct Views<R: Runtime> {
    operands: Vec<GpuTensor<R>>,
    counters: Vec<Layout>,
    results: Vec<GpuTensor<R>>,
}

impl<R: Runtime> Views<R> {
    /// Runs the program: in halves where kernels do not see all of a tensor's memory.
    fn run(mut self, expression: &Expression, parameters: &[Scalar], shape: &Shape) {
        for tensor in self.operands.iter_mut().chain(&mut self.results) {
            *tensor = tensor.narrowed();
        }
        let visible = self.operands.iter().chain(&self.results).all(GpuTensor::is_visible);
        match shape.dims.iter().position(|&dim| dim > 1).filter(|_| !visible) {
            None => self.launch(expression, parameters, shape),
            Some(axis) => {
                let size = shape.dims[axis];
                for (start, end) in [(0, size / 2), (size / 2, size)] {
                    let mut ranges: Vec<SliceRange> =
                        shape.dims.iter().map(|&size| SliceRange::full(size)).collect();
                    ranges[axis] = SliceRange { start, end, step: 1 };
                    let mut half = shape.clone();
                    half.dims[axis] = end - start;
                    let part = |tensor: &GpuTensor<R>| {
                        let layout = tensor.layout.slice(&ranges);
                        tensor.clone().with_layout(layout)
                    };
                    let views = Self {
                        operands: self.operands.iter().map(part).collect(),
                        counters: self.counters.iter().map(|counter| counter.slice(&ranges)).collect(),
                        results: self.results.iter().map(part).collect(),
                    };
                    views.run(expression, parameters, &half);
                }
            }
        }
    }

    fn launch(&self, expression: &Expression, parameters: &[Scalar], shape: &Shape) {
        let Some(device) = self.results.first().map(|result| &result.device) else { return };
        let layouts =
            |tensors: &'_ [GpuTensor<R>]| tensors.iter().map(|tensor| tensor.layout.clone()).collect();
        let views: [Vec<Layout>; 3] =
            [layouts(&self.operands), self.counters.clone(), layouts(&self.results)];
        let views = views.concat();
        let strides: Vec<&[isize]> = views.iter().map(|view| view.strides.as_slice()).collect();
        let walk = Walk::new(&shape.dims, &strides);
        let access: Vec<Access> = (0..views.len()).map(|view| walk.access(view)).collect();
        let strided = access.contains(&Access::Strided);

        let count = shape.num_elements();
        let mut words = vec![count as u32];
        words.extend(walk.dim_words().filter(|_| strided));
        for (n, view) in views.iter().enumerate() {
            words.push(view.offset as u32);
            words.extend(walk.stride_words(n));
        }
        words.extend(parameter_words(expression, parameters));

        let (read, rest) = access.split_at(self.operands.len());
        let (counted, written) = rest.split_at(self.counters.len());
        let dtypes = |tensors: &[GpuTensor<R>], access: &[Access]| {
            tensors.iter().map(|tensor| tensor.dtype).zip(access.iter().copied()).collect()
        };
        let template = Elementwise {
            expression: expression.clone(),
            operands: dtypes(&self.operands, read),
            counters: counted.to_vec(),
            results: dtypes(&self.results, written),
            rank: if strided { walk.dims.len() } else { 0 },
            then: Vec::new(),
        };
        let tensors: Vec<&GpuTensor<R>> = self.operands.iter().chain(&self.results).collect();
        let groups = line_of::<R>(device, count);
        match (self.results.as_slice(), written) {
            ([result], [Access::Linear]) if result.layout.offset == 0 => {
                launch_open::<R>(device, template, &tensors, &words, groups);
            }
            _ => launch::<R>(device, template, &tensors, &words, groups),
        }
    }
}

/// The program that yields its operand.
fn identity() -> Expression {
    Expression::new(vec![Step::Input(0)])
}

/// A row-major copy.
pub(crate) fn copy<R: Runtime>(tensor: &GpuTensor<R>) -> GpuTensor<R> {
    let result = GpuTensor::empty(tensor.shape(), tensor.dtype, &tensor.device);
    copy_into(tensor, &result);
    result
}

/// Copies `from`, which broadcasts, over a view of memory that `from` does not read.
pub(crate) fn copy_into<R: Runtime>(from: &GpuTensor<R>, to: &GpuTensor<R>) {
    write(&identity(), core::slice::from_ref(from), &[], core::slice::from_ref(to), &to.shape());
}

/// Row-major without gaps; copies where it is not.
pub(crate) fn contiguous<R: Runtime>(tensor: GpuTensor<R>) -> GpuTensor<R> {
    if tensor.layout.is_contiguous() { tensor } else { copy(&tensor) }
}

/// Row-major without gaps from the start of its memory; copies where it is not.
pub(crate) fn from_start<R: Runtime>(tensor: GpuTensor<R>) -> GpuTensor<R> {
    if tensor.layout.is_contiguous() && tensor.layout.offset == 0 { tensor } else { copy(&tensor) }
}

/// Converts the elements.
pub(crate) fn cast<R: Runtime>(tensor: &GpuTensor<R>, dtype: DType) -> GpuTensor<R> {
    if tensor.dtype == dtype {
        return tensor.clone();
    }
    let program = Expression::new(vec![Step::Input(0), Step::Cast(dtype, 0)]);
    let result = GpuTensor::empty(tensor.shape(), dtype, &tensor.device);
    write(&program, core::slice::from_ref(tensor), &[], core::slice::from_ref(&result), &tensor.shape());
    result
}

/// A tensor whose elements follow from their positions alone: the result, of `dtype`, of a program without operands.
pub(crate) fn fill<R: Runtime>(
    program: &Expression,
    parameters: &[Scalar],
    shape: Shape,
    dtype: DType,
    device: &R::Device,
) -> GpuTensor<R> {
    let program = &*numbers::within(program, parameters);
    let result = GpuTensor::empty(shape.clone(), dtype, device);
    write(program, &[], parameters, core::slice::from_ref(&result), &shape);
    result
}

/// A tensor filled with one number.
pub(crate) fn full<R: Runtime>(
    shape: Shape,
    value: Scalar,
    dtype: DType,
    device: &R::Device,
) -> GpuTensor<R> {
    numbers::expect_held("full", value, dtype);
    fill(&Expression::new(vec![Step::Parameter(0, dtype)]), &[value], shape, dtype, device)
}

/// `start, start + step, …` below (or above) `end`.
pub(crate) fn arange<R: Runtime>(
    start: i64,
    end: i64,
    step: i64,
    dtype: DType,
    device: &R::Device,
) -> GpuTensor<R> {
    let distance = if step > 0 { end.saturating_sub(start) } else { start.saturating_sub(end) };
    let count = usize::try_from(distance).unwrap_or(0).div_ceil(step.unsigned_abs().max(1) as usize);
    if let Some(steps) = count.checked_sub(1) {
        let last = i128::from(start) + i128::from(step) * steps as i128;
        let last = i64::try_from(last).unwrap_or(if step > 0 { i64::MAX } else { i64::MIN });
        [start, last]
            .into_iter()
            .for_each(|number| numbers::expect_held("arange", Scalar::Int(number), dtype));
    }
    let program = Expression::new(vec![
        Step::Iota(0, dtype),
        Step::Parameter(0, dtype),
        Step::Binary(BinaryOp::Mul, 0, 1),
        Step::Parameter(1, dtype),
        Step::Binary(BinaryOp::Add, 2, 3),
    ]);
    // One number, or none, is no step away from the first.
    let step = if count > 1 { step } else { 0 };
    let parameters = [Scalar::Int(step), Scalar::Int(if count > 0 { start } else { 0 })];
    fill(&program, &parameters, Shape::from([count]), dtype, device)
}

/// [`run`] for a program with one result.
pub(crate) fn single<R: Runtime>(
    expression: &Expression,
    operands: &[GpuTensor<R>],
    parameters: &[Scalar],
) -> GpuTensor<R> {
    only(run(expression, operands, parameters))
}

/// The result of a program with one.
///
/// # Panics
/// When it has none, or several.
pub(crate) fn only<R: Runtime>(mut results: Vec<GpuTensor<R>>) -> GpuTensor<R> {
    match (results.pop(), results.is_empty()) {
        (Some(result), true) => result,
        _ => panic!("elementwise: a program of one result was expected"),
    }
}

/// `a + b`.
pub(crate) fn add<R: Runtime>(a: &GpuTensor<R>, b: &GpuTensor<R>) -> GpuTensor<R> {
    let steps = vec![Step::Input(0), Step::Input(1), Step::Binary(BinaryOp::Add, 0, 1)];
    single(&Expression::new(steps), &[a.clone(), b.clone()], &[])
}

/// An activation of each element.
pub(crate) fn activated<R: Runtime>(activation: Activation, x: &GpuTensor<R>) -> GpuTensor<R> {
    let steps = vec![Step::Input(0), Step::Activation(activation, 0)];
    single(&Expression::new(steps), core::slice::from_ref(x), &[])
}

/// Tensors one after another along `dim`.
///
/// # Panics
/// When there is none.
pub(crate) fn join<R: Runtime>(tensors: &[GpuTensor<R>], dim: usize) -> GpuTensor<R> {
    let Some(first) = tensors.first() else { panic!("cat: no tensors") };
    let mut shape = first.shape();
    shape.dims[dim] = tensors.iter().map(|tensor| tensor.dims()[dim]).sum();
    let out = GpuTensor::empty(shape.clone(), first.dtype, &first.device);
    let mut ranges: Vec<SliceRange> = shape.dims.iter().map(|&size| SliceRange::full(size)).collect();
    let mut start = 0;
    for tensor in tensors {
        let end = start + tensor.dims()[dim];
        ranges[dim] = SliceRange { start, end, step: 1 };
        let view = out.layout.slice(&ranges);
        copy_into(tensor, &out.clone().with_layout(view));
        start = end;
    }
    out
}
