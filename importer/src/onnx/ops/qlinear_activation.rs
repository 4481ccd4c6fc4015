//! `QLinearSigmoid` and `QLinearLeakyRelu`: activations of integers that stand for numbers.

use super::prelude::*;
use super::quantization::Quantization;
use kiln_types::Activation;

const OPERANDS: &[&str] = &["X", "X_scale", "X_zero_point?", "Y_scale", "Y_zero_point?"];

pub(super) struct QLinearActivation(Activation);

impl<'m> Operator<'m> for QLinearActivation {
    const FORMS: Forms<'m, Self> = &[
        Spec::microsoft("QLinearLeakyRelu", OPERANDS)
            .reads(|node| Ok(Self(Activation::LeakyRelu { slope: node.float("alpha", 0.01)? }))),
        Spec::microsoft("QLinearSigmoid", OPERANDS).reads(|_| Ok(Self(Activation::Sigmoid))),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let dtype = to.dtype(x);
        let of_x = Quantization::read(args, to, dtype, ["X_scale", "X_zero_point"])?;
        let of_y = Quantization::read(args, to, dtype, ["Y_scale", "Y_zero_point"])?;
        let numbers = of_x.dequantized(to, x)?;
        let y = to.formula(|f| f.value(numbers).activation(self.0))?;
        Ok(of_y.quantized(to, y)?.into())
    }
}
