//! `GroupNormalization` and `InstanceNormalization`.

use super::prelude::*;
use crate::ir::op;

pub(super) struct GroupNormalization {
    /// `None`: as many as channels.
    groups: Option<usize>,
    epsilon: f64,
    /// Parameters are one a group, not one a channel.
    per_group: bool,
}

impl GroupNormalization {
    fn read_group(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // The backend decides in what precision it sums.
        node.ignore(&["stash_type"]);
        let epsilon = node.float("epsilon", 1e-5)?;
        let groups = node.required_int("num_groups")?;
        let count = usize::try_from(groups).ok().filter(|&groups| groups > 0);
        let count = count.ok_or_else(|| invalid("num_groups", format!("is {groups}")))?;
        Ok(Self { groups: Some(count), epsilon, per_group: node.opset < 21 })
    }

    fn read_instance(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { groups: None, epsilon: node.float("epsilon", 1e-5)?, per_group: false })
    }
}

impl<'m> Operator<'m> for GroupNormalization {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("GroupNormalization", 18, &["X", "scale", "bias"]).reads(Self::read_group),
        Spec::onnx("InstanceNormalization", 1, &["X", "scale", "bias"]).reads(Self::read_instance),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let parameters = [args.value("scale")?, args.value("bias")?];
        if to.need_rank("X", x, 2)? == 2 {
            // One element a channel: an axis to sum over is missing.
            let dims = to.dims(x);
            let column = to.unsqueeze(x, &[2])?;
            let y = self.normalized(to, column, parameters)?;
            return Ok(to.reshape(y, dims)?.into());
        }
        Ok(self.normalized(to, x, parameters)?.into())
    }
}

impl GroupNormalization {
    fn normalized(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        parameters: [ValueId; 2],
    ) -> RuleResult<ValueId> {
        let Some(channels) = to.dims(x)[1].as_size() else {
            return self.composed(to, x, parameters);
        };
        let groups = self.groups.unwrap_or(channels);
        let mut inputs = vec![x];
        for value in parameters {
            inputs.push(if self.per_group { spread(to, value, groups, channels)? } else { value });
        }
        to.add(Op::GroupNorm(op::GroupNorm { groups, epsilon: self.epsilon }), &inputs)
    }

    /// Step by step, for a number of channels that only the run tells.
    fn composed(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        parameters: [ValueId; 2],
    ) -> RuleResult<ValueId> {
        let dims = to.dims(x);
        let inner = Dim::product(&dims[1..]);
        let groups = self.groups.map_or_else(|| dims[1].clone(), Dim::from);
        let rows = to.reshape(x, vec![dims[0].clone(), groups.clone(), inner.floor_div(&groups)])?;
        let mut y = to.formula(|f| {
            let rows = f.value(rows);
            let centred = rows - rows.mean(&[2]);
            centred / (centred.square().mean(&[2]) + self.epsilon).sqrt()
        })?;
        // A parameter for each group meets the rows, one for each channel the image.
        if !self.per_group {
            y = to.reshape(y, dims.clone())?;
        }
        for (op, value) in [BinaryOp::Mul, BinaryOp::Add].into_iter().zip(parameters) {
            let mut column = vec![Dim::constant(1); to.rank(y)];
            column[1] = to.ty(value).num_elements();
            let value = to.reshape(value, column)?;
            y = to.binary(op, y, value)?;
        }
        to.reshape(y, dims)
    }
}

/// One parameter a group to one a channel.
fn spread(to: &mut Lowering<'_, '_>, value: ValueId, groups: usize, channels: usize) -> RuleResult<ValueId> {
    if !channels.is_multiple_of(groups) {
        return Err(misfit("num_groups", format!("is {groups} for {channels} channels")));
    }
    let column = to.reshape(value, vec![Dim::from(groups), Dim::constant(1)])?;
    let matrix = to.expand(column, vec![Dim::from(groups), Dim::from(channels / groups)])?;
    to.reshape(matrix, vec![Dim::from(channels)])
}
