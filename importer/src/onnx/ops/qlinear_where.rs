//! `QLinearWhere`: elements of one tensor or another, whose integers stand for numbers each in its own way.

use super::prelude::*;
use super::quantization::Quantization;

pub(super) struct QLinearWhere;

impl<'m> Operator<'m> for QLinearWhere {
    const FORMS: Forms<'m, Self> = &[Spec::microsoft(
        "QLinearWhere",
        &[
            "condition",
            "X",
            "x_scale",
            "x_zero_point",
            "Y",
            "y_scale",
            "y_zero_point",
            "z_scale",
            "z_zero_point",
        ],
    )
    .reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, y) = (args.value("X")?, args.value("Y")?);
        let of_x = Quantization::read(args, to, to.dtype(x), ["x_scale", "x_zero_point"])?;
        let of_y = Quantization::read(args, to, to.dtype(y), ["y_scale", "y_zero_point"])?;
        let of_z = Quantization::read(args, to, to.dtype(x), ["z_scale", "z_zero_point"])?;
        let (x, y) = (of_x.converted(to, x, &of_z)?, of_y.converted(to, y, &of_z)?);
        Ok(to.select(args.value("condition")?, x, y)?.into())
    }
}
