//! Products of quantized integers: sums of `(a - a_zero) (b - b_zero)` in 32 bits.

use super::activation::activate;
use super::binary::binary;
use super::broadcast::broadcasts_to;
use super::convolution::{Conv, conv_dims, conv_sizes};
use super::linear::{matmul_dims, product_sizes};
use super::prelude::*;
use kiln_types::{Activation, BinaryOp, ConvOptions, DType, Expression, Scalar, Step, StepId, UnaryOp};

/// A product of matrices of integers, the last two axes of operands of equal rank. A zero point is a number, or has its operand's rank
/// and one entry along the axis that is summed over.
pub struct QuantizedMatMul;

attributes! {
    /// A convolution of integers. The border is what zero points stand for; that of the weight is a number, or one for each of its
    /// first axis.
    pub struct QuantizedConv {
        /// Where the kernel goes.
        pub options: ConvOptions,
    }
}

/// Bytes that stand for floats, with the scale and the zero point of their range, 0 included: `(byte - zero) · scale`.
pub struct QuantizeDynamic;

attributes! {
    /// A linear layer of integers: the sums of `(x - x_zero) (weight - weight_zero)`, times scales, plus a bias and a residual. `weight` is a
    /// constant `[in, out]`; its zero point and its scale are one number, or one for each output. `x_scale` is a factor of the scale.
    /// Where `x` is floats, they are quantized by their range first, as [`QuantizeDynamic`] does.
    pub struct QuantizedLinear {
        /// Applied to the result, after the residual.
        pub activation: Option<Activation>,
    }
}

/// Where the operands of a [`QuantizedLinear`] stand.
impl QuantizedLinear {
    const X_ZERO: usize = 1;
    const X_SCALE: usize = 2;
    const WEIGHT: usize = 3;
    const WEIGHT_ZERO: usize = 4;
    const SCALE: usize = 5;
    /// The bias.
    pub(crate) const BIAS: usize = 6;
    /// The residual.
    pub(crate) const RESIDUAL: usize = 7;
}

/// Integers that stand for floats, `round(x / scale) + zero`, as far as the zero point's dtype has them. Without a scale `x` is in steps.
pub struct Quantize;

/// The floats that integers stand for, `(x - zero) · scale`.
pub struct Dequantize;

/// The steps of [`Quantize`] over its operands that are there; a zero point that is known is no operand.
fn quantizing(dtype: DType, scaled: bool, zero: Option<f64>) -> Option<Expression> {
    let (least, greatest) = dtype.integers()?;
    let bounds = Activation::Clamp { min: least as f64, max: greatest as f64 };
    let operands = 1 + u16::from(scaled) + u16::from(zero.is_none());
    let mut steps: Vec<Step> = (0..operands).map(Step::Input).collect();
    let last = operands - 1;
    let x = if scaled { push(&mut steps, Step::Binary(BinaryOp::Div, 0, 1)) } else { 0 };
    let x = push(&mut steps, Step::Unary(UnaryOp::Round, x));
    let x = shifted(&mut steps, BinaryOp::Add, x, last, zero);
    let x = push(&mut steps, Step::Activation(bounds, x));
    push(&mut steps, Step::Cast(dtype, x));
    Some(Expression::new(steps))
}

/// The steps of [`Dequantize`], likewise.
fn dequantizing(zero: Option<f64>) -> Expression {
    let operands = 2 + u16::from(zero.is_none());
    let mut steps: Vec<Step> = (0..operands).map(Step::Input).collect();
    let x = push(&mut steps, Step::Cast(DType::F32, 0));
    let x = shifted(&mut steps, BinaryOp::Sub, x, operands - 1, zero);
    push(&mut steps, Step::Binary(BinaryOp::Mul, x, 1));
    Expression::new(steps)
}

/// A step at the end of others.
fn push(steps: &mut Vec<Step>, step: Step) -> StepId {
    steps.push(step);
    steps.len() as StepId - 1
}

