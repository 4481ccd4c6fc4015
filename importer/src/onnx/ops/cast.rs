//! `Cast` and `CastLike`.

use super::super::tensor;
use super::prelude::*;

pub(super) struct Cast {
    /// `None` takes the dtype of the second input.
    to: Option<DType>,
}

/// What concerns 8-bit floats alone.
const EIGHT_BITS: [&str; 2] = ["saturate", "round_mode"];

impl Cast {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        node.ignore(&EIGHT_BITS);
        let code = node.required_int("to")?;
        let dtype = i32::try_from(code).map_err(|_| invalid("to", format!("is {code}")))?;
        Ok(Self { to: Some(tensor::dtype(dtype).map_err(|reason| invalid("to", reason))?) })
    }

    fn read_like(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        node.ignore(&EIGHT_BITS);
        Ok(Self { to: None })
    }
}

impl<'m> Operator<'m> for Cast {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Cast", 6, &["input"]).reads(Self::read),
        Spec::onnx("CastLike", 15, &["input", "target_type"]).reads(Self::read_like),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let dtype = match self.to {
            Some(dtype) => dtype,
            None => to.dtype(args.value("target_type")?),
        };
        Ok(to.cast(args.value("input")?, dtype)?.into())
    }
}
