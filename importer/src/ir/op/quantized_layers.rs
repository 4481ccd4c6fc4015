//! Layers of quantized integers, which stand for numbers under scales: what becomes of the sums is a part of the layer.

use super::activation::activate;
use super::broadcast::{broadcast, broadcasts_to};
use super::convolution::{conv_dims, conv_sizes, weight_at, windowed_config};
use super::prelude::*;
use super::quantized::{QuantizeDynamic, named, push};
use super::{ConvInteger, MatMulInteger};
use kiln_types::{Activation, BinaryOp, ConvOptions, DType, Expression, Step, UnaryOp};

attributes! {
    /// A linear layer of integers: the sums of `(x - x_zero) (weight - weight_zero)`, times scales, plus a bias and a residual. `weight` is a
    /// constant `[in, out]`; its zero point and its scale are one number, or one for each output. `x_scale` is a factor of the scale.
    /// Where `x` is floats, they are quantized by their range first, as [`QuantizeDynamic`] does. `integer_bias` is added to the sums. With an
    /// `output_zero` the result is `round(y) + output_zero`, as far as its dtype has that.
    pub struct QuantizedLinear {
        /// Applied to the result, after the residual.
        pub activation: Option<Activation>,
    }
}

attributes! {
    /// A convolution of integers, as [`QuantizedLinear`] is a product: `weight` is a constant `[out, in / groups, kernel…]`.
    pub struct QuantizedConv {
        /// Where the kernel goes.
        pub options: ConvOptions,
        /// Applied to the result, after the residual.
        pub activation: Option<Activation>,
    }
}

/// The sum of what integers of one dtype stand for, `round(lhs · lhs_scale + (rhs · rhs_scale + offset))`.
pub struct QuantizedAdd;

/// The product of what integers of one dtype stand for, `round((lhs - lhs_zero) · (rhs - rhs_zero) · scale + zero)`.
pub struct QuantizedMul;

/// Where the operands of a layer of integers stand, behind its input.
pub(crate) struct LayerOperands;

impl LayerOperands {
    /// The input's zero point.
    pub(crate) const X_ZERO: usize = 1;
    /// A factor of the scale.
    pub(crate) const X_SCALE: usize = 2;
    /// The weight.
    pub(crate) const WEIGHT: usize = 3;
    /// The weight's zero point.
    pub(crate) const WEIGHT_ZERO: usize = 4;
    /// What sums are multiplied by.
    pub(crate) const SCALE: usize = 5;
    /// The bias.
    pub(crate) const BIAS: usize = 6;
    /// The residual.
    pub(crate) const RESIDUAL: usize = 7;
    /// What is added to the sums.
    pub(crate) const INTEGER_BIAS: usize = 8;
    /// The output's zero point.
    pub(crate) const OUTPUT_ZERO: usize = 9;
}

use LayerOperands as At;

/// What is held by a layer, in the order of its fields.
const HELD: [usize; 7] =
    [At::WEIGHT, At::WEIGHT_ZERO, At::SCALE, At::BIAS, At::X_ZERO, At::INTEGER_BIAS, At::OUTPUT_ZERO];

