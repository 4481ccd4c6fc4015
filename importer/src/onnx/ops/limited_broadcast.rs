//! Broadcasting as it was before version 7: of the second operand alone, which lies along the first one's axes from `axis` on.

use super::prelude::*;

pub(super) struct LimitedBroadcast {
    enabled: bool,
    /// The first operand's axis where the second one's shape begins; `None`: where it ends with the first one's.
    axis: Option<i64>,
}

impl LimitedBroadcast {
    /// `None` since version 7, from which on operands meet by their last axes.
    pub(super) fn read(node: &mut SourceNode<'_>) -> RuleResult<Option<Self>> {
        if node.opset >= 7 {
            return Ok(None);
        }
        Ok(Some(Self { enabled: node.flag("broadcast", false)?, axis: node.optional_int("axis")? }))
    }

    /// `b` in a shape that meets `a` by the last axes.
    pub(super) fn align(&self, to: &mut Lowering<'_, '_>, a: ValueId, b: ValueId) -> RuleResult<ValueId> {
        let (target, mut dims) = (to.dims(a), to.dims(b));
        let apart = |to: &Lowering<'_, '_>, what: &str| RuleError::Dims {
            what: what.to_owned(),
            left: to.ty(a).clone(),
            right: to.ty(b).clone(),
        };
        if !self.enabled {
            let differs = target.len() != dims.len() || target.iter().zip(&dims).any(|(a, b)| differ(a, b));
            let what = "operands without `broadcast` set to 1, before version 7";
            return if differs { Err(apart(to, what)) } else { Ok(b) };
        }
        let what = "broadcast of the second operand";
        let room = target.len().checked_sub(dims.len()).ok_or_else(|| apart(to, what))?;
        if dims.iter().all(|dim| dim.is(1)) {
            return Ok(b);
        }
        let start = match self.axis {
            None => room,
            Some(axis) => axis_of(axis, target.len())?,
        };
        let behind = room.checked_sub(start).ok_or_else(|| apart(to, "broadcast from `axis` on"))?;
        if target[start..].iter().zip(&dims).any(|(a, b)| !b.is(1) && differ(a, b)) {
            return Err(apart(to, what));
        }
        dims.extend(std::iter::repeat_n(Dim::constant(1), behind));
        to.reshape(b, dims)
    }
}

/// Whether sizes are known, and different.
fn differ(a: &Dim, b: &Dim) -> bool {
    (a - b).as_constant().is_some_and(|rest| rest != 0)
}
