//! Products of quantized integers: sums of `(a - a_zero) (b - b_zero)` in 32 bits.

use super::binary::binary;
use super::broadcast::broadcasts_to;
use super::convolution::{Conv, conv_dims, conv_sizes};
use super::linear::{matmul_dims, product_sizes};
use super::prelude::*;
use kiln_types::{Activation, BinaryOp, ConvOptions, DType, Expression, Scalar, Step, StepId, UnaryOp};

/// A product of matrices of integers, the last two axes of operands of equal rank. A zero point is a number, or has its operand's rank
/// and one entry along the axis that is summed over.
pub struct MatMulInteger;

attributes! {
    /// A convolution of integers. The border is what zero points stand for; that of the weight is a number, or one for each of its
    /// first axis.
    pub struct ConvInteger {
        /// Where the kernel goes.
        pub options: ConvOptions,
    }
}

/// Bytes that stand for floats, with the scale and the zero point of their range, 0 included: `(byte - zero) · scale`.
pub struct QuantizeDynamic;

/// Integers that stand for floats, `round(x / scale) + zero`, as far as the zero point's dtype has them. Without a scale `x` is in steps.
pub struct Quantize;

/// The floats that integers stand for, `(x - zero) · scale`.
pub struct Dequantize;

/// The floats that the integers of [`Quantize`] stand for.
pub struct FakeQuantize;

/// The steps of [`Quantize`] over its operands that are there; a zero point that is known is no operand.
fn quantizing([wide, dtype]: [DType; 2], scaled: bool, zero: Option<f64>) -> Option<Expression> {
    let (least, greatest) = dtype.integers()?;
    let bounds = Activation::Clamp { min: least as f64, max: greatest as f64 };
    let operands = 1 + u16::from(scaled) + u16::from(zero.is_none());
    let mut steps: Vec<Step> = (0..operands).map(Step::Input).collect();
    let last = operands - 1;
    let x = if scaled { push(&mut steps, Step::Binary(BinaryOp::Div, 0, 1)) } else { 0 };
    let x = push(&mut steps, Step::Unary(UnaryOp::Round, x));
    let x = shifted(&mut steps, wide, BinaryOp::Add, x, last, zero);
    let x = push(&mut steps, Step::Activation(bounds, x));
    push(&mut steps, Step::Cast(dtype, x));
    Some(Expression::new(steps))
}

/// The steps of [`Dequantize`], likewise.
fn dequantizing(wide: DType, zero: Option<f64>) -> Expression {
    let operands = 2 + u16::from(zero.is_none());
    let mut steps: Vec<Step> = (0..operands).map(Step::Input).collect();
    let x = push(&mut steps, Step::Cast(wide, 0));
    let x = shifted(&mut steps, wide, BinaryOp::Sub, x, operands - 1, zero);
    push(&mut steps, Step::Binary(BinaryOp::Mul, x, 1));
    Expression::new(steps)
}

/// The steps of [`FakeQuantize`], likewise.
fn fake_quantizing([wide, dtype]: [DType; 2], zero: Option<f64>) -> Option<Expression> {
    let mut steps = quantizing([wide, dtype], true, zero)?.steps;
    let last = StepId::try_from(steps.len().checked_sub(1)?).ok()?;
    let x = push(&mut steps, Step::Cast(wide, last));
    let x = shifted(&mut steps, wide, BinaryOp::Sub, x, 2, zero);
    push(&mut steps, Step::Binary(BinaryOp::Mul, x, 1));
    Some(Expression::new(steps))
}

/// A step at the end of others.
pub(super) fn push(steps: &mut Vec<Step>, step: Step) -> StepId {
    steps.push(step);
    steps.len() as StepId - 1
}