/// `x` plus or minus a zero point, which is known or an operand.
fn shifted(steps: &mut Vec<Step>, op: BinaryOp, x: StepId, operand: StepId, zero: Option<f64>) -> StepId {
    let zero = match zero {
        Some(0.0) => return x,
        Some(zero) => push(steps, Step::Constant(Scalar::Float(zero), DType::F32)),
        None => push(steps, Step::Cast(DType::F32, operand)),
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
    Some(Loops::Passes(vec![Pass { result: Strided::new(&shape), operands, expression }]))
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
    facts!(operands: ["x", "scale?", "zero"], parameters: [1, 2], effect: Pure, folding: Passes(4), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 1)?;
        need_float("x", x)?;
        Ok(vec![TensorType { dtype: check_numbers(cx)?, dims: x.dims.clone() }])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let scaled = operands.get(1).is_some();
        let there: Vec<_> = operands.operands.iter().copied().filter(Option::is_some).collect();
        quantizing(operands.get(2)?.dtype, scaled, None)?.evaluate(&Known { operands: &there })
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        loops_of(cx, quantizing(cx.dtype(2), cx.input(1).is_some(), known_zero(cx))?)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let args = [Arg::Operand(0), cx.option(1), named(cx, 2, "zero_point")];
        quantizer(cx, cx.dtype(2), "quantize", Arg::call("tensor::module::quantize", args))
    }
}

impl Operation for Dequantize {
    facts!(operands: ["x", "scale", "zero"], parameters: [1, 2], effect: Pure, folding: Passes(2), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 1)?;
        need_int("x", x)?;
        check_numbers(cx)?;
        Ok(vec![TensorType { dtype: cx.ty(1)?.dtype, dims: x.dims.clone() }])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        dequantizing(None).evaluate(operands)
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        loops_of(cx, dequantizing(known_zero(cx)))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let args = [Arg::Operand(0), named(cx, 1, "scale"), named(cx, 2, "zero_point")];
        quantizer(cx, cx.dtype(2), "dequantize", Arg::call("tensor::module::dequantize", args))
    }
}

