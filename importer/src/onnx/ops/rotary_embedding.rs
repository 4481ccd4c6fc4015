//! `RotaryEmbedding`: positions as rotations of pairs of features.

use super::prelude::*;
use crate::ir::op;

pub(super) struct RotaryEmbedding {
    heads: i64,
    rotated: i64,
    interleaved: bool,
}

impl RotaryEmbedding {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            heads: node.int("num_heads", 0)?,
            rotated: node.int("rotary_embedding_dim", 0)?,
            interleaved: node.flag("interleaved", false)?,
        })
    }
}

impl<'m> Operator<'m> for RotaryEmbedding {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("RotaryEmbedding", 23, &["X", "cos_cache", "sin_cache", "position_ids?"])
            .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let original = args.value("X")?;
        let dims = to.dims(original);
        // `[batch, seq, heads, size]`.
        let x = match dims.as_slice() {
            [_, _, _, _] => to.permute(original, vec![0, 2, 1, 3])?,
            [batch, seq, width] => {
                if self.heads <= 0 {
                    return Err(invalid("num_heads", "is missing"));
                }
                let heads = Dim::constant(self.heads);
                to.reshape(
                    original,
                    vec![batch.clone(), seq.clone(), heads.clone(), width.floor_div(&heads)],
                )?
            }
            _ => {
                let expected = "expected 3 or 4".to_owned();
                return Err(RuleError::Rank { input: "X".to_owned(), actual: dims.len(), expected });
            }
        };
        let size = to.dims(x)[3].clone();
        let rotated = if self.rotated > 0 { Dim::constant(self.rotated) } else { size.clone() };
        let part = to.slice(x, 3, Dim::constant(0), rotated.clone())?;
        let half = rotated.floor_div(&Dim::constant(2));
        let cos = angles(to, args, "cos_cache", &half)?;
        let sin = angles(to, args, "sin_cache", &half)?;
        let turned = if self.interleaved {
            let mut pairs = to.dims(part);
            pairs[3] = half;
            pairs.push(Dim::constant(2));
            let pairs = to.reshape(part, pairs)?;
            let first = to.slice(pairs, 4, Dim::constant(0), Dim::constant(1))?;
            let second = to.slice(pairs, 4, Dim::constant(1), Dim::constant(2))?;
            let (cos, sin) = (to.unsqueeze(cos, &[4])?, to.unsqueeze(sin, &[4])?);
            let parts = rotate(to, first, second, cos, sin)?;
            let pairs = to.concat(&parts, 4)?;
            let dims = to.dims(part);
            to.reshape(pairs, dims)?
        } else {
            let first = to.slice(part, 3, Dim::constant(0), half.clone())?;
            let second = to.slice(part, 3, half, rotated.clone())?;
            let parts = rotate(to, first, second, cos, sin)?;
            to.concat(&parts, 3)?
        };
        let whole = if rotated == size {
            turned
        } else {
            let rest = to.slice(x, 3, rotated, size)?;
            to.concat(&[turned, rest], 3)?
        };
        let whole = if dims.len() == 4 { to.permute(whole, vec![0, 2, 1, 3])? } else { whole };
        Ok(to.reshape(whole, dims)?.into())
    }
}

/// Cosines or sines of each position: `[batch, seq, 1, half]`.
fn angles(to: &mut Lowering<'_, '_>, args: &Args, name: &str, half: &Dim) -> RuleResult<ValueId> {
    let cache = args.value(name)?;
    let found = match args.optional("position_ids")? {
        Some(positions) => to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[cache, positions])?,
        None => cache,
    };
    if to.rank(found) != 3 {
        let expected = "expected 3, or 2 with positions".to_owned();
        return Err(RuleError::Rank { input: name.to_owned(), actual: to.rank(cache), expected });
    }
    let found = to.slice(found, 2, Dim::constant(0), half.clone())?;
    to.unsqueeze(found, &[2])
}

fn rotate(
    to: &mut Lowering<'_, '_>,
    first: ValueId,
    second: ValueId,
    cos: ValueId,
    sin: ValueId,
) -> RuleResult<[ValueId; 2]> {
    to.formulas(|f| {
        let [first, second, cos, sin] = f.values([first, second, cos, sin]);
        [first * cos - second * sin, first * sin + second * cos]
    })
}