/// `x` plus or minus a zero point, which is known or an operand.
fn shifted(
    steps: &mut Vec<Step>,
    wide: DType,
    op: BinaryOp,
    x: StepId,
    operand: StepId,
    zero: Option<f64>,
) -> StepId {
    let zero = match zero {
        Some(0.0) => return x,
        Some(zero) => push(steps, Step::Constant(Scalar::Float(zero), wide)),
        None => push(steps, Step::Cast(wide, operand)),
    };
    push(steps, Step::Binary(op, x, zero))
}

/// Checks a scale and a zero point of one number each.
fn check_numbers(cx: &Infer<'_>) -> RuleResult<DType> {
    let zero = of_rank(cx, 2, "zero", 1)?;
    need_int("zero", zero)?;
    if let Some(scale) = cx.optional(1) {
        need_float("scale", of_rank(cx, 1, "scale", 1)?)?;
        need_equal("a scale", &scale.dims[0], scale, &Dim::constant(1), zero)?;
    }
    need_equal("a zero point", &zero.dims[0], zero, &Dim::constant(1), zero)?;
    Ok(zero.dtype)
}

/// The zero point, where the graph has it.
fn known_zero(cx: &Site<'_>) -> Option<f64> {
    let constant = cx.input(2).and_then(|zero| cx.graph.constant(zero))?;
    Elements::load(&constant.data).floats().first().copied()
}

/// A loop over the operands that are there.
fn loops_of(cx: &Site<'_>, expression: Expression) -> Option<Loops> {
    let shape = cx.result_shape()?;
    let there = (0..3).filter(|&n| cx.input(n).is_some() && (n < 2 || known_zero(cx).is_none()));
    let operands = there.map(|n| Some((n, Strided::new(&cx.shape(n)?).expand(&shape)?)));
    let operands = operands.collect::<Option<_>>()?;
    Some(Loops::Elementwise(vec![ElementLoop { result: Strided::new(&shape), operands, expression }]))
}

/// A quantizer that holds scale and zero point, called by a method.
fn quantizer(cx: &Site<'_>, dtype: DType, method: &'static str, function: Arg) -> Implementation {
    if !cx.is_constant(2) || (cx.input(1).is_some() && !cx.is_constant(1)) {
        return Implementation::Call(function);
    }
    let scaled = cx.input(1).is_some();
    let config = Config::new(&layers::QUANTIZER, []).with("scale", Arg::Bool(scaled), scaled);
    let config = config.with("dtype", Arg::DType(dtype), dtype == DType::U8);
    let layer = Layer::new(config, [cx.input(1), cx.input(2)], function);
    Implementation::Layer(layer.called(method, vec![Arg::Operand(0)]))
}

impl Operation for Quantize {
    facts!(operands: ["x", "scale?", "zero"], parameters: [1, 2], effect: Pure, folding: PerElement(4), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 1)?;
        need_float("x", x)?;
        Ok(vec![TensorType { dtype: check_numbers(cx)?, dims: x.dims.clone() }])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let scaled = operands.get(1).is_some();
        let there: Vec<_> = operands.operands.iter().copied().filter(Option::is_some).collect();
        quantizing([operands.get(0)?.dtype, operands.get(2)?.dtype], scaled, None)?
            .evaluate(&Known { operands: &there })
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        loops_of(cx, quantizing([cx.dtype(0), cx.dtype(2)], cx.input(1).is_some(), known_zero(cx))?)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let args = [Arg::Operand(0), cx.option(1), named(cx, 2, "zero_point"), Arg::DType(cx.dtype(2))];
        quantizer(cx, cx.dtype(2), "quantize", Arg::call("tensor::module::quantize", args))
    }
}

impl Operation for Dequantize {
    facts!(operands: ["x", "scale", "zero"], parameters: [1, 2], effect: Pure, folding: PerElement(2), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 1)?;
        need_int("x", x)?;
        check_numbers(cx)?;
        Ok(vec![TensorType { dtype: cx.ty(1)?.dtype, dims: x.dims.clone() }])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        dequantizing(operands.get(1)?.dtype, None).evaluate(operands)
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        loops_of(cx, dequantizing(cx.dtype(1), known_zero(cx)))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let args = [Arg::Operand(0), named(cx, 1, "scale"), named(cx, 2, "zero_point")];
        quantizer(cx, cx.dtype(2), "dequantize", Arg::call("tensor::module::dequantize", args))
    }
}