/// Checks what stands behind the input, and yields the result's type.
fn infer_layer(
    cx: &Infer<'_>,
    dims: Vec<Dim>,
    outputs: &Dim,
    activation: Option<Activation>,
) -> RuleResult<TensorType> {
    let (x, weight) = (cx.ty(0)?, cx.ty(At::WEIGHT)?);
    let scale = of_rank(cx, At::SCALE, "scale", 1)?;
    let told = cx.optional(At::X_ZERO).is_some() || cx.optional(At::X_SCALE).is_some();
    if told || !x.dtype.is_float() {
        need_int("x", x)?;
    }
    need_int("weight", weight)?;
    need_float("scale", scale)?;
    let parameters = [
        (At::SCALE, "scale", true),
        (At::WEIGHT_ZERO, "weight_zero", true),
        (At::BIAS, "bias", false),
        (At::INTEGER_BIAS, "integer_bias", false),
    ];
    for (n, name, may_be_one) in parameters {
        let Some(parameter) = cx.optional(n) else { continue };
        of_rank(cx, n, name, 1)?;
        if !may_be_one || !may_equal(&parameter.dims[0], &Dim::constant(1)) {
            need_equal(name, &parameter.dims[0], parameter, outputs, weight)?;
        }
    }
    for (n, name) in [(At::X_ZERO, "x_zero"), (At::X_SCALE, "x_scale"), (At::OUTPUT_ZERO, "output_zero")] {
        let Some(number) = cx.optional(n) else { continue };
        if number.num_elements() != Dim::constant(1) {
            return Err(dims_error(name, number, x));
        }
    }
    let result = TensorType { dtype: scale.dtype, dims };
    if let Some(residual) = cx.optional(At::RESIDUAL) {
        same_dtype("residual", residual, "scale", scale)?;
        broadcasts_to(residual, &result.dims)?;
    }
    if let Some(bias) = cx.optional(At::INTEGER_BIAS) {
        need_int("integer_bias", bias)?;
    }
    match cx.optional(At::OUTPUT_ZERO) {
        None => Ok(result),
        Some(zero) => {
            need_int("output_zero", zero)?;
            let homogeneous = activation.is_none_or(|activation| activation == Activation::Relu);
            if !homogeneous || cx.optional(At::RESIDUAL).is_some() {
                return Err(dims_error("layer that yields integers", zero, x));
            }
            Ok(TensorType { dtype: zero.dtype, dims: result.dims })
        }
    }
}

/// What a layer makes of its sums, `[…, outputs, places]`, where so many places share an output's numbers.
fn finished(
    operands: &Known<'_>,
    activation: Option<Activation>,
    sums: &TensorData,
    places: usize,
) -> Option<TensorData> {
    let number = |n: usize| operands.get(n).map(|data| Elements::load(data).floats());
    let first = |n: usize| number(n).and_then(|numbers| numbers.first().copied());
    let (scales, x_scale) = (number(At::SCALE)?, first(At::X_SCALE));
    let (bias, residual, integer_bias) = (number(At::BIAS), number(At::RESIDUAL), number(At::INTEGER_BIAS));
    let to = operands.get(At::OUTPUT_ZERO);
    let zero = first(At::OUTPUT_ZERO).unwrap_or(0.0);
    let bounds =
        to.and_then(|zero| zero.dtype.integers()).map(|(least, greatest)| (least as f64, greatest as f64));
    let mut out = Vec::with_capacity(sums.num_elements());
    for (at, &sum) in Elements::load(sums).floats().iter().enumerate() {
        let channel = at / places.max(1);
        let of = |numbers: &[f64]| numbers.get(channel % numbers.len().max(1)).copied();
        let mut sum = sum;
        if let Some(bias) = &integer_bias {
            sum = f64::from((sum as i64).wrapping_add(of(bias)? as i64) as i32);
        }
        let scale = of(&scales)? as f32;
        let scale = x_scale.map_or(scale, |factor| factor as f32 * scale);
        let mut y = sum as f32 * scale;
        if let Some(bias) = &bias {
            y += of(bias)? as f32;
        }
        if let Some(residual) = &residual {
            y += *residual.get(at)? as f32;
        }
        let y = f64::from(y);
        let y = activation.map_or(y, |activation| activate(activation, y));
        out.push(match bounds {
            Some((least, greatest)) => (y.round_ties_even() + zero).clamp(least, greatest),
            None => y,
        });
    }
    let dtype = to.unwrap_or(operands.get(At::SCALE)?).dtype;
    Some(Elements::Float(out).store(dtype, sums.shape.clone()))
}

