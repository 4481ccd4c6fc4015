//! Functions of any number of tensors, element by element.

use super::prelude::*;

const INPUTS: &[&str] = &["data_0", "data*"];

pub(super) struct Variadic {
    op: BinaryOp,
    mean: bool,
}

impl<'m> Operator<'m> for Variadic {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Max", 1, INPUTS).reads(|_| Ok(Self { op: BinaryOp::Max, mean: false })),
        Spec::onnx("Mean", 1, INPUTS).reads(|_| Ok(Self { op: BinaryOp::Add, mean: true })),
        Spec::onnx("Min", 1, INPUTS).reads(|_| Ok(Self { op: BinaryOp::Min, mean: false })),
        Spec::onnx("Sum", 1, INPUTS).reads(|_| Ok(Self { op: BinaryOp::Add, mean: false })),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let values = args.all("data_0")?;
        let count = values.len();
        let mut result = None;
        for value in values {
            result = Some(match result {
                None => value,
                Some(left) => to.binary(self.op, left, value)?,
            });
        }
        let mut result = result.ok_or_else(|| RuleError::MissingInput { input: "data_0".into() })?;
        if self.mean && count > 1 {
            let divisor = to.number_like(result, count);
            result = to.binary(BinaryOp::Div, result, divisor)?;
        }
        Ok(result.into())
    }
}
