//! `GatedRMSNorm` and `GatedAdd`, which ONNX Runtime writes for hybrids of attention and recurrence.

use super::prelude::*;
use crate::ir::op;
use kiln_types::Activation;

pub(super) enum Gated {
    /// A norm, times an activation of the gate.
    RmsNorm { epsilon: f64, activation: Activation },
    /// What is added is scaled by the gate.
    Add,
}

impl Gated {
    fn read_norm(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let silu = Activation::Silu;
        let names = [("silu", silu), ("swish", silu), ("sigmoid", Activation::Sigmoid)];
        let activation = node.choice("activation", "silu", &names)?;
        Ok(Self::RmsNorm { epsilon: node.float("epsilon", 1e-5)?, activation })
    }
}

impl<'m> Operator<'m> for Gated {
    const FORMS: Forms<'m, Self> = &[
        Spec::microsoft("GatedRMSNorm", &["X", "scale", "gate"]).reads(Self::read_norm),
        Spec::microsoft("GatedAdd", &["X", "Y", "gate"]).reads(|_| Ok(Self::Add)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, gate) = (args.value("X")?, args.value("gate")?);
        let y = match self {
            Self::RmsNorm { epsilon, activation } => {
                let y = norm_of_parts(to, x, args.value("scale")?, *epsilon)?;
                to.formula(|f| f.value(y) * f.value(gate).activation(*activation))?
            }
            Self::Add => {
                let y = args.value("Y")?;
                to.formula(|f| f.value(x) + f.value(y) * f.value(gate))?
            }
        };
        Ok(y.into())
    }
}

/// The norm of each part of the last axis that is as long as the scale.
fn norm_of_parts(to: &mut Lowering<'_, '_>, x: ValueId, scale: ValueId, epsilon: f64) -> RuleResult<ValueId> {
    to.expect_rank("scale", scale, 1)?;
    let rank = to.need_rank("X", x, 1)?;
    let norm = Op::RmsNorm(op::RmsNorm { epsilon });
    let (dims, part) = (to.dims(x), to.dims(scale)[0].clone());
    if dims[rank - 1] == part {
        return to.add(norm, &[x, scale]);
    }
    let (whole, size) = (dims[rank - 1].as_size(), part.as_size());
    let Some((whole, size)) = whole.zip(size).filter(|(whole, size)| *size > 0 && whole % size == 0) else {
        return Err(misfit(
            "X",
            format!("has rows of {}, no multiple of the scale's {part}", dims[rank - 1]),
        ));
    };
    let mut parts = dims[..rank - 1].to_vec();
    parts.extend([Dim::from(whole / size), part]);
    let parts = to.reshape(x, parts)?;
    let y = to.add(norm, &[parts, scale])?;
    to.reshape(y, dims)
}