/// The integers, the scale and the zero point of an input of floats, by their range.
fn quantized_input(operands: &Known<'_>) -> Option<[TensorData; 3]> {
    QuantizeDynamic.evaluate(operands)?.try_into().ok()
}

/// Operands whose input is integers.
fn with_integers<'d>(
    operands: &Known<'d>,
    [bytes, scale, zero]: &'d [TensorData; 3],
) -> Vec<Option<&'d TensorData>> {
    let rest = operands.operands.get(At::WEIGHT..).unwrap_or_default().iter().copied();
    [bytes, zero, scale].into_iter().map(Some).chain(rest).collect()
}

/// The operands of a kernel behind its input and its weight, but for sizes and what comes last.
fn kernel_operands(floats: bool) -> Vec<KernelArg> {
    let mut args = vec![KernelArg::Operand(0), KernelArg::Operand(At::WEIGHT)];
    if !floats {
        args.extend([At::X_ZERO, At::X_SCALE].map(KernelArg::Optional));
    }
    args.extend([KernelArg::Optional(At::WEIGHT_ZERO), KernelArg::Operand(At::SCALE)]);
    args.extend([At::BIAS, At::INTEGER_BIAS].map(KernelArg::Optional));
    args
}

/// The integers of the output's dtype, for a kernel that yields such as it takes.
fn kernel_bounds(cx: &Site<'_>) -> Option<Option<[KernelArg; 3]>> {
    if cx.input(At::OUTPUT_ZERO).is_none() {
        return Some(None);
    }
    let dtype = cx.dtype(At::OUTPUT_ZERO);
    let (least, greatest) = dtype.integers().filter(|_| cx.dtype(0) == dtype)?;
    let bounds = [least as f64, greatest as f64].map(KernelArg::Float);
    let [least, greatest] = bounds;
    Some(Some([KernelArg::Operand(At::OUTPUT_ZERO), least, greatest]))
}

/// How a layer of integers is called, and what it is where it holds no parameters.
struct Called<'s, 'g> {
    cx: &'s Site<'g>,
    activation: Option<Activation>,
    /// The functions for floats and for integers.
    functions: [&'static str; 2],
    /// What they are given last.
    last: Option<Arg>,
}

impl Called<'_, '_> {
    /// The input: alone, or with its scale and its zero point, unless the layer holds that.
    fn input(&self, held: bool) -> Arg {
        let cx = self.cx;
        let part = |n: usize, role: &'static str| Arg::role(role, Arg::Operand(n));
        let mut parts = vec![part(0, "quantized")];
        parts.extend(cx.input(At::X_SCALE).map(|_| part(At::X_SCALE, "scale")));
        parts.extend(cx.input(At::X_ZERO).filter(|_| !held).map(|_| part(At::X_ZERO, "zero_point")));
        if parts.len() == 1 { Arg::Operand(0) } else { Arg::Tuple(parts) }
    }

    fn activation(&self) -> Arg {
        Arg::option(self.activation.map(|activation| Arg::options(&activation)))
    }

    /// The call of a function.
    fn function(&self) -> Arg {
        let cx = self.cx;
        let weight = Arg::fields(
            "tensor::module::QuantizedWeight",
            [
                ("weight", Arg::role("weight", Arg::Operand(At::WEIGHT))),
                ("zero_point", cx.option(At::WEIGHT_ZERO)),
                ("scale", Arg::role("scale", Arg::Operand(At::SCALE))),
                ("bias", cx.option(At::BIAS)),
                ("integer_bias", cx.option(At::INTEGER_BIAS)),
            ],
        );
        let [floats, integers] = self.functions;
        let (name, mut args) = match cx.input(At::OUTPUT_ZERO) {
            None => (floats, vec![self.input(false), weight, cx.option(At::RESIDUAL), self.activation()]),
            Some(_) => {
                let zero = named(cx, At::OUTPUT_ZERO, "zero_point");
                let dtype = Arg::DType(cx.dtype(At::OUTPUT_ZERO));
                (integers, vec![self.input(false), weight, self.activation(), zero, dtype])
            }
        };
        args.extend(self.last.clone());
        Arg::call(name, args)
    }

