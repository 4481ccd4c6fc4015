//! `Unsqueeze`: axes as an attribute before version 13, as an input since. `ExpandDims` of one axis.

use super::prelude::*;

pub(super) struct Unsqueeze {
    axes: Option<Vec<i64>>,
}

impl<'m> Operator<'m> for Unsqueeze {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Unsqueeze", 1, &["data"])
            .until(12)
            .moves()
            .reads(|node| Ok(Self { axes: node.ints("axes")? })),
        Spec::onnx("Unsqueeze", 13, &["data", "axes"]).moves().reads(|_| Ok(Self { axes: None })),
        Spec::microsoft("ExpandDims", &["data", "axes"]).reads(|_| Ok(Self { axes: None })),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let axes = match args.optional("axes")? {
            Some(axes) => to.known_ints(axes, "axes")?,
            None => self.axes.clone().ok_or_else(|| invalid("axes", "is missing"))?,
        };
        let axes = axes_of(&axes, to.rank(x) + axes.len())?;
        Ok(to.unsqueeze(x, &axes)?.into())
    }
}
