//! `BiasAdd` and `BiasSplitGelu`: what ONNX Runtime's optimizer makes of the sums behind a diffusion model's products.

use super::prelude::*;
use kiln_types::Activation;

pub(super) enum BiasAdd {
    /// What skipped the block is added too.
    Skip,
    /// One half of the sum is gated by GELU of the other.
    SplitGelu,
}

impl<'m> Operator<'m> for BiasAdd {
    const FORMS: Forms<'m, Self> = &[
        Spec::microsoft("BiasAdd", &["X", "bias", "skip"]).reads(|_| Ok(Self::Skip)),
        Spec::microsoft("BiasSplitGelu", &["X", "bias"]).reads(|_| Ok(Self::SplitGelu)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let sum = to.binary(BinaryOp::Add, args.value("X")?, args.value("bias")?)?;
        let y = match self {
            Self::Skip => to.binary(BinaryOp::Add, sum, args.value("skip")?)?,
            Self::SplitGelu => {
                let axis = to.need_rank("X", sum, 1)? - 1;
                let [left, right] = halves(to, sum, axis)?;
                to.formula(|f| f.value(left) * f.value(right).activation(Activation::Gelu))?
            }
        };
        Ok(y.into())
    }
}

/// Both halves of an axis.
fn halves(to: &mut Lowering<'_, '_>, x: ValueId, axis: usize) -> RuleResult<[ValueId; 2]> {
    let Some(whole) = to.dims(x).get(axis).cloned() else {
        return Err(RuleError::Axis { axis: axis as i64, rank: to.rank(x) });
    };
    if whole.as_size().is_some_and(|size| !size.is_multiple_of(2)) {
        return Err(misfit("X", format!("has {whole} features, which have no halves")));
    }
    let half = whole.floor_div(&Dim::constant(2));
    let left = to.slice(x, axis, Dim::constant(0), half.clone())?;
    let right = to.slice(x, axis, half.clone(), &half + &half)?;
    Ok([left, right])
}