    /// The method of a layer, with its arguments.
    fn method(&self, held: bool) -> (&'static str, Vec<Arg>) {
        let mut args = vec![self.input(held)];
        let quantized = self.cx.input(At::OUTPUT_ZERO).is_some();
        let name = match (self.cx.input(At::RESIDUAL), self.activation) {
            (Some(_), _) => {
                args.extend([Arg::Operand(At::RESIDUAL), self.activation()]);
                "forward_added"
            }
            (None, Some(activation)) => {
                args.push(Arg::options(&activation));
                if quantized { "forward_quantized_activated" } else { "forward_activated" }
            }
            (None, None) if quantized => "forward_quantized",
            (None, None) => "forward",
        };
        (name, args)
    }

    /// Whether everything that a layer holds is there when the model is compiled.
    fn is_layer(&self) -> bool {
        let held = [At::WEIGHT, At::WEIGHT_ZERO, At::SCALE, At::BIAS, At::INTEGER_BIAS, At::OUTPUT_ZERO];
        held.into_iter().all(|n| self.cx.input(n).is_none() || self.cx.is_constant(n))
    }

    /// The layer of a configuration.
    fn layer(&self, config: Config) -> Implementation {
        let cx = self.cx;
        let flag = |config: Config, name, set: bool, default: bool| {
            config.with(name, Arg::Bool(set), set == default)
        };
        let integer_bias = cx.input(At::INTEGER_BIAS).is_some();
        let config = flag(config, "bias", cx.input(At::BIAS).is_some() || integer_bias, true);
        let config = flag(config, "unsigned", cx.dtype(At::WEIGHT) == DType::U8, false);
        let channels = cx.shape(At::SCALE).is_some_and(|scale| scale != [1]);
        let config = flag(config, "per_channel", channels, false);
        let mut config = flag(config, "weight_zero_point", cx.input(At::WEIGHT_ZERO).is_some(), false);
        let held = cx.is_constant(At::X_ZERO);
        let dtype = |n: usize| Arg::Some(Box::new(Arg::DType(cx.dtype(n))));
        if held {
            config = config.with("input_zero_point", dtype(At::X_ZERO), false);
        }
        config = flag(config, "integer_bias", integer_bias, false);
        if cx.input(At::OUTPUT_ZERO).is_some() {
            config = config.with("output_zero_point", dtype(At::OUTPUT_ZERO), false);
        }
        let fields = HELD.map(|n| cx.input(n).filter(|_| n != At::X_ZERO || held));
        let (method, args) = self.method(held);
        Implementation::Layer(Layer::new(config, fields, self.function()).called(method, args))
    }
}

impl Operation for QuantizedLinear {
    facts!(
        operands: [
            "x", "x_zero?", "x_scale?", "weight", "weight_zero?", "scale", "bias?", "residual?", "integer_bias?", "output_zero?"
        ],
        parameters: [1, 3, 4, 5, 6, 8, 9], effect: Pure, folding: Never, result: Computed
    );
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 2)?;
        let weight = of_rank(cx, At::WEIGHT, "weight", 2)?;
        let last = x.rank() - 1;
        need_equal("inner dims of a linear layer", &x.dims[last], x, &weight.dims[0], weight)?;
        let outputs = &weight.dims[1];
        let mut dims = x.dims.clone();
        dims[last] = outputs.clone();
        Ok(vec![infer_layer(cx, dims, outputs, self.activation)?])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, weight) = (operands.get(0)?, operands.get(At::WEIGHT)?);
        if x.dtype.is_float() {
            let input = quantized_input(operands)?;
            return self.evaluate(&Known { operands: &with_integers(operands, &input) });
        }
        let rank = x.shape.len();
        let spread = |data: &TensorData, axis: usize| {
            let mut shape = vec![1; rank];
            *shape.get_mut(axis)? = data.num_elements();
            Some(TensorData { shape, ..data.clone() })
        };
        let weight = {
            let mut shape = vec![1; rank.checked_sub(2)?];
            shape.extend(&weight.shape);
            TensorData { shape, ..weight.clone() }
        };
        let zeros = match operands.get(At::WEIGHT_ZERO) {
            Some(zeros) => Some(spread(zeros, rank - 1)?),
            None => None,
        };
        let x_zero = match operands.get(At::X_ZERO) {
            Some(zero) => Some(spread(zero, rank - 1)?),
            None => None,
        };
        let sides = [Some(x), Some(&weight), x_zero.as_ref(), zeros.as_ref()];
        let [sums] = <[_; 1]>::try_from(MatMulInteger.evaluate(&Known { operands: &sides })?).ok()?;
        Some(vec![finished(operands, self.activation, &sums, 1)?])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let inputs = *cx.shape(At::WEIGHT)?.first()?;
        let floats = cx.dtype(0).is_float();
        let mut args = kernel_operands(floats);
        let bounds = kernel_bounds(cx)?;
        if bounds.is_none() {
            args.push(KernelArg::Optional(At::RESIDUAL));
        }
        args.extend([KernelArg::Size(inputs), KernelArg::Function(self.activation)]);
        match bounds {
            Some(bounds) => {
                args.extend(bounds);
                Some(Loops::kernel("requantized_linear", args))
            }
            None if floats => {
                args.push(KernelArg::Scratch(elements(&cx.shape(0)?)));
                Some(Loops::kernel("quantized_linear_of_floats", args))
            }
            None => Some(Loops::kernel("quantized_linear", args)),
        }
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let functions = ["tensor::module::quantized_linear", "tensor::module::requantized_linear"];
        let called = Called { cx, activation: self.activation, functions, last: None };
        let shape = cx.shape(At::WEIGHT);
        let (Some(&[inputs, outputs]), true) = (shape.as_deref(), called.is_layer()) else {
            return Implementation::Call(called.function());
        };
        let sizes = [Arg::named("d_input", inputs), Arg::named("d_output", outputs)];
        called.layer(Config::new(&layers::QUANTIZED_LINEAR, sizes))
    }
}

