//! Products of quantized integers: sums of `(a - a_zero) (b - b_zero)` in 32 bits.

use super::binary::binary;
use super::broadcast::broadcasts_to;
use super::convolution::{Conv, conv_dims, conv_sizes};
use super::linear::{matmul_dims, product_sizes};
use super::prelude::*;
use kiln_types::{BinaryOp, ConvOptions, DType};

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
