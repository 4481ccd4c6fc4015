//! Tensors with heads in an axis of their own, and what operators of attention have in common.

use super::prelude::*;
use kiln_types::AttentionOptions;

/// The attribute `name`: a number of heads.
pub(super) fn head_count(node: &mut SourceNode<'_>, name: &str) -> RuleResult<i64> {
    let count = node.required_int(name)?;
    match (1..=i64::from(u16::MAX)).contains(&count) {
        true => Ok(count),
        false => Err(invalid(name, format!("is {count}, must be a number of heads"))),
    }
}

/// Options with the attribute `scale`, of which 0 is none.
pub(super) fn scaled(node: &mut SourceNode<'_>) -> RuleResult<AttentionOptions> {
    let scale = node.optional_float("scale")?.filter(|&scale| scale != 0.0);
    Ok(AttentionOptions { scale, ..AttentionOptions::default() })
}

/// `[batch, seq, heads · size]` to `[batch, heads, seq, size]`.
pub(super) fn split_heads(
    to: &mut Lowering<'_, '_>,
    name: &str,
    x: ValueId,
    heads: i64,
) -> RuleResult<ValueId> {
    let dims = to.dims(x);
    let [batch, seq, width] = dims.as_slice() else {
        let expected = "expected 3".to_owned();
        return Err(RuleError::Rank { input: name.to_owned(), actual: dims.len(), expected });
    };
    let count = Dim::constant(heads);
    if width.as_constant().is_some_and(|width| width % heads != 0) {
        return Err(misfit(name, format!("has {width} features, which {heads} heads cannot share")));
    }
    let split = vec![batch.clone(), seq.clone(), count.clone(), width.floor_div(&count)];
    let split = to.reshape(x, split)?;
    to.permute(split, vec![0, 2, 1, 3])
}

/// Two inputs that are there together, or not at all.
pub(super) fn together(args: &Args, names: [&str; 2]) -> RuleResult<Option<[ValueId; 2]>> {
    match (args.optional(names[0])?, args.optional(names[1])?) {
        (Some(first), Some(second)) => Ok(Some([first, second])),
        (None, None) => Ok(None),
        (Some(_), None) => Err(RuleError::MissingInput { input: names[1].to_owned() }),
        (None, Some(_)) => Err(RuleError::MissingInput { input: names[0].to_owned() }),
    }
}

/// `[batch, heads, seq, size]` to `[batch, seq, heads · size]`.
pub(super) fn without_heads(to: &mut Lowering<'_, '_>, x: ValueId) -> RuleResult<ValueId> {
    let moved = to.permute(x, vec![0, 2, 1, 3])?;
    let [batch, seq, heads, size] = dims_of(to, moved)?;
    to.reshape(moved, vec![batch, seq, &heads * &size])
}

/// The four dims of a value with heads in an axis of their own.
pub(super) fn dims_of(to: &Lowering<'_, '_>, x: ValueId) -> RuleResult<[Dim; 4]> {
    to.dims(x).try_into().map_err(|dims: Vec<Dim>| RuleError::Rank {
        input: "a tensor of heads".to_owned(),
        actual: dims.len(),
        expected: "expected 4".to_owned(),
    })
}

/// Positions from `start` to `end` along one of four axes.
pub(super) fn positions(to: &mut Lowering<'_, '_>, axis: usize, start: Dim, end: Dim) -> RuleResult<ValueId> {
    to.range_along([start, end], axis, 4)
}