const QUANTIZED_CONV: [&layers::Layer; 3] =
    [&layers::QUANTIZED_CONV_1D, &layers::QUANTIZED_CONV_2D, &layers::QUANTIZED_CONV_3D];

impl Operation for QuantizedConv {
    facts!(
        operands: [
            "x", "x_zero?", "x_scale?", "weight", "weight_zero?", "scale", "bias?", "residual?", "integer_bias?", "output_zero?"
        ],
        parameters: [1, 3, 4, 5, 6, 8, 9], effect: Pure, folding: Never, result: Computed
    );
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let dims = conv_dims(cx, At::WEIGHT, &self.options)?;
        let outputs = cx.ty(At::WEIGHT)?.dims[0].clone();
        Ok(vec![infer_layer(cx, dims, &outputs, self.activation)?])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, weight) = (operands.get(0)?, operands.get(At::WEIGHT)?);
        if x.dtype.is_float() {
            let input = quantized_input(operands)?;
            return self.evaluate(&Known { operands: &with_integers(operands, &input) });
        }
        let rank = x.shape.len();
        let spread = |data: &TensorData| {
            let mut shape = vec![1; rank];
            *shape.first_mut()? = data.num_elements();
            Some(TensorData { shape, ..data.clone() })
        };
        let [x_zero, zeros] = [At::X_ZERO, At::WEIGHT_ZERO].map(|n| operands.get(n).and_then(spread));
        let sides = [Some(x), Some(weight), x_zero.as_ref(), zeros.as_ref()];
        let conv = ConvInteger { options: self.options.clone() };
        let [sums] = <[_; 1]>::try_from(conv.evaluate(&Known { operands: &sides })?).ok()?;
        let places = sums.shape.get(2..)?.iter().product();
        Some(vec![finished(operands, self.activation, &sums, places)?])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let floats = cx.dtype(0).is_float();
        let mut args = kernel_operands(floats);
        let (bounds, sizes) = (kernel_bounds(cx)?, conv_sizes(&self.options, cx, At::WEIGHT)?);
        if bounds.is_none() {
            args.push(KernelArg::Optional(At::RESIDUAL));
        }
        args.extend([sizes, KernelArg::Function(self.activation)]);
        let function = match bounds {
            Some(bounds) => {
                args.extend(bounds);
                "requantized_conv2d"
            }
            None if floats => {
                args.push(KernelArg::Scratch(elements(&cx.shape(0)?)));
                "quantized_conv2d_of_floats"
            }
            None => "quantized_conv2d",
        };
        Some(Loops::kernel(function, args))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let functions = ["tensor::module::quantized_conv", "tensor::module::requantized_conv"];
        let last = Some(Arg::options(&self.options));
        let called = Called { cx, activation: self.activation, functions, last };
        match weight_at(cx, At::WEIGHT).filter(|_| called.is_layer()) {
            Some(weight) => called.layer(windowed_config(&QUANTIZED_CONV, &weight, &self.options)),
            None => Implementation::Call(called.function()),
        }
    }
}