impl Operation for FakeQuantize {
    facts!(operands: ["x", "scale", "zero"], parameters: [1, 2], effect: Pure, folding: PerElement(5), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 1)?;
        need_float("x", x)?;
        check_numbers(cx)?;
        Ok(vec![TensorType { dtype: cx.ty(1)?.dtype, dims: x.dims.clone() }])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        fake_quantizing([operands.get(0)?.dtype, operands.get(2)?.dtype], None)?.evaluate(operands)
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        loops_of(cx, fake_quantizing([cx.dtype(0), cx.dtype(2)], known_zero(cx))?)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let args =
            [Arg::Operand(0), named(cx, 1, "scale"), named(cx, 2, "zero_point"), Arg::DType(cx.dtype(2))];
        quantizer(cx, cx.dtype(2), "fake_quantize", Arg::call("tensor::module::fake_quantize", args))
    }
}

impl Operation for QuantizeDynamic {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(4), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 1)?;
        need_float("x", x)?;
        let of = |dtype, dims| TensorType { dtype, dims };
        Ok(vec![of(DType::U8, x.dims.clone()), of(x.dtype, Vec::new()), of(DType::U8, Vec::new())])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let x = operands.get(0)?;
        let values: Vec<f32> = Elements::load(x).floats().iter().map(|&x| x as f32).collect();
        // What is no number stays none.
        let extreme = |better: fn(&f32, &f32) -> bool| {
            values.iter().copied().fold(0f32, |a, b| if a.is_nan() || better(&a, &b) { a } else { b })
        };
        let (low, high) = (extreme(f32::le), extreme(f32::ge));
        let scale = (high - low) / 255.0;
        let byte = |x: f32| f64::from(x.clamp(0.0, 255.0) as u8);
        let zero = byte((-low / scale).round_ties_even());
        let bytes = values.iter().map(|x| byte((x / scale).round_ties_even() + zero as f32)).collect();
        Some(vec![
            Elements::Float(bytes).store(DType::U8, x.shape.clone()),
            Elements::Float(vec![f64::from(scale)]).store(x.dtype, Vec::new()),
            Elements::Float(vec![zero]).store(DType::U8, Vec::new()),
        ])
    }

    fn loops(&self, _: &Site<'_>) -> Option<Loops> {
        Some(Loops::kernel("quantize_dynamic", [KernelArg::Operand(0)]))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(Arg::call("tensor::module::quantize_dynamic", [Arg::Operand(0)]))
    }
}