impl Operation for QuantizeDynamic {
    facts!(operands: ["x"], effect: Pure, folding: Passes(4), result: Computed);
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
        let fold = |better: fn(&f32, &f32) -> bool| {
            values.iter().copied().fold(0f32, |a, b| if a.is_nan() || better(&a, &b) { a } else { b })
        };
        let (low, high) = (fold(f32::le), fold(f32::ge));
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

impl Operation for QuantizedLinear {
    facts!(
        operands: ["x", "x_zero?", "x_scale?", "weight", "weight_zero?", "scale", "bias?", "residual?"],
        parameters: [1, 3, 4, 5, 6], effect: Pure, folding: Never, result: Computed
    );
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 2)?;
        let weight = of_rank(cx, Self::WEIGHT, "weight", 2)?;
        let scale = of_rank(cx, Self::SCALE, "scale", 1)?;
        let told = cx.optional(Self::X_ZERO).is_some() || cx.optional(Self::X_SCALE).is_some();
        if told || !x.dtype.is_float() {
            need_int("x", x)?;
        }
        need_int("weight", weight)?;
        need_float("scale", scale)?;
        let last = x.rank() - 1;
        need_equal("inner dims of a linear layer", &x.dims[last], x, &weight.dims[0], weight)?;
        let outputs = &weight.dims[1];
        let parameters = [(Self::SCALE, "scale"), (Self::WEIGHT_ZERO, "weight_zero"), (Self::BIAS, "bias")];
        for (n, name) in parameters {
            let Some(parameter) = cx.optional(n) else { continue };
            of_rank(cx, n, name, 1)?;
            if n == Self::BIAS || !may_equal(&parameter.dims[0], &Dim::constant(1)) {
                need_equal(name, &parameter.dims[0], parameter, outputs, weight)?;
            }
        }
        for (n, name) in [(Self::X_ZERO, "x_zero"), (Self::X_SCALE, "x_scale")] {
            let Some(number) = cx.optional(n) else { continue };
            if number.num_elements() != Dim::constant(1) {
                return Err(dims_error(name, number, x));
            }
        }
        let mut dims = x.dims.clone();
        dims[last] = outputs.clone();
        let result = TensorType { dtype: scale.dtype, dims };
        if let Some(residual) = cx.optional(Self::RESIDUAL) {
            same_dtype("residual", residual, "scale", scale)?;
            broadcasts_to(residual, &result.dims)?;
        }
        Ok(vec![result])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, weight) = (operands.get(0)?, operands.get(Self::WEIGHT)?);
        if x.dtype.is_float() {
            let [bytes, scale, zero] = QuantizeDynamic.evaluate(operands)?.try_into().ok()?;
            let rest = operands.operands.get(Self::WEIGHT..)?.iter().copied();
            let operands: Vec<_> = [&bytes, &zero, &scale].into_iter().map(Some).chain(rest).collect();
            return self.evaluate(&Known { operands: &operands });
        }
        let &[inputs, outputs] = weight.shape.as_slice() else { return None };
        let (_, lead) = x.shape.split_last()?;
        let number = |n: usize| operands.get(n).map(|data| Elements::load(data).floats());
        let first = |n: usize| number(n).and_then(|numbers| numbers.first().copied());
        let (xs, weights) = (number(0)?, number(Self::WEIGHT)?);
        let (x_zero, zeros) = (first(Self::X_ZERO).unwrap_or(0.0), number(Self::WEIGHT_ZERO));
        let (x_scale, scales) = (first(Self::X_SCALE), number(Self::SCALE)?);
        let (bias, residual) = (number(Self::BIAS), number(Self::RESIDUAL));
        let of = |numbers: &[f64], column: usize| numbers.get(column % numbers.len().max(1)).copied();
        let mut out = Vec::new();
        for (row, x) in xs.chunks_exact(inputs.max(1)).enumerate() {
            for column in 0..outputs {
                let zero = zeros.as_ref().map_or(Some(0.0), |zeros| of(zeros, column))?;
                let terms =
                    x.iter().enumerate().map(|(k, x)| (x - x_zero) * (weights[k * outputs + column] - zero));
                let sum: f64 = terms.sum();
                let scale = of(&scales, column)? as f32;
                let scale = x_scale.map_or(scale, |factor| factor as f32 * scale);
                let mut y = sum as f32 * scale;
                if let Some(bias) = &bias {
                    y += of(bias, column)? as f32;
                }
                if let Some(residual) = &residual {
                    y += *residual.get(row * outputs + column)? as f32;
                }
                let y = f64::from(y);
                out.push(self.activation.map_or(y, |activation| activate(activation, y)));
            }
        }
        let dtype = operands.get(Self::SCALE)?.dtype;
        Some(vec![Elements::Float(out).store(dtype, [lead, &[outputs]].concat())])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let inputs = *cx.shape(Self::WEIGHT)?.first()?;
        let floats = cx.dtype(0).is_float();
        let mut args = vec![KernelArg::Operand(0), KernelArg::Operand(Self::WEIGHT)];
        if !floats {
            args.extend([Self::X_ZERO, Self::X_SCALE].map(KernelArg::Optional));
        }
        args.extend([KernelArg::Optional(Self::WEIGHT_ZERO), KernelArg::Operand(Self::SCALE)]);
        args.extend([Self::BIAS, Self::RESIDUAL].map(KernelArg::Optional));
        args.extend([KernelArg::Size(inputs), KernelArg::Function(self.activation)]);
        if floats {
            args.push(KernelArg::Scratch(elements(&cx.shape(0)?)));
        }
        Some(Loops::kernel(if floats { "quantized_linear_of_floats" } else { "quantized_linear" }, args))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let zero_is_given = cx.is_constant(Self::X_ZERO);
        let input = |held: bool| {
            let part = |n: usize, role: &'static str| Arg::role(role, Arg::Operand(n));
            let mut parts = vec![part(0, "quantized")];
            parts.extend(cx.input(Self::X_SCALE).map(|_| part(Self::X_SCALE, "scale")));
            parts.extend(cx.input(Self::X_ZERO).filter(|_| !held).map(|_| part(Self::X_ZERO, "zero_point")));
            if parts.len() == 1 { Arg::Operand(0) } else { Arg::Tuple(parts) }
        };
        let activation = Arg::option(self.activation.map(|activation| Arg::options(&activation)));
        let weight = Arg::fields(
            "tensor::module::QuantizedWeight",
            [
                ("weight", Arg::role("weight", Arg::Operand(Self::WEIGHT))),
                ("zero_point", cx.option(Self::WEIGHT_ZERO)),
                ("scale", Arg::role("scale", Arg::Operand(Self::SCALE))),
                ("bias", cx.option(Self::BIAS)),
            ],
        );
        let args = [input(false), weight, cx.option(Self::RESIDUAL), activation.clone()];
        let function = Arg::call("tensor::module::quantized_linear", args);
        let parameters = [Self::WEIGHT, Self::WEIGHT_ZERO, Self::SCALE, Self::BIAS];
        let shape = cx.shape(Self::WEIGHT);
        let (Some(&[inputs, outputs]), true) =
            (shape.as_deref(), parameters.iter().all(|&n| cx.input(n).is_none() || cx.is_constant(n)))
        else {
            return Implementation::Call(function);
        };
        let flag = |config: Config, name, set: bool, default: bool| {
            config.with(name, Arg::Bool(set), set == default)
        };
        let sizes = [Arg::named("d_input", inputs), Arg::named("d_output", outputs)];
        let config = Config::new(&layers::QUANTIZED_LINEAR, sizes);
        let config = flag(config, "bias", cx.input(Self::BIAS).is_some(), true);
        let config = flag(config, "unsigned", cx.dtype(Self::WEIGHT) == DType::U8, false);
        let channels = cx.shape(Self::SCALE).is_some_and(|scale| scale != [1]);
        let config = flag(config, "per_channel", channels, false);
        let mut config = flag(config, "weight_zero_point", cx.input(Self::WEIGHT_ZERO).is_some(), false);
        if zero_is_given {
            let dtype = Arg::Some(Box::new(Arg::DType(cx.dtype(Self::X_ZERO))));
            config = config.with("input_zero_point", dtype, false);
        }
        let mut args = vec![input(zero_is_given)];
        let method = match (cx.input(Self::RESIDUAL), self.activation) {
            (Some(_), _) => {
                args.extend([Arg::Operand(Self::RESIDUAL), activation]);
                "forward_added"
            }
            (None, Some(activation)) => {
                args.push(Arg::options(&activation));
                "forward_activated"
            }
            (None, None) => "forward",
        };
        let held = parameters.map(|n| cx.input(n));
        let [weight, weight_zero, scale, bias] = held;
        let zero = cx.input(Self::X_ZERO).filter(|_| zero_is_given);
        let layer = Layer::new(config, [weight, weight_zero, scale, bias, zero], function);
        Implementation::Layer(layer.called(method, args))
    }
}