/// Checks integers of one dtype, and numbers beside them.
fn infer_binary(cx: &mut Infer<'_>, zeros: &[usize], numbers: &[usize]) -> RuleResult<Vec<TensorType>> {
    let lhs = at_least_rank(cx, 0, "lhs", 1)?;
    need_int("lhs", lhs)?;
    same_dtype("rhs", cx.ty(1)?, "lhs", lhs)?;
    let dtype = lhs.dtype;
    for &n in zeros.iter().chain(numbers) {
        let number = of_rank(cx, n, "number", 1)?;
        need_equal("a number", &number.dims[0], number, &Dim::constant(1), lhs)?;
        match zeros.contains(&n) {
            true => need_int("zero point", number)?,
            false => need_float("scale", number)?,
        }
    }
    Ok(vec![TensorType { dtype, dims: broadcast(cx, &[0, 1])? }])
}

/// Steps over so many operands; `steps` yields what is rounded, of operands in f32.
fn rounded(dtype: DType, operands: u16, steps: impl FnOnce(&mut Vec<Step>) -> u16) -> Option<Expression> {
    let (least, greatest) = dtype.integers()?;
    let bounds = Activation::Clamp { min: least as f64, max: greatest as f64 };
    let mut all: Vec<Step> = (0..operands).map(Step::Input).collect();
    let y = steps(&mut all);
    let y = push(&mut all, Step::Unary(UnaryOp::Round, y));
    let y = push(&mut all, Step::Activation(bounds, y));
    push(&mut all, Step::Cast(dtype, y));
    Some(Expression::new(all))
}

/// Operands of a program as numbers in f32.
fn wide<const N: usize>(steps: &mut Vec<Step>) -> [u16; N] {
    core::array::from_fn(|n| push(steps, Step::Cast(DType::F32, n as u16)))
}

fn sum(dtype: DType) -> Option<Expression> {
    rounded(dtype, 5, |steps| {
        let [lhs, rhs, lhs_scale, rhs_scale, offset] = wide(steps);
        let lhs = push(steps, Step::Binary(BinaryOp::Mul, lhs, lhs_scale));
        let rhs = push(steps, Step::Binary(BinaryOp::Mul, rhs, rhs_scale));
        let rhs = push(steps, Step::Binary(BinaryOp::Add, rhs, offset));
        push(steps, Step::Binary(BinaryOp::Add, lhs, rhs))
    })
}

