//! `QLinearSoftmax`: a softmax of integers that stand for numbers.

use super::prelude::*;
use super::quantization::Quantization;
use super::softmax::softmax;

pub(super) struct QLinearSoftmax {
    axis: i64,
    flatten: bool,
}

impl QLinearSoftmax {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // ONNX's version, which says what an axis means. Where none is given it is the last in every version, unlike ONNX's.
        let flatten = node.required_int("opset")? < 13;
        Ok(Self { axis: node.int("axis", -1)?, flatten })
    }
}

impl<'m> Operator<'m> for QLinearSoftmax {
    const FORMS: Forms<'m, Self> =
        &[Spec::microsoft("QLinearSoftmax", &["X", "X_scale", "x_zero_point?", "y_scale", "y_zero_point"])
            .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let dtype = to.dtype(x);
        // A softmax does not depend on the zero point of what it is taken of.
        let of_x = Quantization::new(to, dtype, ("X_scale", args.value("X_scale")?), None)?;
        let of_y = Quantization::read(args, to, dtype, ["y_scale", "y_zero_point"])?;
        let numbers = of_x.dequantized(to, x)?;
        let shares = softmax(to, numbers, self.axis, self.flatten)?;
        // ONNX Runtime takes a whole number of steps for all of a softmax, also where the scale is no whole part of 1.
        let steps = to.formula(|f| {
            let steps = f.value(of_y.scale).recip().unary(UnaryOp::Floor);
            f.value(shares) * steps
        })?;
        let y = of_y.quantized_steps(to, steps)?;
        Ok(y.into())
    }
}
