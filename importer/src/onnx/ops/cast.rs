//! `Cast` and `CastLike`.

use super::super::tensor;
use super::prelude::*;

pub(super) struct Cast {
    /// `None` takes the dtype of the second input.
    to: Option<DType>,
}

impl Cast {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // Both concern 8-bit floats alone.
        node.ignore(&["saturate", "round_mode"]);
        if node.operator() == "CastLike" {
            return Ok(Self { to: None });
        }
        let code = node.required_int("to")?;
        let dtype = i32::try_from(code).map_err(|_| invalid("to", format!("is {code}")))?;
        Ok(Self { to: Some(tensor::dtype(dtype).map_err(|reason| invalid("to", reason))?) })
    }
}

impl<'m> Operator<'m> for Cast {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Cast", 6, &["input"]).reads(Self::read),
        Spec::onnx("CastLike", 15, &["input", "target_type"]).reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let dtype = match self.to {
            Some(dtype) => dtype,
            None => to.dtype(args.value("target_type")?),
        };
        Ok(to.cast(args.value("input")?, dtype)?.into())
    }
}
