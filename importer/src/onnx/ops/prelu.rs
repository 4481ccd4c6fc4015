//! `PRelu`: a leaky rectifier with a slope for each channel or element.

use super::prelude::*;

pub(super) struct PRelu {
    /// Before version 7 a slope was one number, or one for each channel.
    by_channel: bool,
}

impl<'m> Operator<'m> for PRelu {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("PRelu", 1, &["X", "slope"]).reads(|node| Ok(Self { by_channel: node.opset < 7 }))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, mut slope) = (args.value("X")?, args.value("slope")?);
        if self.by_channel {
            slope = along_channels(to, x, slope)?;
        }
        let zero = to.number_like(x, 0);
        let negative = to.compare(CompareOp::Lower, x, zero)?;
        let scaled = to.binary(BinaryOp::Mul, x, slope)?;
        Ok(to.select(negative, scaled, x)?.into())
    }
}

/// Slopes as they meet the axis of channels, which is the only one where there is no batch.
fn along_channels(to: &mut Lowering<'_, '_>, x: ValueId, slope: ValueId) -> RuleResult<ValueId> {
    let (rank, mut dims) = (to.rank(x), to.dims(slope));
    if dims.len() <= rank && dims.iter().all(|dim| dim.is(1)) {
        return Ok(slope);
    }
    if dims.len() != 1 || rank == 0 {
        let (left, right) = (to.ty(x).clone(), to.ty(slope).clone());
        let what = "input and slopes of channels, before version 7".to_owned();
        return Err(RuleError::Dims { what, left, right });
    }
    dims.extend(std::iter::repeat_n(Dim::constant(1), rank.saturating_sub(2)));
    to.reshape(slope, dims)
}
