//! `QLinearConcat`: tensors of integers that stand for numbers, each in its own way, joined.

use super::prelude::*;
use super::quantization::Quantization;

pub(super) struct QLinearConcat {
    axis: i64,
}

impl QLinearConcat {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.required_int("axis")? })
    }
}

impl<'m> Operator<'m> for QLinearConcat {
    const FORMS: Forms<'m, Self> =
        &[Spec::microsoft("QLinearConcat", &["Y_scale", "Y_zero_point", "inputs*"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let dtype = to.dtype(args.value("Y_zero_point")?);
        let of_y = Quantization::read(args, to, dtype, ["Y_scale", "Y_zero_point"])?;
        let inputs = args.all("inputs")?;
        let (triples, rest) = inputs.as_chunks::<3>();
        let [first, ..] = triples else {
            return Err(RuleError::MissingInput { input: "inputs".to_owned() });
        };
        if !rest.is_empty() {
            let reason = format!("are {}, must be a tensor, a scale and a zero point each", inputs.len());
            return Err(invalid("inputs", reason));
        }
        let axis = axis_of(self.axis, to.rank(first[0]))?;
        let mut parts = Vec::with_capacity(triples.len());
        for &[x, scale, zero] in triples {
            let zero = Some(("inputs", zero));
            let of_x = Quantization::new(to, to.dtype(x), ("inputs", scale), zero)?;
            parts.push(of_x.converted(to, x, &of_y)?);
        }
        Ok(to.concat(&parts, axis)?.into())
    }
}