impl Operation for QuantizedMatMul {
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
        Some(Loops::kernel("quantized_matmul", [a, b, a_zero, b_zero, sizes]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let args = sides(cx).to_vec();
        Implementation::Call(Arg::call("tensor::module::quantized_matmul", args))
    }
}

impl Operation for QuantizedConv {
    facts!(operands: ["x", "weight", "x_zero?", "weight_zero?"], effect: Pure, folding: Never, result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let (x, dims) = (cx.ty(0)?, conv_dims(cx, &self.options)?);
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
        let sizes = conv_sizes(&self.options, cx)?;
        let channels = *cx.shape(1)?.first()?;
        let is_one = |n| cx.shape(n).is_none_or(|shape| elements(&shape) == 1);
        if !is_one(2) || !cx.shape(3).is_none_or(|shape| [1, channels].contains(&elements(&shape))) {
            return None;
        }
        let operands =
            [KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Optional(2), KernelArg::Optional(3)];
        let [x, weight, x_zero, weight_zero] = operands;
        Some(Loops::kernel("quantized_conv2d", [x, weight, x_zero, weight_zero, sizes]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let mut args = sides(cx).to_vec();
        args.push(Arg::options(&self.options));
        Implementation::Call(Arg::call("tensor::module::quantized_conv", args))
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
fn named(cx: &Site<'_>, n: usize, name: &'static str) -> Arg {
    if cx.is_constant(n) { Arg::role(name, Arg::Operand(n)) } else { Arg::Operand(n) }
}
