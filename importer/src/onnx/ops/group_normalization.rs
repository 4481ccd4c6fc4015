//! `GroupNormalization` and `InstanceNormalization`, and ONNX Runtime's `GroupNorm` and `SkipGroupNorm`, into which it merges what
//! diffusion models have around their norms.

use super::prelude::*;
use crate::ir::op;
use kiln_types::Activation;

pub(super) struct GroupNormalization {
    /// `None`: as many as channels.
    groups: Option<usize>,
    epsilon: f64,
    /// Parameters are one a group, not one a channel.
    per_group: bool,
    merged: Option<Merged>,
}

/// What ONNX Runtime merges into a norm.
#[derive(Clone, Copy)]
struct Merged {
    channels_last: bool,
    /// SiLU of the result.
    silu: bool,
}

impl GroupNormalization {
    fn read_group(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // The backend decides in what precision it sums.
        node.ignore(&["stash_type"]);
        let epsilon = node.float("epsilon", 1e-5)?;
        let groups = Some(group_count(node, "num_groups")?);
        Ok(Self { groups, epsilon, per_group: node.opset < 21, merged: None })
    }

    fn read_instance(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { groups: None, epsilon: node.float("epsilon", 1e-5)?, per_group: false, merged: None })
    }

    fn read_merged(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let silu = match node.required_int("activation")? {
            0 => false,
            1 => true,
            other => return Err(invalid("activation", format!("is {other}, must be 0 or 1"))),
        };
        let merged = Merged { channels_last: node.flag("channels_last", true)?, silu };
        let groups = Some(group_count(node, "groups")?);
        let epsilon = node.float("epsilon", 1e-5)?;
        Ok(Self { groups, epsilon, per_group: false, merged: Some(merged) })
    }
}

/// The attribute `name`: a number of groups.
fn group_count(node: &mut SourceNode<'_>, name: &str) -> RuleResult<usize> {
    let groups = node.required_int(name)?;
    let count = usize::try_from(groups).ok().filter(|&groups| groups > 0);
    count.ok_or_else(|| invalid(name, format!("is {groups}")))
}

impl<'m> Operator<'m> for GroupNormalization {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("GroupNormalization", 18, &["X", "scale", "bias"]).reads(Self::read_group),
        Spec::onnx("InstanceNormalization", 1, &["X", "scale", "bias"]).reads(Self::read_instance),
        Spec::microsoft("GroupNorm", &["X", "gamma", "beta"]).reads(Self::read_merged),
        Spec::microsoft("SkipGroupNorm", &["X", "gamma", "beta", "skip", "bias?"]).reads(Self::read_merged),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        if let Some(merged) = self.merged {
            return self.with_merged(args, to, x, merged);
        }
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
    /// The norm of a sum, and the sum, which is the input alone where nothing skips the block.
    fn with_merged(
        &self,
        args: &Args,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        merged: Merged,
    ) -> RuleResult<Outputs> {
        let rank = to.need_rank("X", x, 3)?;
        let channels = if merged.channels_last { rank - 1 } else { 1 };
        let dtype = to.dtype(x);
        let mut sum = x;
        if let Some(mut skip) = args.optional("skip")? {
            // One number for each entry of the batch and each channel.
            if let [batch, width] = to.dims(skip).as_slice() {
                let mut dims = vec![Dim::constant(1); rank];
                (dims[0], dims[channels]) = (batch.clone(), width.clone());
                skip = to.reshape(skip, dims)?;
            }
            sum = to.binary(BinaryOp::Add, sum, skip)?;
        }
        if let Some(bias) = args.optional("bias")? {
            to.expect_rank("bias", bias, 1)?;
            let mut dims = vec![Dim::constant(1); rank];
            dims[channels] = to.ty(bias).num_elements();
            let bias = to.reshape(bias, dims)?;
            sum = to.binary(BinaryOp::Add, sum, bias)?;
        }
        let parameters = [args.value("gamma")?, args.value("beta")?];
        let [gamma, beta] = parameters.map(|parameter| to.cast(parameter, dtype));
        let image = if merged.channels_last { to.channels_first(sum)? } else { sum };
        let mut y = self.normalized(to, image, [gamma?, beta?])?;
        if merged.silu {
            y = to.activation(Activation::Silu, y)?;
        }
        let y = if merged.channels_last { to.channels_last(y)? } else { y };
        Ok(vec![y, sum].into())
    }

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
        let mut y = to.in_single(rows, |to, rows| {
            to.formula(|f| {
                let rows = f.value(rows);
                let centred = rows - rows.mean(&[2]);
                centred / (centred.square().mean(&[2]) + self.epsilon).sqrt()
            })
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