fn product(dtype: DType) -> Option<Expression> {
    rounded(dtype, 6, |steps| {
        let [lhs, rhs, lhs_zero, rhs_zero, zero, scale] = wide(steps);
        let lhs = push(steps, Step::Binary(BinaryOp::Sub, lhs, lhs_zero));
        let rhs = push(steps, Step::Binary(BinaryOp::Sub, rhs, rhs_zero));
        let y = push(steps, Step::Binary(BinaryOp::Mul, lhs, rhs));
        let y = push(steps, Step::Binary(BinaryOp::Mul, y, scale));
        push(steps, Step::Binary(BinaryOp::Add, y, zero))
    })
}

/// A loop over all operands.
fn loops_over(cx: &Site<'_>, operands: usize, expression: Expression) -> Option<Loops> {
    let shape = cx.result_shape()?;
    let operands = (0..operands).map(|n| Some((n, Strided::new(&cx.shape(n)?).expand(&shape)?)));
    let operands = operands.collect::<Option<_>>()?;
    Some(Loops::Elementwise(vec![ElementLoop { result: Strided::new(&shape), operands, expression }]))
}

impl Operation for QuantizedAdd {
    facts!(operands: ["lhs", "rhs", "lhs_scale", "rhs_scale", "offset"], parameters: [2, 3, 4], effect: Pure, folding: PerElement(5), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        infer_binary(cx, &[], &[2, 3, 4])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        sum(operands.get(0)?.dtype)?.evaluate(operands)
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        loops_over(cx, 5, sum(cx.dtype(0))?)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let sides = [named(cx, 0, "lhs"), named(cx, 1, "rhs")];
        let dtype = cx.dtype(0);
        let numbers =
            [named(cx, 2, "lhs_scale"), named(cx, 3, "rhs_scale"), named(cx, 4, "offset"), Arg::DType(dtype)];
        let function =
            Arg::call("tensor::module::quantized_add", [sides.to_vec(), numbers.to_vec()].concat());
        if ![2, 3, 4].into_iter().all(|n| cx.is_constant(n)) {
            return Implementation::Call(function);
        }
        let config =
            Config::new(&layers::QUANTIZED_ADD, []).with("dtype", Arg::DType(dtype), dtype == DType::U8);
        let layer = Layer::new(config, [2, 3, 4].map(|n| cx.input(n)), function);
        Implementation::Layer(layer.called("forward", sides.to_vec()))
    }
}

impl Operation for QuantizedMul {
    facts!(
        operands: ["lhs", "rhs", "lhs_zero", "rhs_zero", "zero", "scale"], parameters: [2, 3, 4, 5], effect: Pure, folding: PerElement(6),
        result: Computed
    );
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        infer_binary(cx, &[2, 3, 4], &[5])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        product(operands.get(0)?.dtype)?.evaluate(operands)
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        loops_over(cx, 6, product(cx.dtype(0))?)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let sides = [named(cx, 0, "lhs"), named(cx, 1, "rhs")];
        let zeros =
            [named(cx, 2, "lhs_zero_point"), named(cx, 3, "rhs_zero_point"), named(cx, 4, "zero_point")];
        let [lhs, rhs] = sides.clone();
        let args = [lhs, rhs, Arg::Array(zeros.to_vec()), named(cx, 5, "scale"), Arg::DType(cx.dtype(0))];
        let function = Arg::call("tensor::module::quantized_mul", args);
        if ![2, 3, 4, 5].into_iter().all(|n| cx.is_constant(n)) {
            return Implementation::Call(function);
        }
        let dtype = cx.dtype(0);
        let config =
            Config::new(&layers::QUANTIZED_MUL, []).with("dtype", Arg::DType(dtype), dtype == DType::U8);
        let layer = Layer::new(config, [2, 3, 4, 5].map(|n| cx.input(n)), function);
        Implementation::Layer(layer.called("forward", sides.to_vec()))
    }
}