impl Operation for MatMulInteger {
    facts!(operands: ["a", "b", "a_zero?", "b_zero?"], effect: Pure, folding: Products, result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let a = at_least_rank(cx, 0, "a", 2)?;
        let b = of_rank(cx, 1, "b", a.rank())?;
        need_int("a", a)?;
        need_int("b", b)?;
        let lead = a.rank() - 2;
        check_zero(cx, 2, "a_zero", a, |axis| axis != lead + 1)?;
        check_zero(cx, 3, "b_zero", b, |axis| axis != lead)?;
        let dims = matmul_dims(cx, a, b)?;
        Ok(vec![TensorType { dtype: DType::I32, dims }])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let sides = [centered(operands, 0, 2)?, centered(operands, 1, 3)?];
        super::MatMul.evaluate(&Known { operands: &sides.each_ref().map(Some) })
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        // A zero point is one number, or one for each column of the right side.
        let columns = *cx.shape(1)?.last()?;
        let is_one = |n| cx.shape(n).is_none_or(|shape| elements(&shape) == 1);
        if !is_one(2) || !cx.shape(3).is_none_or(|shape| [1, columns].contains(&elements(&shape))) {
            return None;
        }
        let sizes = product_sizes(cx)?;
        let operands =
            [KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Optional(2), KernelArg::Optional(3)];
        let [a, b, a_zero, b_zero] = operands;
        Some(Loops::kernel("matmul_integer", [a, b, a_zero, b_zero, sizes]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let args = sides(cx).to_vec();
        Implementation::Call(Arg::call("tensor::module::matmul_integer", args))
    }
}

impl Operation for ConvInteger {
    facts!(operands: ["x", "weight", "x_zero?", "weight_zero?"], effect: Pure, folding: Never, result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let (x, dims) = (cx.ty(0)?, conv_dims(cx, 1, &self.options)?);
        let weight = cx.ty(1)?;
        need_int("x", x)?;
        need_int("weight", weight)?;
        check_zero(cx, 2, "x_zero", x, |_| false)?;
        check_zero(cx, 3, "weight_zero", weight, |axis| axis == 0)?;
        Ok(vec![TensorType { dtype: DType::I32, dims }])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let sides = [centered(operands, 0, 2)?, centered(operands, 1, 3)?];
        let conv = Conv { options: self.options.clone(), activation: None };
        conv.evaluate(&Known { operands: &sides.each_ref().map(Some) })
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let sizes = conv_sizes(&self.options, cx, 1)?;
        let channels = *cx.shape(1)?.first()?;
        let is_one = |n| cx.shape(n).is_none_or(|shape| elements(&shape) == 1);
        if !is_one(2) || !cx.shape(3).is_none_or(|shape| [1, channels].contains(&elements(&shape))) {
            return None;
        }
        let operands =
            [KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Optional(2), KernelArg::Optional(3)];
        let [x, weight, x_zero, weight_zero] = operands;
        Some(Loops::kernel("conv2d_integer", [x, weight, x_zero, weight_zero, sizes]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let mut args = sides(cx).to_vec();
        args.push(Arg::options(&self.options));
        Implementation::Call(Arg::call("tensor::module::conv_integer", args))
    }
}

/// Checks that a zero point is one integer, or one along each axis that may have several.
fn check_zero(
    cx: &Infer<'_>,
    n: usize,
    name: &str,
    of: &TensorType,
    may_vary: impl Fn(usize) -> bool,
) -> RuleResult<()> {
    let Some(zero) = cx.optional(n) else { return Ok(()) };
    need_int(name, zero)?;
    if zero.rank() == 0 {
        return Ok(());
    }
    of_rank(cx, n, name, of.rank())?;
    broadcasts_to(zero, &of.dims)?;
    let fits = |(axis, dim): (usize, &Dim)| may_vary(axis) || may_equal(dim, &Dim::constant(1));
    match zero.dims.iter().enumerate().all(fits) {
        true => Ok(()),
        false => Err(dims_error("zero point of a product", zero, of)),
    }
}

/// An operand less its zero point, in 32 bits.
fn centered(operands: &Known<'_>, n: usize, zero: usize) -> Option<TensorData> {
    let wide = |data: &TensorData| Elements::load(data).store(DType::I32, data.shape.clone());
    let x = wide(operands.get(n)?);
    match operands.get(zero) {
        Some(zero) => binary(BinaryOp::Sub, &x, &wide(zero)),
        None => Some(x),
    }
}

/// Both sides, each with its zero point behind it.
fn sides(cx: &Site<'_>) -> [Arg; 4] {
    let zero = |n: usize| match cx.input(n) {
        None => Arg::Int(0),
        Some(_) => cx.scalar(n, 0).unwrap_or(named(cx, n, "weight_zero")),
    };
    [Arg::Operand(0), zero(2), named(cx, 1, "weight"), zero(3)]
}

/// An operand, which has a name where it is a constant.
pub(super) fn named(cx: &Site<'_>, n: usize, name: &'static str) -> Arg {
    if cx.is_constant(n) { Arg::role(name, Arg::Operand(n)) } else { Arg::Operand(n) }
}
