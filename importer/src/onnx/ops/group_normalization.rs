//! `GroupNormalization` and `InstanceNormalization`.

use super::super::lowering::Lowering;
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Dim, Op, RuleError, RuleResult, ValueId};

pub(super) struct GroupNormalization {
    /// `None`: as many as channels.
    groups: Option<usize>,
    epsilon: f64,
    /// Parameters are one a group, not one a channel.
    per_group: bool,
}

impl Operator<'_> for GroupNormalization {
    const SPECS: &'static [Spec] = &[
        Spec::onnx("GroupNormalization", 18, &["X", "scale", "bias"]),
        Spec::onnx("InstanceNormalization", 6, &["X", "scale", "bias"]),
    ];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // The backend decides in what precision it sums.
        node.ignore(&["stash_type"]);
        let epsilon = node.float("epsilon", 1e-5)?;
        if node.operator() == "InstanceNormalization" {
            return Ok(Self { groups: None, epsilon, per_group: false });
        }
        let groups = node.required_int("num_groups")?;
        let count = usize::try_from(groups).ok().filter(|&groups| groups > 0);
        let count = count.ok_or_else(|| invalid("num_groups", format!("is {groups}")))?;
        Ok(Self { groups: Some(count), epsilon, per_group: node.opset < 21 })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        to.need_rank("X", x, 3)?;
        let channels = to.dims(x)[1].as_size();
        let channels =
            channels.ok_or_else(|| RuleError::NotConstant { input: "number of channels".into() })?;
        let groups = self.groups.unwrap_or(channels);
        let mut inputs = vec![x];
        for name in ["scale", "bias"] {
            let value = args.value(name)?;
            inputs.push(if self.per_group { spread(to, value, groups, channels)? } else { value });
        }
        Ok(to.add(Op::GroupNorm { groups, epsilon: self.epsilon }, &inputs)?.into())
    }
}

/// One parameter a group to one a channel.
fn spread(to: &mut Lowering<'_, '_>, value: ValueId, groups: usize, channels: usize) -> RuleResult<ValueId> {
    if !channels.is_multiple_of(groups) {
        return Err(invalid("num_groups", format!("is {groups} for {channels} channels")));
    }
    let column = to.reshape(value, vec![Dim::from(groups), Dim::constant(1)])?;
    let matrix = to.expand(column, vec![Dim::from(groups), Dim::from(channels / groups)])?;
    to.reshape(matrix, vec![Dim::from(channels)])
}
